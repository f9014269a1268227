/* A comparison as its file says it: a base configuration, the runs that differ from it, and what is
 * expected of them.
 *
 *     [compare]
 *     title = ACCO against DDP
 *     base = small.ini               ; a configuration of sotto train, read first
 *     expect = acco.loss <= ddp.loss*1.02
 *     [base]
 *     steps = 300
 *     [run ddp]
 *     strategy = ddp
 *     [run acco]
 *     strategy = acco */
#ifndef SOTTO_TRAIN_COMPARE_SPEC_H
#define SOTTO_TRAIN_COMPARE_SPEC_H

#include "train/compare/expect.h"
#include "train/run/run.h"

enum { COMPARE_LIST_ROOM = 8192 };

/* What all runs are cut at, where the shortest ends. */
enum compare_cut { CUT_AUTO, CUT_ROUNDS, CUT_SAMPLES, CUT_TIME, CUT_NONE };

struct compare_config {                        /* [compare] */
    char title[OPTION_ROOM], out[OPTION_ROOM]; /* where unsaid, from the file's name */
    char seeds[COMPARE_LIST_ROOM], columns[COMPARE_LIST_ROOM], curves[COMPARE_LIST_ROOM];
    double target; /* loss of time_to_loss; 0: that of the worst run */
    int cut;       /* enum compare_cut                               */
    bool plot;
};

struct option_section compare_section(struct compare_config *config);

struct spec_setting {
    char *key, *value;
};

struct spec_run {
    char name[64];
    struct spec_setting *settings; /* over the base, in the file's order */
    int n_settings;
};

struct spec {
    struct compare_config compare;
    struct run_config base;
    struct spec_run *runs;
    const char **names; /* of the runs, NULL at the end */
    int n_runs;
    struct expect *expects;
    int n_expects;
};

/* Reads the file; every key, value and expectation is checked, with "path:line: " in front of an
 * error. */
enum sotto_status spec_load(struct spec *spec, const char *path);
void spec_free(struct spec *spec);

/* The configuration of a run: the base with the run's settings over it. */
enum sotto_status spec_config(const struct spec *spec, int run, struct run_config *out);

/* Cuts a list ("a, b c") into its words, in place; an error if there are more than `room`. `what`
 * names it. */
enum sotto_status spec_words(char *text, const char *what, char **words, int room, int *n);

#endif

/* The specification of a comparison, read from a file: a base configuration, the runs with their
 * settings over the base, and expectations about the results.
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

/* The axis on which all runs are cut at the end of the shortest run. */
enum compare_cut { CUT_AUTO, CUT_ROUNDS, CUT_SAMPLES, CUT_TIME, CUT_NONE };

struct compare_config {                        /* [compare] */
    char title[OPTION_ROOM], out[OPTION_ROOM]; /* default: from the file's name */
    char seeds[COMPARE_LIST_ROOM], columns[COMPARE_LIST_ROOM], curves[COMPARE_LIST_ROOM];
    double target; /* loss of time_to_loss; 0: the highest of the runs' lowest losses */
    int cut;       /* enum compare_cut                               */
    bool plot;
};

struct option_section compare_section(struct compare_config *config);

struct spec_setting {
    char *key, *value;
};

struct spec_run {
    char name[64];
    struct spec_setting *settings; /* (n_settings) over the base, in the file's order */
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

/* Reads the file and checks every key, value and expectation. Errors begin with "path:line: ". */
enum sotto_status spec_load(struct spec *spec, const char *path);
void spec_free(struct spec *spec);

/* Returns in `out` the configuration of a run: the base with the run's settings over the base. */
enum sotto_status spec_config(const struct spec *spec, int run, struct run_config *out);

/* Splits a list ("a, b c") into words, in place. Refuses more than `room` words; `what` names the
 * list in the error. */
enum sotto_status spec_words(char *text, const char *what, char **words, int room, int *n);

#endif

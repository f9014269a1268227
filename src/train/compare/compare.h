/* A comparison from its file to its results: runs what is not done yet, one run after the other,
 * then writes into the folder `out`
 *
 *     table.md, table.csv                 the table; table.md also has expectations and figures
 *     loss-rounds.png, .svg, .gnuplot     curves, one figure for each metric and axis
 *     loss.tsv                            their data
 *     calibration.json                    times that were measured, for all runs that are alike */
#ifndef SOTTO_TRAIN_COMPARE_COMPARE_H
#define SOTTO_TRAIN_COMPARE_COMPARE_H

#include "train/compare/jobs.h"

/* The run at hand. */
struct compare_at {
    const char *label; /* "acco seed 2" */
    int at, wanted;    /* its number, and runs in all                                 */
    double left;       /* seconds of real time for all runs; negative: not known yet */
    bool line;         /* the time has come for a line, where lines are not rewritten */
};

struct compare_how {
    const char *only;                /* "": all runs */
    bool again;                      /* also those that are done */
    FILE *out;                       /* progress and the table */
    const struct run_config *before; /* (optional) the base before options changed it */
    const atomic_int *stop;          /* (optional) as in run_watch */
    /* (optional) Called after a round, as in run_watch. */
    void (*step)(void *arg, const struct compare_at *at, const struct run_step *s);
    void (*fresh_line)(void *arg); /* (optional) called before a line is printed to `out` */
    /* (optional) Called where the watcher asked to stop; `world`: of MPI's ranks, NULL without. */
    void (*stopped)(void *arg, const struct comm *world);
    void *arg;
};

/* An error where a run or an expectation failed; the others are run and checked all the same.
 * SOTTO_ESTOPPED: the watcher asked; the next start goes on from there. */
enum sotto_status compare_run(const struct spec *spec, const struct compare_how *how);

/* The runs and the keys in which they differ from the base, unless one of them would be refused. */
enum sotto_status compare_list(const struct spec *spec, FILE *out);

#endif

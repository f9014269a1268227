/* A comparison from its file to its results: makes the runs that are not done yet, one after the
 * other, then writes into the folder `out`
 *
 *     table.md, table.csv                 the table; table.md also has expectations and figures
 *     loss-rounds.png, .svg, .gnuplot     curves, one figure for each metric and axis
 *     loss.tsv                            data of the curves
 *     calibration.json                    measured times, for all runs of the same work */
#ifndef SOTTO_TRAIN_COMPARE_COMPARE_H
#define SOTTO_TRAIN_COMPARE_COMPARE_H

#include "train/compare/jobs.h"

/* The current run of a comparison, for progress lines. */
struct compare_at {
    const char *label; /* "acco seed 2" */
    int at, wanted;    /* number of the run, from 1, and of the runs to make */
    double left;       /* seconds of real time until the last run ends; negative: unknown */
    bool line;         /* a progress line is due on an output that is no terminal */
};

struct compare_how {
    const char *only;                /* "": all runs */
    bool again;                      /* runs that are done are removed and made again */
    FILE *out;                       /* progress and the table */
    const struct run_config *before; /* (optional) base before the command line's options */
    const atomic_int *stop;          /* (optional) as in run_watch */
    /* (optional) Called after a round, as in run_watch. */
    void (*step)(void *arg, const struct compare_at *at, const struct run_step *s);
    void (*fresh_line)(void *arg); /* (optional) called before a line is printed to `out` */
    /* (optional) Called after `stop` ended the comparison; `world`: MPI's ranks, NULL without MPI.
     */
    void (*stopped)(void *arg, const struct comm *world);
    void *arg;
};

/* Makes the runs, and writes and prints the results. A failed run or expectation is an error of the
 * comparison; the other runs are made and the other expectations checked before. SOTTO_ESTOPPED:
 * `how->stop` was set; the next start continues from the runs' checkpoints. */
enum sotto_status compare_run(const struct spec *spec, const struct compare_how *how);

/* Prints the runs and the keys in which each differs from the base. Returns the error of the first
 * run that training would refuse. */
enum sotto_status compare_list(const struct spec *spec, FILE *out);

#endif

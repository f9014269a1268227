/* Reports that wait for the loss of all groups. Where groups train apart for many rounds, a round's
 * loss over all of them is known behind their next exchange, with which it travels; until then the
 * report of that round waits here, for it says what was true then. All workers call these alike;
 * rank 0 writes. */
#ifndef SOTTO_TRAIN_REPORTS_H
#define SOTTO_TRAIN_REPORTS_H

#include "train/trainer.h"

struct report_line {
    struct run_step step;
    struct cost cost; /* since the run's beginning */
};

struct reports {
    struct report_line *line;         /* (STRATEGY_REPORTS) rank 0's                          */
    double own[2 * STRATEGY_REPORTS]; /* loss over targets, and targets, of this worker's group */
    int n;                            /* that wait                                              */
    int64_t settled; /* that an exchange is still to tell of, but are written                    */
};

enum sotto_status reports_init(struct reports *r, const struct trainer *t);
void reports_free(struct reports *r);

/* The reports after this step make the run's loss: those of its last tenth. */
int64_t reports_tail(const struct trainer *t);

/* The report of a round; one whose loss is that of all workers is written at once. Where there is
 * no room for more, the oldest is written with the loss of rank 0's group. */
void reports_add(struct reports *r, struct trainer *t, const struct run_step *s,
                 const struct cost *cost);

/* Writes what an exchange has told the losses of. */
void reports_told(struct reports *r, struct trainer *t, const struct agreed *a);

/* Asks for the losses and writes everything: where all workers meet anyway. */
enum sotto_status reports_settle(struct reports *r, struct trainer *t);

#endif

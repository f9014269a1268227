/* Evaluations that a group has made by itself while the others went on, on their way to rank 0.
 * They are no part of the training, and take none of its time where that is modelled. */
#ifndef SOTTO_TRAIN_REPORT_LETTERS_H
#define SOTTO_TRAIN_REPORT_LETTERS_H

#include "comm/worker.h"
#include "hf/evaluate.h"

struct letter {
    int64_t step;   /* of the run                            */
    double seconds; /* of training, by the group's own clock */
    struct evaluation evaluation;
};

struct letters;

/* `group`: workers of a group, which are neighbours; the first of them writes. Called by all. */
enum sotto_status letters_open(struct letters **out, struct worker *w, int group);
void letters_close(struct letters *l); /* NULL is fine */

/* By the first worker of a group. */
enum sotto_status letters_send(struct letters *l, const struct letter *letter);

/* On rank 0: the oldest that has come by now and was not taken yet. */
enum sotto_status letters_next(struct letters *l, struct letter *out, bool *found);

/* All workers meet: mark, in the training's time, then flush, in a pause; all that were sent have
 * come then. */
enum sotto_status letters_mark(struct letters *l);
enum sotto_status letters_flush(struct letters *l);

#endif

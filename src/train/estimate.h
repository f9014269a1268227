/* What memory a run will take, before it takes any.
 *
 * Nothing is estimated by formulas of its own: the method goes through a round, and the model
 * through a micro-batch, on the null device, whose buffers are accounted and hold nothing. */
#ifndef SOTTO_TRAIN_ESTIMATE_H
#define SOTTO_TRAIN_ESTIMATE_H

#include "train/run.h"

/* Bytes of the model's activations and scratch for micro-batches of `rows` x `t` tokens, with the
 * evaluation between rounds that `evaluates` says there is. */
struct estimate_model {
    double activations, scratch;
};
enum sotto_status estimate_model(const struct model *model, struct extent e, bool recompute,
                                 bool evaluates, struct estimate_model *out);

struct estimate {
    double bytes[MEMORY_CATEGORIES]; /* of all workers on this machine */
    double total;
    int workers; /* how many those are */
};
enum sotto_status estimate_run(const struct run *run, struct estimate *out);

/* Refuses a run whose estimate is more than this process may take, with both. */
enum sotto_status estimate_check(const struct run *run);

#endif

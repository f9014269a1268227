/* What memory a run will take, before it takes any.
 *
 * Nothing is estimated by formulas of its own: the method goes through a round, and the model
 * through a micro-batch, on the null device, whose buffers are accounted and hold nothing. */
#ifndef SOTTO_TRAIN_PLAN_ESTIMATE_H
#define SOTTO_TRAIN_PLAN_ESTIMATE_H

#include "base/machine/available.h"
#include "train/run/run.h"
#include "train/plan/call_log.h"

/* What goes through the model: `slots` training micro-batches of that extent at once (0: none),
 * and, if it `evaluates`, evaluations between rounds. */
struct estimate_what {
    struct extent e;
    int slots;
    bool recompute, evaluates;
    const struct asked *asked; /* of a round; NULL: all slots forward, then all backward */
    const char *device;        /* whose ops take scratch, too; NULL: nobody's            */
    int threads;               /* of it                                                  */
    enum dtype theta, grad;    /* of parameters and gradients                            */
};

/* Bytes of the model's activations and scratch for it. */
struct estimate_model {
    double activations, scratch;
};
enum sotto_status estimate_model(const struct model *model, struct estimate_what what,
                                 struct estimate_model *out);

struct estimate {
    double bytes[MEMORY_CATEGORIES]; /* of all workers on this machine */
    double total;
    int workers;  /* how many those are */
    double state; /* bytes of a checkpoint's state, of all workers on all machines */
};
enum sotto_status estimate_run(const struct run *run, struct estimate *out);

/* Returns what this process may still take, or what `device` has left where its memory is its own;
 * of an absent device (device_absent) nothing is known. */
enum sotto_status estimate_left(const char *device, struct available *out);

/* Leaves of an estimate what this process takes of that, with those that share its GPU. */
void estimate_keep_ours(const struct run *run, struct estimate *e);

/* Sets run->keeps_all: where that is faster and, on the host, leaves a good part of `a`. */
void estimate_choose(struct run *run, const struct available *a);

/* Refuses a run whose estimate is more than that, with both. */
enum sotto_status estimate_check(const struct run *run);

/* Refuses an evaluation whose micro-batches of extent `e` need more memory than `device` has left,
 * on which the parameters are already. */
enum sotto_status estimate_check_evaluation(const struct model *model, const char *device,
                                            int threads, struct extent e);

#endif

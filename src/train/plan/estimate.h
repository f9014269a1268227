/* Estimates the memory that a run will take, before the run.
 *
 * No formula is used: the method makes a round, and the model computes a micro-batch, on the null
 * device, whose buffers are accounted and have no data. */
#ifndef SOTTO_TRAIN_PLAN_ESTIMATE_H
#define SOTTO_TRAIN_PLAN_ESTIMATE_H

#include "base/machine/available.h"
#include "train/run/run.h"
#include "train/plan/call_log.h"

/* Work of a model: `slots` training micro-batches of extent `e` at once (0: none) and, if
 * `evaluates`, evaluations between rounds. */
struct estimate_what {
    struct extent e;
    int slots;
    bool recompute, evaluates;
    const struct call_log
        *calls;         /* of the rounds; NULL: forward in all slots, then backward in all slots */
    const char *device; /* its ops take scratch, too; NULL: no scratch is counted */
    int threads;        /* of the device */
    enum dtype theta, grad; /* of parameters and gradients                            */
};

/* Bytes of the model's activations, and of scratch. */
struct estimate_model {
    double activations, scratch;
};
enum sotto_status estimate_model(const struct model *model, struct estimate_what what,
                                 struct estimate_model *out);

struct estimate {
    double bytes[MEMORY_CATEGORIES]; /* of all workers on this machine */
    double total;
    int workers;  /* number of workers on this machine */
    double state; /* bytes of a checkpoint's state, of all workers on all machines */
};
enum sotto_status estimate_run(const struct run *run, struct estimate *out);

/* Finds the memory that this process may still take or, for a device with separate memory, that the
 * device has left; unlimited for an absent device (device_absent). */
enum sotto_status estimate_left(const char *device, struct available *out);

/* Reduces an estimate for the whole machine to the share of the processes on this process's GPU. */
void estimate_keep_ours(const struct run *run, struct estimate *e);

/* Sets run->keeps_all if keeping all activations is faster and, on the host, leaves a good part of
 * `a`. */
void estimate_choose(struct run *run, const struct available *a);

/* Refuses a run whose estimate is larger than the memory left. The message has both numbers. */
enum sotto_status estimate_check(const struct run *run);

/* Refuses an evaluation whose micro-batches of extent `e` need more memory than `device` has left.
 * The parameters are already on the device. */
enum sotto_status estimate_check_evaluation(const struct model *model, const char *device,
                                            int threads, struct extent e);

#endif

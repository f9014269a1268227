/* The gradient oracle: a model and its data, as a training method uses them.
 *
 * Flat parameters named by a table, and the gradient of a numbered micro-batch, whole or stage by
 * stage. The method controls the step: it passes the parameters of each stage and the vectors that
 * gradients are added to.
 *
 * A micro-batch is in a slot from its begin until the next begin in that slot; several may be in
 * flight at once, each with parameters of its own. A stage is computed from the edge before it,
 * which the stage before has written, or a message from another worker. A worker that runs stage k
 * alone begins the micro-batch, fills edge(slot, k), runs forward, sends edge(slot, k + 1), later
 * fills edge_gradient(slot, k + 1), runs backward and sends edge_gradient(slot, k). */
#ifndef SOTTO_STRATEGY_ORACLE_H
#define SOTTO_STRATEGY_ORACLE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/table.h"

struct oracle_result {
    double loss;     /* summed over targets; 0 if another worker runs the last stage */
    int64_t targets; /* number of targets */
    int64_t tokens;  /* processed, padding included */
};

struct oracle;

struct oracle_ops {
    /* Begins micro-batch `index` of `rank`'s share of the data in `slot`, and drops the slot's
     * last. The gradient is of its mean loss or, if `sum`, of its summed loss (weight = tokens). */
    enum sotto_status (*begin)(struct oracle *o, int slot, int64_t index, int rank, bool sum);
    enum sotto_status (*forward)(struct oracle *o, int slot, int k, const struct view *theta);
    /* Adds to grad, unless `fresh` was called; theta is the same as in forward. */
    enum sotto_status (*backward)(struct oracle *o, int slot, int k, const struct view *theta,
                                  const struct view *grad);
    /* (optional) After begin: the backward passes of the micro-batch in `slot`, of all stages in
     * turn, overwrite the gradients, which need not hold zeros. */
    void (*fresh)(struct oracle *o, int slot);
    /* (optional) needs[j], for all j: true if stage k reads parameters of stage j, whose gradients
     * its backward adds to. Default: k alone. */
    void (*needs)(struct oracle *o, int k, bool *needs);
    /* (optional) Returns the edge before stage k >= 1 of the micro-batch in `slot`, to read or to
     * write: activations or, if `gradient`, their gradient. An edge is kept until the stages on
     * both sides have used it, or until drop (optional). */
    enum sotto_status (*edge)(struct oracle *o, int slot, int k, bool gradient, struct view *out,
                              size_t *count);
    void (*drop)(struct oracle *o, int slot, int k);
    /* Reads the result of the micro-batch in `slot`, after the last stage's backward was issued.
     * `dev` waits for the backward: the oracle's own device (NULL), or the device of a lane whose
     * job began later, so that earlier stages need not wait. */
    enum sotto_status (*result)(struct oracle *o, int slot, struct device *dev,
                                struct oracle_result *out);
    /* (optional) By default every forward moves the model's untrained state, such as running
     * statistics. These ops move the state once for all micro-batches of a step. notes: forwards
     * leave the state unchanged from now on, and two sums are emptied. note: adds the change by the
     * forward in `slot` to sum 0 or 1. keep: moves the state by a sum times `share`, and empties
     * the sum. */
    enum sotto_status (*notes)(struct oracle *o);
    enum sotto_status (*note)(struct oracle *o, int slot, int sum);
    enum sotto_status (*keep)(struct oracle *o, int sum, double share);
};

struct oracle {
    const struct oracle_ops *ops;
    const struct table *table; /* tensors and stages */
    int slots;                 /* micro-batches that may be in flight at once, at least 1 */
    int rank;                  /* share of the data for the worker's own micro-batches */
    double data;          /* amount of data in the share, in any unit; 0: the same on all workers */
    double seconds;       /* seconds of computing so far */
    int64_t microbatches; /* begun so far */
};

static inline enum sotto_status oracle_begin(struct oracle *o, int slot, int64_t index, int rank,
                                             bool sum)
{
    assert(slot >= 0 && slot < o->slots);
    o->microbatches++;
    return o->ops->begin(o, slot, index, rank, sum);
}

/* Calls `fresh` if supported. False: the gradients must hold zeros before the backward. */
static inline bool oracle_fresh(struct oracle *o, int slot)
{
    if (o->ops->fresh)
        o->ops->fresh(o, slot);
    return o->ops->fresh != NULL;
}

static inline enum sotto_status oracle_forward(struct oracle *o, int slot, int k,
                                               const struct view *theta)
{
    return o->ops->forward(o, slot, k, theta);
}

static inline enum sotto_status oracle_backward(struct oracle *o, int slot, int k,
                                                const struct view *theta, const struct view *grad)
{
    return o->ops->backward(o, slot, k, theta, grad);
}

static inline enum sotto_status oracle_result(struct oracle *o, int slot, struct device *dev,
                                              struct oracle_result *out)
{
    return o->ops->result(o, slot, dev, out);
}

static inline void oracle_needs(struct oracle *o, int k, bool *needs)
{
    for (int j = 0; j < o->table->n_stage; j++)
        needs[j] = j == k;
    if (o->ops->needs)
        o->ops->needs(o, k, needs);
}

/* Returns the edge before stage k as one flat vector. */
static inline enum sotto_status oracle_edge(struct oracle *o, int slot, int k, struct view *out,
                                            size_t *count)
{
    assert(k >= 1 && k < o->table->n_stage);
    if (!o->ops->edge)
        return fail(SOTTO_EINVAL, "what passes between these stages cannot leave their worker");
    return o->ops->edge(o, slot, k, false, out, count);
}

static inline enum sotto_status oracle_edge_gradient(struct oracle *o, int slot, int k,
                                                     struct view *out, size_t *count)
{
    assert(k >= 1 && k < o->table->n_stage);
    if (!o->ops->edge)
        return fail(SOTTO_EINVAL, "what passes between these stages cannot leave their worker");
    return o->ops->edge(o, slot, k, true, out, count);
}

/* Drops activations and gradient of the edge before stage k, which were sent. */
static inline void oracle_drop(struct oracle *o, int slot, int k)
{
    if (o->ops->drop)
        o->ops->drop(o, slot, k);
}

static inline enum sotto_status oracle_notes(struct oracle *o)
{
    return o->ops->notes ? o->ops->notes(o) : SOTTO_OK;
}

static inline enum sotto_status oracle_note(struct oracle *o, int slot, int sum)
{
    return o->ops->note ? o->ops->note(o, slot, sum) : SOTTO_OK;
}

static inline enum sotto_status oracle_keep(struct oracle *o, int sum, double share)
{
    return o->ops->keep ? o->ops->keep(o, sum, share) : SOTTO_OK;
}

/* Computes the worker's own micro-batch `index`, whole, in slot 0; `fresh`: overwrites the
 * gradients, if supported. */
static inline enum sotto_status oracle_gradient(struct oracle *o, int64_t index, bool sum,
                                                bool fresh, const struct view *theta,
                                                const struct view *grad,
                                                struct oracle_result *result)
{
    TRY(oracle_begin(o, 0, index, o->rank, sum));
    if (fresh)
        o->ops->fresh(o, 0);
    for (int k = 0; k < o->table->n_stage; k++)
        TRY(oracle_forward(o, 0, k, theta));
    for (int k = o->table->n_stage - 1; k >= 0; k--)
        TRY(oracle_backward(o, 0, k, theta, grad));
    return oracle_result(o, 0, NULL, result);
}

#endif

/* The gradient oracle: a model and its data as a training method sees them.
 *
 * Flat parameters named by a table, and the gradient of a numbered micro-batch, whole or stage by
 * stage. The method owns the step: it says which parameters each stage is computed with and where
 * its gradient is added.
 *
 * A micro-batch is in a slot from its begin until the next one begins there; several may be under
 * way at once, each with parameters of its own. A stage is computed from the edge before it, which
 * the stage before has left there or whoever brought it from another worker: one that runs stage k
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
    double loss;     /* summed over targets; 0 where another worker runs the last stage */
    int64_t targets; /* what it is summed over      */
    int64_t tokens;  /* processed, padding included */
};

struct oracle;

struct oracle_ops {
    /* Micro-batch `index` of `rank`'s share of the data, in `slot`; what was there is dropped. The
     * gradient is that of its mean loss or, when `sum`, of its summed loss (weight = tokens). */
    enum sotto_status (*begin)(struct oracle *o, int slot, int64_t index, int rank, bool sum);
    enum sotto_status (*forward)(struct oracle *o, int slot, int k, const struct view *theta);
    /* Adds to grad, unless it is fresh; theta is what forward was given. */
    enum sotto_status (*backward)(struct oracle *o, int slot, int k, const struct view *theta,
                                  const struct view *grad);
    /* (optional) Of the micro-batch in `slot`, which has just begun: its backward passes, of all
     * stages in turn, write the gradients, which need not hold zeros. */
    void (*fresh)(struct oracle *o, int slot);
    /* (optional) The stages whose parameters stage k reads, and to whose gradients its backward
     * adds: needs[j] for all j. Without it: k alone. */
    void (*needs)(struct oracle *o, int k, bool *needs);
    /* (optional) What passes the border before stage k >= 1 of the micro-batch in
     * `slot`, to be read or to be written: activations, or, if `gradient`, their gradient. It stays
     * until the stages beside it have no more use for it, or (optional) it is dropped. */
    enum sotto_status (*edge)(struct oracle *o, int slot, int k, bool gradient, struct view *out,
                              size_t *count);
    void (*drop)(struct oracle *o, int slot, int k);
    /* Of the micro-batch in `slot`, once the last stage's backward was issued. It is read on `dev`,
     * which waits for that: the oracle's own (NULL), or of a lane whose job began behind it, so
     * that the stages before need not wait. */
    enum sotto_status (*result)(struct oracle *o, int slot, struct device *dev,
                                struct oracle_result *out);
    /* (optional) What the model keeps and does not train, such as running statistics, is moved by
     * every forward, unless these are called, for steps whose micro-batches are to move it
     * together. notes: from now on forwards leave it alone, and both sums are empty. note: what
     * the forward in `slot` has found is added to sum 0 or 1. keep: moves what the model keeps by
     * such a sum, times `share`, and empties it. */
    enum sotto_status (*notes)(struct oracle *o);
    enum sotto_status (*note)(struct oracle *o, int slot, int sum);
    enum sotto_status (*keep)(struct oracle *o, int sum, double share);
};

struct oracle {
    const struct oracle_ops *ops;
    const struct table *table; /* tensors and stages */
    int slots;                 /* micro-batches that may be under way at once, at least 1   */
    int rank;                  /* whose data the worker's own micro-batches are              */
    double data;               /* how much there is of it, in any unit; 0: as everybody has  */
    double seconds;            /* that computing has taken, for whoever accounts */
    int64_t microbatches;      /* begun so far */
};

static inline enum sotto_status oracle_begin(struct oracle *o, int slot, int64_t index, int rank,
                                             bool sum)
{
    assert(slot >= 0 && slot < o->slots);
    o->microbatches++;
    return o->ops->begin(o, slot, index, rank, sum);
}

/* Whether it can: else the gradients must hold zeros before its backward adds to them. */
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

/* The border before stage k as one flat vector. */
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

/* Activations and gradient at the border before stage k were sent, and are not needed here. */
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

/* The worker's own micro-batch `index`, whole, in slot 0; `fresh`: of an oracle that can. */
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

/* The gradient oracle: a model and its data as a training method sees them.
 *
 * Flat parameters named by a table, and the gradient of a numbered micro-batch, whole or stage by
 * stage. The method owns the step: it says which parameters each stage is computed with and where
 * its gradient is added. */
#ifndef SOTTO_STRATEGY_ORACLE_H
#define SOTTO_STRATEGY_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/table.h"

struct oracle_result {
    double loss;     /* summed over targets      */
    int64_t targets; /* what it was summed over  */
    int64_t tokens;  /* processed, padding included */
};

struct oracle;

struct oracle_ops {
    /* The worker's micro-batch `index`. The gradient is that of its mean loss or, when `sum`, of
     * its summed loss (weight = tokens). */
    enum sotto_status (*begin)(struct oracle *o, int64_t index, bool sum);
    enum sotto_status (*forward)(struct oracle *o, int k, const struct view *theta);
    /* Adds to grad. */
    enum sotto_status (*backward)(struct oracle *o, int k, const struct view *theta,
                                  const struct view *grad);
    /* (optional) The stages whose parameters stage k reads, and to whose gradients its backward
     * adds: needs[j] for all j. Without it: k alone. */
    void (*needs)(struct oracle *o, int k, bool *needs);
    /* Of the micro-batch begun last; complete once the last stage's backward is done. */
    struct oracle_result (*result)(struct oracle *o);
};

struct oracle {
    const struct oracle_ops *ops;
    const struct table *table; /* tensors and stages */
    double data;               /* how much there is of it, in any unit; 0: as everybody has  */
    double seconds;            /* that computing has taken, for whoever accounts */
    int64_t microbatches;      /* begun so far */
};

static inline enum sotto_status oracle_begin(struct oracle *o, int64_t index, bool sum)
{
    o->microbatches++;
    return o->ops->begin(o, index, sum);
}

static inline enum sotto_status oracle_forward(struct oracle *o, int k, const struct view *theta)
{
    return o->ops->forward(o, k, theta);
}

static inline enum sotto_status oracle_backward(struct oracle *o, int k, const struct view *theta,
                                                const struct view *grad)
{
    return o->ops->backward(o, k, theta, grad);
}

static inline void oracle_needs(struct oracle *o, int k, bool *needs)
{
    for (int j = 0; j < o->table->n_stage; j++)
        needs[j] = j == k;
    if (o->ops->needs)
        o->ops->needs(o, k, needs);
}

/* Micro-batch `index`, whole. */
static inline enum sotto_status oracle_gradient(struct oracle *o, int64_t index, bool sum,
                                                const struct view *theta, const struct view *grad,
                                                struct oracle_result *result)
{
    TRY(oracle_begin(o, index, sum));
    for (int k = 0; k < o->table->n_stage; k++)
        TRY(oracle_forward(o, k, theta));
    for (int k = o->table->n_stage - 1; k >= 0; k--)
        TRY(oracle_backward(o, k, theta, grad));
    *result = o->ops->result(o);
    return SOTTO_OK;
}

#endif

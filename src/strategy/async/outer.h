/* What the server has of the parameters, or of a slice of them: x0, and the outer optimizer, which
 * takes each push for a gradient at x0.
 *
 *     sgd         x0 <- x0 - eps w g
 *     nesterov    m <- beta m + w g;  x0 <- x0 - eps (w g + beta m)
 *     delayed     Delta <- Delta + w g, and with the N-th push in it
 *                   m <- beta m + Delta/N;  x0 <- x0 - eps ((1 - cN + c) beta m + w g/N);  Delta =
 * 0 with the others x0 <- x0 - eps (c beta m + w g/N)
 *
 * (Liu et al. 2024, algorithm 3.) A buffer of one push is Nesterov's rule, whatever c. */
#ifndef SOTTO_STRATEGY_ASYNC_OUTER_H
#define SOTTO_STRATEGY_ASYNC_OUTER_H

#include "io/state.h"
#include "optim/optim.h"
#include "strategy/async/outer_rules.h"
#include "strategy/vector_work.h"

struct async_outer {
    struct async_rules rules;
    struct work on; /* the line of work that pushes are applied in     */
    const struct table *table;
    const struct owned *own; /* what of the table's vector it has; not owned     */
    size_t count;            /* ... elements                                     */
    struct buffer x0;
    struct buffer m, Delta; /* delayed                                          */
    int64_t filled;         /* pushes in Delta                                  */
    const char *anew;       /* what it goes on with behind another rule's state, which is dropped;
                               NULL: with all that there was                                */
    struct optim_config config; /* of the others:                                   */
    struct optim optim;
    struct view g; /* of the push under way */
    double w;
};

/* `own` and `table` outlive it. Behind a failure it is freed, too. */
enum sotto_status outer_init(struct async_outer *o, const struct async_rules *rules,
                             const struct work *on, const struct table *table,
                             const struct owned *own);
void outer_free(struct async_outer *o);

/* x0 <- x, and nothing was pushed yet; of the device of the line of work, which may be late. */
void outer_begin(struct async_outer *o, struct view x);

/* Applies a push of weight w (rules_weight); g in fp32 or bf16. */
enum sotto_status outer_push(struct async_outer *o, struct view g, double w);

enum sotto_status outer_visit(struct async_outer *o, struct state_visitor *v);

#endif

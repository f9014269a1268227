/* The server's parameters x0, or a slice of x0, and the outer optimizer, which uses each push as a
 * gradient at x0.
 *
 *     sgd         x0 <- x0 - eps w g
 *     nesterov    m <- beta m + w g;  x0 <- x0 - eps (w g + beta m)
 *     delayed     Delta <- Delta + w g
 *                 every N-th push:  m <- beta m + Delta/N;  Delta <- 0
 *                                   x0 <- x0 - eps ((1 - cN + c) beta m + w g/N)
 *                 other pushes:     x0 <- x0 - eps (c beta m + w g/N)
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
    struct work on; /* the line of work that applies pushes */
    const struct table *table;
    const struct owned *own; /* the elements of the table's vector that are here; not owned */
    size_t count;            /* of these elements */
    struct buffer x0;
    struct buffer m, Delta;     /* delayed only */
    int64_t filled;             /* pushes in Delta */
    struct optim_config config; /* of `optim` */
    struct optim optim;         /* sgd and nesterov */
    const char *reset;          /* the state that was dropped while loading, as it was made with
                                   another rule: "a momentum of 0"; NULL: all state was loaded */
    struct {
        struct view g;
        double w;
    } push; /* argument of the optimizer's job */
};

/* `own` and `table` outlive `o`. After a failure the caller calls outer_free, too. */
enum sotto_status outer_init(struct async_outer *o, const struct async_rules *rules,
                             const struct work *on, const struct table *table,
                             const struct owned *own);
void outer_free(struct async_outer *o);

/* x0 <- x, without any push so far; on the device of the line of work, which runs asynchronously.
 */
void outer_set_x0(struct async_outer *o, struct view x);

/* Applies a push g, fp32 or bf16, of weight w (rules_weight). */
enum sotto_status outer_push(struct async_outer *o, struct view g, double w);

enum sotto_status outer_visit(struct async_outer *o, struct state_visitor *v);

#endif

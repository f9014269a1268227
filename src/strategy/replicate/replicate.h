/* The replicate axis: how groups of workers stay in agreement over slow links.
 *
 * The shard method and the replicate method meet in one call. The shard method passes the worker's
 * own part of the parameters, with the gradient averaged inside the group; the replicate method
 * makes the optimizer step and the exchange that is due, and returns the parameters, which are then
 * gathered inside the group. The replicate method sees the own part only, whatever ranges of the
 * vector that is (tensor/owned.h), so it combines with every sharding; under ddp the own part is
 * the whole vector.
 *
 * The new parameters of a stage are needed right before the stage is computed. A method may leave a
 * step unfinished, with an exchange in the mesh's lane, and finish the step stage by stage.
 *
 * Members embed struct replicate first, one file each. */
#ifndef SOTTO_STRATEGY_REPLICATE_REPLICATE_H
#define SOTTO_STRATEGY_REPLICATE_REPLICATE_H

#include "strategy/strategy.h"
#include "strategy/vector_work.h"

struct replicate_setup {
    const struct strategy_config *config;
    const struct optim_config *optim, *before; /* as in strategy_setup */
    const struct table *table;
    struct device *dev; /* of the line of work that steps */
    struct mesh *mesh;
    struct comm *across, *within; /* R and S, for that line of work */
    struct part *part;            /* (n_part) copied; the parts cover the own vector in order, each
                                     contiguous in x; g is summed over the group's micro-batches */
    int n_part;
    const struct owned *own; /* the own part of the table's vector; outlives the method */
    struct view x;           /* the own vector, fp32 */
    double data;             /* this group's amount of data, in any unit; 0: as other groups */
    const struct async_setup *async_setup; /* (optional) strategy_setup.async */
    struct async **async; /* (optional) strategy.async, which an asynchronous method sets */
    /* (optional) Visits vector i of the optimizer's state, by the table's names. Set if the state
     * is not in `optim`. */
    enum sotto_status (*show)(void *owner, struct state_visitor *v, int i);
    void *owner;
    bool later; /* replicate_ready is called for each stage before its parameters are used, so that
                   a step may stay unfinished until then */
};

/* The work of a group in a round. */
struct replicate_own {
    double tokens, microbatches;
    double loss;    /* summed over the targets */
    double targets; /* number of targets */
    double seconds; /* plan.seconds, mean over the group */
    bool stop;      /* a worker votes to stop */
    bool save;      /* a worker votes for a checkpoint */
    bool meet;      /* a worker votes to meet the other groups (replicate_ops.begin) */
};

/* Votes of a round: the number of workers that vote for each. */
struct votes {
    double stop; /* to end the run after the round */
    double save; /* to write a checkpoint after the round */
    double meet; /* to meet the other groups (replicate_ops.begin) */
};

/* The work of a group since the last exchange; summed over the groups with the next exchange. */
struct group_totals {
    double groups, rounds, tokens, microbatches, seconds;
    double stop, save; /* groups that vote for each */
};

struct replicate {
    const struct replicate_ops *ops;
    struct replicate_setup is; /* `part` is a copy, owned; theta and g of parts may change */
    struct optim optim;
    struct work on;           /* the line of work that steps */
    size_t count;             /* of the own vector */
    struct view x;            /* the own vector */
    double weight;            /* of this group in averages */
    double weights;           /* of all groups together */
    bool diverged;            /* the groups' parameters differ */
    bool idle;                /* this group sits out the round: it computes nothing */
    int64_t steps;            /* since the last exchange */
    struct replicate_own own; /* of this round, set by the shard method */
    struct group_totals totals;
    bool saving; /* totals that were taken and not reported yet have a vote to save */
    struct {
        bool stop, save;      /* all groups stop, or save, after this round */
        struct agreed agreed; /* rounds = 0: no exchange in this round */
    } outcome;                /* of the round */
    struct {
        bool own; /* true: the worker's own data; the next fields are not set */
        int rank; /* whose data */
        int64_t microbatch;
    } data; /* of the round, set by `begin` */
    struct {
        int64_t groups;
        bool same;          /* the same method; else members start from zero */
        int64_t microbatch; /* next micro-batch of the worker furthest in its data */
    } from;                 /* the run whose state is loaded */
    bool unfinished;        /* a part of the last step is left to replicate_ready */
    int last_exchange;      /* unfinished: no stage from this one on starts an exchange */
    struct {
        double lr, scale;
        const struct part *part; /* (n) */
        int n;
    } now; /* argument of the optimizer's job */
};

struct replicate_ops {
    /* The gradient is summed over all groups before each step. */
    bool sums_gradient;
    /* Groups exchange in every step and never differ: through sums_gradient, or through an exchange
     * of the method. */
    bool in_step;
    /* Each group makes rounds of its own (async/async.h). */
    bool async;
    size_t
        bytes; /* of the member's struct, which begins with a struct replicate; 0: no own fields */
    /* (optional) Opens the member's fields, which are zero, after the base. */
    enum sotto_status (*init)(struct replicate *r);
    /* (optional) Restarts the member's state after the parameters were set from outside. */
    void (*anchor)(struct replicate *r);
    /* (optional) Begins a round, on the worker's own line: chooses whether the group trains
     * (r->idle) and on which data (r->data). *meet: this worker's vote for replicate_own.meet. */
    enum sotto_status (*begin)(struct replicate *r, const struct plan *plan, bool *meet);
    /* x <- the parameters after this round's step; the gradient is part.g * scale. */
    enum sotto_status (*step)(struct replicate *r, const struct plan *plan, double scale);
    /* (optional) Finishes an unfinished step for stage k, the stages in order: x and theta of the
     * stage are then those after the step. Called by all workers, at different times. */
    enum sotto_status (*ready)(struct replicate *r, int k);
    /* (optional) Visits all state, after finished steps. Default: replicate_visit. */
    enum sotto_status (*visit)(struct replicate *r, struct state_visitor *v);
    /* (optional) While groups differ (r->diverged): y <- the real parameters, in the line of work
     * of `across`; called by all workers. Default: the groups' mean. */
    enum sotto_status (*truth)(struct replicate *r, struct comm *across, struct view y);
    /* (optional) Frees the member's fields, also after a failure of `init`. */
    void (*free)(struct replicate *r);
};

enum sotto_status replicate_open(struct replicate **out, const struct replicate_setup *setup);
void replicate_close(struct replicate *r);
enum sotto_status replicate_show(struct replicate *r, struct state_visitor *v);

enum sotto_status replicate_step(struct replicate *r, const struct plan *plan, double scale);

/* Finishes the step for stage k, if the step is unfinished; stages in order. */
enum sotto_status replicate_ready(struct replicate *r, int k);

/* Writes the parameters after the optimizer's next step to part.theta, and changes nothing else. */
enum sotto_status replicate_peek(struct replicate *r, double lr, double scale);

/* Sums a vector of the own gradient over the groups, if the method sums gradients. Called stage by
 * stage, in the line of work of `across`. */
enum sotto_status replicate_sum(struct replicate *r, struct comm *across, struct view g,
                                size_t count);

/* Restarts the method after the parameters were set from outside. */
void replicate_anchor(struct replicate *r);

/* y <- the groups' weighted average of y, in the line of work of `across`. */
enum sotto_status replicate_mean(struct replicate *r, struct comm *across, struct view y);

/* The functions below are for members. */

/* Returns the method's options. */
const void *replicate_options(const struct replicate *r);

/* Opens a buffer of the own vector's size, fp32. */
enum sotto_status replicate_buffer(struct replicate *r, struct buffer *buffer,
                                   enum memory_category category);

/* Makes the optimizer's step on all parts; or on some parts, after which optim_next is due. */
enum sotto_status replicate_local_step(struct replicate *r, double lr, double scale);
enum sotto_status replicate_step_some(struct replicate *r, const struct part *part, int n,
                                      double lr, double scale);

/* theta <- x, for parts with both. */
enum sotto_status replicate_publish(struct replicate *r);

/* True if a rule may divide by lr. Else parameters divided by lr overflow fp32, and the rule uses
 * its limit for lr -> 0, in which the groups' displacements count as for any lr. */
static inline bool replicate_divides(double lr)
{
    return lr >= 1e-30;
}

/* Names of the types on the wire, DTYPE_F32 and DTYPE_BF16, for options. */
extern const char *const replicate_dtypes[];

/* Options of methods with an exchange every tau steps; the first field of the methods' options. */
struct tau_config {
    int64_t tau;
};
#define OPTION_TAU(help) OPTION_LONG(struct tau_config, tau, "12", 1, 1e15, help)
int64_t tau_every(const void *own);
#define METHOD_EVERY_TAU .every = tau_every, .every_key = "tau"

/* Options of methods that also have an outer step with momentum. */
struct momentum_config {
    struct tau_config meets;
    double alpha, beta;
};

/* Counts a local step. True if `every` steps are complete. The groups have diverged then, until the
 * member's exchange. */
bool replicate_boundary(struct replicate *r, int64_t every);

/* True if another worker of the group shows the same state to a visitor that takes it once. */
bool replicate_shown(const struct replicate *r, const struct state_visitor *v);

/* Sums the groups' totals and votes at an exchange, and sets r->outcome. For an exchange in a lane
 * the call has three parts: take the totals at the start, sum them in the lane, and report them
 * after the lane's end. */
enum sotto_status replicate_agree(struct replicate *r);
void group_totals_take(struct group_totals *out, struct replicate *r);
enum sotto_status group_totals_sum(struct group_totals *t, struct comm *across);
void group_totals_report(const struct group_totals *t, struct replicate *r);

/* Visits the optimizer's state, the same for all groups or each group's own, with the group's own
 * parameters while groups differ. */
enum sotto_status replicate_visit(struct replicate *r, struct state_visitor *v);
/* Visits an own vector that is the same in all groups. */
enum sotto_status replicate_visit_vector(struct replicate *r, struct state_visitor *v,
                                         const char *name, const struct buffer *b);
/* Visits an own vector that is each group's own; a new group keeps the values it has. */
enum sotto_status replicate_visit_own(struct replicate *r, struct state_visitor *v,
                                      const char *group, const char *name, const struct buffer *b);
/* Visits an own vector that is a sum over the groups; another number of groups loads the same mean.
 */
enum sotto_status replicate_visit_sum(struct replicate *r, struct state_visitor *v,
                                      const char *name, const struct buffer *b);

#endif

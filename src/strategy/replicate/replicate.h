/* The replicate axis: how groups of workers stay in agreement over slow links.
 *
 * The seam between the axes is one call. The shard method hands over what its worker owns, with the
 * gradient averaged inside the group; the replicate method makes the optimizer step and whatever
 * agreement is due, and hands the parameters back to be gathered inside the group. It sees only
 * what the worker owns, whatever ranges of the vector that is (tensor/owned.h), so it composes with
 * every sharding; under ddp it is the whole vector.
 *
 * A stage's new parameters are wanted right before it is computed with. A method may leave a step
 * half-way, with an exchange in the mesh's lane, and end it stage by stage as they are called for.
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
    struct device *dev; /* of the line of work that steps                 */
    struct mesh *mesh;
    struct comm *across, *within; /* R and S, for that line of work        */
    struct part *part;            /* copied; they cover the own vector, in order, side by side in
                                     its x; g is summed over the group's micro-batches */
    int n_part;
    const struct owned *own;               /* what of the table's vector; outlives the method */
    struct view x;                         /* the own vector                                 */
    double data;                           /* this group's share of the data; 0: as all others' */
    const struct async_setup *async_setup; /* (optional) strategy_setup.async */
    struct async **async; /* (optional) strategy.async, which an asynchronous method sets */
    /* (optional) The optimizer's state is not here: shows vector i of it, by the table's names. */
    enum sotto_status (*show)(void *owner, struct state_visitor *v, int i);
    void *owner;
    bool later; /* replicate_ready is called for each stage before its parameters are used, so that
                   a step may end then; otherwise it ends at once */
};

/* What a group did in a round. */
struct replicate_own {
    double tokens, microbatches;
    double loss, targets; /* summed over the targets; how many */
    double seconds;       /* plan.seconds, mean over the group */
    bool stop;            /* somebody in it wants to stop      */
    bool save;            /* ... says that a save is due       */
    bool meet;            /* a worker voted to meet the others (replicate_ops.begin) */
};

/* Votes of a round: the number of workers that vote for each. */
struct votes {
    double stop; /* to end the run after the round */
    double save; /* to write a checkpoint after the round */
    double meet; /* to meet the other groups (replicate_ops.begin) */
};

/* The same since the last exchange, to be summed over the groups with the next one. */
struct tally {
    double groups, rounds, tokens, microbatches, seconds;
    double stop, save; /* groups that vote for each */
};

struct replicate {
    const struct replicate_ops *ops;
    struct replicate_setup is; /* its parts are our own copy; theta and g may move */
    struct optim optim;
    struct work on;           /* the line of work that steps                              */
    size_t count;             /* of the own vector                                        */
    struct view x;            /* the own vector                                           */
    double weight;            /* of this group in averages ...                            */
    double weights;           /* ... and of all groups together                           */
    bool diverged;            /* the groups' parameters differ */
    bool idle;                /* this group sits out: it computes nothing                 */
    bool stop;                /* all groups have agreed to stop behind this round         */
    bool save;                /* all groups have agreed to save behind this round */
    int64_t steps;            /* since the last agreement                                 */
    struct replicate_own own; /* of this round, from the shard method               */
    struct tally tally;
    bool saving;          /* a tally that was taken and not told yet says that a save is due */
    struct agreed agreed; /* rounds 0: not in this round                            */
    struct {              /* what the round trains on, by `begin`         */
        bool own;         /* the worker goes on in its own data; otherwise: */
        int rank;
        int64_t microbatch;
    } data;
    struct { /* the run whose state is being loaded                      */
        int64_t groups;
        bool same;          /* of this method; otherwise members begin anew */
        int64_t microbatch; /* of every worker's data that is next; none is beyond it */
    } from;
    bool left; /* the last step is not at its end: replicate_ready is to be called        */
    int last;  /* ... and once stages before this one are ready nothing is to set out any more */
    struct {   /* of the step under way, for whoever computes it           */
        double lr, scale;
        const struct part *part; /* (n) */
        int n;
    } now;
};

struct replicate_ops {
    /* The gradient is summed over all groups before each step. */
    bool sums_gradient;
    /* Groups meet in every step and never differ: by that sum, or by what the method exchanges
     * itself. */
    bool in_step;
    /* Groups have no rounds in common: they meet where the method says so. */
    bool async;
    size_t bytes; /* of the member's struct, which begins with a struct replicate; 0: that is all */
    /* (optional) Behind the base's: what is its own. The rest of the struct is zero. */
    enum sotto_status (*init)(struct replicate *r);
    /* (optional) The parameters were set: what is remembered of them starts here. */
    void (*anchor)(struct replicate *r);
    /* (optional) Begins a round, on the worker's own line: chooses whether the group trains
     * (r->idle) and on which data (r->data). *meet: this worker's vote for replicate_own.meet. */
    enum sotto_status (*begin)(struct replicate *r, const struct plan *plan, bool *meet);
    /* x <- the parameters after this round's step; the gradient is part.g * scale. */
    enum sotto_status (*step)(struct replicate *r, const struct plan *plan, double scale);
    /* (optional) Where `step` has left something to be done (r->left): all of it for stage k, the
     * stages in their order. x and theta of the stage are then as behind the step. Called by all
     * workers, each at a time of its own. */
    enum sotto_status (*ready)(struct replicate *r, int k);
    /* (optional) All that must survive, with nothing left of a step; without it: replicate_visit.
     */
    enum sotto_status (*visit)(struct replicate *r, struct state_visitor *v);
    /* (optional) While groups differ (r->diverged): y <- the real parameters, in the line of work that
     * `across` belongs to; called by all workers. Without it: the groups' mean. */
    enum sotto_status (*truth)(struct replicate *r, struct comm *across, struct view y);
    /* (optional) What `init` made; also where that has failed half-way. */
    void (*free)(struct replicate *r);
};

enum sotto_status replicate_open(struct replicate **out, const struct replicate_setup *setup);
void replicate_close(struct replicate *r);
enum sotto_status replicate_show(struct replicate *r, struct state_visitor *v);

enum sotto_status replicate_step(struct replicate *r, const struct plan *plan, double scale);

/* What the step has left to be done of stage k, if anything; stages in their order. */
enum sotto_status replicate_ready(struct replicate *r, int k);

/* Writes where the optimizer's next step would lead into part.theta; nothing else moves. */
enum sotto_status replicate_peek(struct replicate *r, double lr, double scale);

/* Sums a vector of the own gradient over the groups, for methods that want it summed: called stage
 * by stage, in the line of work that `across` belongs to. */
enum sotto_status replicate_sum(struct replicate *r, struct comm *across, struct view g,
                                size_t count);

/* The parameters were set from outside. */
void replicate_anchor(struct replicate *r);

/* y <- the groups' weighted average of y, in the line of work that `across` belongs to. */
enum sotto_status replicate_mean(struct replicate *r, struct comm *across, struct view y);

/* For members. Their options; one more own vector for the method's memory; the optimizer's step on
 * all parts; theta <- x where they are two. */
const void *replicate_options(const struct replicate *r);
enum sotto_status replicate_buffer(struct replicate *r, struct buffer *buffer,
                                   enum memory_category category);
enum sotto_status replicate_local_step(struct replicate *r, double lr, double scale);
enum sotto_status replicate_step_some(struct replicate *r, const struct part *part, int n,
                                      double lr, double scale); /* then optim_next */
enum sotto_status replicate_publish(struct replicate *r);

/* Whether a rule may divide by lr. Where it may not, parameters over lr are no fp32 numbers, and
 * the rule's limit for lr -> 0 holds: what the groups have moved counts all the same. */
static inline bool replicate_divides(double lr)
{
    return lr >= 1e-30;
}

/* Names of what values are on the wire: DTYPE_F32 and DTYPE_BF16. */
extern const char *const replicate_dtypes[];

/* Options of methods that meet every tau steps, which are the first of their own. */
struct tau_config {
    int64_t tau;
};
#define OPTION_TAU(help) OPTION_LONG(struct tau_config, tau, "12", 1, 1e15, help)
int64_t tau_every(const void *own);
#define METHOD_EVERY_TAU .every = tau_every, .every_key = "tau"

/* ... and that have an outer step with momentum. */
struct momentum_config {
    struct tau_config meets;
    double alpha, beta;
};

/* Counts a local step; whether `every` of them are complete. The groups are apart until
 * replicate_agree. */
bool replicate_boundary(struct replicate *r, int64_t every);

/* Whether another worker of the group shows the same to a visitor that takes each thing once. */
bool replicate_shown(const struct replicate *r, const struct state_visitor *v);

/* What the groups did since the last exchange, and whether one of them wants to stop, for members
 * to sum at a boundary, when all groups come together anyway. In three parts for those whose
 * exchange is in a lane: take the tally at its start, sum it there, and tell it behind its end. */
enum sotto_status replicate_agree(struct replicate *r);
void tally_take(struct tally *out, struct replicate *r);
enum sotto_status tally_sum(struct tally *t, struct comm *across);
void tally_tell(const struct tally *t, struct replicate *r);

/* The optimizer's state, one for all groups or each group's own, with its own parameters while they
 * differ; an own vector that is the same in all groups. */
enum sotto_status replicate_visit(struct replicate *r, struct state_visitor *v);
enum sotto_status replicate_visit_vector(struct replicate *r, struct state_visitor *v,
                                         const char *name, const struct buffer *b);
/* One that is each group's own; a new group begins with what it has. */
enum sotto_status replicate_visit_own(struct replicate *r, struct state_visitor *v,
                                      const char *group, const char *name, const struct buffer *b);
/* One that is a sum over the groups: another number of them takes over the same mean. */
enum sotto_status replicate_visit_sum(struct replicate *r, struct state_visitor *v,
                                      const char *name, const struct buffer *b);

#endif

/* A training method: what happens in one round, from micro-batches to new parameters. It is a shard
 * method (shard/, how one group turns gradients into parameters) with a replicate method
 * (replicate/, how groups stay in agreement). */
#ifndef SOTTO_STRATEGY_STRATEGY_H
#define SOTTO_STRATEGY_STRATEGY_H

#include <stdatomic.h>

#include "io/state.h"
#include "optim/optim.h"
#include "strategy/config.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

/* What the caller wants of a round. */
struct plan {
    double lr, next_lr; /* of this round and of the one behind it          */
    bool want_norm;     /* the round is reported: with the gradient's norm, and all of its time */
    int64_t step;       /* rounds of the run before this one */
    int64_t rounds;     /* of the whole run, as far as is known; 0: it is not */
    bool stop;          /* this worker would like this round to be the last */
    bool late;          /* ... since its time is over: what was trained is to count */
    bool save;          /* the first worker would like a checkpoint after this round */
    bool last;          /* the run is going to end after this round; the same for all workers */
    double seconds;     /* of training, by this worker's clock, before this round */
    double between;     /* of these, since the last round, where they are of no round */
    /* (optional) Becomes non-zero when this worker is to stop as soon as it can: methods that
     * average every gradient then abandon a round between two micro-batches. */
    const atomic_int *asked;
};

/* What all workers know alike once they have met, of the rounds since they met before: one round
 * where gradients are averaged over everybody, else those between two exchanges. */
struct agreed {
    int64_t rounds, tokens, microbatches;
    double seconds; /* plan.seconds of the last of them, mean over the workers */
    /* Where the method was asked for it: the mean cosine of the groups' outer gradients, over so
     * many pairs of them; 0: it is not known. */
    double cosine;
    int64_t pairs;
};

/* A group's steps that were applied to the real parameters, where groups have no rounds in common
 * (strategy_async). */
struct pushed {
    int64_t number;               /* pushes before this one                          */
    int64_t group;                /* whose it is                                     */
    int64_t steps;                /* that it has trained                             */
    int64_t staleness;            /* pushes of others since it has pulled            */
    int64_t step;                 /* the run's, behind it: all steps over all groups */
    int64_t tokens, microbatches; /* of its steps, by the whole group      */
    double loss;                  /* mean over their targets               */
    double seconds;               /* of training, that its steps took ...  */
    double idle;                  /* ... and that the group waited before them  */
    double cosine;                /* to the push before it; NAN: it is not known */
    double time;                  /* when it was applied, by the server's clock */
};

/* What one group has pushed since the run's beginning. */
struct pushed_by {
    int64_t pushes, steps;
    int64_t staleness;    /* summed over its pushes */
    double seconds, idle; /* of training, of waiting before it */
};

/* What a round did. */
struct round {
    double loss;      /* mean over targets; of the own group, where groups differ */
    double grad_norm; /* before clipping; negative: not computed */
    int64_t targets, tokens, microbatches;
    int64_t own_tokens, own_microbatches; /* of the own group, unless whole */
    bool whole;                           /* the loss is that of all workers                      */
    bool stop;                            /* all workers know that one of them wants to stop here */
    bool abandoned;              /* by all of them: nothing has moved since the last round */
    const struct agreed *agreed; /* NULL: nothing new; until the next round */
    bool save; /* all workers know that one wants to save here (plan.save); where groups have no
                  rounds in common, this one is to keep its own state, for a checkpoint of `step` */
    /* Where groups have no rounds in common (strategy_async). A round may train nothing: its group
     * has none left, and has waited until all meet. */
    int64_t step;  /* the run's, when this group has pulled, or all are to meet     */
    bool idle;     /* nothing was trained                                            */
    bool pulled;   /* the group has new parameters: its steps before them were applied */
    bool evaluate; /* the group is to evaluate the parameters that it has just pulled, at `step` */
    bool meet; /* all workers meet behind this round: to save at `step` or, with `stop`, to end */
};

/* Keeps state for a checkpoint while groups go on that have no rounds in common. A method has one
 * of a moment at which it shows (visit) what is no group's own, on a line of work of its own; what
 * is a group's, its workers are told to keep when they come to it (round.save). Without it, and
 * where `keep` is NULL, all meet. */
struct keeper {
    void *arg;
    bool (*ready)(void *arg); /* for another checkpoint; on rank 0 */
    enum sotto_status (*keep)(void *arg, enum sotto_status (*visit)(void *, struct state_visitor *),
                              void *owner);
};

struct strategy; /* begins with its ops */

struct strategy_setup {
    const struct strategy_config *config; /* resolved; all of these outlive the strategy */
    const struct optim_config *optim;
    struct oracle *oracle;
    struct device *dev;
    struct mesh *mesh; /* of config->groups groups */
    /* (optional) What a state that is loaded was stepped with; NULL: that is not known. */
    const struct optim_config *before;
    /* Where groups have no rounds in common: behind how many of the run's steps they are told to
     * evaluate, and to meet for a save; 0: never. And after how many seconds to save. */
    int64_t eval_every, save_every;
    double save_seconds;
    const struct keeper *keeper; /* (optional) as it is in the first round */
};

struct strategy_ops {
    bool owns_all; /* each worker of a group owns the whole vector, be it alone or not */
    bool abandons; /* a round between two micro-batches, when a worker is asked to stop */
    size_t bytes;  /* of the member's struct, which begins with a struct strategy */
    /* The struct is zero but for its ops; behind a failure it is freed too. */
    enum sotto_status (*init)(struct strategy *s, const struct strategy_setup *setup);
    /* One update of the real parameters. A loss that is no number is SOTTO_ENUMERIC, before
     * anything moves. After a failure the other workers still wait, and lanes may be at work:
     * mesh_abort before anything is freed. */
    enum sotto_status (*round)(struct strategy *s, const struct plan *plan, struct round *out);
    /* (optional) A round may leave a part of its step to the next one, which ends it as it comes to
     * the stages. Ends it now, in the training's own time, before a pause; called by all workers.
     * Without it: nothing is left. The next four do so, too. */
    enum sotto_status (*settle)(struct strategy *s);
    /* The real parameters as gradients are computed with them, whole, one view a stage, until the
     * next round. Like the next two it is called by all workers. */
    enum sotto_status (*gather)(struct strategy *s, const struct view **theta);
    /* The real parameters, fp32, whole, in the table's order, to and from host memory; the same on
     * all workers. export: NULL on workers that need not have them. */
    enum sotto_status (*export)(struct strategy *s, float *flat);
    enum sotto_status (*import)(struct strategy *s, const float *flat);
    /* All that must survive but the parameters. */
    enum sotto_status (*visit)(struct strategy *s, struct state_visitor *v);
    /* (optional) How many micro-batches this worker computed each time it computed beside its
     * lane: what makes the bits of a method that depends on timing. */
    const int32_t *(*history)(struct strategy *s, int64_t *count);
    /* (optional, all three) Where groups have no rounds in common. The step of the learning rate's
     * schedule that the next round is, out of plan.rounds, where the run is at `step`. The next of
     * the pushes that were applied and not told yet, on rank 0; false: there is none. Their order
     * as a file that the method's `replay` takes, on rank 0, where all meet. */
    int64_t (*place)(struct strategy *s, int64_t step);
    bool (*pushed)(struct strategy *s, struct pushed *out);
    enum sotto_status (*write_pushes)(struct strategy *s, const char *path);
    /* (optional) Likewise: what each of the groups has pushed. */
    enum sotto_status (*pushed_by)(struct strategy *s, struct pushed_by *group);
    /* (optional) Likewise, on all workers in a pause where all meet: waits until nothing is under
     * way any more. Looking at what the method has does so, too; without a look it is needed before
     * anybody goes on. */
    enum sotto_status (*rest)(struct strategy *s);
    /* (optional) Likewise, behind a round of this group that has failed with `st`: the others go on
     * without it, and it only meets them from now on; false: the run has to end. */
    bool (*leave)(struct strategy *s, enum sotto_status st);
    void (*free)(struct strategy *s); /* with the struct */
};

struct strategy {
    const struct strategy_ops *ops;
};

/* Methods that share by slices want the stages of the oracle's table padded to a multiple of |S|.
 * The oracle has at least strategy_slots.
 * Called by all workers. */
enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup);

/* Behind a round that has failed with `st`: whether this group has left and the others go on
 * (strategy_ops.leave), of which a warning tells. If not, the message is as it was. */
bool strategy_left(struct strategy *s, enum sotto_status st);

#endif

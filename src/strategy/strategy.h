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
    bool save; /* all workers know that the first of them votes to save here (plan.save) */
    bool idle; /* the group has trained nothing: it sits out */
};

struct async;
struct async_setup;
struct strategy; /* begins with its ops */

struct strategy_setup {
    const struct strategy_config *config; /* resolved; all of these outlive the strategy */
    const struct optim_config *optim;
    struct oracle *oracle;
    struct device *dev;
    struct mesh *mesh; /* of config->groups groups */
    /* (optional) What a state that is loaded was stepped with; NULL: that is not known. */
    const struct optim_config *before;
    const struct async_setup *async; /* (optional) for methods whose groups are asynchronous */
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
    /* (optional) Drops gradients that were computed and not applied yet, after a failure: they
     * count as zeros. The lane is idle. Without it: there are none between rounds. */
    enum sotto_status (*discard)(struct strategy *s);
    void (*free)(struct strategy *s); /* with the struct */
};

struct strategy {
    const struct strategy_ops *ops;
    struct async *async; /* async/async.h; NULL: all workers make the same rounds */
};

/* Methods that share by slices want the stages of the oracle's table padded to a multiple of |S|.
 * The oracle has at least strategy_slots.
 * Called by all workers. */
enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup);

#endif

/* A training method: one round, from micro-batches to new parameters. A method is a shard method
 * (shard/, how one group turns gradients into parameters) with a replicate method (replicate/, how
 * groups stay in agreement). */
#ifndef SOTTO_STRATEGY_STRATEGY_H
#define SOTTO_STRATEGY_STRATEGY_H

#include <stdatomic.h>

#include "io/state.h"
#include "optim/optim.h"
#include "strategy/config.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

/* The caller's settings for a round. */
struct plan {
    double lr, next_lr; /* learning rates of this round and of the next round */
    bool want_norm;     /* the round is reported, with the gradient's norm and all of its time */
    int64_t step;       /* rounds of the run before this round */
    int64_t rounds;     /* expected rounds of the whole run; 0: unknown */
    bool stop;          /* this worker votes to stop after this round */
    bool save;          /* the first worker votes for a checkpoint after this round */
    bool last;          /* the run ends after this round; equal on all workers */
    double seconds;     /* seconds of training before this round, by this worker's clock */
    double between;     /* part of `seconds` between the last round and this round */
    /* (optional) Non-zero requests this worker to stop as soon as possible: methods that average
     * every gradient then abandon a round between two micro-batches. */
    const atomic_int *asked;
};

/* Totals over all workers, equal on all workers, of the rounds since the last exchange: one round
 * if gradients are averaged over all workers, else the rounds between two exchanges. */
struct agreed {
    int64_t rounds, tokens, microbatches;
    double seconds; /* plan.seconds of the last round, mean over the workers */
    double cosine;  /* mean cosine of the groups' outer gradients, over `pairs` pairs of groups */
    int64_t pairs;  /* 0: the cosine is not known */
};

/* The outcome of a round. */
struct round {
    double loss;      /* mean over targets; of the own group, unless whole */
    double grad_norm; /* before clipping; negative: not computed */
    int64_t targets, tokens, microbatches;
    int64_t own_tokens, own_microbatches; /* of the own group, unless whole */
    bool whole;                           /* loss is the mean over all workers                   */
    bool stop;                            /* all workers stop here: a worker has voted for that  */
    bool abandoned; /* by all workers: parameters and state are those before the round */
    const struct agreed *agreed; /* NULL: no exchange in this round; valid until the next round */
    bool save; /* all workers save here: the first worker has voted to save (plan.save) */
    bool idle; /* the group sat out and trained nothing */
};

struct async;
struct async_setup;
struct strategy;

struct strategy_setup {
    const struct strategy_config *config; /* resolved; all pointers outlive the strategy */
    const struct optim_config *optim;
    struct oracle *oracle;
    struct device *dev;
    struct mesh *mesh; /* with config->groups groups */
    /* (optional) Optimizer of the run whose state is loaded; NULL: unknown. */
    const struct optim_config *before;
    const struct async_setup *async; /* (optional) for asynchronous methods; copied */
};

struct strategy_ops {
    bool owns_all; /* each worker of a group owns the whole vector, in groups of any size */
    bool abandons; /* can abandon a round between two micro-batches (plan.asked) */
    size_t bytes;  /* of the member's struct, which begins with a struct strategy */
    /* Opens the strategy. The struct is zero except for `ops`. After a failure `free` is called. */
    enum sotto_status (*init)(struct strategy *s, const struct strategy_setup *setup);
    /* Makes one update of the real parameters. SOTTO_ENUMERIC if the loss is NaN or infinite,
     * before any parameter changes. After a failure the other workers still wait and lanes may be
     * busy: the caller calls mesh_abort before freeing memory. */
    enum sotto_status (*round)(struct strategy *s, const struct plan *plan, struct round *out);
    /* (optional) Ends the part of a step that a round has left to the next round's stages, before a
     * pause, as time of the training. Called by all workers. The next four members end that part,
     * too. Default: rounds leave nothing. */
    enum sotto_status (*settle)(struct strategy *s);
    /* Returns the real parameters in the type of computing, whole, one view per stage, valid until
     * the next round. Called by all workers, as are the next two members. */
    enum sotto_status (*gather)(struct strategy *s, const struct view **theta);
    /* Copies the real parameters, fp32, whole, in the table's order, to or from host memory; equal
     * on all workers. export: `flat` NULL on workers that need no copy. */
    enum sotto_status (*export)(struct strategy *s, float *flat);
    enum sotto_status (*import)(struct strategy *s, const float *flat);
    /* Visits all state except the parameters. */
    enum sotto_status (*visit)(struct strategy *s, struct state_visitor *v);
    /* (optional) Returns the numbers of micro-batches that this worker computed in parallel with
     * each communication, which determine the bits of a method that depends on timing. */
    const int32_t *(*history)(struct strategy *s, int64_t *count);
    /* (optional) Drops computed gradients that are not applied yet, after a failure, with an idle
     * lane: these gradients count as zeros. Default: no such gradients between rounds. */
    enum sotto_status (*discard)(struct strategy *s);
    void (*free)(struct strategy *s); /* frees the struct, too */
};

struct strategy {
    const struct strategy_ops *ops;
    struct async *async; /* async/async.h; NULL: all workers make the same rounds */
};

/* Opens the configured strategy. Methods that shard by slices require the stages of the oracle's
 * table to be padded to a multiple of |S|. Refuses an oracle with fewer slots than strategy_slots.
 * Called by all workers. */
enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup);

#endif

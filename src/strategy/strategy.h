/* A training method: what happens in one round, from micro-batches to new parameters. It is a shard
 * method (shard/, how one group turns gradients into parameters) with a replicate method
 * (replicate/, how groups stay in agreement). */
#ifndef SOTTO_STRATEGY_STRATEGY_H
#define SOTTO_STRATEGY_STRATEGY_H

#include <signal.h>

#include "io/state.h"
#include "optim/optim.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

enum strategy_shard {
    SHARD_AUTO,
    SHARD_DDP,
    SHARD_ZERO1,
    SHARD_FSDP,
    SHARD_DPU,
    SHARD_ACCO_WP,
    SHARD_ACCO
};
enum strategy_replicate {
    REPLICATE_AUTO,
    REPLICATE_SYNC,
    REPLICATE_LOCAL,
    REPLICATE_OVERLAP_LOCAL,
    REPLICATE_SLOWMO,
    REPLICATE_CO2,
    REPLICATE_DILOCO
};
enum strategy_penalty { PENALTY_ELEMENTWISE, PENALTY_NORM, PENALTY_OFF };
enum strategy_outer { OUTER_NESTEROV, OUTER_SGD, OUTER_ADAM };
enum strategy_precision { PRECISION_FP32, PRECISION_MIXED };
enum strategy_grads { GRADS_AUTO, GRADS_FP32, GRADS_BF16 };
enum strategy_weight { WEIGHT_MICROBATCH, WEIGHT_TOKENS };

enum { STRATEGY_PHASES = 32 };

struct strategy_config { /* [strategy] */
    char preset[OPTION_ROOM];
    int shard;                /* enum strategy_shard                              */
    int replicate;            /* enum strategy_replicate                          */
    char mesh[OPTION_ROOM];   /* "RxS"                                            */
    int precision;            /* enum strategy_precision                          */
    int grads;                /* enum strategy_grads                              */
    int weight;               /* enum strategy_weight: what a round's average counts */
    int accumulate;           /* micro-batches a worker and round, or half-round  */
    int64_t warmup;           /* dpu: undelayed rounds at first                   */
    char replay[OPTION_ROOM]; /* dpu, acco: file of counts                       */

    char tau[OPTION_ROOM]; /* local, overlap-local, slowmo, co2                */
    double alpha, beta;    /* overlap-local, slowmo, co2; negative: the method's own */
    double phi;            /* co2: clip the outer momentum; 0: off             */
    int penalty;           /* co2: enum strategy_penalty                       */
    int64_t H;             /* diloco                                           */
    int outer;             /* diloco: enum strategy_outer                      */
    double outer_lr, outer_momentum;
    double prune, drop;
    int64_t drop_seed;
    char replicas[OPTION_ROOM]; /* diloco: "8x1000,4x1000"                      */

    /* By strategy_resolve; no options of their own. */
    int groups;        /* |R|                      */
    int64_t tau_steps; /* 0: auto                  */
    struct {
        int groups;
        int64_t steps;
    } phase[STRATEGY_PHASES];
    int n_phase;
};

extern const struct option strategy_options[];
extern const int strategy_options_count;

/* Fills in what was left to the preset and to the number of workers; refuses combinations that make
 * no sense. */
enum sotto_status strategy_resolve(struct strategy_config *config, int workers);

/* What gradients are added up in. */
enum dtype strategy_grad_type(const struct strategy_config *config);

/* Leaves again to the preset what it fills in, so that another preset can be put in its place. */
void strategy_unresolve(struct strategy_config *config);

/* Sets options that config's method has no use for back to their defaults, where `base` has the
 * same value: runs that are compared share one base. Others are strategy_resolve's to refuse. */
enum sotto_status strategy_forget(struct strategy_config *config,
                                  const struct strategy_config *base);

/* The preset's name, i = 0, 1, ...; NULL behind the last. */
const char *strategy_preset(int i);

/* "zero1", "fsdp x sync": for people. */
void strategy_describe(const struct strategy_config *config, char out[OPTION_ROOM]);

/* How many rounds it may take workers that are asked to stop until all of them can; part of one,
 * where rounds can be abandoned. */
double strategy_rounds_to_stop(const struct strategy_config *config);

/* What the caller wants of a round. */
struct plan {
    double lr, next_lr; /* of this round and of the one behind it          */
    bool want_norm;
    bool stop;      /* this worker would like this round to be the last */
    bool last;      /* the run is going to end behind this round; the same for all workers */
    double pause;   /* seconds since the last round that are not the training's */
    double seconds; /* of training, by this worker's clock, before this round   */
    /* (optional) Becomes non-zero when this worker is to stop as soon as it can: methods that
     * average every gradient then abandon a round between two micro-batches. */
    const volatile sig_atomic_t *asked;
};

/* What all workers know alike once they have met, of the rounds since they met before: one round
 * where gradients are averaged over everybody, else those between two exchanges. */
struct agreed {
    int64_t rounds, tokens, microbatches;
    double seconds; /* plan.seconds of the last of them, mean over the workers */
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
};

struct strategy; /* begins with its ops */

struct strategy_setup {
    const struct strategy_config *config; /* resolved; all of these outlive the strategy */
    const struct optim_config *optim;
    struct oracle *oracle;
    struct device *dev;
    struct mesh *mesh; /* of config->groups groups */
};

struct strategy_ops {
    const char *name;
    enum sotto_status (*open)(struct strategy **out, const struct strategy_setup *setup);
    /* One update of the real parameters. A loss that is no number is SOTTO_ENUMERIC, before
     * anything moves. After a failure the other workers still wait, and lanes may be at work:
     * mesh_abort before anything is freed. */
    enum sotto_status (*round)(struct strategy *s, const struct plan *plan, struct round *out);
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
    void (*free)(struct strategy *s);
};

struct strategy {
    const struct strategy_ops *ops;
};

extern const struct strategy_ops strategy_ddp, strategy_zero1, strategy_fsdp, strategy_dpu,
    strategy_acco_wp, strategy_acco;

/* Methods that own slices want the stages of the oracle's table padded to a multiple of |S|. Called
 * by all workers. */
enum sotto_status strategy_open(struct strategy **out, const struct strategy_setup *setup);

#endif

/* A training method: what happens in one round, from micro-batches to new parameters. */
#ifndef SOTTO_STRATEGY_STRATEGY_H
#define SOTTO_STRATEGY_STRATEGY_H

#include "io/state.h"
#include "optim/optim.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

enum strategy_precision { PRECISION_FP32, PRECISION_MIXED };
enum strategy_weight { WEIGHT_MICROBATCH, WEIGHT_TOKENS };

struct strategy_config { /* [strategy] */
    int precision;       /* enum strategy_precision */
    int weight;          /* enum strategy_weight: what a round's average counts */
    int accumulate;      /* micro-batches a worker and round */
};

extern const struct option strategy_options[];
extern const int strategy_options_count;

/* What a round did. */
struct round {
    double loss;      /* mean over targets        */
    double grad_norm; /* before clipping; negative: not computed */
    int64_t targets, tokens, microbatches;
};

struct strategy; /* begins with its ops */

struct strategy_ops {
    const char *name;
    /* One update of the real parameters. A loss that is no number is SOTTO_ENUMERIC, before
     * anything moves. */
    enum sotto_status (*round)(struct strategy *s, double lr, bool want_norm, struct round *out);
    /* What gradients are computed with, whole, one view a stage, until the next round. Like the
     * next two it is called by all workers. */
    enum sotto_status (*gather)(struct strategy *s, const struct view **theta);
    /* The real parameters, fp32, whole, in the table's order, to and from host memory; the same on
     * all workers. */
    enum sotto_status (*export)(struct strategy *s, float *flat);
    enum sotto_status (*import)(struct strategy *s, const float *flat);
    enum sotto_status (*visit)(struct strategy *s,
                               struct state_visitor *v); /* all but the parameters */
    void (*free)(struct strategy *s);
};

struct strategy {
    const struct strategy_ops *ops;
};

/* Shard methods, one file each under shard/. ddp: `mesh` NULL is one worker alone. zero1 wants the
 * stages padded to a multiple of |S|. */
enum sotto_status strategy_ddp(struct strategy **out, const struct strategy_config *config,
                               const struct optim_config *optim, struct oracle *oracle,
                               struct device *dev, struct mesh *mesh);

enum sotto_status strategy_zero1(struct strategy **out, const struct strategy_config *config,
                                 const struct optim_config *optim, struct oracle *oracle,
                                 struct device *dev, struct mesh *mesh);

enum sotto_status strategy_fsdp(struct strategy **out, const struct strategy_config *config,
                                const struct optim_config *optim, struct oracle *oracle,
                                struct device *dev, struct mesh *mesh);

#endif

/* Sampling text from a model, token by token, with cached keys and values. */
#ifndef SOTTO_HF_GENERATE_H
#define SOTTO_HF_GENERATE_H

#include "base/rng.h"
#include "nn/tape.h"

struct generate_config {
    double temperature; /* 0: the most likely token */
    int top_k;          /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
    enum dtype activations;
};

struct generator {
    const struct model *model;
    struct device *dev;
    const struct view *theta; /* a view for each stage, not owned */
    struct generate_config config;
    struct rng rng;
    struct tape tape;
    struct pool pool;
    struct batch batch;
    struct cache cache;
    int seen;         /* positions in the cache */
    int32_t *history; /* (positions): tokens in the cache */
    float *logits;    /* (vocab) */
    int *order;       /* (vocab): candidates, most likely first */
};

enum sotto_status generator_init(struct generator *g, const struct model *model, struct device *dev,
                                 const struct view *theta, const struct generate_config *config);
void generator_free(struct generator *g);

/* Reads `count` (>= 1) tokens and draws the next. When all positions are used, forgets the older
 * half. */
enum sotto_status generator_next(struct generator *g, const int32_t *tokens, size_t count,
                                 int32_t *next);

#endif

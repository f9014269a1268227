/* Models small enough for exhaustive tests: one of each kind, with everything an architecture can
 * have switched on. */
#ifndef SOTTO_TESTS_NN_TINY_H
#define SOTTO_TESTS_NN_TINY_H

#include "base/scratch.h"

#include <math.h>

#include "base/rng.h"
#include "nn/tape.h"

#define TINY_MODEL(A, H)                                                                           \
    .arch = ARCH_##A, .layers = 2, .width = 16, .heads = H, .vocab = 29, .positions = 12
static const struct model_config tiny_configs[] = {
    {TINY_MODEL(GPT2, 2)},
    {TINY_MODEL(GPT_NEO, 4), .window = 3, .pattern = "gl", .tied = TIED_NO},
    {TINY_MODEL(LLAMA, 4), .kv_heads = 2, .head_width = 6, .mlp_width = 20, .tied = TIED_YES},
    {TINY_MODEL(OLMO2, 4), .kv_heads = 2, .mlp_width = 20},
    {TINY_MODEL(MISTRAL, 4), .kv_heads = 2, .head_width = 6, .mlp_width = 20, .window = 3},
    {TINY_MODEL(QWEN2, 4), .kv_heads = 2, .mlp_width = 20, .window = 3, .pattern = "lg"},
    {TINY_MODEL(QWEN3, 4), .kv_heads = 2, .head_width = 6, .mlp_width = 20, .tied = TIED_YES},
};
#undef TINY_MODEL
enum { TINY = sizeof tiny_configs / sizeof *tiny_configs };

static inline void tiny_model(struct model *model, int which, int stages, int pad)
{
    struct model_config config = tiny_configs[which];
    assert_ok(model_config_resolve(&config));
    assert_ok(model_init(model, &config, stages, pad));
}

/* Parameters of which every one matters: wide weights, gains around 1, biases away from 0; a
 * function of the name alone, as model_randomize is. */
static inline void tiny_parameters(const struct model *model, uint64_t seed, float *flat)
{
    enum { MANY = 512 };   /* a call for each would take longer than what tests do with them */
    float noise[2 * MANY]; /* pairs, of which the first are taken */
    model_randomize(model, seed, flat);
    for (int i = 0; i < model->table.n; i++) {
        const struct table_entry *e = &model->table.entry[i];
        float *x = flat + model->table.stage_start[e->stage] + e->offset;
        uint64_t stream = 0;
        for (const char *c = e->name; *c; c++)
            stream = stream * 131 + (unsigned char)*c;
        struct rng rng = rng_make(seed, stream);
        for (size_t j = 0; j < e->count; j++) {
            if (j % MANY == 0)
                rng_normal(&rng, noise, 2 * MANY, 0, 0.2f);
            const float some = noise[j % MANY * 2];
            x[j] = e->ndim < 2 ? x[j] + some : some;
        }
    }
}

/* Random tokens; with `ignore` every fifth target is none. */
static inline void tiny_batch(struct batch *batch, int rows, int t, int vocab, uint64_t seed,
                              bool ignore)
{
    struct rng rng = rng_make(seed, 77);
    assert_ok(batch_init(batch, rows, t));
    for (int i = 0; i < rows * t; i++) {
        batch->tokens[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
        batch->targets[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
        if (ignore && i % 5 == 2)
            batch->targets[i] = -100;
        batch->n_targets += batch->targets[i] >= 0;
    }
}

#endif

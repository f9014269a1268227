/* A network over arrays of numbers, for tests: a linear layer, a norm over the micro-batch with
 * running statistics, and the library's head over classes. It has keys of its own and state that is
 * not trained. Its own layers compute on the host. */
#ifndef SOTTO_TESTS_NN_MLP_H
#define SOTTO_TESTS_NN_MLP_H

#include <math.h>

#include "nn/arch/build.h"

struct spots_config {
    int hidden, classes, height, width, channels;
    double momentum; /* of the running statistics */
};

static const struct option spots_options[] = {
    OPTION_INT(struct spots_config, hidden, "10", 1, 1 << 20, "hidden units"),
    OPTION_INT(struct spots_config, classes, "3", 2, 1 << 20, "classes"),
    OPTION_INT(struct spots_config, height, "4", 1, 1 << 20, "rows of an image"),
    OPTION_INT(struct spots_config, width, "5", 1, 1 << 20, "columns of an image"),
    OPTION_INT(struct spots_config, channels, "2", 1, 1 << 20, "channels of an image"),
    OPTION_REAL(struct spots_config, momentum, "0.1", 0, 1, "of the running statistics"),
};

struct plain_layer {
    struct layer base;
    int in, out, w, b;
};

static inline struct edge plain_output(const struct layer *layer, struct extent e)
{
    const size_t out = (size_t)((const struct plain_layer *)layer)->out;
    return (struct edge){1, {{extent_tokens(e), out}}};
}

static inline size_t plain_saved(const struct layer *layer, struct extent e)
{
    (void)layer, (void)e;
    return 0;
}

static inline size_t plain_scratch(const struct layer *layer, struct extent e, bool backward)
{
    (void)layer, (void)e, (void)backward;
    return 0;
}

static inline double plain_flops(const struct layer *layer, struct extent e)
{
    const struct plain_layer *l = (const struct plain_layer *)layer;
    return 2.0 * (double)extent_tokens(e) * l->in * l->out;
}

static inline struct linear plain_shape(const struct plain_layer *l, const struct pass *pass)
{
    return (struct linear){
        (int)extent_tokens(pass->extent), l->in, l->out, LINEAR_OUT_IN, pass->half, false};
}

static inline void plain_forward(const struct layer *layer, struct pass *pass,
                                 const struct view *theta, struct layer_flow flow)
{
    const struct plain_layer *l = (const struct plain_layer *)layer;
    const struct linear p = plain_shape(l, pass);
    pass->dev->ops->linear_forward(pass->dev, &p, flow.y, pass->input,
                                   pass_param(pass, theta, l->w), pass_param(pass, theta, l->b),
                                   view_none);
}

static inline void plain_backward(const struct layer *layer, struct pass *pass,
                                  const struct view *theta, const struct view *grad,
                                  struct layer_flow flow)
{
    const struct plain_layer *l = (const struct plain_layer *)layer;
    const struct linear p = plain_shape(l, pass);
    (void)theta;
    pass->dev->ops->linear_backward_w(pass->dev, &p, pass_param(pass, grad, l->w),
                                      pass_param(pass, grad, l->b), flow.dy, pass->input);
}

static const struct layer_ops plain_ops = {.name = "dense",
                                           .output = plain_output,
                                           .saved = plain_saved,
                                           .scratch = plain_scratch,
                                           .flops = plain_flops,
                                           .forward = plain_forward,
                                           .backward = plain_backward};

/* y = tanh(gain * (x - mean) / sqrt(var + eps) + bias), mean and var of the micro-batch's rows in
 * training and the running ones otherwise. Kept: y and 1 / sqrt(var + eps), mean. */
struct batchnorm_layer {
    struct layer base;
    int width, gain, bias, mean, var; /* the last two of the state */
    float momentum;
};

enum { MLP_EPS_INVERSE = 1000 };

static inline struct edge batchnorm_output(const struct layer *layer, struct extent e)
{
    const size_t width = (size_t)((const struct batchnorm_layer *)layer)->width;
    return (struct edge){1, {{extent_tokens(e), width}}};
}

static inline size_t batchnorm_saved(const struct layer *layer, struct extent e)
{
    const size_t width = (size_t)((const struct batchnorm_layer *)layer)->width;
    return carve_bytes(2 * width, DTYPE_F32) + carve_bytes(extent_tokens(e) * width, DTYPE_F32);
}

static inline double batchnorm_flops(const struct layer *layer, struct extent e)
{
    return 10.0 * (double)extent_tokens(e) * ((const struct batchnorm_layer *)layer)->width;
}

static inline void batchnorm_forward(const struct layer *layer, struct pass *pass,
                                     const struct view *theta, struct layer_flow flow)
{
    const struct batchnorm_layer *l = (const struct batchnorm_layer *)layer;
    const size_t w = (size_t)l->width, rows = extent_tokens(pass->extent);
    if (!flow.x.data)
        return; /* a device that only counts */
    float *stats = view_host(carve_piece(&flow.saved, 2 * w, DTYPE_F32));
    float *kept = view_host(carve_piece(&flow.saved, rows * w, DTYPE_F32));
    const float *x = view_host(flow.x), *gain = view_host(pass_param(pass, theta, l->gain));
    const float *bias = view_host(pass_param(pass, theta, l->bias));
    float *y = view_host(flow.y), *running = view_host(state_of(pass, l->mean));
    float *running_var = view_host(state_of(pass, l->var));
    for (size_t i = 0; i < w; i++) {
        double mean = 0, var = 0;
        for (size_t r = 0; r < rows; r++)
            mean += x[r * w + i] / (double)rows;
        for (size_t r = 0; r < rows; r++)
            var += (x[r * w + i] - mean) * (x[r * w + i] - mean) / (double)rows;
        if (pass->training && running && !pass->again) {
            running[i] += l->momentum * ((float)mean - running[i]);
            running_var[i] +=
                l->momentum * ((float)(var * (double)rows / ((double)rows - 1)) - running_var[i]);
        }
        if (!pass->training) {
            mean = running[i];
            var = running_var[i];
        }
        stats[i] = (float)mean;
        stats[w + i] = (float)(1 / sqrt(var + 1.0 / MLP_EPS_INVERSE));
        for (size_t r = 0; r < rows; r++) {
            const float n = (x[r * w + i] - stats[i]) * stats[w + i];
            y[r * w + i] = kept[r * w + i] = tanhf(gain[i] * n + bias[i]);
        }
    }
}

static inline void batchnorm_backward(const struct layer *layer, struct pass *pass,
                                      const struct view *theta, const struct view *grad,
                                      struct layer_flow flow)
{
    const struct batchnorm_layer *l = (const struct batchnorm_layer *)layer;
    const size_t w = (size_t)l->width, rows = extent_tokens(pass->extent);
    if (!flow.x.data)
        return;
    const float *stats = view_host(carve_piece(&flow.saved, 2 * w, DTYPE_F32));
    const float *kept = view_host(carve_piece(&flow.saved, rows * w, DTYPE_F32));
    const float *x = view_host(flow.x), *dy = view_host(flow.dy);
    const float *gain = view_host(pass_param(pass, theta, l->gain));
    float *dx = view_host(flow.dx), *dgain = view_host(pass_param(pass, grad, l->gain));
    float *dbias = view_host(pass_param(pass, grad, l->bias));
    for (size_t i = 0; i < w; i++) {
        double sum = 0, sum_n = 0;
        for (size_t r = 0; r < rows; r++) {
            const double d = dy[r * w + i] * (1 - (double)kept[r * w + i] * kept[r * w + i]);
            sum += d;
            sum_n += d * (x[r * w + i] - stats[i]) * stats[w + i];
        }
        for (size_t r = 0; r < rows; r++) {
            const double d = dy[r * w + i] * (1 - (double)kept[r * w + i] * kept[r * w + i]);
            const double n = (x[r * w + i] - stats[i]) * stats[w + i];
            dx[r * w + i] = (float)(gain[i] * stats[w + i] *
                                    (d - sum / (double)rows - n * sum_n / (double)rows));
        }
        dgain[i] += (float)sum_n;
        dbias[i] += (float)sum;
    }
}

static const struct layer_ops batchnorm_ops = {.name = "batchnorm",
                                               .output = batchnorm_output,
                                               .saved = batchnorm_saved,
                                               .scratch = plain_scratch,
                                               .flops = batchnorm_flops,
                                               .forward = batchnorm_forward,
                                               .backward = batchnorm_backward};

static inline enum sotto_status mlp_build(struct model *m);

static const struct arch arch_spots = {.name = "spots",
                                       .about = "a network of two layers over images",
                                       ARCH_OPTIONS(struct spots_config, spots_options),
                                       .build = mlp_build};

static inline enum sotto_status mlp_build(struct model *m)
{
    const struct spots_config *c = arch_own(&m->config, &arch_spots);
    const int in = c->height * c->width * c->channels;
    struct plain_layer *dense = model_begin(m, &plain_ops, sizeof *dense);
    dense->in = in;
    dense->out = c->hidden;
    dense->w = model_matrix(m, 0.3, c->hidden, in, "dense.weight");
    dense->b = model_zeros(m, c->hidden, "dense.bias");
    struct batchnorm_layer *bn = model_begin(m, &batchnorm_ops, sizeof *bn);
    bn->width = c->hidden;
    bn->momentum = (float)c->momentum;
    bn->gain = model_ones(m, c->hidden, "bn.weight");
    bn->bias = model_zeros(m, c->hidden, "bn.bias");
    bn->mean = model_state(m, false, c->hidden, "bn.running_mean");
    bn->var = model_state(m, true, c->hidden, "bn.running_var");
    struct head_layer *head = model_begin(m, &head_ops, sizeof *head);
    head->width = c->hidden;
    head->vocab = c->classes;
    head->norm = (struct norm_part){NORM_LAYER, model_ones(m, c->hidden, "norm.weight"), -1, 1e-5f};
    head->w = model_matrix(m, 0.3, c->classes, c->hidden, "head.weight");
    m->sample = (struct sample){.content = SAMPLE_FLOATS,
                                .dims = {c->height, c->width, c->channels},
                                .targets = 1,
                                .positions = 1};
    return SOTTO_OK;
}

/* `base`: what else is in the configuration; `keys` as "hidden=7", up to a NULL. */
static inline enum sotto_status mlp_model(struct model *model, const struct model_config *base,
                                          const char *const *keys, int stages, int pad)
{
    struct model_config config = *base;
    struct option_section section = arch_section(&config, &arch_spots);
    option_defaults(&section, 1);
    for (; keys && *keys; keys++) {
        char key[OPTION_ROOM];
        const char *value = strchr(*keys, '=');
        snprintf(key, sizeof key, "spots.%.*s", (int)(value - *keys), *keys);
        TRY(option_set(&section, 1, key, value + 1));
    }
    return model_init_as(model, &arch_spots, &config, stages, pad);
}

/* Image `number`: noise, and a bright spot whose place is its class. */
static inline void mlp_image(const struct sample *s, int classes, uint64_t number, float *image,
                             int32_t *target)
{
    const size_t count = sample_count(s, 1);
    struct rng rng = rng_make(number, 4321);
    *target = (int32_t)rng_below(&rng, (uint64_t)classes);
    rng_normal(&rng, image, count, 0.5f, 0.7f);
    for (int i = 0; i < 4; i++)
        image[((size_t)*target * 4 + (size_t)i) % count] += 2;
}

static inline void mlp_batch(struct batch *b, int classes, uint64_t first)
{
    for (int r = 0; r < b->rows; r++)
        mlp_image(&b->sample, classes, first + (uint64_t)r,
                  b->floats + (size_t)r * sample_count(&b->sample, 1), &b->targets[r]);
    b->n_targets = b->rows;
}

#endif

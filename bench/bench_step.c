/* A training step of a GPT-2, of a --llama, or of a --preset over images: forward, backward into
 * fresh gradients, AdamW. Has the interface of bench/peer_torch.py, so that bench/step.py can run
 * both in turn: a JSON line for each step, with --lockstep after a line on standard input. With
 * --profile prints times by op. On a device with a clock of its own, such as a GPU, times are
 * by that clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/option/option.h"
#include "base/rng.h"
#include "nn/tape.h"
#include "optim/optim.h"
#include "tensor/cpu/cpu.h"
#include "profile.h"

struct config {
    int layers, heads, width, vocab, batch, seq, threads, steps, warmup;
    int side;          /* of images */
    int kv_heads, mlp; /* of a --llama */
    char preset[OPTION_ROOM], kernels[OPTION_ROOM];
    bool lockstep, profile, mixed, llama;
    char device[OPTION_ROOM];
    int activations; /* enum dtype */
};

static const char *const activation_names[] = {"fp32", "bf16", NULL}; /* as enum dtype */

#define S struct config
static const struct option table[] = {
    OPTION_INT(S, layers, "6", 1, 1000, ""),
    OPTION_INT(S, heads, "6", 1, 1000, ""),
    OPTION_INT(S, width, "384", 1, 100000, ""),
    OPTION_INT(S, vocab, "8192", 1, 1e7, ""),
    OPTION_INT(S, batch, "4", 1, 1e6, ""),
    OPTION_INT(S, seq, "256", 1, 1e6, ""),
    OPTION_INT(S, threads, "2", 1, 1024, ""),
    OPTION_INT(S, steps, "20", 1, 1e6, ""),
    OPTION_INT(S, warmup, "3", 0, 1e6, ""),
    OPTION_BOOL(S, lockstep, "false", ""),
    OPTION_BOOL(S, profile, "false", ""),
    OPTION_BOOL(S, mixed, "false", ""),
    OPTION_INT(S, side, "32", 1, 4096, ""),
    OPTION_BOOL(S, llama, "false", ""),
    OPTION_INT(S, kv_heads, "0", 0, 1000, ""),
    OPTION_INT(S, mlp, "0", 0, 100000, ""),
    OPTION_TEXT(S, preset, "", ""),
    OPTION_TEXT(S, kernels, "", ""),
    OPTION_TEXT(S, device, "cpu", ""),
    OPTION_ENUM(S, activations, "fp32", activation_names, ""),
};
#undef S

struct bench {
    struct config c;
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct tape tape;
    struct batch batch;
    struct buffer theta, grad, state;
    struct buffer x; /* mixed: the fp32 truth of theta */
    struct view *theta_stage, *grad_stage;
    struct optim_config optim_config;
    struct optim optim;
};

static enum sotto_status open_model(struct bench *b)
{
    struct model_config m = {.arch = b->c.llama ? ARCH_LLAMA : ARCH_GPT2,
                             .layers = b->c.layers,
                             .width = b->c.width,
                             .heads = b->c.heads,
                             .kv_heads = b->c.kv_heads,
                             .mlp_width = b->c.mlp,
                             .vocab = b->c.vocab,
                             .positions = b->c.seq};
    const struct image_sizes sizes = {b->c.side, b->c.side, 3, 10};
    if (b->c.preset[0]) {
        m = (struct model_config){0};
        memcpy(m.preset, b->c.preset, sizeof m.preset);
    }
    TRY(model_config_resolve(&m));
    if (b->c.preset[0])
        TRY(model_config_fit(&m, &sizes));
    return model_init(&b->model, &m, 1, 1);
}

/* Allocates running statistics if the model has them. */
static enum sotto_status open_state(struct bench *b)
{
    if (!b->model.state.n)
        return SOTTO_OK;
    TRY(buffer_init(&b->state, &b->dev, DTYPE_F32, table_count(&b->model.state),
                    MEMORY_PARAMETERS));
    const size_t count = table_count(&b->model.state);
    float *host = calloc(count, sizeof *host);
    if (!host)
        return fail(SOTTO_ENOMEM, "no memory for %zu elements", count);
    model_state_start(&b->model, host);
    b->dev.ops->write(&b->dev, b->state.view, host, count);
    free(host);
    b->tape.state = b->state.view;
    return SOTTO_OK;
}

static void make_batch(struct bench *b)
{
    struct rng rng = rng_make(1, 0);
    const bool tokens = b->model.sample.content == SAMPLE_TOKENS;
    const uint64_t classes = tokens ? (uint64_t)b->c.vocab : 10;
    for (int i = 0; i < b->batch.rows * b->batch.t; i++) {
        if (tokens)
            b->batch.tokens[i] = (int32_t)rng_below(&rng, classes);
        b->batch.targets[i] = (int32_t)rng_below(&rng, classes);
    }
    if (!tokens)
        rng_normal(&rng, b->batch.floats,
                   (size_t)b->batch.rows * sample_count(&b->model.sample, b->c.seq), 0, 1);
}

static enum sotto_status start(struct bench *b, struct view x)
{
    const size_t count = table_count(&b->model.table);
    float *host = calloc(count, sizeof *host);
    if (!host)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    model_randomize(&b->model, 1, host);
    b->dev.ops->write(&b->dev, x, host, count);
    free(host);
    return device_check(&b->dev);
}

static enum sotto_status open_bench(struct bench *b)
{
    optim_defaults(&b->optim_config);
    TRY(open_model(b));
    TRY(device_open(&b->dev, b->c.device, &b->memory, b->c.threads));
    if (b->c.kernels[0])
        TRY(cpu_select(&b->dev, b->c.kernels));
    if (b->c.profile)
        profile_start(&b->dev);
    pool_init(&b->pool, &b->dev, MEMORY_ACTIVATIONS);
    size_t count = table_count(&b->model.table);
    TRY(tape_init(
        &b->tape, &b->model, &b->dev, &b->pool,
        (struct extent){b->c.batch, b->model.sample.content == SAMPLE_TOKENS ? b->c.seq : 1,
                        (enum dtype)b->c.activations, device_keeps(b->c.device, b->c.threads)},
        false));
    const enum dtype type = b->c.mixed ? DTYPE_BF16 : DTYPE_F32;
    TRY(buffer_init(&b->theta, &b->dev, type, count, MEMORY_PARAMETERS));
    TRY(buffer_init(&b->grad, &b->dev, type, count, MEMORY_GRADIENTS));
    if (b->c.mixed)
        TRY(buffer_init(&b->x, &b->dev, DTYPE_F32, count, MEMORY_OPTIMIZER));
    TRY(optim_init(&b->optim, &b->optim_config, &b->dev, &b->model.table, NULL, MEMORY_OPTIMIZER));
    TRY(batch_init_of(&b->batch, &b->model.sample, b->c.batch, b->c.seq));
    b->theta_stage = calloc(2, sizeof(struct view));
    b->grad_stage = b->theta_stage + 1;
    b->theta_stage[0] = b->theta.view;
    b->grad_stage[0] = b->grad.view;
    TRY(start(b, b->c.mixed ? b->x.view : b->theta.view));
    if (b->c.mixed)
        b->dev.ops->copy(&b->dev, b->theta.view, b->x.view, count);
    TRY(open_state(b));
    make_batch(b);
    return SOTTO_OK;
}

static enum sotto_status step(struct bench *b, double *loss)
{
    float scale = 1 / (float)(b->batch.rows * b->batch.t);
    TRY(tape_begin(&b->tape, &b->batch, TAPE_TRAIN, scale));
    tape_fresh(&b->tape);
    TRY(tape_forward(&b->tape, 0, b->theta_stage));
    TRY(tape_backward(&b->tape, 0, b->theta_stage, b->grad_stage));
    if (b->c.mixed)
        optim_step(&b->optim, b->x.view, b->theta.view, b->grad.view, 3e-4, 1);
    else
        optim_step(&b->optim, b->theta.view, view_none, b->grad.view, 3e-4, 1);
    struct tape_result r = tape_result(&b->tape, b->tape.dev); /* waits for the device */
    *loss = r.loss / (double)r.targets;
    return device_failed(&b->dev);
}

/* Runs a step and stores its seconds in `*took`. */
static enum sotto_status timed_step(struct bench *b, double *loss, double *took)
{
    const struct ops *ops = b->dev.ops;
    const uint64_t mark = ops->elapsed ? ops->mark(&b->dev) : 0;
    const double begin = clock_now(&clock_real);
    TRY(step(b, loss));
    TRY(device_check(&b->dev));
    *took = clock_now(&clock_real) - begin;
    if (ops->elapsed && !b->c.profile)
        *took = ops->elapsed(&b->dev, mark, ops->mark(&b->dev));
    return SOTTO_OK;
}

static double peak_rss_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum sotto_status run(struct bench *b)
{
    double *seconds = calloc((size_t)b->c.steps, sizeof *seconds), loss;
    TRY(open_bench(b));
    for (int i = -b->c.warmup; i < b->c.steps; i++) {
        char line[64];
        if (b->c.lockstep && !fgets(line, sizeof line, stdin))
            break;
        if (i == 0 && b->c.profile)
            profile_reset(&b->dev);
        double took;
        TRY(timed_step(b, &loss, &took));
        if (i >= 0)
            seconds[i] = took;
        printf("{\"step\": %d, \"seconds\": %.6f, \"loss\": %.6f, \"peak_rss_mb\": %.1f}\n", i,
               took, loss, peak_rss_mb());
        fflush(stdout);
    }
    qsort(seconds, (size_t)b->c.steps, sizeof *seconds, ascending);
    double median = seconds[b->c.steps / 2];
    const struct extent e = {b->batch.rows, b->batch.t, DTYPE_F32, false};
    printf("{\"median\": %.6f, \"tokens_per_s\": %.1f, \"peak_rss_mb\": %.1f, \"gflops\": %.1f}\n",
           median, b->batch.rows * b->batch.t / median, peak_rss_mb(),
           model_flops(&b->model, e) / median / 1e9);
    if (b->c.profile)
        profile_print(&b->dev, b->c.steps, stdout);
    return SOTTO_OK;
}

int main(int argc, char **argv)
{
    static struct bench b;
    const struct option_section section = OPTION_SECTION("", "", table, &b.c);
    const char *rest[64];
    int n_rest;
    option_defaults(&section, 1);
    enum sotto_status st = argc > 64 ? fail(SOTTO_EINVAL, "too many arguments")
                                     : option_parse(&section, 1, argc - 1,
                                                    (const char *const *)argv + 1, rest, &n_rest);
    if (st == SOTTO_OK)
        st = run(&b);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_step: %s\n", sotto_error());
    return st != SOTTO_OK;
}

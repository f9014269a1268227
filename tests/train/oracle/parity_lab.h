/* A model on a device with vectors that transformers computed (tools/make_vectors.py). Parity:
 * logits, gradients and weights differ by rounding alone. */
#ifndef SOTTO_TESTS_TRAIN_ORACLE_PARITY_LAB_H
#define SOTTO_TESTS_TRAIN_ORACLE_PARITY_LAB_H

#include "base/scratch.h"

#include <math.h>

#include "io/safetensors.h"
#include "nn/tape.h"
#include "optim/optim.h"
#include "tensor/ops.h"

enum { PARITY_STAGES = 64 };

/* How a model is computed. */
struct parity_way {
    const char *device;
    int stages;
    bool recompute;
};

struct parity {
    const char *name;
    struct safetensors vectors;
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct tape tape;
    struct batch batch;
    struct buffer theta, grad, state;
    struct view theta_stage[PARITY_STAGES], grad_stage[PARITY_STAGES];
};

static inline void parity_path(char path[512], const char *name, const char *which)
{
    snprintf(path, 512, "%s/%s%s.safetensors", TEST_VECTORS, name, which);
}

/* The caller frees it. */
static inline float *parity_read(const struct safetensors *set, const char *name, size_t *count)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    if (!e)
        fail_with("no tensor '%s'", name);
    float *out = malloc((e->count + 1) * sizeof *out);
    assert_ok(safetensors_read_f32(e, out));
    *count = e->count;
    return out;
}

/* Opens the vectors of `name`, and the configuration that transformers wrote. */
static inline void parity_open(struct parity *p, const char *name, struct model_config *config)
{
    char path[512];
    json_t *json;
    memset(p, 0, sizeof *p);
    p->name = name;
    parity_path(path, name, "");
    assert_ok(safetensors_open(&p->vectors, path));
    const char *text = safetensors_metadata(&p->vectors, "config");
    assert_non_null(text);
    assert_ok(json_parse(&json, text, strlen(text), "config"));
    assert_ok(model_config_from_json(config, json));
    json_decref(json);
}

/* Opens the device's side, up to `rows` rows, after the model and its batch. */
static inline void parity_place(struct parity *p, const struct parity_way *way, int rows,
                                enum dtype type)
{
    const char *device = strcmp(way->device, "cpu") == 0 ? test_device() : way->device;
    const size_t count = table_count(&p->model.table);
    assert_ok(device_open(&p->dev, device, &p->memory, 2));
    pool_init(&p->pool, &p->dev, MEMORY_ACTIVATIONS);
    assert_ok(tape_init(&p->tape, &p->model, &p->dev, &p->pool,
                        (struct extent){rows, p->batch.t, type, false}, way->recompute));
    assert_ok(buffer_init(&p->theta, &p->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&p->grad, &p->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    table_stages(&p->model.table, p->theta.view, p->theta_stage);
    table_stages(&p->model.table, p->grad.view, p->grad_stage);
}

static inline void parity_close(struct parity *p)
{
    buffer_free(&p->theta);
    buffer_free(&p->grad);
    buffer_free(&p->state);
    tape_free(&p->tape);
    pool_free(&p->pool);
    batch_free(&p->batch);
    device_close(&p->dev);
    model_free(&p->model);
    safetensors_close(&p->vectors);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(p->memory.now[c], 0);
}

static inline void parity_logits(struct parity *p, double room)
{
    size_t count;
    float *want = parity_read(&p->vectors, "logits", &count);
    float *have = malloc(count * sizeof *have);
    double worst = 0;
    assert_ok(tape_begin(&p->tape, &p->batch, TAPE_EVALUATE, 0));
    p->tape.pass.logits = have;
    for (int k = 0; k < p->model.n_stage; k++)
        assert_ok(tape_forward(&p->tape, k, p->theta_stage));
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)have[i] - want[i]));
    if (!(worst < room))
        fail_with("%s: logits differ by %g", p->name, worst);
    free(want);
    free(have);
}

/* The batch's gradient. Returns its mean loss. */
static inline double parity_gradient(struct parity *p)
{
    p->dev.ops->fill(&p->dev, p->grad.view, p->grad.count, 0);
    assert_ok(tape_run(&p->tape, &p->batch, TAPE_TRAIN, 1 / (float)p->batch.n_targets,
                       p->theta_stage, p->grad_stage));
    const struct tape_result r = tape_result(&p->tape, p->tape.dev);
    assert_int_equal(r.targets, p->batch.n_targets);
    return r.loss / (double)r.targets;
}

static inline void parity_loss(const struct parity *p, double have)
{
    size_t one;
    float *want = parity_read(&p->vectors, "loss", &one);
    if (!(fabs(have - *want) < 1e-5))
        fail_with("%s: loss %g, transformers %g", p->name, have, *want);
    free(want);
}

/* The norm of the difference as a share of the tensor's, or of `floor` where it is zero but for
 * rounding (a bias before a batch norm, the key's before a softmax). */
static inline void parity_tensor(const struct parity *p, const char *tensor, const float *have,
                                 const float *want, size_t count, double floor)
{
    double difference = 0, norm = floor * floor;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)have[i] - want[i]) * ((double)have[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    if (!(sqrt(difference / norm) < 1e-4))
        fail_with("%s: %s differs by %g of %g", p->name, tensor, sqrt(difference / norm),
                  sqrt(norm));
}

#endif

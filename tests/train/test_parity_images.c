/* Models over images against vectors made by transformers (tools/make_vectors.py): logits by the
 * running statistics, loss, every gradient, weights and running statistics after two steps of SGD;
 * for every cut into stages, with and without recomputation. */
#include "base/scratch.h"

#include <math.h>

#include "nn/tape.h"
#include "optim/optim.h"
#include "tensor/ops.h"
#include "train/weights.h"

static const char *const models[] = {"resnet", "resnet_bottleneck", "resnet_early", "vit"};
enum { MODELS = sizeof models / sizeof *models, STAGES = 64 };

struct setup {
    const char *name;
    struct safetensors vectors;
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct tape tape;
    struct batch batch;
    struct buffer theta, grad, state;
    struct view theta_stage[STAGES], grad_stage[STAGES];
};

static void path_of(char path[512], const char *name, const char *which)
{
    snprintf(path, 512, "%s/%s%s.safetensors", TEST_VECTORS, name, which);
}

static float *read_vector(const struct safetensors *set, const char *name, size_t *count)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    if (!e)
        fail_with("no tensor '%s'", name);
    float *out = malloc((e->count + 1) * sizeof *out);
    assert_ok(safetensors_read_f32(e, out));
    *count = e->count;
    return out;
}

static void read_batch(struct setup *s)
{
    int64_t labels[64];
    size_t count;
    float *pixels = read_vector(&s->vectors, "pixels", &count);
    const int rows = (int)safetensors_find(&s->vectors, "pixels")->shape[0];
    assert_ok(batch_init_of(&s->batch, &s->model.sample, rows, 1));
    assert_int_equal(count, (size_t)rows * sample_count(&s->model.sample, 1));
    memcpy(s->batch.floats, pixels, count * sizeof *pixels);
    free(pixels);
    assert_ok(safetensors_read_i64(safetensors_find(&s->vectors, "labels"), labels));
    for (int i = 0; i < rows; i++)
        s->batch.targets[i] = (int32_t)labels[i];
    s->batch.n_targets = rows;
}

/* The configuration as transformers wrote it, which for a ResNet leaves the images open. */
static void open_model(struct setup *s, int stages)
{
    struct model_config config;
    json_t *json;
    const char *text = safetensors_metadata(&s->vectors, "config");
    const int64_t *shape = safetensors_find(&s->vectors, "pixels")->shape;
    assert_non_null(text);
    assert_ok(json_parse(&json, text, strlen(text), "config"));
    assert_ok(model_config_from_json(&config, json));
    json_decref(json);
    assert_true(model_config_is_open(&config) == (strcmp(s->name, "vit") != 0));
    const struct image_sizes sizes = {(int)shape[1], (int)shape[2], (int)shape[3], 5};
    assert_ok(model_config_fit(&config, &sizes));
    assert_ok(model_init(&s->model, &config, stages, 8));
}

static void open_setup(struct setup *s, const char *name, const char *device, int stages,
                       bool recompute, enum dtype type)
{
    char path[512];
    memset(s, 0, sizeof *s);
    s->name = name;
    path_of(path, name, "");
    assert_ok(safetensors_open(&s->vectors, path));
    open_model(s, stages);
    read_batch(s);
    if (strcmp(device, "cpu") == 0)
        device = test_device();
    assert_ok(device_open(&s->dev, device, &s->memory, 2));
    pool_init(&s->pool, &s->dev, MEMORY_ACTIVATIONS);
    assert_ok(tape_init(&s->tape, &s->model, &s->dev, &s->pool,
                        (struct extent){s->batch.rows + 2, 1, type}, recompute));
    const size_t count = table_count(&s->model.table);
    assert_ok(buffer_init(&s->theta, &s->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&s->grad, &s->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    table_stages(&s->model.table, s->theta.view, s->theta_stage);
    table_stages(&s->model.table, s->grad.view, s->grad_stage);
    float *host = malloc(count * sizeof *host);
    assert_ok(weights_load(&s->model, path, host));
    s->dev.ops->write(&s->dev, s->theta.view, host, count);
    free(host);
    if (!s->model.state.n)
        return;
    const size_t kept = table_count(&s->model.state);
    host = malloc(kept * sizeof *host);
    assert_ok(buffer_init(&s->state, &s->dev, DTYPE_F32, kept, MEMORY_PARAMETERS));
    assert_ok(weights_load_state(&s->model, path, host));
    s->dev.ops->write(&s->dev, s->state.view, host, kept);
    s->tape.state = s->state.view;
    free(host);
}

static void close_setup(struct setup *s)
{
    buffer_free(&s->theta);
    buffer_free(&s->grad);
    buffer_free(&s->state);
    tape_free(&s->tape);
    pool_free(&s->pool);
    batch_free(&s->batch);
    device_close(&s->dev);
    model_free(&s->model);
    safetensors_close(&s->vectors);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(s->memory.now[c], 0);
}

static void check_logits(struct setup *s, double room)
{
    size_t count;
    float *want = read_vector(&s->vectors, "logits", &count);
    float *have = malloc(count * sizeof *have);
    double worst = 0;
    assert_ok(tape_begin(&s->tape, &s->batch, TAPE_EVALUATE, 0));
    s->tape.pass.logits = have;
    for (int k = 0; k < s->model.n_stage; k++)
        assert_ok(tape_forward(&s->tape, k, s->theta_stage));
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)have[i] - want[i]));
    if (!(worst < room))
        fail_with("%s: logits differ by %g", s->name, worst);
    free(want);
    free(have);
}

/* Each tensor of a vector against a file's, as a share of its norm; one that is zero but for
 * rounding (a bias before a batch norm, the key's before a softmax) has `floor` for its norm. */
static void compare(const struct setup *s, struct device *dev, const struct table *table,
                    struct view have, const char *which, double room, double floor)
{
    char path[512];
    const size_t count = table_count(table);
    float *x = malloc(count * sizeof *x), *want = malloc(count * sizeof *want);
    path_of(path, s->name, which);
    assert_ok(
        (table == &s->model.state ? weights_load_state : weights_load)(&s->model, path, want));
    dev->ops->read(dev, x, have, count);
    for (int i = 0; i < table->n; i++) {
        const struct range in = table_range(table, i);
        double difference = 0, norm = floor * floor;
        for (size_t j = in.begin; j < in.end; j++) {
            difference += ((double)x[j] - want[j]) * ((double)x[j] - want[j]);
            norm += (double)want[j] * want[j];
        }
        if (!(sqrt(difference / norm) < room))
            fail_with("%s%s: %s differs by %g of %g", s->name, which, table->entry[i].name,
                      sqrt(difference / norm), sqrt(norm));
    }
    free(x);
    free(want);
}

static double step(struct setup *s)
{
    s->dev.ops->fill(&s->dev, s->grad.view, s->grad.count, 0);
    assert_ok(tape_run(&s->tape, &s->batch, TAPE_TRAIN, 1 / (float)s->batch.n_targets,
                       s->theta_stage, s->grad_stage));
    const struct tape_result r = tape_result(&s->tape, s->tape.dev);
    assert_int_equal(r.targets, s->batch.rows);
    return r.loss / (double)r.targets;
}

/* Left becomes right. */
static void mirror(struct batch *b)
{
    const int h = b->sample.dims[0], w = b->sample.dims[1], channels = b->sample.dims[2];
    for (int row = 0; row < b->rows * h; row++)
        for (int x = 0; x < w / 2; x++)
            for (int c = 0; c < channels; c++) {
                float *at = b->floats + (size_t)row * (size_t)(w * channels);
                float *left = at + x * channels + c, *right = at + (w - 1 - x) * channels + c;
                const float kept = *left;
                *left = *right;
                *right = kept;
            }
}

static void check_training(struct setup *s)
{
    struct optim_config config;
    struct optim optim;
    size_t one;
    float *want = read_vector(&s->vectors, "loss", &one);
    optim_defaults(&config);
    config.kind = OPTIM_SGD;
    config.momentum = 0.9;
    config.weight_decay = 0;
    assert_ok(optim_init(&optim, &config, &s->dev, &s->model.table, NULL, MEMORY_OPTIMIZER));
    const double loss = step(s);
    if (!(fabs(loss - *want) < 1e-5))
        fail_with("%s: loss %g, want %g", s->name, loss, *want);
    compare(s, &s->dev, &s->model.table, s->grad.view, "_grad", 1e-4, 1e-3);
    optim_step(&optim, s->theta.view, view_none, s->grad.view, 0.05, 1);
    mirror(&s->batch);
    step(s);
    optim_step(&optim, s->theta.view, view_none, s->grad.view, 0.05, 1);
    compare(s, &s->dev, &s->model.table, s->theta.view, "_after", 1e-4, 1e-3);
    if (s->model.state.n)
        compare(s, &s->dev, &s->model.state, s->state.view, "_after", 1e-4, 1e-3);
    optim_free(&optim);
    free(want);
}

static void parity(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int stages;
        bool recompute;
    } variant[] = {{"reference", 1, false}, {"cpu", 1, false}, {"cpu", 2, true},
                   {"cpu", 3, false},       {"cpu", 4, true},  {"cpu", 1, true}};
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
            struct setup s;
            open_setup(&s, models[m], variant[i].device, variant[i].stages, variant[i].recompute,
                       DTYPE_F32);
            check_logits(&s, 1e-4);
            check_training(&s);
            close_setup(&s);
        }
    }
}

/* With activations of bf16 the gradient points where it should. */
static void half(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct setup s;
        open_setup(&s, models[m], "cpu", 2, false, DTYPE_BF16);
        check_logits(&s, 0.1);
        assert_true(isfinite(step(&s)));
        char path[512];
        const size_t count = s.grad.count;
        float *have = malloc(count * sizeof *have), *want = malloc(count * sizeof *want);
        path_of(path, s.name, "_grad");
        assert_ok(weights_load(&s.model, path, want));
        s.dev.ops->read(&s.dev, have, s.grad.view, count);
        double product = 0, norm = 0, other = 0;
        for (size_t i = 0; i < count; i++) {
            product += (double)have[i] * want[i];
            norm += (double)want[i] * want[i];
            other += (double)have[i] * have[i];
        }
        if (!(product / sqrt(norm * other) > 0.95))
            fail_with("%s: bf16's gradient has a cosine of %g", s.name,
                      product / sqrt(norm * other));
        free(have);
        free(want);
        close_setup(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parity),
        cmocka_unit_test(half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

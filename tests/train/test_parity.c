/* Models against vectors made by transformers (tools/make_vectors.py): logits, loss, every
 * gradient, ten AdamW losses; for every cut into stages, with and without recomputation. */
#include "base/scratch.h"

#include <math.h>

#include "io/safetensors.h"
#include "nn/tape.h"
#include "optim/optim.h"
#include "tensor/ops.h"

struct setup {
    struct safetensors vectors;
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct tape tape;
    struct batch batch;
    struct buffer theta, grad;
    struct view theta_stage[64], grad_stage[64];
};

static void read_ints(const struct safetensors *set, const char *name, int32_t *out)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    assert_non_null(e);
    int64_t *wide = malloc(e->count * sizeof *wide);
    assert_ok(safetensors_read_i64(e, wide));
    for (size_t i = 0; i < e->count; i++)
        out[i] = (int32_t)wide[i];
    free(wide);
}

static float *read_floats(const struct safetensors *set, const char *name, size_t *count)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    if (!e)
        fail_with("no tensor '%s'", name);
    float *out = malloc((e->count + 1) * sizeof *out);
    assert_ok(safetensors_read_f32(e, out));
    *count = e->count;
    return out;
}

static void open_setup(struct setup *s, const char *arch, const char *device, int stages,
                       bool recompute)
{
    char path[512];
    struct model_config config;
    json_t *json;
    snprintf(path, sizeof path, "%s/%s.safetensors", TEST_VECTORS, arch);
    memset(s, 0, sizeof *s);
    assert_ok(safetensors_open(&s->vectors, path));
    const char *text = safetensors_metadata(&s->vectors, "config");
    assert_non_null(text);
    assert_ok(json_parse(&json, text, strlen(text), "config"));
    assert_ok(model_config_from_json(&config, json));
    json_decref(json);
    assert_ok(model_init(&s->model, &config, stages, 8));
    if (strcmp(device, "cpu") == 0)
        device = test_device();
    assert_ok(device_open(&s->dev, device, &s->memory, 2));
    pool_init(&s->pool, &s->dev, MEMORY_ACTIVATIONS);
    const struct safetensors_entry *tokens = safetensors_find(&s->vectors, "tokens");
    int rows = (int)tokens->shape[0], t = (int)tokens->shape[1];
    assert_ok(batch_init(&s->batch, rows, t));
    read_ints(&s->vectors, "tokens", s->batch.tokens);
    read_ints(&s->vectors, "targets", s->batch.targets);
    for (int i = 0; i < rows * t; i++)
        s->batch.n_targets += s->batch.targets[i] >= 0;
    assert_ok(tape_init(&s->tape, &s->model, &s->dev, &s->pool, (struct extent){rows, t, DTYPE_F32},
                        recompute));
    assert_ok(buffer_init(&s->theta, &s->dev, DTYPE_F32, table_count(&s->model.table),
                          MEMORY_PARAMETERS));
    assert_ok(
        buffer_init(&s->grad, &s->dev, DTYPE_F32, table_count(&s->model.table), MEMORY_GRADIENTS));
    table_stages(&s->model.table, s->theta.view, s->theta_stage);
    table_stages(&s->model.table, s->grad.view, s->grad_stage);
    for (int i = 0; i < s->model.table.n; i++) {
        char name[256];
        size_t count;
        snprintf(name, sizeof name, "param.%s", s->model.table.entry[i].name);
        float *x = read_floats(&s->vectors, name, &count);
        assert_int_equal(count, s->model.table.entry[i].count);
        s->dev.ops->write(&s->dev, table_view(&s->model.table, s->theta_stage, i), x, count);
        free(x);
    }
}

static void close_setup(struct setup *s)
{
    buffer_free(&s->theta);
    buffer_free(&s->grad);
    tape_free(&s->tape);
    pool_free(&s->pool);
    batch_free(&s->batch);
    device_close(&s->dev);
    model_free(&s->model);
    safetensors_close(&s->vectors);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(s->memory.now[c], 0);
}

static void check_logits(struct setup *s)
{
    size_t count;
    float *want = read_floats(&s->vectors, "logits", &count);
    float *have = malloc(count * sizeof *have);
    double worst = 0;
    assert_ok(tape_begin(&s->tape, &s->batch, TAPE_EVALUATE, 0));
    s->tape.pass.logits = have;
    for (int k = 0; k < s->model.n_stage; k++)
        assert_ok(tape_forward(&s->tape, k, s->theta_stage));
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)have[i] - want[i]));
    if (!(worst < 1e-4))
        fail_with("logits differ by %g", worst);
    free(want);
    free(have);
}

/* The norm of the difference relative to the norm of the gradient, with a floor for gradients that
 * are mathematically zero (the key bias under softmax). */
static void check_gradients(struct setup *s)
{
    size_t one;
    float *loss = read_floats(&s->vectors, "loss", &one);
    s->dev.ops->fill(&s->dev, s->grad.view, s->grad.count, 0);
    assert_ok(tape_run(&s->tape, &s->batch, TAPE_TRAIN, 1 / (float)s->batch.n_targets,
                       s->theta_stage, s->grad_stage));
    struct tape_result r = tape_result(&s->tape, s->tape.dev);
    assert_int_equal(r.targets, s->batch.n_targets);
    assert_true(fabs(r.loss / (double)r.targets - *loss) < 1e-5);
    free(loss);
    for (int i = 0; i < s->model.table.n; i++) {
        char name[256];
        size_t count;
        snprintf(name, sizeof name, "grad.%s", s->model.table.entry[i].name);
        float *want = read_floats(&s->vectors, name, &count);
        float *have = malloc((count + 1) * sizeof *have);
        s->dev.ops->read(&s->dev, have, table_view(&s->model.table, s->grad_stage, i), count);
        double difference = 0, norm = 1e-10;
        for (size_t j = 0; j < count; j++) {
            difference += ((double)have[j] - want[j]) * ((double)have[j] - want[j]);
            norm += (double)want[j] * want[j];
        }
        if (!(sqrt(difference / norm) < 1e-4))
            fail_with("gradient of %s differs by %g", s->model.table.entry[i].name,
                      sqrt(difference / norm));
        free(want);
        free(have);
    }
}

static void check_adamw(struct setup *s)
{
    struct optim_config config;
    optim_defaults(&config);
    config.weight_decay = 0.1;
    struct optim optim;
    size_t count;
    float *want = read_floats(&s->vectors, "adamw.losses", &count);
    assert_int_equal(count, 10);
    assert_ok(optim_init(&optim, &config, &s->dev, &s->model.table, NULL, MEMORY_OPTIMIZER));
    for (size_t step = 0; step < count; step++) {
        s->dev.ops->fill(&s->dev, s->grad.view, s->grad.count, 0);
        assert_ok(tape_run(&s->tape, &s->batch, TAPE_TRAIN, 1 / (float)s->batch.n_targets,
                           s->theta_stage, s->grad_stage));
        struct tape_result r = tape_result(&s->tape, s->tape.dev);
        if (!(fabs(r.loss / (double)r.targets - want[step]) < 1e-4))
            fail_with("AdamW step %zu: loss %f, transformers %f", step, r.loss / (double)r.targets,
                      want[step]);
        optim_step(&optim, s->theta.view, view_none, s->grad.view, 1e-2, 1);
    }
    optim_free(&optim);
    free(want);
}

static void check(const char *arch)
{
    static const struct {
        const char *device;
        int stages;
        bool recompute;
    } variant[] = {{"reference", 1, false}, {"cpu", 1, false}, {"cpu", 2, false},
                   {"cpu", 3, true},        {"cpu", 5, false}, {"cpu", 1, true}};
    for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
        struct setup s;
        open_setup(&s, arch, variant[i].device, variant[i].stages, variant[i].recompute);
        check_logits(&s);
        check_gradients(&s);
        check_adamw(&s);
        close_setup(&s);
    }
}

static void gpt2(void **state)
{
    (void)state;
    check("gpt2");
}

static void gpt_neo(void **state)
{
    (void)state;
    check("gpt_neo");
}

static void llama(void **state)
{
    (void)state;
    check("llama");
    check("llama_tied");
}

static void olmo2(void **state)
{
    (void)state;
    check("olmo2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(gpt_neo),
        cmocka_unit_test(llama),
        cmocka_unit_test(olmo2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Models over images against vectors made by transformers (tools/make_vectors.py): logits by the
 * running statistics, loss, every gradient, weights and running statistics after two steps of SGD;
 * for every cut into stages, with and without recomputation. */
#include "train/oracle/parity_lab.h"

#include "hf/weights.h"

static const char *const models[] = {"resnet", "resnet_bottleneck", "resnet_early", "vit"};
enum { MODELS = sizeof models / sizeof *models };

static void read_batch(struct parity *p)
{
    int64_t labels[64];
    size_t count;
    float *pixels = parity_read(&p->vectors, "pixels", &count);
    const int rows = (int)safetensors_find(&p->vectors, "pixels")->shape[0];
    assert_ok(batch_init_of(&p->batch, &p->model.sample, rows, 1));
    assert_int_equal(count, (size_t)rows * sample_count(&p->model.sample, 1));
    memcpy(p->batch.floats, pixels, count * sizeof *pixels);
    free(pixels);
    assert_ok(safetensors_read_i64(safetensors_find(&p->vectors, "labels"), labels));
    for (int i = 0; i < rows; i++)
        p->batch.targets[i] = (int32_t)labels[i];
    p->batch.n_targets = rows;
}

static void open_images(struct parity *p, const char *name, const struct parity_way *way,
                        enum dtype type)
{
    struct model_config config;
    char path[512];
    parity_open(p, name, &config);
    const int64_t *shape = safetensors_find(&p->vectors, "pixels")->shape;
    assert_true(model_config_is_open(&config) == (strcmp(name, "vit") != 0));
    const struct image_sizes sizes = {(int)shape[1], (int)shape[2], (int)shape[3], 5};
    assert_ok(model_config_fit(&config, &sizes)); /* a ResNet's leaves the images open */
    assert_ok(model_init(&p->model, &config, way->stages, 8));
    read_batch(p);
    parity_place(p, way, p->batch.rows + 2, type);
    parity_path(path, name, "");
    float *host = malloc(p->theta.count * sizeof *host);
    assert_ok(weights_load(&p->model, path, host));
    p->dev.ops->write(&p->dev, p->theta.view, host, p->theta.count);
    free(host);
    if (!p->model.state.n)
        return;
    const size_t kept = table_count(&p->model.state);
    host = malloc(kept * sizeof *host);
    assert_ok(buffer_init(&p->state, &p->dev, DTYPE_F32, kept, MEMORY_PARAMETERS));
    assert_ok(weights_load_state(&p->model, path, host));
    p->dev.ops->write(&p->dev, p->state.view, host, kept);
    p->tape.state = p->state.view;
    free(host);
}

/* Each tensor of a vector against that of a file. */
static void compare(struct parity *p, const struct table *table, struct view have,
                    const char *which)
{
    char path[512], name[256];
    const size_t count = table_count(table);
    float *x = malloc(count * sizeof *x), *want = malloc(count * sizeof *want);
    parity_path(path, p->name, which);
    assert_ok(
        (table == &p->model.state ? weights_load_state : weights_load)(&p->model, path, want));
    p->dev.ops->read(&p->dev, x, have, count);
    for (int i = 0; i < table->n; i++) {
        const struct range in = table_range(table, i);
        snprintf(name, sizeof name, "%s%s", table->entry[i].name, which);
        parity_tensor(p, name, x + in.begin, want + in.begin, in.end - in.begin, 1e-3);
    }
    free(x);
    free(want);
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

static void check_training(struct parity *p)
{
    struct optim_config config;
    struct optim optim;
    optim_defaults(&config);
    config.kind = OPTIM_SGD;
    config.momentum = 0.9;
    config.weight_decay = 0;
    assert_ok(optim_init(&optim, &config, &p->dev, &p->model.table, NULL, MEMORY_OPTIMIZER));
    parity_loss(p, parity_gradient(p));
    compare(p, &p->model.table, p->grad.view, "_grad");
    optim_step(&optim, p->theta.view, view_none, p->grad.view, 0.05, 1);
    mirror(&p->batch);
    parity_gradient(p);
    optim_step(&optim, p->theta.view, view_none, p->grad.view, 0.05, 1);
    compare(p, &p->model.table, p->theta.view, "_after");
    if (p->model.state.n)
        compare(p, &p->model.state, p->state.view, "_after");
    optim_free(&optim);
}

static void parity(void **state)
{
    (void)state;
    static const struct parity_way ways[] = {{"reference", 1, false}, {"cpu", 1, false},
                                             {"cpu", 2, true},        {"cpu", 3, false},
                                             {"cpu", 4, true},        {"cpu", 1, true}};
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct parity p;
            open_images(&p, models[m], &ways[i], DTYPE_F32);
            parity_logits(&p, 1e-4);
            check_training(&p);
            parity_close(&p);
        }
    }
}

/* With activations of bf16 the gradient points where it should. */
static void half(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct parity p;
        open_images(&p, models[m], &(struct parity_way){"cpu", 2, false}, DTYPE_BF16);
        parity_logits(&p, 0.1);
        assert_true(isfinite(parity_gradient(&p)));
        char path[512];
        const size_t count = p.grad.count;
        float *have = malloc(count * sizeof *have), *want = malloc(count * sizeof *want);
        parity_path(path, p.name, "_grad");
        assert_ok(weights_load(&p.model, path, want));
        p.dev.ops->read(&p.dev, have, p.grad.view, count);
        double product = 0, norm = 0, other = 0;
        for (size_t i = 0; i < count; i++) {
            product += (double)have[i] * want[i];
            norm += (double)want[i] * want[i];
            other += (double)have[i] * have[i];
        }
        if (!(product / sqrt(norm * other) > 0.95))
            fail_with("%s: bf16's gradient has a cosine of %g", p.name,
                      product / sqrt(norm * other));
        free(have);
        free(want);
        parity_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parity),
        cmocka_unit_test(half),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, NULL, NULL);
}

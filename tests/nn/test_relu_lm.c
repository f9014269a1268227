/* What the test of an architecture looks like (docs/internals/adding-a-model.md): relu_lm.c against
 * finite differences, in every cut into stages, and through its config.json. */
#include "nn/lab.h"

extern const struct arch arch_relu_lm;

/* An architecture of archs[] is opened by lab_open. */
static void open_relu_lm(struct lab *l, const char *device, int stages)
{
    struct model_config c = {.layers = 2, .width = 16, .heads = 2, .vocab = 29, .positions = 12};
    memset(l, 0, sizeof *l);
    c.init_std = 0.02;
    assert_ok(text_sizes(&c));
    arch_relu_lm.defaults(&c);
    assert_ok(text_check(&c));
    assert_ok(arch_relu_lm.check(&c));
    assert_ok(model_init_as(&l->model, &arch_relu_lm, &c, stages, 8));
    assert_ok(device_open(&l->dev, device, &l->memory, 1));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    const size_t count = table_count(&l->model.table);
    assert_ok(buffer_init(&l->theta, &l->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&l->grad, &l->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    lab_randomize(l, 3, &l->theta);
    table_stages(&l->model.table, l->theta.view, l->theta_stage);
    table_stages(&l->model.table, l->grad.view, l->grad_stage);
}

/* Returns the mean loss at theta + step * d, on the reference device. */
static double loss_beside(struct lab *l, const struct batch *b, const float *d, double step)
{
    float *theta = l->theta.view.data, *gradient;
    const size_t count = l->theta.count;
    float *start = malloc(count * sizeof *start);
    memcpy(start, theta, count * sizeof *start);
    for (size_t j = 0; j < count; j++)
        theta[j] += (float)(step * d[j]);
    const double loss = lab_gradient(l, b, false, &gradient);
    memcpy(theta, start, count * sizeof *start);
    free(gradient);
    free(start);
    return loss;
}

/* One random direction a tensor. Directions have length 1; with h = 1e-3 the truncation and the
 * rounding of fp32 losses, 1e-7 / h, are about 1e-4. relu has a kink: few elements pass it. */
static void equals_differences(void **state)
{
    (void)state;
    const double h = 1e-3;
    struct lab l;
    struct batch b;
    float *none;
    open_relu_lm(&l, "reference", 2);
    tiny_batch(&b, 2, 6, 29, 51, true);
    lab_gradient(&l, &b, false, &none);
    free(none);
    const size_t count = l.grad.count;
    float *d = malloc(count * sizeof *d);
    float *g = lab_read(&l, l.grad.view, count);
    for (int i = 0; i < l.model.table.n; i++) {
        const struct range at = table_range(&l.model.table, i);
        const size_t n = at.end - at.begin;
        struct rng rng = rng_make(61, (uint64_t)i);
        double slope = 0;
        memset(d, 0, count * sizeof *d);
        rng_normal(&rng, d + at.begin, n, 0, (float)(1 / sqrt((double)n)));
        for (size_t j = at.begin; j < at.end; j++)
            slope += (double)g[j] * d[j];
        const double up = loss_beside(&l, &b, d, h), down = loss_beside(&l, &b, d, -h);
        const double difference = (up - down) / (2 * h);
        if (!(fabs(difference - slope) < 3e-4 + 3e-3 * fabs(slope)))
            fail_with("%s: slope %g, by differences %g", l.model.table.entry[i].name, slope,
                      difference);
    }
    free(d);
    free(g);
    batch_free(&b);
    lab_close(&l);
}

/* The same bits in every cut, computed once or twice, and with gradients that are overwritten. */
static void every_cut(void **state)
{
    (void)state;
    struct batch b;
    float *want = NULL;
    tiny_batch(&b, 2, 9, 29, 51, true);
    for (int stages = 1; stages <= 6; stages++)
        for (int twice = 0; twice < 2; twice++) {
            struct lab l;
            struct tape tape;
            float *have;
            open_relu_lm(&l, test_device(), stages);
            lab_gradient(&l, &b, twice, &have);
            if (want)
                lab_assert_bits(have, want, l.model.table.parameters, "another cut");
            assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                                (struct extent){2, 9, DTYPE_F32, false}, twice));
            lab_check_fresh(&l, &tape, &b);
            tape_free(&tape);
            free(want);
            want = have;
            lab_close(&l);
        }
    free(want);
    batch_free(&b);
}

/* config.json holds every size. */
static void config_json(void **state)
{
    (void)state;
    struct lab l;
    struct model_config c = {0};
    open_relu_lm(&l, "cpu", 1);
    json_t *json = arch_relu_lm.to_json(&l.model.config);
    assert_ok(arch_relu_lm.from_json(&c, json));
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.width, 16);
    assert_int_equal(c.heads, 2);
    assert_int_equal(c.mlp_width, 64);
    assert_int_equal(c.positions, 12);
    assert_int_equal(c.vocab, 29);
    assert_true(c.norm_eps == 1e-5);
    json_object_del(json, "hidden_size");
    assert_fails(arch_relu_lm.from_json(&c, json), SOTTO_EFORMAT, "\"hidden_size\" is missing");
    json_decref(json);
    c = l.model.config;
    c.kv_heads = 1;
    assert_fails(arch_relu_lm.check(&c), SOTTO_EINVAL, "kv_heads = 1");
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_differences),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(config_json),
    };
    return run_cases(tests, 1, NULL, NULL);
}

/* Models that are computed from numbers, with state that is not trained. */
#include "nn/lab.h"
#include "nn/mlp.h"

enum { ROWS = 12, CLASSES = 3 };

static void open_mlp(struct lab *l, int stages)
{
    const struct model_config none = {0};
    memset(l, 0, sizeof *l);
    assert_ok(mlp_model(&l->model, &none, NULL, stages, 8));
    assert_ok(device_open(&l->dev, "cpu", &l->memory, 1));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    const size_t count = table_count(&l->model.table);
    assert_ok(buffer_init(&l->theta, &l->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&l->grad, &l->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    tiny_parameters(&l->model, 3, l->theta.view.data);
    table_stages(&l->model.table, l->theta.view, l->theta_stage);
    table_stages(&l->model.table, l->grad.view, l->grad_stage);
}

/* The mean loss and its gradient over a batch; the state moves. */
static double gradient(struct lab *l, const struct batch *b, bool recompute, float *state)
{
    struct tape tape;
    const struct extent most = {ROWS + 3, 1, DTYPE_F32, false};
    lab_zero(l);
    assert_ok(tape_init(&tape, &l->model, &l->dev, &l->pool, most, recompute));
    tape.state = (struct view){state, DTYPE_F32, PLACE_HOST};
    assert_ok(tape_run(&tape, b, TAPE_TRAIN, 1 / (float)b->rows, l->theta_stage, l->grad_stage));
    const struct tape_result r = tape_result(&tape, tape.dev);
    assert_int_equal(r.targets, b->rows);
    tape_free(&tape);
    return r.loss / (double)r.targets;
}

static double *copy_of(const float *x, size_t count)
{
    double *out = malloc(count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        out[i] = x[i];
    return out;
}

static void check_differences(struct lab *l)
{
    struct batch b;
    float running[2 * 64] = {0};
    assert_ok(batch_init_of(&b, &l->model.sample, ROWS, 1));
    mlp_batch(&b, CLASSES, 100);
    model_state_start(&l->model, running);
    gradient(l, &b, false, running);
    double *want = copy_of(l->grad.view.data, l->grad.count);
    float *theta = l->theta.view.data;
    for (size_t i = 0; i < l->theta.count; i += 7) {
        const float kept = theta[i], h = 4e-3f;
        theta[i] = kept + h;
        const double up = gradient(l, &b, false, running);
        theta[i] = kept - h;
        const double down = gradient(l, &b, false, running);
        theta[i] = kept;
        if (fabs((up - down) / (2 * h) - want[i]) > 2e-4)
            fail_with("element %zu: gradient %g, by differences %g", i, want[i],
                      (up - down) / (2 * h));
    }
    free(want);
    batch_free(&b);
}

static void finite_differences(void **state)
{
    (void)state;
    struct lab l;
    open_mlp(&l, 2);
    check_differences(&l);
    lab_close(&l);
}

/* The architecture of dense layers: sizes that the data say, its gradient, and what it refuses. */
static void dense_layers(void **state)
{
    (void)state;
    const struct image_sizes data = {4, 5, 2, CLASSES};
    struct model_config c = {.preset = "mlp"};
    struct option_section section = arch_section(&c, &arch_mlp);
    struct lab l;
    assert_ok(option_set(&section, 1, "mlp.hidden", "11"));
    assert_ok(option_set(&section, 1, "mlp.layers", "3"));
    assert_ok(model_config_resolve(&c));
    assert_true(model_config_is_open(&c));
    assert_ok(model_config_fit(&c, &data));
    assert_false(model_config_is_open(&c));
    lab_open(&l, "cpu", 1, &c, 3);
    assert_int_equal(l.model.table.parameters, 11 * 41 + 2 * 11 * 12 + 2 * 11 + CLASSES * 11);
    check_differences(&l);
    lab_close(&l);
    assert_fails(model_config_fit(&c, &(struct image_sizes){4, 5, 1, CLASSES}), SOTTO_EINVAL,
                 "the images are of 4 x 5 x 1, the model wants 4 x 5 x 2");
    assert_fails(model_config_fit(&c, &(struct image_sizes){4, 5, 2, CLASSES + 1}), SOTTO_EINVAL,
                 "the data have 4 classes, the model has 3");
    assert_ok(model_config_fit(&c, &(struct image_sizes){4, 5, 2, CLASSES - 1}));
    c.layers = 2;
    assert_fails(model_config_resolve(&c), SOTTO_EINVAL, "model.layers has no effect");
}

/* It learns, its running statistics approach those of the data, and an evaluation goes by them.
 * Whatever the cut, and whether forward is run twice: the same bits, the state moved once. */
static void trains(void **unused)
{
    (void)unused;
    float want[2 * 64];
    double want_loss = 0;
    for (int variant = 0; variant < 6; variant++) {
        const int stages = 1 + variant % 3;
        struct lab l;
        struct batch b;
        struct tape tape;
        float running[2 * 64];
        double first = 0, last = 0;
        open_mlp(&l, stages);
        model_state_start(&l.model, running);
        assert_int_equal(table_count(&l.model.state), 20);
        assert_true(running[0] == 0 && running[10] == 1);
        assert_ok(batch_init_of(&b, &l.model.sample, ROWS, 1));
        for (int step = 0; step < 60; step++) {
            b.rows = step % 5 == 4 ? ROWS - 3 : ROWS;
            mlp_batch(&b, CLASSES, (uint64_t)step * ROWS);
            last = gradient(&l, &b, variant >= 3, running);
            first = step ? first : last;
            l.dev.ops->axpy(&l.dev, l.theta.view, -0.3f, l.grad.view, l.theta.count);
        }
        assert_true(last < 0.3 * first);
        assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                            (struct extent){ROWS, 1, DTYPE_F32, false}, false));
        tape.state = (struct view){running, DTYPE_F32, PLACE_HOST};
        tape.want_hits = true;
        float kept[2 * 64];
        memcpy(kept, running, sizeof kept);
        b.rows = ROWS;
        mlp_batch(&b, CLASSES, 1 << 20);
        assert_ok(tape_run(&tape, &b, TAPE_EVALUATE, 0, l.theta_stage, NULL));
        const struct tape_result r = tape_result(&tape, tape.dev);
        assert_true(r.loss / ROWS < 0.5 * first && r.hits >= ROWS - 2);
        assert_memory_equal(kept, running, 20 * sizeof *kept); /* looking moves nothing */
        if (variant == 0) {
            memcpy(want, running, sizeof want);
            want_loss = r.loss;
        }
        assert_memory_equal(want, running, 20 * sizeof *want);
        assert_true(r.loss == want_loss);
        tape_free(&tape);
        batch_free(&b);
        lab_close(&l);
    }
}

static void wrong_samples(void **state)
{
    (void)state;
    struct lab l, text;
    struct tape tape;
    struct batch b, tokens;
    open_mlp(&l, 1);
    lab_open(&text, "cpu", 1, &tiny_configs[0], 1);
    assert_ok(batch_init(&tokens, ROWS, 1));
    assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                        (struct extent){ROWS, 1, DTYPE_F32, false}, false));
    assert_fails(tape_begin(&tape, &tokens, TAPE_TRAIN, 1), SOTTO_EINVAL,
                 "computed from numbers, the batch has tokens");
    assert_ok(batch_init_of(&b, &l.model.sample, ROWS + 1, 1));
    assert_fails(tape_begin(&tape, &b, TAPE_TRAIN, 1), SOTTO_EINVAL, "13 samples with 1 targets");
    b.rows = ROWS;
    b.sample.dims[1] = 6;
    assert_fails(tape_begin(&tape, &b, TAPE_TRAIN, 1), SOTTO_EINVAL, "dimension 1 is 6");
    tape_free(&tape);
    assert_ok(tape_init(&tape, &text.model, &text.dev, &text.pool,
                        (struct extent){ROWS, 1, DTYPE_F32, false}, false));
    assert_fails(tape_begin(&tape, &b, TAPE_TRAIN, 1), SOTTO_EINVAL,
                 "computed from tokens, the batch has numbers");
    tape_free(&tape);
    batch_free(&b);
    batch_free(&tokens);
    lab_close(&l);
    lab_close(&text);
}

/* An architecture's keys are its own: its defaults, its checks, in the section of its name. */
static void own_keys(void **state)
{
    (void)state;
    struct model m;
    const struct model_config none = {0};
    assert_ok(mlp_model(&m, &none, (const char *[]){"hidden=17", "classes=5", NULL}, 3, 1));
    const struct spots_config *c = arch_own(&m.config, &arch_spots);
    assert_int_equal(c->hidden, 17);
    assert_int_equal(c->width, 5);
    assert_int_equal(m.table.parameters, 17 * 40 + 17 + 17 + 17 + 17 + 5 * 17);
    assert_int_equal(m.sample.dims[0] * m.sample.dims[1] * m.sample.dims[2], 40);
    model_free(&m);
    assert_fails(mlp_model(&m, &none, (const char *[]){"hiden=17", NULL}, 1, 1), SOTTO_EINVAL,
                 "hidden");
    assert_fails(mlp_model(&m, &none, (const char *[]){"classes=1", NULL}, 1, 1), SOTTO_EINVAL,
                 "classes");
    assert_fails(mlp_model(&m, &none, NULL, 4, 1), SOTTO_EINVAL, "3 sublayers");
    struct model_config other = {.preset = "gpt2"};
    struct option_section section = arch_section(&other, &arch_spots);
    assert_false(section.used(section.of, section.name));
    assert_ok(model_config_resolve(&other));
    assert_ok(arch_refuse(&other, &arch_spots)); /* nobody has set anything */
    option_defaults(&section, 1);
    assert_ok(arch_refuse(&other, &arch_spots));
    assert_ok(option_set(&section, 1, "spots.hidden", "9"));
    assert_fails(arch_refuse(&other, &arch_spots), SOTTO_EINVAL,
                 "spots.hidden has no effect: the model is gpt2, not spots");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(dense_layers),
        cmocka_unit_test(trains),
        cmocka_unit_test(wrong_samples),
        cmocka_unit_test(own_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

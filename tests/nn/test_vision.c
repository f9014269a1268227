/* ResNet, ViT and dense layers: gradients against differences of the loss, and the same bits
 * however the chain is cut, with forward run once or twice. */
#include "nn/lab.h"

static const struct {
    const char *preset, *keys[6];
    int height, width;
    int layers, pieces; /* of the chain, and when blocks and sublayers are cut inside */
} cases[] = {
    {"resnet8", {"resnet.depths=1,2", "resnet.widths=4,6"}, 6, 7, 5, 8},
    {"resnet18", {"resnet.depths=1,1", "resnet.widths=4,6"}, 18, 16, 4, 6},
    {"resnet50", {"resnet.depths=1,1", "resnet.widths=8,12", "resnet.stem_width=5"}, 16, 19, 4, 8},
    {"mlp", {"mlp.hidden=9", "mlp.layers=3"}, 5, 4, 4, 4},
    {"vit-tiny", {"model.layers=2", "model.width=8", "model.heads=2", "vit.patch=2"}, 6, 4, 6, 8},
};
enum { CASES = sizeof cases / sizeof *cases, ROWS = 5, CLASSES = 3, KEPT = 1024 };

static void set_keys(struct model_config *c, const char *preset, const char *const *keys)
{
    struct option_section sections[MODEL_SECTIONS];
    memset(c, 0, sizeof *c);
    model_sections(c, sections);
    option_defaults(sections, MODEL_SECTIONS);
    strcpy(c->preset, preset);
    for (; *keys; keys++) {
        char name[64];
        const char *value = strchr(*keys, '=');
        snprintf(name, sizeof name, "%.*s", (int)(value - *keys), *keys);
        assert_ok(option_set(sections, MODEL_SECTIONS, name, value + 1));
    }
    assert_ok(model_config_resolve(c));
}

static void open_case_eps(struct lab *l, int which, const char *device, int stages, double eps)
{
    struct model_config c;
    memset(l, 0, sizeof *l);
    set_keys(&c, cases[which].preset, cases[which].keys);
    if (eps > 0)
        c.norm_eps = eps;
    assert_ok(model_config_fit(
        &c, &(struct image_sizes){cases[which].height, cases[which].width, 2, CLASSES}));
    assert_ok(model_init(&l->model, &c, stages, 8));
    assert_ok(device_open(&l->dev, device, &l->memory, 2));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    const size_t count = table_count(&l->model.table);
    assert_ok(buffer_init(&l->theta, &l->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&l->grad, &l->dev, DTYPE_F32, count, MEMORY_GRADIENTS));
    tiny_parameters(&l->model, 3, view_host(l->theta.view));
    table_stages(&l->model.table, l->theta.view, l->theta_stage);
    table_stages(&l->model.table, l->grad.view, l->grad_stage);
}

static void open_case(struct lab *l, int which, const char *device, int stages)
{
    open_case_eps(l, which, device, stages, 0);
}

static void make_images(struct batch *b, const struct model *m)
{
    struct rng rng = rng_make(9, 9);
    assert_ok(batch_init_of(b, &m->sample, ROWS, 1));
    rng_normal(&rng, b->floats, ROWS * sample_count(&m->sample, 1), 0, 1);
    for (int i = 0; i < ROWS; i++)
        b->targets[i] = i % CLASSES;
    b->n_targets = ROWS;
}

/* The mean loss, and its gradient in l->grad; the state moves. */
static double gradient(struct lab *l, const struct batch *b, bool recompute, float *state)
{
    struct tape tape;
    lab_zero(l);
    assert_ok(tape_init(&tape, &l->model, &l->dev, &l->pool,
                        (struct extent){ROWS + 2, 1, DTYPE_F32, false}, recompute));
    if (l->model.state.n) {
        assert_true(table_count(&l->model.state) <= KEPT);
        tape.state = view_of(state, DTYPE_F32);
    }
    assert_ok(tape_run(&tape, b, TAPE_TRAIN, 1 / (float)ROWS, l->theta_stage, l->grad_stage));
    const struct tape_result r = tape_result(&tape, tape.dev);
    tape_free(&tape);
    return r.loss / ROWS;
}

static void start(const struct lab *l, float *state)
{
    memset(state, 0, KEPT * sizeof *state);
    if (l->model.state.n)
        model_state_start(&l->model, state);
}

/* Each tensor along its own gradient: where a relu bends the loss, many elements make up for it. */
static void differences(void **unused)
{
    (void)unused;
    for (int which = 0; which < CASES; which++) {
        struct lab l;
        struct batch b;
        float state[KEPT];
        open_case(&l, which, "reference", 2);
        make_images(&b, &l.model);
        start(&l, state);
        gradient(&l, &b, false, state);
        float *theta = view_host(l.theta.view);
        float *g = lab_read(&l, l.grad.view, l.grad.count);
        float *kept = lab_read(&l, l.theta.view, l.theta.count);
        for (int i = 0; i < l.model.table.n; i++) {
            const struct range in = table_range(&l.model.table, i);
            double norm = 0, loss[2];
            for (size_t j = in.begin; j < in.end; j++)
                norm += (double)g[j] * g[j];
            norm = sqrt(norm);
            if (norm < 1e-3) /* the key's bias: it has none */
                continue;
            const double h = 4e-4;
            for (int side = 0; side < 2; side++) {
                for (size_t j = in.begin; j < in.end; j++)
                    theta[j] = (float)(kept[j] + (side ? -h : h) * g[j] / norm);
                loss[side] = gradient(&l, &b, false, state);
            }
            memcpy(theta, kept, l.theta.count * sizeof *theta);
            const double have = (loss[0] - loss[1]) / (2 * h);
            if (!(fabs(have - norm) < 0.02 * norm + 2e-3))
                fail_with("%s: %s has a gradient of %g, by differences %g", cases[which].preset,
                          l.model.table.entry[i].name, norm, have);
        }
        free(g);
        free(kept);
        batch_free(&b);
        lab_close(&l);
    }
}

/* Also where stages end inside of blocks, which is where there are more of them than layers. */
static void same_bits(void **unused)
{
    (void)unused;
    for (int which = 0; which < CASES; which++) {
        float *want = NULL, first[KEPT];
        double want_loss = 0;
        for (int variant = 0; variant < 2 * cases[which].pieces; variant++) {
            struct lab l;
            struct batch b;
            float state[KEPT];
            const int stages = 1 + variant / 2, layers = cases[which].layers;
            open_case(&l, which, "cpu", stages);
            assert_true(stages <= layers ? l.model.n_layer == layers : l.model.n_layer >= stages);
            make_images(&b, &l.model);
            start(&l, state);
            gradient(&l, &b, variant % 2, state);
            const double loss = gradient(&l, &b, variant % 2, state);
            float *have = lab_tensors(&l, l.grad.view);
            if (!want) {
                want = have;
                want_loss = loss;
                memcpy(first, state, sizeof first);
            } else {
                lab_assert_bits(have, want, l.model.table.parameters, cases[which].preset);
                assert_true(loss == want_loss);
                assert_memory_equal(first, state, sizeof first);
                free(have);
            }
            batch_free(&b);
            lab_close(&l);
        }
        free(want);
    }
}

/* Also inside of blocks and sublayers: what a stage does not write there is still zeros before. */
static void fresh_gradients(void **unused)
{
    (void)unused;
    for (int which = 0; which < CASES; which++)
        for (int stages = 1; stages <= cases[which].pieces; stages++) {
            struct lab l;
            struct batch b;
            struct tape tape;
            float state[KEPT];
            open_case(&l, which, "cpu", stages);
            make_images(&b, &l.model);
            start(&l, state);
            for (int i = 0; i < l.model.table.n; i++) /* projections, not kernels */
                assert_int_equal(l.model.table.entry[i].written, l.model.table.entry[i].ndim == 2);
            assert_ok(tape_init(&tape, &l.model, &l.dev, &l.pool,
                                (struct extent){ROWS + 2, 1, DTYPE_F32, false}, stages % 2));
            if (l.model.state.n)
                tape.state = view_of(state, DTYPE_F32);
            lab_check_fresh(&l, &tape, &b);
            tape_free(&tape);
            batch_free(&b);
            lab_close(&l);
        }
}

/* As their authors and transformers count them. */
static void published_sizes(void **unused)
{
    (void)unused;
    static const struct {
        const char *preset;
        size_t parameters;
        double products; /* of numbers, in forward */
    } want[] = {{"resnet18", 11689512, 1814073344},
                {"resnet50", 25557032, 4089184256},
                {"vit-b/16", 86567656, 17563828224}};
    for (int i = 0; i < 3; i++) {
        struct model_config c = {0};
        struct model m;
        strcpy(c.preset, want[i].preset);
        assert_ok(model_config_resolve(&c));
        assert_ok(model_config_fit(&c, &(struct image_sizes){224, 224, 3, 1000}));
        assert_ok(model_init(&m, &c, 1, 1));
        assert_int_equal(m.table.parameters, want[i].parameters);
        const double flops = model_stage_flops(&m, 0, model_extent(&m, 1, 1, DTYPE_F32));
        if (flops != 2 * want[i].products)
            fail_with("%s: %.0f products, not %.0f", want[i].preset, flops / 2, want[i].products);
        model_free(&m);
    }
}

/* A stem is as wide as the first blocks, or as what bottlenecks make narrow. */
static void stems(void **unused)
{
    (void)unused;
    static const struct {
        const char *preset, *keys[5];
        int width;
    } nets[] = {
        {"", {"model.arch=resnet"}, 64},
        {"", {"model.arch=resnet", "resnet.block=bottleneck"}, 64},
        {"", {"model.arch=resnet", "resnet.depths=1,2", "resnet.widths=12,24"}, 12},
        {"",
         {"model.arch=resnet", "resnet.block=bottleneck", "resnet.depths=1,2",
          "resnet.widths=32,64"},
         8},
        {"resnet50", {"resnet.depths=1,1", "resnet.widths=8,12"}, 64},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct model_config c;
        struct model m;
        set_keys(&c, nets[i].preset, nets[i].keys);
        assert_ok(model_config_fit(&c, &(struct image_sizes){32, 32, 3, 10}));
        assert_ok(model_init(&m, &c, 1, 1));
        if (m.table.entry[0].shape[0] != nets[i].width)
            fail_with("case %zu: %s has %d channels", i, m.table.entry[0].name,
                      (int)m.table.entry[0].shape[0]);
        model_free(&m);
    }
}

/* The same function: a residual path that is scaled by 1/8 and norms whose eps is scaled by 1/64,
 * to the bit. */
static void eps_of_norms(void **unused)
{
    (void)unused;
    double loss[2];
    for (int scaled = 0; scaled < 2; scaled++) {
        struct lab l;
        struct batch b;
        open_case_eps(&l, CASES - 1, "reference", 1 + scaled, scaled ? 0.25 / 64 : 0.25);
        make_images(&b, &l.model);
        float *theta = view_host(l.theta.view);
        for (int i = 0; i < l.model.table.n; i++) {
            const struct range in = table_range(&l.model.table, i);
            const char *name = l.model.table.entry[i].name;
            const bool adds = strstr(name, "embeddings.") || strstr(name, "output.dense.");
            for (size_t j = in.begin; j < in.end && adds && scaled; j++)
                theta[j] /= 8;
        }
        loss[scaled] = gradient(&l, &b, false, NULL);
        batch_free(&b);
        lab_close(&l);
    }
    assert_true(loss[0] == loss[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences),     cmocka_unit_test(same_bits),
        cmocka_unit_test(fresh_gradients), cmocka_unit_test(published_sizes),
        cmocka_unit_test(stems),           cmocka_unit_test(eps_of_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

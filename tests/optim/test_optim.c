/* Optimizers over a flat vector: step and peek, decay by segment, mixed precision, schedules. */
#include "base/scratch.h"

#include <math.h>

#include "base/rng.h"
#include "optim/optim.h"
#include "tensor/shares.h"
#include "tensor/ops.h"

static const char *const devices[] = {"cpu", "reference"};

static struct optim_config defaults(int kind)
{
    struct optim_config c;
    optim_defaults(&c);
    c.kind = kind;
    return c;
}

static const struct { /* adamw, sgd, momentum, nesterov */
    int kind;
    double momentum;
    bool nesterov;
} methods[] = {{OPTIM_ADAMW, 0, false},
               {OPTIM_SGD, 0, false},
               {OPTIM_SGD, 0.9, false},
               {OPTIM_SGD, 0.9, true}};
enum { METHODS = 4 };

static struct optim_config config_of(int method)
{
    struct optim_config c = defaults(methods[method].kind);
    c.momentum = methods[method].momentum;
    c.nesterov = methods[method].nesterov;
    return c;
}

/* A matrix, a vector and a matrix in two stages padded to 4: 33 + 13 -> 48, 50 -> 52. */
static void make_table(struct table *table)
{
    static const int64_t shapes[][TABLE_DIMS] = {{11, 3}, {13}, {10, 5}};
    static const char *const names[] = {"w", "b", "u"};
    *table = (struct table){0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(table_add(table, names[i], shapes[i], TABLE_NORMAL, 1), i);
        table->entry[i].stage = i / 2;
    }
    assert_ok(table_layout(table, 2, 4));
    assert_int_equal(table_count(table), 100);
}

enum { COUNT = 100 };

static bool is_vector(int i)
{
    return i >= 33 && i < 46;
}

static bool is_padding(int i)
{
    return (i >= 46 && i < 48) || i >= 98;
}

static void draw(uint64_t stream, float *out)
{
    struct rng rng = rng_make(1, stream);
    rng_normal(&rng, out, COUNT, 0, 1);
}

struct bench {
    struct memory memory;
    struct device dev;
    struct table table;
    struct optim_config config;
    struct optim optim;
    float x[COUNT], g[COUNT];
};

static void bench_open(struct bench *b, const char *device, const struct optim_config *config)
{
    memset(b, 0, sizeof *b);
    b->config = *config;
    assert_ok(device_open(&b->dev, device, &b->memory, 1));
    make_table(&b->table);
    assert_ok(optim_init(&b->optim, &b->config, &b->dev, &b->table, NULL, MEMORY_OPTIMIZER));
    draw(1, b->x);
}

static void bench_close(struct bench *b)
{
    optim_free(&b->optim);
    table_free(&b->table);
    device_close(&b->dev);
    assert_int_equal(b->memory.total, 0);
}

static struct view f32(float *x)
{
    return view_of(x, DTYPE_F32);
}

/* One element by the books, in double. */
struct truth {
    double x, m, v;
};

static void step_truth(struct truth *e, const struct optim_config *c, double g, bool decay,
                       double lr, int t)
{
    const double wd = decay ? c->weight_decay : 0;
    if (c->kind == OPTIM_ADAMW) {
        e->m = c->beta1 * e->m + (1 - c->beta1) * g;
        e->v = c->beta2 * e->v + (1 - c->beta2) * g * g;
        double mhat = e->m / (1 - pow(c->beta1, t + 1)), vhat = e->v / (1 - pow(c->beta2, t + 1));
        e->x -= lr * (mhat / (sqrt(vhat) + c->eps) + wd * e->x);
        return;
    }
    g += wd * e->x;
    if (c->momentum > 0) {
        e->m = t == 0 ? g : c->momentum * e->m + g;
        g = c->nesterov ? g + c->momentum * e->m : e->m;
    }
    e->x -= lr * g;
}

/* Twelve steps of every method with a changing rate and scale follow the formula; decay acts where
 * the table says and nowhere else; padding does not move. */
static void formula(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (int method = 0; method < METHODS; method++) {
            for (int decay = DECAY_MATRICES; decay <= DECAY_ALL; decay++) {
                struct optim_config c = config_of(method);
                c.decay = decay;
                c.weight_decay = 0.3;
                struct bench b;
                bench_open(&b, devices[d], &c);
                struct truth truth[COUNT] = {{0}};
                for (int i = 0; i < COUNT; i++) {
                    if (is_padding(i))
                        b.x[i] = 0;
                    truth[i].x = b.x[i];
                }
                for (int t = 0; t < 12; t++) {
                    double lr = 0.01 * (1 + t % 3), scale = 1.0 / (1 + t % 4);
                    draw(10 + (uint64_t)t, b.g);
                    for (int i = 0; i < COUNT; i++) {
                        if (is_padding(i))
                            b.g[i] = 0;
                        step_truth(&truth[i], &c, b.g[i] * scale,
                                   decay == DECAY_ALL || !is_vector(i), lr, t);
                    }
                    optim_step(&b.optim, f32(b.x), view_none, f32(b.g), lr, scale);
                    assert_ok(device_check(&b.dev));
                    for (int i = 0; i < COUNT; i++)
                        if (!(fabs(b.x[i] - truth[i].x) < 1e-5)) /* a dozen fp32 steps around 1 */
                            fail_with("%s, method %d, step %d: x[%d] = %.9g, want %.9g", devices[d],
                                      method, t, i, b.x[i], truth[i].x);
                }
                for (int i = 0; i < COUNT; i++)
                    assert_true(!is_padding(i) || b.x[i] == 0);
                assert_int_equal(b.optim.t, 12);
                bench_close(&b);
            }
        }
    }
}

static void state_bytes_of(const struct bench *b, unsigned char *out)
{
    memset(out, 0, 4 * sizeof b->x);
    memcpy(out, b->x, sizeof b->x);
    for (int i = 0; i < 2; i++)
        if (b->optim.state[i].dev)
            memcpy(out + (1 + i) * (int)sizeof b->x, b->optim.state[i].view.data, sizeof b->x);
    memcpy(out + 3 * sizeof b->x, &b->optim.t, sizeof b->optim.t);
}

/* A peek writes the very bits of the step that would follow and moves neither parameters nor state,
 * at the first step and later, into fp32 and bf16. */
static void peek_is_a_step_not_made(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (int method = 0; method < METHODS; method++) {
            struct optim_config c = config_of(method);
            struct bench b;
            bench_open(&b, devices[d], &c);
            for (int t = 0; t < 4; t++) {
                static unsigned char before[4 * sizeof b.x], after[4 * sizeof b.x];
                float ahead[COUNT], again[COUNT];
                uint16_t half[COUNT];
                double scale = 1.0 / (t + 1);
                draw(20 + (uint64_t)t, b.g);
                state_bytes_of(&b, before);
                optim_peek(&b.optim, f32(b.x), f32(ahead), f32(b.g), 0.02, scale);
                optim_peek(&b.optim, f32(b.x), view_of(half, DTYPE_BF16), f32(b.g), 0.02, scale);
                optim_peek(&b.optim, f32(b.x), f32(again), f32(b.g), 0.02, scale);
                assert_ok(device_check(&b.dev));
                state_bytes_of(&b, after);
                assert_memory_equal(before, after, sizeof before);
                optim_step(&b.optim, f32(b.x), view_none, f32(b.g), 0.02, scale);
                assert_memory_equal(ahead, b.x, sizeof b.x);
                assert_memory_equal(again, b.x, sizeof b.x);
                for (int i = 0; i < COUNT; i++)
                    assert_int_equal(half[i], bf16_round(b.x[i]));
                state_bytes_of(&b, after);
                assert_true(memcmp(before, after, sizeof before) != 0);
            }
            bench_close(&b);
        }
    }
}

/* Moments that no gradient feeds any more do not end among denormal numbers, which are slow; until
 * then they follow the formula, and so do parameters, also where nothing but the root of the second
 * divides the first. */
static void moments_fade(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * METHODS; i++) {
        const int method = i % METHODS;
        struct optim_config c = config_of(method);
        c.weight_decay = 0;
        c.eps = i < METHODS ? c.eps : 0;
        struct bench b;
        bench_open(&b, "cpu", &c);
        struct truth truth[COUNT] = {{0}};
        for (int e = 0; e < COUNT; e++)
            truth[e].x = b.x[e];
        draw(50, b.g);
        for (int t = 0; t < 2000; t++) {
            for (int e = 0; e < COUNT; e++)
                step_truth(&truth[e], &c, b.g[e], false, 0.01, t);
            optim_step(&b.optim, f32(b.x), view_none, f32(b.g), 0.01, 1);
            memset(b.g, 0, sizeof b.g);
            for (int k = 0; k < 2 && b.optim.state[k].dev; k++) {
                const float *moment = b.optim.state[k].view.data;
                for (int e = 0; e < COUNT; e++) {
                    const double want = k ? truth[e].v : truth[e].m;
                    assert_true(fabs(moment[e] - want) <= 1e-3 * fabs(want) + 1e-30);
                    assert_true(fpclassify(moment[e]) != FP_SUBNORMAL);
                }
            }
        }
        for (int e = 0; e < COUNT; e++) {
            assert_true(!b.optim.state[0].dev ||
                        ((const float *)b.optim.state[0].view.data)[e] == 0);
            assert_true(fabs(b.x[e] - truth[e].x) < 1e-5);
        }
        bench_close(&b);
    }
}

/* With a bf16 copy beside it x moves as without, and the copy is its rounding; a bf16 gradient is
 * widened exactly. */
static void mixed_precision(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++) {
        struct optim_config c = config_of(method);
        struct bench plain, mixed;
        bench_open(&plain, "cpu", &c);
        bench_open(&mixed, "cpu", &c);
        for (int t = 0; t < 6; t++) {
            uint16_t theta[COUNT], half[COUNT];
            draw(30 + (uint64_t)t, plain.g);
            for (int i = 0; i < COUNT; i++) {
                half[i] = bf16_round(plain.g[i]);
                plain.g[i] = bf16_widen(half[i]);
            }
            optim_step(&plain.optim, f32(plain.x), view_none, f32(plain.g), 0.05, 0.5);
            optim_step(&mixed.optim, f32(mixed.x), view_of(theta, DTYPE_BF16),
                       view_of(half, DTYPE_BF16), 0.05, 0.5);
            assert_memory_equal(plain.x, mixed.x, sizeof plain.x);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(theta[i], bf16_round(mixed.x[i]));
        }
        bench_close(&plain);
        bench_close(&mixed);
    }
}

/* own <- what of `whole` is owned. */
static void take(const struct owned *owned, float *own, const float *whole)
{
    for (struct piece p = {0}; owned_next(owned, (struct range){0, COUNT}, &p);)
        memcpy(own + p.own, whole + p.whole, p.count * sizeof *own);
}

/* Workers that each own some ranges make together the bits of one that owns all. */
static void ranges(void **state)
{
    (void)state;
    owned_rule *const rules[] = {owned_slices, own_stage, own_runs};
    for (int method = 0; method < METHODS; method++) {
        for (int which = 0; which < 6; which++) {
            const int of = which % 2 ? 4 : 2;
            struct optim_config c = config_of(method);
            struct bench whole;
            struct owned owned[4] = {0};
            struct optim part[4];
            float x[4][COUNT], g[COUNT];
            bench_open(&whole, "cpu", &c);
            for (int p = 0; p < of; p++) {
                assert_ok(rules[which / 2](&owned[p], &whole.table, p, of));
                assert_ok(optim_init(&part[p], &whole.config, &whole.dev, &whole.table, &owned[p],
                                     MEMORY_OPTIMIZER));
                assert_int_equal(part[p].count, owned[p].count);
                take(&owned[p], x[p], whole.x);
            }
            for (int t = 0; t < 3; t++) {
                draw(40 + (uint64_t)t, whole.g);
                optim_step(&whole.optim, f32(whole.x), view_none, f32(whole.g), 0.1, 1);
                for (int p = 0; p < of; p++) {
                    take(&owned[p], g, whole.g);
                    optim_step(&part[p], f32(x[p]), view_none, f32(g), 0.1, 1);
                }
            }
            for (int p = 0; p < of; p++) {
                take(&owned[p], g, whole.x);
                assert_memory_equal(x[p], g, owned[p].count * sizeof(float));
                optim_free(&part[p]);
                owned_free(&owned[p]);
            }
            bench_close(&whole);
        }
    }
}

/* State costs what it must: two vectors for AdamW, one for momentum, none for plain SGD. */
static void memory_of_state(void **state)
{
    (void)state;
    static const size_t vectors[METHODS] = {2, 0, 1, 1};
    for (int method = 0; method < METHODS; method++) {
        struct optim_config c = config_of(method);
        struct bench b;
        bench_open(&b, "cpu", &c);
        assert_int_equal(b.memory.now[MEMORY_OPTIMIZER], vectors[method] * sizeof b.x);
        bench_close(&b);
    }
    struct optim_config c = config_of(3);
    c.momentum = 0;
    assert_fails(optim_check(&c, NULL), SOTTO_EINVAL, "optim.momentum > 0");
}

/* What has no effect is refused; what a base of several runs holds for others is forgotten. */
static void without_effect(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"momentum", "0.9", "optim.momentum = 0.9 has no effect with kind = adamw; it is for sgd"},
        {"step_every", "7",
         "optim.step_every = 7 has no effect with schedule = cosine; it is for "
         "step"},
        {"cycle_floor", "0", "it is for cyclic"},
        {"wsd_decay", "0.1", "it is for wsd"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct optim_config c, base;
        const struct option_section s = optim_section(&c);
        optim_defaults(&c);
        base = c;
        assert_ok(optim_check(&c, NULL));
        assert_ok(option_set(&s, 1, bad[i].key, bad[i].value));
        assert_fails(optim_check(&c, NULL), SOTTO_EINVAL, bad[i].says);
        optim_set_aside(&c, &base); /* its own: it stays */
        assert_fails(optim_check(&c, NULL), SOTTO_EINVAL, bad[i].says);
        base = c;
        optim_set_aside(&c, &base);
        assert_ok(optim_check(&c, NULL));
        assert_ok(option_set(&s, 1, "lr", "5"));
        base = c;
        optim_set_aside(&c, &base);
        assert_true(c.lr == 5);
    }
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_with("learning rate %.17g, want %.17g", have, want);
}

/* Schedules at their corners: warm-up, start, middle, end, beyond it, and runs of no rounds. */
static void schedules(void **state)
{
    (void)state;
    struct optim_config c = defaults(OPTIM_ADAMW);
    c.lr = 2;
    c.schedule = SCHEDULE_CONSTANT;
    near(optim_lr(&c, 0, 10), 2);
    near(optim_lr(&c, 1000, 10), 2);
    near(optim_lr(&c, 0, 0), 2);
    c.warmup = 4; /* 1/4, 2/4, 3/4, 4/4 of it, then the schedule */
    for (int kind = SCHEDULE_CONSTANT; kind <= SCHEDULE_CYCLIC; kind++) {
        c.schedule = kind;
        for (int t = 0; t < 4; t++)
            near(optim_lr(&c, t, 20), 2 * (t + 1) / 4.0);
    }

    c.schedule = SCHEDULE_COSINE;
    c.final = 0.1;
    near(optim_lr(&c, 4, 20), 2);
    near(optim_lr(&c, 12, 20), 2 * 0.55); /* half way */
    near(optim_lr(&c, 8, 20), 2 * (0.1 + 0.9 * 0.5 * (1 + sqrt(0.5))));
    near(optim_lr(&c, 20, 20), 0.2);
    near(optim_lr(&c, 21, 20), 0.2);
    near(optim_lr(&c, 1000000, 20), 0.2);
    near(optim_lr(&c, 0, 0), 0.5); /* still warming up */
    near(optim_lr(&c, 4, 4), 0.2);
    near(optim_lr(&c, 5, 3), 0.2); /* warm-up longer than the run */
    c.warmup = 0;
    near(optim_lr(&c, 0, 0), 0.2);
    near(optim_lr(&c, 0, 20), 2);
    for (int t = 0; t < 20; t++)
        assert_true(optim_lr(&c, t + 1, 20) < optim_lr(&c, t, 20));

    c.schedule = SCHEDULE_LINEAR;
    c.warmup = 4;
    for (int t = 4; t <= 20; t++)
        near(optim_lr(&c, t, 20), 2 * (1 - 0.9 * (t - 4) / 16.0));
    near(optim_lr(&c, 1000, 20), 0.2);
    near(optim_lr(&c, 4, 4), 0.2);
    near(optim_lr(&c, 5, 3), 0.2);
    c.warmup = 0;
    c.final = 0;
    near(optim_lr(&c, 0, 8), 2);
    near(optim_lr(&c, 7, 8), 0.25);
    near(optim_lr(&c, 0, 0), 0);

    c.schedule = SCHEDULE_WSD; /* up, level, down in the last quarter */
    c.warmup = 4;
    c.final = 0.1;
    c.wsd_decay = 0.25;
    for (int t = 4; t <= 15; t++)
        near(optim_lr(&c, t, 20), 2);
    for (int t = 15; t <= 20; t++)
        near(optim_lr(&c, t, 20), 2 * (0.1 + 0.9 * (20 - t) / 5.0));
    near(optim_lr(&c, 21, 20), 0.2);
    c.wsd_decay = 0.1; /* of 15 rounds: one and a half */
    near(optim_lr(&c, 13, 15), 2);
    near(optim_lr(&c, 14, 15), 2 * (0.1 + 0.9 / 1.5));
    c.wsd_decay = 1; /* no more than warm-up leaves: linear */
    near(optim_lr(&c, 4, 20), 2);
    near(optim_lr(&c, 12, 20), 2 * 0.55);
    c.wsd_decay = 0;
    near(optim_lr(&c, 19, 20), 2);
    c.warmup = 0;

    c.schedule = SCHEDULE_STEP;
    c.step_every = 3;
    c.step_factor = 0.5;
    c.warmup = 2;
    for (int t = 2; t < 14; t++)
        near(optim_lr(&c, t, 5), 2 * pow(0.5, (t - 2) / 3));

    c.schedule = SCHEDULE_CYCLIC; /* triangular2: floor, peak, floor, half the peak, ... */
    c.warmup = 0;
    c.cycle_rounds = 10;
    c.cycle_floor = 0.25;
    near(optim_lr(&c, 0, 100), 0.5);
    near(optim_lr(&c, 5, 100), 2);
    near(optim_lr(&c, 10, 100), 0.5);
    near(optim_lr(&c, 15, 100), 2 * (0.25 + 0.75 * 0.5));
    near(optim_lr(&c, 25, 100), 2 * (0.25 + 0.75 * 0.25));
    near(optim_lr(&c, 2, 100), 2 * (0.25 + 0.75 * 0.4));
    near(optim_lr(&c, 8, 100), optim_lr(&c, 2, 100));
}

/* The factor brings the norm to the limit, never raises it, and is 1 when clipping is off. */
static void clip(void **state)
{
    (void)state;
    struct optim_config c = defaults(OPTIM_SGD);
    near(optim_clip(&c, 1e20), 1);
    c.clip = 2;
    near(optim_clip(&c, 16), 0.5);
    near(optim_clip(&c, 4), 1);
    near(optim_clip(&c, 1), 1);
    near(optim_clip(&c, 0), 1);
    near(optim_clip(&c, 1e12) * 1e6, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula),        cmocka_unit_test(peek_is_a_step_not_made),
        cmocka_unit_test(moments_fade),   cmocka_unit_test(mixed_precision),
        cmocka_unit_test(ranges),         cmocka_unit_test(memory_of_state),
        cmocka_unit_test(without_effect), cmocka_unit_test(schedules),
        cmocka_unit_test(clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

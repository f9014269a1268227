/* Work over vectors takes time: what a round of each method reads and writes, to the byte. */
#include "base/scratch.h"

#include <math.h>

#include "strategy/names.h"
#include "train/null_oracle.h"

enum { WORKERS = 4, STAGES = 3, ROUNDS = 3, PARAMETERS = 4 * 3 * 50000 };

struct case_ {
    const char *preset;
    int precision, grads;
    double seconds; /* of a micro-batch */
    double clip;
    double bytes; /* of all rounds, times the parameters */
    double end[WORKERS], update[WORKERS];
    struct table table;
    struct strategy_config config;
    struct optim_config optim;
    int32_t history[2 * ROUNDS];
    int64_t computed; /* times beside the lane */
};

static enum sotto_status rounds(struct worker *w, struct case_ *c, struct strategy *s)
{
    struct round round;
    for (int t = 0; t < ROUNDS; t++)
        TRY(s->ops->round(s, &(struct plan){.lr = 1e-3, .next_lr = 1e-3}, &round));
    c->end[w->rank] = clock_now(w->clock);
    if (s->ops->history && w->rank == 0) {
        const int32_t *counts = s->ops->history(s, &c->computed);
        memcpy(c->history, counts, (size_t)c->computed * sizeof *counts);
    }
    return SOTTO_OK;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct case_ *c = arg;
    struct memory memory = {0};
    struct device dev;
    struct null_oracle oracle;
    struct mesh mesh;
    struct strategy *s;
    const struct null_config micro_batch = {c->seconds, 100, 0};
    TRY(device_open(&dev, "null", &memory, 1));
    TRY(null_oracle_init(&oracle, &c->table, w, &dev, &micro_batch));
    TRY(mesh_open(&mesh, w, c->config.groups, &dev));
    const struct strategy_setup setup = {&c->config, &c->optim, &oracle.base, &dev, &mesh};
    enum sotto_status st = strategy_open(&s, &setup);
    if (st == SOTTO_OK) {
        st = rounds(w, c, s);
        if (st != SOTTO_OK)
            mesh_abort(&mesh, st);
        const struct mesh_account a = mesh_account_own(&mesh);
        c->update[w->rank] = a.update;
        s->ops->free(s);
    }
    mesh_close(&mesh);
    null_oracle_free(&oracle);
    device_close(&dev);
    return st;
}

static void run(struct case_ *c, double memory)
{
    strategy_defaults(&c->config);
    optim_defaults(&c->optim);
    strcpy(c->config.preset, c->preset);
    c->config.precision = c->precision;
    c->config.grads = c->grads;
    for (int i = REPLICATE_LOCAL; i <= REPLICATE_DILOCO; i++) {
        set_own(&c->config, replicate_name(i), "tau", "1");
        set_own(&c->config, replicate_name(i), "H", "1");
    }
    strategy_set_aside(&c->config, &c->config);
    c->optim.clip = c->clip;
    assert_ok(strategy_resolve(&c->config, WORKERS));
    assert_ok(null_table(&c->table, PARAMETERS, STAGES, WORKERS));
    assert_int_equal(table_count(&c->table), PARAMETERS);
    const struct engine_config engine = {.workers = WORKERS, .memory = memory};
    assert_ok(engine_virtual(&engine, work, c));
    table_free(&c->table);
}

/* Bytes a parameter: fill g, step (x, m, v twice, g, a copy) and what the method adds. A worker of
 * zero1 and fsdp steps a quarter. */
static struct case_ cases[] = {
    {.preset = "ddp", .bytes = ROUNDS * (4 + 28)},
    {.preset = "ddp", .clip = 1, .bytes = ROUNDS * (4 + 28 + 4)}, /* the norm */
    {.preset = "ddp",
     .precision = PRECISION_MIXED,
     .grads = GRADS_BF16,
     .bytes = ROUNDS * (2 + 28)},
    {.preset = "ddp", /* narrowed before and widened behind the sum */
     .precision = PRECISION_MIXED,
     .grads = GRADS_FP32,
     .bytes = ROUNDS * (4 + 30 + 2 * 6)},
    {.preset = "zero1", .bytes = ROUNDS * (4 + 32 / 4)},
    {.preset = "fsdp", .bytes = ROUNDS * (4 / 4 + 4 + 12 / 4 + 28 / 4)}, /* stages' g, added up */
    {.preset = "local-sgd", .bytes = ROUNDS * (32 + 8)},
    {.preset = "slowmo", .bytes = ROUNDS * (32 + 8 + 8 + 3 * 12 + 8)},
    {.preset = "overlap-local-sgd",
     .bytes = ROUNDS * (32 + 8 + 12 + 8 + 2 * 12 + 8 + 12) + (ROUNDS - 1) * (8 + 8)},
    {.preset = "co2", /* d from the second round on */
     .bytes = ROUNDS * (32 + 8 * 4 + 8) + (ROUNDS - 1) * (8 + 12 + 4)},
    {.preset = "diloco", .bytes = ROUNDS * (32 + 8 + 12 + 8 + 4 + 16 + 8)},
};

static void bytes_of_methods(void **state)
{
    (void)state;
    const double memory = 1e9;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct case_ *c = &cases[i];
        run(c, memory);
        const double want = c->bytes * PARAMETERS / memory;
        for (int r = 0; r < WORKERS; r++) {
            if (!(fabs(c->end[r] - want) < 1e-9 * want))
                fail_with("%s %d: worker %d moves %.9g bytes a parameter, not %.9g", c->preset,
                          (int)i, r, c->end[r] * memory / PARAMETERS, c->bytes);
            if (!(fabs(c->update[r] - want) < 1e-9 * want))
                fail_with("%s %d: worker %d counts %.9g s, not %.9g", c->preset, (int)i, r,
                          c->update[r], want);
        }
        run(c, 0); /* as fast as can be */
        assert_true(c->end[0] == 0);
    }
}

/* In a lane it takes time beside the computations, which go on: acco's peek (a quarter of x, m, v,
 * g and the copy) hides behind two micro-batches, its step (x, m, v twice) behind three. */
static void lanes_take_time(void **state)
{
    (void)state;
    struct case_ c = {.preset = "acco", .seconds = 1};
    run(&c, (12 + 4 + 4) * PARAMETERS / 4 / 1.6);
    assert_int_equal(c.computed, 2 * ROUNDS);
    for (int t = 0; t < ROUNDS; t++) {
        assert_int_equal(c.history[2 * t], 2);
        assert_int_equal(c.history[2 * t + 1], 3); /* 1.6 * 32 / 20 = 2.56 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_methods),
        cmocka_unit_test(lanes_take_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

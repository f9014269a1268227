/* Work over vectors takes time: what a round of each method reads and writes, to the byte. */
#include "train/oracle/null_lab.h"

#include <math.h>

enum { WORKERS = 4, STAGES = 3, ROUNDS = NULL_ROUNDS, PARAMETERS = 4 * 3 * 50000 };

struct case_ {
    struct null_lab lab;
    const char *preset;
    int precision, grads;
    double clip;
    double bytes; /* of all rounds, times the parameters */
};

static void run(struct case_ *c, double memory)
{
    struct null_lab *lab = &c->lab;
    null_lab_defaults(lab);
    strcpy(lab->config.preset, c->preset);
    lab->config.precision = c->precision;
    lab->config.grads = c->grads;
    for (int i = REPLICATE_LOCAL; i <= REPLICATE_DILOCO; i++) {
        set_own(&lab->config, replicate_name(i), "tau", "1");
        set_own(&lab->config, replicate_name(i), "H", "1");
    }
    strategy_set_aside(&lab->config, &lab->config);
    lab->optim.clip = c->clip;
    assert_ok(strategy_resolve(&lab->config, WORKERS));
    assert_ok(null_table(&lab->table, PARAMETERS, STAGES, WORKERS));
    assert_int_equal(table_count(&lab->table), PARAMETERS);
    const struct engine_config engine = {.workers = WORKERS, .memory = memory};
    assert_ok(engine_virtual(&engine, null_lab_work, lab));
    table_free(&lab->table);
}

/* Bytes a parameter: step (x, m, v twice, g, a copy) and what the method adds; g is written as it
 * is computed. A worker of zero1 and fsdp steps a quarter. */
static struct case_ cases[] = {
    {.preset = "ddp", .bytes = ROUNDS * 28},
    {.preset = "ddp", .clip = 1, .bytes = ROUNDS * (28 + 4)}, /* the norm */
    {.preset = "ddp", .precision = PRECISION_MIXED, .grads = GRADS_BF16, .bytes = ROUNDS * 28},
    {.preset = "ddp", /* narrowed before and widened after the sum */
     .precision = PRECISION_MIXED,
     .grads = GRADS_FP32,
     .bytes = ROUNDS * (30 + 2 * 6)},
    {.preset = "zero1", .bytes = ROUNDS * 32 / 4},
    {.preset = "fsdp", .bytes = ROUNDS * (4 + 12 + 28) / 4}, /* stages' g, added up */
    {.preset = "local-sgd", .bytes = ROUNDS * (28 + 8)},
    {.preset = "slowmo", .bytes = ROUNDS * (28 + 8 + 8 + 3 * 12 + 8)},
    {.preset = "overlap-local-sgd",
     .bytes = ROUNDS * (28 + 8 + 12 + 8 + 2 * 12 + 8 + 12) + (ROUNDS - 1) * (8 + 8)},
    {.preset = "co2", /* d from the second round on */
     .bytes = ROUNDS * (28 + 8 * 4 + 8) + (ROUNDS - 1) * (8 + 12 + 4)},
    {.preset = "diloco", .bytes = ROUNDS * (28 + 8 + 12 + 8 + 4 + 16 + 8)},
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
            if (!(fabs(c->lab.end[r] - want) < 1e-9 * want))
                fail_with("%s %d: worker %d moves %.9g bytes a parameter, not %.9g", c->preset,
                          (int)i, r, c->lab.end[r] * memory / PARAMETERS, c->bytes);
            if (!(fabs(c->lab.account[r].update - want) < 1e-9 * want))
                fail_with("%s %d: worker %d counts %.9g s, not %.9g", c->preset, (int)i, r,
                          c->lab.account[r].update, want);
        }
        run(c, 0); /* as fast as can be */
        assert_true(c->lab.end[0] == 0);
    }
}

/* Work in a lane takes time in parallel with the computing: acco's peek (a quarter of x, m, v, g
 * and the copy) is hidden by two micro-batches, its step (x, m, v twice) by three. */
static void lanes_take_time(void **state)
{
    (void)state;
    struct case_ c = {.preset = "acco", .lab.seconds = 1};
    run(&c, (12 + 4 + 4) * PARAMETERS / 4 / 1.6);
    assert_int_equal(c.lab.beside, 2 * ROUNDS);
    for (int t = 0; t < ROUNDS; t++) {
        assert_int_equal(c.lab.history[2 * t], 2);
        assert_int_equal(c.lab.history[2 * t + 1], 3); /* 1.6 * 32 / 20 = 2.56 */
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

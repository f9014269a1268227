/* Failures of replicate methods with lanes of their own, and with steps in a lane (dpu, acco): a
 * worker that fails while averages are in flight ends all workers and is named; costs are read
 * while lanes work. */
#include "strategy/replicate/replicate_lab.h"

/* An average takes at least 0.3 s, the steps in parallel a few milliseconds. */
static const struct link_model slow = {.intra = {1e6, 0.05}, .inter = {1e6, 0.05}};

/* The loss of rank 1's micro-batch 4 is NaN: in the middle of the second outer round, with the
 * average of the first round in flight (co2, overlap-local). */
static struct lab failing(int i)
{
    static const int methods[] = {REPLICATE_LOCAL, REPLICATE_OVERLAP_LOCAL, REPLICATE_SLOWMO,
                                  REPLICATE_CO2, REPLICATE_DILOCO};
    struct lab lab =
        lab_make(methods[i % 5], SHARD_DDP + i / 5 % 3, i / 15 ? 4 : 2, i / 15 ? 1 : 2);
    lab.nan_at = 4 * lab.rule.workers + 1;
    lab.blind = true;
    return lab;
}

static void no_number(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct lab lab = failing(i / 2);
        lab.threads = i % 2;
        assert_fails(lab_run(&lab), SOTTO_ENUMERIC, "worker 1: the loss of micro-batch 4 is");
    }
}

/* No worker waits for the averages in flight. */
static void no_number_on_slow_links(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct lab lab = failing(15 + (i / 2 ? 1 : 3));
        lab.links = &slow;
        lab.threads = i % 2;
        lab.rule.penalty = PENALTY_NORM;
        assert_fails(lab_run(&lab), SOTTO_ENUMERIC, "worker 1: the loss of micro-batch 4 is");
    }
}

/* A run that ends with an average in flight waits for the average, and frees all (lab_work checks).
 */
static void ends_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct lab lab = lab_make(i / 2 ? REPLICATE_CO2 : REPLICATE_OVERLAP_LOCAL, SHARD_DDP, 4, 1);
        lab.links = &slow;
        lab.threads = i % 2;
        lab.blind = true;
        lab.steps = 4;
        assert_ok(lab_run(&lab));
    }
}

/* Steps are made in the lane, in parallel with the methods' own lanes. Exports between rounds are
 * the same on all workers (lab_look) with any timing. */
static void lanes_in_lanes(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct lab lab = failing(i / 6), whole = lab_make(lab.rule.replicate, 0, 4, 1);
        lab.rule.shard = SHARD_DPU + i / 2 % 3;
        lab.threads = i % 2;
        assert_fails(lab_run(&lab), SOTTO_ENUMERIC, "worker 1: the loss of micro-batch 4 is");
        whole.rule.shard = lab.rule.shard;
        whole.threads = lab.threads;
        assert_ok(lab_run(&whole));
        for (int k = 0; k < COUNT; k++)
            assert_true(fabsf(whole.x[whole.steps - 1][k]) < 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_number),
        cmocka_unit_test(no_number_on_slow_links),
        cmocka_unit_test(ends_under_way),
        cmocka_unit_test(lanes_in_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

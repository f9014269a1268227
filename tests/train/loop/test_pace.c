/* The time that is left: what happens once does not count, what happens every few steps does. */
#include "base/scratch.h"
#include "train/loop/pace.h"

static void an_outage_is_left_out(void **state)
{
    (void)state;
    struct pace p;
    double now = 100, each = 0;
    pace_start(&p, 50, now, 1);
    for (int64_t step = 51; step <= 70; step++) {
        now += step == 60 ? 300 : 2;
        each = pace_seconds(&p, step, now);
        assert_true(each == 2);
    }
    now += 40;
    pace_skip(&p, 38);
    assert_true(pace_seconds(&p, 71, now) == 2);
    for (int64_t step = 72; step < 90; step++) /* a lasting change does count */
        each = pace_seconds(&p, step, now += 8);
    assert_true(each == 8);
}

static void exchanges_count(void **state)
{
    (void)state;
    struct pace p;
    double now = 0, each = 0;
    pace_start(&p, 0, now, 5);
    for (int64_t step = 1; step <= 100; step++)
        each = pace_seconds(&p, step, now += step == 40 ? 700 : step % 5 == 0 ? 6 : 1);
    assert_true(each == 2);
}

static void the_first_block_is_a_mean(void **state)
{
    (void)state;
    struct pace p;
    pace_start(&p, 0, 0, 100);
    assert_true(pace_seconds(&p, 0, 1) == 0);
    assert_true(pace_seconds(&p, 2, 6) == 3);
    pace_start(&p, 0, 0, 1); /* steps of milliseconds: a block lasts a second */
    assert_true(pace_seconds(&p, 1, 0.25) == 0.25);
    assert_true(pace_seconds(&p, 2, 0.75) == 0.375);
    assert_true(p.blocks == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_outage_is_left_out),
        cmocka_unit_test(exchanges_count),
        cmocka_unit_test(the_first_block_is_a_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

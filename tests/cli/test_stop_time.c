/* How long a run is expected to take to stop. */
#include "cli/stop_time.h"
#include "base/scratch.h"

static void expect(const struct stop_time *s, double left, double want)
{
    const double is = stop_time_expect(s, left);
    if (is < want - 1e-9 || is > want + 1e-9)
        fail_with("%g s, want %g", is, want);
}

/* One round of ten that takes a minute changes nothing, wherever it is; three of five do. */
static void outages(void **state)
{
    (void)state;
    for (int at = 0; at < 10; at++) {
        struct stop_time s = {.rounds = 1};
        expect(&s, 100, 0);
        for (int i = 0; i < 10; i++) {
            stop_time_add(&s, i == at ? 60 : 0.5, 1);
            expect(&s, 100, i == 0 ? 0 : 0.5);
        }
        stop_time_add(&s, 8, 1);
        stop_time_add(&s, 9, 1);
        stop_time_add(&s, 9, 1);
        expect(&s, 100, at >= 8 ? 9 : 8);
        expect(&s, 0, 0);
    }
}

/* Slow rounds are known for it after the second one; half of a round is half of it. */
static void slow(void **state)
{
    (void)state;
    struct stop_time s = {.rounds = 1}, half = {.rounds = 0.5};
    for (int i = 0; i < 2; i++) {
        stop_time_add(&s, 10, 1);
        stop_time_add(&half, 10, 1);
    }
    expect(&s, 100, 10);
    expect(&half, 100, 5);
    expect(&half, 0.25, 2.5);
    stop_time_add(&s, 100, 10); /* ten of ten seconds, told at once */
    expect(&s, 100, 10);
}

/* Groups that meet every fourth round and take long for it: first by the rounds alone. */
static void exchanges(void **state)
{
    (void)state;
    struct stop_time s = {.rounds = 4};
    for (int i = 1; i <= 12; i++) {
        stop_time_add(&s, i % 4 ? 1 : 17, 1);
        expect(&s, 100, i < 2 ? 0 : i < 8 ? 4 : 20);
    }
    expect(&s, 2, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outages),
        cmocka_unit_test(slow),
        cmocka_unit_test(exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

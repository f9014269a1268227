/* How long a run is expected to take to stop. */
#include "cli/progress.h"
#include "base/scratch.h"

struct course {
    struct stop_time t;
    int64_t step;
    double now;
};

static struct course begin(double rounds)
{
    struct course c = {.step = 40, .now = 7};
    stop_time_start(&c.t, rounds, c.step, c.now);
    return c;
}

static void go_on(struct course *c, double seconds, double left, double want)
{
    c->now += seconds;
    const double is = stop_time_expect(&c->t, ++c->step, c->now, left);
    if (is < want - 1e-9 || is > want + 1e-9)
        fail_with("round %d: %g s, want %g", (int)c->step, is, want);
}

/* One round of ten that takes a minute changes nothing, wherever it is; slow ones that stay do. */
static void outages(void **state)
{
    (void)state;
    for (int at = 0; at < 10; at++) {
        struct course c = begin(1);
        for (int i = 0; i < 10; i++)
            go_on(&c, i == at ? 60 : 1.5, 100, i == 0 ? 0 : 1.5);
        for (int i = 0; i < 3; i++)
            go_on(&c, 9, 100, 1.5);
        for (int i = 0; i < 6; i++)
            c.now += 9, stop_time_expect(&c.t, ++c.step, c.now, 100);
        go_on(&c, 9, 100, 9);
        go_on(&c, 9, 0, 0);
    }
}

/* Slow rounds are known for it after the second one; half of a round is half of it. */
static void slow(void **state)
{
    (void)state;
    struct course c = begin(1), half = begin(0.5);
    go_on(&c, 11, 100, 0);
    go_on(&c, 10, 100, 10);
    go_on(&half, 11, 100, 0);
    go_on(&half, 10, 100, 5);
    go_on(&half, 10, 0.25, 2.5);
}

/* Groups that meet every fourth round and take long for it: first by the rounds alone. */
static void exchanges(void **state)
{
    (void)state;
    struct course c = begin(4);
    for (int i = 1; i <= 12; i++)
        go_on(&c, i % 4 ? 1 : 17, i == 12 ? 2 : 100, i < 2 ? 0 : i < 8 ? 4 : i == 12 ? 10 : 20);
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

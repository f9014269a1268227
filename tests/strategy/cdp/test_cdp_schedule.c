/* The schedule of cyclic data parallelism: walked through by all devices, for every placement, rule
 * and number of stages. */
#include "strategy/cdp/cdp_walk.h"

static const struct {
    enum cdp_placement placement;
    enum cdp_rule rule;
} cases[] = {
    {CDP_SINGLE, CDP_V1}, {CDP_SINGLE, CDP_V2}, {CDP_SINGLE, CDP_SYNC}, {CDP_DP, CDP_V1},
    {CDP_DP, CDP_V2},     {CDP_DP, CDP_SYNC},   {CDP_PP, CDP_V1},       {CDP_PP, CDP_V2},
    {CDP_PP, CDP_SYNC},   {CDP_MP, CDP_V1},     {CDP_MP, CDP_V2},       {CDP_ZERO, CDP_V1},
    {CDP_ZERO, CDP_V2},
};

/* Nothing is left but the last version where it belongs, and nothing is to be done. */
static void check_end(struct walk *w, int64_t step)
{
    const int devices = cdp_devices(&w->s);
    for (int d = 0; d < devices; d++) {
        struct cdp_act act[CDP_ACTS(WALK_N)];
        struct cdp_move move[CDP_PENDING];
        assert_int_equal(w->queued[d], 0);
        assert_int_equal(cdp_pending(&w->s, d, cdp_end(&w->s, step - 1), move), 0);
        assert_int_equal(cdp_acts(&w->s, d, cdp_end(&w->s, step - 1), act), 0);
        for (int k = 0; k < w->s.n; k++)
            assert_int_equal(w->device[d].slot[k].micro, -1);
        for (int j = 0; j < w->s.n; j++) {
            struct walk_stage *stage = &w->device[d].stage[j];
            const bool home = cdp_home(&w->s, step - 1, j) == d;
            assert_int_equal(stage->sum[0] | stage->sum[1], 0);
            assert_int_equal(stage->optimizer, home ? step : -1);
            assert_true(!home || walk_has(stage, step));
        }
    }
}

/* At the end of a round the parameters are where the schedule lists them. */
static void check_round(struct walk *w, int64_t step)
{
    for (int j = 0; j < w->s.n; j++) {
        const int home = cdp_home(&w->s, step, j), keeper = cdp_keeper(&w->s, step, j);
        assert_true(walk_has(&w->device[home].stage[j], step + 1));
        assert_int_equal(w->device[home].stage[j].optimizer, step + 1);
        assert_true(keeper < 0 || walk_has(&w->device[keeper].stage[j], step));
        if (w->s.keep && (w->s.steps < 0 || step + 1 < w->s.steps))
            assert_int_equal(keeper < 0,
                             step == -1 || cdp_version(&w->s, step + 1, 0, j) == step + 1);
    }
}

/* Most micro-batches in flight after a time step. */
static void count_slots(const struct walk *w, int most[WALK_DEVICES])
{
    for (int d = 0; d < cdp_devices(&w->s); d++) {
        int busy = 0;
        for (int k = 0; k < w->s.n; k++)
            busy += w->device[d].slot[k].micro >= 0;
        most[d] = busy > most[d] ? busy : most[d];
    }
}

static void walk_through(struct cdp_schedule s)
{
    static struct walk w;
    int most[WALK_DEVICES] = {0};
    assert_int_equal(cdp_check(&s), SOTTO_OK);
    walk_begin(&w, &s);
    int64_t time = 0;
    for (int64_t step = s.first; step < s.steps; step++) {
        for (; time < cdp_end(&s, step); time++) {
            walk_time(&w, time);
            count_slots(&w, most);
        }
        check_round(&w, step);
    }
    check_end(&w, s.steps);
    for (int d = 0; d < cdp_devices(&s); d++)
        assert_int_equal(most[d], cdp_slots(&s, d));
}

static void test_walk(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int n = 1; n <= WALK_N; n++)
            for (int way = 0; way < 8; way++) {
                const bool together = way & 1, keep = way & 2;
                const int64_t first = way & 4 ? 5 : 0;
                if (together && cases[c].rule == CDP_V2 && n > 1)
                    continue;
                walk_through((struct cdp_schedule){cases[c].placement, cases[c].rule, n, first,
                                                   first + 4, together, keep});
            }
}

/* A device that stops at the end of a round receives all messages in flight, and no others
 * exist. */
static void test_pending(void **state)
{
    (void)state;
    static struct walk w;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int n = 1; n <= WALK_N; n++) {
            const struct cdp_schedule s = {
                cases[c].placement, cases[c].rule, n, 2, -1, false, true};
            walk_begin(&w, &s);
            for (int64_t time = 0; time < cdp_end(&s, 4); time++)
                walk_time(&w, time);
            for (int d = 0; d < cdp_devices(&s); d++) {
                struct cdp_move move[CDP_PENDING];
                const int pending = cdp_pending(&s, d, cdp_end(&s, 4), move);
                for (int k = 0; k < pending; k++)
                    assert_true(walk_receive(&w, d, &move[k], move[k].before));
            }
            for (int d = 0; d < cdp_devices(&s); d++)
                assert_int_equal(w.queued[d], 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

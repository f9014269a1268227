/* Claims about cyclic data parallelism, counted in its schedule for 1 to 8 stages: versions,
 * activations, messages, and places of states. The steady part is between the first step, which
 * fills the pipeline, and the last. */
#include "strategy/cdp/cdp_walk.h"
#include "strategy/cdp/schedule/count.h"

enum { N = WALK_N, STEPS = 6, FIRST = 2 };

static struct cdp_schedule make(enum cdp_placement placement, enum cdp_rule rule, int n)
{
    return (struct cdp_schedule){placement, rule, n, 0, -1, false, false};
}

/* The definition, as it is written with indices from 1. */
static void test_tasks(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        const struct cdp_schedule s = make(CDP_DP, CDP_V2, n);
        for (int time = 0; time < 2 * n * STEPS; time++)
            for (int i = 1; i <= n; i++) {
                struct cdp_task task;
                const int u = time - 2 * (i - 1), p = u % (2 * n);
                assert_int_equal(cdp_micro_task(&s, i - 1, time, &task), u >= 0);
                if (u < 0)
                    continue;
                assert_int_equal(task.step, u / (2 * n));
                assert_int_equal(task.micro, i - 1);
                assert_int_equal(task.backward, p >= n);
                assert_int_equal(task.stage + 1, p < n ? p + 1 : 2 * n - p);
                assert_int_equal(time, cdp_time(&s, task.step, i - 1, task.stage, task.backward));
            }
    }
}

static void test_versions(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        const struct cdp_schedule s1 = make(CDP_DP, CDP_V1, n), s2 = make(CDP_DP, CDP_V2, n);
        for (int t = 0; t < STEPS; t++)
            for (int i = 1; i <= n; i++)
                for (int j = 1; j <= n; j++) {
                    const int64_t time = cdp_time(&s2, t, i - 1, j - 1, false);
                    int64_t newest = 0;
                    while (cdp_update_time(&s2, newest, j - 1) < time)
                        newest++;
                    const int64_t v1 = cdp_version(&s1, t, i - 1, j - 1);
                    const int64_t v2 = cdp_version(&s2, t, i - 1, j - 1);
                    assert_int_equal(v2, newest);
                    assert_int_equal(v2, j >= n - i + 1 ? t : t ? t - 1 : 0);
                    assert_int_equal(v1, t ? t - 1 : 0);
                    if (j == n - i + 1 && t > 0) /* made in the very time step before */
                        assert_int_equal(cdp_update_time(&s2, t - 1, j - 1), time - 1);
                }
    }
}

/* Evaluation and checkpoints look where all stages are at the same version. */
static void test_pause(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        const struct cdp_schedule s = make(CDP_SINGLE, CDP_V2, n);
        for (int t = 1; t < STEPS; t++) {
            assert_int_equal(cdp_end(&s, t - 1), 2 * n * t + 2 * n - 2);
            for (int time = 2 * n * t + 2 * n - 2; time <= 2 * n * t + 3 * n - 2; time++)
                for (int j = 0; j < n; j++) {
                    assert_true(cdp_update_time(&s, t - 1, j) < time);
                    assert_true(cdp_update_time(&s, t, j) >= time);
                }
        }
    }
}

/* Counts saved stage activations of a device in a time step, with those of running tasks. */
static int activations(const struct cdp_schedule *s, int device, int64_t time)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->n; j++)
            for (int64_t t = 0; t <= STEPS; t++)
                n += cdp_device(s, t, i, j) == device && cdp_time(s, t, i, j, false) <= time &&
                     time <= cdp_time(s, t, i, j, true);
    return n;
}

static void test_activations(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        struct cdp_schedule s = make(CDP_SINGLE, CDP_V2, n);
        for (int time = 2 * n * FIRST; time < 2 * n * STEPS; time++) {
            s.placement = CDP_SINGLE;
            assert_int_equal(activations(&s, 0, time), n * (n + 1) / 2);
            for (int d = 0; d < n; d++) {
                s.placement = CDP_PP;
                assert_int_equal(activations(&s, d, time), n - d);
                s.placement = CDP_DP;
                assert_in_range(activations(&s, d, time), 1, n);
            }
            s.placement = CDP_MP;
            for (int d = 0; d < cdp_devices(&s); d++)
                assert_int_equal(activations(&s, d, time), 1);
        }
        s = make(CDP_SINGLE, CDP_SYNC, n);
        assert_int_equal(activations(&s, 0, 2 * n * FIRST + n - 1), n * n); /* at the peak */
    }
}

/* Counts a device's messages in a time step by kind, added to `count`. */
static void count_sent(const struct cdp_schedule *s, int device, int64_t time,
                       int count[CDP_STATE + 1][N])
{
    struct cdp_act act[CDP_ACTS(N)];
    const int n = cdp_acts(s, device, time, act);
    for (int k = 0; k < n; k++)
        if (act[k].what == CDP_SEND)
            count[act[k].move.what][act[k].move.stage]++;
}

struct traffic {
    int step[CDP_STATE + 1][N]; /* messages of a training step, by stage                  */
    int most[CDP_STATE + 1];    /* that a device sends in a time step                     */
    int together;               /* of all kinds                                           */
};

static struct traffic count_step(const struct cdp_schedule *s)
{
    struct traffic out = {0};
    const int64_t begin = cdp_time(s, FIRST, 0, 0, false),
                  end = cdp_time(s, FIRST + 1, 0, 0, false);
    for (int64_t time = begin + 1; time <= end; time++)
        for (int d = 0; d < cdp_devices(s); d++) {
            int now[CDP_STATE + 1][N] = {0}, all = 0;
            count_sent(s, d, time, now);
            for (int k = 0; k <= CDP_STATE; k++) {
                int n = 0;
                for (int j = 0; j < s->n; j++) {
                    n += now[k][j];
                    out.step[k][j] += now[k][j];
                }
                out.most[k] = n > out.most[k] ? n : out.most[k];
                all += n;
            }
            out.together = all > out.together ? all : out.together;
        }
    return out;
}

static void check_stages(const struct traffic *t, int n, enum cdp_what what, int a, int b)
{
    for (int j = 0; j < n; j++)
        assert_int_equal(t->step[what][j], a - b * j);
}

static void test_messages(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++)
        for (int rule = CDP_V2; rule <= CDP_V1; rule++) {
            struct cdp_schedule s = make(CDP_SINGLE, rule, n);
            struct traffic t = count_step(&s);
            assert_int_equal(t.together, 0);

            s.placement = CDP_DP;
            t = count_step(&s);
            check_stages(&t, n, CDP_SUM, n - 1, 0);
            check_stages(&t, n, CDP_PARAMETERS, n - 1, 0);
            assert_int_equal(t.most[CDP_SUM], n > 1);
            assert_int_equal(t.most[CDP_PARAMETERS], n > 1);
            check_stages(&t, n, CDP_ACTIVATION, 0, 0);
            check_stages(&t, n, CDP_ACTIVATION_GRADIENT, 0, 0);
            check_stages(&t, n, CDP_STATE, 0, 0);

            s.placement = CDP_PP;
            t = count_step(&s);
            assert_int_equal(t.together, n > 1);
            for (int j = 0; j < n; j++) {
                assert_int_equal(t.step[CDP_ACTIVATION][j], j > 0 ? n : 0);
                assert_int_equal(t.step[CDP_ACTIVATION_GRADIENT][j], j < n - 1 ? n : 0);
            }
            check_stages(&t, n, CDP_SUM, 0, 0);
            check_stages(&t, n, CDP_PARAMETERS, 0, 0);

            s.placement = CDP_MP;
            t = count_step(&s);
            check_stages(&t, n, CDP_SUM, n - 1, 1);
            check_stages(&t, n, CDP_PARAMETERS, n - 1, 1);
            assert_int_equal(t.most[CDP_SUM], n > 1);
            assert_int_equal(t.most[CDP_PARAMETERS], n > 1);
            for (int j = 0; j < n; j++) /* the last device of a step is the same or it is not */
                assert_int_equal(t.step[CDP_STATE][j], n % (n - j) != 0);

            s.placement = CDP_ZERO;
            t = count_step(&s);
            int moves = 0;
            for (int j = 0; j < n; j++)
                moves += t.step[CDP_STATE][j];
            assert_int_equal(moves, 2 * n * (n - 1));
            assert_int_equal(t.together, n > 1);
        }
}

/* sync: the same number of messages as dp, but a stage's messages follow each other: no device has
 * two to send. */
static void test_sync_messages(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        const struct cdp_schedule s = make(CDP_DP, CDP_SYNC, n);
        struct traffic t = {0};
        for (int d = 0; d < n; d++) {
            int own[CDP_STATE + 1][N] = {0};
            for (int64_t time = 2 * n * FIRST; time < 2 * n * (FIRST + 1); time++)
                count_sent(&s, d, time, own);
            for (int j = 0; j < n; j++) {
                assert_int_equal(own[CDP_SUM][j], d < n - 1);
                assert_int_equal(own[CDP_PARAMETERS][j], n > 1 && d != n - 2);
                t.step[CDP_SUM][j] += own[CDP_SUM][j];
                t.step[CDP_PARAMETERS][j] += own[CDP_PARAMETERS][j];
            }
        }
        check_stages(&t, n, CDP_SUM, n - 1, 0);
        check_stages(&t, n, CDP_PARAMETERS, n - 1, 0);
    }
}

static void test_zero(void **state)
{
    (void)state;
    static struct walk w;
    for (int n = 1; n <= N; n++)
        for (int rule = CDP_V2; rule <= CDP_V1; rule++) {
            struct cdp_schedule s = make(CDP_ZERO, rule, n);
            walk_begin(&w, &s);
            for (int64_t time = 0; time < cdp_end(&s, STEPS); time++) {
                walk_time(&w, time);
                for (int d = 0; d < n; d++) {
                    struct cdp_task task;
                    int stages = 0, mine = -1;
                    for (int j = 0; j < n; j++) {
                        const struct walk_stage *stage = &w.device[d].stage[j];
                        const bool here = stage->optimizer >= 0;
                        assert_int_equal(stage->versions > 0, here);
                        assert_true(here || (stage->sum[0] | stage->sum[1]) == 0);
                        stages += here;
                        mine = here ? j : mine;
                    }
                    assert_int_equal(stages, 1);
                    if (cdp_tasks(&s, d, time, &task))
                        assert_int_equal(task.stage, mine);
                }
            }
        }
}

/* v2: stage j of n has two versions for (n-j)/n of the time; v1: always. Elsewhere: one in use. */
static void test_two_versions(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++)
        for (int p = CDP_DP; p <= CDP_ZERO; p++)
            for (int rule = CDP_V2; rule <= CDP_V1; rule++) {
                const struct cdp_schedule s = make(p, rule, n);
                for (int j = 1; j <= n; j++) {
                    int times = 0, devices = 0;
                    for (int d = 0; d < cdp_devices(&s); d++) {
                        int two = 0;
                        for (int64_t time = 2 * n * FIRST; time < 2 * n * (FIRST + 1); time++) {
                            int64_t held[2];
                            two += cdp_holds(&s, d, j - 1, time, held) == 2;
                        }
                        times += two;
                        devices += two > 0;
                    }
                    if (rule == CDP_V2)
                        assert_int_equal(times, p == CDP_DP || p == CDP_MP ? 0 : 2 * (n - j));
                    else if (p == CDP_MP)
                        assert_int_equal(times,
                                         2 * n - (n % (n - j + 1) != 0 && j > 2)); /* on its way */
                    else
                        assert_int_equal(times, 2 * n);
                    assert_true(p != CDP_DP || rule == CDP_V2 || devices == 1);
                }
            }
}

/* The pattern of versions repeats: a step later, or when all devices of a stage had their turn. */
static void test_holds_again(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++)
        for (int p = CDP_DP; p <= CDP_ZERO; p++)
            for (int rule = CDP_V2; rule <= CDP_V1; rule++) {
                const struct cdp_schedule s = make(p, rule, n);
                for (int j = 0; j < n; j++)
                    for (int d = 0; d < cdp_devices(&s); d++)
                        for (int64_t time = 2 * n * (FIRST + 1); time < 2 * n * STEPS; time++) {
                            const int later = p == CDP_MP ? n - j : 1;
                            int64_t a[2], b[2];
                            const int held = cdp_holds(&s, d, j, time, a);
                            assert_int_equal(cdp_holds(&s, d, j, time + 2 * n * later, b), held);
                            for (int k = 0; k < held; k++)
                                assert_int_equal(b[k], a[k] + later);
                        }
            }
}

static void check_count(enum cdp_placement placement, enum cdp_rule rule, int n,
                        struct cdp_count want)
{
    struct cdp_act scratch[CDP_ACTS(N)];
    struct cdp_schedule s = make(placement, rule, n);
    s.together = rule == CDP_V1;
    struct cdp_count c;
    cdp_count(&s, scratch, &c);
    assert_int_equal(c.devices, want.devices);
    assert_int_equal(c.activations, want.activations);
    assert_int_equal(c.all, want.all);
    assert_int_equal(c.versions, want.versions);
    assert_int_equal(c.states, want.states);
    assert_int_equal(c.sum, want.sum);
    assert_int_equal(c.hops, want.hops);
    assert_int_equal(c.most, want.most);
    assert_int_equal(c.activation, c.gradient);
}

/* The paper's table 1, in parts of a model and of a micro-batch's activations. */
static void test_count(void **state)
{
    (void)state;
    for (int n = 2; n <= N; n++) {
        const int half = n * (n + 1) / 2, ring = n * (n - 1);
        check_count(CDP_SINGLE, CDP_SYNC, n, (struct cdp_count){1, n * n, n * n, n, n, .hops = 0});
        check_count(CDP_SINGLE, CDP_V2, n,
                    (struct cdp_count){1, half, half, n + 2 * n / 3, n, .hops = 0});
        check_count(CDP_DP, CDP_SYNC, n,
                    (struct cdp_count){n, n, n * n, n, n, .sum = ring, .most = 2 * (n - 1),
                                       .hops = 2 * (n - 1)});
        check_count(CDP_DP, CDP_V2, n,
                    (struct cdp_count){n, n, half, n, n, .sum = ring, .most = 1, .hops = 1});
        check_count(CDP_PP, CDP_V2, n, (struct cdp_count){n, n, half, 2, 1, .most = 1, .hops = 1});
        check_count(CDP_MP, CDP_V2, n,
                    (struct cdp_count){half, 1, half, 1, 1, .sum = ring / 2, .most = 2, .hops = 1});
        struct cdp_count zero = {n, n, half, 2, 1, .most = 1, .hops = 1};
        zero.sum = 2 * n * (n - 1) - 2 * (n - 1); /* all moves but those of an empty sum */
        check_count(CDP_ZERO, CDP_V2, n, zero);
        zero.sum +=
            n * (n - 1) / 2 - (n - 1) / 2; /* stage j's waits j time steps, not always on its way */
        check_count(CDP_ZERO, CDP_V1, n, zero);
    }
}

static void test_devices(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++) {
        struct cdp_schedule s = make(CDP_MP, CDP_V2, n);
        assert_int_equal(cdp_devices(&s), n * (n + 1) / 2);
        assert_int_equal(cdp_stages(CDP_MP, n * (n + 1) / 2), n);
        assert_int_equal(cdp_stages(CDP_MP, n * (n + 1) / 2 + n), 0);
        assert_int_equal(cdp_stages(CDP_DP, n), n);
        s.placement = CDP_SINGLE;
        assert_int_equal(cdp_devices(&s), 1);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct cdp_schedule s = make(CDP_DP, CDP_V2, 2);
    s.together = true;
    assert_int_equal(cdp_check(&s), SOTTO_EINVAL);
    s.n = 1;
    assert_int_equal(cdp_check(&s), SOTTO_OK);
    s = make(CDP_DP, CDP_V2, 0);
    assert_int_equal(cdp_check(&s), SOTTO_EINVAL);
    for (int p = CDP_DP; p <= CDP_ZERO; p++) {
        s = make(p, CDP_SYNC, 3);
        assert_int_equal(cdp_check(&s), p == CDP_MP || p == CDP_ZERO ? SOTTO_EINVAL : SOTTO_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks),       cmocka_unit_test(test_versions),
        cmocka_unit_test(test_pause),       cmocka_unit_test(test_activations),
        cmocka_unit_test(test_messages),    cmocka_unit_test(test_sync_messages),
        cmocka_unit_test(test_zero),        cmocka_unit_test(test_two_versions),
        cmocka_unit_test(test_holds_again), cmocka_unit_test(test_count),
        cmocka_unit_test(test_devices),     cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

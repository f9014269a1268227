/* dpu, acco-wp and acco follow their formulas in every round, with any counts, mesh and engine. */
#include "strategy/overlap/overlap_reference.h"

static void compare(const struct lab *lab, int32_t (*count)[MOST])
{
    struct reference r;
    reference_init(&r, lab, count);
    for (int t = 0; t < lab->rounds; t++) {
        struct plan plan = lab_plan(t);
        reference_round(&r, &plan);
        reference_compare(&r, lab, t);
    }
    assert_int_equal(lab->lines, r.line);
    for (int i = 0; i < r.line; i++)
        for (int w = 0; w < lab->workers; w++)
            assert_int_equal(lab->count[i][w], count ? count[i][w] : lab->accumulate);
}

static void optimizer(struct lab *lab, int which)
{
    lab->kind = which < 2 ? OPTIM_SGD : OPTIM_ADAMW;
    lab->momentum = which == 1 ? 0.9 : 0;
    lab->decay = 0.1;
}

/* dpu without and with a warm-up, acco-wp, acco. */
static struct lab method(int which, int workers)
{
    static const int methods[] = {SHARD_DPU, SHARD_DPU, SHARD_ACCO_WP, SHARD_ACCO};
    struct lab lab = lab_make(methods[which], workers);
    lab.warmup = which == 1 ? 3 : 0;
    return lab;
}

/* In virtual time with infinitely fast links a worker computes `accumulate` micro-batches and finds
 * its lane done; in a replay the number is given, for each worker its own. */
static void sequential(void **state)
{
    (void)state;
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int which = 0; which < 4; which++)
        for (int workers = 1; workers <= 8; workers *= 2)
            EACH_SHARED(variant, STRIDE, 3 * 3 * 4) {
                struct lab lab = method(which, workers);
                const int source = variant % 3;
                optimizer(&lab, variant / 3 % 3);
                lab.weight = variant / 9 % 2 ? WEIGHT_TOKENS : WEIGHT_MICROBATCH;
                lab.clip = variant / 18 ? 1.5 : 0;
                lab.accumulate = source == 1 ? 1 : 2;
                if (source == 0)
                    lab_replay(&lab, "counts", count, LINES);
                assert_ok(lab_virtual(&lab));
                compare(&lab, source == 0 ? count : NULL);
            }
}

static void meshes(void **state)
{
    (void)state;
    static const int shapes[][2] = {{4, 1}, {4, 2}, {4, 4}, {8, 1}, {8, 2}, {8, 4}, {8, 8}};
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int which = 0; which < 4; which++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int variant = 0; variant < 4; variant++) {
                struct lab lab = method(which, shapes[k][0]);
                lab.groups = shapes[k][1];
                optimizer(&lab, 1 + variant % 2);
                lab.clip = variant / 2 ? 1.5 : 0;
                lab_replay(&lab, "counts", count, LINES);
                assert_ok(lab_threads(&lab));
                compare(&lab, count);
            }
}

/* One quadratic over and over, SGD, e = x - c, p = lr a^2, d that of the place of the gradients
 * that wait.
 *
 * acco: the next d is e - p d and the next e lies between e - p e and e - p d, so from d = e on
 * both are (1 - p) e, whatever the counts: the estimate is where the step leads, no gradient is
 * stale, and e_t = prod (1 - p_s) e_0, as without overlap. dpu: e_{t+1} = e_t - p e_{t-1} with
 * e_{-1} = e_0. */
static void closed_form(void **state)
{
    (void)state;
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int variant = 0; variant < 4; variant++) {
        struct lab lab = lab_make(variant / 2 ? SHARD_ACCO : SHARD_DPU, 4);
        lab.kind = OPTIM_SGD;
        lab.still = true;
        if (variant % 2)
            lab_replay(&lab, "counts", count, LINES);
        assert_ok(lab_virtual(&lab));
        for (int i = 0; i < COUNT; i++) {
            double a = 0.5f + 0.05f * (float)i, c = centre(0, i), e = lab_start(i) - c;
            double late = e, now = e, product = e;
            for (int t = 0; t < ROUNDS; t++) {
                double p = lab_lr(t) * a * a, then = now;
                product *= 1 - p;
                now -= p * late;
                late = then;
                double want = lab.method == SHARD_ACCO ? product : now;
                if (!(fabs(lab.x[t][i] - c - want) < 2e-6))
                    fail_with("method %d: x[%d] - c is %.9g after round %d, want %.9g", lab.method,
                              i, lab.x[t][i] - c, t, want);
            }
        }
    }
}

static void assert_same(const struct lab *a, const struct lab *b)
{
    assert_memory_equal(a->x, b->x, sizeof a->x);
    for (int t = 0; t < ROUNDS; t++)
        assert_true(a->round[t].loss == b->round[t].loss &&
                    a->round[t].grad_norm == b->round[t].grad_norm);
}

/* With the same counts threads and virtual time give the same bits. */
static void engines(void **state)
{
    (void)state;
    int32_t count[LINES][MOST];
    lab_counts(count);
    for (int which = 0; which < 4; which++)
        for (int precision = PRECISION_FP32; precision <= PRECISION_MIXED; precision++)
            for (int groups = 1; groups <= 2; groups++) {
                struct lab lab = method(which, 4), other;
                lab.groups = groups;
                lab.precision = precision;
                optimizer(&lab, 2);
                lab_replay(&lab, "counts", count, LINES);
                other = lab;
                assert_ok(lab_virtual(&lab));
                assert_ok(lab_threads(&other));
                assert_same(&lab, &other);
            }
}

/* A replay repeats a run in real time, over links slow enough for several micro-batches. */
static void replay(void **state)
{
    (void)state;
    const int node[4] = {0, 1, 2, 3};
    const struct link_model links = {.inter = {.latency = 3e-4}};
    const struct engine_config engine = {.workers = 4, .node = node, .links = &links};
    for (int which = 0; which < 4; which++) {
        struct lab lab = method(which, 4), again;
        lab.pause = 50000;
        optimizer(&lab, 2);
        again = lab;
        assert_ok(engine_threads(&engine, seat_work, &lab));
        compare(&lab, lab.count);
        int32_t most = 0;
        for (int64_t i = 0; i < lab.lines; i++)
            most = lab.count[i][0] > most ? lab.count[i][0] : most;
        assert_true(most > 1);
        lab_replay(&again, "real", lab.count, lab.lines);
        assert_ok(lab_virtual(&again));
        assert_same(&lab, &again);
    }
}

/* The last rounds of a run, with an optimizer that starts from zero. */
static enum sotto_status train_late(struct seat *seat)
{
    TRY(seat_import(seat));
    return seat_rounds(seat, 2, seat->lab->rounds);
}

/* Undelayed rounds are the first of the run, even if the optimizer starts later. */
static void warm_up(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct lab lab = method(1, 2);
        lab.body = late ? train_late : NULL;
        assert_ok(lab_virtual(&lab));
        assert_int_equal(lab.lines, lab.rounds - lab.warmup); /* computed during the lane's job */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential), cmocka_unit_test(meshes), cmocka_unit_test(closed_form),
        cmocka_unit_test(engines),    cmocka_unit_test(replay), cmocka_unit_test(warm_up),
    };
    return run_cases(tests, 1, scratch_make, scratch_remove);
}

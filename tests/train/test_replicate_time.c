/* What the replicate methods cost in virtual time: averages that are hidden behind the steps, and
 * bytes on the wire. Sizes and times are declared (oracle = null), so all of it is arithmetic. */
#include "base/scratch.h"

#include <math.h>
#include <stdlib.h>

#include "comm/formula.h"
#include "train/run/run_worker.h"

enum { P = 100000000, WORKERS = 4, STEPS = 600 }; /* beside such vectors reports weigh nothing */

/* CO2's table 5: a step of 0.109 s, an all-reduce of 1.566 s. Four workers send 2 * 3/4 of 4 bytes
 * a parameter. */
static const double step_seconds = 0.109, average_seconds = 1.566;
static const double average_bytes = 6.0 * P;

struct seen {
    struct cost cost;         /* of rank 0, in all          */
    int64_t bytes[STEPS + 1]; /* that it sent in each step  */
    double seconds, slowest;  /* of all rounds; of the run  */
};

static void on_step(void *arg, const struct run_step *s)
{
    struct seen *seen = arg;
    seen->bytes[s->step] = s->cost.inside + s->cost.between;
    seen->seconds += s->seconds;
    seen->slowest = s->slowest;
}

static void set(struct run_config *c, const char *key, const char *value)
{
    struct option_section sections[RUN_SECTIONS];
    run_sections(c, sections);
    assert_ok(option_set(sections, RUN_SECTIONS, key, value));
}

/* `links`: keys and values, up to NULL; with `key` = `value` one more option. */
static void run_on(const char *const *links, int workers, int nodes, const char *method,
                   const char *mesh, const char *key, const char *value, int steps,
                   struct seen *seen)
{
    static int runs;
    char folder[32];
    struct run_config c;
    struct option_section sections[RUN_SECTIONS];
    struct run run;
    memset(&c, 0, sizeof c);
    run_sections(&c, sections);
    option_defaults(sections, RUN_SECTIONS);
    snprintf(folder, sizeof folder, "run.%d", runs++);
    set(&c, "train.out", at(folder));
    set(&c, "train.oracle", "null");
    set(&c, "train.time", "virtual");
    set(&c, "train.log_every", "1");
    set(&c, "worker.step", "109ms");
    set(&c, "strategy.preset", method);
    set(&c, "strategy.mesh", mesh);
    set(&c, "co2.penalty", "norm");
    set(&c, key, value);
    for (int i = 0; links[i]; i += 2)
        set(&c, links[i], links[i + 1]);
    c.train.nodes = nodes;
    c.null.parameters = P;
    c.train.workers = workers;
    c.train.steps = steps;
    struct run_watch watch = {.step = on_step, .arg = seen};
    *seen = (struct seen){0};
    strategy_set_aside(&c.strategy, &c.strategy); /* what other methods want */
    assert_ok(run_open(&run, &c, &watch));
    assert_ok(run_train(&run));
    seen->cost = run.result.worker[0].cost;
    run_close(&run);
}

/* A group of the mesh is a node. */
static void run(const char *method, const char *mesh, const char *key, const char *value, int steps,
                struct seen *seen)
{
    const int nodes = atoi(mesh);
    char number[64];
    snprintf(number, sizeof number, "%.9gB/s", average_bytes / average_seconds);
    const char *const links[] = {nodes > 1 ? "link.inter" : "link.intra", number, NULL};
    run_on(links, WORKERS, nodes, method, mesh, key, value, steps, seen);
}

static void near_to(const char *what, double value, double want, double share)
{
    if (!(fabs(value - want) <= share * fabs(want) + 1e-9))
        fail_with("%s: %.9g, not %.9g", what, value, want);
}

/* tau * step / average of it is hidden, and all of it from tau = 15 on: the paper measured 6.5,
 * 20.4, 41.8, 83.3 and 100 %, the formula gives 6.96, 20.9, 41.8, 83.5 and 100 %. The last average
 * is still under way when the run ends: five are sent, and four are waited for. */
static void overlap(void **state)
{
    (void)state;
    static const char *const methods[] = {"co2", "overlap-local-sgd"};
    static const int taus[] = {1, 3, 6, 12, 14, 15, 24};
    static const double share[] = {0.0696, 0.209, 0.418, 0.835, 0.974, 1, 1};
    for (int i = 0; i < 14; i++) {
        const int tau = taus[i / 2];
        char text[16];
        struct seen seen;
        snprintf(text, sizeof text, "%d", tau);
        run(methods[i % 2], "4x1", "tau", text, 5 * tau, &seen);
        const double exposed = 4 * fmax(0, average_seconds - tau * step_seconds);
        const double sent = (double)(seen.cost.inside + seen.cost.between);
        near_to("bytes", sent, 5 * average_bytes, 1e-3);
        near_to("communication", seen.cost.wire, 4 * average_seconds, 1e-3); /* up to the end */
        near_to("exposed", cost_exposed(&seen.cost), exposed, 0.01);
        near_to("hidden", 1 - cost_exposed(&seen.cost) / seen.cost.wire, share[i / 2], 0.01);
        near_to("seconds", seen.cost.seconds, 5 * tau * step_seconds + exposed, 1e-3);
    }
}

/* Those that wait: nothing is hidden. */
static void exposed(void **state)
{
    (void)state;
    static const char *const methods[] = {"local-sgd", "slowmo"};
    for (int i = 0; i < 2; i++) {
        struct seen seen;
        run(methods[i], "4x1", "tau", "12", 60, &seen);
        near_to("communication", seen.cost.wire, 5 * average_seconds, 1e-3);
        near_to("exposed", cost_exposed(&seen.cost), 5 * average_seconds, 1e-3);
        near_to("seconds", seen.cost.seconds, 60 * step_seconds + 5 * average_seconds, 1e-3);
    }
}

/* The smallest tau that hides the average is 15 (14.4 steps). One is under way from step 1 to be
 * timed and done in step 16; in step 17 workers compare. The averages of steps 17, 32 and 47 are
 * done before steps 32, 47 and 62 are, and nobody ever waits. */
static void automatic(void **state)
{
    (void)state;
    struct seen seen;
    run("co2", "4x1", "tau", "auto", 62, &seen);
    for (int t = 1; t <= 62; t++) {
        bool done = t == 16 || t == 32 || t == 47 || t == 62;
        if ((seen.bytes[t] > average_bytes / 2) != done)
            fail_with("step %d sends %lld bytes", t, (long long)seen.bytes[t]);
    }
    near_to("hidden", 1 - cost_exposed(&seen.cost) / seen.cost.wire, 1, 1e-4);
}

/* A round of 500 steps sends what one step of ddp does: 2 (N-1)/N of the vector, between groups
 * where a group shares it. What is counted beside that, and the losses of the reported steps, are
 * small. */
static void diloco_bytes(void **state)
{
    (void)state;
    struct seen seen, other;
    run("ddp", "1x4", "diloco.H", "500", 5, &seen);
    near_to("ddp", (double)seen.cost.inside / 5, average_bytes, 1e-4);
    run("diloco", "4x1", "diloco.H", "500", 500, &other);
    near_to("diloco", (double)other.cost.between, average_bytes, 5e-3);
    near_to("a 500th", (double)other.cost.between / 500, (double)seen.cost.inside / 5 / 500, 0.01);
    for (int t = 1; t < 500; t++)
        assert_int_equal(other.bytes[t], 0);
    run("zero1", "2x2", "diloco.H", "500", 5, &seen);
    near_to("sync", (double)seen.cost.between / 5, 4.0 * P / 2, 1e-4);
    run("diloco", "2x2", "strategy.shard", "zero1", 500, &other);
    near_to("diloco of 2", (double)other.cost.between, 4.0 * P / 2, 5e-3);
    run("diloco", "4x1", "diloco.prune", "0.75", 500, &other);
    const double there = 0.25 + 1.0 / 32, back = 1 - pow(0.75, 4) + 1.0 / 32;
    near_to("pruned", (double)other.cost.between, average_bytes / 2 * (there + back), 5e-3);
    near_to("pruned, time", other.cost.wire, average_seconds / 2 * (there + back), 0.01);
}

/* The same cluster for every method: an average of gradients in each step costs what one of
 * parameters does, whether a group of the mesh is all workers or one; and all of it is exposed. */
static void the_cluster_is_nobodys(void **state)
{
    (void)state;
    enum { N = 8, STEPS_HERE = 3 };
    static const char *const methods[] = {"ddp", "local-sgd"};
    static const char *const links[] = {"link.intra",   "10GB/s,5us", "link.inter", "1Gbit/s,1ms",
                                        "train.stages", "1",          NULL};
    const struct link inside = {10e9, 5e-6}, between = {125e6, 1e-3};
    for (int nodes = 2; nodes <= N; nodes += N - 2) {
        const int each = N / nodes; /* share an adapter */
        const struct formula f = {nodes, each, inside, {between.bandwidth / each, between.latency}};
        const double counts = 3 * between.latency; /* 8 workers: 1, 2 and 4 ranks away */
        const double want = formula_allreduce(&f, 4.0 * P) + counts;
        for (int m = 0; m < 2; m++) {
            struct seen once, again;
            run_on(links, N, nodes, methods[m], "", "local.tau", "1", STEPS_HERE, &once);
            run_on(links, N, nodes, methods[m], "", "local.tau", "1", STEPS_HERE, &again);
            near_to(methods[m], once.cost.wire / STEPS_HERE, want, 1e-5);
            near_to("exposed", cost_exposed(&once.cost) / STEPS_HERE, want, 1e-5);
            assert_memory_equal(&once.cost, &again.cost, sizeof once.cost);
        }
    }
}

/* What decoupled methods exchange of stage k is under way while stages before it go forward. It
 * sets out as stage k-1 is begun with, so that a stage takes as long as the longer of the two: a
 * step waits this long. */
static double waits_for(int stages, double e, double f)
{
    return e + (stages - 1) * fmax(0, e - f);
}

/* With fsdp it sets out as stage k-1 is gathered, before k-2 is computed; but nobody waits for the
 * last one before the stage ahead of it is. */
static double waits_ahead(int stages, double e, double f)
{
    double now = e, comes = 2 * e;
    for (int k = 0; k < stages; k++) {
        const bool late = k + 2 == stages && comes > now;
        if (k + 1 < stages && !late) {
            now = fmax(now, comes);
            comes = now + e;
        }
        now += f;
        if (late)
            now = fmax(now, comes);
    }
    return now - stages * f;
}

/* Random's is one for all stages. */
static double waits_for_all(int stages, double e, double f)
{
    (void)f;
    return stages * e;
}

/* The exchanges of the last step have nothing beside them: the end of the run waits for them. */
static void forward_hides(void **state)
{
    (void)state;
    enum { STAGES = 8, N = 5 };
    static const struct {
        const char *method, *mesh, *key, *value;
        double (*waits)(int stages, double e, double f);
    } cases[] = {
        {"demo", "4x1", "demo.shape", "tile", waits_for},
        {"demo", "4x1", "demo.shape", "flat", waits_for},
        {"striding", "4x1", "striding.sign", "off", waits_for},
        {"every", "4x1", "every.n", "1", waits_for},
        {"demo", "2x2", "strategy.shard", "zero1", waits_for},
        {"flexdemo", "2x2", "demo.rate", "0.125", waits_ahead},
        {"random", "4x1", "random.rate", "0.0625", waits_for_all},
        {"demo", "4x1", "demo.message", "12M", waits_for_all}, /* of 17 MB */
    };
    static const double speeds[] = {1e8, 1e9, 1e11}; /* bytes a second */
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const int nodes = atoi(cases[i / 3].mesh);
        char speed[32];
        struct seen seen;
        snprintf(speed, sizeof speed, "%.0fB/s", speeds[i % 3]);
        const char *const links[] = {"link.inter", speed, NULL};
        run_on(links, WORKERS, nodes, cases[i / 3].method, cases[i / 3].mesh, cases[i / 3].key,
               cases[i / 3].value, N, &seen);
        const double own = speeds[i % 3] * nodes / WORKERS; /* workers of a node share it */
        const double e = (double)seen.cost.between / own / N / STAGES;
        const double f = step_seconds / 3 / STAGES;
        const double exposed = (N - 1) * cases[i / 3].waits(STAGES, e, f) + STAGES * e;
        near_to("exposed", cost_exposed(&seen.cost), exposed, 2e-3);
        near_to("seconds", seen.cost.seconds, N * step_seconds + exposed, 1e-3);
    }
}

/* Bytes of memory that a decoupled step touches of a parameter: g is measured; m twice and
 * g; Q; x twice. Of demo's coefficients, one in 250, those of each message: a value and a place
 * of 4 bytes, and in the message 4 and 1, to and fro. The others fill Q with zeros, and read it
 * again, as it is not stepped with while it is in the caches. To get at an element of m, and of Q,
 * a line of 64 bytes is read and written, or all of them; its value is written, read, and twice
 * made a sign of. random's places are written, read twice, and drawn. */
static void memory(void **state)
{
    (void)state;
    enum { N = 3 };
    const double all = 4 + 12 + 8 + 8, bits = ceil(log2(P)), draw = 24 * pow(2, bits) / P;
    const struct {
        const char *method, *key, *rate;
        double bytes;
    } cases[] = {{"demo", "demo.rate", "0.0001", 4 + 12 + 4 + 8 + (1 + WORKERS) * 18 / 250.},
                 {"striding", "striding.rate", "0.0001", all + 1e-4 * (4 * 64 + 16)},
                 {"striding", "striding.rate", "0.03125", all + (4 * 64 + 16) / 32.},
                 {"striding", "striding.rate", "0.25", all + 4 * 4 + 16 / 4.},
                 {"random", "random.rate", "0.0001", all + 1e-4 * (4 * 64 + 28 + draw)},
                 {"random", "random.rate", "0.03125", all + (4 * 64 + 28 + draw) / 32}};
    static const char *const links[] = {
        "worker.memory",    "1GB/s", "demo.chunk", "250", "demo.message", "0",
        "striding.message", "0",     NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen seen;
        run_on(links, WORKERS, 1, cases[i].method, "4x1", cases[i].key, cases[i].rate, N, &seen);
        near_to(cases[i].method, (seen.cost.seconds - N * step_seconds) / N / P * 1e9,
                cases[i].bytes, 2e-4);
    }
}

/* Groups whose workers are not equally fast wait where they meet, the fast ones for as long as the
 * slow one was behind: rounds are counted as the run is, by the slowest worker. */
static void rounds_add_up(void **state)
{
    (void)state;
    static const char *const links[] = {"worker.speed", "1,1,1,0.25", NULL};
    struct seen seen;
    run_on(links, WORKERS, 1, "local-sgd", "4x1", "tau", "4", 16, &seen);
    near_to("slowest", seen.slowest, 16 * 4 * step_seconds, 0.01);
    near_to("rounds", seen.seconds, seen.slowest, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap),
        cmocka_unit_test(exposed),
        cmocka_unit_test(automatic),
        cmocka_unit_test(diloco_bytes),
        cmocka_unit_test(the_cluster_is_nobodys),
        cmocka_unit_test(forward_hides),
        cmocka_unit_test(memory),
        cmocka_unit_test(rounds_add_up),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

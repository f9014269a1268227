/* Clocks of a run: totals are the slowest worker's, means are means, and nothing between rounds
 * counts. */
#include "train/fixture.h"

#include <time.h>

#include "train/report/report.h"
#include "train/run/run_worker.h"

enum { WORKERS = 4, STEPS = 12 };
#define STEP 0.050 /* seconds of a micro-batch at speed 1 */

static struct run_config configure(const char *out, const char *const *options)
{
    static const char *const basic[] = {
        "model.layers=2",  "model.width=32",    "model.heads=2",   "model.positions=16",
        "train.batch=2",   "train.log_every=1", "train.threads=1", "data.holdout=0",
        "train.workers=4", "train.steps=12",    "optim.warmup=0",
    };
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, SIZE_MAX);
    return c;
}

/* Values that the watcher saw, and the result. */
struct seen {
    double slowest[STEPS + 2], loss[STEPS + 2], share[STEPS + 2]; /* one run is a step longer */
    double pace[STEPS + 2];
    int told;
    bool alone;  /* rank 0 prints rounds without a report, too */
    double nap;  /* seconds, while rank 0 saves */
    int stop_at; /* a step; 0: no interruption */
    atomic_int stop;
    struct run_result result;
    struct worker_report worker[WORKERS];
    struct report report;
    char sentence[256];
};

static void on_step(void *arg, const struct run_step *s)
{
    struct seen *seen = arg;
    assert_true(s->report || seen->alone);
    seen->told++;
    assert_true(s->step == seen->told || seen->alone); /* in order, each once */
    seen->stop = seen->stop_at && s->step >= seen->stop_at;
    seen->slowest[s->step] = s->slowest;
    seen->loss[s->step] = s->round.loss;
    seen->share[s->step] = cost_exposed(&s->cost) / s->cost.seconds;
    seen->pace[s->step] = s->tokens_per_s;
}

static void on_saved(void *arg, int64_t step, const char *folder)
{
    const struct seen *seen = arg;
    const struct timespec nap = {0, (long)(seen->nap * 1e9)};
    (void)step, (void)folder;
    if (seen->nap > 0)
        nanosleep(&nap, NULL);
}

static void train(struct run_config *c, struct seen *seen)
{
    struct run run;
    struct run_watch watch = {.step = on_step, .saved = on_saved, .stop = &seen->stop, .arg = seen};
    assert_ok(run_open(&run, c, &watch));
    const enum sotto_status st = run_train(&run);
    assert_true(st == SOTTO_OK || (st == SOTTO_ESTOPPED && seen->stop_at));
    seen->result = run.result;
    seen->report = report_of(&run);
    report_sentence(&seen->report, seen->sentence, sizeof seen->sentence);
    memcpy(seen->worker, run.result.worker, (size_t)run.cluster.size * sizeof *seen->worker);
    seen->result.worker = NULL;
    run_close(&run);
}

static void assert_close(const char *what, double got, double want)
{
    if (!(fabs(got - want) < 1e-6))
        fail_with("%s: %.9g, not %.9g", what, got, want);
}

/* Rank 0 is not the slowest. Local SGD's fast workers wait at each of the boundaries, so at a step
 * between two of them the slowest worker alone has seen as much time as the run. */
static void a_straggler_counts(void **state)
{
    (void)state;
    static const char *const methods[] = {"strategy.preset=local-sgd", "strategy.preset=diloco",
                                          "strategy.preset=ddp"};
    for (int m = 0; m < 3; m++) {
        char out[32];
        struct seen seen = {0};
        snprintf(out, sizeof out, "slow.%d", m);
        struct run_config c =
            configure(out, (const char *[]){methods[m],
                                            m == 0   ? "tau=4"
                                            : m == 1 ? "H=4"
                                                     : "train.seed=1",
                                            "train.time=virtual", "worker.step=50ms",
                                            "worker.speed=1,1,1,0.5", NULL});
        train(&c, &seen);
        assert_close("seconds", seen.result.seconds, STEPS * 2 * STEP);
        assert_close("mean seconds", seen.report.cost.seconds, STEPS * 2 * STEP);
        assert_int_equal(seen.told, STEPS);
        for (int i = 1; i <= STEPS; i++) {
            assert_close("slowest", seen.slowest[i], i * 2 * STEP);
            assert_true(seen.share[i] <= 1);
        }
        assert_close("waiting", seen.worker[0].cost.waited_others, STEPS * STEP);
        assert_close("the straggler's waiting", seen.worker[3].cost.waited_others, 0);
        assert_close("for the wire", seen.worker[0].cost.waited_wire, 0);
        assert_int_equal(seen.report.slowest, 3);
        assert_close("slowness", seen.report.slowness, 2);
        assert_non_null(strstr(seen.sentence, "worker 3 computes 2 times slower"));
    }
}

/* co2 hides its exchange, so fast workers are ahead at the end: the run ends with the slowest. */
static void the_last_one_ends_the_run(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct run_config c =
        configure("co2", (const char *[]){"strategy.preset=co2", "tau=4", "train.time=virtual",
                                          "worker.step=50ms", "worker.speed=1,1,1,0.5", NULL});
    train(&c, &seen);
    assert_close("seconds", seen.result.seconds, STEPS * 2 * STEP);
    assert_true(seen.worker[0].cost.seconds < 0.9 * seen.result.seconds);
    double sum = 0;
    for (int r = 0; r < WORKERS; r++)
        sum += seen.worker[r].cost.seconds;
    assert_close("mean", seen.report.cost.seconds, sum / WORKERS);
    assert_close("at the last report", seen.slowest[STEPS], seen.result.seconds);
}

/* The training loss is that of all groups, also with methods whose groups differ. */
static void the_loss_is_everybodys(void **state)
{
    (void)state;
    struct seen one = {0}, four = {0};
    struct run_config c =
        configure("loss.1", (const char *[]){"strategy.preset=ddp", "train.time=virtual",
                                             "worker.step=1ms", "optim.lr=0", NULL});
    train(&c, &one);
    c = configure("loss.4",
                  (const char *[]){"strategy.preset=local-sgd", "tau=5", "train.time=virtual",
                                   "worker.step=1ms", "optim.lr=0", NULL});
    train(&c, &four);
    for (int i = 1; i <= STEPS; i++) /* parameters do not move, so that both have the same losses */
        assert_close("loss", four.loss[i], one.loss[i]);
    assert_close("the run's loss", four.result.loss, one.result.loss);
}

/* Rank 0 takes time for each checkpoint: other workers neither train nor wait meanwhile. */
static void saving_is_no_communication(void **state)
{
    (void)state;
    static const char *const methods[] = {"strategy.preset=ddp", "strategy.preset=acco"};
    enum { TRIES = 20 }; /* for a machine that keeps a worker from running meanwhile */
    for (int i = 0, m = 0; i < TRIES && m < 2; i++) {
        char out[32];
        struct seen seen = {.nap = 0.1};
        snprintf(out, sizeof out, "saves.%d", i);
        struct run_config c =
            configure(out, (const char *[]){methods[m], "train.workers=2", "train.steps=5",
                                            "train.save_every=1", NULL});
        train(&c, &seen);
        for (int r = 0; r < 2; r++) {
            const struct cost *cost = &seen.worker[r].cost;
            if (!(cost_exposed(cost) <= cost->seconds && cost->compute <= cost->seconds))
                fail_with("worker %d waited %g s and computed %g s of %g s", r, cost_exposed(cost),
                          cost->compute, cost->seconds);
        }
        const double more = seen.worker[1].cost.seconds - seen.worker[0].cost.seconds;
        m += more < 0.5 * 4 * seen.nap; /* after four of five saves there is a round to do */
        if (i == TRIES - 1 && m < 2)
            fail_with("%s: worker 1 trained %g s longer than rank 0", methods[m], more);
    }
}

/* A resumed run has the costs of an uninterrupted one, worker by worker; another number of workers
 * continues from the slowest worker's time. */
static struct run_config resumable(const char *preset, const char *folder, int steps, int nodes)
{
    char line[64];
    struct run_config c = configure(
        folder, (const char *const[]){"train.time=virtual", "worker.step=50ms",
                                      "worker.speed=1,1,1,0.5", "worker.jitter=0.2",
                                      "link.inter=2MB/s,1ms", "worker.memory=50MB/s", NULL});
    snprintf(line, sizeof line, "train.nodes=%d", nodes);
    set(&c, line);
    snprintf(line, sizeof line, "strategy.preset=%s", preset);
    set(&c, line);
    set(&c, "tau=3");
    snprintf(line, sizeof line, "train.steps=%d", steps);
    set(&c, line);
    return c;
}

static void costs_are_resumed(void **state)
{
    (void)state;
    const char *const presets[] = {"slowmo", "co2", "overlap-local-sgd"};
    EACH_SHARED(i, LEAP, 6) { /* exchanges in flight continue */
        char folder[2][32];
        struct seen whole = {0}, part = {0};
        snprintf(folder[0], sizeof *folder, "whole.%d", i);
        snprintf(folder[1], sizeof *folder, "part.%d", i);
        const int nodes = i % 2 ? 4 : 2;
        struct run_config c = resumable(presets[i % 3], folder[0], 12, nodes);
        set(&c, "train.save_every=6");
        train(&c, &whole);
        c = resumable(presets[i % 3], folder[1], i < 3 ? 6 : 12, nodes);
        part.stop_at = i < 3 ? 0 : 4; /* it ends, or is interrupted */
        train(&c, &part);
        part.stop_at = 0;
        part.stop = 0;
        set(&c, "train.steps=12");
        set(&c, "train.resume=true");
        part.told = (int)part.result.step;
        assert_true(part.told >= 4 && part.told < 12);
        train(&c, &part);
        for (int r = 0; r < WORKERS; r++) {
            const struct cost *p = &part.worker[r].cost, *w = &whole.worker[r].cost;
            assert_close("seconds", p->seconds, w->seconds);
            assert_close("waited", cost_exposed(p), cost_exposed(w));
            assert_close("wire", p->wire, w->wire);
            assert_int_equal(p->between, w->between);
            assert_int_equal(p->inside, w->inside);
            assert_true(w->inside != w->between && (nodes == 4) == (w->inside == 0));
        }
        for (int s = 1; s <= STEPS; s++) { /* the first line after a report, too */
            assert_close("share", part.share[s], whole.share[s]);
            assert_close("tokens/s", part.pace[s] / whole.pace[s], 1);
        }
    }
}

/* A fast rank 0 is far ahead of the mean worker: lines of rank 0 alone count from its own time,
 * from the start or from the last report or checkpoint. */
static void own_lines_count_from_own_time(void **state)
{
    (void)state;
    struct seen seen = {.alone = true};
    const double tokens = WORKERS * 2 * 16;
    struct run_config c = configure(
        "own", (const char *[]){"strategy.preset=local-sgd", "tau=100", "train.time=virtual",
                                "worker.step=50ms", "worker.speed=1,0.1", "train.log_every=4",
                                "train.steps=6", "model.positions=16", NULL});
    train(&c, &seen);
    seen.told = 6;
    set(&c, "train.steps=12");
    set(&c, "train.resume=true");
    train(&c, &seen);
    const int lines[] = {2, 5, 7, 11}; /* none of them reported */
    for (int i = 0; i < 4; i++) {
        const int s = lines[i];
        if (!(seen.share[s] >= 0 && seen.share[s] <= 1 &&
              fabs(seen.pace[s] * STEP / tokens - 1) < 1e-6))
            fail_with("step %d: waiting %g, %g tokens/s", s, seen.share[s], seen.pace[s]);
    }
}

static void others_go_on_from_the_slowest(void **state)
{
    (void)state;
    struct seen part = {0}, other = {0};
    struct run_config c = resumable("co2", "part", 12, 4);
    train(&c, &part);
    assert_true(part.worker[0].cost.seconds < part.result.seconds - 4 * STEP);
    set(&c, "train.steps=13");
    set(&c, "train.workers=2");
    set(&c, "train.nodes=2");
    set(&c, "worker.speed=1");
    set(&c, "train.resume=true");
    other.told = 12;
    train(&c, &other);
    assert_true(other.result.seconds > part.result.seconds + 0.5 * STEP);
}

/* A pause keeps every worker's lead over a straggler; the lead ends at an exchange. */
static void pauses_change_no_lead(void **state)
{
    (void)state;
    struct seen plain = {0}, pauses = {0};
    const char *const options[] = {"strategy.preset=local-sgd", "tau=6",
                                   "train.time=virtual",        "worker.step=50ms",
                                   "worker.jitter=0.2",         "worker.speed=1,1,1,0.5",
                                   "data.holdout=0.2",          NULL};
    struct run_config c = configure("lead.0", options);
    train(&c, &plain);
    c = configure("lead.1", options);
    set(&c, "train.eval_every=3");
    set(&c, "train.save_every=5");
    train(&c, &pauses);
    for (int r = 0; r < WORKERS; r++)
        assert_close("seconds", pauses.worker[r].cost.seconds, plain.worker[r].cost.seconds);
    assert_true(plain.worker[0].cost.waited_others > 4 * STEP);
}

/* A pause does not shorten an exchange in flight in a lane: the rest of the exchange takes place
 * after the pause, and messages of evaluations and checkpoints take nothing from it. */
static void pauses_hide_nothing(void **state)
{
    (void)state;
    static const char *const methods[] = {"strategy.preset=co2",
                                          "strategy.preset=overlap-local-sgd"};
    static const char *const every[][3] = {
        {"train.eval_every=1", "train.save_every=100", "train.steps=12"},
        {"train.eval_every=100", "train.save_every=2", "train.steps=11"},
        {"train.eval_every=4", "train.save_every=1", "train.steps=10"}};
    EACH_SHARED(i, LEAP, 6) {
        struct seen plain = {0}, pauses = {0};
        char folder[2][32];
        const char *const options[] = {methods[i / 3],       "tau=3",
                                       "train.time=virtual", "worker.step=50ms",
                                       "train.nodes=4",      "link.inter=100kB/s,1ms",
                                       "data.holdout=0.2",   NULL};
        snprintf(folder[0], sizeof folder[0], "hide.%d", i);
        snprintf(folder[1], sizeof folder[1], "hides.%d", i);
        struct run_config c = configure(folder[0], options);
        set(&c, every[i % 3][2]);
        train(&c, &plain);
        c = configure(folder[1], options);
        set(&c, every[i % 3][2]);
        set(&c, every[i % 3][0]);
        set(&c, every[i % 3][1]);
        train(&c, &pauses);
        const struct cost *a = &plain.worker[0].cost, *b = &pauses.worker[0].cost;
        assert_true(a->waited_wire > 2 * STEP);
        assert_close("seconds", b->seconds, a->seconds);
        assert_close("wire", b->wire, a->wire);
        assert_close("waited", b->waited_wire, a->waited_wire);
        assert_true(fabs(b->seconds - b->compute - cost_exposed(b)) < 1e-6);
    }
}

/* Examples are padded to the longest of their micro-batch: shorter ones take less time. */
static void short_batches_take_less(void **state)
{
    (void)state;
    enum { EXAMPLES = 30 };
    char text[EXAMPLES * 300] = "";
    struct seen seen = {0};
    for (int i = 0; i < EXAMPLES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"instruction\": \"count\", \"output\": \"%.*s\"}\n", 3 + 7 * (i % 9),
                 "one two three four five six seven eight nine ten eleven twelve thirteen");
    assert_ok(file_write(at("tasks.jsonl"), text, strlen(text)));
    struct run_config c =
        configure("short", (const char *[]){"train.workers=1", "train.steps=4", "data.vocab=300",
                                            "model.positions=400", "data.format=instruct",
                                            "train.time=virtual", "worker.step=50ms", NULL});
    snprintf(c.data.train, sizeof c.data.train, "%s", at("tasks.jsonl"));
    train(&c, &seen);
    const double whole = 4 * 2 * 400; /* tokens */
    assert_true((double)seen.result.tokens < 0.9 * whole);
    assert_close("seconds", seen.result.seconds, 4 * STEP * (double)seen.result.tokens / whole);
}

/* All of a worker's time is known: it computes, updates, or waits. */
static void times_add_up(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp",  "zero1",   "fsdp",     "dpu",
                                          "acco", "acco-wp", "slowmo",   "overlap-local-sgd",
                                          "co2",  "diloco",  "local-sgd"};
    EACH_SHARED(m, LEAP, 2 * (sizeof methods / sizeof *methods)) {
        char preset[64], out[32];
        struct seen seen = {0};
        snprintf(preset, sizeof preset, "strategy.preset=%s", methods[m / 2]);
        snprintf(out, sizeof out, "adds.%d", (int)m);
        struct run_config c = configure(
            out, (const char *[]){preset, m % 2 ? "strategy.precision=mixed" : "optim.clip=1",
                                  "train.time=virtual", "worker.step=50ms", "worker.memory=20MB/s",
                                  "worker.jitter=0.1", "worker.speed=1,1,1,0.5",
                                  "train.save_every=5", NULL});
        snprintf(c.link.intra, sizeof c.link.intra, "10MB/s,1ms");
        if (strstr(preset, "diloco"))
            set(&c, "H=3");
        else if (m / 2 >= 6)
            set(&c, "tau=3");
        train(&c, &seen);
        /* Whose own line does nothing but compute: no gradient is copied for the lane. */
        const bool beside = m % 2 == 0 && (m / 2 == 3 || m / 2 == 5);
        for (int r = 0; r < WORKERS; r++) {
            const struct cost *k = &seen.worker[r].cost;
            assert_true(k->update > 0 || beside);
            assert_close(preset, k->compute + k->update + cost_exposed(k), k->seconds);
        }
    }
}

/* Reports of four workers with ten micro-batches of `seconds` each; 0: no micro-batch. */
static struct report report_four(const struct strategy_config *strategy, const double seconds[4],
                                 struct cost each)
{
    static struct run run;
    struct worker_report worker[4] = {0};
    for (int i = 0; i < 4; i++) {
        worker[i].cost = each;
        worker[i].cost.microbatches = seconds[i] > 0 ? 10 : 0;
        worker[i].cost.compute = 10 * seconds[i];
    }
    run.config.strategy = *strategy;
    run.cluster.size = 4;
    run.result.worker = worker;
    return report_of(&run);
}

/* The arithmetic of reports, where nothing was computed or sent, at ties and at bounds. */
static void reports(void **state)
{
    (void)state;
    static const struct {
        double seconds[4];
        int slowest;
        double slowness;
    } table[] = {
        {{0, 0, 1, 3}, 3, 3}, {{0, 2, 2, 2}, 1, 1}, {{1, 3, 3, 2}, 1, 1.5},
        {{0, 0, 0, 0}, 0, 1}, {{0, 0, 5, 0}, 2, 1}, {{4, 1, 1, 2}, 0, 4},
    };
    struct strategy_config any;
    strategy_defaults(&any);
    assert_ok(strategy_resolve(&any, 4));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct report r = report_four(&any, table[i].seconds, (struct cost){0});
        assert_int_equal(r.slowest, table[i].slowest);
        assert_true(r.slowness == table[i].slowness);
        assert_true(isnan(r.overlap) && r.exposed_share == 0);
    }
    char text[256];
    const double even[4] = {1, 3, 3, 2}; /* 1.5 times the median is of one kind */
    struct report r = report_four(&any, even,
                                  (struct cost){.seconds = 8,
                                                .wire = 4,
                                                .waited_wire = 1,
                                                .waited_others = 2,
                                                .inside = 5,
                                                .between = 5});
    assert_true(r.overlap == 0.75 && r.exposed_share == 3.0 / 8);
    report_sentence(&r, text, sizeof text);
    assert_string_equal(text, "workers waited 2 s for each other; the wire took 4 s, 3 s of it "
                              "hidden (means over workers)");
    r = report_four(&any, even, (struct cost){.seconds = 8});
    report_sentence(&r, text, sizeof text);
    assert_string_equal(text, "workers waited 0 s for each other; nothing was sent");
    const struct cost none = cost_mean(&(struct cost_joint){0});
    assert_true(none.seconds == 0 && none.inside == 0);
}

/* A worker with a stage of more work than other stages is no straggler. */
static void parts_of_a_model(void **state)
{
    (void)state;
    static const char *const placements[] = {"cdp.placement=dp", "cdp.placement=pp"};
    for (int i = 0; i < 2; i++) {
        struct run_config c =
            configure("parts", (const char *[]){"strategy.preset=cdp", placements[i], NULL});
        assert_ok(strategy_resolve(&c.strategy, 4));
        const struct report r =
            report_four(&c.strategy, (const double[4]){1, 1, 1, 3}, (struct cost){0});
        assert_true(r.slowness == (i ? 1 : 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straggler_counts),
        cmocka_unit_test(the_last_one_ends_the_run),
        cmocka_unit_test(the_loss_is_everybodys),
        cmocka_unit_test(saving_is_no_communication),
        cmocka_unit_test(costs_are_resumed),
        cmocka_unit_test(own_lines_count_from_own_time),
        cmocka_unit_test(others_go_on_from_the_slowest),
        cmocka_unit_test(times_add_up),
        cmocka_unit_test(reports),
        cmocka_unit_test(parts_of_a_model),
        cmocka_unit_test(pauses_change_no_lead),
        cmocka_unit_test(pauses_hide_nothing),
        cmocka_unit_test(short_batches_take_less),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}

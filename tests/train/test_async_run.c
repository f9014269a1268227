/* Runs with asynchronous DiLoCo: what repeats, is saved, resumed, cut short or replayed ends with
 * the same bits, parameters and state; what they count and tell; how they end. */
#include "train/fixture.h"

#include "base/json.h"
#include "base/log.h"
#include "strategy/async/journal.h"
#include "train/run/run_worker.h"

enum { K = 4, T = 20, BATCH = 2, LOG = 4 };

static const char *const on_threads[] = {"train.time=real", NULL};
static const char *const in_virtual_time[] = {"train.time=virtual", "worker.speed=1,0.9,0.7,0.25",
                                              "worker.step=10ms", "worker.memory=10GB/s", NULL};

/* `more`: up to a NULL. */
static struct run_config configure(const char *out, const char *const *where,
                                   const char *const *more)
{
    static const char *const basic[] = {
        "model.layers=1",    "model.width=16",       "model.heads=2",    "model.positions=16",
        "train.batch=2",     "train.log_every=4",    "train.threads=1",  "train.eval_every=5",
        "optim.lr=0.01",     "train.eval_batches=2", "data.holdout=0.1", "train.keep=0",
        "train.workers=4",   "async-diloco.H=3",     "optim.warmup=3",   "train.steps=20",
        "train.save_every=0"};
    struct run_config c = configure_run(out);
    strcpy(c.strategy.preset, "async-diloco");
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, where, 16);
    set_all(&c, more, 16);
    c.train.resume = true;
    return c;
}

static struct run_result train(const struct run_config *config)
{
    struct run run;
    struct run_config c = *config;
    assert_ok(run_open(&run, &c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    struct run_result result = run.result;
    result.worker = NULL;
    run_close(&run);
    return result;
}

static struct run_result train_as(const char *out, const char *const *where,
                                  const char *const *more)
{
    const struct run_config c = configure(out, where, more);
    return train(&c);
}

static void whole(const char *what, const struct run_result *r, int64_t groups, int64_t steps)
{
    const int64_t samples = groups * steps * BATCH;
    if (!r->complete || r->step != steps || r->samples != samples || r->tokens != samples * 16)
        fail_with("%s: %s at step %lld, %lld samples, %lld tokens", what,
                  r->complete ? "complete" : "cut short", (long long)r->step, (long long)r->samples,
                  (long long)r->tokens);
}

static void same(const char *what, const struct run_result *a, const struct run_result *b)
{
    if (a->hash != b->hash)
        fail_with("%s: it ends elsewhere", what);
    if (isnan(a->cosine) ? !isnan(b->cosine) : a->cosine != b->cosine)
        fail_with("%s: cosines of %.17g and %.17g", what, a->cosine, b->cosine);
}

/* Lines that have the key, each of a step behind the one before it; *sum of another key of theirs.
 */
static int lines(const char *out, const char *key, const char *also, double *sum)
{
    char path[FILE_PATH_ROOM], line[4096];
    int n = 0;
    double step = 0;
    assert_ok(file_join(path, at(out), "metrics.jsonl"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *sum = 0;
    while (fgets(line, sizeof line, f)) {
        json_t *o;
        assert_ok(json_parse(&o, line, strlen(line) - 1, path));
        if (json_object_get(o, key)) {
            const double now = json_number_value(json_object_get(o, "step"));
            if (now <= step)
                fail_with("%s: %s of step %g behind that of step %g", out, key, now, step);
            if (!json_is_number(json_object_get(o, also)))
                fail_with("%s: step %g has no %s", out, now, also);
            *sum += json_number_value(json_object_get(o, also));
            step = now;
            n++;
        }
        json_decref(o);
    }
    fclose(f);
    return n;
}

static void told(const char *out, int trained, int evaluated, double times)
{
    double last, seconds;
    const int n = lines(out, "train/loss", "async/pushes", &last);
    const int e = lines(out, "eval/loss", "time/seconds", &seconds);
    if (n != trained || e != evaluated || last < trained || !(fabs(seconds - times) < 1e-6))
        fail_with("%s: %d lines of training, %d of evaluations at %.12g s, not %.12g", out, n, e,
                  seconds, times);
}

static const char *const rules[][6] = {
    {NULL},
    {"async-diloco.dylu=true", "async-diloco.staleness=true", "async-diloco.cosine=true",
     "async-diloco.dtype=bf16", NULL},
    {"async-diloco.grace=0.02", "async-diloco.outer=nesterov", NULL},
    {"strategy.shard=zero1", "strategy.mesh=2x2", "async-diloco.prune=0.5",
     "async-diloco.dtype=bf16", "async-diloco.cosine=true", NULL},
    {"strategy.shard=fsdp", "strategy.mesh=2x2", "async-diloco.dtype=bf16", NULL},
};
enum { RULES = sizeof rules / sizeof *rules, GRACE = 2 };

/* Leaves checkpoints of the first `keep` of them. */
static int cut(const char *out, int keep)
{
    char path[FILE_PATH_ROOM];
    int n = 0;
    for (int step = 0; step <= T; step++) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d", at(out), step);
        if (!file_exists(path))
            continue;
        if (n++ >= keep)
            assert_ok(file_remove_tree(path));
    }
    return n;
}

/* The same bits again without evaluations, with saves, and from saves on: every other one of each
 * rule. */
static void repeats(void **state)
{
    (void)state;
    for (int i = 0; i < RULES; i++) {
        char out[32];
        struct run_config c;
        double seconds;
        snprintf(out, sizeof out, "once.%d", i);
        const struct run_result once = train_as(out, in_virtual_time, rules[i]);
        whole(out, &once, K, T);
        if ((i % 2 == 1) != (once.cosine > -1 && once.cosine < 1))
            fail_with("%s: a cosine of %g", out, once.cosine);
        lines(out, "eval/loss", "time/seconds", &seconds);
        told(out, T / LOG, T / 5, seconds);
        snprintf(out, sizeof out, "twice.%d", i);
        c = configure(out, in_virtual_time, rules[i]);
        c.train.eval_every = 0;
        const struct run_result twice = train(&c);
        same(out, &once, &twice);
        if (!(fabs(once.seconds - twice.seconds) < 1e-12)) /* of a clock that is further on */
            fail_with("%s: %g s, and %g s without evaluations", out, once.seconds, twice.seconds);
        snprintf(out, sizeof out, "saved.%d", i);
        c = configure(out, in_virtual_time, rules[i]);
        c.train.save_every = i % 2 ? 4 : 5; /* which may be where an evaluation is due, too */
        const struct run_result saved = train(&c);
        same(out, &once, &saved);
        const int evaluated = lines(out, "eval/loss", "time/seconds", &seconds);
        const int saves = cut(out, T);
        assert_true(saves >= 4);
        for (int k = saves - 1 - i % 2; k >= 1; k -= 2) {
            cut(out, k);
            const struct run_result resumed = train(&c);
            same(out, &once, &resumed);
            whole(out, &resumed, K, T);
            told(out, T / LOG, evaluated, seconds);
        }
    }
}

static void same_model(const char *a, const char *b)
{
    const char *out[] = {a, b};
    char path[FILE_PATH_ROOM], *text[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        assert_ok(file_join(path, at(out[i]), "model.safetensors"));
        assert_ok(file_read(path, 1 << 20, &text[i], &size[i]));
    }
    if (size[0] != size[1] || memcmp(text[0], text[1], size[0]) != 0)
        fail_with("%s and %s: other parameters", a, b);
    free(text[0]);
    free(text[1]);
}

/* What the order of pushes was decided by is not repeated, but the order is. */
static void replayed(void **state)
{
    (void)state;
    for (int i = 0; i < RULES; i++) {
        char first[32], out[32], option[OPTION_ROOM];
        snprintf(first, sizeof first, "threads.%d", i);
        const struct run_result by_time = train_as(first, on_threads, rules[i]);
        whole(first, &by_time, K, T);
        snprintf(option, sizeof option, "async-diloco.replay=%s/pushes.tsv", at(first));
        for (int j = 0; j < 2; j++) {
            snprintf(out, sizeof out, "replayed.%d.%d", i, j);
            struct run_config c = configure(out, j ? in_virtual_time : on_threads, rules[i]);
            set(&c, option);
            const struct run_result again = train(&c);
            same_model(first, out);
            if (again.hash != by_time.hash && i != GRACE) /* when groups left is not written */
                fail_with("%s: it ends elsewhere", out);
        }
    }
}

/* Rounds that go by time, which repeats itself where it is virtual. From a save on a run goes on
 * to the same bits, and one between threads is followed by its two files. */
static void elastic(void **state)
{
    (void)state;
    static const char *const acco[] = {"strategy.shard=acco", "strategy.mesh=2x2",
                                       "worker.jitter=0.1",   "link.intra=200MB/s,20us",
                                       "train.nodes=2",       "link.inter=100Mbit/s,1ms",
                                       "train.save_every=5",  NULL};
    static const char *const threads[] = {"strategy.shard=acco", "strategy.mesh=2x2", NULL};
    char pushes[OPTION_ROOM], counts[OPTION_ROOM];
    struct run_config c = configure("acco", in_virtual_time, acco);
    const struct run_result once = train(&c);
    assert_true(once.complete && once.step == T);
    assert_true(once.samples > 2 * K * T * BATCH && once.tokens == 16 * once.samples);
    const int saves = cut("acco", T);
    assert_true(saves >= 4);
    for (int k = saves - 1; k >= 1; k -= 2) {
        cut("acco", k);
        const struct run_result resumed = train(&c);
        same("acco, resumed", &once, &resumed);
        assert_int_equal(resumed.samples, once.samples);
    }
    const struct run_result twice = train_as("acco.again", in_virtual_time, acco);
    same("acco, again", &once, &twice);
    const struct run_result by_time = train_as("acco.threads", on_threads, threads);
    snprintf(pushes, sizeof pushes, "async-diloco.replay=%s/pushes.tsv", at("acco.threads"));
    snprintf(counts, sizeof counts, "acco.replay=%s/counts.tsv", at("acco.threads"));
    c = configure("acco.replayed", in_virtual_time, acco);
    set(&c, pushes);
    set(&c, counts);
    const struct run_result again = train(&c);
    same("acco, replayed", &by_time, &again);
    same_model("acco.threads", "acco.replayed");
    struct run run;
    c = configure("acco.samples", in_virtual_time, acco);
    set(&c, "train.steps=-1");
    set(&c, "train.samples=100");
    assert_fails(run_open(&run, &c, &(struct run_watch){0}), SOTTO_EINVAL,
                 "train.samples does not give the number of steps of acco x async-diloco");
}

/* Each round ends a task, makes an evaluation due, and is where all are asked to meet. */
static void meets_and_evaluates(void **state)
{
    (void)state;
    static const char *const often[] = {"async-diloco.H=1", "train.eval_every=1",
                                        "train.save_every=1", NULL};
    const struct run_result a = train_as("often", in_virtual_time, often);
    const struct run_result b = train_as("again", in_virtual_time, often);
    same("often", &a, &b);
    whole("often", &a, K, T);
    const struct run_result c = train_as("often.threads", on_threads, often);
    whole("often.threads", &c, K, T);
}

/* Evaluations and saves by time, in addition to those by steps; also before the first push. */
static void by_the_clock(void **state)
{
    (void)state;
    static const char *const timed[] = {"train.eval_every=0", "train.eval_seconds=0.06",
                                        "train.save_every=3", NULL};
    static const char *const busy[] = {"async-diloco.H=20", "train.save_minutes=1e-5",
                                       "train.eval_seconds=0.001", "train.save_every=1", NULL};
    double seconds, last;
    struct run_config c = configure("timed", in_virtual_time, timed);
    const struct run_result once = train(&c);
    whole("timed", &once, K, T);
    const int evaluated = lines("timed", "eval/loss", "time/seconds", &seconds);
    const int saves = cut("timed", T);
    if (evaluated < (int)(once.seconds / 0.09) || evaluated > 1 + (int)(once.seconds / 0.06))
        fail_with("%d evaluations in %g s", evaluated, once.seconds);
    for (int k = saves - 1; k >= 1; k--) {
        cut("timed", k);
        const struct run_result resumed = train(&c);
        same("timed, resumed", &once, &resumed);
        if (lines("timed", "eval/loss", "time/seconds", &last) != evaluated ||
            !(fabs(last - seconds) < 1e-6))
            fail_with("from save %d: evaluations at %g s in all, not %g", k, last, seconds);
        assert_int_equal(cut("timed", T), saves);
    }
    const struct run_result threads = train_as("timed.threads", on_threads, busy);
    whole("timed.threads", &threads, K, T);
}

/* Steps of saves follow each other, and there are not more of them than pushes. */
struct saves_seen {
    int64_t step;
    int saves;
};

static void see_save(void *arg, int64_t step, const char *folder)
{
    struct saves_seen *seen = arg;
    (void)folder;
    if (step <= seen->step || seen->saves++ > K * T)
        fail_with("save %d at step %lld, behind one at step %lld", seen->saves, (long long)step,
                  (long long)seen->step);
    seen->step = step;
}

/* Where a save is due more often than a push takes over the links, pushes that a meeting has put
 * off are applied before the next one: the run ends, and it does so from each save on. */
static void saves_between_pushes(void **state)
{
    (void)state;
    static const char *const often[] = {"train.nodes=4", "link.inter=1MB/s,20ms",
                                        "train.save_every=1", NULL};
    struct saves_seen seen = {.step = -1};
    struct run run;
    struct run_config c = configure("often.links", in_virtual_time, often);
    assert_ok(run_open(&run, &c, &(struct run_watch){.saved = see_save, .arg = &seen}));
    assert_ok(run_train(&run));
    const struct run_result once = run.result;
    run_close(&run);
    whole("often.links", &once, K, T);
    const int saves = cut("often.links", T);
    assert_true(saves >= 4 && saves == seen.saves);
    for (int k = saves - 1; k >= 1; k -= 2) {
        cut("often.links", k);
        const struct run_result resumed = train(&c);
        same("often.links, resumed", &once, &resumed);
    }
}

/* A task that is longer than the run, and one group, which waits for nobody. */
static void small(void **state)
{
    (void)state;
    static const char *const brief[] = {"train.steps=2", "async-diloco.H=50", NULL};
    static const char *const alone[] = {"train.workers=1", "worker.speed=1", "train.save_every=4",
                                        NULL};
    const struct run_result a = train_as("brief", in_virtual_time, brief);
    whole("brief", &a, K, 2);
    const struct run_result b = train_as("alone", in_virtual_time, alone);
    whole("alone", &b, 1, T);
    cut("alone", 2);
    const struct run_result c = train_as("alone", in_virtual_time, alone);
    same("alone", &b, &c);
    whole("alone", &c, 1, T);
}

/* A length in samples is one in steps, also from the middle of tasks on. */
static void samples(void **state)
{
    (void)state;
    static const char *const counted[] = {"train.steps=-1", "train.samples=160", NULL};
    static const char *const saving[] = {"train.save_every=3", NULL};
    const struct run_result want = train_as("steps", in_virtual_time, saving);
    struct run_config c = configure("samples", in_virtual_time, counted);
    c.train.save_every = 3;
    const struct run_result through = train(&c);
    same("samples", &want, &through);
    for (int k = cut("samples", T) - 1; k >= 1; k -= 2) {
        cut("samples", k);
        const struct run_result resumed = train(&c);
        same("samples, resumed", &want, &resumed);
    }
}

/* The time that is given ends a run, which is complete then; more of it goes on. */
static void seconds(void **state)
{
    (void)state;
    static const char *const most[] = {"train.steps=100000", "train.seconds=0.2", NULL};
    static const char *const alone[] = {"train.steps=-1", "train.seconds=0.2", NULL};
    struct run run;
    struct run_config c = configure("time", in_virtual_time, most);
    const struct run_result a = train(&c);
    if (!a.complete || a.seconds < 0.2 || a.seconds > 0.3 || a.evaluation.targets == 0)
        fail_with("0.2 s end after %g s, %scomplete", a.seconds, a.complete ? "" : "in");
    const struct run_result b = train(&c);
    assert_true(b.complete && b.rounds == 0 && b.hash == a.hash);
    c.train.seconds = 0.3;
    const struct run_result more = train(&c);
    assert_true(more.complete && more.step > a.step && more.seconds >= 0.3 && more.seconds < 0.4);
    c = configure("time.alone", in_virtual_time, alone);
    assert_fails(run_open(&run, &c, &(struct run_watch){0}), SOTTO_EINVAL,
                 "train.seconds = 0.2 alone does not give the number of steps of ddp x "
                 "async-diloco");
    c = configure("time.alone", in_virtual_time, alone);
    set(&c, "optim.schedule=constant");
    assert_true(train(&c).complete);
    c = configure("time.threads", on_threads, most);
    assert_true(train(&c).complete);
}

static void as_ddp(struct run_config *c)
{
    const struct run_config none = configure_run("none");
    c->strategy = none.strategy;
    strcpy(c->strategy.preset, "ddp");
}

/* Behind another method all data shards go on where that was, to the same step: nothing is trained
 * on again, and the place survives. */
static void behind(void **state)
{
    (void)state;
    static const char *const ddp[] = {"train.steps=10", NULL};
    static const char *const saving[] = {"train.save_every=4", NULL};
    struct async_journal journal;
    char path[FILE_PATH_ROOM];
    double samples;
    struct run_config c = configure("behind", in_virtual_time, ddp);
    as_ddp(&c);
    train(&c);
    c = configure("behind", in_virtual_time, saving);
    const struct run_result once = train(&c);
    whole("behind", &once, K, T);
    assert_int_equal(once.rounds, T - 10);
    assert_ok(file_join(path, at("behind"), "pushes.tsv"));
    assert_ok(journal_read(&journal, path, K));
    for (int64_t i = 0; i < journal.n; i++)
        if (journal.entry[i].span.first < 10)
            fail_with("push %lld: step %lld again", (long long)i,
                      (long long)journal.entry[i].span.first);
    journal_free(&journal);
    const int n = lines("behind", "async/pushes", "train/samples", &samples);
    if (samples < n * K * 10 * BATCH || samples > n * K * T * BATCH)
        fail_with("%g samples in %d lines", samples, n);
    for (int k = cut("behind", T) - 1; k >= 2; k--) {
        cut("behind", k);
        const struct run_result resumed = train(&c);
        same("behind, resumed", &once, &resumed);
    }
}

/* One group whose pushes are its parameters trains as if it had been alone, with the same data at
 * the same rates. */
static void behind_exactly(void **state)
{
    (void)state;
    static const char *const alone[] = {"train.workers=1",
                                        "worker.speed=1",
                                        "optim.schedule=constant",
                                        "async-diloco.outer=sgd",
                                        "async-diloco.outer_lr=1",
                                        "async-diloco.weight=1",
                                        NULL};
    struct run_config c = configure("plain", in_virtual_time, alone);
    as_ddp(&c);
    const struct run_result want = train(&c);
    strcpy(c.train.out, at("handed"));
    c.train.steps = 10;
    train(&c);
    c = configure("handed", in_virtual_time, alone);
    const struct run_result got = train(&c);
    if (!(fabs(got.evaluation.loss - want.evaluation.loss) < 1e-5))
        fail_with("a loss of %.9g, not %.9g", got.evaluation.loss, want.evaluation.loss);
}

struct heard {
    const char *part;
    int times;
};

static void hear(enum log_level level, const char *line, void *arg)
{
    struct heard *h = arg;
    h->times += level == LOG_WARN && strstr(line, h->part);
}

/* Trains and wants a warning that has `part`, once; NULL: none of tasks, pushes or groups. */
static struct run_result warned(const struct run_config *c, const char *part)
{
    struct heard h = {part ? part : "push", 0};
    log_set(hear, &h);
    const struct run_result r = train(c);
    log_set(NULL, NULL);
    if (h.times != (part ? 1 : 0))
        fail_with("'%s' was said %d times", h.part, h.times);
    return r;
}

/* Steps of all pushes of a run; *pushes: how many. */
static int64_t steps_pushed(const char *out, int64_t *pushes)
{
    struct async_journal journal;
    char path[FILE_PATH_ROOM];
    int64_t steps = 0;
    assert_ok(file_join(path, at(out), "pushes.tsv"));
    assert_ok(journal_read(&journal, path, K));
    *pushes = journal.n;
    for (int64_t i = 0; i < journal.n; i++)
        steps += journal.entry[i].span.steps;
    journal_free(&journal);
    return steps;
}

/* The end of the time cuts tasks short: what was trained of them is in the model, counted, and not
 * trained again by a run that goes on. */
static void late(void **state)
{
    (void)state;
    static const char *const shard[][4] = {{NULL},
                                           {"strategy.shard=fsdp", "strategy.mesh=2x2", NULL},
                                           {"async-diloco.grace=0.02", NULL},
                                           {"async-diloco.dylu=true", NULL}};
    static const char *const most[] = {"train.seconds=0.2", "train.steps=1000", NULL};
    static const char *const time_alone[] = {"train.seconds=0.2", "optim.schedule=constant", NULL};
    int64_t pushes;
    for (int i = 0; i < 4; i++)
        for (int H = 3; H < 1001; H += 997) {
            char out[32];
            const int groups = i == 1 ? 2 : K;
            snprintf(out, sizeof out, "late.%d.%d", i, H);
            struct run_config c = configure(out, in_virtual_time, shard[i]);
            set_all(&c, i == 2 ? time_alone : most, 16);
            if (i == 2)
                c.train.steps = -1;
            if (H > 3)
                set(&c, "async-diloco.H=1000");
            const struct run_result a = warned(&c, NULL);
            const int64_t steps = steps_pushed(out, &pushes);
            if (!a.complete || a.step != steps / groups ||
                a.samples != steps * BATCH * K / groups || pushes < groups)
                fail_with("%s: step %lld, %lld samples, of %lld steps in %lld pushes", out,
                          (long long)a.step, (long long)a.samples, (long long)steps,
                          (long long)pushes);
            c.train.seconds = 0;
            c.train.steps = 2 * T;
            const struct run_result all = warned(&c, NULL);
            whole(out, &all, K, 2 * T);
            assert_int_equal(steps_pushed(out, &pushes), 2 * T * groups);
        }
}

/* Warnings, metrics and the report say what is so. */
static void tells(void **state)
{
    (void)state;
    static const char *const rare[] = {"train.steps=2", "async-diloco.H=50", NULL};
    char path[FILE_PATH_ROOM], *text;
    double sum;
    int64_t pushes;
    struct run_config c = configure("rare", in_virtual_time, rare);
    warned(&c, "H = 50 is more than the 2 steps of this run: each group pushes once");
    c = configure("tells", in_virtual_time, NULL);
    warned(&c, NULL);
    assert_int_equal(lines("tells", "train/grad_norm", "step", &sum), 0);
    const int n = lines("tells", "async/idle", "async/idle", &sum);
    assert_true(n > 0 && sum >= 0 && sum < n);
    assert_int_equal(steps_pushed("tells", &pushes), K * T);
    assert_ok(file_join(path, at("tells"), "report.json"));
    assert_ok(file_read_text(path, 1 << 20, &text));
    json_t *report, *group;
    assert_ok(json_parse(&report, text, strlen(text), path));
    free(text);
    assert_int_equal(json_integer_value(json_object_get(report, "pushes")), pushes);
    const double idle = json_number_value(json_object_get(report, "idle"));
    assert_true(idle >= 0 && idle < 1);
    assert_true(json_number_value(json_object_get(report, "staleness")) > 0);
    size_t i;
    int64_t steps = 0;
    json_array_foreach(json_object_get(report, "by_group"), i, group)
    {
        steps += json_integer_value(json_object_get(group, "steps"));
        pushes -= json_integer_value(json_object_get(group, "pushes"));
        assert_true(json_is_number(json_object_get(group, "staleness")));
        assert_true(json_is_number(json_object_get(group, "idle")));
    }
    assert_true(i == K && steps == K * T && pushes == 0);
    json_decref(report);
    c = configure("waits", in_virtual_time, (const char *[]){"async-diloco.grace=0.02", NULL});
    warned(&c, NULL); /* groups wait for those that push 20 ms later */
    assert_true(lines("waits", "async/idle", "async/idle", &sum) > 0 && sum > 0.1);
}

/* Time that ends in the middle of a task does not cut the tasks of a run that follows another one:
 * its pushes are the first of that one's, and the rest follow when there is time. */
static void replay_in_time(void **state)
{
    (void)state;
    struct async_journal all, part;
    char option[OPTION_ROOM], path[2][FILE_PATH_ROOM];
    struct run_config c = configure("all", in_virtual_time, NULL);
    const struct run_result once = train(&c);
    assert_ok(file_join(path[0], at("all"), "pushes.tsv"));
    assert_ok(file_join(path[1], at("in.time"), "pushes.tsv"));
    snprintf(option, sizeof option, "async-diloco.replay=%s/pushes.tsv", at("all"));
    c = configure("in.time", in_virtual_time,
                  (const char *[]){option, "train.seconds=0.095", NULL});
    const struct run_result brief = train(&c);
    assert_true(brief.step > 0 && brief.step < T);
    assert_ok(journal_read(&all, path[0], K));
    assert_ok(journal_read(&part, path[1], K));
    assert_true(part.n > 0 && part.n < all.n);
    assert_memory_equal(part.entry, all.entry, (size_t)part.n * sizeof *part.entry);
    journal_free(&all);
    journal_free(&part);
    c.train.seconds = 0;
    const struct run_result rest = train(&c);
    same("in time", &once, &rest);
}

/* The first checkpoint of a run, and what its folder has then. */
struct first_save {
    int64_t step; /* 0: none yet */
    bool follows; /* both files by which a run is followed */
};

static void on_save(void *arg, int64_t step, const char *folder)
{
    struct first_save *first = arg;
    (void)folder;
    if (first->step > 0)
        return;
    first->step = step;
    first->follows = file_exists(at("middle/counts.tsv")) && file_exists(at("middle/pushes.tsv"));
}

/* Groups whose rounds go by time leave both files with each checkpoint. It has the evaluation
 * before it, which a run tells that has nothing left to do. */
static void middle(void **state)
{
    (void)state;
    static const char *const saving[] = {"strategy.shard=acco", "strategy.mesh=2x2",
                                         "train.save_every=5", "train.eval_every=3", NULL};
    struct first_save first = {0};
    struct run run;
    struct run_config c = configure("middle", in_virtual_time, saving);
    assert_ok(run_open(&run, &c, &(struct run_watch){.saved = on_save, .arg = &first}));
    assert_ok(run_train(&run));
    run_close(&run);
    assert_true(first.step > 0 && first.step < T && first.follows);
    cut("middle", 1);
    c = configure("middle", in_virtual_time, saving);
    c.train.steps = first.step;
    const struct run_result done = train(&c);
    assert_true(done.rounds == 0 && done.step == first.step);
    assert_true(done.evaluation.targets > 0 && done.evaluation.loss > 0);
}

/* A run that is longer than the one that it follows says where it is on its own. */
static void replay_ends(void **state)
{
    (void)state;
    struct async_journal journal;
    char option[OPTION_ROOM], path[FILE_PATH_ROOM];
    struct run run;
    struct run_config c = configure("followed", in_virtual_time, NULL);
    warned(&c, NULL);
    assert_ok(file_join(path, at("followed"), "pushes.tsv"));
    assert_ok(journal_read(&journal, path, K));
    snprintf(option, sizeof option, "async-diloco.replay=%s/pushes.tsv", at("followed"));
    c = configure("follows", on_threads, NULL);
    set(&c, option);
    warned(&c, NULL);
    journal.n = 5;
    assert_ok(journal_write(&journal, at("part.tsv")));
    snprintf(option, sizeof option, "async-diloco.replay=%s", at("part.tsv"));
    c = configure("part", on_threads, NULL);
    set(&c, option);
    warned(&c, "replay ends with push 4, ");
    journal.n = 0;
    assert_ok(journal_write(&journal, at("part.tsv")));
    journal_free(&journal);
    assert_fails(run_open(&run, &c, &(struct run_watch){0}), SOTTO_EINVAL, "has no pushes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats),        cmocka_unit_test(replayed),
        cmocka_unit_test(elastic),        cmocka_unit_test(meets_and_evaluates),
        cmocka_unit_test(by_the_clock),   cmocka_unit_test(saves_between_pushes),
        cmocka_unit_test(small),          cmocka_unit_test(samples),
        cmocka_unit_test(seconds),        cmocka_unit_test(behind),
        cmocka_unit_test(behind_exactly), cmocka_unit_test(late),
        cmocka_unit_test(tells),          cmocka_unit_test(replay_ends),
        cmocka_unit_test(replay_in_time), cmocka_unit_test(middle),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}

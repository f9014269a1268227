/* Runs in virtual time that are resumed at any of their checkpoints: clocks of workers and lanes,
 * what is under way on links, jitter and periods of grace go on to the bit, so that methods whose
 * rounds go by time, with workers that come at equal times, count and end as without the break.
 * Speeds, links and the checkpoint are drawn by chance, the same for each run of the test. */
#include "train/fixture.h"

#include "base/rng.h"
#include "train/run/run_worker.h"

enum { WORKERS = 4, STEPS = 14, EACH = 1, OPTIONS = 6 };

static const char *const methods[][OPTIONS] = {
    {"strategy.shard=dpu"},
    {"strategy.shard=acco-wp"},
    {"strategy.shard=acco"},
    {"strategy.shard=acco", "strategy.replicate=co2", "co2.tau=3", "strategy.mesh=2x2"},
    {"strategy.shard=acco", "strategy.replicate=async-diloco", "async-diloco.H=3",
     "strategy.mesh=2x2", "async-diloco.grace=0.02"},
    {"strategy.replicate=overlap-local", "overlap-local.tau=3", "strategy.mesh=4x1"},
    {"strategy.replicate=co2", "co2.tau=auto", "strategy.mesh=4x1"},
    {"strategy.replicate=async-diloco", "async-diloco.H=4", "strategy.mesh=4x1",
     "async-diloco.grace=0.03"},
    {"strategy.replicate=async-diloco", "async-diloco.H=4", "strategy.mesh=4x1",
     "async-diloco.dylu=true", "train.eval_seconds=0.07"},
    {"strategy.shard=cdp", "cdp.rule=v2", "cdp.placement=pp", "optim.clip=0", "model.tied=no"},
};
enum { METHODS = sizeof methods / sizeof *methods };

/* Cluster, pauses and noise, one of each row. */
static const char *const draws[][4] = {
    {"worker.speed=1,0.7,0.3,0.9", "worker.speed=1,0.5,0.25,0.5", "worker.speed=1,0.7,0.45,0.3",
     "worker.speed=1"},
    {"link.inter=none", "link.inter=1Mbit/s,1ms", "link.inter=20Mbit/s,300us",
     "link.inter=100Mbit/s"},
    {"link.intra=none", "link.intra=none", "link.intra=20MB/s,20us", "link.intra=1GB/s"},
    {"train.nodes=2", "train.nodes=2", "train.nodes=2", "train.nodes=4"},
    {"worker.jitter=0", "worker.jitter=0", "worker.jitter=0", "worker.jitter=0.2"},
    {"worker.memory=", "worker.memory=", "worker.memory=1GB/s", "worker.memory=20MB/s"},
    {"train.save_every=3", "train.save_every=4", "train.save_every=5", "train.save_every=7"},
    {"train.eval_every=0", "train.eval_every=0", "train.eval_every=2", "train.eval_every=3"},
};
enum { ROWS = sizeof draws / sizeof *draws };

/* `drawn`: what is told of a case that fails. */
static struct run_config configure(int method, struct rng *rng, char *drawn, size_t room)
{
    static const char *const basic[] = {
        "model.layers=2",       "model.width=8",     "model.heads=2",   "model.positions=8",
        "train.batch=1",        "train.threads=1",   "train.keep=0",    "train.steps=14",
        "train.eval_batches=1", "data.holdout=0.1",  "train.workers=4", "train.time=virtual",
        "optim.warmup=2",       "train.log_every=4", "worker.step=10ms"};
    struct run_config c = configure_run("run");
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, methods[method], OPTIONS);
    size_t used = (size_t)snprintf(drawn, room, "%s", methods[method][0]);
    for (int i = 0; i < ROWS; i++) {
        const char *one = draws[i][rng_below(rng, 4)];
        set(&c, one);
        used += (size_t)snprintf(drawn + used, room - used, " %s", one);
    }
    return c;
}

struct seen {
    uint64_t hash;
    double seconds[WORKERS];
    char *order[2]; /* of pushes, and of micro-batches; NULL: there is none */
};

static struct seen train(struct run_config c)
{
    static const char *const files[] = {"run/pushes.tsv", "run/counts.tsv"};
    struct seen seen = {0};
    struct run run;
    assert_ok(run_open(&run, &c, &(struct run_watch){0}));
    assert_ok(run_train(&run));
    assert_true(run.result.complete);
    seen.hash = run.result.hash;
    for (int r = 0; r < WORKERS; r++)
        seen.seconds[r] = run.result.worker[r].cost.seconds;
    run_close(&run);
    for (int i = 0; i < 2; i++)
        if (file_exists(at(files[i])))
            assert_ok(file_read_text(at(files[i]), 1 << 20, &seen.order[i]));
    return seen;
}

static const char *difference(const struct seen *a, const struct seen *b, bool seconds)
{
    for (int i = 0; i < 2; i++)
        if (a->order[i] && strcmp(a->order[i], b->order[i]) != 0)
            return i == 0 ? "pushes" : "counts";
    if (a->hash != b->hash)
        return "bits";
    return seconds && memcmp(a->seconds, b->seconds, sizeof a->seconds) != 0 ? "seconds" : NULL;
}

static void free_seen(struct seen *seen)
{
    free(seen->order[0]);
    free(seen->order[1]);
}

/* Leaves the checkpoints up to one that is drawn, not the last, whose step is returned. */
static int draw_step(struct rng *rng)
{
    char name[STEPS + 1][FILE_PATH_ROOM];
    int there[STEPS + 1], n = 0;
    for (int step = 1; step <= STEPS; step++) {
        snprintf(name[n], sizeof *name, "%s/checkpoints/step-%08d", at("run"), step);
        there[n] = step;
        n += file_exists(name[n]);
    }
    assert_true(n > 1);
    const int drawn = (int)rng_below(rng, (uint64_t)n - 1);
    while (--n > drawn)
        assert_ok(file_remove_tree(name[n]));
    return there[drawn];
}

static void goes_on(int method, int number)
{
    struct rng rng = rng_make((uint64_t)method, (uint64_t)number);
    char drawn[512];
    struct run_config c = configure(method, &rng, drawn, sizeof drawn);
    struct seen whole = train(c);
    const int step = draw_step(&rng);
    c.train.resume = true;
    struct seen resumed = train(c);
    /* cdp computes activations again, which are not saved. */
    const bool again = strcmp(methods[method][0], "strategy.shard=cdp") == 0;
    const char *what = difference(&whole, &resumed, !again);
    if (what)
        fail_with("%s, resumed at step %d: other %s", drawn, step, what);
    free_seen(&whole);
    free_seen(&resumed);
    assert_ok(file_remove_tree(at("run")));
}

static void clocks_go_on(void **state)
{
    (void)state;
    for (int m = 0; m < METHODS; m++)
        for (int i = 0; i < EACH; i++)
            goes_on(m, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(clocks_go_on)};
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}

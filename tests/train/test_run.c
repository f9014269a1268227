/* Whole runs in miniature: trained, stopped, resumed, refused. */
#include "train/fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "hf/weights.h"
#include "train/checkpoint/save.h"
#include "train/run/rescue_find.h"
#include "train/run/run_worker.h"

enum { N = 5, MAX_OPTIONS = 8 };

/* A model of some thousand parameters, in scratch/`out`. */
static struct run_config configure(const char *out, const char *const *options)
{
    static const char *const basic[] = {
        "model.layers=1",  "model.width=16", "model.heads=2",        "model.positions=16",
        "train.steps=5",   "train.batch=2",  "train.log_every=1",    "train.eval_every=2",
        "train.threads=1", "optim.lr=0.01",  "train.eval_batches=2", "data.holdout=0.1",
        "train.keep=0",    "optim.warmup=2",
    };
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, SIZE_MAX);
    return c;
}

struct watcher {
    struct run *run;
    int64_t stop_at; /* -1: never */
    atomic_int stop;
    uint64_t hash[N + 1]; /* after each step */
    int steps, evaluations, saves, stops;
    double loss, least_eta;
    size_t memory[N + 1]; /* the account's highest total after each step */
    struct run_result result;
};

static void on_step(void *arg, const struct run_step *s)
{
    struct watcher *w = arg;
    assert_int_equal(s->step, s->worker->training.step);
    assert_int_equal(s->steps, w->run->config.train.steps);
    if (s->step <= N) {
        if (w->run->cluster.size == 1)
            assert_ok(checkpoint_hash(s->worker, &w->hash[s->step]));
        w->memory[s->step] = s->worker->training.memory.total_peak;
    }
    w->loss = s->round.loss;
    w->least_eta = s->eta < w->least_eta ? s->eta : w->least_eta;
    w->steps++;
    if (s->step == w->stop_at)
        w->stop = 1;
}

static void on_evaluated(void *arg, int64_t step, const struct evaluation *e)
{
    struct watcher *w = arg;
    assert_true(isfinite(e->loss) && e->targets > 0 && step > 0);
    w->evaluations++;
}

static void on_saved(void *arg, int64_t step, const char *folder)
{
    struct watcher *w = arg;
    assert_true(file_is_directory(folder) && step > -1);
    w->saves++;
}

static void on_stopped(void *arg)
{
    struct watcher *w = arg;
    int64_t step;
    char folder[FILE_PATH_ROOM];
    assert_ok(checkpoint_newest(w->run->config.train.out, false, &step, folder));
    assert_true(step >= w->stop_at || !run_keeps(w->run));
    w->stops++;
}

/* Opens and trains; closes too unless opening failed. */
static enum sotto_status train(const struct run_config *c, struct watcher *w, int64_t stop_at)
{
    struct run run;
    *w = (struct watcher){.run = &run, .stop_at = stop_at};
    struct run_watch watch = {.step = on_step,
                              .evaluated = on_evaluated,
                              .saved = on_saved,
                              .stopped = on_stopped,
                              .arg = w,
                              .stop = &w->stop};
    TRY(run_open(&run, c, &watch));
    enum sotto_status st = run_train(&run);
    assert_int_equal(w->stops, st == SOTTO_ESTOPPED);
    w->result = run.result;
    w->result.worker = NULL;
    run_close(&run);
    return st;
}

/* The state that the newest checkpoint holds, which must be that of step k. */
static uint64_t hash_at(struct run_config c, int64_t k)
{
    struct watcher w;
    c.train.resume = true;
    c.train.steps = k;
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, 0);
    assert_int_equal(w.result.step, k);
    return w.result.hash;
}

/* The steps of metrics.jsonl with the numbers that do not depend on the clock. */
static char *metrics_of(const struct run_config *c)
{
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, c->train.out, "metrics.jsonl"));
    char *text = slurp(path), *out = malloc(1 << 14), *to = out;
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *object;
        assert_ok(json_parse(&object, line, (size_t)(end - line), "metrics"));
        to += sprintf(to, "%d:", (int)json_integer_value(json_object_get(object, "step")));
        static const char *const keys[] = {"train/loss",   "train/lr",  "train/grad_norm",
                                           "train/tokens", "eval/loss", "eval/accuracy"};
        for (int k = 0; k < 6; k++) {
            const json_t *value = json_object_get(object, keys[k]);
            if (value)
                to += sprintf(to, " %s %.17g", keys[k], json_number_value(value));
        }
        to += sprintf(to, "\n");
        json_decref(object);
    }
    free(text);
    return out;
}

static void assert_same_metrics(const struct run_config *a, const struct run_config *b)
{
    char *x = metrics_of(a), *y = metrics_of(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* A run stopped after step k, saved, opened again and finished has the bits of one that was never
 * stopped, and its metrics; at the reopening it has those of step k. */
static void compare_resumed(const char *name, const char *const *options, int first_k, int last_k)
{
    char folder[64];
    struct watcher whole, part;
    struct run_config c = configure(name, options);
    assert_ok(train(&c, &whole, -1));
    assert_int_equal(whole.steps, N);
    assert_int_equal(whole.evaluations, 3); /* after 2 and 4 and at the end */
    assert_int_equal(whole.saves, 1);
    for (int k = first_k; k <= last_k; k++) {
        snprintf(folder, sizeof folder, "%s.%d", name, k);
        struct run_config r = configure(folder, options);
        assert_fails(train(&r, &part, k), SOTTO_ESTOPPED, "stopped at step");
        assert_int_equal(part.steps, k);
        assert_int_equal(part.saves, 1);
        assert_true(part.hash[k] == whole.hash[k]);
        r.train.resume = true;
        if (hash_at(r, k) != whole.hash[k])
            fail_with("%s: not the state of step %d", name, k);
        assert_ok(train(&r, &part, -1));
        assert_int_equal(part.steps, N - k);
        if (part.hash[N] != whole.hash[N])
            fail_with("%s: resumed at %d, the run ends elsewhere", name, k);
        assert_same_metrics(&r, &c);
    }
}

static void resume_at_every_step(void **state)
{
    (void)state;
    compare_resumed("plain", NULL, 1, N - 1);
}

/* The same for everything that changes what is kept between rounds. */
static void resume_variants(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *options[MAX_OPTIONS];
    } variants[] = {
        {"accumulate", {"strategy.accumulate=3", "strategy.weight=tokens"}},
        {"momentum", {"optim.kind=sgd", "optim.momentum=0.9", "optim.nesterov=true"}},
        {"sgd", {"optim.kind=sgd", "optim.schedule=step", "optim.step_every=2"}},
        {"mixed", {"strategy.precision=mixed", "strategy.accumulate=2"}},
        {"recompute", {"train.recompute=true", "train.stages=3", "optim.clip=0.1"}},
        {"gpt2", {"model.arch=gpt2", "train.seq=7", "train.stages=4"}},
        {"gpt_neo", {"model.arch=gpt_neo", "model.layers=2", "model.window=3", "train.stages=2"}},
        {"olmo2", {"model.arch=olmo2", "optim.schedule=cyclic", "optim.cycle_rounds=4"}},
        {"once", {"train.eval_every=2", "train.device=reference"}},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        compare_resumed(variants[i].name, variants[i].options, 2 + (int)i % 2, 2 + (int)i % 2);
}

/* How the model is cut, recomputed and threaded may change on the way: the state is by name. */
static void resume_with_another_cut(void **state)
{
    (void)state;
    struct watcher whole, part;
    struct run_config c = configure("cut", NULL);
    assert_ok(train(&c, &whole, -1));
    c = configure("cut.resumed", NULL);
    set(&c, "train.stages=2");
    assert_fails(train(&c, &part, 2), SOTTO_ESTOPPED, "");
    set(&c, "train.resume=true");
    set(&c, "train.stages=4");
    set(&c, "train.recompute=true");
    set(&c, "train.threads=2");
    assert_ok(train(&c, &part, -1));
    assert_true(part.hash[N] == whole.hash[N]);
}

/* After a crash the metrics run ahead of the newest checkpoint: what was logged after it is dropped
 * and logged again, once. */
static void resume_after_a_crash(void **state)
{
    (void)state;
    static const char *const options[] = {"train.save_every=2", NULL};
    struct watcher whole, part;
    char path[FILE_PATH_ROOM];
    struct run_config c = configure("uncrashed", options);
    assert_ok(train(&c, &whole, -1));
    assert_int_equal(whole.saves, 3);
    struct run_config r = configure("crashed", options);
    assert_ok(train(&r, &part, -1));
    assert_ok(file_join(path, r.train.out, "checkpoints/step-00000005"));
    assert_ok(file_remove_tree(path));
    assert_ok(file_join(path, r.train.out, "checkpoints/step-00000004"));
    assert_ok(file_remove_tree(path));
    r.train.resume = true;
    assert_ok(train(&r, &part, -1));
    assert_int_equal(part.steps, 3);
    assert_true(part.hash[N] == whole.hash[N]);
    assert_same_metrics(&r, &c);
}

static void assert_same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t size[2];
    assert_ok(file_read(at(a), 1 << 26, &x, &size[0]));
    assert_ok(file_read(at(b), 1 << 26, &y, &size[1]));
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(x, y, size[0]);
    free(x);
    free(y);
}

/* A crash between a checkpoint and its publication leaves an older model in the run's folder, or
 * none: a run that goes on publishes, also where it has no step left to make. */
static void resume_publishes(void **state)
{
    (void)state;
    static const char *const options[] = {"train.save_every=2", NULL};
    struct watcher w;
    struct run_config c = configure("unpublished", options);
    assert_ok(train(&c, &w, -1));
    c.train.resume = true;
    for (int older = 0; older < 2; older++) {
        assert_ok(file_remove_tree(at("unpublished/model.safetensors")));
        if (older)
            assert_ok(file_link(at("unpublished/checkpoints/step-00000004/model.safetensors"),
                                at("unpublished/model.safetensors")));
        assert_ok(train(&c, &w, -1));
        assert_int_equal(w.steps, 0);
        assert_same_files("unpublished/model.safetensors",
                          "unpublished/checkpoints/step-00000005/model.safetensors");
    }
}

/* A checkpoint with a file that cannot be read takes the place of no other. */
static void unreadable_checkpoints(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "state.safetensors",
                                        "sotto.ini"};
    static const char *const options[] = {"train.keep=1", NULL};
    char folder[FILE_PATH_ROOM], from[FILE_PATH_ROOM], to[FILE_PATH_ROOM];
    struct watcher w;
    struct run_config c = configure("unreadable", options);
    assert_ok(train(&c, &w, -1));
    c.train.resume = true;
    for (int damaged = 0; damaged < 4; damaged++) {
        int64_t step;
        struct run run;
        struct checkpoint next;
        assert_ok(run_open(&run, &c, NULL));
        assert_ok(checkpoint_begin(&next, &run.dir, N + 1));
        for (int i = 0; i < 4; i++) {
            assert_ok(file_join(from, run.checkpoint, files[i]));
            assert_ok(file_join(to, next.folder, files[i]));
            assert_ok(i == damaged ? file_write(to, "[damaged", 8) : file_link(from, to));
        }
        const enum sotto_status st = save_commit(&run, &next, SOTTO_OK);
        run_close(&run);
        assert_fails(st, SOTTO_EFORMAT, files[damaged]);
        assert_ok(checkpoint_latest(c.train.out, &step, folder));
        assert_int_equal(step, N);
    }
    assert_true(hash_at(c, N) == w.hash[N]);
}

/* A folder with a run in it is refused unless it is to be resumed; resuming a finished run does
 * nothing; resuming an empty folder starts. */
static void used_folders(void **state)
{
    (void)state;
    struct watcher w;
    struct run_config c = configure("used", NULL);
    c.train.resume = true;
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, N);
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, 0);
    c.train.resume = false;
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "already holds a run of 5 steps");
    c.train.resume = true;
    c.train.steps = 7; /* and on */
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, 2);
    struct run run;
    assert_ok(run_open(&run, &c, NULL));
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "is being written by process");
    run_close(&run);
}

/* A resumed run must be the model it was: the fault names the option and both values. */
static void changed_models(void **state)
{
    (void)state;
    static const struct {
        const char *option, *part;
    } changes[] = {
        {"model.layers=2", "model.layers = 2"},     {"model.width=32", "model.width = 32"},
        {"model.heads=1", "model.heads = 1"},       {"model.positions=8", "model.positions = 8"},
        {"model.vocab=40", "model.vocab = 40"},     {"model.tied=no", "model.tied = no"},
        {"model.arch=olmo2", "model.arch = olmo2"}, {"model.rope_theta=7", "model.rope_theta = 7"},
    };
    static const char *const had[] = {"has 1",  "has 16",  "has 2",     "has 16",
                                      "has 29", "has yes", "has llama", "has 10000"};
    struct watcher w;
    struct run_config c = configure("changed", NULL);
    assert_ok(train(&c, &w, -1));
    uint64_t hash = w.hash[N];
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *const options[] = {"train.resume=true", changes[i].option, NULL};
        c = configure("changed", options);
        assert_fails(train(&c, &w, -1), SOTTO_EINVAL, changes[i].part);
        assert_non_null(strstr(sotto_error(), had[i]));
    }
    static const char *const sgd[] = {"train.resume=true", "optim.kind=sgd", "train.steps=6", NULL};
    c = configure("changed", sgd); /* AdamW's moments have nowhere to go */
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "optim.kind = sgd: the run in ");
    static const char *const same[] = {"train.resume=true", NULL};
    c = configure("changed", same);
    assert_true(hash_at(c, N) == hash); /* refusals harmed nothing */
    static const char *const plain[] = {"optim.kind=sgd", "optim.momentum=0", NULL};
    c = configure("changed.sgd", plain);
    assert_ok(train(&c, &w, -1));
    c = configure("changed.sgd", sgd + 1); /* plain SGD keeps nothing */
    c.train.resume = true;
    set(&c, "optim.kind=adamw");
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, 1);
}

static void refused(const char *option, enum sotto_status code, const char *part)
{
    const char *const options[] = {option, NULL};
    struct watcher w;
    struct run_config c = configure("refused", options);
    assert_fails(train(&c, &w, -1), code, part);
    assert_false(file_exists(at("refused/checkpoints")));
}

/* What cannot work is said before anything is written. */
static void bad_settings(void **state)
{
    (void)state;
    refused("model.vocab=10", SOTTO_EINVAL, "vocabulary of 29 tokens, the model has 10");
    refused("train.seq=17", SOTTO_EINVAL, "train.seq = 17 is longer than the model's 16 positions");
    refused("model.heads=3", SOTTO_EINVAL, "head");
    refused("model.preset=nanoo", SOTTO_EINVAL, "did you mean 'nano'?");
    refused("train.stages=9", SOTTO_EINVAL, "9 stages");
    refused("train.device=tpu", SOTTO_EINVAL, "'tpu'");
    static const char *const nesterov[] = {"optim.kind=sgd", "optim.nesterov=true", NULL};
    struct watcher w;
    struct run_config c = configure("refused", nesterov);
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "optim.momentum");
    c = configure("refused", NULL);
    strcpy(c.data.train, at("nowhere.tok"));
    assert_fails(train(&c, &w, -1), SOTTO_EIO, "nowhere.tok");
    write_tokens(at("short.tok"), 10, 29);
    strcpy(c.data.train, at("short.tok"));
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "one sequence needs 17");
    strcpy(c.data.train, at("data.tok"));
    strcpy(c.train.init, at("nowhere"));
    assert_fails(train(&c, &w, -1), SOTTO_EIO, "nowhere");
}

/* What goes by evaluations says where there are none to go by. */
static void nothing_to_judge(void **state)
{
    (void)state;
    static const struct {
        const char *option, *part;
    } with[] = {
        {"train.eval_every=0", "compares evaluations, and there is one, at the end"},
        {"data.holdout=0", "goes by the held-out loss, and there are no held-out data"},
        {"strategy.preset=async-diloco", "so there is no step of all workers"},
    };
    struct watcher w;
    for (int i = 0; i < 3; i++) {
        for (int best = 0; best < 2; best++) {
            const char *const options[] = {best ? "train.keep_best=true" : "train.patience=3",
                                           with[i].option, NULL};
            struct run_config c = configure("refused", options);
            assert_fails(train(&c, &w, -1), SOTTO_EINVAL, with[i].part);
            assert_non_null(strstr(sotto_error(), best ? "keep_best = true" : "patience = 3"));
        }
    }
    static const char *const unsaved[] = {"train.keep_best=true", "train.save=false", NULL};
    struct run_config c = configure("refused", unsaved);
    assert_fails(train(&c, &w, -1), SOTTO_EINVAL, "train.save = false keeps nothing");
}

/* Tokens to evaluate on count in the vocabulary as those to train on do: where it is chosen, and
 * where the model has one. */
static void vocabulary_of_validation(void **state)
{
    (void)state;
    struct run run;
    write_tokens(at("valid.tok"), 400, 61);
    for (int vocab = 0; vocab <= 61; vocab += vocab < 60 ? 60 : 1) {
        char name[32];
        snprintf(name, sizeof name, "valid.%d", vocab);
        struct run_config c = configure(name, NULL);
        strcpy(c.data.valid, at("valid.tok"));
        c.model.vocab = vocab;
        if (vocab == 60) {
            assert_fails(run_open(&run, &c, NULL), SOTTO_EINVAL,
                         "a vocabulary of 61 tokens, the model has 60");
            continue;
        }
        assert_ok(run_open(&run, &c, NULL));
        assert_int_equal(run.config.model.vocab, 61);
        if (vocab == 0)
            assert_ok(run_train(&run));
        run_close(&run);
    }
}

/* A flag that is up from the start stops before the first round. */
static void stopped_at_once(void **state)
{
    (void)state;
    struct run_config c = configure("at-once", NULL);
    struct run run;
    const atomic_int up = 1;
    struct run_watch watch = {.stop = &up};
    assert_ok(run_open(&run, &c, &watch));
    assert_fails(run_train(&run), SOTTO_ESTOPPED, "stopped at step 0 of 5");
    run_close(&run);
    c.train.resume = true;
    struct watcher w, plain;
    assert_ok(train(&c, &w, -1));
    c = configure("at-once.plain", NULL);
    assert_ok(train(&c, &plain, -1));
    assert_true(w.hash[N] == plain.hash[N]);
}

/* The same training without a checkpoint or a model behind it; one that is stopped begins anew. */
static void nothing_is_saved(void **state)
{
    (void)state;
    static const char *const unsaved[] = {"train.save=false", "train.save_every=2", NULL};
    static const char *const left[] = {"checkpoints", "model.safetensors", "config.json"};
    char path[FILE_PATH_ROOM];
    struct run_config c = configure("unsaved", unsaved), saved = configure("unsaved.plain", NULL);
    struct watcher w, plain;
    assert_fails(train(&c, &w, 3), SOTTO_ESTOPPED, "stopped at step 3; nothing is saved");
    c.train.resume = true;
    assert_ok(train(&c, &w, -1));
    assert_ok(train(&saved, &plain, -1));
    assert_int_equal(w.saves, 0);
    assert_true(plain.saves > 0);
    for (int i = 1; i <= N; i++)
        assert_true(w.hash[i] == plain.hash[i]);
    for (int i = 0; i < 3; i++) {
        assert_ok(file_join(path, c.train.out, left[i]));
        assert_false(file_exists(path));
        assert_ok(file_join(path, saved.train.out, left[i]));
        assert_true(file_exists(path));
    }
    for (int resume = 0; resume < 2; resume++) { /* what is finished stays */
        c.train.resume = resume;
        struct run run;
        assert_fails(run_open(&run, &c, NULL), SOTTO_EINVAL,
                     "already holds a finished run of 5 steps");
    }
    assert_ok(file_join(path, c.train.out, "report.json"));
    char *report = slurp(path), *a = metrics_of(&c), *b = metrics_of(&saved);
    assert_non_null(strstr(report, "\"complete\": true"));
    assert_null(strstr(report, "\"state\""));
    assert_string_equal(a, b);
    free(report);
    free(a);
    free(b);
}

/* A folder that cannot be written from one step on, up to another one. */
struct blocked {
    struct run *run;
    int64_t from, to;
    char saved[8][FILE_PATH_ROOM]; /* checkpoints by step */
};

static void block_at_step(void *arg, const struct run_step *s)
{
    struct blocked *b = arg;
    char away[FILE_PATH_ROOM + 8];
    const char *folder = b->run->dir.checkpoints;
    snprintf(away, sizeof away, "%s.away", folder);
    if (s->step == b->from) {
        b->run->rescue.until = 1e-9; /* it has been tried for minutes */
        assert_int_equal(rename(folder, away), 0);
        assert_ok(file_write(folder, "", 0));
    } else if (s->step == b->to) {
        assert_int_equal(remove(folder), 0);
        assert_int_equal(rename(away, folder), 0);
    }
}

static void note_saved(void *arg, int64_t step, const char *folder)
{
    struct blocked *b = arg;
    strcpy(b->saved[step], folder);
}

/* The bytes of a checkpoint's files. */
static double count_bytes(const char *folder)
{
    char path[FILE_PATH_ROOM];
    double bytes = 0;
    assert_ok(file_join(path, folder, CHECKPOINT_LIST));
    char *text = slurp(path);
    for (char *line = text; line && *line; line = strchr(line, '\n') + 1)
        bytes += strtod(line, NULL);
    free(text);
    return bytes;
}

static void unblock(const char *run)
{
    char folder[FILE_PATH_ROOM], away[FILE_PATH_ROOM + 8];
    assert_ok(file_join(folder, run, "checkpoints"));
    snprintf(away, sizeof away, "%s.away", folder);
    assert_int_equal(remove(folder), 0);
    assert_int_equal(rename(away, folder), 0);
}

static void expect_newest(const char *run, int64_t want)
{
    char folder[FILE_PATH_ROOM];
    struct checkpoint_hold hold;
    int64_t step;
    assert_ok(rescue_newest(&hold, run, false, &step, folder));
    assert_true(hold.file >= 0);
    checkpoint_release(&hold);
    assert_int_equal(step, want);
}

static void make_old(const char *run, int64_t step)
{
    char checkpoints[FILE_PATH_ROOM], folder[FILE_PATH_ROOM];
    const struct timespec then[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_ok(file_join(checkpoints, run, "checkpoints"));
    assert_ok(steps_folder(checkpoints, step, folder));
    assert_int_equal(utimensat(AT_FDCWD, folder, then, 0), 0);
}

/* A folder that cannot be written: the run goes on, its checkpoints go to another one, until the
 * first can be written again; what is saved elsewhere at the end goes on there to the same bits. */
static void saved_elsewhere(void **state)
{
    (void)state;
    static const char *const more[][3] = {
        {NULL}, {"train.workers=2", "strategy.preset=zero1"}, {"train.save_dtype=bf16"}};
    for (int i = 0; i < 3; i++) {
        const char *options[] = {"train.save_every=1", more[i][0], more[i][1], NULL};
        char name[2][32], other[FILE_PATH_ROOM], first[FILE_PATH_ROOM];
        struct run run;
        struct watcher w;
        for (int k = 0; k < 2; k++)
            snprintf(name[k], sizeof name[k], "blocked.%d.%d", i, k);
        struct run_config c = configure(name[0], options), straight = configure(name[1], options);
        assert_ok(train(&straight, &w, -1));
        snprintf(name[1], sizeof name[1], "blocked.%d.0-rescued", i);
        strcpy(other, at(name[1]));
        for (int lasts = 0; lasts < 2; lasts++) {
            struct blocked b = {.run = &run, .from = 2, .to = lasts ? -1 : 4};
            const struct run_watch watch = {.step = block_at_step, .saved = note_saved, .arg = &b};
            assert_ok(run_open(&run, &c, &watch));
            assert_ok(file_join(first, run.dir.checkpoints, "step-00000004"));
            if (lasts)
                assert_fails(run_train(&run), SOTTO_EIO, "everything is saved in ");
            else
                assert_ok(run_train(&run));
            assert_true(run.result.hash == w.result.hash && run.result.step == N);
            const double bytes = count_bytes(b.saved[N]); /* as was estimated */
            assert_true(bytes < run.checkpoint_bytes && bytes > run.checkpoint_bytes - 60e3);
            run_close(&run);
            for (int k = 1; k <= N; k++) {
                const bool there = k >= 2 && (lasts || k < 4);
                assert_int_equal(strncmp(b.saved[k], other, strlen(other)) == 0, there);
            }
            assert_int_equal(file_exists(other), lasts);
            assert_int_equal(file_exists(first), !lasts);
            if (!lasts)
                assert_ok(file_remove_tree(c.train.out));
        }
        straight.train.steps = c.train.steps = N + 2;
        straight.train.resume = c.train.resume = true;
        assert_ok(train(&straight, &w, -1));
        const uint64_t want = w.result.hash;
        unblock(c.train.out);
        assert_ok(train(&c, &w, -1)); /* the first folder can be written again, and takes it over */
        assert_true(w.result.hash == want && w.result.rounds == 2);
        expect_newest(other, N);
        expect_newest(c.train.out, N + 2);
        struct run_config there = c;
        strcpy(there.train.out, other);
        assert_ok(train(&there, &w, -1));
        assert_true(w.result.hash == want && w.result.rounds == 2);
        there.train.steps = N + 3;
        assert_ok(train(&there, &w, -1));
        expect_newest(c.train.out, N + 3);
        make_old(other, N + 3); /* of an earlier run with this name, so it seems */
        expect_newest(c.train.out, N + 2);
    }
}

/* A best checkpoint that cannot be copied is left out, and nothing stands for it. */
static void expect_no_best(const struct run_config *from, struct run_config *fork)
{
    char newest[FILE_PATH_ROOM], folder[FILE_PATH_ROOM], best[FILE_PATH_ROOM];
    int64_t step;
    struct run run;
    assert_ok(checkpoint_latest(from->train.out, &step, newest));
    assert_ok(best_folder(from->train.out, folder));
    assert_ok(checkpoint_latest(folder, &step, best));
    assert_ok(file_join(folder, best, "a folder"));
    assert_ok(file_make_directories(folder));
    strcat(fork->train.out, ".best");
    const struct run_watch watch = {.from = newest};
    assert_ok(run_open(&run, fork, &watch));
    run_close(&run);
    assert_ok(best_folder(fork->train.out, folder));
    assert_false(file_exists(folder));
}

/* An older checkpoint goes on in another folder to the bits of its run, which stays as it is. */
static void an_older_checkpoint(void **state)
{
    (void)state;
    static const char *const more[][3] = {
        {NULL},
        {"train.workers=2", "strategy.preset=zero1"},
        {"train.workers=2", "strategy.preset=diloco", "train.time=virtual"}};
    for (int i = 0; i < 3; i++) {
        const char *options[] = {"train.save_every=1",
                                 "train.keep_best=true",
                                 "train.eval_every=1",
                                 more[i][0],
                                 more[i][1],
                                 more[i][2],
                                 NULL};
        char name[2][32], older[FILE_PATH_ROOM], best[FILE_PATH_ROOM], folder[FILE_PATH_ROOM];
        int64_t step, kept;
        struct watcher w;
        struct run run;
        for (int k = 0; k < 2; k++)
            snprintf(name[k], sizeof name[k], "older.%d.%d", i, k);
        const struct run_config c = configure(name[0], options);
        struct run_config fork = configure(name[1], options);
        fork.train.resume = true;
        assert_ok(train(&c, &w, -1));
        const uint64_t want = w.result.hash;
        assert_ok(file_join(older, c.train.out, "checkpoints/step-00000003"));
        const struct run_watch watch = {.from = older};
        assert_ok(run_plan(&run, &fork, older));
        assert_string_equal(run.checkpoint, older);
        run_close(&run);
        assert_false(file_exists(fork.train.out));
        assert_ok(run_open(&run, &fork, &watch));
        assert_ok(best_folder(c.train.out, folder));
        assert_ok(checkpoint_latest(folder, &kept, best));
        assert_ok(best_folder(fork.train.out, folder));
        assert_ok(checkpoint_latest(folder, &step, best));
        assert_int_equal(step, kept <= 3 ? kept : -1);
        assert_ok(run_train(&run));
        assert_true(run.result.hash == want && run.result.rounds == N - 3);
        run_close(&run);
        char *a = metrics_of(&c), *b = metrics_of(&fork);
        assert_string_equal(a, b);
        free(a);
        free(b);
        expect_newest(c.train.out, N);
        assert_ok(checkpoint_check(older));
        assert_fails(run_open(&run, &fork, &watch), SOTTO_EINVAL, "already holds a run of 5 steps");
        if (i == 0)
            expect_no_best(&c, &fork);
    }
}

struct judged {
    int64_t stop_at;
    double loss[60]; /* of the held-out data, by step */
    atomic_int stop;
};

static void note_evaluated(void *arg, int64_t step, const struct evaluation *e)
{
    struct judged *j = arg;
    j->loss[step] = e->loss;
    if (step == j->stop_at)
        j->stop = 1;
}

static enum sotto_status judge_run(const struct run_config *c, struct judged *j,
                                   struct run_result *out)
{
    struct run run;
    const struct run_watch watch = {.evaluated = note_evaluated, .arg = j, .stop = &j->stop};
    TRY(run_open(&run, c, &watch));
    const enum sotto_status st = run_train(&run);
    *out = run.result;
    out->worker = NULL;
    run_close(&run);
    return st;
}

/* The lowest held-out loss has its checkpoint kept, and ends the run when it is not reached again;
 * also where the run was stopped between the two and goes on. */
static void best_and_patience(void **state)
{
    (void)state;
    static const char *const presets[] = {"ddp", "zero1", "diloco"};
    enum { PATIENCE = 3 };
    for (int p = 0; p < 3; p++) {
        char preset[48], name[32], best[FILE_PATH_ROOM], a[FILE_PATH_ROOM], b[FILE_PATH_ROOM];
        const char *const options[] = {preset,
                                       "train.workers=2",
                                       "train.steps=50",
                                       "train.eval_every=1",
                                       "train.keep=1",
                                       "train.keep_best=true",
                                       "train.patience=3",
                                       "optim.lr=0.3",
                                       NULL};
        snprintf(preset, sizeof preset, "strategy.preset=%s", presets[p]);
        snprintf(name, sizeof name, "best.%d", p);
        struct run_config c = configure(name, options);
        struct judged all = {.stop_at = -1}, part = {0};
        struct run_result want, have;
        assert_ok(judge_run(&c, &all, &want));
        const int64_t lowest = want.best.step, ends = lowest + PATIENCE + 1;
        assert_true(want.complete && want.step == ends && ends < 50);
        assert_true(want.best.loss == all.loss[lowest]);
        for (int64_t k = 1; k <= ends; k++)
            assert_true(all.loss[k] >= all.loss[lowest]);
        assert_ok(best_folder(c.train.out, best));
        int64_t step;
        assert_ok(checkpoint_latest(best, &step, a));
        assert_int_equal(step, lowest);
        assert_ok(checkpoint_latest(c.train.out, &step, b));
        assert_int_equal(step, ends);
        c.train.resume = true; /* nothing is left to do */
        assert_ok(judge_run(&c, &part, &have));
        assert_true(have.rounds == 0 && have.hash == want.hash && have.best.step == lowest);

        struct run_config again = c; /* the best checkpoint is a run's own */
        strcpy(again.train.out, best);
        again.train.patience = 0;
        again.train.keep_best = false;
        again.train.steps = (int)lowest + 1;
        part = (struct judged){0};
        assert_ok(judge_run(&again, &part, &have));
        assert_true(have.rounds == 1);

        for (int64_t k = lowest > 1 ? lowest - 1 : 1; p < 2 && k < ends - 1; k++) {
            char other[32];
            snprintf(other, sizeof other, "best.%d.%d", p, (int)k);
            struct run_config cut = configure(other, options);
            part = (struct judged){.stop_at = k};
            assert_fails(judge_run(&cut, &part, &have), SOTTO_ESTOPPED, "stopped at step");
            cut.train.resume = true;
            part = (struct judged){.stop_at = -1};
            assert_ok(judge_run(&cut, &part, &have));
            assert_true(have.hash == want.hash && have.step == ends);
            assert_true(have.best.step == lowest && have.best.loss == want.best.loss);
        }
    }
}

/* A run that diverges ends with SOTTO_ENUMERIC and the step's number, and the last checkpoint is
 * there and holds numbers. */
static void divergence(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "gpt_neo", "llama", "olmo2"};
    for (int a = 0; a < 4; a++) {
        for (int log_every = 1; log_every <= 10; log_every += 9) {
            char name[32], arch[32], folder[FILE_PATH_ROOM];
            snprintf(name, sizeof name, "diverged.%d.%d", a, log_every);
            snprintf(arch, sizeof arch, "model.arch=%s", names[a]);
            const char *const options[] = {arch,
                                           "optim.kind=sgd",
                                           "optim.schedule=constant",
                                           "optim.warmup=0",
                                           "train.save_every=1",
                                           "train.eval_every=0",
                                           NULL};
            struct run_config c = configure(name, options);
            c.train.log_every = log_every;
            c.train.steps = 2; /* two rounds by which nothing has gone wrong yet */
            struct watcher w;
            int64_t step;
            assert_ok(train(&c, &w, -1));
            c.train.steps = 50;
            c.train.resume = true;
            c.optim.lr = 1000;
            assert_fails(train(&c, &w, -1), SOTTO_ENUMERIC, "step ");
            assert_ok(checkpoint_latest(c.train.out, &step, folder));
            assert_true(step >= 2 && step < 50);
            struct run run; /* it opens: every parameter is a number */
            assert_ok(run_open(&run, &c, NULL));
            float *x = malloc(table_count(&run.model.table) * sizeof *x);
            assert_ok(weights_load(&run.model, folder, x));
            for (size_t i = 0; i < table_count(&run.model.table); i++)
                assert_true(isfinite(x[i]));
            free(x);
            run_close(&run);
        }
    }
}

/* While somebody else has the folder nothing in it is believed, and nothing is prepared: the data
 * that these runs name are not there, which none of them gets to say. */
static void a_folder_in_use(void **state)
{
    (void)state;
    struct watcher w;
    struct run run;
    struct rundir other;
    struct run_config c = configure("in-use", NULL);
    for (int trained = 0; trained < 2; trained++) {
        strcpy(c.data.train, at("no-such.tok"));
        assert_ok(rundir_open(&other, c.train.out));
        for (int resume = 0; resume < 2; resume++) {
            c.train.resume = resume;
            assert_fails(run_open(&run, &c, NULL), SOTTO_EINVAL, "is being written by process");
        }
        rundir_close(&other);
        assert_fails(run_open(&run, &c, NULL), SOTTO_EIO, "no-such.tok");
        strcpy(c.data.train, at("data.tok"));
        c.train.resume = true;
        assert_ok(train(&c, &w, -1));
    }
    assert_ok(rundir_open(&other, c.train.out)); /* and each has let go of it */
    assert_ok(run_open_in(&run, &c, NULL, &other));
    assert_int_equal(other.lock, -1); /* the run has it now */
    assert_fails(rundir_open(&other, c.train.out), SOTTO_EINVAL, "is being written by process");
    run_close(&run);
    assert_ok(rundir_open(&other, c.train.out));
    rundir_close(&other);
}

/* Rounds of several micro-batches are abandoned: the run stops where it was asked to, as if the
 * round under way had not begun, and goes on to the same bits. Elsewhere the round is finished.
 * Where nobody has looked at the parameters before, a part of the last step is still to be made. */
static void rounds_are_abandoned(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *every;
        int64_t stops, evaluations;
    } methods[] = {
        {"strategy.preset=ddp", "train.eval_every=1", 2, 2},
        {"strategy.preset=zero1", "train.eval_every=1", 2, 2},
        {"strategy.preset=fsdp", "train.eval_every=1", 3, 3},
        {"strategy.preset=demo", "train.eval_every=5", 2, 0},
        {"strategy.preset=flexdemo", "train.eval_every=5", 3, 0},
    };
    for (int i = 0; i < 5; i++) {
        const char *const options[] = {methods[i].preset,
                                       i < 3 ? "strategy.mesh=1x2" : "strategy.mesh=2x1",
                                       "train.workers=2",
                                       "strategy.accumulate=3",
                                       "train.stages=2",
                                       methods[i].every,
                                       i < 3 ? "train.log_every=1" : "train.log_every=5",
                                       NULL};
        char name[2][32];
        struct watcher w;
        for (int k = 0; k < 2; k++)
            snprintf(name[k], sizeof name[k], "abandoned.%d.%d", i, k);
        struct run_config whole = configure(name[0], options), part = configure(name[1], options);
        assert_ok(train(&whole, &w, -1));
        const uint64_t hash = w.result.hash;
        char text[64];
        snprintf(text, sizeof text, "stopped at step %lld of 5", (long long)methods[i].stops);
        assert_fails(train(&part, &w, 2), SOTTO_ESTOPPED, text);
        assert_int_equal(w.evaluations, methods[i].evaluations); /* none twice */
        part.train.resume = true;
        assert_ok(train(&part, &w, -1));
        assert_true(w.result.hash == hash);
        assert_same_metrics(&part, &whole);
    }
}

/* Training starts from a model that is there: its parameters to the bit, its sizes, and a fault
 * where the user's differ. */
static void start_from_a_model(void **state)
{
    (void)state;
    struct watcher w;
    struct run run;
    struct run_config c = configure("origin", NULL);
    assert_ok(train(&c, &w, -1));
    struct run_config from = configure_run("tuned");
    strcpy(from.train.init, at("origin")); /* the run's folder is a model's folder */
    from.train.steps = 3;
    from.train.threads = 1;
    assert_ok(run_open(&run, &from, NULL));
    assert_int_equal(run.model.config.width, 16);
    assert_int_equal(run.config.train.seq, 16);
    const size_t bytes = table_count(&run.model.table) * sizeof(float);
    float *flat = malloc(bytes);
    assert_ok(weights_load(&run.model, at("origin"), flat));
    assert_memory_equal(flat, run.start, bytes);
    free(flat);
    assert_ok(run_train(&run));
    run_close(&run);
    from.train.resume = true; /* with the default preset, which was not asked for */
    from.train.steps = 4;
    assert_ok(train(&from, &w, -1));
    assert_int_equal(w.steps, 1);
    from.train.resume = false;
    from.model.layers = 3;
    strcpy(from.train.out, at("tuned.2"));
    assert_fails(run_open(&run, &from, NULL), SOTTO_EINVAL, "model.layers = 3, but the model in");
    assert_non_null(strstr(sotto_error(), "has 1"));
}

/* Text, with a tokenizer trained on it: the checkpoint carries the tokenizer, and a run resumed
 * without naming one goes on with the same bits. */
static void text_and_tokenizer(void **state)
{
    (void)state;
    FILE *file = fopen(at("text.txt"), "w");
    for (int i = 0; i < 400; i++)
        fprintf(file, "The %s cat number %d saw a dog near the %s house.\n",
                i % 3 ? "old" : "young", i, i % 5 ? "red" : "blue");
    fclose(file);
    struct watcher whole, part;
    static const char *const options[] = {"data.vocab=300", NULL};
    struct run_config c = configure("text", options);
    strcpy(c.data.train, at("text.txt"));
    assert_ok(train(&c, &whole, -1));
    assert_true(file_exists(at("text/tokenizer.json")));
    struct run_config r = configure("text.resumed", options);
    strcpy(r.data.train, at("text.txt"));
    assert_fails(train(&r, &part, 2), SOTTO_ESTOPPED, "");
    r.train.resume = true;
    assert_ok(train(&r, &part, -1));
    assert_true(part.hash[N] == whole.hash[N]);
    assert_same_metrics(&r, &c);
}

/* Training takes no more memory once the pool has found its rhythm: after the first round, or after
 * the second where blocks made for stages went to edges before (recompute). */
static void rounds_allocate_nothing(void **state)
{
    (void)state;
    static const char *const modes[] = {"strategy.accumulate=2", "strategy.precision=mixed",
                                        "train.recompute=true"};
    for (int m = 0; m < 3; m++) {
        char name[32];
        const char *const options[] = {modes[m], "train.stages=3", NULL};
        struct watcher w;
        snprintf(name, sizeof name, "memory.%d", m);
        struct run_config c = configure(name, options);
        c.train.eval_every = 0; /* evaluation has a tape of its own */
        assert_ok(train(&c, &w, -1));
        for (int step = 1; step <= N; step++)
            assert_int_equal(w.memory[step], w.memory[1]);
    }
}

/* It learns: the loss of a pattern with a fifth of noise falls well below that of guessing. */
static void learns(void **state)
{
    (void)state;
    static const char *const options[] = {"train.steps=150",    "train.batch=8",
                                          "train.log_every=50", "train.eval_every=0",
                                          "model.width=32",     NULL};
    struct watcher w;
    struct run_config c = configure("learns", options);
    assert_ok(train(&c, &w, -1));
    if (!(w.loss < 0.75 * log(29)))
        fail_with("the loss is still %g", w.loss);
}

/* The workers' numbers take a while to come together, and an evaluation waits for them; the rounds
 * behind it take no time to speak of, and yet some. */
static void time_left_is_never_negative(void **state)
{
    (void)state;
    struct watcher w;
    const char *const options[] = {"train.workers=2",   "strategy.preset=local-sgd",
                                   "local.tau=1000",    "link.intra=1GB/s,30ms",
                                   "train.log_every=2", NULL};
    struct run_config c = configure("left", options);
    assert_ok(train(&c, &w, -1));
    assert_int_equal(w.steps, N);
    assert_true(w.least_eta == 0);
}

struct evaluated_steps {
    int64_t step[8];
    int n;
};

static void note_evaluation(void *arg, int64_t step, const struct evaluation *e)
{
    struct evaluated_steps *seen = arg;
    (void)e;
    assert_true(seen->n < 8);
    seen->step[seen->n++] = step;
}

static struct evaluated_steps train_timed(const struct run_config *config)
{
    struct evaluated_steps seen = {0};
    struct run run;
    struct run_config c = *config;
    assert_ok(run_open(&run, &c, &(struct run_watch){.evaluated = note_evaluation, .arg = &seen}));
    assert_ok(run_train(&run));
    run_close(&run);
    return seen;
}

/* Evaluations by seconds of training, of 10 ms a round: after the first round that begins 47 ms or
 * a multiple later, in a resumed run as without the break; local rounds know the time where groups
 * exchange, every 4 rounds. */
static void evaluations_by_time(void **state)
{
    (void)state;
    static const char *const timed[] = {"train.eval_every=0", "train.eval_seconds=0.047",
                                        "train.steps=18",     "train.save_every=10",
                                        "train.time=virtual", "train.workers=2",
                                        "worker.step=10ms",   "worker.memory=none",
                                        "link.inter=none",    NULL};
    static const int64_t common[] = {6, 11, 16, 18}, local[] = {8, 12, 16, 18};
    for (int i = 0; i < 2; i++) {
        const int64_t *want = i ? local : common;
        struct run_config c = configure(i ? "timed.local" : "timed", timed);
        if (i)
            set(&c, "strategy.preset=local-sgd");
        if (i)
            set(&c, "local.tau=4");
        const struct evaluated_steps whole = train_timed(&c);
        assert_int_equal(whole.n, 4);
        assert_memory_equal(whole.step, want, 4 * sizeof *want);
        char last[FILE_PATH_ROOM];
        assert_ok(file_join(last, c.train.out, "checkpoints/step-00000018"));
        assert_ok(file_remove_tree(last));
        c.train.resume = true;
        const struct evaluated_steps resumed = train_timed(&c);
        assert_int_equal(resumed.n, 3);
        assert_memory_equal(resumed.step, want + 1, 3 * sizeof *want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_by_time),
        cmocka_unit_test(resume_at_every_step),
        cmocka_unit_test(resume_variants),
        cmocka_unit_test(resume_with_another_cut),
        cmocka_unit_test(resume_after_a_crash),
        cmocka_unit_test(resume_publishes),
        cmocka_unit_test(unreadable_checkpoints),
        cmocka_unit_test(used_folders),
        cmocka_unit_test(changed_models),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(nothing_to_judge),
        cmocka_unit_test(vocabulary_of_validation),
        cmocka_unit_test(stopped_at_once),
        cmocka_unit_test(nothing_is_saved),
        cmocka_unit_test(divergence),
        cmocka_unit_test(saved_elsewhere),
        cmocka_unit_test(an_older_checkpoint),
        cmocka_unit_test(best_and_patience),
        cmocka_unit_test(a_folder_in_use),
        cmocka_unit_test(rounds_are_abandoned),
        cmocka_unit_test(start_from_a_model),
        cmocka_unit_test(text_and_tokenizer),
        cmocka_unit_test(rounds_allocate_nothing),
        cmocka_unit_test(time_left_is_never_negative),
        cmocka_unit_test(learns),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}

/* Cyclic data parallelism with real models, a GPT and a ResNet: every placement, rule, optimizer
 * and number of stages ends with the parameters of a plain loop over the rule, to the bit, and with
 * its running statistics to rounding. (strategy/test_cdp does it with an MLP.) */
#include "train/image_lab.h"

#include "strategy/cdp/cdp_replay.h"
#include "train/run/run_worker.h"

enum { STEPS = 4 };

static const char *const gpt[] = {"model.layers=7",    "model.width=8",     "model.heads=2",
                                  "model.positions=8", "train.seq=8",       "model.tied=no",
                                  "train.batch=1",     "model.mlp_width=8", NULL};
static const char *const resnet[] = {"model.preset=resnet8", "resnet.depths=3,3",
                                     "resnet.widths=4,4", "train.batch=2", NULL};

/* A run, and its results. */
struct lab {
    struct run run;
    float *x, *kept; /* parameters, without padding; the model's running statistics */
    double loss[STEPS];
};

static size_t state_count_of(const struct model *m)
{
    return m->state.n ? table_count(&m->state) : 0;
}

/* Moves tensors together, in place: the padding of stages depends on the placement. */
static void pack(const struct table *table, float *x)
{
    size_t to = 0;
    for (int i = 0; i < table->n; i++) {
        const size_t count = table->entry[i].count;
        memmove(x + to, x + table_range(table, i).begin, count * sizeof *x);
        to += count;
    }
}

static double lr(int64_t t)
{
    return 0.02 * (1 + 0.5 * cos(2.0 * (double)t));
}

static struct run_config configure(const char *const *model, const char *placement,
                                   const char *rule, int n, bool adamw)
{
    const bool single = strcmp(placement, "single") == 0, mp = strcmp(placement, "mp") == 0;
    struct run_config c = configure_run("run");
    char text[4][64];
    snprintf(text[0], sizeof *text, "cdp.placement=%s", placement);
    snprintf(text[1], sizeof *text, "cdp.rule=%s", rule);
    snprintf(text[2], sizeof *text, single ? "cdp.stages=%d" : "train.workers=%d",
             mp ? n * (n + 1) / 2 : n);
    snprintf(text[3], sizeof *text, "optim.kind=%s", adamw ? "adamw" : "sgd");
    const char *const options[] = {"strategy.preset=cdp",
                                   text[0],
                                   text[1],
                                   text[2],
                                   text[3],
                                   adamw ? "optim.momentum=0" : "optim.momentum=0.9",
                                   "train.threads=1",
                                   "optim.weight_decay=0.02",
                                   "optim.clip=0",
                                   "train.eval_batches=0",
                                   NULL};
    if (model == resnet)
        strcpy(c.data.train, at("set"));
    set_all(&c, model, SIZE_MAX);
    set_all(&c, options, SIZE_MAX);
    return c;
}

/* Three stages: parameters are imported in the middle, and micro-batches in flight are run
 * again. */
static bool imports(const struct run *run, int64_t step)
{
    return run->table->n_stage == 3 && step == STEPS / 2;
}

static enum sotto_status import_own(struct training *t)
{
    float *x = malloc(table_count(t->oracle->table) * sizeof *x);
    assert_non_null(x);
    enum sotto_status st = t->strategy->ops->export(t->strategy, x);
    if (st == SOTTO_OK)
        st = t->strategy->ops->import(t->strategy, x);
    free(x);
    return st;
}

static enum sotto_status rounds(struct run_worker *rw, struct lab *lab)
{
    struct training *t = &rw->training;
    struct running_stats *running = &rw->oracle.running;
    const bool first = t->worker->rank == 0;
    for (int64_t s = 0; s < STEPS; s++) {
        struct round r;
        if (imports(rw->run, s))
            TRY(import_own(t));
        TRY(t->strategy->ops->round(t->strategy, &(struct plan){.lr = lr(s)}, &r));
        if (first)
            lab->loss[s] = r.loss;
    }
    TRY(t->strategy->ops->export(t->strategy, first ? lab->x : NULL));
    TRY(running_stats_average(running, t->worker->world));
    if (first && running->mean.dev)
        t->dev.ops->read(&t->dev, lab->kept, running->mean.view, running->mean.count);
    if (first)
        pack(rw->run->table, lab->x);
    return device_check(&t->dev);
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct lab *lab = arg;
    struct run_worker *rw = malloc(sizeof *rw);
    assert_non_null(rw);
    enum sotto_status st = run_worker_open(rw, &lab->run, w);
    if (st == SOTTO_OK) {
        st = rounds(rw, lab);
        if (st != SOTTO_OK)
            mesh_abort(&rw->training.mesh, st);
    }
    run_worker_close(rw);
    free(rw);
    return st;
}

/* An oracle whose running statistics move by the sum over a step's micro-batches: every micro-batch
 * begins with a change of zero. */
struct alone {
    struct model_oracle model; /* first */
    struct oracle_ops ops;
    const struct oracle_ops *own;
    struct buffer state, sum;
};

static void collect(struct alone *a)
{
    struct device *dev = a->model.is.dev;
    if (!a->state.dev)
        return;
    dev->ops->axpy(dev, a->sum.view, 1, a->state.view, a->state.count);
    dev->ops->fill(dev, a->state.view, a->state.count, 0);
}

static enum sotto_status begin(struct oracle *o, int slot, int64_t index, int rank, bool sum)
{
    collect((struct alone *)o);
    return ((struct alone *)o)->own->begin(o, slot, index, rank, sum);
}

/* r' = 9/10 r + the mean over the step's micro-batches; counts are added. */
static void keep(struct alone *a, const struct model *model, int n, float *kept)
{
    collect(a);
    const float *sum = view_host(a->sum.view);
    for (int i = 0; i < model->state.n; i++) {
        const struct table_entry *e = &model->state.entry[i];
        const size_t at_ = table_range(&model->state, i).begin;
        for (size_t j = at_; j < at_ + e->count; j++)
            kept[j] = kept[j] * (e->form == FORM_COUNTER ? 1 : 0.9f) + sum[j] / (float)n;
    }
    a->model.is.dev->ops->fill(a->model.is.dev, a->sum.view, a->sum.count, 0);
}

static void replay(const struct run *run, bool v2, bool turns, struct lab *out)
{
    const struct run_config *c = &run->config;
    const size_t count = table_count(&run->model.table), state = state_count_of(&run->model);
    struct worker w;
    struct memory memory = {0};
    struct device dev;
    struct pool pool;
    struct alone a = {0};
    assert_ok(worker_alone(&w));
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    if (run->model.state.n) {
        assert_ok(buffer_init(&a.state, &dev, DTYPE_F32, state, MEMORY_PARAMETERS));
        assert_ok(buffer_init(&a.sum, &dev, DTYPE_F32, state, MEMORY_PARAMETERS));
        model_state_start(&run->model, out->kept);
    }
    assert_ok(
        model_oracle_init(&a.model, &(struct model_oracle_setup){.model = &run->model,
                                                                 .dev = &dev,
                                                                 .pool = &pool,
                                                                 .loader = run->train,
                                                                 .seed = (uint64_t)c->train.seed,
                                                                 .rows = c->train.batch,
                                                                 .t = c->train.seq,
                                                                 .slots = 1,
                                                                 .state = a.state.view,
                                                                 .worker = &w}));
    a.own = a.model.base.ops;
    a.ops = *a.own;
    a.ops.begin = begin;
    a.model.base.ops = &a.ops;
    const int n = run->model.table.n_stage;
    struct replay r = {.rule = v2 ? REPLAY_V2 : REPLAY_V1,
                       .n = n,
                       .size = 1,
                       .turns = turns,
                       .sums = DTYPE_F32,
                       .lr = lr,
                       .optim = &c->optim};
    replay_open(&r, &a.model.base, &dev, run->start);
    for (int t = 0; t < STEPS; t++) {
        if (imports(run, t)) /* imported parameters replace both versions */
            dev.ops->copy(&dev, r.before.view, r.theta.view, r.theta.count);
        replay_step(&r, &a.model.base, &dev);
        if (a.state.dev)
            keep(&a, &run->model, n, out->kept);
        out->loss[t] = r.loss;
    }
    dev.ops->read(&dev, out->x, r.x.view, count);
    pack(run->table, out->x);
    replay_close(&r);
    model_oracle_free(&a.model);
    buffer_free(&a.state);
    buffer_free(&a.sum);
    pool_free(&pool);
    device_close(&dev);
    comm_free(w.world);
    assert_int_equal(memory.total, 0);
}

static void compare(const struct lab *have, const struct lab *want, const char *name)
{
    const struct model *m = &have->run.model;
    for (int t = 0; t < STEPS; t++)
        if (fabs(have->loss[t] - want->loss[t]) > 1e-6 * fabs(want->loss[t]))
            fail_with("%s: loss %d is %.9g, not %.9g", name, t, have->loss[t], want->loss[t]);
    for (size_t i = 0; i < m->table.parameters; i++)
        if (have->x[i] != want->x[i])
            fail_with("%s: x[%zu] is %.9g, not %.9g", name, i, have->x[i], want->x[i]);
    for (size_t i = 0; i < state_count_of(m); i++)
        if (!(fabsf(have->kept[i] - want->kept[i]) <= 1e-5f * (1 + fabsf(want->kept[i]))))
            fail_with("%s: keeps %.9g at %zu, not %.9g", name, have->kept[i], i, want->kept[i]);
}

static const char *const placements[] = {"single", "dp", "pp", "zero", "mp"};
enum { PLACEMENTS = sizeof placements / sizeof *placements, MOST = 1 << 15 };

/* All placements but mp add up gradients in the order of micro-batches. */
static void check(const char *const *model, int n, bool v2, bool adamw)
{
    static float x[2][MOST], kept[2][MOST];
    struct lab have = {.x = x[0], .kept = kept[0]}, want = {.x = x[1], .kept = kept[1]};
    for (int p = 0; p < PLACEMENTS; p++) {
        const bool mp = strcmp(placements[p], "mp") == 0;
        char name[64];
        snprintf(name, sizeof name, "%s %s, %d stages, %s", placements[p], v2 ? "v2" : "v1", n,
                 adamw ? "adamw" : "sgd");
        struct run_config c = configure(model, placements[p], v2 ? "v2" : "v1", n, adamw);
        assert_ok(run_open(&have.run, &c, &(struct run_watch){0}));
        assert_int_equal(have.run.model.table.n_stage, n);
        assert_true(table_count(&have.run.model.table) <= MOST);
        if (p == 0 || mp)
            replay(&have.run, v2, mp, &want);
        if (cluster_run(&have.run.cluster, work, &have) != SOTTO_OK)
            fail_with("%s: %s", name, sotto_error());
        compare(&have, &want, name);
        run_close(&have.run);
        assert_ok(file_remove_tree(at("run")));
    }
}

static void check_all(const char *const *model)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    EACH_SHARED(variant, LEAP, 20)
        check(model, sizes[variant / 4], variant % 2, variant / 2 % 2);
}

static void a_gpt(void **state)
{
    (void)state;
    write_tokens(at("data.tok"), 4000, 29);
    check_all(gpt);
}

static void a_resnet(void **state)
{
    (void)state;
    check_all(resnet);
}

static int make_set(void **state)
{
    return make_image_set(state, 8, 64, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt),
        cmocka_unit_test(a_resnet),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_set, scratch_remove);
}

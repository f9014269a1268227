/* Oracles with several micro-batches: two in flight with parameters of their own equal two in
 * sequence; a model cut into stages on workers of their own, with only edges between them, equals
 * the whole model, and so does a problem of the public interface. All to the bit. */
#include "nn/lab.h"
#include "train/fixture.h"

#include "train/api/api_impl.h"
#include "train/oracle/model_oracle.h"
#include "train/oracle/null_oracle.h"
#include "train/plan/estimate.h"

enum { STAGES = 3, ROWS = 2, T = 8, MOST = 1 << 15, BATCHES = 4, WORKERS = 4 };

/* A worker that computes: an oracle, and parameters and gradients of the model's size. */
struct seat {
    struct memory memory;
    size_t own; /* scratch of the device itself, and of the oracle's reader of losses */
    struct device dev;
    struct pool pool;
    struct model_oracle oracle;
    struct buffer theta[2], grad[BATCHES]; /* versions; of each micro-batch */
    struct view theta_at[2][STAGES], grad_at[BATCHES][STAGES];
};

static struct loader *open_data(void)
{
    struct loader *loader;
    struct run_config *c = malloc(sizeof *c);
    assert_non_null(c);
    *c = configure_run("run");
    assert_ok(loader_open(&loader, &c->data, DATA_TRAIN, NULL));
    free(c);
    return loader;
}

static void open_seat(struct seat *s, const struct model *model, const struct loader *loader,
                      struct worker *w, int slots, bool recompute)
{
    const struct table *table = &model->table;
    memset(s, 0, sizeof *s);
    assert_ok(device_open(&s->dev, test_device(), &s->memory, 1));
    const size_t opened = s->memory.now[MEMORY_SCRATCH];
    pool_init(&s->pool, &s->dev, MEMORY_ACTIVATIONS);
    for (int i = 0; i < 2; i++) {
        assert_ok(
            buffer_init(&s->theta[i], &s->dev, DTYPE_F32, table_count(table), MEMORY_PARAMETERS));
        float *x = calloc(s->theta[i].count, sizeof *x);
        tiny_parameters(model, 3 + (uint64_t)i, x);
        s->dev.ops->write(&s->dev, s->theta[i].view, x, s->theta[i].count);
        free(x);
        table_stages(table, s->theta[i].view, s->theta_at[i]);
    }
    for (int i = 0; i < BATCHES; i++) {
        assert_ok(
            buffer_init(&s->grad[i], &s->dev, DTYPE_F32, table_count(table), MEMORY_GRADIENTS));
        table_stages(table, s->grad[i].view, s->grad_at[i]);
    }
    s->own = s->memory.now[MEMORY_SCRATCH] + (s->dev.ops->mark ? opened : 0); /* the reader's */
    assert_ok(model_oracle_init(
        &s->oracle,
        &(struct model_oracle_setup){.model = model,
                                     .dev = &s->dev,
                                     .pool = &s->pool,
                                     .loader = loader,
                                     .seed = 5,
                                     .rows = ROWS,
                                     .t = T,
                                     .slots = slots,
                                     .all = !recompute && s->dev.ops->place == PLACE_DEVICE,
                                     .recompute = recompute,
                                     .worker = w}));
}

static void close_seat(struct seat *s)
{
    model_oracle_free(&s->oracle);
    for (int i = 0; i < 2; i++)
        buffer_free(&s->theta[i]);
    for (int i = 0; i < BATCHES; i++)
        buffer_free(&s->grad[i]);
    pool_free(&s->pool);
    device_close(&s->dev);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(s->memory.now[c], 0);
}

/* What micro-batches are to give: number i is `index` i of data rank (i + 1) % WORKERS, computed
 * with version i % 2. */
struct truth {
    float grad[BATCHES][MOST];
    struct oracle_result result[BATCHES];
};

static int rank_of(int i)
{
    return (i + 1) % WORKERS;
}

/* One slot, each micro-batch whole before the next. */
static void one_by_one(struct truth *out, const struct model *model, const struct loader *loader,
                       struct worker *w, bool recompute)
{
    struct seat s;
    open_seat(&s, model, loader, w, 1, recompute);
    struct oracle *o = &s.oracle.base;
    for (int i = 0; i < BATCHES; i++) {
        assert_ok(oracle_begin(o, 0, i, rank_of(i), false));
        for (int k = 0; k < STAGES; k++)
            assert_ok(oracle_forward(o, 0, k, s.theta_at[i % 2]));
        for (int k = STAGES - 1; k >= 0; k--)
            assert_ok(oracle_backward(o, 0, k, s.theta_at[i % 2], s.grad_at[i]));
        assert_ok(oracle_result(o, 0, NULL, &out->result[i]));
        s.dev.ops->read(&s.dev, out->grad[i], s.grad[i].view, s.grad[i].count);
    }
    assert_int_equal(o->microbatches, BATCHES);
    assert_true(out->result[0].loss != out->result[2].loss); /* other data */
    close_seat(&s);
}

static void assert_result(const struct oracle_result *have, const struct oracle_result *want)
{
    assert_true(have->loss == want->loss);
    assert_int_equal(have->targets, want->targets);
    assert_int_equal(have->tokens, want->tokens);
}

/* Cyclic data parallelism's order: micro-batch i begins two time steps after i - 1, so that several
 * are in flight at all times, at different stages. */
static void in_flight(void **state)
{
    (void)state;
    struct truth *want = malloc(sizeof *want);
    struct loader *loader = open_data();
    struct worker w;
    assert_ok(worker_alone(&w));
    w.size = WORKERS; /* whose data there are */
    for (int which = 0; which < TINY; which++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            struct model model;
            struct seat s;
            tiny_model(&model, which, STAGES, 8);
            one_by_one(want, &model, loader, &w, recompute);
            open_seat(&s, &model, loader, &w, BATCHES, recompute);
            struct oracle *o = &s.oracle.base;
            assert_int_equal(o->slots, BATCHES);
            const size_t tokens = ROWS * T * (4 + 4 + 4 + 1); /* targets, losses, hits; layers' */
            assert_int_equal(s.memory.now[MEMORY_SCRATCH],
                             s.own + s.dev.room_bytes + BATCHES * tokens);
            for (int step = 0; step < 2 * STAGES + 2 * (BATCHES - 1); step++) {
                for (int i = 0; i < BATCHES; i++) {
                    const int u = step - 2 * i;
                    if (u == 0)
                        assert_ok(oracle_begin(o, i, i, rank_of(i), false));
                    if (u >= 0 && u < STAGES)
                        assert_ok(oracle_forward(o, i, u, s.theta_at[i % 2]));
                    else if (u >= STAGES && u < 2 * STAGES)
                        assert_ok(oracle_backward(o, i, 2 * STAGES - 1 - u, s.theta_at[i % 2],
                                                  s.grad_at[i]));
                }
            }
            for (int i = 0; i < BATCHES; i++) {
                struct oracle_result r;
                assert_ok(oracle_result(o, i, NULL, &r));
                assert_result(&r, &want->result[i]);
                float have[MOST];
                s.dev.ops->read(&s.dev, have, s.grad[i].view, s.grad[i].count);
                assert_memory_equal(have, want->grad[i], s.grad[i].count * sizeof(float));
            }
            close_seat(&s);
            model_free(&model);
        }
    }
    comm_free(w.world);
    loader_close(loader);
    free(want);
}

struct pipeline {
    const struct model *model;
    const struct loader *loader;
    bool recompute;
    float grad[BATCHES][MOST]; /* where the workers leave what their stages gave */
    struct oracle_result result[STAGES][BATCHES];
};

static void show(const struct view *all, const bool *mine, struct view *out)
{
    for (int j = 0; j < STAGES; j++)
        out[j] = mine[j] ? all[j] : view_none;
}

static enum sotto_status pass_on(struct oracle *o, struct worker *w, int slot, int k, bool gradient)
{
    struct view edge;
    size_t count;
    TRY(gradient ? oracle_edge_gradient(o, slot, k, &edge, &count)
                 : oracle_edge(o, slot, k, &edge, &count));
    TRY(comm_send(w->world, edge, count, gradient ? k - 1 : k));
    oracle_drop(o, slot, k);
    return SOTTO_OK;
}

static enum sotto_status take(struct oracle *o, struct worker *w, int slot, int k, bool gradient)
{
    struct view edge;
    size_t count;
    TRY(gradient ? oracle_edge_gradient(o, slot, k, &edge, &count)
                 : oracle_edge(o, slot, k, &edge, &count));
    return comm_recv(w->world, edge, count, gradient ? k : k - 1);
}

/* A tied table's gradient begins with the sum of the other stages' backward. */
static enum sotto_status pass_shared(struct worker *w, const bool *mine, const struct view *grad,
                                     const struct table *table)
{
    for (int j = 0; j < w->rank; j++)
        if (mine[j])
            TRY(comm_send(w->world, grad[j], table_stage_count(table, j), j));
    return SOTTO_OK;
}

/* Worker k has stage k and the tensors that it reads. All micro-batches go forward, then all go
 * back, in a slot each. */
static enum sotto_status run_stage(struct worker *w, void *arg)
{
    struct pipeline *p = arg;
    const struct table *table = &p->model->table;
    const int k = w->rank;
    struct seat s;
    bool mine[STAGES], others[STAGES];
    struct view theta[STAGES], grad[STAGES];
    struct worker as = *w; /* one pipeline of several that share the data */
    as.size = WORKERS;
    open_seat(&s, p->model, p->loader, &as, BATCHES, p->recompute);
    w->world->dev = &s.dev; /* edges are its memory */
    struct oracle *o = &s.oracle.base;
    oracle_needs(o, k, mine);
    for (int i = 0; i < BATCHES; i++) {
        TRY(oracle_begin(o, i, i, rank_of(i), false));
        show(s.theta_at[i % 2], mine, theta);
        if (k > 0)
            TRY(take(o, w, i, k, false));
        TRY(oracle_forward(o, i, k, theta));
        if (k + 1 < STAGES)
            TRY(pass_on(o, w, i, k + 1, false));
    }
    for (int i = BATCHES - 1; i >= 0; i--) {
        show(s.theta_at[i % 2], mine, theta);
        show(s.grad_at[i], mine, grad);
        if (k + 1 < STAGES)
            TRY(take(o, w, i, k + 1, true));
        for (int j = STAGES - 1; j > k; j--) {
            oracle_needs(o, j, others);
            if (others[k])
                TRY(comm_recv(w->world, grad[k], table_stage_count(table, k), j));
        }
        TRY(oracle_backward(o, i, k, theta, grad));
        if (k > 0)
            TRY(pass_on(o, w, i, k, true));
        TRY(pass_shared(w, mine, grad, table));
        TRY(oracle_result(o, i, NULL, &p->result[k][i]));
        s.dev.ops->read(&s.dev, p->grad[i] + table->stage_start[k], grad[k],
                        table_stage_count(table, k));
    }
    assert_int_equal(lab_idle(&s.pool), s.memory.now[MEMORY_ACTIVATIONS]); /* nothing is held */
    w->world->dev = NULL;
    close_seat(&s);
    return SOTTO_OK;
}

static void over_edges(void **state)
{
    (void)state;
    struct truth *want = malloc(sizeof *want);
    struct pipeline *p = malloc(sizeof *p);
    struct loader *loader = open_data();
    struct worker w;
    assert_ok(worker_alone(&w));
    w.size = WORKERS;
    for (int which = 0; which < TINY; which++) {
        struct model model;
        bool needs[STAGES];
        tiny_model(&model, which, STAGES, 8);
        model_stage_needs(&model, STAGES - 1, needs);
        assert_int_equal(needs[0], model.config.tied == TIED_YES);
        for (int recompute = 0; recompute < 2; recompute++) {
            one_by_one(want, &model, loader, &w, recompute);
            *p = (struct pipeline){.model = &model, .loader = loader, .recompute = recompute};
            assert_ok(engine_threads(&(struct engine_config){.workers = STAGES}, run_stage, p));
            for (int i = 0; i < BATCHES; i++) {
                assert_result(&p->result[STAGES - 1][i], &want->result[i]);
                assert_true(p->result[0][i].loss == 0);
                assert_int_equal(p->result[0][i].targets, want->result[i].targets);
                assert_memory_equal(p->grad[i], want->grad[i],
                                    table_count(&model.table) * sizeof(float));
            }
        }
        model_free(&model);
    }
    comm_free(w.world);
    loader_close(loader);
    free(p);
    free(want);
}

/* Declared sizes: a slot's activations are accounted until its backward, and edges have the
 * declared length. */
static void declared(void **state)
{
    (void)state;
    enum { BYTES = 1000, EDGE = 37, SLOTS = 2 };
    struct memory memory = {0};
    struct device dev;
    struct table table;
    struct null_oracle null;
    struct worker w;
    struct view edge;
    size_t count;
    assert_ok(worker_alone(&w));
    assert_ok(device_open(&dev, "null", &memory, 1));
    assert_ok(null_table(&table, 500, STAGES, 1));
    assert_ok(null_oracle_init(
        &null, &table, &w, &dev,
        &(struct null_config){.tokens = 7, .activations = BYTES, .edge = EDGE, .slots = SLOTS}));
    struct oracle *o = &null.base;
    for (int i = 0; i < SLOTS; i++) {
        assert_ok(oracle_begin(o, i, i, 0, false));
        for (int k = 0; k < STAGES; k++)
            assert_ok(oracle_forward(o, i, k, NULL));
        assert_int_equal(memory.now[MEMORY_ACTIVATIONS], (i + 1) * BYTES);
    }
    assert_ok(oracle_edge(o, 1, 1, &edge, &count));
    assert_int_equal(count, EDGE);
    assert_ok(oracle_edge_gradient(o, 1, 2, &edge, &count));
    assert_int_equal(count, EDGE);
    oracle_drop(o, 1, 1);
    for (int k = STAGES - 1; k >= 0; k--)
        assert_ok(oracle_backward(o, 0, k, NULL, NULL));
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], BYTES);
    assert_ok(oracle_begin(o, 1, 5, 0, false)); /* leaves what was there unfinished */
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 0);
    null_oracle_free(&null);
    table_free(&table);
    device_close(&dev);
    comm_free(w.world);
}

/* A problem of the public interface: a chain of tanh(w x), then 1/2 |w x - t|^2. Forward keeps
 * values for backward in the slot. */
enum { WIDTH = 5 };

struct hand {
    float (*kept)[STAGES][WIDTH]; /* (slots) */
};

static enum sotto_status open_hand(void *user, int rank, int size, void **worker)
{
    (void)user, (void)rank, (void)size;
    *worker = calloc(1, sizeof(struct hand));
    return SOTTO_OK;
}

static enum sotto_status hand_slots(void *worker, int slots)
{
    struct hand *h = worker;
    h->kept = calloc((size_t)slots, sizeof *h->kept);
    return SOTTO_OK;
}

static void close_hand(void *worker)
{
    struct hand *h = worker;
    free(h->kept);
    free(h);
}

static float datum(const struct sotto_microbatch *b, int i)
{
    return sinf(1.7f * (float)(b->index * b->size + b->rank) + 0.3f * (float)i);
}

static enum sotto_status hand_forward(void *worker, struct sotto_microbatch *b, int stage,
                                      const float *const *theta)
{
    struct hand *h = worker;
    assert_true((b->x == NULL) == (stage == 0) && (b->y == NULL) == (stage == STAGES - 1));
    for (int i = 0; i < WIDTH; i++) {
        const float in = stage ? b->x[i] : datum(b, i), z = theta[stage][i] * in;
        h->kept[b->slot][stage][i] = stage < STAGES - 1 ? tanhf(z) : z - datum(b, i + 7);
        if (stage < STAGES - 1)
            b->y[i] = h->kept[b->slot][stage][i];
        else
            b->loss += 0.5 * h->kept[b->slot][stage][i] * h->kept[b->slot][stage][i];
    }
    return SOTTO_OK;
}

static enum sotto_status hand_backward(void *worker, struct sotto_microbatch *b, int stage,
                                       const float *const *theta, float *const *grad)
{
    struct hand *h = worker;
    assert_true((b->dx == NULL) == (stage == 0) && (b->dy == NULL) == (stage == STAGES - 1));
    for (int i = 0; i < WIDTH; i++) {
        const float in = stage ? b->x[i] : datum(b, i), kept = h->kept[b->slot][stage][i];
        const float d = stage < STAGES - 1 ? b->dy[i] * (1 - kept * kept) : kept;
        grad[stage][i] += d * in;
        if (stage > 0)
            b->dx[i] = d * theta[stage][i];
    }
    return SOTTO_OK;
}

static const struct sotto_tensor chain[STAGES] = {
    {"a", {WIDTH}, 0}, {"b", {WIDTH}, 1}, {"c", {WIDTH}, 2}};
static const size_t chain_edges[STAGES] = {0, WIDTH, WIDTH};
static const struct sotto_problem chain_problem = {.struct_size = sizeof chain_problem,
                                                   .tensors = chain,
                                                   .count = STAGES,
                                                   .forward = hand_forward,
                                                   .backward = hand_backward,
                                                   .worker_open = open_hand,
                                                   .worker_close = close_hand,
                                                   .edges = chain_edges,
                                                   .worker_slots = hand_slots};

struct chain_lab {
    struct table table;
    float theta[STAGES * WIDTH];
    float grad[2][BATCHES][STAGES * WIDTH]; /* whole; in stages */
    double loss[2][BATCHES];
};

struct chain_seat {
    struct memory memory;
    struct device dev;
    struct problem_oracle oracle;
};

static void open_chain(struct chain_seat *s, struct chain_lab *lab, struct worker *w, int slots)
{
    memset(s, 0, sizeof *s);
    assert_ok(device_open(&s->dev, "cpu", &s->memory, 1));
    assert_ok(
        problem_oracle_init(&s->oracle, &(struct problem_oracle_setup){.problem = &chain_problem,
                                                                       .table = &lab->table,
                                                                       .dev = &s->dev,
                                                                       .worker = w,
                                                                       .slots = slots}));
    assert_int_equal(s->memory.now[MEMORY_ACTIVATIONS],
                     slots * 2 * (STAGES - 1) * WIDTH * sizeof(float));
}

static void close_chain(struct chain_seat *s)
{
    problem_oracle_free(&s->oracle);
    device_close(&s->dev);
    assert_int_equal(s->memory.total, 0);
}

static void chain_views(const struct table *table, float *flat, struct view *out)
{
    table_stages(table, (struct view){flat, DTYPE_F32, PLACE_HOST}, out);
}

static enum sotto_status run_chain_stage(struct worker *w, void *arg)
{
    struct chain_lab *lab = arg;
    const int k = w->rank;
    struct chain_seat s;
    bool mine[STAGES];
    struct view all[STAGES], theta[STAGES], grad[STAGES];
    open_chain(&s, lab, w, BATCHES);
    struct oracle *o = &s.oracle.base;
    oracle_needs(o, k, mine);
    chain_views(&lab->table, lab->theta, all);
    show(all, mine, theta);
    for (int i = 0; i < BATCHES; i++) {
        TRY(oracle_begin(o, i, i, i % STAGES, false));
        if (k > 0)
            TRY(take(o, w, i, k, false));
        TRY(oracle_forward(o, i, k, theta));
        if (k + 1 < STAGES)
            TRY(pass_on(o, w, i, k + 1, false));
    }
    for (int i = 0; i < BATCHES; i++) {
        struct oracle_result r;
        chain_views(&lab->table, lab->grad[1][i], all);
        show(all, mine, grad);
        if (k + 1 < STAGES)
            TRY(take(o, w, i, k + 1, true));
        TRY(oracle_backward(o, i, k, theta, grad));
        if (k > 0)
            TRY(pass_on(o, w, i, k, true));
        TRY(oracle_result(o, i, NULL, &r));
        if (k == STAGES - 1)
            lab->loss[1][i] = r.loss;
    }
    close_chain(&s);
    return SOTTO_OK;
}

static enum sotto_status run_chain(struct worker *w, void *arg)
{
    struct chain_lab *lab = arg;
    struct chain_seat s;
    struct view theta[STAGES], grad[STAGES];
    struct worker as = *w;
    as.size = STAGES;
    open_chain(&s, lab, &as, 1);
    struct oracle *o = &s.oracle.base;
    chain_views(&lab->table, lab->theta, theta);
    for (int i = 0; i < BATCHES; i++) {
        struct oracle_result r;
        chain_views(&lab->table, lab->grad[0][i], grad);
        TRY(oracle_begin(o, 0, i, i % STAGES, false));
        for (int k = 0; k < STAGES; k++)
            TRY(oracle_forward(o, 0, k, theta));
        for (int k = STAGES - 1; k >= 0; k--)
            TRY(oracle_backward(o, 0, k, theta, grad));
        TRY(oracle_result(o, 0, NULL, &r));
        lab->loss[0][i] = r.loss;
    }
    close_chain(&s);
    return SOTTO_OK;
}

static void embedded_over_edges(void **state)
{
    (void)state;
    struct chain_lab lab = {0};
    assert_ok(problem_table(&chain_problem, 1, &lab.table));
    for (int i = 0; i < STAGES * WIDTH; i++)
        lab.theta[i] = 0.5f + 0.1f * (float)i;
    assert_ok(engine_threads(&(struct engine_config){.workers = 1}, run_chain, &lab));
    assert_ok(engine_threads(&(struct engine_config){.workers = STAGES}, run_chain_stage, &lab));
    assert_memory_equal(lab.grad[1], lab.grad[0], sizeof lab.grad[0]);
    assert_memory_equal(lab.loss[1], lab.loss[0], sizeof lab.loss[0]);
    assert_true(lab.loss[0][0] > 0 && lab.grad[0][1][0] != 0);

    struct worker w; /* stages that cannot hold two micro-batches, or whose edges cannot be sent */
    struct sotto_problem p = chain_problem;
    struct problem_oracle o;
    struct memory memory = {0};
    struct device dev;
    struct view edge;
    size_t count;
    p.worker_slots = NULL;
    p.edges = NULL;
    struct problem_oracle_setup setup = {
        .problem = &p, .table = &lab.table, .dev = &dev, .worker = &w, .slots = 2};
    assert_ok(worker_alone(&w));
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    assert_fails(problem_oracle_init(&o, &setup), SOTTO_EINVAL, "no worker_slots");
    setup.slots = 1;
    assert_ok(problem_oracle_init(&o, &setup));
    assert_fails(oracle_edge(&o.base, 0, 1, &edge, &count), SOTTO_EINVAL, "(edges)");
    problem_oracle_free(&o);
    device_close(&dev);
    comm_free(w.world);
    table_free(&lab.table);
}

/* A method with several slots (strategy/together.c) works with every oracle. */
enum { TOGETHER = 3 };

static struct run_config *together(const char *method, const char *const *options)
{
    static int runs;
    char out[32];
    const char *const basic[] = {"strategy.accumulate=3", "model.layers=3",     "model.width=32",
                                 "model.heads=2",         "model.positions=16", "train.batch=2",
                                 "train.steps=3",         "optim.warmup=0",     "optim.clip=0",
                                 "train.threads=1",       "train.workers=2"};
    struct run_config *c = malloc(sizeof *c);
    assert_non_null(c);
    snprintf(out, sizeof out, "together.%d", runs++);
    *c = configure_run(out);
    set_all(c, basic, sizeof basic / sizeof *basic);
    strcpy(c->strategy.preset, method);
    set_all(c, options, 8);
    return c;
}

static void wanted_by_a_method(void **state)
{
    (void)state;
    static const char *const methods[] = {"ddp", "together"};
    double bytes[2], estimated[2];
    uint64_t hash[2];
    for (int m = 0; m < 2; m++) {
        struct run run;
        struct estimate e;
        struct run_config *c = together(methods[m], NULL);
        assert_ok(run_open(&run, c, NULL));
        assert_ok(estimate_run(&run, &e));
        assert_ok(run_train(&run));
        hash[m] = run.result.hash;
        estimated[m] = e.bytes[MEMORY_ACTIVATIONS];
        bytes[m] = (double)(run.result.worker[0].memory[MEMORY_ACTIVATIONS] +
                            run.result.worker[1].memory[MEMORY_ACTIVATIONS]);
        run_close(&run);
        free(c);
        assert_true(estimated[m] == bytes[m]);
    }
    assert_true(hash[0] == hash[1]);
    assert_true(bytes[1] > 2 * bytes[0]);
}

static void wanted_without_a_model(void **state)
{
    (void)state;
    double bytes[2];
    for (int m = 0; m < 2; m++) {
        struct run run;
        struct run_config *c =
            together(m ? "together" : "ddp",
                     (const char *[]){"train.oracle=null", "train.time=virtual", "worker.step=1ms",
                                      "null.parameters=1000", "null.activation_bytes=4000", NULL});
        assert_ok(run_open(&run, c, NULL));
        assert_ok(run_train(&run));
        bytes[m] = (double)run.result.worker[0].memory[MEMORY_ACTIVATIONS];
        run_close(&run);
        free(c);
    }
    assert_true(bytes[0] == 4000 && bytes[1] == TOGETHER * 4000);
}

static void wanted_of_a_problem(void **state)
{
    (void)state;
    float x[2][STAGES * WIDTH];
    struct sotto_options *o;
    struct sotto_problem p = chain_problem;
    struct sotto_training t = {.struct_size = sizeof t, .problem = &p};
    assert_ok(sotto_options_create(&o));
    assert_ok(sotto_options_set(o, "train.steps", "4"));
    assert_ok(sotto_options_set(o, "train.workers", "2"));
    assert_ok(sotto_options_set(o, "strategy.accumulate", "3"));
    t.options = o;
    for (int m = 0; m < 2; m++) {
        for (int i = 0; i < STAGES * WIDTH; i++)
            x[m][i] = 0.5f + 0.1f * (float)i;
        assert_ok(sotto_options_set(o, "strategy", m ? "together" : "ddp"));
        t.parameters = x[m];
        assert_ok(sotto_train(&t, NULL));
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    p.worker_slots = NULL;
    assert_fails(sotto_train(&t, NULL), SOTTO_EINVAL,
                 "the method has 3 micro-batches in progress at once, and the problem has no "
                 "worker_slots");
    sotto_options_destroy(o);
}

/* An oracle with too few slots is refused with a message. */
static void too_few(void **state)
{
    (void)state;
    struct strategy_config config;
    struct optim_config optim;
    struct oracle oracle = {.slots = 2};
    struct strategy *s;
    strategy_defaults(&config);
    optim_defaults(&optim);
    strcpy(config.preset, "together");
    config.accumulate = TOGETHER;
    assert_ok(strategy_resolve(&config, 1));
    assert_fails(
        strategy_open(
            &s, &(struct strategy_setup){.config = &config, .optim = &optim, .oracle = &oracle}),
        SOTTO_EINVAL, "together has 3 micro-batches in flight at once, the oracle holds 2");
}

/* Returns the share of a micro-batch's real time that its oracle has counted. */
static double counted_share(struct seat *s, const struct worker *w)
{
    struct oracle *o = &s->oracle.base;
    struct oracle_result r;
    assert_ok(oracle_begin(o, 0, 0, 0, false));
    assert_ok(device_check(&s->dev));
    const double before = o->seconds, begin = clock_now(w->clock);
    for (int k = 0; k < STAGES; k++)
        assert_ok(oracle_forward(o, 0, k, s->theta_at[0]));
    for (int k = STAGES - 1; k >= 0; k--)
        assert_ok(oracle_backward(o, 0, k, s->theta_at[0], s->grad_at[0]));
    assert_ok(oracle_result(o, 0, NULL, &r));
    return (o->seconds - before) / (clock_now(w->clock) - begin);
}

/* A micro-batch's seconds include ops that are still in progress when their calls return. Other
 * processes may delay one micro-batch between its calls, but not all of them. */
static void seconds_of_what_is_late(void **state)
{
    (void)state;
    struct loader *loader = open_data();
    struct worker w;
    struct model model;
    struct seat s;
    double share = 0;
    assert_int_equal(setenv("SOTTO_APART_DELAY", "1000", 1), 0);
    assert_ok(worker_alone(&w));
    tiny_model(&model, 0, STAGES, 8);
    open_seat(&s, &model, loader, &w, 1, false);
    for (int try = 0; try < 20 && share <= 0.25; try++)
        share = counted_share(&s, &w);
    assert_true(share > 0.25);
    close_seat(&s);
    model_free(&model);
    loader_close(loader);
    comm_free(w.world);
    assert_int_equal(unsetenv("SOTTO_APART_DELAY"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_flight),
        cmocka_unit_test(over_edges),
        cmocka_unit_test(declared),
        cmocka_unit_test(embedded_over_edges),
        cmocka_unit_test(wanted_by_a_method),
        cmocka_unit_test(wanted_without_a_model),
        cmocka_unit_test(wanted_of_a_problem),
        cmocka_unit_test(too_few),
        cmocka_unit_test(seconds_of_what_is_late),
    };
    return run_cases(tests, SANITIZED ? 3 : 1, make_data, scratch_remove);
}

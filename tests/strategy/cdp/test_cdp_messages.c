/* Cyclic data parallelism, watched while it runs in virtual time, with a time step of a second:
 * every message at its sender, every activation, and the place of each stage's state. */
#include "strategy/cdp/cdp_lab.h"

enum { STEPS = 6, FIRST = 2, STEADY = 3 }; /* steps in which the pipeline is full */
enum { WORKERS = CHAIN_STAGES * (CHAIN_STAGES + 1) / 2, MESSAGES = 1 << 14 };

/* The kind of a message, by its address: an address outside the vectors is an edge between stages,
 * or the counts of a step. */
enum kind { SUM, PARAMETERS, STATE, EDGE, NUMBERS, KINDS };

struct message {
    enum kind kind;
    int stage, from, to;
    int64_t time; /* step */
    size_t bytes;
};

struct watched {
    struct cdp_case is;
    struct seat seat[WORKERS];
    struct tap {
        struct comm_ops ops; /* first: a communicator's ops are replaced by these */
        const struct comm_ops *own;
        struct watched *of;
        int worker;
    } tap[WORKERS][MESH_COMMS + 1];
    struct message log[MESSAGES];
    int messages;
    int64_t collectives;
    int live[WORKERS], most[WORKERS]; /* activations of stages */
    bool ends[WORKERS];               /* the task before was a backward */
    size_t optimizer[WORKERS];        /* bytes */
};

static bool lies_in(const struct buffer *b, const void *data)
{
    return b->dev && view_host(b->view) == data;
}

static void tell_kind(const struct cdp *c, const void *data, size_t bytes, struct message *m)
{
    m->kind = bytes == CHAIN_WIDTH * sizeof(float) ? EDGE : NUMBERS;
    for (int k = 0; k < c->rooms; k++) {
        const struct cdp_room *room = &c->room[k];
        for (int i = 0; i < 2; i++) {
            const enum kind kind = lies_in(&room->g[i], data)       ? SUM
                                   : lies_in(&room->theta[i], data) ? PARAMETERS
                                   : lies_in(&room->state[i], data) ? STATE
                                                                    : KINDS;
            if (kind == KINDS)
                continue;
            m->kind = kind;
            m->stage = k;
        }
    }
}

static enum sotto_status send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct tap *tap = (struct tap *)c->ops;
    struct watched *w = tap->of;
    if (w->messages == MESSAGES)
        return fail(SOTTO_EINVAL, "more than %d messages", MESSAGES);
    struct message *m = &w->log[w->messages++];
    *m = (struct message){.from = tap->worker,
                          .to = to,
                          .time = llround(floor(clock_now(c->clock) + 1e-6)),
                          .bytes = bytes};
    tell_kind((const struct cdp *)w->seat[tap->worker].s, data, bytes, m);
    return tap->own->send(c, data, bytes, to);
}

static struct comm *comm_of(struct seat *p, struct worker *w, int i)
{
    return i < p->mesh.n_comm ? p->mesh.comm[i] : w->world;
}

static void open_taps(struct watched *w, struct seat *p, struct worker *worker)
{
    for (int i = 0; i <= p->mesh.n_comm; i++) {
        struct comm *c = comm_of(p, worker, i);
        struct tap *tap = &w->tap[worker->rank][i];
        *tap = (struct tap){*c->ops, c->ops, w, worker->rank};
        tap->ops.send = send;
        c->ops = &tap->ops;
    }
}

static void close_taps(struct watched *w, struct seat *p, struct worker *worker)
{
    for (int i = 0; i <= p->mesh.n_comm; i++)
        comm_of(p, worker, i)->ops = w->tap[worker->rank][i].own;
}

static int64_t collectives(struct seat *p, struct worker *w)
{
    int64_t sum = 0;
    for (int call = COMM_EXCHANGE; call < COMM_CALLS; call++)
        for (int i = 0; i <= p->mesh.n_comm; i++)
            sum += comm_of(p, w, i)->stats[call].calls;
    return sum;
}

/* zero: every worker has one stage, and every stage is on one worker. */
static enum sotto_status one_to_one(const struct watched *w, int rank, int now)
{
    const int n = w->is.n;
    int workers[CHAIN_STAGES] = {0};
    for (int i = 0; i < n; i++) {
        const struct cdp *c = (const struct cdp *)w->seat[i].s;
        int stages = 0;
        for (int k = 0; k < n; k++) {
            stages += c->stage[k].room != NULL;
            workers[k] += c->stage[k].room != NULL;
        }
        if (stages != 1)
            return fail(SOTTO_EINVAL, "worker %d has %d stages", i, stages);
    }
    for (int k = 0; k < n; k++)
        if (workers[k] != 1)
            return fail(SOTTO_EINVAL, "%d workers have stage %d", workers[k], k);
    if (!((const struct cdp *)w->seat[rank].s)->stage[now].room)
        return fail(SOTTO_EINVAL, "worker %d has another stage than %d", rank, now);
    return SOTTO_OK;
}

/* In the middle of a time step. */
static enum sotto_status watch(struct chain *chain, int slot, int k, bool backward)
{
    struct watched *w = chain->watcher;
    struct worker *worker = chain->worker;
    const int rank = worker->rank;
    (void)slot;
    w->live[rank] += !backward - w->ends[rank];
    w->ends[rank] = backward;
    w->most[rank] = w->live[rank] > w->most[rank] ? w->live[rank] : w->most[rank];
    TRY(worker->ops->compute(worker, NULL, NULL, chain->seconds));
    worker->ops->sync_clock(worker);
    if (strcmp(w->is.placement, "zero") == 0 && clock_now(worker->clock) > 2 * FIRST * w->is.n)
        TRY(one_to_one(w, rank, k));
    return SOTTO_OK;
}

static enum sotto_status rounds(struct watched *w, struct seat *p, struct worker *worker)
{
    for (int t = 0; t < STEPS; t++) {
        struct round r;
        TRY(p->s->ops->round(p->s, &(struct plan){.lr = 0.01}, &r));
    }
    w->optimizer[worker->rank] = p->memory.peak[MEMORY_OPTIMIZER];
    return mesh_rest(&p->mesh);
}

static enum sotto_status work(struct worker *worker, void *arg)
{
    struct watched *w = arg;
    struct seat *p = &w->seat[worker->rank];
    float x[CHAIN_MOST];
    enum sotto_status st;
    TRY_DONE(seat_open(p, &w->is, worker));
    p->chain.watch = watch;
    p->chain.watcher = w;
    p->chain.seconds = strcmp(w->is.placement, "single") == 0 ? 0.5 / w->is.n : 0.5;
    chain_start(x, table_count(&p->chain.table));
    TRY_DONE(p->s->ops->import(p->s, x));
    const int64_t before = collectives(p, worker);
    open_taps(w, p, worker);
    st = rounds(w, p, worker);
    close_taps(w, p, worker);
    w->collectives += collectives(p, worker) - before;
done:
    if (st != SOTTO_OK)
        mesh_abort(&p->mesh, st);
    (void)comm_barrier(worker->world); /* others look at this one's stages */
    seat_close(p);
    return st;
}

/* Of the steps in which the pipeline is full. */
struct traffic {
    int stage[KINDS][CHAIN_STAGES];
    int all[KINDS];
    int most[KINDS]; /* that a worker sends in a time step */
    int together;    /* messages of sums, parameters, states and edges sent together */
    int moves;       /* pairs of worker and time step with such messages */
    size_t bytes;    /* of sums and parameters */
};

static struct traffic count(const struct watched *w)
{
    static int sent[2 * CHAIN_STAGES * STEADY][WORKERS][KINDS];
    struct traffic out = {0};
    const int64_t begin = 2 * FIRST * w->is.n, length = 2 * STEADY * w->is.n;
    memset(sent, 0, sizeof sent);
    for (int i = 0; i < w->messages; i++) {
        const struct message *m = &w->log[i];
        if (m->time < begin || m->time >= begin + length)
            continue;
        out.all[m->kind]++;
        out.stage[m->kind][m->stage]++;
        sent[m->time - begin][m->from][m->kind]++;
        if (m->kind == SUM || m->kind == PARAMETERS)
            out.bytes += m->bytes;
    }
    for (int64_t time = 0; time < length; time++)
        for (int d = 0; d < cdp_case_workers(&w->is); d++) {
            int all = 0;
            for (int kind = 0; kind < KINDS; kind++) {
                const int now = sent[time][d][kind];
                out.most[kind] = now > out.most[kind] ? now : out.most[kind];
                all += kind == NUMBERS ? 0 : now;
            }
            out.together = all > out.together ? all : out.together;
            out.moves += all > 0;
        }
    return out;
}

static const char *const rules[] = {"v2", "v1"};

static struct watched *run(const char *placement, int rule, int n)
{
    static struct watched w;
    w = (struct watched){.is = {placement, rules[rule], n, .kind = OPTIM_SGD, .nan_at = -1}};
    const struct engine_config engine = {.workers = cdp_case_workers(&w.is)};
    if (engine_virtual(&engine, work, &w) != SOTTO_OK)
        fail_with("%s %s, %d stages: %s", placement, rules[rule], n, sotto_error());
    assert_int_equal(w.collectives, 0);
    for (int i = 0; i < w.messages; i++) {
        const size_t bytes = w.log[i].bytes;
        assert_int_equal(bytes, w.log[i].kind == NUMBERS ? COUNTS * sizeof(double)
                                : w.log[i].kind == EDGE  ? CHAIN_WIDTH * sizeof(float)
                                                         : CHAIN_EACH * sizeof(float));
    }
    return &w;
}

/* The numbers of a step go to one worker, and back. */
static void check_numbers(const struct watched *w, const struct traffic *t)
{
    assert_int_equal(t->all[NUMBERS], STEADY * 2 * (cdp_case_workers(&w->is) - 1));
}

static void dp(void **state)
{
    (void)state;
    for (int n = 1; n <= CHAIN_STAGES; n++)
        for (int rule = 0; rule < 2; rule++) {
            const struct watched *w = run("dp", rule, n);
            const struct traffic t = count(w);
            for (int k = 0; k < n; k++) {
                assert_int_equal(t.stage[SUM][k], STEADY * (n - 1));
                assert_int_equal(t.stage[PARAMETERS][k], STEADY * (n - 1));
            }
            assert_int_equal(t.most[SUM], n > 1);
            assert_int_equal(t.most[PARAMETERS], n > 1);
            assert_int_equal(t.all[STATE] + t.all[EDGE], 0);
            assert_int_equal(t.bytes, STEADY * 2 * (n - 1) * n * CHAIN_EACH * (int)sizeof(float));
            check_numbers(w, &t);
            for (int i = 0; i < w->messages; i++) {
                const struct message *m = &w->log[i];
                if (m->kind == SUM)
                    assert_int_equal(m->to, m->from + 1);
                if (m->kind == PARAMETERS && m->to != (m->from + 1) % n)
                    assert_true(rule == 0 && m->from == n - 1 && m->to == n - 1 - m->stage);
            }
            for (int d = 0; d < n; d++)
                assert_int_equal(w->most[d], n);
        }
}

/* One worker keeps activations of (n + 1) / 2 micro-batches at most. */
static void single(void **state)
{
    (void)state;
    for (int n = 1; n <= CHAIN_STAGES; n++)
        for (int rule = 0; rule < 2; rule++) {
            const struct watched *w = run("single", rule, n);
            assert_int_equal(w->messages, 0);
            assert_true(w->most[0] <= n * (n + 1) / 2);
        }
}

static void pp(void **state)
{
    (void)state;
    for (int n = 2; n <= CHAIN_STAGES; n++)
        for (int rule = 0; rule < 2; rule++) {
            const struct watched *w = run("pp", rule, n);
            const struct traffic t = count(w);
            assert_int_equal(t.together, 1);
            assert_int_equal(t.all[EDGE], STEADY * 2 * (n - 1) * n);
            assert_int_equal(t.all[SUM] + t.all[PARAMETERS] + t.all[STATE], 0);
            check_numbers(w, &t);
            for (int d = 0; d < n; d++)
                assert_int_equal(w->most[d], n - d);
        }
}

/* Each of a stage's workers has one micro-batch's activations. The optimizer's state moves between
 * them if the number of micro-batches is no multiple of the number of workers; with v1 the
 * parameters move, too. */
static void mp(void **state)
{
    (void)state;
    for (int n = 1; n <= CHAIN_STAGES; n++)
        for (int rule = 0; rule < 2; rule++) {
            const struct watched *w = run("mp", rule, n);
            const struct traffic t = count(w);
            int stage_of[WORKERS], d = 0, stage[KINDS][CHAIN_STAGES] = {0};
            for (int k = 0; k < n; k++)
                for (int i = 0; i < n - k; i++)
                    stage_of[d++] = k;
            for (d = 0; d < n * (n + 1) / 2; d++)
                assert_int_equal(w->most[d], 1);
            for (int i = 0; i < w->messages; i++)
                if (w->log[i].kind < EDGE)
                    assert_int_equal(w->log[i].stage, stage_of[w->log[i].from]);
            memcpy(stage, t.stage, sizeof stage);
            for (int k = 0; k < n; k++) {
                const int turns = n % (n - k) != 0;
                assert_int_equal(stage[SUM][k], STEADY * (n - 1 - k));
                assert_int_equal(stage[PARAMETERS][k], STEADY * (n - 1 - k + rule * turns));
                assert_int_equal(stage[STATE][k], STEADY * turns);
            }
            assert_int_equal(t.most[SUM], n > 1);
            assert_int_equal(t.all[EDGE], STEADY * 2 * (n - 1) * n);
            assert_int_equal(t.most[EDGE], n > 1);
            check_numbers(w, &t);
        }
}

/* A worker sends its stage and nothing else, and has memory for the stage that arrives
 * meanwhile. */
static void zero(void **state)
{
    (void)state;
    for (int n = 1; n <= CHAIN_STAGES; n++)
        for (int rule = 0; rule < 2; rule++) {
            const struct watched *w = run("zero", rule, n);
            const struct traffic t = count(w);
            assert_int_equal(t.all[EDGE], 0);
            assert_int_equal(t.moves, STEADY * 2 * n * (n - 1));
            assert_int_equal(t.all[STATE], STEADY * 2 * n * (n - 1));
            assert_int_equal(t.most[STATE], n > 1);
            assert_int_equal(t.most[SUM], n > 1);
            check_numbers(w, &t);
            for (int d = 0; d < n; d++) {
                assert_int_equal(w->most[d], n);
                assert_int_equal(w->optimizer[d],
                                 (n > 1 ? 2 : 1) * CHAIN_EACH * (int)sizeof(float));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp), cmocka_unit_test(single), cmocka_unit_test(pp),
        cmocka_unit_test(mp), cmocka_unit_test(zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

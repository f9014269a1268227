/* Runs of dpu, acco-wp and acco (or of methods that resume their checkpoints) on the quadratic,
 * recorded round by round. */
#ifndef SOTTO_TESTS_STRATEGY_OVERLAP_OVERLAP_LAB_H
#define SOTTO_TESTS_STRATEGY_OVERLAP_OVERLAP_LAB_H

#include <time.h>

#include "strategy/quadratic.h"

enum { ROUNDS = 7, MOST = 8, LINES = 64 }; /* workers; counts of a replay */

struct lab;
struct seat;
typedef enum sotto_status seat_body(struct seat *seat);

struct lab {
    int method; /* enum strategy_shard */
    int workers, groups, accumulate, rounds;
    int64_t warmup;
    int kind, weight, precision, grads;
    double momentum, clip, decay;
    bool still;
    int64_t nan_at;
    char replay[OPTION_ROOM];
    long pause;      /* nanoseconds of a micro-batch on threads, more for higher ranks */
    seat_body *body; /* what a worker does; NULL: seat_train */
    void *arg;       /* the body's */

    /* Results, of rank 0 if all workers have the same. */
    float x[ROUNDS][COUNT];
    struct round round[ROUNDS];
    size_t bytes[MEMORY_CATEGORIES]; /* before the first round */
    size_t peak[MEMORY_CATEGORIES];
    int32_t count[LINES][MOST];
    int64_t lines;
};

/* A worker of it. */
struct seat {
    struct quadratic q;
    struct lab *lab;
    struct worker *worker;
    struct memory memory;
    struct device dev;
    struct strategy_config config;
    struct optim_config optim;
    struct mesh mesh;
    struct strategy *s;
    bool predicted; /* acco-wp: there is an estimate to compute with */
    bool seeing;
    double seen[COUNT]; /* what the first gradient of a round was computed with */
};

static inline struct lab lab_make(int method, int workers)
{
    return (struct lab){.method = method,
                        .workers = workers,
                        .groups = 1,
                        .accumulate = 1,
                        .rounds = ROUNDS,
                        .nan_at = -1};
}

/* Learning rate of round t: different in each round, so that a step with another round's is
 * noticed. */
static inline double lab_lr(int t)
{
    return 0.05 * (1 + 0.5 * cos(2.0 * t));
}

static inline struct plan lab_plan(int t)
{
    return (struct plan){
        .lr = lab_lr(t), .next_lr = lab_lr(t + 1), .want_norm = t % 3 == 1, .step = t};
}

static inline float lab_start(int i)
{
    return 2 - 0.1f * (float)i;
}

static inline enum sotto_status lab_pause(void *arg)
{
    long pause = *(long *)arg;
    if (pause)
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    return SOTTO_OK;
}

/* The quadratic takes time: a second in virtual time, `pause` on threads. */
static inline enum sotto_status lab_begin(struct oracle *o, int slot, int64_t index, int rank,
                                          bool sum)
{
    struct seat *seat = (struct seat *)o;
    long pause = seat->lab->pause * (1 + seat->worker->rank);
    TRY(quadratic_begin(o, slot, index, rank, sum));
    return seat->worker->ops->compute(seat->worker, lab_pause, &pause, 1);
}

static inline enum sotto_status lab_forward(struct oracle *o, int slot, int k,
                                            const struct view *theta)
{
    struct seat *seat = (struct seat *)o;
    const size_t count = table_stage_count(o->table, k);
    float x[COUNT];
    if (seat->seeing)
        read_floats(&seat->dev, theta[k], count, x);
    for (size_t i = 0; seat->seeing && i < count; i++)
        seat->seen[o->table->stage_start[k] + i] = x[i];
    if (k == STAGES - 1)
        seat->seeing = false;
    return quadratic_forward(o, slot, k, theta);
}

static const struct oracle_ops lab_ops = {.begin = lab_begin,
                                          .forward = lab_forward,
                                          .backward = quadratic_backward,
                                          .result = quadratic_result};

/* gather shows the real parameters, as export does, to the bit. */
static inline enum sotto_status seat_gather(struct seat *seat, double theta[COUNT])
{
    const struct view *stage;
    float x[COUNT];
    TRY(seat->s->ops->export(seat->s, x));
    TRY(seat->s->ops->gather(seat->s, &stage));
    float shown[COUNT];
    for (int k = 0; k < STAGES; k++)
        read_floats(&seat->dev, stage[k], 8, shown + 8 * k);
    for (int i = 0; i < COUNT; i++) {
        theta[i] = shown[i];
        double want =
            seat->config.precision == PRECISION_MIXED ? bf16_widen(bf16_round(x[i])) : (double)x[i];
        if (theta[i] != want)
            return fail(SOTTO_EINVAL, "gathered %d is %.9g, exported %.9g", i, theta[i], x[i]);
    }
    return SOTTO_OK;
}

/* A round before and after which the parameters may be read. All methods but acco-wp compute first
 * at the parameters that `gather` returned; acco-wp at an estimate, once there is one. */
static inline enum sotto_status seat_round(struct seat *seat, int t, bool looks, struct round *out)
{
    double theta[COUNT];
    struct plan plan = lab_plan(t);
    if (looks)
        TRY(seat_gather(seat, theta));
    seat->seeing = true;
    TRY(seat->s->ops->round(seat->s, &plan, out));
    if (looks && (memcmp(theta, seat->seen, sizeof theta) != 0) != seat->predicted)
        return fail(SOTTO_EINVAL, "round %d computes with%s theta", t,
                    seat->predicted ? "" : " something else than");
    seat->predicted = seat->lab->method == SHARD_ACCO_WP;
    return SOTTO_OK;
}

static inline enum sotto_status seat_equal(struct seat *seat, const float x[COUNT])
{
    float all[MOST][COUNT];
    TRY(comm_gather_bytes(seat->worker->world, all, x, sizeof all[0]));
    for (int r = 1; r < seat->worker->size; r++)
        if (memcmp(all[r], all[0], sizeof all[0]) != 0)
            return fail(SOTTO_EINVAL, "ranks 0 and %d hold other parameters", r);
    return SOTTO_OK;
}

static inline enum sotto_status seat_history(struct seat *seat)
{
    struct lab *lab = seat->lab;
    int32_t all[MOST][LINES], mine[LINES] = {0};
    int64_t n;
    if (!seat->s->ops->history)
        return SOTTO_OK;
    const int32_t *count = seat->s->ops->history(seat->s, &n);
    assert_true(n <= LINES);
    for (int64_t i = 0; i < n; i++)
        mine[i] = count[i];
    TRY(comm_gather_bytes(seat->worker->world, all, mine, sizeof mine));
    for (int r = 0; r < lab->workers && seat->worker->rank == 0; r++)
        for (int64_t i = 0; i < n; i++)
            lab->count[i][r] = all[r][i];
    if (seat->worker->rank == 0)
        lab->lines = n;
    return SOTTO_OK;
}

/* Makes rounds [from, to) and records them in `lab`. */
static inline enum sotto_status seat_rounds(struct seat *seat, int from, int to)
{
    struct lab *lab = seat->lab;
    for (int t = from; t < to; t++) {
        struct round round;
        float x[COUNT];
        TRY(seat_round(seat, t, t % 2, &round));
        TRY(seat->s->ops->export(seat->s, x));
        TRY(seat_equal(seat, x));
        if (seat->worker->rank == 0) {
            memcpy(lab->x[t], x, sizeof x);
            lab->round[t] = round;
        }
    }
    return seat_history(seat);
}

static inline enum sotto_status seat_import(struct seat *seat)
{
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = lab_start(i);
    return seat->s->ops->import(seat->s, x);
}

static inline enum sotto_status seat_train(struct seat *seat)
{
    TRY(seat_import(seat));
    return seat_rounds(seat, 0, seat->lab->rounds);
}

static inline void seat_configure(struct seat *seat)
{
    const struct lab *lab = seat->lab;
    struct strategy_config *c = &seat->config;
    strategy_defaults(c);
    optim_defaults(&seat->optim);
    choose(c, lab->method, REPLICATE_AUTO);
    c->accumulate = lab->accumulate;
    set_own(c, "dpu", "warmup", "%lld", (long long)lab->warmup);
    c->weight = lab->weight;
    c->precision = lab->precision;
    c->grads = lab->grads;
    snprintf(c->mesh, sizeof c->mesh, "%dx%d", lab->groups, lab->workers / lab->groups);
    set_own(c, shard_name(lab->method), "replay", "%s", lab->replay);
    seat->optim.kind = lab->kind;
    seat->optim.momentum = lab->momentum;
    seat->optim.clip = lab->clip;
    seat->optim.weight_decay = lab->decay;
}

static inline enum sotto_status seat_work(struct worker *w, void *arg)
{
    struct seat *seat = calloc(1, sizeof *seat);
    struct lab *lab = arg;
    seat->lab = lab;
    seat->worker = w;
    seat_configure(seat);
    quadratic_make(&seat->q, &seat->dev);
    seat->q.base.ops = &lab_ops;
    seat->q.base.rank = w->rank;
    seat->q.size = w->size;
    seat->q.nan_at = lab->nan_at;
    seat->q.still = lab->still;
    enum sotto_status st;
    TRY_DONE(strategy_resolve(&seat->config, w->size));
    TRY_DONE(device_open(&seat->dev, test_device(), &seat->memory, 1));
    TRY_DONE(mesh_open(&seat->mesh, w, seat->config.groups, &seat->dev));
    struct strategy_setup setup = {.config = &seat->config,
                                   .optim = &seat->optim,
                                   .oracle = &seat->q.base,
                                   .dev = &seat->dev,
                                   .mesh = &seat->mesh};
    TRY_DONE(strategy_open(&seat->s, &setup));
    for (int i = 0; i < MEMORY_CATEGORIES && w->rank == 0; i++)
        lab->bytes[i] = seat->memory.now[i];
    st = lab->body ? lab->body(seat) : seat_train(seat);
    if (st != SOTTO_OK)
        mesh_abort(&seat->mesh, st);
    for (int i = 0; i < MEMORY_CATEGORIES && w->rank == 0; i++)
        lab->peak[i] = seat->memory.peak[i];
    seat->s->ops->free(seat->s);
done:
    if (seat->mesh.worker)
        mesh_close(&seat->mesh);
    if (seat->dev.ops)
        device_close(&seat->dev);
    table_free(&seat->q.table);
    free(seat);
    return st;
}

static inline enum sotto_status lab_virtual(struct lab *lab)
{
    return engine_virtual(&(struct engine_config){.workers = lab->workers}, seat_work, lab);
}

static inline enum sotto_status lab_threads(struct lab *lab)
{
    return engine_threads(&(struct engine_config){.workers = lab->workers}, seat_work, lab);
}

/* Counts that no two workers and no two lines have alike for long. */
static inline void lab_counts(int32_t count[LINES][MOST])
{
    for (int i = 0; i < LINES; i++)
        for (int r = 0; r < MOST; r++)
            count[i][r] = 1 + (5 * i + 3 * r + i * r) % 4;
}

static inline void lab_replay(struct lab *lab, const char *name, int32_t count[LINES][MOST],
                              int64_t lines)
{
    snprintf(lab->replay, sizeof lab->replay, "%s", at(name));
    FILE *file = fopen(lab->replay, "w");
    assert_non_null(file);
    for (int64_t i = 0; i < lines; i++)
        for (int r = 0; r < lab->workers; r++)
            fprintf(file, "%d%c", count[i][r], r == lab->workers - 1 ? '\n' : ' ');
    fclose(file);
}

#endif

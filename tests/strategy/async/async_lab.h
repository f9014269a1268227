/* Runs of asynchronous DiLoCo on the quadratic, with a record of meetings, pushes and evaluations.
 */
#ifndef SOTTO_TESTS_STRATEGY_ASYNC_ASYNC_LAB_H
#define SOTTO_TESTS_STRATEGY_ASYNC_ASYNC_LAB_H

#include <pthread.h>
#include <sched.h>

#include "strategy/async/group.h"
#include "strategy/history.h"
#include "strategy/quadratic.h"
#include "strategy/shard/shard.h"

enum { MOST = 8, PUSHES = 400, SAVES = 32, TIMES = 2000 };

struct lab {
    const char *shard;
    int groups, slices;
    const char *options[8]; /* of async-diloco, up to a NULL */
    int64_t rounds;         /* T                            */
    double speed[MOST];     /* of workers; 0: 1             */
    bool threads;
    bool diloco; /* diloco, with the same options */
    int64_t eval_every, save_every;
    double save_seconds;
    int64_t stop_at; /* rounds after which rank 0 votes to stop; 0: never */
    const struct link_model *links;
    const char *from, *to; /* files of state: loaded, and written at meeting number `save` */
    int save;
    bool ends_there;                   /* the run ends with that save */
    int fails;                         /* rank that fails in a round; 0: none */
    int64_t fails_after;               /* rounds of that rank before; 0: two */
    const char *pushes;                /* file */
    const char *counts;                /* file, for sharding whose rounds depend on time */
    bool cosine;                       /* the option cosine is set */
    struct snapshot_hook keeper[MOST]; /* (optional) of each worker */
    /* (optional) Keeps the own state of a worker; called before a micro-batch of a thread. */
    enum sotto_status (*keep)(struct lab *lab, struct pupil *p);
    enum sotto_status (*before)(struct lab *lab, struct worker *w);

    /* Results. */
    float x[COUNT];
    int meetings, evaluations;
    int64_t step[SAVES], evaluated[PUSHES];
    struct applied_push pushed[PUSHES];
    int n_pushed;
    int64_t samples;               /* micro-batches of all workers */
    double seconds;                /* of rank 0                    */
    int64_t sent;                  /* bytes, by the last rank      */
    double trained[MOST];          /* seconds of each worker until its last meeting */
    float (*moved)[PUSHES][COUNT]; /* (groups) displacement of each push, before the push
                                      was sent; NULL: not recorded */
    int n_moved[MOST];             /* of each worker */
    int32_t history[MOST][TIMES];  /* as in counts.tsv, of each worker */
    int64_t n_history[MOST];
    struct state_visitor v;
    pthread_mutex_t lock;
};

static inline double lab_lr(int64_t place)
{
    return 0.05 * (1 + 0.5 * cos(0.2 * (double)place));
}

static inline void lab_start(float x[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        x[i] = 2 - 0.1f * (float)i;
}

static inline enum sotto_status lab_save(struct lab *lab, struct strategy *s,
                                         const struct mesh *mesh)
{
    struct worker *w = mesh->worker;
    if (w->rank == 0)
        TRY(state_saver_init(&lab->v));
    for (int r = 0; r < w->size; r++) {
        TRY(comm_barrier(w->world));
        if (r != w->rank)
            continue;
        lab->v.skip_common = r != 0;
        lab->v.skip_slices = mesh->r != 0;
        TRY(s->ops->visit(s, &lab->v));
    }
    TRY(comm_barrier(w->world));
    if (w->rank == 0) {
        TRY(state_saver_write(&lab->v, lab->to));
        state_free(&lab->v);
    }
    return comm_barrier(w->world);
}

static inline enum sotto_status lab_load(const struct lab *lab, struct strategy *s)
{
    struct state_visitor v;
    TRY(state_loader_open(&v, lab->from));
    enum sotto_status st = s->ops->visit(s, &v);
    if (st == SOTTO_OK)
        st = state_loader_finish(&v);
    state_free(&v);
    return st;
}

static inline void lab_drain(struct lab *lab, struct strategy *s)
{
    while (s->async && lab->n_pushed < PUSHES &&
           async_take_push(s->async, &lab->pushed[lab->n_pushed]))
        lab->n_pushed++;
}

static inline void lab_keep_counts(struct lab *lab, struct pupil *p)
{
    const int rank = p->worker->rank;
    const struct strategy_ops *ops = p->s->ops;
    if (!ops->history)
        return;
    const int32_t *mine = ops->history(p->s, &lab->n_history[rank]);
    assert_true(lab->n_history[rank] <= TIMES);
    memset(lab->history[rank], 0, sizeof lab->history[rank]);
    memcpy(lab->history[rank], mine, (size_t)lab->n_history[rank] * sizeof *mine);
}

static inline enum sotto_status lab_write_counts(const struct lab *lab, int size)
{
    static int32_t all[MOST * TIMES];
    int64_t most = 0;
    for (int r = 0; r < size; r++)
        most = lab->n_history[r] > most ? lab->n_history[r] : most;
    for (int r = 0; r < size; r++)
        memcpy(all + r * most, lab->history[r], (size_t)most * sizeof *all);
    return history_write(lab->counts, all, most, size);
}

/* Checks a meeting of all workers. *ends: the run ends with the meeting. */
static inline enum sotto_status lab_meet(struct lab *lab, struct pupil *p, const struct round *r,
                                         bool *ends)
{
    struct strategy *s = p->s;
    struct worker *w = p->worker;
    float x[COUNT], all[MOST][COUNT];
    int64_t steps[MOST];
    const int64_t step = async_last_round(s->async)->step;
    TRY(comm_gather_bytes(w->world, steps, &step, sizeof step));
    for (int i = 0; i < w->size; i++)
        if (steps[i] != step)
            return fail(SOTTO_EINVAL, "ranks %d and %d meet at other steps", w->rank, i);
    TRY(mesh_rest(&p->mesh)); /* the server continues */
    TRY(s->ops->export(s, x));
    TRY(comm_gather_bytes(w->world, all, x, sizeof x));
    for (int i = 0; i < w->size; i++)
        if (memcmp(all[i], x, sizeof x) != 0)
            return fail(SOTTO_EINVAL, "ranks %d and %d export other parameters", w->rank, i);
    *ends = r->stop;
    lab_keep_counts(lab, p);
    TRY(comm_barrier(w->world));
    if (w->rank == 0) {
        memcpy(lab->x, x, sizeof x);
        lab->step[lab->meetings++] = step;
        lab_drain(lab, s);
        if (lab->pushes)
            TRY(async_write_journal(s->async, lab->pushes));
        if (lab->counts)
            TRY(lab_write_counts(lab, w->size));
    }
    TRY(comm_barrier(w->world));
    if (lab->to && lab->meetings == lab->save) {
        TRY(lab_save(lab, s, &p->mesh));
        *ends |= lab->ends_there;
    }
    return SOTTO_OK;
}

/* Records the displacement of a push, after a round that ended a task. */
static inline void lab_note(struct lab *lab, const struct pupil *p)
{
    const struct replicate *r = ((const struct shard *)p->s)->replicate;
    const struct async *a = p->s->async;
    float x[COUNT], *to = lab->moved[p->mesh.r][lab->n_moved[p->worker->rank]++];
    read_floats(r->is.dev, a->delta.view, r->count, x);
    for (struct piece q = {0}; owned_next(r->is.own, (struct range){0, COUNT}, &q);)
        memcpy(to + q.whole, x + q.own, q.count * sizeof *x);
}

static inline enum sotto_status lab_round(struct lab *lab, struct pupil *p, int64_t n,
                                          struct round *r)
{
    struct strategy *s = p->s;
    struct worker *w = p->worker;
    const int64_t at = lab->diloco ? n : async_next_step(s->async, n);
    struct plan plan = {.lr = lab_lr(at),
                        .next_lr = lab_lr(at + 1),
                        .rounds = lab->rounds,
                        .step = n,
                        .stop = lab->stop_at && w->rank == 0 && n + 1 >= lab->stop_at};
    if (lab->fails && w->rank == lab->fails && n == (lab->fails_after ? lab->fails_after : 2) &&
        async_drop_group(s, fail(SOTTO_EIO, "the disk is gone"))) {
        *r = (struct round){.idle = true};
        return SOTTO_OK;
    }
    if (lab->fails && w->rank == lab->fails && n == (lab->fails_after ? lab->fails_after : 2))
        return fail(SOTTO_EIO, "the disk is gone");
    const struct async *a = s->async;
    const struct async_round *own = a ? async_last_round(a) : NULL;
    const int64_t done = lab->moved ? a->done : 0;
    TRY(s->ops->round(s, &plan, r));
    if (lab->moved && done > 0 && a->done == 0)
        lab_note(lab, p);
    pthread_mutex_lock(&lab->lock);
    lab->samples += p->mesh.s == 0 && !lab->diloco ? r->own_microbatches : 0;
    if (own && own->evaluate && p->mesh.s == 0)
        lab->evaluated[lab->evaluations++] = own->step;
    pthread_mutex_unlock(&lab->lock);
    if (own && own->evaluate && own->meet)
        return fail(SOTTO_EINVAL, "a group is to evaluate by itself where all meet");
    if (own && own->evaluate) { /* the group alone */
        const struct view *theta;
        TRY(s->ops->gather(s, &theta));
    }
    return SOTTO_OK;
}

static inline enum sotto_status lab_go_on(struct worker *w, double seconds)
{
    return w->ops->end_pause ? w->ops->end_pause(w, seconds, 0) : SOTTO_OK;
}

static inline enum sotto_status lab_train(struct pupil *p, void *arg)
{
    struct lab *lab = arg;
    struct worker *w = p->worker;
    float x[COUNT];
    double trained = lab->from ? lab->trained[w->rank] : 0;
    lab_start(x);
    TRY(p->s->ops->import(p->s, x));
    if (lab->from)
        TRY(lab_load(lab, p->s));
    TRY(comm_barrier(w->world));
    TRY(lab_go_on(w, trained));
    bool ends = false;
    for (int64_t n = 0; !ends; n++) {
        struct round r;
        const double begin = clock_now(w->clock);
        TRY(lab_round(lab, p, n, &r));
        trained += clock_now(w->clock) - begin;
        if (w->rank == 0)
            lab_drain(lab, p->s);
        if (lab->diloco && n + 1 == lab->rounds) {
            ends = true;
            TRY(p->s->ops->export(p->s, w->rank ? NULL : lab->x));
        }
        const struct async_round *own = p->s->async ? async_last_round(p->s->async) : NULL;
        if (own && own->snapshot)
            TRY(lab->keep(lab, p));
        if (!own || !own->meet)
            continue;
        if (w->ops->pause)
            w->ops->pause(w);
        lab->trained[w->rank] = trained;
        TRY(lab_meet(lab, p, &r, &ends));
        TRY(comm_barrier(w->world));
        if (!ends)
            TRY(lab_go_on(w, trained));
    }
    if (w->rank == 0)
        lab->seconds = trained;
    if (w->rank == w->size - 1)
        lab->sent = mesh_account_own(&p->mesh).inside;
    return SOTTO_OK;
}

/* Oracle whose step, of two micro-batches, takes a second. */
struct timed {
    struct quadratic q;
    struct worker *worker;
    struct lab *lab;
};

static inline enum sotto_status timed_begin(struct oracle *o, int slot, int64_t index, int rank,
                                            bool sum)
{
    struct worker *w = ((struct timed *)o)->worker;
    struct lab *lab = ((struct timed *)o)->lab;
    if (lab->before)
        TRY(lab->before(lab, w));
    TRY(w->ops->compute(w, NULL, NULL, 0.5));
    return quadratic_begin(o, slot, index, rank, sum);
}

/* Yields the core: a thread that computes until its lane is done would leave the lane no core. */
static inline enum sotto_status slow_begin(struct oracle *o, int slot, int64_t index, int rank,
                                           bool sum)
{
    sched_yield();
    return quadratic_begin(o, slot, index, rank, sum);
}

static inline enum sotto_status lab_work(struct worker *w, void *arg)
{
    static const struct oracle_ops timed_ops = {.begin = timed_begin,
                                                .forward = quadratic_forward,
                                                .backward = quadratic_backward,
                                                .result = quadratic_result};
    static const struct oracle_ops slow_ops = {.begin = slow_begin,
                                               .forward = quadratic_forward,
                                               .backward = quadratic_backward,
                                               .result = quadratic_result};
    struct lab *lab = arg;
    struct timed *timed = calloc(1, sizeof *timed);
    struct quadratic *q = &timed->q;
    struct pupil *p = calloc(1, sizeof *p);
    enum sotto_status st = SOTTO_OK;
    strategy_defaults(&p->config);
    optim_defaults(&p->optim);
    strcpy(p->config.shard, lab->shard);
    strcpy(p->config.replicate, lab->diloco ? "diloco" : "async-diloco");
    snprintf(p->config.mesh, sizeof p->config.mesh, "%dx%d", lab->groups, lab->slices);
    p->config.accumulate = 2;
    p->optim.kind = OPTIM_SGD;
    p->optim.momentum = 0.5;
    p->optim.weight_decay = 0;
    st = set_options(&p->config, lab->options, 8);
    if (st == SOTTO_OK)
        st = pupil_open(p, q, w);
    timed->worker = w;
    timed->lab = lab;
    if (!lab->threads || lab->before)
        q->base.ops = &timed_ops;
    else if (strategy_elastic(&p->config))
        q->base.ops = &slow_ops;
    if (st == SOTTO_OK) {
        const struct async_setup async = {.eval_every = lab->eval_every,
                                          .save_every = lab->save_every,
                                          .save_seconds = lab->save_seconds,
                                          .hook = &lab->keeper[w->rank]};
        struct strategy_setup setup = {.config = &p->config,
                                       .optim = &p->optim,
                                       .oracle = &q->base,
                                       .dev = &p->dev,
                                       .mesh = &p->mesh,
                                       .async = &async};
        st = strategy_open(&p->s, &setup);
    }
    if (st == SOTTO_OK) {
        st = lab_train(p, lab);
        if (st != SOTTO_OK)
            mesh_abort(&p->mesh, st);
        p->s->ops->free(p->s);
    }
    mesh_close(&p->mesh);
    device_close(&p->dev);
    table_free(&q->table);
    if (st == SOTTO_OK && p->memory.total)
        st = fail(SOTTO_EINVAL, "%zu bytes were not freed", (size_t)p->memory.total);
    free(p);
    free(timed);
    return st;
}

static inline enum sotto_status lab_run(struct lab *lab)
{
    double speed[MOST];
    struct engine_config engine = {
        .workers = lab->groups * lab->slices, .speed = speed, .links = lab->links};
    int node[MOST];
    for (int i = 0; i < MOST; i++) {
        speed[i] = lab->speed[i] > 0 ? lab->speed[i] : 1;
        node[i] = i / lab->slices;
    }
    if (lab->links)
        engine.node = node;
    pthread_mutex_init(&lab->lock, NULL);
    enum sotto_status st = (lab->threads ? engine_threads : engine_virtual)(&engine, lab_work, lab);
    pthread_mutex_destroy(&lab->lock);
    return st;
}

#endif

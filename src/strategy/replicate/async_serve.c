/* The server of asynchronous DiLoCo: one long job in a lane of each worker of group 0, which has
 * the slice of the parameters that its worker has. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "strategy/replicate/async_diloco.h"
#include "strategy/replicate/sparse.h"
#include "tensor/ops.h"

/* What the leader tells the other servers of group 0. */
enum order_kind { ORDER_APPLY, ORDER_DROP, ORDER_SEND, ORDER_REST, ORDER_END };
struct order {
    int64_t kind;
    int64_t group;
    double weight;         /* of a push that is applied */
    struct down_word word; /* to be sent                 */
};

struct async_service {
    struct replicate *r;
    struct lane *lane;
    struct comm *up, *down; /* received from, sent through */
    struct comm *within;    /* group 0's servers            */
    int groups;
    bool leads;
    struct async_server server; /* the leader's */
    struct async_outer outer;
    struct buffer g;      /* what was pushed */
    struct sparse sparse; /* prune > 0: the same as it was sent */
    bool started, ended;
    bool begun;               /* tasks were given out */
    bool loaded;              /* ... by the run that this one goes on from */
    bool rings;               /* until all have come, ... */
    bool stops;               /* ... and then it ends     */
    bool rests;               /* until one goes           */
    bool asked;               /* somebody wants to stop   */
    int came;                 /* groups                   */
    double rung_at;           /* ..., while nothing passes of a period of grace */
    bool *told;               /* (groups) to wait until behind the meeting */
    bool *evaluates;          /* (groups) the answer says so               */
    bool *among;              /* (groups) whose message is taken next      */
    int64_t evaluated, saved; /* multiples of eval_every, of save_every */
    pthread_mutex_t lock;     /* of what follows          */
    struct pushed *pushed;    /* told to nobody yet       */
    int64_t n, room, first;   /* ... from this one on     */
};

static double now(const struct async_service *v)
{
    return clock_now(v->lane->clock);
}

static int64_t run_step(const struct async_service *v)
{
    return v->server.steps / v->groups;
}

static enum sotto_status order(struct async_service *v, struct order o)
{
    return comm_broadcast(v->within, word_of(&o), sizeof o, 0);
}

static enum sotto_status send_word(struct async_service *v, int64_t group, struct down_word w)
{
    return comm_send(v->down, word_of(&w), sizeof w, (int)group);
}

/* The word to a worker of that group, and x0 with a task. */
static enum sotto_status send_answer(struct async_service *v, int64_t group, struct down_word w)
{
    TRY(send_word(v, group, w));
    if (w.kind != DOWN_TASK)
        return SOTTO_OK;
    return comm_send(v->down, v->outer.x0.view, v->outer.count, (int)group);
}

/* ... and to all of them. */
static enum sotto_status answer(struct async_service *v, int64_t group, struct down_word w)
{
    w.step = run_step(v);
    w.stop = v->stops;
    TRY(order(v, (struct order){.kind = ORDER_SEND, .group = group, .word = w}));
    return send_answer(v, group, w);
}

static enum sotto_status ring(struct async_service *v, bool stop)
{
    v->rings = true;
    v->stops = stop;
    v->rung_at = now(v);
    v->came = 0;
    for (int i = 0; i < v->groups; i++) {
        v->told[i] = false;
        TRY(send_word(v, i,
                      (struct down_word){.kind = DOWN_BELL, .step = run_step(v), .stop = stop}));
    }
    return SOTTO_OK;
}

/* While it rings nothing is applied or given out: it comes behind the meeting, as in a run that
 * does not meet. */
static enum sotto_status answer_all(struct async_service *v)
{
    struct async_task task;
    bool found = !v->rings && v->begun;
    while (found) {
        TRY(server_answer(&v->server, now(v), &task, &found));
        if (!found)
            break;
        TRY(answer(v, task.group,
                   (struct down_word){
                       .kind = DOWN_TASK, .task = task, .evaluate = v->evaluates[task.group]}));
        v->evaluates[task.group] = false;
    }
    for (int i = 0; i < v->groups && v->rings; i++) {
        if (v->server.group[i].state != ASYNC_WAITS || v->told[i])
            continue;
        v->told[i] = true;
        TRY(answer(v, i, (struct down_word){.kind = DOWN_HOLD}));
    }
    return SOTTO_OK;
}

static bool passes(int64_t step, int64_t every, int64_t *last)
{
    if (every <= 0 || step / every <= *last)
        return false;
    *last = step / every;
    return true;
}

/* What is due when nothing else is under way. */
static enum sotto_status ring_if_due(struct async_service *v)
{
    if (v->rings || v->rests || !v->begun)
        return SOTTO_OK;
    const bool ends = v->asked || server_over(&v->server);
    if (!ends && !passes(run_step(v), v->r->is.save_every, &v->saved))
        return SOTTO_OK;
    TRY(ring(v, ends));
    return answer_all(v);
}

/* For whoever asks, on another line of work. */
static enum sotto_status report(struct async_service *v, const struct async_push *p)
{
    const struct async_entry *e = &v->server.journal.entry[v->server.version - 1];
    const struct pushed one = {.number = v->server.version - 1,
                               .group = p->group,
                               .steps = e->span.steps,
                               .staleness = v->server.version - 1 - e->version,
                               .step = run_step(v),
                               .tokens = p->tokens,
                               .microbatches = p->microbatches * v->r->is.mesh->n_s,
                               .loss = p->targets > 0 ? p->loss / (double)p->targets : 0,
                               .seconds = p->seconds,
                               .idle = p->idle,
                               .time = now(v)};
    enum sotto_status st = SOTTO_OK;
    pthread_mutex_lock(&v->lock);
    if (v->n == v->room) {
        const int64_t room = v->room ? 2 * v->room : 256;
        struct pushed *more = realloc(v->pushed, (size_t)room * sizeof *more);
        if (more) {
            v->pushed = more;
            v->room = room;
        } else {
            st = fail(SOTTO_ENOMEM, "no memory to tell of %lld pushes", (long long)room);
        }
    }
    if (st == SOTTO_OK)
        v->pushed[v->n++] = one;
    pthread_mutex_unlock(&v->lock);
    return st;
}

bool service_pushed(struct async_service *v, struct pushed *out)
{
    pthread_mutex_lock(&v->lock);
    const bool found = v->first < v->n;
    if (found)
        *out = v->pushed[v->first++];
    if (v->first == v->n)
        v->first = v->n = 0;
    pthread_mutex_unlock(&v->lock);
    return found;
}

static enum sotto_status write_g(void *arg)
{
    struct async_service *v = arg;
    struct device *dev = v->lane->dev;
    if (v->sparse.value)
        dev->ops->write(dev, v->g.view, v->sparse.value, v->outer.count);
    return device_failed(dev);
}

/* A message of whoever comes first of `among`: g, or nothing, by *came. */
static enum sotto_status receive(struct async_service *v, const bool *among, double until,
                                 int *from, size_t *came)
{
    const struct view in = v->sparse.count ? view_of(v->sparse.in, DTYPE_F32) : v->g.view;
    return comm_recv_some(v->up, in, v->outer.count, among, until, from, came);
}

static enum sotto_status apply(struct async_service *v, int64_t group, size_t came, double weight)
{
    const size_t count = v->outer.count;
    if (v->sparse.count) {
        TRY(sparse_unpack(&v->sparse, came, (int)group));
        TRY(work_run(&v->outer.on, write_g, v, 2. * sizeof(float) * (double)count));
    } else if (came != count) {
        return comm_wrong_length(v->up, count * sizeof(float), came * sizeof(float), (int)group);
    }
    return outer_push(&v->outer, v->g.view, weight);
}

static enum sotto_status take_push(struct async_service *v, const struct async_push *p, size_t came)
{
    double weight = 0;
    if (v->rings) { /* those who have come are not there yet: it is their turn before */
        TRY(order(v, (struct order){.kind = ORDER_DROP, .group = p->group}));
        return answer(v, p->group, (struct down_word){.kind = DOWN_AGAIN});
    }
    TRY(server_push(&v->server, p, now(v), &weight));
    TRY(order(v, (struct order){.kind = ORDER_APPLY, .group = p->group, .weight = weight}));
    TRY(apply(v, p->group, came, weight));
    TRY(report(v, p));
    if (passes(run_step(v), v->r->is.eval_every, &v->evaluated))
        v->evaluates[p->group] = true;
    return answer_all(v);
}

/* All have come: what the server has is its worker's until one of them goes. */
static enum sotto_status rest(struct async_service *v)
{
    v->rings = false;
    v->rests = !v->stops;
    v->ended = v->stops;
    TRY(order(v, (struct order){.kind = ORDER_REST, .word.stop = v->stops}));
    TRY(device_check(v->lane->dev));
    return send_word(v, 0, (struct down_word){.kind = DOWN_REST});
}

static enum sotto_status go(struct async_service *v, const struct up_word *w)
{
    const bool longer = v->loaded && w->rounds > v->server.shards.steps;
    if (w->rounds > 0)
        v->server.shards.steps = w->rounds;
    if (!v->begun)
        TRY(server_begin(&v->server));
    v->begun = true;
    if (longer)
        server_revive(&v->server);
    v->loaded = false;
    if (v->rests)
        v->server.deadline += now(v) - v->rung_at;
    v->rests = false;
    return answer_all(v);
}

static enum sotto_status take_word(struct async_service *v, int from, const struct up_word *w,
                                   size_t came)
{
    switch (w->kind) {
    case UP_GO:
        return go(v, w);
    case UP_PUSH:
        return take_push(v, &w->push, came);
    case UP_CAME:
        return ++v->came == v->groups ? rest(v) : SOTTO_OK;
    case UP_LEAVE:
        server_leave(&v->server, from);
        return answer_all(v);
    case UP_STOP:
        v->asked = true;
        return SOTTO_OK;
    default:
        v->ended = true;
        return order(v, (struct order){.kind = ORDER_END});
    }
}

static const bool *only(struct async_service *v, int64_t group)
{
    for (int i = 0; i < v->groups; i++)
        v->among[i] = i == group;
    return v->among;
}

/* Whoever comes first, or in a replay whoever did. */
static const bool *whose(struct async_service *v)
{
    const int64_t next = v->begun && !v->rings && !v->rests ? server_next(&v->server) : -1;
    return next < 0 ? NULL : only(v, next);
}

static enum sotto_status lead(struct async_service *v)
{
    while (!v->ended) {
        const bool waits = v->rings || v->rests || !v->begun;
        const double until = waits ? INFINITY : server_deadline(&v->server);
        struct up_word w;
        int from;
        size_t came;
        TRY(receive(v, whose(v), until, &from, &came));
        if (from >= 0) {
            TRY(comm_recv(v->up, word_of(&w), sizeof w, from));
            TRY(take_word(v, from, &w, came));
        } else {
            TRY(answer_all(v));
        }
        TRY(ring_if_due(v));
    }
    return SOTTO_OK;
}

/* The other servers of group 0. */
static enum sotto_status follow(struct async_service *v)
{
    while (!v->ended) {
        struct order o;
        size_t came = 0;
        int from;
        TRY(comm_broadcast(v->within, word_of(&o), sizeof o, 0));
        if (o.kind == ORDER_APPLY || o.kind == ORDER_DROP)
            TRY(receive(v, only(v, o.group), INFINITY, &from, &came));
        if (o.kind == ORDER_APPLY)
            TRY(apply(v, o.group, came, o.weight));
        if (o.kind == ORDER_SEND)
            TRY(send_answer(v, o.group, o.word));
        if (o.kind == ORDER_REST) {
            TRY(device_check(v->lane->dev));
            TRY(send_word(v, 0, (struct down_word){.kind = DOWN_REST}));
        }
        v->ended = o.kind == ORDER_END || (o.kind == ORDER_REST && o.word.stop);
    }
    return SOTTO_OK;
}

/* Everybody waits for it: where it fails the run ends. */
static enum sotto_status serve(void *arg)
{
    struct async_service *v = arg;
    const enum sotto_status st = v->leads ? lead(v) : follow(v);
    struct status_note note;
    if (st == SOTTO_OK)
        return SOTTO_OK;
    status_save(&note, st);
    v->up->ops->abort(v->up, &note);
    return status_raise(&note);
}

enum sotto_status service_start(struct async_service *v)
{
    if (v->started)
        return SOTTO_OK;
    v->started = true;
    return lane_start(v->lane, serve, v);
}

enum sotto_status service_begin(struct async_service *v, struct view x)
{
    outer_begin(&v->outer, x);
    return device_check(v->lane->dev);
}

struct view service_x0(const struct async_service *v)
{
    return v->outer.x0.view;
}

enum sotto_status service_write(const struct async_service *v, const char *path)
{
    return v->leads ? journal_write(&v->server.journal, path) : SOTTO_OK;
}

enum sotto_status service_visit(struct async_service *v, struct state_visitor *visitor)
{
    TRY(outer_visit(&v->outer, visitor));
    if (!v->leads)
        return SOTTO_OK;
    TRY(state_enter(visitor, "server"));
    TRY(server_visit(&v->server, visitor, v->started ? v->rung_at : now(v)));
    state_leave(visitor);
    if (!state_loading(visitor))
        return SOTTO_OK;
    v->begun = v->loaded = true;
    if (v->r->is.eval_every > 0)
        v->evaluated = run_step(v) / v->r->is.eval_every;
    if (v->r->is.save_every > 0)
        v->saved = run_step(v) / v->r->is.save_every;
    return SOTTO_OK;
}

static enum sotto_status init(struct async_service *v, const struct async_config *config)
{
    const struct replicate *r = v->r;
    const struct async_rules rules = async_rules_of(config, v->groups);
    const size_t K = (size_t)v->groups;
    const struct work on = work_in(r->is.mesh, v->lane);
    v->told = calloc(K, sizeof *v->told);
    v->evaluates = calloc(K, sizeof *v->evaluates);
    v->among = calloc(K, sizeof *v->among);
    if (!v->told || !v->evaluates || !v->among)
        return fail(SOTTO_ENOMEM, "no memory for %zu groups", K);
    TRY(outer_init(&v->outer, &rules, &on, r->is.table, r->is.own));
    TRY(buffer_init(&v->g, v->lane->dev, DTYPE_F32, r->count, MEMORY_COMMUNICATION));
    if (config->prune > 0)
        TRY(sparse_init_message(&v->sparse, &on, r->is.table, r->is.own, config->prune));
    return v->leads ? server_init(&v->server, &rules, config->replay) : SOTTO_OK;
}

static void free_service(struct async_service *v)
{
    server_free(&v->server);
    outer_free(&v->outer);
    buffer_free(&v->g);
    sparse_free(&v->sparse);
    free(v->told);
    free(v->evaluates);
    free(v->among);
    free(v->pushed);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

enum sotto_status service_open(struct async_service **out, struct replicate *r,
                               const struct async_config *config, struct comm *up,
                               struct comm *down, struct comm *within, struct lane *lane)
{
    struct async_service *v = calloc(1, sizeof *v);
    if (!v)
        return fail(SOTTO_ENOMEM, "no memory for a server");
    v->r = r;
    v->lane = lane;
    v->up = up;
    v->down = down;
    v->within = within;
    v->groups = r->is.mesh->n_r;
    v->leads = r->is.mesh->s == 0;
    pthread_mutex_init(&v->lock, NULL);
    const enum sotto_status st = init(v, config);
    if (st != SOTTO_OK)
        free_service(v);
    else
        *out = v;
    return st;
}

/* A run that was cut short may leave it waiting; where it has failed nothing is sent any more. */
void service_close(struct async_service *v, struct comm *up)
{
    struct up_word w = {.kind = UP_END};
    bool done = true;
    if (v->started && lane_done(v->lane, &done) == SOTTO_OK && !done && v->leads) {
        if (comm_send(up, view_of(NULL, DTYPE_F32), 0, 0) == SOTTO_OK)
            (void)comm_send(up, word_of(&w), sizeof w, 0);
    }
    if (v->started)
        (void)lane_wait(v->lane);
    free_service(v);
}

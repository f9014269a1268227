/* The server's job: the leader takes words as they come and tells the others what is due. */
#include <math.h>

#include "base/log.h"
#include "strategy/async/server_api.h"
#include "tensor/ops.h"

#define LOOK_AGAIN 0.01 /* seconds: whether the checkpoint before is written */

/* What the leader tells the other servers of group 0. */
enum order_kind { ORDER_APPLY, ORDER_DROP, ORDER_SEND, ORDER_KEEP, ORDER_REST, ORDER_END };
struct order {
    int64_t kind;
    int64_t group;
    double weight;         /* of a push that is applied */
    struct down_word word; /* to be sent                 */
};

static double now(const struct async_service *v)
{
    return clock_now(v->lane->clock);
}

static enum sotto_status order(struct async_service *v, struct order o)
{
    return comm_broadcast_bytes(v->within, &o, sizeof o, 0);
}

/* A group that is stopped, or far away, holds nobody up. */
static enum sotto_status send_word(struct async_service *v, int64_t group, struct down_word w)
{
    return comm_post_bytes(v->down, &w, sizeof w, (int)group);
}

/* The word to a worker of that group, and x0 with a task. */
static enum sotto_status send_answer(struct async_service *v, int64_t group, struct down_word w)
{
    TRY(send_word(v, group, w));
    if (w.kind != DOWN_TASK)
        return SOTTO_OK;
    return comm_post(v->down, v->outer.x0.view, v->outer.count, (int)group);
}

/* By any group; one that has left had begun no more than a task that it did not push. */
static int64_t most_steps(const struct async_service *v)
{
    int64_t most = 0;
    for (int i = 0; i < v->groups; i++) {
        const struct async_group *g = &v->server.group[i];
        const int64_t task = g->task.span.steps, H = v->server.rules.H;
        const int64_t steps = g->steps + (task > H ? task : H);
        most = steps > most ? steps : most;
    }
    return most;
}

/* ... and to all of them. */
static enum sotto_status answer(struct async_service *v, int64_t group, struct down_word w)
{
    w.step = service_step(v);
    w.most = most_steps(v);
    w.stop = v->stops;
    TRY(order(v, (struct order){.kind = ORDER_SEND, .group = group, .word = w}));
    return send_answer(v, group, w);
}

static enum sotto_status ring(struct async_service *v, bool stop)
{
    v->rings = true;
    v->stops = stop;
    service_rest(v);
    v->came = 0;
    for (int i = 0; i < v->groups; i++) {
        v->told[i] = false;
        TRY(answer(v, i, (struct down_word){.kind = DOWN_BELL}));
    }
    return SOTTO_OK;
}

static const struct snapshot_hook *keeper(const struct async_service *v)
{
    const struct snapshot_hook *k = v->setup->hook;
    return k && k->keep ? k : NULL;
}

static enum sotto_status visit(void *service, struct state_visitor *v)
{
    return service_visit(service, v);
}

static enum sotto_status keep(struct async_service *v)
{
    return keeper(v)->keep(keeper(v)->arg, visit, v);
}

/* What was sent so far is before it. */
static enum sotto_status mark(struct async_service *v)
{
    service_rest(v);
    service_hold(v, true);
    TRY(order(v, (struct order){.kind = ORDER_KEEP}));
    TRY(keep(v));
    for (int i = 0; i < v->groups; i++)
        TRY(answer(v, i,
                   (struct down_word){.kind = DOWN_MARK,
                                      .applied = v->server.group[i].state == ASYNC_WAITS}));
    return SOTTO_OK;
}

/* While it rings nothing is applied or given out: it comes behind the meeting, as in a run that
 * does not meet. */
static enum sotto_status answer_all(struct async_service *v)
{
    struct async_task task;
    bool found = !v->rings && v->begun && !v->cut;
    if (found && v->left) {
        server_recall(&v->server);
        v->left = false;
    }
    while (found) {
        TRY(server_answer(&v->server, now(v), &task, &found));
        if (!found)
            break;
        int64_t *evaluates = &v->evaluates[task.group];
        TRY(answer(v, task.group,
                   (struct down_word){
                       .kind = DOWN_TASK, .task = task, .evaluate = *evaluates == EVALUATES_NEXT}));
        *evaluates = *evaluates == EVALUATES_NEXT ? EVALUATES_NOW : EVALUATES_NOT;
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

static bool passes_time(double time, double every, double *at)
{
    if (time < *at)
        return false;
    *at = time + every;
    return true;
}

static const struct async_config *options(const struct async_service *v)
{
    return replicate_options(v->r);
}

/* By its step or by the time. */
static bool save_is_due(struct async_service *v)
{
    const bool by_time = passes_time(now(v), service_save_seconds(v), &v->saves_at);
    return passes(service_step(v), v->setup->save_every, &v->saved) || by_time;
}

static bool evaluation_is_due(struct async_service *v)
{
    const bool by_time = passes_time(now(v), options(v)->eval_seconds, &v->evaluates_at);
    return passes(service_step(v), v->setup->eval_every, &v->evaluated) || by_time;
}

/* They push what they have, and wait: nothing is given out any more. */
static enum sotto_status cut(struct async_service *v)
{
    if (v->cut)
        return SOTTO_OK;
    v->cut = true;
    for (int i = 0; i < v->groups; i++)
        if (v->server.group[i].state == ASYNC_TRAINS)
            TRY(answer(v, i, (struct down_word){.kind = DOWN_CUT}));
    return SOTTO_OK;
}

/* Pushes of each group, on average, for which a save waits for one that was put off. */
enum { PUT_OFF_MOST = 4 };

/* True if a meeting for a save has to wait: the last meeting has put off a push that is not applied
 * yet, or a group has not said yet whether it has one. A group that stands still is not waited for
 * while others push. */
static bool save_waits(const struct async_service *v)
{
    bool waits = v->went < v->groups;
    for (int i = 0; i < v->groups; i++)
        waits = waits || v->put_off[i];
    return waits && v->server.version - v->met < PUT_OFF_MOST * v->groups && !keeper(v);
}

/* What is due when nothing else is under way. */
static enum sotto_status ring_if_due(struct async_service *v)
{
    if (v->rings || v->rests || !v->begun)
        return SOTTO_OK;
    const bool ends = v->asked || server_over(&v->server), keeps = keeper(v);
    if (v->late && server_trains(&v->server))
        return cut(v);
    if (!ends && keeps &&
        !keeper(v)->ready(keeper(v)->arg)) { /* it comes behind the one before it */
        v->saves_at = fmax(v->saves_at, now(v) + LOOK_AGAIN);
        return SOTTO_OK;
    }
    if (!ends && (save_waits(v) || !save_is_due(v)))
        return SOTTO_OK;
    if (!ends && keeps)
        return mark(v);
    TRY(ring(v, ends));
    return answer_all(v);
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
    const struct view in = v->sparse.count ? view_of(v->sparse.in, v->sparse.type) : v->g.view;
    return comm_recv_some(v->up, in, v->outer.count, among, until, from, came);
}

static enum sotto_status apply(struct async_service *v, int64_t group, size_t came, double weight)
{
    const size_t count = v->outer.count, unit = dtype_size(v->g.view.type);
    if (v->sparse.count) {
        TRY(sparse_unpack(&v->sparse, came, (int)group));
        TRY(work_run(&v->outer.on, write_g, v, 2. * sizeof(float) * (double)count));
    } else if (came != count) {
        return comm_wrong_length(v->up, count * unit, came * unit, (int)group);
    }
    if (v->alike.last.dev)
        TRY(cosine_to_last(&v->alike, &v->outer.on, cosine_sliced(v->r) ? v->within : NULL,
                           v->g.view, count, &v->cosine));
    return outer_push(&v->outer, v->g.view, weight);
}

static enum sotto_status take_push(struct async_service *v, const struct async_push *p, size_t came)
{
    double weight = 0;
    if (v->rings) { /* those who have come are not there yet: it is their turn before */
        TRY(order(v, (struct order){.kind = ORDER_DROP, .group = p->group}));
        return answer(v, p->group, (struct down_word){.kind = DOWN_AGAIN});
    }
    v->put_off[p->group] = false;
    TRY(server_push(&v->server, p, now(v), &weight));
    if (server_replay_ended(&v->server))
        log_warn("async-diloco.replay ends with push %lld, in step %lld of the run: from here on "
                 "pushes are taken as they come",
                 (long long)v->server.version - 1, (long long)service_step(v));
    TRY(order(v, (struct order){.kind = ORDER_APPLY, .group = p->group, .weight = weight}));
    TRY(apply(v, p->group, came, weight));
    TRY(service_report(v, p));
    if (v->evaluates[p->group] == EVALUATES_NOW)
        v->evaluates[p->group] = EVALUATES_NOT;
    if (evaluation_is_due(v))
        v->evaluates[p->group] = EVALUATES_NEXT;
    return answer_all(v);
}

/* All have come: what the server has is its worker's until one of them goes. */
static enum sotto_status rest(struct async_service *v)
{
    v->rings = false;
    v->rests = !v->stops;
    v->went = 0;
    v->ended = v->stops;
    TRY(order(v, (struct order){.kind = ORDER_REST, .word.stop = v->stops}));
    TRY(device_check(v->lane->dev));
    return send_word(v, 0, (struct down_word){.kind = DOWN_REST});
}

static enum sotto_status go(struct async_service *v, int from, const struct up_word *w)
{
    const bool longer = v->loaded && w->rounds > v->server.shards.steps;
    v->put_off[from] = w->pushes;
    if (v->went++ == 0)
        v->met = v->server.version;
    if (w->rounds > 0)
        v->server.shards.steps = w->rounds;
    if (!v->begun) {
        TRY(server_begin(&v->server, w->step));
        service_count_due(v);
    }
    if (!v->begun || v->loaded || v->rests)
        service_go_on(v);
    v->begun = true;
    if (longer)
        server_revive(&v->server);
    v->loaded = v->rests = false;
    return answer_all(v);
}

static enum sotto_status take_word(struct async_service *v, int from, const struct up_word *w,
                                   size_t came)
{
    switch (w->kind) {
    case UP_GO:
        return go(v, from, w);
    case UP_PUSH:
        return take_push(v, &w->push, came);
    case UP_CAME:
        if (v->evaluates[from] == EVALUATES_NOW)
            v->evaluates[from] = EVALUATES_NOT;
        return ++v->came == v->groups ? rest(v) : SOTTO_OK;
    case UP_LEAVE:
        v->put_off[from] = false;
        server_leave(&v->server, from);
        v->left = true;
        return answer_all(v);
    case UP_STOP:
        v->asked = true;
        v->late |= w->cut && server_next(&v->server) < 0; /* what is followed was not cut here */
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
        const bool waits = v->rings || v->rests || !v->begun || v->cut;
        const double save = save_waits(v) ? INFINITY : v->saves_at;
        const double until = waits ? INFINITY : fmin(server_deadline(&v->server), save);
        struct up_word w;
        int from;
        size_t came;
        TRY(receive(v, whose(v), until, &from, &came));
        if (from >= 0) {
            TRY(comm_recv_bytes(v->up, &w, sizeof w, from));
            TRY(take_word(v, from, &w, came));
        } else {
            TRY(answer_all(v));
        }
        if (!v->ended)
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
        TRY(comm_broadcast_bytes(v->within, &o, sizeof o, 0));
        if (o.kind == ORDER_APPLY || o.kind == ORDER_DROP)
            TRY(receive(v, only(v, o.group), INFINITY, &from, &came));
        if (o.kind == ORDER_APPLY)
            TRY(apply(v, o.group, came, o.weight));
        if (o.kind == ORDER_KEEP)
            TRY(keep(v));
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
enum sotto_status service_serve(void *arg)
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

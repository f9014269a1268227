/* A group's side of asynchronous DiLoCo: it pulls x0 with a task, trains its steps, and pushes
 * g = x0 - x (Liu et al. 2024, algorithm 2). */
#include "strategy/replicate/async_diloco.h"

#include <stdlib.h>

#include "strategy/method.h"
#include "strategy/replicate/sparse.h"
#include "tensor/ops.h"

static const char *const lost_names[] = {"end", "drop", NULL};

#define S struct async_config
static const struct option options[] = {
    OPTION_LONG(S, H, "500", 1, 1e15, "steps of a task; with dylu: of the fastest group's"),
    OPTION_ENUM(S, outer, "delayed-nesterov", async_outer_names, "outer optimizer"),
    OPTION_REAL(S, outer_lr, "0.7", 0, 100, "outer learning rate"),
    OPTION_REAL(S, outer_momentum, "0.9", 0, 1, "outer momentum"),
    OPTION_LONG(S, N, "0", 0, 1e9,
                "pushes between two updates of the momentum; 0: as many as groups"),
    OPTION_REAL(S, c, "0", 0, 1, "share of the momentum between two of its updates, up to 1/N"),
    OPTION_REAL(S, weight, "0", 0, 100,
                "of a push; 0: 1 with delayed-nesterov, else 1 over the root of the groups"),
    OPTION_BOOL(S, staleness, "false",
                "weigh pushes by (1 + s)^-1/2, s = pushes of others since the group has pulled"),
    OPTION_BOOL(S, dylu, "false", "groups train as many steps as they are fast"),
    OPTION_REAL(S, grace, "0", 0, 1e9,
                "seconds that a push waits for others, to pull the same parameters"),
    OPTION_REAL(S, prune, "0", 0, 1,
                "share of what a group has moved, the smallest of every row, that is not sent"),
    OPTION_ENUM(
        S, lost, "end", lost_names,
        "where a group fails: the run ends, or (drop) the others go on and do its steps; only "
        "groups of one worker, and not the first, which has the server"),
    OPTION_TEXT(S, replay, "", "a run's pushes.tsv: take pushes in that order, to the bit"),
};
#undef S

static const struct option_only only[] = {
    {"outer_momentum", "outer", "delayed-nesterov, nesterov"},
    {"N", "outer", "delayed-nesterov"},
    {"c", "outer", "delayed-nesterov"},
};

struct async_rules async_rules_of(const struct async_config *c, int groups)
{
    return (struct async_rules){.outer = c->outer,
                                .outer_lr = c->outer_lr,
                                .outer_momentum = c->outer_momentum,
                                .N = c->N,
                                .c = c->c,
                                .weight = c->weight,
                                .staleness = c->staleness,
                                .dylu = c->dylu,
                                .grace = c->grace,
                                .H = c->H,
                                .groups = groups,
                                .steps = STATE_STEPS};
}

static enum sotto_status resolve(void *own, const struct strategy_config *strategy)
{
    const struct async_config *c = own;
    const struct async_rules rules = async_rules_of(c, strategy->groups);
    struct async_journal journal;
    if (strategy_elastic(strategy))
        return fail(SOTTO_EINVAL,
                    "async-diloco with %s: how many micro-batches a task takes would not be known "
                    "when it is given out",
                    strategy->sharding->name);
    TRY(rules_check(&rules));
    if (c->prune >= 1)
        return fail(SOTTO_EINVAL, "async-diloco.prune = 1 sends nothing");
    if (c->lost == LOST_DROP && strategy->workers > strategy->groups)
        return fail(SOTTO_EINVAL,
                    "async-diloco.lost = drop is for groups of one worker, and these have %d: the "
                    "others of a group would wait for the one that fails",
                    strategy->workers / strategy->groups);
    if (!*c->replay)
        return SOTTO_OK;
    TRY(journal_read(&journal, c->replay, strategy->groups));
    journal_free(&journal);
    return SOTTO_OK;
}

static void trial(void *own)
{
    ((struct async_config *)own)->replay[0] = '\0';
}

static int64_t every(const void *own)
{
    return ((const struct async_config *)own)->H;
}

enum task_state {
    TASK_FIRST,  /* everybody knows it without a word   */
    TASK_TRAINS, /* under way                           */
    TASK_PUSHES, /* done, but not applied               */
    TASK_WAITS,  /* applied: the next one is to come    */
    TASK_NONE    /* nothing is left                     */
};

struct async_diloco {
    struct replicate base;
    struct comm *up, *down;
    struct buffer x0;     /* as it was pulled                             */
    struct buffer delta;  /* what the group has moved                     */
    struct sparse sparse; /* prune > 0: what is sent of it                */
    int64_t state;        /* enum task_state                              */
    struct async_task task;
    int64_t done;                  /* steps of the task                          */
    struct async_push push;        /* what is told of it, so far                */
    double since;                  /* the round under way began                  */
    int64_t rounds;                /* plan.rounds of it; 0: not known            */
    struct down_word bell;         /* that has rung ...                          */
    bool rung;                     /* ... as this group's first worker knows     */
    bool goes;                     /* is to be said to the server                */
    int64_t before;                /* those of the run that it goes on from, 0: none */
    bool stops;                    /* was said                                   */
    double asked;                  /* when the task was asked for                */
    bool rests;                    /* group 0, in a meeting: the server does     */
    struct async_service *service; /* group 0's; owned                       */
};

static const struct async_config *own(const struct replicate *r)
{
    return replicate_options(r);
}

static bool speaks(const struct replicate *r)
{
    return r->is.mesh->s == 0;
}

static double now(const struct replicate *r)
{
    return clock_now(r->is.mesh->worker->clock);
}

/* A word to the leader. */
static enum sotto_status say(struct async_diloco *a, enum up_kind kind)
{
    struct up_word w = {.kind = kind, .rounds = a->rounds, .push = a->push};
    if (!speaks(&a->base))
        return SOTTO_OK;
    if (kind != UP_PUSH)
        TRY(comm_send(a->up, view_of(NULL, DTYPE_F32), 0, 0));
    return comm_send(a->up, word_of(&w), sizeof w, 0);
}

/* The server of group 0 says when it rests. */
static enum sotto_status await_rest(struct async_diloco *a)
{
    struct down_word w;
    if (!a->service || !a->base.told.meet || a->rests)
        return SOTTO_OK;
    TRY(comm_recv(a->down, word_of(&w), sizeof w, 0));
    assert(w.kind == DOWN_REST);
    a->rests = true;
    return SOTTO_OK;
}

/* Everybody begins with the parameters that all have, on a data shard of its own. */
static void first_task(struct async_diloco *a)
{
    const int64_t H = own(&a->base)->H, T = a->rounds, group = a->base.is.mesh->r;
    a->task = (struct async_task){.group = group,
                                  .span = {.shard = group, .steps = T > 0 && T < H ? T : H}};
    a->state = TASK_TRAINS;
}

/* Of a run that follows another one the server has another first task to give. */
static enum sotto_status first_replayed(struct async_diloco *a)
{
    struct async_journal journal;
    const char *replay = own(&a->base)->replay;
    const int64_t group = a->base.is.mesh->r;
    if (!*replay)
        return SOTTO_OK;
    TRY(journal_read(&journal, replay, a->base.is.mesh->n_r));
    const struct async_entry *first = journal_next(&journal, 0, group);
    if (first)
        a->task.span = first->span;
    journal_free(&journal);
    return SOTTO_OK;
}

static enum sotto_status go(struct async_diloco *a)
{
    if (a->state == TASK_FIRST) {
        first_task(a);
        TRY(first_replayed(a));
    }
    if (a->before > 0 && a->rounds > a->before && a->state == TASK_NONE)
        a->state = TASK_WAITS; /* the server has something for it */
    a->before = 0;
    a->goes = a->rung = a->rests = false;
    return say(a, UP_GO);
}

/* The first worker of a group looks whether the bell has rung. */
static enum sotto_status listen(struct async_diloco *a)
{
    int from;
    if (!speaks(&a->base) || a->rung)
        return SOTTO_OK;
    TRY(comm_recv_any(a->down, word_of(&a->bell), sizeof a->bell, NULL, 0, &from));
    a->rung = from >= 0;
    return SOTTO_OK;
}

/* A push that would have to be made again costs time: not where a group can know without a word. */
static enum sotto_status listen_again(struct async_diloco *a, bool *meet)
{
    if (a->base.is.mesh->n_s > 1 || *meet)
        return SOTTO_OK;
    TRY(listen(a));
    *meet = a->rung;
    return SOTTO_OK;
}

static enum sotto_status begin(struct replicate *r, const struct plan *plan, bool *rung)
{
    struct async_diloco *a = (struct async_diloco *)r;
    const int64_t accumulate = r->is.config->accumulate;
    a->rounds = plan->rounds;
    TRY(await_rest(a));
    if (a->service)
        TRY(service_start(a->service));
    r->told.evaluate = r->told.meet = r->apart = false;
    a->since = now(r);
    if (a->goes)
        TRY(go(a));
    r->idle = a->state != TASK_TRAINS;
    if (!r->idle)
        TRY(listen(a));
    *rung = a->rung;
    r->data.rank = (int)a->task.span.shard * r->is.mesh->n_s + r->is.mesh->s;
    r->data.microbatch = (a->task.span.first + a->done) * accumulate;
    return SOTTO_OK;
}

static enum sotto_status read_delta(void *arg)
{
    struct async_diloco *a = arg;
    struct device *dev = a->base.is.dev;
    if (a->sparse.value)
        dev->ops->read(dev, a->sparse.value, a->delta.view, a->base.count);
    return device_check(dev);
}

static enum sotto_status send_delta(struct async_diloco *a)
{
    struct replicate *r = &a->base;
    size_t words;
    if (!a->sparse.count)
        return comm_send(a->up, a->delta.view, r->count, 0);
    TRY(work_run(&r->on, read_delta, a, 2. * sizeof(float) * (double)r->count));
    TRY(sparse_prune(&a->sparse));
    TRY(sparse_pack(&a->sparse, &words));
    return comm_send(a->up, view_of(a->sparse.out, DTYPE_F32), words, 0);
}

/* g = x0 - x */
static enum sotto_status push(struct async_diloco *a)
{
    struct replicate *r = &a->base;
    TRY(work_copy(&r->on, a->delta.view, a->x0.view, r->count));
    TRY(work_axpy(&r->on, a->delta.view, -1, r->x, r->count));
    a->asked = now(r);
    TRY(send_delta(a));
    TRY(say(a, UP_PUSH));
    a->state = TASK_WAITS;
    return SOTTO_OK;
}

static enum sotto_status take_task(struct async_diloco *a, const struct down_word *w)
{
    struct replicate *r = &a->base;
    TRY(comm_recv(a->down, a->x0.view, r->count, 0));
    TRY(work_copy(&r->on, r->x, a->x0.view, r->count)); /* x <- x0 */
    TRY(replicate_publish(r));
    a->task = w->task;
    a->done = 0;
    a->state = w->task.span.steps > 0 ? TASK_TRAINS : TASK_NONE;
    a->push = (struct async_push){.group = a->task.group, .idle = now(r) - a->asked};
    r->told.step = w->step;
    r->told.evaluate = w->evaluate;
    return SOTTO_OK;
}

/* The answer, or that it comes behind the meeting: *meet. */
static enum sotto_status pull(struct async_diloco *a, bool *meet)
{
    struct down_word w;
    for (;;) {
        TRY(comm_recv(a->down, word_of(&w), sizeof w, 0));
        if (w.kind == DOWN_TASK)
            return take_task(a, &w);
        a->bell = w;
        if (w.kind == DOWN_BELL) {
            a->rung = true;
            continue;
        }
        a->state = w.kind == DOWN_AGAIN ? TASK_PUSHES : TASK_WAITS;
        *meet = true;
        return SOTTO_OK;
    }
}

/* Nothing is left to be done but to meet the others. */
static enum sotto_status await_bell(struct async_diloco *a)
{
    if (!speaks(&a->base) || a->rung)
        return SOTTO_OK;
    return comm_recv(a->down, word_of(&a->bell), sizeof a->bell, 0);
}

static enum sotto_status come(struct async_diloco *a)
{
    struct replicate *r = &a->base;
    if (r->is.within->size > 1) /* only the first one has heard the bell */
        TRY(comm_broadcast(r->is.within, word_of(&a->bell), sizeof a->bell, 0));
    r->told.meet = r->apart = a->goes = true;
    r->told.step = a->bell.step;
    r->stop = a->bell.stop;
    return say(a, UP_CAME);
}

static void count(struct async_diloco *a)
{
    const struct replicate *r = &a->base;
    const int n = r->is.mesh->n_s;
    a->push.microbatches += (int64_t)r->own.microbatches / n;
    a->push.tokens += (int64_t)r->own.tokens;
    a->push.targets += (int64_t)r->own.targets;
    a->push.loss += r->own.loss;
    a->push.seconds += now(r) - a->since;
    a->push.group = r->is.mesh->r;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct async_diloco *a = (struct async_diloco *)r;
    bool meet = false;
    if (a->state == TASK_TRAINS) {
        TRY(replicate_local_step(r, plan->lr, scale));
        count(a);
        a->done++;
        meet = r->own.rung;
        if (r->own.stop && !a->stops) {
            a->stops = true;
            TRY(say(a, UP_STOP));
        }
    } else if (a->state == TASK_NONE) {
        TRY(await_bell(a));
        return come(a);
    }
    if (a->state == TASK_TRAINS && a->done == a->task.span.steps)
        a->state = TASK_PUSHES;
    if (a->state == TASK_PUSHES)
        TRY(listen_again(a, &meet));
    if (a->state == TASK_PUSHES && !meet) /* else behind the meeting */
        TRY(push(a));
    if (a->state == TASK_WAITS)
        TRY(pull(a, &meet));
    return meet ? come(a) : SOTTO_OK;
}

static int64_t place(struct replicate *r)
{
    const struct async_diloco *a = (const struct async_diloco *)r;
    return a->task.span.first + a->done;
}

static bool pushed(struct replicate *r, struct pushed *out)
{
    struct async_diloco *a = (struct async_diloco *)r;
    return a->service && service_pushed(a->service, out);
}

static enum sotto_status write_pushes(struct replicate *r, const char *path)
{
    struct async_diloco *a = (struct async_diloco *)r;
    TRY(await_rest(a));
    return a->service ? service_write(a->service, path) : SOTTO_OK;
}

/* A peer's failure is everybody's. */
static bool leave(struct replicate *r, enum sotto_status st)
{
    struct async_diloco *a = (struct async_diloco *)r;
    if (own(r)->lost != LOST_DROP || r->is.mesh->n_s > 1 || a->service || st == SOTTO_EPEER)
        return false;
    a->state = TASK_NONE;
    return say(a, UP_LEAVE) == SOTTO_OK;
}

static enum sotto_status truth(struct replicate *r, struct comm *across, struct view y)
{
    struct async_diloco *a = (struct async_diloco *)r;
    struct device *dev = r->is.mesh->dev;
    TRY(await_rest(a));
    if (a->service)
        dev->ops->copy(dev, y, service_x0(a->service), r->count);
    return comm_broadcast(across, y, r->count, 0);
}

static void anchor(struct replicate *r)
{
    struct async_diloco *a = (struct async_diloco *)r;
    r->is.dev->ops->copy(r->is.dev, a->x0.view, r->x, r->count);
    a->task = (struct async_task){0};
    a->push = (struct async_push){0};
    a->done = 0;
    a->state = TASK_FIRST;
    a->goes = true;
    if (a->service && device_check(r->is.dev) == SOTTO_OK) /* devices keep what has failed */
        (void)service_begin(a->service, a->x0.view);
}

/* Where the group is in its task. */
static enum sotto_status visit_task(struct async_diloco *a, struct state_visitor *v)
{
    struct async_task *t = &a->task;
    struct async_push *p = &a->push;
    const int groups = a->base.is.mesh->n_r;
    TRY(state_count(v, "state", &a->state, TASK_NONE));
    TRY(state_count(v, "rounds", &a->rounds, STATE_STEPS));
    TRY(state_count(v, "shard", &t->span.shard, groups - 1));
    TRY(state_count(v, "first", &t->span.first, STATE_STEPS));
    TRY(state_count(v, "steps", &t->span.steps, STATE_STEPS));
    TRY(state_count(v, "version", &t->version, STATE_STEPS));
    TRY(state_count(v, "done", &a->done, STATE_STEPS));
    TRY(state_count(v, "microbatches", &p->microbatches, STATE_STEPS));
    TRY(state_count(v, "tokens", &p->tokens, STATE_TOTAL));
    TRY(state_count(v, "targets", &p->targets, STATE_TOTAL));
    TRY(state_real(v, "loss", &p->loss));
    if (state_hashing(v))
        return SOTTO_OK;
    TRY(state_within(v, "seconds", &p->seconds, 0, 1e15));
    return state_within(v, "idle", &p->idle, 0, 1e15);
}

static enum sotto_status visit_group(struct async_diloco *a, struct state_visitor *v)
{
    struct replicate *r = &a->base;
    const struct mesh *mesh = r->is.mesh;
    if (!state_loading(v) && mesh->s > 0) /* by the first */
        return SOTTO_OK;
    TRY(state_enter_own(v, "task", mesh->r, mesh->n_r));
    TRY(visit_task(a, v));
    state_leave(v);
    if (!state_loading(v))
        return SOTTO_OK;
    a->task.group = a->push.group = mesh->r;
    a->before = a->rounds;
    if (a->state == TASK_TRAINS && a->done >= a->task.span.steps)
        return fail(SOTTO_EFORMAT, "group %d has done %lld of %lld steps", mesh->r,
                    (long long)a->done, (long long)a->task.span.steps);
    return state_ignore(v, "task.");
}

static enum sotto_status visit_service(struct async_diloco *a, struct state_visitor *v)
{
    if (a->service)
        TRY(service_visit(a->service, v));
    if (!state_loading(v))
        return SOTTO_OK;
    if (!a->service)
        TRY(state_ignore(v, "outer."));
    if (!a->service || !speaks(&a->base))
        TRY(state_ignore(v, "server."));
    return a->service ? service_start(a->service) : SOTTO_OK;
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct async_diloco *a = (struct async_diloco *)r;
    TRY(await_rest(a));
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    if (state_loading(v) && r->from.groups != r->is.mesh->n_r)
        return fail(SOTTO_EINVAL,
                    "the checkpoint is of %lld groups, and this run has %d: as each has a task "
                    "under way, asynchronous groups go on in the same number",
                    (long long)r->from.groups, r->is.mesh->n_r);
    TRY(visit_group(a, v));
    TRY(replicate_visit_own(r, v, "pulled", "x0", &a->x0));
    return visit_service(a, v);
}

static void free_async(struct replicate *r)
{
    struct async_diloco *a = (struct async_diloco *)r;
    if (a->service)
        service_close(a->service, a->up);
    buffer_free(&a->x0);
    buffer_free(&a->delta);
    sparse_free(&a->sparse);
}

/* `up` and `down` as the worker has them, and in group 0 as the server has them. */
static enum sotto_status open_ways(struct async_diloco *a)
{
    struct replicate *r = &a->base;
    struct mesh *mesh = r->is.mesh;
    struct lane *lane = NULL, *mine = r->is.across->lane;
    struct comm *up, *down, *within;
    if (mesh->r == 0) {
        TRY(mesh_lane(mesh, r->is.across, &lane));
        mesh_serves(mesh, lane);
    }
    TRY(mesh_duplicate(mesh, mesh->replicate, lane ? lane : mine, &up));
    TRY(mesh_duplicate(mesh, mesh->replicate, mine, &a->down));
    TRY(mesh_duplicate(mesh, mesh->shard, lane ? lane : mine, &within));
    a->up = up;
    if (mesh->r > 0)
        return SOTTO_OK;
    TRY(mesh_twin(mesh, up, mine, &a->up));
    TRY(mesh_twin(mesh, a->down, lane, &down));
    return service_open(&a->service, r, own(r), up, down, within, lane);
}

static enum sotto_status init(struct replicate *r)
{
    struct async_diloco *a = (struct async_diloco *)r;
    TRY(replicate_buffer(r, &a->x0, MEMORY_OUTER));
    TRY(replicate_buffer(r, &a->delta, MEMORY_COMMUNICATION));
    if (own(r)->prune > 0)
        TRY(sparse_init_message(&a->sparse, &r->on, r->is.table, r->is.own, own(r)->prune));
    a->goes = true;
    return open_ways(a);
}

static const struct replicate_ops ops = {
    .async = true,
    .bytes = sizeof(struct async_diloco),
    .init = init,
    .anchor = anchor,
    .begin = begin,
    .step = step,
    .visit = visit,
    .truth = truth,
    .place = place,
    .pushed = pushed,
    .write_pushes = write_pushes,
    .leave = leave,
    .free = free_async,
};

const struct method method_async_diloco = {
    .name = "async-diloco",
    .axis = METHOD_REPLICATE,
    .about =
        "asynchronous DiLoCo: groups pull parameters from a server, train H steps, and push what "
        "they moved, which is applied at once; nobody waits for a slower group",
    METHOD_OPTIONS(struct async_config, options),
    METHOD_ONLY(only),
    .resolve = resolve,
    .trial = trial,
    .every = every,
    .every_key = "H",
    .replicate = &ops,
};

/* The state of a group in a checkpoint: its task with the progress in it, and the pulled x0. */
#include "strategy/async/group.h"
#include "strategy/method.h"
#include "tensor/ops.h"

void async_anchor(struct replicate *r)
{
    struct async *a = (struct async *)r;
    r->is.dev->ops->copy(r->is.dev, a->x0.view, r->x, r->count);
    a->task = (struct async_task){0};
    a->push = (struct async_push){0};
    a->waited = 0;
    a->done = a->begins = a->begins_at = 0;
    a->state = TASK_FIRST;
    a->announces = true;
    if (a->server && device_check(r->is.dev) == SOTTO_OK) /* a failure is kept by the device */
        (void)server_set_x0(a->server, a->x0.view);
}

/* Visits the task and the progress in it. */
static enum sotto_status visit_task(struct async *a, struct state_visitor *v)
{
    struct async_task *t = &a->task;
    struct async_push *p = &a->push;
    const int groups = a->base.is.mesh->n_r;
    int64_t state = a->state;
    if (a->round.snapshot && state == TASK_WAITS && !a->msg.applied)
        state = TASK_PUSHES; /* a push in flight is lost if the run ends here */
    TRY(state_count(v, "state", &state, TASK_NONE));
    if (state_loading(v))
        a->state = state;
    TRY(state_count(v, "rounds", &a->rounds,
                    STATE_TOTAL)); /* no upper limit: a run may end by time alone */
    TRY(state_count(v, "shard", &t->span.shard, groups - 1));
    TRY(state_count(v, "first", &t->span.first, STATE_STEPS));
    TRY(state_count(v, "steps", &t->span.steps, STATE_STEPS));
    TRY(state_count(v, "version", &t->version, STATE_STEPS));
    TRY(state_count(v, "done", &a->done, STATE_STEPS));
    TRY(state_count(v, "microbatches", &p->microbatches, STATE_TOTAL));
    TRY(state_count(v, "tokens", &p->tokens, STATE_TOTAL));
    TRY(state_count(v, "targets", &p->targets, STATE_TOTAL));
    TRY(state_real(v, "loss", &p->loss));
    if (state_hashing(v))
        return SOTTO_OK;
    TRY(state_within(v, "seconds", &p->seconds, 0, 1e15));
    TRY(state_within(v, "idle", &p->idle, 0, 1e15));
    return state_within(v, "waited", &a->waited, 0, 1e15);
}

/* Visits the place of the first tasks, after the steps of another method. */
static enum sotto_status visit_begins(struct async *a, struct state_visitor *v)
{
    if (state_loading(v) ? !state_has(v, "begins") : a->begins == 0)
        return SOTTO_OK;
    TRY(state_count(v, "begins", &a->begins, STATE_STEPS));
    TRY(state_count(v, "begins_at", &a->begins_at, STATE_STEPS));
    if (!state_loading(v) || a->task.span.steps == 0 || a->task.span.first >= a->begins)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "a task begins at step %lld, before the first tasks at step %lld",
                (long long)a->task.span.first, (long long)a->begins);
}

/* Visits whether workers read their own data or the data of the tasks, which cannot change. */
static enum sotto_status visit_data_place(struct async *a, struct state_visitor *v)
{
    int64_t own = a->overlaps;
    if (state_loading(v) && !state_has(v, "own"))
        own = 0;
    else if (state_loading(v) || own)
        TRY(state_count(v, "own", &own, 1));
    if (own == a->overlaps)
        return SOTTO_OK;
    return fail(
        SOTTO_EINVAL,
        "%s x async-diloco reads %s, but the groups of the checkpoint have read %s: some data "
        "would be used twice, and some never",
        a->base.is.config->sharding->name, own ? "the data of each task" : "each worker's own data",
        own ? "each worker's own data" : "the data of each task");
}

static enum sotto_status visit_group(struct async *a, struct state_visitor *v)
{
    struct replicate *r = &a->base;
    const struct mesh *mesh = r->is.mesh;
    if (!state_loading(v) && mesh->s > 0) /* shown by the first worker */
        return SOTTO_OK;
    TRY(state_enter_own(v, "task", mesh->r, mesh->n_r));
    TRY(visit_data_place(a, v));
    TRY(visit_task(a, v));
    TRY(visit_begins(a, v));
    state_leave(v);
    if (!state_loading(v))
        return SOTTO_OK;
    a->task.group = a->push.group = mesh->r;
    a->rounds_before = a->rounds;
    if (a->state == TASK_TRAINS && a->done >= a->task.span.steps)
        return fail(SOTTO_EFORMAT, "group %d has done %lld of %lld steps", mesh->r,
                    (long long)a->done, (long long)a->task.span.steps);
    return state_ignore(v, "task.");
}

static enum sotto_status visit_server(struct async *a, struct state_visitor *v)
{
    if (a->round.snapshot) /* the server kept its state before */
        return SOTTO_OK;
    if (state_loading(v) && a->state != TASK_FIRST && !state_has(v, "server."))
        return fail(SOTTO_EFORMAT, "group %d has begun, but the file has no ledger of the server",
                    a->base.is.mesh->r);
    if (a->server)
        TRY(server_visit(a->server, v));
    if (!state_loading(v))
        return SOTTO_OK;
    if (!a->server)
        TRY(state_ignore(v, "outer."));
    if (!a->server || !async_is_first(a))
        TRY(state_ignore(v, "server."));
    return a->server ? server_start(a->server) : SOTTO_OK;
}

enum sotto_status async_visit(struct replicate *r, struct state_visitor *v)
{
    struct async *a = (struct async *)r;
    TRY(async_wait_idle(a));
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    if (state_loading(v) && r->from.groups != r->is.mesh->n_r)
        return fail(SOTTO_EINVAL,
                    "the checkpoint has %lld groups, and this run has %d: asynchronous groups have "
                    "tasks in progress, so a run resumes with the same number of groups",
                    (long long)r->from.groups, r->is.mesh->n_r);
    TRY(visit_group(a, v));
    TRY(replicate_visit_own(r, v, "pulled", "x0", &a->x0));
    return visit_server(a, v);
}

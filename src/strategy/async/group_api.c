/* What the training loops ask of an asynchronous group. */
#include "base/log.h"
#include "strategy/async/group.h"

const struct async_round *async_last_round(const struct async *a)
{
    return &a->round;
}

int64_t async_next_step(const struct async *a, int64_t step)
{
    return a->state == TASK_FIRST ? step : a->task.span.first + a->done;
}

void async_truncate_tasks(struct async *a, bool truncate)
{
    a->truncates = truncate;
}

bool async_take_push(struct async *a, struct applied_push *out)
{
    return a->server && server_take_push(a->server, out);
}

enum sotto_status async_write_journal(struct async *a, const char *path)
{
    TRY(async_wait_idle(a));
    return a->server ? server_write_journal(a->server, path) : SOTTO_OK;
}

enum sotto_status async_totals(struct async *a, struct push_totals *group)
{
    TRY(async_wait_idle(a));
    if (a->server)
        server_totals(a->server, group);
    return SOTTO_OK;
}

/* True if the other groups can continue without this one. The failure of a peer ends the run. */
static bool may_drop(const struct async *a, enum sotto_status st)
{
    return async_options(a)->lost == LOST_DROP && a->base.is.mesh->n_s == 1 && !a->server &&
           st != SOTTO_EPEER;
}

static enum sotto_status drop_group(struct strategy *s)
{
    struct async *a = s->async;
    if (a->base.is.across->lane)
        (void)lane_wait(a->base.is.across->lane); /* a job may use the same state */
    TRY(async_leave(a));
    a->round.pulled = a->round.evaluate = a->round.meet = a->round.snapshot = false;
    return s->ops->discard ? s->ops->discard(s) : SOTTO_OK;
}

bool async_drop_group(struct strategy *s, enum sotto_status st)
{
    struct status_note note;
    status_save(&note, st);
    if (!may_drop(s->async, st) || drop_group(s) != SOTTO_OK) {
        (void)status_raise(&note);
        return false;
    }
    log_warn("%s; the other groups continue without this group", note.text);
    return true;
}

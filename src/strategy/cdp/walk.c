/* A worker of cyclic data parallelism walks through the time steps of the schedule and does its
 * acts. */
#include "strategy/cdp/cdp.h"

#include <assert.h>

#include "tensor/ops.h"

/* The micro-batch of a task begins in its slot. */
static enum sotto_status begin(struct cdp *c, const struct cdp_task *task)
{
    struct oracle *o = c->shard.is.oracle;
    struct cdp_flight *f = &c->flight[task->slot];
    const int64_t number = task->step * c->is.n + task->micro;
    if (f->step == task->step && f->micro == task->micro)
        return SOTTO_OK;
    TRY(cdp_counted(c, f->counted));
    TRY(cdp_edges_sent(c, f));
    f->step = task->step;
    f->micro = task->micro;
    return oracle_begin(o, task->slot, number / c->devices, (int)(number % c->devices),
                        c->shard.is.config->weight == WEIGHT_TOKENS);
}

/* What the stage is computed with: a tensor that it shares with another is of that stage's version.
 */
static void show_theta(struct cdp *c, const struct cdp_task *task)
{
    for (int k = 0; k < c->is.n; k++)
        c->theta[k] = c->needs[task->stage * c->is.n + k]
                          ? cdp_theta(c, k, cdp_version(&c->is, task->step, task->micro, k))
                          : view_none;
}

static enum sotto_status open_sum(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_stage *st = &c->stage[task->stage];
    if (!task->opens)
        return SOTTO_OK;
    TRY(cdp_wait(&c->out, st->g_sent[task->step & 1]));
    return work_fill(&c->shard.on, st->g[task->step & 1], st->count, 0);
}

/* Gradients are added to the sum of the micro-batches before. Those of a stage that others read too
 * wait until its own backward has completed them. */
static enum sotto_status show_grad(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_flight *f = &c->flight[task->slot];
    for (int k = 0; k < c->is.n; k++) {
        const struct cdp_stage *st = &c->stage[k];
        c->grad[k] = view_none;
        if (!c->needs[task->stage * c->is.n + k])
            continue;
        c->grad[k] = st->g[task->step & 1];
        if (!st->shared)
            continue;
        if (!f->apart[k]) {
            TRY(pool_take(&c->apart, st->g[0].type, st->count, &f->apart[k]));
            TRY(work_fill(&c->shard.on, f->apart[k]->buffer.view, st->count, 0));
        }
        c->grad[k] = f->apart[k]->buffer.view;
    }
    return SOTTO_OK;
}

static enum sotto_status close_shared(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_flight *f = &c->flight[task->slot];
    struct cdp_stage *st = &c->stage[task->stage];
    if (!st->shared)
        return SOTTO_OK;
    TRY(work_axpy(&c->shard.on, st->g[task->step & 1], 1, f->apart[task->stage]->buffer.view,
                  st->count));
    pool_give(&c->apart, f->apart[task->stage]);
    f->apart[task->stage] = NULL;
    return SOTTO_OK;
}

/* Numbers of a step leave with the last loss that this worker has of it or, where it never has one,
 * with the step's first task. */
static enum sotto_status report(struct cdp *c, const struct cdp_task *task)
{
    const int n = c->is.n;
    const bool loses = cdp_device(&c->is, task->step, n - 1, n - 1) == c->device ||
                       c->is.placement == CDP_DP || c->is.placement == CDP_ZERO;
    if (!loses)
        return c->reported < task->step ? cdp_report(c, task->step) : SOTTO_OK;
    if (!task->backward || task->stage != n - 1)
        return SOTTO_OK;
    TRY(cdp_note(c, &c->flight[task->slot]));
    const bool all = c->is.placement != CDP_DP && c->is.placement != CDP_ZERO;
    return !all || task->micro == n - 1 ? cdp_report(c, task->step) : SOTTO_OK;
}

static enum sotto_status run(struct cdp *c, const struct cdp_task *task)
{
    struct oracle *o = c->shard.is.oracle;
    show_theta(c, task);
    if (!task->backward) {
        TRY(begin(c, task));
        TRY(oracle_forward(o, task->slot, task->stage, c->theta));
        TRY(oracle_note(o, task->slot, task->step & 1));
    } else {
        TRY(open_sum(c, task));
        TRY(show_grad(c, task));
        TRY(oracle_backward(o, task->slot, task->stage, c->theta, c->grad));
        TRY(close_shared(c, task));
    }
    return report(c, task);
}

/* What a message changes here, once it is there. */
static enum sotto_status install(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    if (move->what == CDP_SUM && move->add) {
        TRY(cdp_wait(&c->out, st->g_sent[move->step & 1]));
        return work_axpy(&c->shard.on, st->g[move->step & 1], 1, c->added.view, st->count);
    }
    if (move->what == CDP_PARAMETERS)
        cdp_next_version(st, move->version);
    return move->what == CDP_STATE ? cdp_state_came(c, move) : SOTTO_OK;
}

/* The task that an activation is for is the next one of the list. */
static enum sotto_status receive(struct cdp *c, const struct cdp_act *act, uint64_t *message)
{
    const struct cdp_move *move = &act->move;
    int slot = 0;
    if (move->what == CDP_ACTIVATION || move->what == CDP_ACTIVATION_GRADIENT) {
        while (act->what != CDP_RUN)
            act++;
        TRY(begin(c, &act->task));
        slot = act->task.slot;
    }
    return cdp_receive(c, move, slot, message);
}

/* Whether a message of the next time step can be received while this one computes: sums and
 * parameters have a place of their own, unless the stage is in use. */
static bool early(const struct cdp *c, const struct cdp_move *move)
{
    if ((move->what != CDP_SUM || move->add) && move->what != CDP_PARAMETERS)
        return false;
    for (int i = 0; i < c->n_act; i++) {
        const struct cdp_act *now = &c->act[i];
        const bool moves = now->what == CDP_SEND || now->what == CDP_RECEIVE;
        if ((now->what == CDP_RUN && c->needs[now->task.stage * c->is.n + move->stage]) ||
            (now->what == CDP_UPDATE && now->update.stage == move->stage) ||
            (moves && now->move.stage == move->stage && now->move.what == move->what))
            return false;
    }
    return true;
}

/* Messages are taken in the order of the schedule, so the first that cannot be ends it. */
static enum sotto_status receive_early(struct cdp *c)
{
    const int n = cdp_acts(&c->is, c->device, c->time + 1, c->next);
    uint64_t message;
    assert(c->taken == 0);
    for (int i = 0; i < n; i++) {
        if (c->next[i].what != CDP_RECEIVE)
            continue;
        if (!early(c, &c->next[i].move))
            break;
        TRY(cdp_receive(c, &c->next[i].move, 0, &message));
        c->taken++;
    }
    return SOTTO_OK;
}

static enum sotto_status act(struct cdp *c, const struct cdp_act *act)
{
    uint64_t message;
    switch (act->what) {
    case CDP_SEND:
        return cdp_send(c, &act->move);
    case CDP_RECEIVE:
        if (c->taken)
            message = c->in.started - (uint64_t)--c->taken;
        else
            TRY(receive(c, act, &message));
        TRY(cdp_wait(&c->in, message));
        return install(c, &act->move);
    case CDP_RUN:
        return run(c, &act->task);
    default:
        return cdp_update(c, &act->update);
    }
}

/* A time step; what the next one receives begins to come while this one's last task runs. */
static enum sotto_status walk(struct cdp *c, int64_t end)
{
    int last = -1, receives = 0;
    c->n_act = cdp_acts(&c->is, c->device, c->time, c->act);
    for (int i = 0; i < c->n_act; i++) {
        last = c->act[i].what == CDP_RUN ? i : last;
        receives = c->act[i].what == CDP_RECEIVE ? i : receives;
    }
    const bool looks = c->devices > 1 && c->time + 1 < end && receives <= last;
    for (int i = 0; i < c->n_act; i++) {
        if (looks && i == last)
            TRY(receive_early(c));
        TRY(act(c, &c->act[i]));
    }
    cdp_drop_sent(c);
    c->time++;
    return SOTTO_OK;
}

/* Messages that are under way at a round's end are the next acts', and are taken now: between
 * rounds lanes come to rest, also where a message waits for its receiver. */
static enum sotto_status receive_sent(struct cdp *c)
{
    struct cdp_move move[CDP_PENDING];
    const int n = c->devices > 1 ? cdp_pending(&c->is, c->device, c->time, move) : 0;
    for (int i = 0; i < n; i++) {
        uint64_t message;
        assert(move[i].what == CDP_SUM || move[i].what == CDP_PARAMETERS);
        TRY(cdp_receive(c, &move[i], 0, &message));
        c->taken++;
    }
    return SOTTO_OK;
}

static enum sotto_status restart(struct cdp *c)
{
    if (c->walks)
        return SOTTO_OK;
    TRY(cdp_spread(c));
    for (int i = 0; i < c->shard.is.oracle->slots; i++)
        c->flight[i].step = -1;
    TRY(oracle_notes(c->shard.is.oracle)); /* of micro-batches that are run again */
    c->own[0] = c->own[1] = (struct counts){0};
    c->telling = c->hearing = c->t;
    c->reported = c->t - 1;
    c->taken = 0;
    c->walks = true;
    return SOTTO_OK;
}

/* Statistics are the mean of the step's micro-batches: what the workers keep each, which is theirs
 * times the number of workers, has it as its mean. They move behind all stages' updates. */
static enum sotto_status keep(struct cdp *c)
{
    return oracle_keep(c->shard.is.oracle, (int)(c->t & 1), (double)c->devices / c->is.n);
}

enum sotto_status cdp_round(struct strategy *strategy, const struct plan *plan, struct round *out)
{
    struct cdp *c = (struct cdp *)strategy;
    struct shard *s = &c->shard;
    *out = (struct round){.grad_norm = -1};
    buffer_free(&s->whole);
    c->plan = plan;
    c->squares = 0;
    c->clipped = s->is.optim->clip > 0 ? 0 : 1;
    TRY(restart(c));
    if (c->reported == c->t)
        TRY(cdp_hear(c));
    const int64_t end = cdp_end(&c->is, c->t);
    while (c->time < end)
        TRY(walk(c, end));
    TRY(cdp_clip(c)); /* with whom it has nothing to update */
    TRY(receive_sent(c));
    TRY(cdp_agree(c));
    shard_count_end(s, &c->total[c->t & 1], out);
    if (plan->want_norm)
        TRY(cdp_norm(c, out));
    TRY(keep(c));
    optim_next(&s->replicate->optim);
    c->plan = NULL;
    c->t++;
    return device_check(s->is.dev);
}

enum sotto_status cdp_settle(struct cdp *c)
{
    if (!c->walks)
        return SOTTO_OK;
    c->walks = false;
    c->plan = NULL;         /* of a round that failed: it is the caller's */
    if (c->reported < c->t) /* others have told theirs already */
        TRY(cdp_report(c, c->t));
    else
        TRY(cdp_hear(c));
    return mesh_rest(c->shard.is.mesh);
}

/* A worker of cyclic data parallelism walks through the time steps of the schedule and does its
 * acts. */
#include "strategy/cdp/cdp.h"

#include <assert.h>

#include "tensor/ops.h"

/* Begins a task's micro-batch in its slot, unless already begun. */
static enum sotto_status begin_micro(struct cdp *c, const struct cdp_task *task)
{
    struct oracle *o = c->shard.is.oracle;
    struct cdp_flight *f = &c->flight[task->slot];
    const int64_t number = task->step * c->is.n + task->micro;
    if (f->step == task->step && f->micro == task->micro)
        return SOTTO_OK;
    TRY(cdp_wait_report(c, f->counted));
    TRY(cdp_wait_edges(c, f));
    f->step = task->step;
    f->micro = task->micro;
    return oracle_begin(o, task->slot, number / c->devices, (int)(number % c->devices),
                        c->shard.is.config->weight == WEIGHT_TOKENS);
}

/* Sets the parameters of a task. A tensor shared with another stage has the version of that
 * stage. */
static void set_theta(struct cdp *c, const struct cdp_task *task)
{
    for (int k = 0; k < c->is.n; k++)
        c->walk.theta[k] = c->needs[task->stage * c->is.n + k]
                               ? cdp_theta(c, k, cdp_version(&c->is, task->step, task->micro, k))
                               : view_none;
}

static enum sotto_status open_sum(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_stage *st = &c->stage[task->stage];
    if (!task->opens)
        return SOTTO_OK;
    TRY(cdp_wait_message(&c->out, st->g_sent[task->step & 1]));
    return work_fill(&c->shard.on, st->g[task->step & 1], st->count, 0);
}

/* Sets the vectors that a task adds gradients to: the step's sums or, for a stage that other stages
 * read, a separate vector until the stage's own backward completes the gradient. */
static enum sotto_status set_grad(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_flight *f = &c->flight[task->slot];
    for (int k = 0; k < c->is.n; k++) {
        const struct cdp_stage *st = &c->stage[k];
        c->walk.grad[k] = view_none;
        if (!c->needs[task->stage * c->is.n + k])
            continue;
        c->walk.grad[k] = st->g[task->step & 1];
        if (!st->shared)
            continue;
        if (!f->own_grad[k]) {
            TRY(pool_take(&c->own_grads, st->g[0].type, st->count, &f->own_grad[k]));
            TRY(work_fill(&c->shard.on, f->own_grad[k]->buffer.view, st->count, 0));
        }
        c->walk.grad[k] = f->own_grad[k]->buffer.view;
    }
    return SOTTO_OK;
}

static enum sotto_status close_shared(struct cdp *c, const struct cdp_task *task)
{
    struct cdp_flight *f = &c->flight[task->slot];
    struct cdp_stage *st = &c->stage[task->stage];
    if (!st->shared)
        return SOTTO_OK;
    TRY(work_axpy(&c->shard.on, st->g[task->step & 1], 1, f->own_grad[task->stage]->buffer.view,
                  st->count));
    pool_give(&c->own_grads, f->own_grad[task->stage]);
    f->own_grad[task->stage] = NULL;
    return SOTTO_OK;
}

/* Sends a step's counts after the last loss of the step on this worker or, if the worker computes
 * no loss, with the step's first task. */
static enum sotto_status report_step(struct cdp *c, const struct cdp_task *task)
{
    const int n = c->is.n;
    const bool loses = cdp_device(&c->is, task->step, n - 1, n - 1) == c->device ||
                       c->is.placement == CDP_DP || c->is.placement == CDP_ZERO;
    if (!loses)
        return c->sums.reported < task->step ? cdp_send_counts(c, task->step) : SOTTO_OK;
    if (!task->backward || task->stage != n - 1)
        return SOTTO_OK;
    TRY(cdp_count_loss(c, &c->flight[task->slot]));
    const bool all = c->is.placement != CDP_DP && c->is.placement != CDP_ZERO;
    return !all || task->micro == n - 1 ? cdp_send_counts(c, task->step) : SOTTO_OK;
}

static enum sotto_status run_task(struct cdp *c, const struct cdp_task *task)
{
    struct oracle *o = c->shard.is.oracle;
    set_theta(c, task);
    if (!task->backward) {
        TRY(begin_micro(c, task));
        TRY(oracle_forward(o, task->slot, task->stage, c->walk.theta));
        TRY(oracle_note(o, task->slot, task->step & 1));
    } else {
        TRY(open_sum(c, task));
        TRY(set_grad(c, task));
        TRY(oracle_backward(o, task->slot, task->stage, c->walk.theta, c->walk.grad));
        TRY(close_shared(c, task));
    }
    return report_step(c, task);
}

/* Applies a received message. */
static enum sotto_status install_message(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    if (move->what == CDP_SUM && move->add) {
        TRY(cdp_wait_message(&c->out, st->g_sent[move->step & 1]));
        return work_axpy(&c->shard.on, st->g[move->step & 1], 1, c->added.view, st->count);
    }
    if (move->what == CDP_PARAMETERS)
        cdp_advance_version(st, move->version);
    return move->what == CDP_STATE ? cdp_install_state(c, move) : SOTTO_OK;
}

/* Posts the receive of an act. An activation belongs to the next task in the list. */
static enum sotto_status receive_act(struct cdp *c, const struct cdp_act *act, uint64_t *message)
{
    const struct cdp_move *move = &act->move;
    int slot = 0;
    if (move->what == CDP_ACTIVATION || move->what == CDP_ACTIVATION_GRADIENT) {
        while (act->what != CDP_RUN)
            act++;
        TRY(begin_micro(c, &act->task));
        slot = act->task.slot;
    }
    return cdp_receive(c, move, slot, message);
}

/* True if a message of the next time step can be received during this one: sums and parameters have
 * a place of their own, unless the stage is in use. */
static bool can_receive_early(const struct cdp *c, const struct cdp_move *move)
{
    if ((move->what != CDP_SUM || move->add) && move->what != CDP_PARAMETERS)
        return false;
    for (int i = 0; i < c->walk.n_act; i++) {
        const struct cdp_act *now = &c->walk.act[i];
        const bool moves = now->what == CDP_SEND || now->what == CDP_RECEIVE;
        if ((now->what == CDP_RUN && c->needs[now->task.stage * c->is.n + move->stage]) ||
            (now->what == CDP_UPDATE && now->update.stage == move->stage) ||
            (moves && now->move.stage == move->stage && now->move.what == move->what))
            return false;
    }
    return true;
}

/* Posts receives in the order of the schedule, up to the first message that cannot be received
 * yet. */
static enum sotto_status receive_early(struct cdp *c)
{
    const int n = cdp_acts(&c->is, c->device, c->walk.time + 1, c->walk.next);
    uint64_t message;
    assert(c->walk.early == 0);
    for (int i = 0; i < n; i++) {
        if (c->walk.next[i].what != CDP_RECEIVE)
            continue;
        if (!can_receive_early(c, &c->walk.next[i].move))
            break;
        TRY(cdp_receive(c, &c->walk.next[i].move, 0, &message));
        c->walk.early++;
    }
    return SOTTO_OK;
}

static enum sotto_status do_act(struct cdp *c, const struct cdp_act *act)
{
    uint64_t message;
    switch (act->what) {
    case CDP_SEND:
        return cdp_send(c, &act->move);
    case CDP_RECEIVE:
        if (c->walk.early)
            message = c->in.started - (uint64_t)--c->walk.early;
        else
            TRY(receive_act(c, act, &message));
        TRY(cdp_wait_message(&c->in, message));
        return install_message(c, &act->move);
    case CDP_RUN:
        return run_task(c, &act->task);
    default:
        return cdp_update(c, &act->update);
    }
}

/* Does the acts of a time step. Receives of the next time step are posted before the last task. */
static enum sotto_status walk_time_step(struct cdp *c, int64_t end)
{
    int last = -1, receives = 0;
    c->walk.n_act = cdp_acts(&c->is, c->device, c->walk.time, c->walk.act);
    for (int i = 0; i < c->walk.n_act; i++) {
        last = c->walk.act[i].what == CDP_RUN ? i : last;
        receives = c->walk.act[i].what == CDP_RECEIVE ? i : receives;
    }
    const bool looks = c->devices > 1 && c->walk.time + 1 < end && receives <= last;
    for (int i = 0; i < c->walk.n_act; i++) {
        if (looks && i == last)
            TRY(receive_early(c));
        TRY(do_act(c, &c->walk.act[i]));
    }
    cdp_drop_sent_edges(c);
    c->walk.time++;
    return SOTTO_OK;
}

/* Posts receives of messages in flight at the end of a round, for acts of the next. Lanes are at
 * rest between rounds, also if a message waits for its receiver. */
static enum sotto_status receive_pending(struct cdp *c)
{
    struct cdp_move move[CDP_PENDING];
    const int n = c->devices > 1 ? cdp_pending(&c->is, c->device, c->walk.time, move) : 0;
    for (int i = 0; i < n; i++) {
        uint64_t message;
        assert(move[i].what == CDP_SUM || move[i].what == CDP_PARAMETERS);
        TRY(cdp_receive(c, &move[i], 0, &message));
        c->walk.early++;
    }
    return SOTTO_OK;
}

static enum sotto_status restart_walk(struct cdp *c)
{
    if (c->walk.started)
        return SOTTO_OK;
    TRY(cdp_spread_versions(c));
    for (int i = 0; i < c->shard.is.oracle->slots; i++)
        c->flight[i].step = -1;
    TRY(oracle_notes(
        c->shard.is.oracle)); /* sums of micro-batches that are run again are dropped */
    c->sums.own[0] = c->sums.own[1] = (struct counts){0};
    c->sums.sending = c->sums.receiving = c->t;
    c->sums.reported = c->t - 1;
    c->walk.early = 0;
    c->walk.started = true;
    return SOTTO_OK;
}

/* Moves the model's statistics by the mean over the step's micro-batches, after all updates. Each
 * worker keeps its own sum times the number of workers over the number of micro-batches; the mean
 * over workers is then the mean over micro-batches. */
static enum sotto_status keep_statistics(struct cdp *c)
{
    return oracle_keep(c->shard.is.oracle, (int)(c->t & 1), (double)c->devices / c->is.n);
}

enum sotto_status cdp_round(struct strategy *strategy, const struct plan *plan, struct round *out)
{
    struct cdp *c = (struct cdp *)strategy;
    struct shard *s = &c->shard;
    *out = (struct round){.grad_norm = -1};
    buffer_free(&s->whole);
    c->round.plan = plan;
    c->round.squares = 0;
    c->round.clip = s->is.optim->clip > 0 ? 0 : 1;
    TRY(restart_walk(c));
    if (c->sums.reported == c->t)
        TRY(cdp_receive_total(c));
    const int64_t end = cdp_end(&c->is, c->t);
    while (c->walk.time < end)
        TRY(walk_time_step(c, end));
    TRY(cdp_clip(c)); /* for a worker without an update in this round */
    TRY(receive_pending(c));
    TRY(cdp_wait_total(c));
    shard_fill_round(s, &c->sums.total[c->t & 1], out);
    if (plan->want_norm)
        TRY(cdp_sum_norm(c, out));
    TRY(keep_statistics(c));
    optim_next(&s->replicate->optim);
    c->round.plan = NULL;
    c->t++;
    return device_check(s->is.dev);
}

enum sotto_status cdp_settle(struct cdp *c)
{
    if (!c->walk.started)
        return SOTTO_OK;
    c->walk.started = false;
    c->round.plan = NULL;        /* a failed round's plan may not outlive its caller */
    if (c->sums.reported < c->t) /* otherwise all workers have sent their counts */
        TRY(cdp_send_counts(c, c->t));
    else
        TRY(cdp_receive_total(c));
    return mesh_rest(c->shard.is.mesh);
}

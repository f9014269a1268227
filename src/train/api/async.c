/* Rounds of groups that have none in common: each worker asks for its own group's, and all meet
 * where a round says so, to save and to end. From there until the next round training pauses. */
#include <stdlib.h>

#include "train/api/api_impl.h"

static double now(const struct sotto_trainer *t)
{
    return clock_now(t->worker->worker->clock);
}

/* Training begins, or goes on behind a meeting, when nobody looks at what it changes any more. */
static enum sotto_status begin(struct sotto_trainer *t)
{
    struct embed_apart *a = &t->apart;
    if (a->trains)
        return SOTTO_OK;
    if (a->met) {
        TRY(comm_barrier(t->worker->worker->world));
        a->met = false;
        TRY(trainer_go_on(t));
    }
    a->origin = now(t) - meter_read(&t->meter).seconds;
    a->begun = a->trains = true;
    return SOTTO_OK;
}

static enum sotto_status meet(struct sotto_trainer *t)
{
    struct embed_apart *a = &t->apart;
    a->trains = false;
    TRY(trainer_pause(t));
    a->met = true;
    a->over = t->round.stop;
    TRY(async_wait_idle(t->strategy->async));
    return comm_barrier(t->worker->worker->world); /* the last pushes are known */
}

static enum sotto_status make_room(struct embed_apart *a)
{
    if (a->first == a->n)
        a->first = a->n = 0;
    if (a->n < a->room)
        return SOTTO_OK;
    const size_t room = a->room ? 2 * a->room : 64;
    struct sotto_push *more = realloc(a->push, room * sizeof *more);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory to tell of %zu pushes", room);
    a->push = more;
    a->room = room;
    return SOTTO_OK;
}

/* Before a pause changes what the clock shows. */
static enum sotto_status hear(struct sotto_trainer *t)
{
    struct embed_apart *a = &t->apart;
    struct applied_push p;
    if (t->worker->worker->rank > 0)
        return SOTTO_OK;
    while (async_take_push(t->strategy->async, &p)) {
        TRY(make_room(a));
        a->push[a->n++] = (struct sotto_push){.struct_size = sizeof *a->push,
                                              .number = p.number,
                                              .step = p.step,
                                              .group = (int)p.group,
                                              .rounds = p.steps,
                                              .staleness = p.staleness,
                                              .microbatches = p.microbatches,
                                              .loss = p.loss,
                                              .seconds = p.seconds,
                                              .idle = p.idle,
                                              .time = p.time - a->origin};
    }
    return SOTTO_OK;
}

static void make_plan(struct sotto_trainer *t, int64_t at)
{
    const struct run_config *c = t->worker->cluster->config;
    t->plan = (struct plan){.lr = t->lr,
                            .next_lr = t->lr,
                            .step = t->step,
                            .rounds = c->train.steps,
                            .stop = t->stop,
                            .seconds = meter_read(&t->meter).seconds};
    if (t->lr >= 0)
        return;
    t->plan.lr = optim_lr(&c->optim, at, c->train.steps);
    t->plan.next_lr = optim_lr(&c->optim, at + 1, c->train.steps);
}

enum sotto_status trainer_round_apart(struct sotto_trainer *t)
{
    struct round *r = &t->round;
    struct async_round *own = &t->apart.round;
    if (!t->apart.trains && (t->apart.over || t->step >= t->worker->cluster->config->train.steps)) {
        *r = (struct round){.idle = true, .stop = true};
        *own = (struct async_round){.step = t->step, .meet = true};
        t->plan.seconds = meter_read(&t->meter).seconds;
        return SOTTO_OK; /* nothing is left, as all workers know */
    }
    TRY(begin(t));
    const int64_t at = async_next_step(t->strategy->async, t->step);
    make_plan(t, at);
    *r = (struct round){0};
    meter_start(&t->meter);
    const enum sotto_status st = fail_in(t->strategy->ops->round(t->strategy, &t->plan, r),
                                         "group %d, step %lld: ", t->mesh.r, (long long)at + 1);
    if (st != SOTTO_OK && async_drop_group(t->strategy, st))
        *r = (struct round){.idle = true};
    else
        TRY(st);
    meter_stop(&t->meter);
    *own = *async_last_round(t->strategy->async);
    if (own->meet || own->step > t->step) /* all meet at one step, though some have seen more */
        t->step = own->step;
    if (own->meet)
        TRY(meet(t));
    return hear(t);
}

enum sotto_status trainer_meets(const struct sotto_trainer *t, const char *call, bool pulled)
{
    if (!t->apart.trains || (pulled && t->apart.round.pulled))
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "sotto_trainer_%s behind a round of group %d alone: it is for rounds behind which "
                "all workers meet (round.meet)%s",
                call, t->mesh.r, pulled ? ", or the own group has pulled (round.pulled)" : "");
}

enum sotto_status trainer_has_pushes(const struct sotto_trainer *t)
{
    const struct strategy_config *c = &t->worker->cluster->config->strategy;
    char method[OPTION_ROOM];
    if (trainer_is_apart(t))
        return SOTTO_OK;
    strategy_describe(c, method);
    return fail(SOTTO_EINVAL, "%s has no pushes: its workers have all rounds in common", method);
}

enum sotto_status sotto_trainer_pushed(struct sotto_trainer *t, struct sotto_push *push,
                                       bool *found)
{
    struct embed_apart *a = &t->apart;
    TRY(trainer_has_pushes(t));
    *found = a->first < a->n;
    return *found ? EMBED_HAND(sotto_push, time, push, &a->push[a->first++]) : SOTTO_OK;
}

enum sotto_status sotto_trainer_pushes(struct sotto_trainer *t, const char *path)
{
    TRY(trainer_has_pushes(t));
    TRY(trainer_meets(t, "pushes", false));
    if (t->worker->worker->rank > 0)
        return SOTTO_OK;
    return trainer_failed(t, async_write_journal(t->strategy->async, path));
}

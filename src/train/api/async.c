/* Rounds of asynchronous groups: a worker makes rounds of its own group, and all workers meet to
 * save and to end. From a meeting to the next round training pauses. */
#include <stdlib.h>

#include "train/api/api_impl.h"

/* Begins training, or ends the pause of a meeting: no worker reads state any more. */
static enum sotto_status begin_training(struct sotto_trainer *t)
{
    struct api_groups *g = &t->groups;
    if (g->trains)
        return SOTTO_OK;
    if (g->met)
        TRY(training_end_meeting(&t->training));
    else
        training_set_origin(&t->training);
    g->met = false;
    g->begun = g->trains = true;
    return SOTTO_OK;
}

static enum sotto_status meet_groups(struct sotto_trainer *t)
{
    struct api_groups *g = &t->groups;
    g->trains = false;
    TRY(training_settle(&t->training));
    TRY(training_begin_meeting(&t->training));
    g->met = true;
    g->over = t->training.round.stop;
    return comm_barrier(t->training.worker->world); /* the last pushes are known */
}

static enum sotto_status grow_pushes(struct api_groups *g)
{
    if (g->first == g->n)
        g->first = g->n = 0;
    if (g->n < g->room)
        return SOTTO_OK;
    const size_t room = g->room ? 2 * g->room : 64;
    struct sotto_push *more = realloc(g->push, room * sizeof *more);
    if (!more)
        return fail(SOTTO_ENOMEM, "no memory to report %zu pushes", room);
    g->push = more;
    g->room = room;
    return SOTTO_OK;
}

/* Keeps the pushes that were applied, on rank 0, whose times count from the present origin. */
static enum sotto_status keep_pushes(struct sotto_trainer *t)
{
    struct api_groups *g = &t->groups;
    struct applied_push p;
    if (t->training.worker->rank > 0)
        return SOTTO_OK;
    while (async_take_push(t->training.strategy->async, &p)) {
        TRY(grow_pushes(g));
        g->push[g->n++] = api_push(t, &p);
    }
    return SOTTO_OK;
}

enum sotto_status trainer_group_round(struct sotto_trainer *t)
{
    struct training *tr = &t->training;
    struct api_groups *g = &t->groups;
    const struct training_wish wish = trainer_wish(t);
    if (!g->trains && (g->over || tr->step >= wish.rounds)) { /* which all workers know */
        tr->round = (struct round){.idle = true, .stop = true};
        tr->plan.seconds = meter_read(&tr->meter).seconds;
        g->round = (struct async_round){.step = tr->step, .meet = true};
        return SOTTO_OK;
    }
    TRY(begin_training(t));
    TRY(training_round(tr, &wish));
    g->round = *async_last_round(tr->strategy->async);
    if (g->round.meet)
        TRY(meet_groups(t));
    return keep_pushes(t);
}

enum sotto_status trainer_need_meeting(const struct sotto_trainer *t, const char *call, bool pulled)
{
    if (!t->groups.trains || (pulled && t->groups.round.pulled))
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "sotto_trainer_%s after a round of group %d alone: call it after rounds in which "
                "all workers meet (round.meet)%s",
                call, t->training.mesh.r,
                pulled ? ", or the own group has pulled (round.pulled)" : "");
}

enum sotto_status trainer_need_pushes(const struct sotto_trainer *t)
{
    char method[OPTION_ROOM];
    if (trainer_is_async(t))
        return SOTTO_OK;
    strategy_describe(&t->training.config->strategy, method);
    return fail(SOTTO_EINVAL, "%s has no pushes: all workers make the same rounds", method);
}

enum sotto_status sotto_trainer_pushed(struct sotto_trainer *t, struct sotto_push *push,
                                       bool *found)
{
    struct api_groups *g = &t->groups;
    TRY(trainer_need_pushes(t));
    *found = g->first < g->n;
    return *found ? API_WRITE(sotto_push, time, push, &g->push[g->first++]) : SOTTO_OK;
}

enum sotto_status sotto_trainer_pushes(struct sotto_trainer *t, const char *path)
{
    TRY(trainer_need_pushes(t));
    TRY(trainer_need_meeting(t, "pushes", false));
    if (t->training.worker->rank > 0)
        return SOTTO_OK;
    return trainer_keep_failure(t, async_write_journal(t->training.strategy->async, path));
}

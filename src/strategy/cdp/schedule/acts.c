/* Lists a device's acts in a time step. */
#include <stddef.h>

#include "strategy/cdp/schedule/moves.h"

struct act_list {
    struct cdp_act *act;
    int n;
};

static void put_move(struct act_list *l, enum cdp_do what, const struct cdp_move *move)
{
    l->act[l->n++] = (struct cdp_act){.what = what, .move = *move};
}

/* Lists the sends of messages that became ready after time step `time` - 1, for tasks of this time
 * step or of the next. */
static void put_sends(const struct cdp_schedule *s, int device, int64_t time, struct act_list *l)
{
    struct cdp_task task;
    struct cdp_move move[CDP_NEEDS];
    for (int64_t at = time; at <= time + 1; at++)
        for (int i = 0; i < s->n; i++) {
            const int count = cdp_micro_task(s, i, at, &task) ? cdp_needs(s, &task, at, move) : 0;
            for (int k = 0; k < count; k++)
                if (move[k].from == device && move[k].after == time - 1)
                    put_move(l, CDP_SEND, &move[k]);
        }
    for (int j = 0; j < s->n; j++)
        if (cdp_state_sent(s, j, time, move) && move->from == device)
            put_move(l, CDP_SEND, move);
}

/* Lists receives in the order of the sends. */
static void put_receives(const struct cdp_schedule *s, int device, const struct cdp_task *task,
                         int64_t time, struct act_list *l)
{
    struct cdp_move move[CDP_NEEDS];
    const int count = task ? cdp_needs(s, task, time, move) : 0;
    for (int k = 0; k < count; k++)
        put_move(l, CDP_RECEIVE, &move[k]);
    for (int j = 0; j < s->n; j++)
        if (cdp_state_received(s, j, time, move) && move->to == device)
            put_move(l, CDP_RECEIVE, move);
}

static void put_run(struct act_list *l, const struct cdp_task *task)
{
    l->act[l->n++] = (struct cdp_act){.what = CDP_RUN, .task = *task};
}

static void put_updates(const struct cdp_schedule *s, int device, int64_t time, struct act_list *l)
{
    struct cdp_task task;
    for (int j = s->n - 1; j >= 0; j--)
        if (cdp_micro_task(s, s->n - 1, time, &task) && task.backward &&
            cdp_update_time(s, task.step, j) == time &&
            cdp_update_device(s, task.step, j) == device)
            l->act[l->n++] = (struct cdp_act){.what = CDP_UPDATE, .update = {task.step, j}};
}

/* dp, sync: lists a hop of each stage. */
static void put_hops(const struct cdp_schedule *s, int device, int64_t time, int64_t late,
                     struct act_list *l)
{
    struct cdp_move move;
    for (int j = s->n - 1; j >= 0; j--)
        if (cdp_hop(s, j, time, late, &move) && move.from == device)
            put_move(l, CDP_SEND, &move);
    for (int j = s->n - 1; j >= 0; j--)
        if (cdp_hop(s, j, time, late, &move) && move.to == device)
            put_move(l, CDP_RECEIVE, &move);
}

static void put_hop_updates(const struct cdp_schedule *s, int device, int64_t time, int64_t late,
                            struct act_list *l)
{
    struct cdp_task task;
    for (int j = s->n - 1; j >= 0 && device == s->n - 1; j--)
        if (cdp_hop_update(s, j, time, late) && cdp_micro_task(s, device, time, &task))
            l->act[l->n++] = (struct cdp_act){.what = CDP_UPDATE, .update = {task.step, j}};
}

static int acts_chained(const struct cdp_schedule *s, int device, int64_t time, struct act_list *l)
{
    struct cdp_task task;
    put_hops(s, device, time, 0, l);
    if (cdp_tasks(s, device, time, &task))
        put_run(l, &task);
    put_hop_updates(s, device, time, 0, l);
    for (int64_t late = 1; late <= 2 * (s->n - 1); late++) {
        put_hops(s, device, time, late, l);
        put_hop_updates(s, device, time, late, l);
    }
    return l->n;
}

int cdp_acts(const struct cdp_schedule *s, int device, int64_t time, struct cdp_act *out)
{
    struct act_list l = {out, 0};
    struct cdp_task task;
    if (s->placement == CDP_DP && s->rule == CDP_SYNC)
        return acts_chained(s, device, time, &l);
    put_sends(s, device, time, &l);
    if (s->placement != CDP_SINGLE) {
        const bool busy = cdp_tasks(s, device, time, &task);
        put_receives(s, device, busy ? &task : NULL, time, &l);
        if (busy)
            put_run(&l, &task);
    } else {
        for (int back = 1; back >= 0; back--) /* in the order of cdp_tasks */
            for (int i = 0; i < s->n; i++)
                if (cdp_micro_task(s, i, time, &task) && task.backward == back)
                    put_run(&l, &task);
    }
    put_updates(s, device, time, &l);
    return l.n;
}

int cdp_pending(const struct cdp_schedule *s, int device, int64_t time, struct cdp_move *out)
{
    struct cdp_task task;
    struct cdp_move move[CDP_NEEDS];
    int n =
        0; /* no message takes more than two time steps: only the task of `time` can wait for one */
    if (s->placement == CDP_SINGLE || !cdp_tasks(s, device, time, &task))
        return 0;
    const int count = cdp_needs(s, &task, time, move);
    for (int k = 0; k < count; k++)
        if (move[k].after + 1 < time)
            out[n++] = move[k];
    return n;
}

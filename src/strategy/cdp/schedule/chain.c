/* Plain data parallelism, by messages from device to device. When all devices have done their
 * backward of stage j, the sum goes 0 -> 1 -> ... -> n-1, which updates the stage, and the new
 * parameters go n-1 -> 0 -> 1 -> ... -> n-2: one hop in a time step. Hops that are left after the
 * step's last task follow each other before the next step begins. */
#include "strategy/cdp/schedule/moves.h"

/* The chain's position: the training step, and the hops from the stage's backward to now (`done`)
 * and to the update (`update`). */
struct chain_hops {
    int64_t step, done, update;
};

static bool chain_at(const struct cdp_schedule *s, int stage, int64_t time, int64_t late,
                     struct chain_hops *out)
{
    struct cdp_task task;
    if (!cdp_micro_task(s, 0, time, &task))
        return false;
    const int64_t begin = cdp_time(s, task.step, 0, stage, true);
    const int64_t last = cdp_time(s, task.step, 0, 0, true);
    out->step = task.step;
    out->done = time + late - begin;
    out->update = (s->together ? last - begin : 0) + s->n - 1;
    return late == 0 || time == last;
}

bool cdp_hop(const struct cdp_schedule *s, int stage, int64_t time, int64_t late,
             struct cdp_move *out)
{
    struct chain_hops c;
    if (!chain_at(s, stage, time, late, &c))
        return false;
    *out = (struct cdp_move){.stage = stage, .step = c.step, .after = time - !late};
    out->before = out->after + 1;
    if (c.done >= 1 && c.done < s->n) {
        out->what = CDP_SUM;
        out->add = true;
        out->from = out->micro = (int)c.done - 1;
        out->to = out->from + 1;
        return true;
    }
    const int64_t behind = c.done - c.update;
    out->what = CDP_PARAMETERS;
    out->version = c.step + 1;
    out->to = out->micro = (int)behind - 1;
    out->from = behind > 1 ? (int)behind - 2 : s->n - 1;
    return behind >= 1 && behind < s->n;
}

bool cdp_hop_update(const struct cdp_schedule *s, int stage, int64_t time, int64_t late)
{
    struct chain_hops c;
    return chain_at(s, stage, time, late, &c) && c.done == c.update;
}

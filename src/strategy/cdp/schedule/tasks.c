/* Returns when and where every task of the schedule runs. */
#include "strategy/cdp/schedule/moves.h"

/* Time steps from the begin of a micro-batch to the begin of the next, and from step to step. 1F1B
 * empties its pipeline between two steps. */
static int64_t micro_shift(const struct cdp_schedule *s)
{
    return s->rule == CDP_SYNC && s->placement != CDP_PP ? 0 : 2;
}

static int64_t step_period(const struct cdp_schedule *s)
{
    return s->rule == CDP_SYNC && s->placement == CDP_PP ? 4 * s->n - 2 : 2 * s->n;
}

int cdp_places(const struct cdp_schedule *s, int stage)
{
    return s->n - stage;
}

int cdp_wrap(int64_t a, int n)
{
    return (int)((a % n + n) % n);
}

static int micro_place(const struct cdp_schedule *s, int64_t step, int micro, int stage)
{
    return cdp_wrap(step * s->n + micro, cdp_places(s, stage));
}

int64_t cdp_version(const struct cdp_schedule *s, int64_t step, int micro, int stage)
{
    const bool newest = s->rule == CDP_SYNC || (s->rule == CDP_V2 && stage >= s->n - 1 - micro);
    return newest || step == 0 ? step : step - 1;
}

int64_t cdp_time(const struct cdp_schedule *s, int64_t step, int micro, int stage, bool backward)
{
    return (step - s->first) * step_period(s) + micro * micro_shift(s) +
           (backward ? 2 * s->n - 1 - stage : stage);
}

int cdp_device(const struct cdp_schedule *s, int64_t step, int micro, int stage)
{
    switch (s->placement) {
    case CDP_SINGLE:
        return 0;
    case CDP_PP:
        return stage;
    case CDP_MP: /* devices are numbered stage by stage */
        return stage * s->n - stage * (stage - 1) / 2 + micro_place(s, step, micro, stage);
    default:
        return micro;
    }
}

static int task_slot(const struct cdp_schedule *s, const struct cdp_task *t)
{
    switch (s->placement) {
    case CDP_SINGLE:
        return t->micro;
    case CDP_PP:
        return micro_place(s, t->step, t->micro, t->stage);
    default:
        return 0;
    }
}

static bool task_opens(const struct cdp_schedule *s, const struct cdp_task *t)
{
    if (s->placement == CDP_DP && s->rule == CDP_SYNC)
        return true;
    if (s->placement == CDP_MP) /* the device's first micro-batch of the step, and no sum has
                                   arrived from other devices */
        return t->micro < cdp_places(s, t->stage) && t->micro <= t->stage;
    return t->micro == 0;
}

bool cdp_micro_task(const struct cdp_schedule *s, int micro, int64_t time, struct cdp_task *out)
{
    const int64_t u = time - micro * micro_shift(s), p = u % step_period(s);
    if (u < 0 || p >= 2 * s->n)
        return false;
    *out = (struct cdp_task){.step = s->first + u / step_period(s), .micro = micro};
    if (s->steps >= 0 && out->step >= s->steps)
        return false;
    out->backward = p >= s->n;
    out->stage = (int)(out->backward ? 2 * s->n - 1 - p : p);
    out->version = cdp_version(s, out->step, micro, out->stage);
    out->slot = task_slot(s, out);
    out->opens = out->backward && task_opens(s, out);
    return true;
}

bool cdp_stage_task(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_task *out)
{
    /* The stage's forwards are in every other time step and its backwards between them. */
    const int64_t forward = time - stage, backward = time - (2 * s->n - 1 - stage);
    const int64_t u = forward % 2 == 0 ? forward : backward;
    return u >= 0 && cdp_micro_task(s, (int)(u % step_period(s) / 2 % s->n), time, out) &&
           out->stage == stage;
}

int cdp_stage_of(const struct cdp_schedule *s, int device)
{
    int j = 0;
    if (s->placement == CDP_PP)
        return device;
    for (; device >= cdp_places(s, j); j++)
        device -= cdp_places(s, j);
    return j;
}

int cdp_tasks(const struct cdp_schedule *s, int device, int64_t time, struct cdp_task *out)
{
    int n = 0;
    switch (s->placement) {
    case CDP_SINGLE:
        for (int back = 1; back >= 0; back--)
            for (int i = 0; i < s->n; i++)
                n += cdp_micro_task(s, i, time, &out[n]) && out[n].backward == back;
        return n;
    case CDP_PP:
    case CDP_MP:
        return cdp_stage_task(s, cdp_stage_of(s, device), time, out) &&
               cdp_device(s, out->step, out->micro, out->stage) == device;
    default:
        return cdp_micro_task(s, device, time, out);
    }
}

/* Where and when parameters are updated, and which versions of them are where. */
#include "strategy/cdp/schedule.h"

int64_t cdp_update_time(const struct cdp_schedule *s, int64_t step, int stage)
{
    const int64_t own = cdp_time(s, step, s->n - 1, stage, true);
    const int64_t last = cdp_time(s, step, s->n - 1, 0, true);
    if (s->together)
        return last;
    if (s->placement != CDP_DP || s->rule != CDP_SYNC)
        return own;
    /* dp, sync: when the sum has come through all, one hop in a time step */
    return own + s->n - 1 < last ? own + s->n - 1 : last;
}

int cdp_update_device(const struct cdp_schedule *s, int64_t step, int stage)
{
    return cdp_device(s, step, s->n - 1, stage);
}

int cdp_home(const struct cdp_schedule *s, int64_t step, int stage)
{
    return cdp_update_device(s, step, stage);
}

/* Whether theta_{t-1} of a stage is used in step t. */
static bool uses_older(const struct cdp_schedule *s, int64_t step, int stage)
{
    return step > 0 && (s->steps < 0 || step < s->steps) && cdp_version(s, step, 0, stage) < step;
}

int cdp_keeper(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (!uses_older(s, step + 1, stage))
        return -1;
    if (s->placement == CDP_DP)
        return 0; /* it goes to theta_{step+1} in step + 2 */
    return s->keep || s->rule == CDP_V1 ? cdp_home(s, step, stage) : -1;
}

/* The newest of versions that come once a step, the first of them behind time step `begin`. */
static int64_t count(const struct cdp_schedule *s, int64_t begin, int64_t time)
{
    const int64_t every = cdp_end(s, s->first + 1) - cdp_end(s, s->first);
    const int64_t made = time > begin ? 1 + (time - 1 - begin) / every : 0;
    return s->steps >= 0 && s->first + made > s->steps ? s->steps : s->first + made;
}

/* The newest version of a stage that there is in front of a time step. */
static int64_t newest(const struct cdp_schedule *s, int stage, int64_t time)
{
    return count(s, cdp_update_time(s, s->first, stage), time);
}

/* The last time step in which theta_{t-1} of a stage is used. */
static int64_t last_use(const struct cdp_schedule *s, int64_t step, int stage)
{
    int i = s->n - 1;
    while (cdp_version(s, step, i, stage) == step)
        i--;
    return cdp_time(s, step, i, stage, true);
}

/* Where one device has all there is of a stage. */
static int holds_all(const struct cdp_schedule *s, int stage, int64_t time, int64_t out[2])
{
    const int64_t top = newest(s, stage, time);
    int n = 0;
    if (uses_older(s, top, stage) &&
        (time <= last_use(s, top, stage) || (s->keep && time <= cdp_end(s, top - 1))))
        out[n++] = top - 1;
    out[n++] = top;
    return n;
}

/* dp: what the device's micro-batch uses until its next forward of the stage. */
static int64_t in_use(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    int64_t step = count(s, cdp_time(s, s->first + 1, device, stage, false) - 1, time);
    if (s->steps >= 0 && step >= s->steps)
        step = s->steps - 1;
    return cdp_version(s, step, device, stage);
}

/* dp, sync: the newest that has come to the device, so many hops behind the one that updates. */
static int64_t passed_on(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    const int64_t last = cdp_time(s, s->first, 0, 0, true);
    const int64_t own = cdp_time(s, s->first, 0, stage, true);
    const int64_t come = (s->together ? last : own) + s->n + device;
    return count(s, come < last ? come : last, time);
}

int cdp_holds(const struct cdp_schedule *s, int device, int stage, int64_t time, int64_t out[2])
{
    if (s->placement != CDP_DP || device == s->n - 1)
        return holds_all(s, stage, time, out);
    out[0] =
        s->rule == CDP_SYNC ? passed_on(s, device, stage, time) : in_use(s, device, stage, time);
    return 1;
}

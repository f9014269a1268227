/* Where and when parameters are updated, and which versions of them are where. */
#include "strategy/cdp/schedule/moves.h"

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
    if (s->placement == CDP_ZERO)
        return cdp_state_place(s, stage, cdp_update_time(s, step, stage));
    return cdp_device(s, step, s->n - 1, stage);
}

int cdp_home(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (s->placement == CDP_ZERO)
        return cdp_state_place(s, stage, step < s->first ? 0 : cdp_end(s, step) - 1);
    return cdp_update_device(s, step, stage);
}

/* Whether theta_{t-1} of a stage is used in step t. */
static bool uses_older(const struct cdp_schedule *s, int64_t step, int stage)
{
    return step > 0 && (s->steps < 0 || step < s->steps) && cdp_version(s, step, 0, stage) < step;
}

/* The newest of versions that come once a step, the first of them behind time step `begin`. */
static int64_t count(const struct cdp_schedule *s, int64_t begin, int64_t time)
{
    const int64_t every = cdp_end(s, s->first + 1) - cdp_end(s, s->first);
    const int64_t made = time > begin ? 1 + (time - 1 - begin) / every : 0;
    return s->steps >= 0 && s->first + made > s->steps ? s->steps : s->first + made;
}

/* The newest version of a stage that there is in front of a time step. */
int64_t cdp_newest(const struct cdp_schedule *s, int stage, int64_t time)
{
    return count(s, cdp_update_time(s, s->first, stage), time);
}

/* The last micro-batch that uses theta_{t-1} of a stage in step t, where there is one. */
static int last_micro(const struct cdp_schedule *s, int stage)
{
    return s->rule == CDP_V1 ? s->n - 1 : s->n - 2 - stage;
}

int cdp_keeper(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (!uses_older(s, step + 1, stage))
        return -1;
    if (s->placement == CDP_DP)
        return 0; /* it goes to theta_{step+1} in step + 2 */
    if (s->rule == CDP_V2 && !s->keep)
        return -1;
    if (s->placement == CDP_MP && s->rule == CDP_V2)
        return cdp_device(s, step + 1, last_micro(s, stage), stage);
    return cdp_home(s, step, stage);
}

int cdp_needed(const struct cdp_schedule *s, int stage, int64_t time, int64_t out[2])
{
    const int64_t top = cdp_newest(s, stage, time);
    int64_t until = -1;
    int n = 0;
    if (uses_older(s, top, stage))
        until = cdp_time(s, top, last_micro(s, stage), stage, true);
    if (until >= 0 && s->keep && until < cdp_end(s, top - 1))
        until = cdp_end(s, top - 1);
    if (time <= until)
        out[n++] = top - 1;
    out[n++] = top;
    return n;
}

/* dp: what the device's micro-batch uses until its next forward of the stage. */
static int64_t used_dp(const struct cdp_schedule *s, int device, int stage, int64_t time)
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

/* mp: of the micro-batch that the device has, or had last, or has first. */
static int64_t used_mp(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    const int64_t all = s->steps >= 0 ? (s->steps - s->first) * s->n : INT64_MAX;
    int64_t q = (time - stage) / 2; /* the last to have come to the stage */
    q = time < stage ? 0 : q < all ? q : all - 1;
    for (int back = 0; back < cdp_places(s, stage); back++, q--) {
        if (q < 0) /* it has had none yet: one that comes */
            q += cdp_places(s, stage);
        const int64_t step = s->first + q / s->n;
        const int micro = (int)(q % s->n);
        if (cdp_device(s, step, micro, stage) == device)
            return cdp_version(s, step, micro, stage);
    }
    return -1;
}

/* mp: the device computes with one version. v1: where the state is, the newest is too. v2: who made
 * the newest computes with it next, unless the run ends; and the device that was the last to use
 * the one before may keep it. */
static int holds_mp(const struct cdp_schedule *s, int device, int stage, int64_t time,
                    int64_t out[2])
{
    const int64_t top = cdp_newest(s, stage, time);
    const bool home = cdp_state_place(s, stage, time) == device;
    int n = 0;
    if (cdp_stage_of(s, device) != stage)
        return 0;
    out[n++] = used_mp(s, device, stage, time);
    if (s->rule == CDP_V1) {
        n = out[0] == top - 1 || !home; /* else it is the newest, or was the last to be used */
        if (home)
            out[n++] = top;
    } else if (cdp_update_device(s, top - 1, stage) == device) {
        out[0] = top;
    } else if (top > s->first && out[0] == top && time <= cdp_end(s, top - 1) &&
               cdp_keeper(s, top - 1, stage) == device) {
        out[0] = top - 1;
        out[n++] = top;
    }
    return n;
}

int cdp_holds(const struct cdp_schedule *s, int device, int stage, int64_t time, int64_t out[2])
{
    bool here = true;
    switch (s->placement) {
    case CDP_DP:
        if (device == s->n - 1 && s->rule == CDP_V1)
            break;
        if (device == s->n - 1) /* what it computes with is what it updates */
            *out = cdp_newest(s, stage, time);
        else
            *out = s->rule == CDP_SYNC ? passed_on(s, device, stage, time)
                                       : used_dp(s, device, stage, time);
        return 1;
    case CDP_PP:
        here = stage == device;
        break;
    case CDP_MP:
        return holds_mp(s, device, stage, time, out);
    case CDP_ZERO:
        here = cdp_state_place(s, stage, time) == device;
        break;
    default:
        break;
    }
    return here ? cdp_needed(s, stage, time, out) : 0;
}

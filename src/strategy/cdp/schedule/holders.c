/* Lists the versions of a stage that a device holds. */
#include "strategy/cdp/schedule/moves.h"

int cdp_keeper(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (!cdp_uses_older(s, step + 1, stage))
        return -1;
    if (s->placement == CDP_DP)
        return 0; /* device 0 receives theta_{step+1} in step + 2 */
    if (s->rule == CDP_V2 && !s->keep)
        return -1;
    if (s->placement == CDP_MP && s->rule == CDP_V2)
        return cdp_device(s, step + 1, cdp_last_user(s, stage), stage);
    return cdp_home(s, step, stage);
}

/* dp: the version in use by the device's micro-batch until the next forward of the stage. */
static int64_t dp_version_used(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    int64_t step = cdp_newest_since(s, cdp_time(s, s->first + 1, device, stage, false) - 1, time);
    if (s->steps >= 0 && step >= s->steps)
        step = s->steps - 1;
    return cdp_version(s, step, device, stage);
}

/* dp, sync: the newest version that has reached the device, `device` + 1 hops after the update. */
static int64_t dp_version_passed(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    const int64_t last = cdp_time(s, s->first, 0, 0, true);
    const int64_t own = cdp_time(s, s->first, 0, stage, true);
    const int64_t come = (s->together ? last : own) + s->n + device;
    return cdp_newest_since(s, come < last ? come : last, time);
}

/* mp: the version of the device's current micro-batch at the stage; without a current one of the
 * last micro-batch, or of the first. */
static int64_t mp_version_used(const struct cdp_schedule *s, int device, int stage, int64_t time)
{
    const int64_t all = s->steps >= 0 ? (s->steps - s->first) * s->n : INT64_MAX;
    int64_t q = (time - stage) / 2; /* the last micro-batch that has reached the stage */
    q = time < stage ? 0 : q < all ? q : all - 1;
    for (int back = 0; back < cdp_places(s, stage); back++, q--) {
        if (q < 0) /* none has reached the device yet: take the first that will */
            q += cdp_places(s, stage);
        const int64_t step = s->first + q / s->n;
        const int micro = (int)(q % s->n);
        if (cdp_device(s, step, micro, stage) == device)
            return cdp_version(s, step, micro, stage);
    }
    return -1;
}

/* mp: a device computes with one version. v1: the device with the state has the newest version too.
 * v2: the device that made the newest version computes with it next, unless the run ends; and the
 * last user of the version before may keep that version. */
static int mp_holds(const struct cdp_schedule *s, int device, int stage, int64_t time,
                    int64_t out[2])
{
    const int64_t top = cdp_newest(s, stage, time);
    const bool home = cdp_state_place(s, stage, time) == device;
    int n = 0;
    if (cdp_stage_of(s, device) != stage)
        return 0;
    out[n++] = mp_version_used(s, device, stage, time);
    if (s->rule == CDP_V1) {
        n = out[0] == top - 1 || !home; /* otherwise out[0] is the newest, or was the last in use */
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
        if (device == s->n - 1) /* the last device computes with the version that it updates */
            *out = cdp_newest(s, stage, time);
        else
            *out = s->rule == CDP_SYNC ? dp_version_passed(s, device, stage, time)
                                       : dp_version_used(s, device, stage, time);
        return 1;
    case CDP_PP:
        here = stage == device;
        break;
    case CDP_MP:
        return mp_holds(s, device, stage, time, out);
    case CDP_ZERO:
        here = cdp_state_place(s, stage, time) == device;
        break;
    default:
        break;
    }
    return here ? cdp_needed(s, stage, time, out) : 0;
}

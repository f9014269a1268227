/* When parameters are updated, and which versions of a stage exist and are needed. */
#include "strategy/cdp/schedule/moves.h"

int64_t cdp_update_time(const struct cdp_schedule *s, int64_t step, int stage)
{
    const int64_t own = cdp_time(s, step, s->n - 1, stage, true);
    const int64_t last = cdp_time(s, step, s->n - 1, 0, true);
    if (s->together)
        return last;
    if (s->placement != CDP_DP || s->rule != CDP_SYNC)
        return own;
    /* dp, sync: the update waits until the sum has passed all devices, one hop in a time step */
    return own + s->n - 1 < last ? own + s->n - 1 : last;
}

bool cdp_uses_older(const struct cdp_schedule *s, int64_t step, int stage)
{
    return step > 0 && (s->steps < 0 || step < s->steps) && cdp_version(s, step, 0, stage) < step;
}

int64_t cdp_newest_since(const struct cdp_schedule *s, int64_t begin, int64_t time)
{
    const int64_t every = cdp_end(s, s->first + 1) - cdp_end(s, s->first);
    const int64_t made = time > begin ? 1 + (time - 1 - begin) / every : 0;
    return s->steps >= 0 && s->first + made > s->steps ? s->steps : s->first + made;
}

int64_t cdp_newest(const struct cdp_schedule *s, int stage, int64_t time)
{
    return cdp_newest_since(s, cdp_update_time(s, s->first, stage), time);
}

int cdp_last_user(const struct cdp_schedule *s, int stage)
{
    return s->rule == CDP_V1 ? s->n - 1 : s->n - 2 - stage;
}

int cdp_needed(const struct cdp_schedule *s, int stage, int64_t time, int64_t out[2])
{
    const int64_t top = cdp_newest(s, stage, time);
    int64_t until = -1;
    int n = 0;
    if (cdp_uses_older(s, top, stage))
        until = cdp_time(s, top, cdp_last_user(s, stage), stage, true);
    if (until >= 0 && s->keep && until < cdp_end(s, top - 1))
        until = cdp_end(s, top - 1);
    if (time <= until)
        out[n++] = top - 1;
    out[n++] = top;
    return n;
}

#include "strategy/cdp/moves.h"

/* dp: micro-batch i takes over the sum of those before it, and the parameters from the device
 * before it when that has used them. Where i is the first to use what the last device has just
 * made, it has them from there. */
static int needs_dp(const struct cdp_schedule *s, const struct cdp_task *t, int64_t time,
                    struct cdp_move *out)
{
    const int last = s->n - 1, i = t->micro;
    if (s->rule == CDP_SYNC)
        return 0;
    *out = (struct cdp_move){
        .stage = t->stage, .micro = i, .step = t->step, .to = i, .after = time - 2, .before = time};
    if (t->backward) {
        out->what = CDP_SUM;
        out->micro = out->from = i - 1;
        return i > 0;
    }
    out->what = CDP_PARAMETERS;
    out->version = t->version;
    out->from = i > 0 ? i - 1 : last;
    if (s->rule == CDP_V2 && t->stage == last - i) {
        out->from = last;
        out->after = time - 1;
    }
    return i < last && t->step > s->first;
}

int cdp_needs(const struct cdp_schedule *s, const struct cdp_task *task, int64_t time,
              struct cdp_move *out)
{
    switch (s->placement) {
    case CDP_DP:
        return needs_dp(s, task, time, out);
    default:
        return 0;
    }
}

#include "strategy/cdp/schedule/moves.h"

/* dp: micro-batch i receives the sum of the micro-batches before i, and the parameters from the
 * device before, after that device has used them. If micro-batch i is the first user of a new
 * version, the parameters arrive from the last device, which has just made them. */
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

/* Lists the activation, or its gradient, that crosses the stage's border from the device of the
 * task before. */
static int needs_edge(const struct cdp_schedule *s, const struct cdp_task *t, int64_t time,
                      struct cdp_move *out)
{
    const int beside = t->stage + (t->backward ? 1 : -1);
    if (beside < 0 || beside >= s->n)
        return 0;
    *out = (struct cdp_move){.what = t->backward ? CDP_ACTIVATION_GRADIENT : CDP_ACTIVATION,
                             .stage = t->stage,
                             .micro = t->micro,
                             .step = t->step,
                             .from = cdp_device(s, t->step, t->micro, beside),
                             .to = cdp_device(s, t->step, t->micro, t->stage),
                             .after = time - 1,
                             .before = time};
    return 1;
}

/* mp: a stage's devices take turns, as devices do in dp. In the last turn of a step each device
 * receives the sum of the devices before. A version that is new to a device arrives from the device
 * before, unless the version was made here or arrived with the state. */
static int needs_mp(const struct cdp_schedule *s, const struct cdp_task *t, int64_t time,
                    struct cdp_move *out)
{
    const int i = t->micro, m = cdp_places(s, t->stage);
    *out = (struct cdp_move){.stage = t->stage,
                             .micro = i,
                             .step = t->step,
                             .from = cdp_device(s, t->step, i - 1, t->stage),
                             .to = cdp_device(s, t->step, i, t->stage),
                             .after = time - 2,
                             .before = time};
    if (t->backward) {
        out->what = CDP_SUM;
        out->micro = i - 1;
        out->add = i >= m;
        return i > t->stage;
    }
    const int64_t step =
        i < m ? t->step - 1 : t->step; /* step of the device's previous micro-batch */
    out->what = CDP_PARAMETERS;
    out->version = t->version;
    return step >= s->first && i != m - 1 &&
           cdp_version(s, step, i < m ? i - m + s->n : i - m, t->stage) != t->version;
}

int cdp_needs(const struct cdp_schedule *s, const struct cdp_task *task, int64_t time,
              struct cdp_move *out)
{
    int n;
    switch (s->placement) {
    case CDP_DP:
        return needs_dp(s, task, time, out);
    case CDP_PP:
        return needs_edge(s, task, time, out);
    case CDP_MP:
        n = needs_mp(s, task, time, out);
        return n + needs_edge(s, task, time, out + n);
    default:
        return 0;
    }
}

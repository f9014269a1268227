/* Which device has a stage's optimizer state, and the messages that move it.
 *
 * zero: the whole stage moves. A stage is used by one device in every time step, forward by i, next
 * backward by i + j + 1 (mod n), then forward by i + 1, and moves there; also while the pipeline is
 * filled and emptied, so that no device ever has two stages.
 *
 * mp: the device that runs the last micro-batch of a step updates the stage. If the number of
 * micro-batches is no multiple of the number of devices, another device updates in every step. The
 * state moves at the beginning of the next round; with v1 the parameters for the next update move
 * too, since the receiving device computes with older parameters. */
#include "strategy/cdp/schedule/moves.h"

/* zero: the micro-batch at the stage in a time step, counted from the first micro-batch of all.
 * While the pipeline is filled the number is negative: a micro-batch that would have been there. */
static int64_t zero_visitor(const struct cdp_schedule *s, int stage, int64_t time, bool backward)
{
    return (time - (backward ? 2 * s->n - 1 - stage : stage)) / 2;
}

static int zero_place(const struct cdp_schedule *s, int stage, int64_t time)
{
    return cdp_wrap(zero_visitor(s, stage, time, (time - stage) % 2 != 0), s->n);
}

/* Returns the number of micro-batches whose gradient of the stage is done in front of a time
 * step. */
static int64_t zero_gradients(const struct cdp_schedule *s, int stage, int64_t time)
{
    const int64_t n = zero_visitor(s, stage, time + 1, true);
    const int64_t all = s->steps >= 0 ? (s->steps - s->first) * s->n : INT64_MAX;
    return n < 0 ? 0 : n < all ? n : all;
}

static bool zero_move(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_move *out)
{
    int64_t version[2];
    const bool older = cdp_needed(s, stage, time, version) == 2;
    const int64_t gradients = zero_gradients(s, stage, time);
    if (time <= 0 || (s->steps >= 0 && time >= cdp_end(s, s->steps - 1)))
        return false;
    *out = (struct cdp_move){.what = CDP_STATE,
                             .stage = stage,
                             .step = s->first + gradients / s->n,
                             .version = version[older],
                             .parts = CDP_PART_NEWEST | CDP_PART_OPTIMIZER,
                             .from = zero_place(s, stage, time - 1),
                             .to = zero_place(s, stage, time),
                             .after = time - 1,
                             .before = time};
    out->micro = out->to;
    out->parts |= older ? CDP_PART_OLDER : 0;
    out->parts |= gradients % s->n ? CDP_PART_SUM : 0;
    out->parts |= out->step > out->version ? CDP_PART_WAITING : 0;
    return out->from != out->to;
}

int cdp_update_device(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (s->placement == CDP_ZERO)
        return zero_place(s, stage, cdp_update_time(s, step, stage));
    return cdp_device(s, step, s->n - 1, stage);
}

/* mp: the state's move in the round of `step`: after the round's first time step, and in time for
 * v1 to pass the parameters on. */
static bool mp_move(const struct cdp_schedule *s, int stage, int64_t step, struct cdp_move *out)
{
    if (step < s->first || (s->steps >= 0 && step >= s->steps))
        return false;
    *out = (struct cdp_move){.what = CDP_STATE,
                             .stage = stage,
                             .micro = s->n - 1,
                             .step = step,
                             .version = step,
                             .parts = CDP_PART_OPTIMIZER,
                             .from = cdp_update_device(s, step - 1, stage),
                             .to = cdp_update_device(s, step, stage),
                             .after = cdp_end(s, step - 1)};
    out->before = out->after + (stage > 1 ? 2 : 1);
    if (s->rule == CDP_V1)
        out->parts |= CDP_PART_NEWEST;
    return out->from != out->to;
}

int cdp_state_place(const struct cdp_schedule *s, int stage, int64_t time)
{
    struct cdp_move move;
    if (s->placement == CDP_ZERO)
        return zero_place(s, stage, time);
    const int64_t top = cdp_newest(s, stage, time);
    if (!mp_move(s, stage, top, &move) || time <= move.after)
        return cdp_update_device(s, top - 1, stage);
    return time >= move.before ? move.to : -1;
}

int cdp_home(const struct cdp_schedule *s, int64_t step, int stage)
{
    if (s->placement == CDP_ZERO)
        return zero_place(s, stage, step < s->first ? 0 : cdp_end(s, step) - 1);
    return cdp_update_device(s, step, stage);
}

/* Returns the step whose round contains a time step. */
static int64_t round_at(const struct cdp_schedule *s, int64_t time)
{
    const int64_t u = time - cdp_end(s, s->first - 1);
    return u < 0 ? s->first - 1 : s->first + u / (2 * s->n);
}

bool cdp_state_sent(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_move *out)
{
    if (s->placement == CDP_ZERO)
        return zero_move(s, stage, time, out);
    return s->placement == CDP_MP && mp_move(s, stage, round_at(s, time - 1), out) &&
           out->after == time - 1;
}

bool cdp_state_received(const struct cdp_schedule *s, int stage, int64_t time, struct cdp_move *out)
{
    if (s->placement == CDP_ZERO)
        return zero_move(s, stage, time, out);
    return s->placement == CDP_MP && mp_move(s, stage, round_at(s, time - 1), out) &&
           out->before == time;
}

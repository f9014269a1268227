/* Learning-rate schedules: functions of the round t of T alone, so that a resumed run and one on
 * another number of workers see the same rates. */
#include <math.h>

#include "optim/optim.h"

static double lr_between(const struct optim_config *c, double share)
{
    return c->lr * (c->final + (1 - c->final) * share);
}

/* Returns the share that is left of the last `length` rounds: 1 before them, 0 after the end. */
static double share_left(double length, int64_t t, int64_t rounds)
{
    double rest = (double)(rounds - t);
    if (rest <= 0)
        return 0;
    return rest >= length ? 1 : rest / length;
}

bool optim_wants_length(const struct optim_config *c)
{
    return c->schedule == SCHEDULE_LINEAR || c->schedule == SCHEDULE_COSINE ||
           (c->schedule == SCHEDULE_WSD && c->wsd_decay > 0);
}

double optim_lr(const struct optim_config *c, int64_t t, int64_t rounds)
{
    if (t < c->warmup)
        return c->lr * (double)(t + 1) / (double)c->warmup;
    const int64_t since = t - c->warmup;
    const double length = (double)(rounds - c->warmup);
    switch ((enum optim_schedule)c->schedule) {
    case SCHEDULE_CONSTANT:
        return c->lr;
    case SCHEDULE_LINEAR:
        return lr_between(c, share_left(length, t, rounds));
    case SCHEDULE_COSINE: {
        const double done = length > 0 ? fmin((double)since / length, 1) : 1;
        return lr_between(c, 0.5 * (1 + cos(3.14159265358979323846 * done)));
    }
    case SCHEDULE_WSD: /* a decay longer than the rounds after warm-up starts when warm-up ends */
        if (c->wsd_decay == 0)
            return c->lr;
        return lr_between(c, share_left(fmin(c->wsd_decay * (double)rounds, length), t, rounds));
    case SCHEDULE_STEP:
        return c->lr * pow(c->step_factor, (double)(since / c->step_every));
    case SCHEDULE_CYCLIC: {
        int64_t cycle = since / c->cycle_rounds;
        double place = (double)(since % c->cycle_rounds) / (double)c->cycle_rounds;
        double height = (1 - fabs(2 * place - 1)) * pow(0.5, (double)cycle);
        return c->lr * (c->cycle_floor + (1 - c->cycle_floor) * height);
    }
    }
    return c->lr;
}

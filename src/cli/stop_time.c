#include "cli/stop_time.h"

#include <math.h>

enum { MEASURES = 2 };

void stop_time_start(struct stop_time *t, double rounds, int64_t step, double now)
{
    t->rounds = rounds;
    pace_start(&t->round, step, now, 1);
    pace_start(&t->stretch, step, now, (int64_t)fmin(rounds, 1e15));
}

double stop_time_expect(struct stop_time *t, int64_t step, double now, double left)
{
    const double round = pace_seconds(&t->round, step, now);
    const double stretch = pace_seconds(&t->stretch, step, now); /* including an exchange */
    const double each = t->stretch.blocks >= MEASURES ? stretch
                        : t->round.blocks >= MEASURES ? round
                                                      : 0;
    return each * fmin(t->rounds, left);
}

#include "cli/stop_time.h"

#include <math.h>

static void keep_time(struct stop_times *t, double seconds)
{
    t->newest[t->n++ % STOP_TIMES] = seconds;
}

/* The median; of an even number the lower one of the two in the middle. */
static double lower_median(const struct stop_times *t)
{
    const int n = t->n < STOP_TIMES ? (int)t->n : STOP_TIMES;
    double sorted[STOP_TIMES];
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > t->newest[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = t->newest[i];
    }
    return sorted[(n - 1) / 2];
}

void stop_time_add(struct stop_time *s, double seconds, int64_t n)
{
    const double whole = fmax(1, s->rounds);
    if (n < 1)
        return;
    keep_time(&s->round, seconds / (double)n);
    s->seconds += seconds;
    s->in_stretch += n;
    if ((double)s->in_stretch < whole)
        return;
    keep_time(&s->stretch, s->seconds * whole / (double)s->in_stretch);
    s->seconds = 0;
    s->in_stretch = 0;
}

double stop_time_expect(const struct stop_time *s, double left)
{
    const double rounds = fmin(s->rounds, left);
    if (s->stretch.n >= 2) /* with what groups exchange at their end */
        return lower_median(&s->stretch) * rounds / fmax(1, s->rounds);
    return s->round.n >= 2 ? lower_median(&s->round) * rounds : 0;
}

#include "train/loop/pace.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_SECONDS 1.0

void pace_start(struct pace *p, int64_t step, double now, int64_t every)
{
    *p = (struct pace){.every = every > 0 ? every : 1, .step = step, .at = now};
}

void pace_skip(struct pace *p, double seconds)
{
    p->at += seconds;
}

static int by_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pace_seconds(struct pace *p, int64_t step, double now)
{
    double sorted[PACE_BLOCKS];
    const int64_t steps = step - p->step;
    const double mean = steps > 0 ? (now - p->at) / (double)steps : 0;
    if (steps >= p->every && now - p->at >= BLOCK_SECONDS) {
        p->each[p->blocks++ % PACE_BLOCKS] = mean;
        p->step = step;
        p->at = now;
    }
    if (p->blocks == 0)
        return mean;
    const int n = p->blocks < PACE_BLOCKS ? (int)p->blocks : PACE_BLOCKS;
    memcpy(sorted, p->each, sizeof sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_seconds);
    return sorted[(n - 1) / 2];
}

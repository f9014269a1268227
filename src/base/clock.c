#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static double read_monotonic(const struct clock *clock)
{
    (void)clock;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const struct clock clock_real = {read_monotonic};

void clock_text(double seconds, char out[CLOCK_TEXT_ROOM])
{
    const long s = seconds < 1e9 ? lround(seconds) : 999999999;
    if (s >= 3600)
        snprintf(out, CLOCK_TEXT_ROOM, "%ldh%02ldm", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(out, CLOCK_TEXT_ROOM, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(out, CLOCK_TEXT_ROOM, "%lds", s);
}

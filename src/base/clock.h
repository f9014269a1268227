/* The time as a run sees it. Whatever measures or waits asks its worker's clock, so that a
 * simulated cluster can put a virtual one here. */
#ifndef SOTTO_BASE_CLOCK_H
#define SOTTO_BASE_CLOCK_H

struct clock {
    double (*now)(const struct clock *clock); /* seconds since an arbitrary start */
};

/* The machine's monotonic clock. */
extern const struct clock clock_real;

static inline double clock_now(const struct clock *clock)
{
    return clock->now(clock);
}

/* Writes a duration as people read it: "2h03m", "4m10s", "12s". */
#define CLOCK_TEXT_ROOM 32
void clock_text(double seconds, char out[CLOCK_TEXT_ROOM]);

#endif

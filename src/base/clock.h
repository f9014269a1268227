/* The time of a run. Code that measures or waits uses its worker's clock, so a simulated cluster
 * can pass a virtual clock. */
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

/* Writes a duration as text: "2h03m", "4m10s", "12s". */
#define CLOCK_TEXT_ROOM 32
void clock_text(double seconds, char out[CLOCK_TEXT_ROOM]);

#endif

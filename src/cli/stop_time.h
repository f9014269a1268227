/* How long a run would take to stop, told from its rounds so far. One slow round, behind an outage
 * say, is no reason to expect another: medians of the newest rounds. */
#ifndef SOTTO_CLI_STOP_TIME_H
#define SOTTO_CLI_STOP_TIME_H

#include <stdint.h>

enum { STOP_TIMES = 5 };

struct stop_times {
    double newest[STOP_TIMES]; /* seconds */
    int64_t n;                 /* that there were; n % STOP_TIMES is the next one's place */
};

struct stop_time {
    double rounds; /* until all workers can stop; less than one: a part of a round */
    struct stop_times round, stretch; /* rounds, and stretches of as many as that */
    double seconds;                   /* of the stretch that has begun, ... */
    int64_t in_stretch;               /* ... and its rounds */
};

/* `n` more rounds have taken `seconds`. */
void stop_time_add(struct stop_time *s, double seconds, int64_t n);

/* Seconds until all workers can stop, of a run with `left` rounds to go; 0 before the second round,
 * since a first one is no measure. */
double stop_time_expect(const struct stop_time *s, double left);

#endif

/* Times at which somebody is to go on, which may become earlier meanwhile: a heap, since a server
 * waits for the first of a thousand arrivals. */
#ifndef SOTTO_COMM_VIRTUAL_ALARM_H
#define SOTTO_COMM_VIRTUAL_ALARM_H

#include <stdbool.h>

/* Part of whoever waits. */
struct alarm {
    double time;
    int id;    /* breaks ties */
    int place; /* in the heap */
    bool set;
};

struct alarms {
    struct alarm **heap; /* the caller's memory, with room for all that may be set at once */
    int count;
};

/* The first one's time, INFINITY: there is none. */
double alarm_next(const struct alarms *all);

/* At that time, or at the one it has if that is earlier. */
void alarm_set(struct alarms *all, struct alarm *a, double time);
struct alarm *alarm_take(struct alarms *all); /* the first, which is set no more */

#endif

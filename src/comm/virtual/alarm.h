/* Alarms: times at which waiting processes continue. An alarm may be moved to an earlier time. Kept
 * in a heap, since a server waits for the first of a thousand arrivals. */
#ifndef SOTTO_COMM_VIRTUAL_ALARM_H
#define SOTTO_COMM_VIRTUAL_ALARM_H

#include <stdbool.h>

/* Embedded in the waiting process. */
struct alarm {
    double time;
    int id;    /* breaks ties */
    int place; /* index in the heap */
    bool set;
};

struct alarms {
    /* (count) the caller's memory, with room for all alarms that may be set at once */
    struct alarm **heap;
    int count;
};

/* Returns the time of the first alarm; INFINITY: none is set. */
double alarm_next(const struct alarms *all);

/* Sets an alarm to `time`, unless it is set to an earlier time. */
void alarm_set(struct alarms *all, struct alarm *a, double time);
struct alarm *alarm_take(struct alarms *all); /* removes and returns the first alarm */

#endif

#include "comm/virtual/alarm.h"

#include <math.h>

double alarm_next(const struct alarms *all)
{
    return all->count ? all->heap[0]->time : INFINITY;
}

static bool alarm_before(const struct alarm *a, const struct alarm *b)
{
    return a->time < b->time || (a->time == b->time && a->id < b->id);
}

static void place_alarm(struct alarms *all, struct alarm *a, int i)
{
    all->heap[i] = a;
    a->place = i;
}

void alarm_set(struct alarms *all, struct alarm *a, double time)
{
    if (a->set && time >= a->time)
        return;
    int i = a->set ? a->place : all->count++;
    a->time = time;
    a->set = true;
    for (; i > 0 && alarm_before(a, all->heap[(i - 1) / 2]); i = (i - 1) / 2)
        place_alarm(all, all->heap[(i - 1) / 2], i);
    place_alarm(all, a, i);
}

struct alarm *alarm_take(struct alarms *all)
{
    struct alarm *first = all->heap[0], *last = all->heap[--all->count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < all->count; i = child) {
        if (child + 1 < all->count && alarm_before(all->heap[child + 1], all->heap[child]))
            child++;
        if (!alarm_before(all->heap[child], last))
            break;
        place_alarm(all, all->heap[child], i);
    }
    place_alarm(all, last, i);
    first->set = false;
    return first;
}

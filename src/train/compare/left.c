#include "train/compare/left.h"

#include "train/config/budget.h"

void left_begin(struct time_left *l, int waiting, double now)
{
    const bool first = l->start == 0;
    *l = (struct time_left){.start = first ? now : l->start,
                            .last_line = first ? now : l->last_line,
                            .waiting = waiting,
                            .sum = l->sum,
                            .ended = l->ended,
                            .running = true,
                            .began = now};
}

/* The time before the first round is that of opening the run. Rounds of an earlier start are
 * estimated with the seconds per round of this start. */
void left_step(struct time_left *l, const struct run_step *s, double now)
{
    if (l->step == 0) {
        l->step = s->step;
        l->first = now;
    } else if (s->step > l->step && s->steps < BUDGET_UNKNOWN) {
        const double each = (now - l->first) / (double)(s->step - l->step);
        l->whole = l->first - l->began + each * (double)s->steps;
        l->remain = s->eta;
    }
}

void left_end(struct time_left *l, bool fresh, bool well, double now)
{
    const double whole = fresh ? now - l->began : l->whole;
    l->running = false;
    if (!well || whole <= 0)
        return;
    l->sum += whole;
    l->ended++;
}

bool left_line_due(struct time_left *l, double now)
{
    const double fiftieth = (now - l->start) / 50;
    if (now - l->last_line < (fiftieth > 10 ? fiftieth : 10))
        return false;
    l->last_line = now;
    return true;
}

double left_seconds(const struct time_left *l)
{
    const bool known = l->running && l->whole > 0;
    const int n = l->ended + known;
    if ((l->running && !known) || (l->waiting > 0 && n == 0))
        return -1;
    const double mean = n ? (l->sum + (known ? l->whole : 0)) / n : 0;
    return (known ? l->remain : 0) + l->waiting * mean;
}

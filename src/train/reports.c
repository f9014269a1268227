#include "train/reports.h"

#include <stdlib.h>
#include <string.h>

enum sotto_status reports_init(struct reports *r, const struct trainer *t)
{
    *r = (struct reports){0};
    if (t->worker->rank != 0)
        return SOTTO_OK;
    r->line = calloc(STRATEGY_REPORTS, sizeof *r->line);
    return r->line ? SOTTO_OK
                   : fail(SOTTO_ENOMEM, "no memory for %d reports", (int)STRATEGY_REPORTS);
}

void reports_free(struct reports *r)
{
    free(r->line);
    r->line = NULL;
}

int64_t reports_tail(const struct trainer *t)
{
    return t->rounds - t->rounds / 10 - t->run->config.train.log_every;
}

static void write_line(struct trainer *t, const struct run_step *s, const struct cost *cost)
{
    if (s->step > reports_tail(t)) {
        t->tail_loss += s->round.loss;
        t->tail_reports++;
    }
    trainer_report(t, s, cost);
}

/* The first `n` of those that wait. */
static void write_first(struct reports *r, struct trainer *t, int n)
{
    r->n -= n;
    memmove(r->own, r->own + 2 * n, 2 * (size_t)r->n * sizeof *r->own);
    if (!r->line)
        return;
    for (int i = 0; i < n; i++)
        write_line(t, &r->line[i].step, &r->line[i].cost);
    memmove(r->line, r->line + n, (size_t)r->n * sizeof *r->line);
}

static void set_loss(struct reports *r, int i, double loss)
{
    if (r->line)
        r->line[i].step.round.loss = loss;
}

void reports_add(struct reports *r, struct trainer *t, const struct run_step *s,
                 const struct cost *cost)
{
    if (s->round.whole) {
        if (r->line)
            write_line(t, s, cost);
        return;
    }
    if (r->n == STRATEGY_REPORTS) {
        write_first(r, t, 1);
        r->settled++;
    }
    if (r->line)
        r->line[r->n] = (struct report_line){*s, *cost};
    r->own[2 * r->n] = s->round.loss * (double)s->round.targets;
    r->own[2 * r->n++ + 1] = (double)s->round.targets;
}

void reports_told(struct reports *r, struct trainer *t, const struct agreed *a)
{
    int n = 0;
    for (int64_t i = 0; i < a->wanted; i++) {
        if (r->settled > 0)
            r->settled--;
        else if (n < r->n && i < a->reports)
            set_loss(r, n++, a->loss[i]);
        else if (n < r->n)
            n++;
    }
    write_first(r, t, n);
}

enum sotto_status reports_settle(struct reports *r, struct trainer *t)
{
    if (r->n == 0)
        return SOTTO_OK;
    TRY(comm_sum(t->worker->world, r->own, 2 * r->n));
    for (int i = 0; i < r->n; i++)
        if (r->own[2 * i + 1] > 0)
            set_loss(r, i, r->own[2 * i] / r->own[2 * i + 1]);
    r->settled += r->n;
    write_first(r, t, r->n);
    return SOTTO_OK;
}

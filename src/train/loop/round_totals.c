#include "train/loop/round_totals.h"

#include <math.h>
#include <stdlib.h>

#include "train/report/mailbox.h"

/* A worker's record in the mailbox. */
struct round_numbers {
    double loss, targets;   /* of its group; targets 0: another worker of the group sends them */
    double tokens, samples; /* run_step.own_*, from the same worker */
    double before;          /* the worker's seconds before the round */
    struct cost cost;
};

/* A round that rank 0 has added. */
struct pending_round {
    struct pending_round *next;
    struct run_step step;
    double loss, targets, tokens, samples, before; /* of the workers that are joined */
    struct cost_joint cost;                        /* cost.workers of them, in the order of ranks */
};

struct round_totals {
    struct worker *worker;
    struct mailbox *mailbox;
    struct pending_round *first, **last; /* oldest first, on rank 0; owned */
};

enum sotto_status round_totals_open(struct round_totals **out, struct worker *w)
{
    struct round_totals *r = *out = calloc(1, sizeof *r);
    if (!r)
        return fail(SOTTO_ENOMEM, "no memory for the numbers of workers");
    r->worker = w;
    r->last = &r->first;
    return mailbox_open(&r->mailbox, w, sizeof(struct round_numbers));
}

void round_totals_close(struct round_totals *r)
{
    if (!r)
        return;
    mailbox_close(r->mailbox);
    for (struct pending_round *p = r->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(r);
}

enum sotto_status round_totals_add(struct round_totals *r, const struct run_step *s, bool speaks)
{
    const struct round_numbers mine = {.loss = s->round.loss,
                                       .targets = speaks ? (double)s->round.targets : 0,
                                       .tokens = speaks ? (double)s->own_tokens : 0,
                                       .samples = speaks ? (double)s->own_samples : 0,
                                       .before = s->slowest - s->seconds,
                                       .cost = s->cost};
    if (r->worker->rank == 0) {
        struct pending_round *p = malloc(sizeof *p);
        if (!p)
            return fail(SOTTO_ENOMEM, "no memory for the numbers of a round");
        *p = (struct pending_round){.step = *s};
        *r->last = p;
        r->last = &p->next;
    }
    return mailbox_send(r->mailbox, &mine);
}

static void join_numbers(struct pending_round *p, const struct round_numbers *n)
{
    p->loss += n->loss * n->targets;
    p->targets += n->targets;
    p->tokens += n->tokens;
    p->samples += n->samples;
    p->before = fmax(p->before, n->before);
    cost_join(&p->cost, &n->cost);
}

static void sum_up_round(const struct pending_round *p, struct run_step *s)
{
    *s = p->step;
    s->tokens += (int64_t)p->tokens;
    s->samples += (int64_t)p->samples;
    s->cost = cost_mean(&p->cost);
    s->slowest = p->cost.slowest;
    s->seconds = s->slowest - p->before;
    if (!s->round.whole && p->targets > 0)
        s->round.loss = p->loss / p->targets;
}

enum sotto_status round_totals_next(struct round_totals *r, bool wait, struct run_step *s,
                                    bool *found)
{
    struct pending_round *p = r->first;
    if (wait)
        TRY(mailbox_flush(r->mailbox));
    *found = p != NULL;
    while (*found && p->cost.workers < r->worker->size) {
        struct round_numbers n;
        TRY(mailbox_take(r->mailbox, p->cost.workers, wait, &n, found));
        if (*found)
            join_numbers(p, &n);
    }
    if (!*found)
        return SOTTO_OK;
    sum_up_round(p, s);
    if (!(r->first = p->next))
        r->last = &r->first;
    free(p);
    return SOTTO_OK;
}

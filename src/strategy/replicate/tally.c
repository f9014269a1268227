/* What groups tell each other beside their parameters: one short sum with each exchange. */
#include "strategy/replicate/replicate.h"

#include <stddef.h>

enum { HEAD = offsetof(struct tally, report) / sizeof(double) };

static void add(struct tally *t, const struct replicate_own *own, bool report)
{
    t->groups = 1;
    t->rounds++;
    t->tokens += own->tokens;
    t->microbatches += own->microbatches;
    t->seconds = own->seconds;
    t->stop = own->stop;
    t->wanted += report;
    if (!report || t->reports == STRATEGY_REPORTS)
        return;
    double *at = t->report + 2 * t->reports++;
    at[0] = own->loss;
    at[1] = own->targets;
}

enum sotto_status replicate_step(struct replicate *r, const struct plan *plan, double scale)
{
    r->stop = false;
    r->agreed.rounds = 0;
    if (!r->ops->averages)
        add(&r->tally, &r->own, plan->report);
    return r->ops->step(r, plan, scale);
}

void tally_take(struct tally *out, struct replicate *r)
{
    *out = r->tally;
    r->tally = (struct tally){0};
}

enum sotto_status tally_sum(struct tally *t, struct comm *across)
{
    return comm_sum(across, &t->groups, HEAD + 2 * t->reports);
}

void tally_tell(const struct tally *t, struct replicate *r)
{
    struct agreed *a = &r->agreed;
    *a = (struct agreed){.reports = t->reports, .wanted = t->wanted};
    if (t->groups == 0) /* an exchange from before the run was resumed */
        return;
    a->rounds = (int64_t)(t->rounds / t->groups);
    a->tokens = (int64_t)t->tokens;
    a->microbatches = (int64_t)t->microbatches;
    a->seconds = t->seconds / t->groups;
    r->stop = t->stop > 0;
    for (int i = 0; i < t->reports; i++) {
        const double *at = t->report + 2 * i;
        a->loss[i] = at[1] > 0 ? at[0] / at[1] : 0;
    }
}

enum sotto_status replicate_agree(struct replicate *r)
{
    struct tally t;
    tally_take(&t, r);
    TRY(tally_sum(&t, r->is.across));
    tally_tell(&t, r);
    return SOTTO_OK;
}

/* Totals and votes that groups sum with each exchange, in addition to their parameters. */
#include "strategy/replicate/replicate.h"

enum { GROUP_TOTALS = sizeof(struct group_totals) / sizeof(double) }; /* doubles and nothing else */

static void add_round(struct replicate *r)
{
    struct group_totals *t = &r->totals;
    const struct replicate_own *own = &r->own;
    t->groups = 1;
    t->rounds++;
    t->tokens += own->tokens;
    t->microbatches += own->microbatches;
    t->seconds = own->seconds;
    t->stop = own->stop;
    t->save = own->save && !r->saving;
}

enum sotto_status replicate_step(struct replicate *r, const struct plan *plan, double scale)
{
    r->outcome.stop = r->outcome.save = false;
    r->outcome.agreed.rounds = 0;
    if (!r->ops->in_step)
        add_round(r);
    return r->ops->step(r, plan, scale);
}

void group_totals_take(struct group_totals *out, struct replicate *r)
{
    *out = r->totals;
    r->saving = out->save > 0;
    r->totals = (struct group_totals){0};
}

enum sotto_status group_totals_sum(struct group_totals *t, struct comm *across)
{
    return comm_sum(across, &t->groups, GROUP_TOTALS);
}

void group_totals_report(const struct group_totals *t, struct replicate *r)
{
    r->saving = false;
    r->outcome.agreed = (struct agreed){0};
    if (t->groups == 0) /* totals of an exchange before the run was resumed */
        return;
    r->outcome.agreed = (struct agreed){.rounds = (int64_t)(t->rounds / t->groups),
                                        .tokens = (int64_t)t->tokens,
                                        .microbatches = (int64_t)t->microbatches,
                                        .seconds = t->seconds / t->groups};
    r->outcome.stop = t->stop > 0;
    r->outcome.save = t->save > 0;
}

enum sotto_status replicate_agree(struct replicate *r)
{
    struct group_totals t;
    group_totals_take(&t, r);
    TRY(group_totals_sum(&t, r->is.across));
    group_totals_report(&t, r);
    return SOTTO_OK;
}

/* What groups tell each other beside their parameters: one short sum with each exchange. */
#include "strategy/replicate/replicate.h"

enum { TALLY = sizeof(struct tally) / sizeof(double) }; /* doubles and nothing else */

static void add(struct replicate *r)
{
    struct tally *t = &r->tally;
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
    r->stop = r->save = false;
    r->agreed.rounds = 0;
    if (!r->ops->in_step)
        add(r);
    return r->ops->step(r, plan, scale);
}

void tally_take(struct tally *out, struct replicate *r)
{
    *out = r->tally;
    r->saving = out->save > 0;
    r->tally = (struct tally){0};
}

enum sotto_status tally_sum(struct tally *t, struct comm *across)
{
    return comm_sum(across, &t->groups, TALLY);
}

void tally_tell(const struct tally *t, struct replicate *r)
{
    r->saving = false;
    r->agreed = (struct agreed){0};
    if (t->groups == 0) /* an exchange from before the run was resumed */
        return;
    r->agreed = (struct agreed){.rounds = (int64_t)(t->rounds / t->groups),
                                .tokens = (int64_t)t->tokens,
                                .microbatches = (int64_t)t->microbatches,
                                .seconds = t->seconds / t->groups};
    r->stop = t->stop > 0;
    r->save = t->save > 0;
}

enum sotto_status replicate_agree(struct replicate *r)
{
    struct tally t;
    tally_take(&t, r);
    TRY(tally_sum(&t, r->is.across));
    tally_tell(&t, r);
    return SOTTO_OK;
}

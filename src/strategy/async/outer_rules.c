#include "strategy/async/outer_rules.h"

#include <math.h>
#include <stddef.h>

const char *const async_outer_names[] = {"delayed-nesterov", "nesterov", "sgd", NULL};

int64_t rules_buffer(const struct async_rules *r)
{
    return r->N > 0 ? r->N : r->groups;
}

enum sotto_status rules_check(const struct async_rules *r)
{
    const double most = 1 / (double)rules_buffer(r);
    if (r->outer == ASYNC_DELAYED && r->c > most)
        return fail(SOTTO_EINVAL, "async-diloco.c = %g is more than 1/N = 1/%lld = %g", r->c,
                    (long long)rules_buffer(r), most);
    return SOTTO_OK;
}

double rules_weight(const struct async_rules *r, int64_t staleness)
{
    double w = r->weight;
    if (w <= 0)
        w = r->outer == ASYNC_DELAYED ? 1 : 1 / sqrt(r->groups);
    return r->staleness ? w / sqrt(1 + (double)staleness) : w;
}

int64_t rules_steps(const struct async_rules *r, double speed, double fastest)
{
    if (!r->dylu || !(fastest > 0))
        return r->H;
    const double H = floor((double)r->H * (speed / fastest));
    return H > 1 ? (int64_t)H : 1;
}

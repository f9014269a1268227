#include "comm/threads/stall_warning.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

double stall_limit(const struct stall_watch *a)
{
    return fmax(a->patience, a->longer);
}

void stall_add_rank(struct stalled_ranks *a, int rank)
{
    enum { NAMED = 8 };
    const size_t length = strlen(a->text);
    if (a->count < NAMED)
        snprintf(a->text + length, sizeof a->text - length, "%s%d", a->count ? ", " : "", rank);
    else if (a->count == NAMED)
        snprintf(a->text + length, sizeof a->text - length, ", ...");
    a->count++;
}

void stall_warn(struct stall_watch *a, const struct stalled_ranks *who, double waited)
{
    double longer = a->longer;
    if (!who->count || waited < fmax(a->patience, longer) ||
        !atomic_compare_exchange_strong(&a->longer, &longer,
                                        2 * waited)) /* another rank has warned */
        return;
    log_warn("rank%s %s ha%s kept the others waiting for %.0f s: in a long computation, or stuck",
             who->count > 1 ? "s" : "", who->text, who->count > 1 ? "ve" : "s", waited);
}

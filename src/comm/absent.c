#include "comm/absent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

double absence_limit(const struct absence *a)
{
    return fmax(a->patience, a->longer);
}

void absent_add(struct absent *a, int rank)
{
    enum { NAMED = 8 };
    const size_t length = strlen(a->text);
    if (a->count < NAMED)
        snprintf(a->text + length, sizeof a->text - length, "%s%d", a->count ? ", " : "", rank);
    else if (a->count == NAMED)
        snprintf(a->text + length, sizeof a->text - length, ", ...");
    a->count++;
}

void absence_tell(struct absence *a, const struct absent *who, double waited)
{
    const double now = clock_now(&clock_real) + 1, told = a->told;
    if (!who->count || (told > 0 && now - told < absence_limit(a)))
        return;
    a->told = now;
    log_warn(
        "rank%s %s ha%s kept the others waiting for %.0f s: busy with something longer, or stuck",
        who->count > 1 ? "s" : "", who->text, who->count > 1 ? "ve" : "s", waited);
}

void absence_over(struct absence *a, double waited)
{
    if (waited > absence_limit(a))
        a->longer = 2 * waited;
}

#include "strategy/replicate/phases.h"

#include <stdlib.h>

enum sotto_status phases_parse(struct phases *p, const char *key, const char *text, int most)
{
    p->n = 0;
    for (const char *at = text; *at;) {
        char *end;
        long groups = strtol(at, &end, 10);
        long long steps = *end == 'x' ? strtoll(end + 1, &end, 10) : 0;
        if (groups < 1 || steps < 1 || (*end && *end != ',') || p->n == PHASES)
            return fail(SOTTO_EINVAL, "%s = %s: want groups x rounds with commas, at most %d", key,
                        text, PHASES);
        if (groups > most)
            return fail(SOTTO_EINVAL, "%s = %s: there are only %d groups", key, text, most);
        p->phase[p->n].groups = (int)groups;
        p->phase[p->n++].steps = steps;
        at = *end ? end + 1 : end;
    }
    return SOTTO_OK;
}

int phases_groups(const struct phases *p, int64_t step, int all)
{
    for (int i = 0; i < p->n; i++) {
        if (step < p->phase[i].steps || i == p->n - 1)
            return p->phase[i].groups;
        step -= p->phase[i].steps;
    }
    return all;
}

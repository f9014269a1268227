/* How many groups train, and for how many rounds: "8x1000,4x1000", of which the last goes on. */
#ifndef SOTTO_STRATEGY_REPLICATE_PHASES_H
#define SOTTO_STRATEGY_REPLICATE_PHASES_H

#include <stdint.h>

#include "base/status.h"

enum { PHASES = 32 };

struct phases {
    struct {
        int groups;
        int64_t steps;
    } phase[PHASES];
    int n; /* 0: all groups, always */
};

/* `key` names the option, of which a run with `most` groups is to make sense. */
enum sotto_status phases_parse(struct phases *p, const char *key, const char *text, int most);

/* Groups that train at step `step`, of `all`. */
int phases_groups(const struct phases *p, int64_t step, int all);

#endif

/* A schedule of the number of groups that train: "8x1000,4x1000", groups x rounds. The last phase
 * has no end. */
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

/* Parses `text`, the value of option `key`. Refuses phases with more than `most` groups, those of
 * the run. */
enum sotto_status phases_parse(struct phases *p, const char *key, const char *text, int most);

/* Returns the number of groups that train at step `step`; without phases `all`. */
int phases_groups(const struct phases *p, int64_t step, int all);

#endif

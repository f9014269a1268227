/* Decoupled methods that exchange elements of the momentum itself, which all groups know without
 * being told: random's and striding's. */
#ifndef SOTTO_STRATEGY_DECOUPLED_SELECTION_H
#define SOTTO_STRATEGY_DECOUPLED_SELECTION_H

#include "strategy/decoupled/decoupled.h"
#include "strategy/decoupled/value_exchange.h"
#include "tensor/ops.h"

struct picked {
    struct decoupled decoupled;
    struct values values; /* that travel */
    struct picks picks;   /* of the step under way ... */
    struct view index;    /* ... their list, if there is one: there is one section, then */
    struct picks now;     /* ... of them, the section's that are taken or put */
    struct values_of of;  /* ... and their values           */
    float mean;           /* ... what makes their average of what came */
};

/* At most `most` elements a step; `each`: as decoupled_init's. */
enum sotto_status picked_init(struct replicate *r, double each, size_t most);
void picked_free(struct replicate *r);

/* A whole step, in which these elements are exchanged: evenly spaced ones from picks.first on, or,
 * with a stride of 0, those of the list. */
enum sotto_status picked_step(struct picked *p, const struct plan *plan, double scale,
                              struct picks picks, struct view index);

#endif

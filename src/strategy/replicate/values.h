/* Values that the groups average where everybody knows whose they are: a sum of them, or signs, two
 * bits each, that everybody gathers and adds up in the order of the groups. */
#ifndef SOTTO_STRATEGY_REPLICATE_VALUES_H
#define SOTTO_STRATEGY_REPLICATE_VALUES_H

#include "strategy/replicate/decoupled.h"

struct values {
    struct replicate *r;
    const struct update_config *how;
    struct buffer room;     /* of what travels, unless another vector does */
    struct view own;        /* the own values, and then what becomes of them */
    struct buffer signs;    /* sign = before: the own ones, packed ... */
    struct buffer gathered; /* ... and everybody's, group by group    */
    size_t count;           /* under way */
};

/* Up to `most` values. `given` (optional): an own vector that holds them, and travels itself where
 * it can. */
enum sotto_status values_init(struct values *v, struct replicate *r,
                              const struct update_config *how, size_t most,
                              const struct buffer *given);
void values_free(struct values *v);

/* v->own <- what `*mean` makes the average over the groups, or its sign, as the options say. */
enum sotto_status values_average(struct values *v, size_t count, float *mean);

#endif

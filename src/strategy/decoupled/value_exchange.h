/* Values that the groups average where everybody knows whose they are: a sum of them, or signs, two
 * bits each, that everybody gathers and adds up in the order of the groups. */
#ifndef SOTTO_STRATEGY_DECOUPLED_VALUE_EXCHANGE_H
#define SOTTO_STRATEGY_DECOUPLED_VALUE_EXCHANGE_H

#include "strategy/decoupled/decoupled.h"

struct values {
    struct replicate *r;
    const struct update_config *how;
    struct buffer room;     /* of what travels, unless another vector does */
    struct view own;        /* the own values, and then what becomes of them */
    struct buffer signs;    /* sign = before: the own ones, packed ... */
    struct buffer gathered; /* ... and everybody's, group by group    */
    struct values_of {      /* under way on the worker's own line */
        int section;
        size_t first, count;
    } now;
};

/* Bytes of a value on the wire. */
double update_bytes(const struct update_config *how);

/* Up to `most` values. `given` (optional): an own vector that holds them, and travels itself where
 * it can. */
enum sotto_status values_init(struct values *v, struct replicate *r,
                              const struct update_config *how, size_t most,
                              const struct buffer *given);
void values_free(struct values *v);

/* v->own <- what `*mean` makes the average over the groups, or its sign, as the options say, for
 * the values of a section, which follow those of the sections before it: they are made ready to
 * travel, exchanged, and made of what has come. */
enum sotto_status values_pack(struct values *v, struct values_of of);
enum sotto_status values_exchange(const struct values *v, struct comm *across, struct values_of of);
enum sotto_status values_unpack(struct values *v, struct values_of of, float *mean);

#endif

/* Averages of values over the groups, if all groups have values of the same elements: an all-reduce
 * or, for signs of two bits each, an all-gather and a sum in the order of the groups. */
#ifndef SOTTO_STRATEGY_DECOUPLED_VALUE_EXCHANGE_H
#define SOTTO_STRATEGY_DECOUPLED_VALUE_EXCHANGE_H

#include "strategy/decoupled/decoupled.h"

struct value_exchange {
    struct replicate *r;
    const struct update_config *how;
    struct buffer room;     /* the values to send, unless `given` is sent */
    struct view own;        /* the own values, later their sum or signs */
    struct buffer signs;    /* sign = before: the own signs, packed */
    struct buffer gathered; /* all groups' signs, group by group */
    struct value_range {    /* in work on the worker's own line */
        int section;
        size_t first, count;
    } now;
};

/* Returns the bytes of a value on the wire. */
double update_value_bytes(const struct update_config *how);

/* At most `most` values. `given` (optional): an own vector of the values, sent itself if its type
 * allows. */
enum sotto_status value_exchange_init(struct value_exchange *v, struct replicate *r,
                                      const struct update_config *how, size_t most,
                                      const struct buffer *given);
void value_exchange_free(struct value_exchange *v);

/* Pack, exchange and unpack the values of a section; a section's values follow those of earlier
 * sections. Afterwards v->own has the sum over the groups or its sign, by the options; times
 * `*mean`, the average. */
enum sotto_status value_exchange_pack(struct value_exchange *v, struct value_range of);
enum sotto_status value_exchange_run(const struct value_exchange *v, struct comm *across,
                                     struct value_range of);
enum sotto_status value_exchange_unpack(struct value_exchange *v, struct value_range of,
                                        float *mean);

#endif

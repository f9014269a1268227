/* Counts what a schedule costs in a steady training step: memory, messages, devices. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_COUNT_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_COUNT_H

#include "strategy/cdp/schedule/schedule.h"

struct cdp_count {
    int devices;
    /* largest number of saved activations on a device, each of one stage: n are a whole
     * micro-batch; activations of running tasks are included */
    int activations;
    int all; /* the same, of all devices together */
    /* largest number of versions on a device, each of one stage's parameters: n are a whole
     * model */
    int versions;
    int states; /* the same for optimizer states */
    int64_t activation,
        gradient; /* messages of a training step: activations, gradients of activations */
    /* sums of gradients and parameters sent, each of one stage, including sums and parameters in
     * state messages (CDP_STATE) */
    int64_t sum, parameters;
    int64_t optimizer; /* optimizer states sent, each of one stage */
    int64_t state; /* state messages: each has an optimizer state, and sums or parameters with it */
    int most;      /* largest number of messages that a device sends between two time steps */
    int hops;      /* longest row of messages between two time steps that wait for each other */
};

/* Counts schedule `s`, which has no end. `scratch`: (CDP_ACTS(n)). */
void cdp_count(const struct cdp_schedule *s, struct cdp_act *scratch, struct cdp_count *out);

/* Returns the saved activations of a device in a time step, those of its running tasks included;
 * device -1: of all devices. */
int cdp_activations(const struct cdp_schedule *s, int device, int64_t time);

#endif

/* What a schedule takes, counted in it: memory, messages, devices, in a steady training step. */
#ifndef SOTTO_STRATEGY_CDP_SCHEDULE_COUNT_H
#define SOTTO_STRATEGY_CDP_SCHEDULE_COUNT_H

#include "strategy/cdp/schedule/schedule.h"

struct cdp_count {
    int devices;
    int activations; /* most that a device has at once, in activations of one stage: n are those of
                      * one micro-batch; what its tasks in that time step are at is included */
    int all;         /* the same for all devices together */
    int versions;    /* most that a device has at once, in parameters of one stage: n are a model */
    int states;      /* as many for the optimizer's state */
    int64_t activation, gradient; /* messages of a training step: activations and their gradients */
    int64_t sum, parameters; /* sums of gradients, parameters, each of one stage; those in states
                              * too (CDP_STATE), so that they are what is sent in all */
    int64_t optimizer;       /* states of one stage */
    int64_t state;           /* messages that the latter and all beside them are sent in */
    int most;                /* messages that a device sends between two time steps               */
    int hops; /* and that wait for each other, one behind another, between two of them */
};

/* `s` without an end; scratch: (CDP_ACTS(n)). */
void cdp_count(const struct cdp_schedule *s, struct cdp_act *scratch, struct cdp_count *out);

/* Activations of stages that a device has in a time step, those of its tasks included; device -1:
 * all of them. */
int cdp_activations(const struct cdp_schedule *s, int device, int64_t time);

#endif

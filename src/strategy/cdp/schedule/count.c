#include "strategy/cdp/schedule/count.h"

#include "strategy/cdp/schedule/moves.h"

static int64_t step_length(const struct cdp_schedule *s) /* time steps of a training step */
{
    return cdp_end(s, s->first + 1) - cdp_end(s, s->first);
}

/* True if the activation of a micro-batch at a stage is saved during a time step: from the stage's
 * forward until its backward is done. `device`: where. */
static bool activation_saved(const struct cdp_schedule *s, int micro, int stage, int64_t time,
                             int *device)
{
    const int64_t since = time - cdp_time(s, s->first, micro, stage, false);
    const int64_t step = s->first + (since < 0 ? 0 : since / step_length(s));
    *device = cdp_device(s, step, micro, stage);
    return since >= 0 && (s->steps < 0 || step < s->steps) &&
           time <= cdp_time(s, step, micro, stage, true);
}

int cdp_activations(const struct cdp_schedule *s, int device, int64_t time)
{
    const bool by_micro = s->placement == CDP_DP || s->placement == CDP_ZERO;
    const bool by_stage = s->placement == CDP_PP || s->placement == CDP_MP;
    int n = 0, at;
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->n; j++) {
            if (device >= 0 &&
                ((by_micro && i != device) || (by_stage && j != cdp_stage_of(s, device))))
                continue;
            n += activation_saved(s, i, j, time, &at) && (device < 0 || at == device);
        }
    return n;
}

static void raise_count(int *out, int n)
{
    *out = n > *out ? n : *out;
}

static void count_move(const struct cdp_move *m, struct cdp_count *out)
{
    switch (m->what) {
    case CDP_ACTIVATION:
        out->activation++;
        break;
    case CDP_ACTIVATION_GRADIENT:
        out->gradient++;
        break;
    case CDP_SUM:
        out->sum++;
        break;
    case CDP_PARAMETERS:
        out->parameters++;
        break;
    case CDP_STATE:
        out->state++;
        out->optimizer += !!(m->parts & CDP_PART_OPTIMIZER);
        out->parameters += !!(m->parts & CDP_PART_NEWEST) + !!(m->parts & CDP_PART_OLDER);
        out->sum += !!(m->parts & CDP_PART_SUM) + !!(m->parts & CDP_PART_WAITING);
    }
}

/* Counts the messages of a device's acts in front of a time step and after its tasks. A chain's
 * hops after a task fall between two time steps. */
static void count_acts(const struct cdp_schedule *s, int device, int64_t time, struct cdp_act *act,
                       struct cdp_count *out)
{
    const int n = cdp_acts(s, device, time, act);
    int sent = 0, behind = 0;
    bool ran = false;
    for (int k = 0; k < n; k++) {
        ran |= act[k].what == CDP_RUN;
        if (act[k].what != CDP_SEND)
            continue;
        count_move(&act[k].move, out);
        *(ran ? &behind : &sent) += 1;
    }
    raise_count(&out->most, sent);
    raise_count(&out->most, behind);
}

static void count_held(const struct cdp_schedule *s, int device, int64_t time,
                       struct cdp_count *out)
{
    int64_t version[2];
    int versions = 0, states = 0;
    for (int j = 0; j < s->n; j++) {
        versions += cdp_holds(s, device, j, time, version);
        states += device == cdp_state_place(s, j, time);
    }
    raise_count(&out->versions, versions);
    raise_count(&out->states, states);
    raise_count(&out->activations, cdp_activations(s, device, time));
}

/* Returns the hops after the tasks of a time step. */
static int count_hops(const struct cdp_schedule *s, int64_t time)
{
    struct cdp_move move;
    int n = 0;
    for (int64_t late = 1; late <= 2 * s->n; late++) {
        bool any = false;
        for (int j = 0; j < s->n; j++)
            any |= cdp_hop(s, j, time, late, &move);
        n += any;
    }
    return n;
}

void cdp_count(const struct cdp_schedule *s, struct cdp_act *scratch, struct cdp_count *out)
{
    const bool chain = s->placement == CDP_DP && s->rule == CDP_SYNC;
    const int64_t begin = cdp_time(s, s->first + 2, 0, 0, false);
    *out = (struct cdp_count){.devices = cdp_devices(s)};
    for (int64_t time = begin; time < begin + step_length(s); time++) {
        for (int d = 0; d < out->devices; d++) {
            count_acts(s, d, time, scratch, out);
            count_held(s, d, time, out);
        }
        raise_count(&out->all, cdp_activations(s, -1, time));
        raise_count(&out->hops, chain ? count_hops(s, time) : out->most > 0);
    }
}

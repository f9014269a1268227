#include "strategy/cdp/schedule/schedule.h"

const char *const cdp_placement_names[] = {"dp", "single", "pp", "mp", "zero", NULL};
const char *const cdp_rule_names[] = {"v2", "v1", "sync", NULL};

enum sotto_status cdp_check(const struct cdp_schedule *s)
{
    const char *name = cdp_placement_names[s->placement];
    if (s->n < 1)
        return fail(SOTTO_EINVAL, "%d stages: there must be at least 1", s->n);
    if (s->rule == CDP_SYNC && (s->placement == CDP_MP || s->placement == CDP_ZERO))
        return fail(SOTTO_EINVAL,
                    "%s needs v1 or v2: with sync all micro-batches use a stage at the same time",
                    name);
    if (s->together && s->rule == CDP_V2 && s->n > 1)
        return fail(SOTTO_EINVAL, "v2 cannot update all stages together: the last stage is used "
                                  "again before the gradients of the first exist; v1 can");
    return SOTTO_OK;
}

int cdp_devices(const struct cdp_schedule *s)
{
    switch (s->placement) {
    case CDP_SINGLE:
        return 1;
    case CDP_MP:
        return s->n * (s->n + 1) / 2;
    default:
        return s->n;
    }
}

int cdp_stages(enum cdp_placement placement, int devices)
{
    int n = devices;
    if (placement == CDP_MP)
        for (n = 0; n * (n + 1) / 2 < devices;)
            n++;
    return placement != CDP_MP || n * (n + 1) / 2 == devices ? n : 0;
}

int cdp_slots(const struct cdp_schedule *s, int device)
{
    switch (s->placement) {
    case CDP_SINGLE:
        return s->n;
    case CDP_PP:
        return s->n - device;
    default:
        return 1;
    }
}

int64_t cdp_end(const struct cdp_schedule *s, int64_t step)
{
    /* the last task is the last micro-batch's backward of stage 0 */
    return cdp_time(s, step, s->n - 1, 0, true) + 1;
}

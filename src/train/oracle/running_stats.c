#include "train/oracle/running_stats.h"

#include <stdlib.h>

#include "tensor/ops.h"

enum sotto_status running_stats_init(struct running_stats *r, const struct model *model,
                                     struct device *dev, const float *start)
{
    *r = (struct running_stats){.model = model, .dev = dev};
    if (!model->state.n)
        return SOTTO_OK;
    const size_t count = table_count(&model->state);
    float *made = start ? NULL : calloc(count, sizeof *made);
    enum sotto_status st;
    if (!start && !made)
        return fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model's state", count);
    if (made)
        model_state_start(model, made);
    TRY_DONE(buffer_init(&r->own, dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&r->mean, dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    dev->ops->write(dev, r->own.view, start ? start : made, count);
    st = device_failed(dev);
done:
    free(made);
    if (st != SOTTO_OK)
        running_stats_free(r);
    return st;
}

void running_stats_free(struct running_stats *r)
{
    buffer_free(&r->own);
    buffer_free(&r->mean);
}

enum sotto_status running_stats_average(struct running_stats *r, struct comm *world)
{
    if (!r->own.dev)
        return SOTTO_OK;
    const struct ops *ops = r->dev->ops;
    TRY(comm_allreduce(world, r->mean.view, r->own.view, r->own.count));
    ops->scale(r->dev, r->mean.view, 1 / (float)world->size, r->mean.count);
    return device_check(r->dev);
}

enum sotto_status running_stats_visit(struct running_stats *r, struct state_visitor *v,
                                      const struct worker *w)
{
    if (!r->own.dev)
        return SOTTO_OK;
    int64_t count = (int64_t)r->own.count;
    TRY(state_enter(v, "running"));
    TRY(state_table(v, &r->model->state, NULL, MEMORY_PARAMETERS, r->dev, r->mean.view));
    state_leave(v);
    if (state_loading(v) && state_owners(v, "running_own", "count") != w->size) {
        r->dev->ops->copy(r->dev, r->own.view, r->mean.view, r->own.count);
        TRY(state_ignore(v, "running_own."));
        return device_check(r->dev);
    }
    TRY(state_enter_own(v, "running_own", w->rank, w->size));
    TRY(state_count(v, "count", &count, STATE_TOTAL));
    TRY(state_tensor(v, "values", MEMORY_PARAMETERS, r->dev, r->own.view, r->own.count));
    state_leave(v);
    return SOTTO_OK;
}

#include "strategy/replicate/values.h"

#include "tensor/ops.h"

static size_t packed(size_t count)
{
    return (count + 3) / 4;
}

enum sotto_status values_init(struct values *v, struct replicate *r,
                              const struct update_config *how, size_t most,
                              const struct buffer *given)
{
    struct device *dev = r->is.dev;
    const size_t groups = (size_t)r->is.mesh->n_r;
    *v = (struct values){.r = r, .how = how};
    if (given && how->dtype == DTYPE_F32) {
        v->own = given->view;
    } else {
        TRY(buffer_init(&v->room, dev, (enum dtype)how->dtype, most, MEMORY_COMMUNICATION));
        v->own = v->room.view;
    }
    if (how->sign != SIGN_BEFORE || groups == 1)
        return SOTTO_OK;
    TRY(buffer_init(&v->signs, dev, DTYPE_U8, packed(most), MEMORY_COMMUNICATION));
    return buffer_init(&v->gathered, dev, DTYPE_U8, groups * packed(most), MEMORY_COMMUNICATION);
}

void values_free(struct values *v)
{
    buffer_free(&v->room);
    buffer_free(&v->signs);
    buffer_free(&v->gathered);
}

static enum sotto_status pack(void *arg)
{
    const struct values *v = arg;
    struct device *dev = v->r->is.dev;
    dev->ops->signs_pack(dev, v->signs.view, v->own, v->count);
    return device_failed(dev);
}

/* In the order of the groups: the same bits everywhere. */
static enum sotto_status unpack(void *arg)
{
    const struct values *v = arg;
    struct device *dev = v->r->is.dev;
    for (int i = 0; i < v->r->is.mesh->n_r; i++)
        dev->ops->signs_unpack(dev, v->own, view_at(v->gathered.view, (size_t)i * packed(v->count)),
                               v->count, i > 0);
    return device_failed(dev);
}

static enum sotto_status add_signs(struct values *v, float *mean)
{
    struct replicate *r = v->r;
    const int groups = r->is.mesh->n_r;
    const double bytes = (double)packed(v->count), values = sizeof(float) * (double)v->count;
    if (groups == 1)
        return work_sign(&r->on, v->own, v->count);
    TRY(work_run(&r->on, pack, v, values + bytes));
    TRY(comm_allgather(r->is.across, v->gathered.view, v->signs.view,
                       (size_t)groups * packed(v->count)));
    *mean = 1 / (float)groups;
    return work_run(&r->on, unpack, v, groups * (2 * values + bytes));
}

enum sotto_status values_average(struct values *v, size_t count, float *mean)
{
    struct replicate *r = v->r;
    *mean = 1;
    v->count = count;
    if (count == 0)
        return SOTTO_OK;
    if (v->how->sign == SIGN_BEFORE)
        return add_signs(v, mean);
    TRY(comm_allreduce(r->is.across, v->own, v->own, count));
    if (v->how->sign == SIGN_AFTER)
        return work_sign(&r->on, v->own, count);
    *mean = 1 / (float)r->is.mesh->n_r;
    return SOTTO_OK;
}

#include "strategy/decoupled/value_exchange.h"

#include "tensor/ops.h"

double update_value_bytes(const struct update_config *how)
{
    return how->sign == SIGN_BEFORE ? 0.25 : (double)dtype_size((enum dtype)how->dtype);
}

static size_t packed_bytes(size_t count)
{
    return (count + 3) / 4;
}

/* Returns the byte where a section's packed signs begin; sections share no byte. */
static size_t signs_place(struct value_range of)
{
    return of.first / 4 + (size_t)of.section;
}

enum sotto_status value_exchange_init(struct value_exchange *v, struct replicate *r,
                                      const struct update_config *how, size_t most,
                                      const struct buffer *given)
{
    struct device *dev = r->is.dev;
    const size_t groups = (size_t)r->is.mesh->n_r;
    *v = (struct value_exchange){.r = r, .how = how};
    if (given && how->dtype == DTYPE_F32) {
        v->own = given->view;
    } else {
        TRY(buffer_init(&v->room, dev, (enum dtype)how->dtype, most, MEMORY_COMMUNICATION));
        v->own = v->room.view;
    }
    if (how->sign != SIGN_BEFORE || groups == 1)
        return SOTTO_OK;
    const size_t bytes = packed_bytes(most) + (size_t)r->is.table->n_stage;
    TRY(buffer_init(&v->signs, dev, DTYPE_U8, bytes, MEMORY_COMMUNICATION));
    return buffer_init(&v->gathered, dev, DTYPE_U8, groups * bytes, MEMORY_COMMUNICATION);
}

void value_exchange_free(struct value_exchange *v)
{
    buffer_free(&v->room);
    buffer_free(&v->signs);
    buffer_free(&v->gathered);
}

static struct view signs_of(const struct value_exchange *v, struct value_range of)
{
    return view_at(v->signs.view, signs_place(of));
}

static struct view gathered_of(const struct value_exchange *v, struct value_range of)
{
    return view_at(v->gathered.view, (size_t)v->r->is.mesh->n_r * signs_place(of));
}

static enum sotto_status pack_signs(void *arg)
{
    const struct value_exchange *v = arg;
    struct device *dev = v->r->is.dev;
    dev->ops->signs_pack(dev, signs_of(v, v->now), view_at(v->own, v->now.first), v->now.count);
    return device_failed(dev);
}

/* Sums in the order of the groups: the same bits on all workers. */
static enum sotto_status unpack_signs(void *arg)
{
    const struct value_exchange *v = arg;
    struct device *dev = v->r->is.dev;
    const struct view own = view_at(v->own, v->now.first), all = gathered_of(v, v->now);
    for (int i = 0; i < v->r->is.mesh->n_r; i++)
        dev->ops->signs_unpack(dev, own, view_at(all, (size_t)i * packed_bytes(v->now.count)),
                               v->now.count, i > 0);
    return device_failed(dev);
}

/* True if signs are sent. */
static bool sends_signs(const struct value_exchange *v)
{
    return v->how->sign == SIGN_BEFORE && v->r->is.mesh->n_r > 1;
}

enum sotto_status value_exchange_pack(struct value_exchange *v, struct value_range of)
{
    if (of.count == 0 || !sends_signs(v))
        return SOTTO_OK;
    v->now = of;
    return work_run(&v->r->on, pack_signs, v,
                    sizeof(float) * (double)of.count + (double)packed_bytes(of.count));
}

enum sotto_status value_exchange_run(const struct value_exchange *v, struct comm *across,
                                     struct value_range of)
{
    const struct view own = view_at(v->own, of.first);
    if (of.count == 0)
        return SOTTO_OK;
    if (sends_signs(v))
        return comm_allgather(across, gathered_of(v, of), signs_of(v, of),
                              (size_t)across->size * packed_bytes(of.count));
    return v->how->sign == SIGN_BEFORE ? SOTTO_OK : comm_allreduce(across, own, own, of.count);
}

enum sotto_status value_exchange_unpack(struct value_exchange *v, struct value_range of,
                                        float *mean)
{
    struct replicate *r = v->r;
    const int groups = r->is.mesh->n_r;
    const double values = sizeof(float) * (double)of.count;
    *mean = 1;
    if (of.count == 0)
        return SOTTO_OK;
    if (!sends_signs(v) && v->how->sign != SIGN_OFF)
        return work_sign(&r->on, view_at(v->own, of.first), of.count);
    *mean = 1 / (float)groups;
    if (!sends_signs(v))
        return SOTTO_OK;
    v->now = of;
    return work_run(&r->on, unpack_signs, v,
                    groups * (2 * values + (double)packed_bytes(of.count)));
}

#include "strategy/decoupled/value_exchange.h"

#include "tensor/ops.h"

double update_bytes(const struct update_config *how)
{
    return how->sign == SIGN_BEFORE ? 0.25 : (double)dtype_size((enum dtype)how->dtype);
}

static size_t packed(size_t count)
{
    return (count + 3) / 4;
}

/* Byte of the packed signs where a section's begin: each has bytes of its own. */
static size_t place(struct values_of of)
{
    return of.first / 4 + (size_t)of.section;
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
    const size_t bytes = packed(most) + (size_t)r->is.table->n_stage;
    TRY(buffer_init(&v->signs, dev, DTYPE_U8, bytes, MEMORY_COMMUNICATION));
    return buffer_init(&v->gathered, dev, DTYPE_U8, groups * bytes, MEMORY_COMMUNICATION);
}

void values_free(struct values *v)
{
    buffer_free(&v->room);
    buffer_free(&v->signs);
    buffer_free(&v->gathered);
}

static struct view signs_of(const struct values *v, struct values_of of)
{
    return view_at(v->signs.view, place(of));
}

static struct view gathered_of(const struct values *v, struct values_of of)
{
    return view_at(v->gathered.view, (size_t)v->r->is.mesh->n_r * place(of));
}

static enum sotto_status pack(void *arg)
{
    const struct values *v = arg;
    struct device *dev = v->r->is.dev;
    dev->ops->signs_pack(dev, signs_of(v, v->now), view_at(v->own, v->now.first), v->now.count);
    return device_failed(dev);
}

/* In the order of the groups: the same bits everywhere. */
static enum sotto_status unpack(void *arg)
{
    const struct values *v = arg;
    struct device *dev = v->r->is.dev;
    const struct view own = view_at(v->own, v->now.first), all = gathered_of(v, v->now);
    for (int i = 0; i < v->r->is.mesh->n_r; i++)
        dev->ops->signs_unpack(dev, own, view_at(all, (size_t)i * packed(v->now.count)),
                               v->now.count, i > 0);
    return device_failed(dev);
}

/* Signs travel. */
static bool are_signs(const struct values *v)
{
    return v->how->sign == SIGN_BEFORE && v->r->is.mesh->n_r > 1;
}

enum sotto_status values_pack(struct values *v, struct values_of of)
{
    if (of.count == 0 || !are_signs(v))
        return SOTTO_OK;
    v->now = of;
    return work_run(&v->r->on, pack, v,
                    sizeof(float) * (double)of.count + (double)packed(of.count));
}

enum sotto_status values_exchange(const struct values *v, struct comm *across, struct values_of of)
{
    const struct view own = view_at(v->own, of.first);
    if (of.count == 0)
        return SOTTO_OK;
    if (are_signs(v))
        return comm_allgather(across, gathered_of(v, of), signs_of(v, of),
                              (size_t)across->size * packed(of.count));
    return v->how->sign == SIGN_BEFORE ? SOTTO_OK : comm_allreduce(across, own, own, of.count);
}

enum sotto_status values_unpack(struct values *v, struct values_of of, float *mean)
{
    struct replicate *r = v->r;
    const int groups = r->is.mesh->n_r;
    const double values = sizeof(float) * (double)of.count;
    *mean = 1;
    if (of.count == 0)
        return SOTTO_OK;
    if (!are_signs(v) && v->how->sign != SIGN_OFF)
        return work_sign(&r->on, view_at(v->own, of.first), of.count);
    *mean = 1 / (float)groups;
    if (!are_signs(v))
        return SOTTO_OK;
    v->now = of;
    return work_run(&r->on, unpack, v, groups * (2 * values + (double)packed(of.count)));
}

/* The null device: buffers that are accounted and hold nothing, and ops that do nothing. A method
 * runs on the null device unchanged, so that the time and memory of a model are known that no
 * machine at hand could hold.
 *
 * Reading a buffer gives zeros, as an untouched buffer would; sum_squares returns 0. */
#include <stdlib.h>
#include <string.h>

#include "tensor/null/counting.h"

/* Returns NULL for a device that does not count, such as the counter of a counting device. */
static struct counting *counting_of(const struct device *dev)
{
    return dev->ops == &ops_null ? NULL : (struct counting *)(void *)(uintptr_t)dev->impl;
}

/* Returns a view that is present for the counted op, which must neither read nor write its data. */
static struct view counted_view(const struct counting *c, struct view v)
{
    static const _Alignas(64) char somewhere[64];
    return (struct view){(void *)(uintptr_t)somewhere, v.type, c->like.ops->place};
}

/* As counted_view if an optional view is present. Views of host memory have no data here, so an
 * fp32 view looks like view_none; the cpu takes no scratch for optional fp32 views. */
static struct view counted_optional(const struct counting *c, struct view v)
{
    return view_there(v) || v.type != view_none.type ? counted_view(c, v) : view_none;
}

#define COUNTED_VIEW(name) , counted_view(c, name)
#define COUNTED_OPTIONAL(name) , counted_optional(c, name)
#define COUNTED_VALUE(type, name) , name
#define COUNTED_STRUCT(tag, name) , name
#define COUNTED_ARRAY(tag, name, n) , name, n
#define OP(op, ...)                                                                                \
    static void null_##op(OP_PARAMETERS(__VA_ARGS__))                                              \
    {                                                                                              \
        struct counting *c = counting_of(dev);                                                     \
        if (c && c->like.ops->takes && c->like.ops->takes->op)                                     \
            c->like.ops->takes->op(&c->counter OP_EACH(COUNTED_, __VA_ARGS__));                    \
    }
#include "tensor/op_list.h"

static void null_linear_loss(struct device *dev, const struct linear *p,
                             const struct linear_loss *l)
{
    struct counting *c = counting_of(dev);
    if (!c || !c->like.ops->takes || !c->like.ops->takes->linear_loss)
        return;
    const struct linear_loss counted = {.x = counted_view(c, l->x),
                                        .w = counted_view(c, l->w),
                                        .targets = counted_view(c, l->targets),
                                        .losses = counted_view(c, l->losses),
                                        .scale = l->scale,
                                        .dx = counted_optional(c, l->dx),
                                        .dw = counted_optional(c, l->dw)};
    c->like.ops->takes->linear_loss(&c->counter, p, &counted);
}

static double null_sum_squares(struct device *dev, const struct vector_pair *p, int n, double *each)
{
    (void)dev, (void)p;
    for (int i = 0; i < n && each; i++)
        each[i] = 0;
    return 0;
}

static void null_write(struct device *dev, struct view to, const void *host, size_t count)
{
    (void)dev, (void)to, (void)host, (void)count;
}

static void null_read(struct device *dev, void *host, struct view from, size_t count)
{
    (void)dev;
    memset(host, 0, count * dtype_size(from.type));
}

const struct ops ops_null = {
    .name = "null",
    .write = null_write,
    .read = null_read,
    .sum_squares = null_sum_squares,
#define OP(op, ...) .op = null_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
};

static void counting_close(struct device *dev)
{
    struct counting *c = counting_of(dev);
    device_close(&c->counter);
    device_close(&c->like);
    free(c);
}

void counting_open(struct device *dev, struct counting *c, struct memory *memory, int threads,
                   enum place place)
{
    const struct ops *like = c->like.ops;
    c->counter = (struct device){
        .ops = &ops_null, .memory = memory, .threads = c->like.threads, .impl = c->like.impl};
    c->table = ops_null;
    c->table.place = place;
    c->table.close = counting_close;
    c->table.linear_loss = like->linear_loss ? null_linear_loss : NULL;
#define OP(op, ...)
#define OPTIONAL_OP(op, ...) c->table.op = like->op ? null_##op : NULL;
#include "tensor/op_list.h"
    *dev = (struct device){.ops = &c->table, .memory = memory, .threads = threads, .impl = c};
}

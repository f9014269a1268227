#include "strategy/work.h"

#include "tensor/ops.h"

enum sotto_status work_run(const struct work *on, lane_job *job, void *arg, double bytes)
{
    struct mesh *mesh = on->mesh;
    struct worker *w = mesh->worker;
    const double begin = clock_now(w->clock);
    if (on->dev->ops->alloc) {
        TRY(w->ops->move(w, job, arg, bytes));
    } else { /* nothing that another thread were needed for */
        TRY(job(arg));
        TRY(w->ops->move(w, NULL, NULL, bytes));
    }
    const double end = clock_now(w->clock);
    if (on->lane)
        lane_worked(on->lane, begin, end);
    else
        mesh->worked += end - begin;
    return SOTTO_OK;
}

enum kind { FILL, COPY, AXPY, SCALE, SUM_SQUARES, DISTANCE };

struct flat {
    enum kind kind;
    struct device *dev;
    struct view y, x;
    float a;
    size_t count;
    double out;
};

static enum sotto_status run_flat(void *arg)
{
    struct flat *f = arg;
    struct device *dev = f->dev;
    const struct ops *ops = dev->ops;
    switch (f->kind) {
    case FILL:
        ops->fill(dev, f->y, f->count, f->a);
        break;
    case COPY:
        ops->copy(dev, f->y, f->x, f->count);
        break;
    case AXPY:
        ops->axpy(dev, f->y, f->a, f->x, f->count);
        break;
    case SCALE:
        ops->scale(dev, f->y, f->a, f->count);
        break;
    case SUM_SQUARES:
        f->out = ops->sum_squares(dev, f->x, f->count);
        break;
    case DISTANCE:
        f->out = ops->distance(dev, f->x, f->y, f->count);
        break;
    }
    return device_failed(dev);
}

static enum sotto_status run(const struct work *on, struct flat *f)
{
    /* How often an element of y and of x is read or written. */
    static const struct {
        int y, x;
    } times[] = {[FILL] = {1, 0},  [COPY] = {1, 1},        [AXPY] = {2, 1},
                 [SCALE] = {2, 0}, [SUM_SQUARES] = {0, 1}, [DISTANCE] = {1, 1}};
    const double each = times[f->kind].y * (double)dtype_size(f->y.type) +
                        times[f->kind].x * (double)dtype_size(f->x.type);
    f->dev = on->dev;
    return work_run(on, run_flat, f, each * (double)f->count);
}

enum sotto_status work_fill(const struct work *on, struct view y, size_t count, float value)
{
    return run(on, &(struct flat){.kind = FILL, .y = y, .a = value, .count = count});
}

enum sotto_status work_copy(const struct work *on, struct view y, struct view x, size_t count)
{
    return run(on, &(struct flat){.kind = COPY, .y = y, .x = x, .count = count});
}

enum sotto_status work_axpy(const struct work *on, struct view y, float a, struct view x,
                            size_t count)
{
    return run(on, &(struct flat){.kind = AXPY, .y = y, .a = a, .x = x, .count = count});
}

enum sotto_status work_scale(const struct work *on, struct view y, float a, size_t count)
{
    return run(on, &(struct flat){.kind = SCALE, .y = y, .a = a, .count = count});
}

enum sotto_status work_sum_squares(const struct work *on, struct view x, size_t count, double *out)
{
    struct flat f = {.kind = SUM_SQUARES, .x = x, .count = count};
    TRY(run(on, &f));
    *out = f.out;
    return SOTTO_OK;
}

enum sotto_status work_distance(const struct work *on, struct view x, struct view y, size_t count,
                                double *out)
{
    struct flat f = {.kind = DISTANCE, .x = x, .y = y, .count = count};
    TRY(run(on, &f));
    *out = f.out;
    return SOTTO_OK;
}

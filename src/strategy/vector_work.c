#include "strategy/vector_work.h"

#include "tensor/ops.h"

enum sotto_status work_run(const struct work *on, lane_job *job, void *arg, double bytes)
{
    struct mesh *mesh = on->mesh;
    struct worker *w = mesh->worker;
    const double begin = clock_now(w->clock);
    if (on->dev->ops->alloc) {
        TRY(w->ops->move(w, job, arg, bytes));
    } else { /* nothing for another thread to do */
        TRY(job(arg));
        TRY(w->ops->move(w, NULL, NULL, bytes));
    }
    const double end = clock_now(w->clock);
    if (on->lane)
        lane_count_work(on->lane, begin, end);
    else
        mesh->worked += end - begin;
    return SOTTO_OK;
}

enum flat_kind { FILL, COPY, AXPY, SCALE, SIGN };

struct flat_work {
    enum flat_kind kind;
    struct device *dev;
    struct view y, x;
    float a;
    size_t count;
};

static enum sotto_status flat_job(void *arg)
{
    struct flat_work *f = arg;
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
    case SIGN:
        ops->sign(dev, f->y, f->y, f->count);
        break;
    }
    return device_failed(dev);
}

static enum sotto_status run_flat(const struct work *on, struct flat_work *f)
{
    /* reads and writes of an element of y and of x */
    static const struct {
        int y, x;
    } times[] = {
        [FILL] = {1, 0}, [COPY] = {1, 1}, [AXPY] = {2, 1}, [SCALE] = {2, 0}, [SIGN] = {2, 0}};
    const double each = times[f->kind].y * (double)dtype_size(f->y.type) +
                        times[f->kind].x * (double)dtype_size(f->x.type);
    f->dev = on->dev;
    return work_run(on, flat_job, f, each * (double)f->count);
}

enum sotto_status work_fill(const struct work *on, struct view y, size_t count, float value)
{
    return run_flat(on, &(struct flat_work){.kind = FILL, .y = y, .a = value, .count = count});
}

enum sotto_status work_copy(const struct work *on, struct view y, struct view x, size_t count)
{
    return run_flat(on, &(struct flat_work){.kind = COPY, .y = y, .x = x, .count = count});
}

enum sotto_status work_axpy(const struct work *on, struct view y, float a, struct view x,
                            size_t count)
{
    return run_flat(on, &(struct flat_work){.kind = AXPY, .y = y, .a = a, .x = x, .count = count});
}

enum sotto_status work_scale(const struct work *on, struct view y, float a, size_t count)
{
    return run_flat(on, &(struct flat_work){.kind = SCALE, .y = y, .a = a, .count = count});
}

enum sotto_status work_sign(const struct work *on, struct view y, size_t count)
{
    return run_flat(on, &(struct flat_work){.kind = SIGN, .y = y, .count = count});
}

struct squares_work {
    struct device *dev;
    const struct vector_pair *p;
    int n;
    double sum, *each;
};

static enum sotto_status squares_job(void *arg)
{
    struct squares_work *s = arg;
    s->sum = s->dev->ops->sum_squares(s->dev, s->p, s->n, s->each);
    return device_failed(s->dev);
}

/* Runs over pairs of which `vectors` vectors are read. */
static enum sotto_status run_squares(const struct work *on, struct squares_work *s, int vectors)
{
    double bytes = 0;
    s->dev = on->dev;
    for (int i = 0; i < s->n; i++)
        bytes += vectors * (double)dtype_size(s->p[i].x.type) * (double)s->p[i].count;
    return work_run(on, squares_job, s, bytes);
}

enum sotto_status work_sum_squares(const struct work *on, const struct vector_pair *p, int n,
                                   double *sum)
{
    struct squares_work s = {.p = p, .n = n};
    TRY(run_squares(on, &s, 1));
    *sum = s.sum;
    return SOTTO_OK;
}

enum sotto_status work_distances(const struct work *on, const struct vector_pair *p, int n,
                                 double *each)
{
    return run_squares(on, &(struct squares_work){.p = p, .n = n, .each = each}, 2);
}

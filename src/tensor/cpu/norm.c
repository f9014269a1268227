/* Layer norm and RMS norm: rows over threads. The gradients of gain and bias are summed over
 * blocks of rows, then over the blocks in order; the blocks follow from the number of rows
 * alone. */
#include "tensor/cpu/cpu.h"

enum { BLOCKS = 32 };

/* Scratch of one op: gain and bias as fp32, three rows for each thread, partial sums. */
struct norm_plan {
    const struct kernels *k;
    const float *gain, *bias;
    float *rooms;    /* (threads, 3, width)            */
    float *partials; /* (blocks, sums, width), zeroed  */
    int blocks, block_rows, sums;
};

static bool norm_plan_init(struct norm_plan *plan, struct device *dev, const struct norm *p,
                           struct view gain, struct view bias, int sums)
{
    size_t width = (size_t)p->width;
    *plan = (struct norm_plan){.k = kernels_of(dev), .sums = sums};
    plan->block_rows = (p->rows + BLOCKS - 1) / BLOCKS;
    plan->blocks = p->rows ? (p->rows + plan->block_rows - 1) / plan->block_rows : 0;
    size_t partials = (size_t)plan->blocks * (size_t)sums * width;
    const size_t floats[] = {width, width, 3 * width * (size_t)dev->threads, partials};
    struct room room = cpu_room(dev, floats, 4);
    if (!room.data)
        return false;
    plan->gain = load_floats(plan->k, gain, 0, width, cpu_take(&room, floats[0]));
    plan->bias = load_floats(plan->k, bias, 0, width, cpu_take(&room, floats[1]));
    plan->rooms = cpu_take(&room, floats[2]);
    plan->partials = cpu_take(&room, floats[3]);
    memset(plan->partials, 0, partials * sizeof(float));
    return true;
}

/* d += sum number `sum` of all blocks. */
static void add_partials(const struct norm_plan *plan, struct view d, int sum, size_t width)
{
    if (!d.data)
        return;
    float *total = load_floats(plan->k, d, 0, width, plan->rooms);
    for (int b = 0; b < plan->blocks; b++)
        plan->k->vector->add(total, plan->partials + (size_t)(b * plan->sums + sum) * width, width);
    store_floats(plan->k, d, 0, width, total);
}

/* Layer norm, or RMS norm with `rms` (and no bias). */
static void norm_rows(struct device *dev, const struct norm *p, struct view y, struct view x,
                      struct view gain, struct view bias, struct view stats, bool rms)
{
    struct norm_plan plan;
    size_t width = (size_t)p->width;
    if (!norm_plan_init(&plan, dev, p, gain, bias, 0))
        return;
    const struct norm_kernels *f = plan.k->norm;
#pragma omp parallel num_threads(team_size(dev, width *(size_t)p->rows))
    {
#pragma omp for schedule(static) nowait
        for (int r = 0; r < p->rows; r++) {
            float *room = plan.rooms + 3 * width * (size_t)thread_index();
            float *stat = (float *)stats.data + 2 * r;
            size_t at = (size_t)r * width;
            float *out = place_to_send(plan.k, y, at, room);
            const float *in = load_floats(plan.k, x, at, width, room + width);
            if (rms)
                f->rms_forward(out, in, plan.gain, stat, p->width, p->eps);
            else
                f->layer_forward(out, in, plan.gain, plan.bias, stat, p->width, p->eps);
            send_floats(plan.k, y, at, width, out);
        }
        finish_sending(plan.k);
    }
}

void cpu_layernorm_forward(struct device *dev, const struct norm *p, struct view y, struct view x,
                           struct view gain, struct view bias, struct view stats)
{
    norm_rows(dev, p, y, x, gain, bias, stats, false);
}

/* Returns where to compute a row of dx. If dx is also an input, the row is in this thread's
 * cache and is not sent past the caches. */
static float *place_dx(const struct norm_plan *plan, struct view dx, struct view dy,
                       struct view from, size_t at, float *room)
{
    const bool read = dx.data == dy.data || dx.data == from.data;
    return read ? place_floats(dx, at, room) : place_to_send(plan->k, dx, at, room);
}

/* Backward pass of layer norm, or with `rms` of RMS norm, without a dbias. */
static void norm_rows_backward(struct device *dev, const struct norm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dy, struct view x,
                               struct view gain, struct view stats, struct view from, bool rms)
{
    struct norm_plan plan;
    size_t width = (size_t)p->width;
    if (!norm_plan_init(&plan, dev, p, gain, view_none, rms ? 1 : 2))
        return;
    const struct norm_kernels *f = plan.k->norm;
#pragma omp parallel num_threads(team_size(dev, width *(size_t)p->rows))
    {
#pragma omp for schedule(static) nowait
        for (int b = 0; b < plan.blocks; b++) {
            float *room = plan.rooms + 3 * width * (size_t)thread_index();
            float *sums = plan.partials + (size_t)plan.sums * width * (size_t)b;
            float *gains = dgain.data ? sums : NULL, *biases = dbias.data ? sums + width : NULL;
            int end = min_int(p->rows, (b + 1) * plan.block_rows);
            for (int r = b * plan.block_rows; r < end; r++) {
                const size_t at = (size_t)r * width;
                const float *stat = (const float *)stats.data + 2 * r;
                float *out = place_dx(&plan, dx, dy, from, at, room);
                const float *sum = load_floats(plan.k, from, at, width, room);
                const float *d = load_floats(plan.k, dy, at, width, room + width);
                const float *in = load_floats(plan.k, x, at, width, room + 2 * width);
                if (rms)
                    f->rms_backward(out, gains, d, in, plan.gain, stat, sum, p->width);
                else
                    f->layer_backward(out, gains, biases, d, in, plan.gain, stat, sum, p->width);
                send_floats(plan.k, dx, at, width, out);
            }
        }
        finish_sending(plan.k);
    }
    add_partials(&plan, dgain, 0, width);
    add_partials(&plan, dbias, 1, width);
}

void cpu_layernorm_backward(struct device *dev, const struct norm *p, struct view dx,
                            struct view dgain, struct view dbias, struct view dy, struct view x,
                            struct view gain, struct view stats, struct view from)
{
    norm_rows_backward(dev, p, dx, dgain, dbias, dy, x, gain, stats, from, false);
}

void cpu_rmsnorm_forward(struct device *dev, const struct norm *p, struct view y, struct view x,
                         struct view gain, struct view stats)
{
    norm_rows(dev, p, y, x, gain, view_none, stats, true);
}

void cpu_rmsnorm_backward(struct device *dev, const struct norm *p, struct view dx,
                          struct view dgain, struct view dy, struct view x, struct view gain,
                          struct view stats, struct view from)
{
    norm_rows_backward(dev, p, dx, dgain, view_none, dy, x, gain, stats, from, true);
}

/* Batch norm: blocks of rows over threads; the blocks follow from the shape alone, and their sums
 * are added in order, in double precision.
 *
 * Moments are taken about the first row, so that one pass over x suffices without losing digits
 * where the mean is far from zero. */
#include <math.h>

#include "tensor/cpu/cpu.h"

enum {
    BLOCKS = 64,
    PIECE = 4096 /* elements widened at once; a row if that is longer */
};

struct batchnorm_plan {
    const struct kernels *k;
    size_t rows, width;
    size_t blocks, block_rows; /* for sums                       */
    size_t piece_rows;         /* rows of a kernel's call */
    size_t pieces;             /* kernel calls for all rows */
    float *partials;           /* (blocks, 2, width), zeroed     */
    float *sums;               /* (2, width)                     */
    float *scale, *shift;      /* (width): widened parameters    */
    float *rooms;              /* (threads, 5, piece): widened inputs, results before rounding */
    size_t piece;
};

static bool batchnorm_plan_init(struct batchnorm_plan *plan, struct device *dev,
                                const struct batchnorm *p)
{
    const size_t rows = (size_t)p->rows, width = (size_t)p->width;
    *plan = (struct batchnorm_plan){.k = kernels_of(dev), .rows = rows, .width = width};
    plan->piece_rows = width < PIECE ? PIECE / width : 1;
    plan->pieces = (rows + plan->piece_rows - 1) / plan->piece_rows;
    plan->block_rows = round_up((rows + BLOCKS - 1) / BLOCKS, plan->piece_rows);
    plan->blocks = (rows + plan->block_rows - 1) / plan->block_rows;
    plan->piece = plan->piece_rows * width;
    const size_t floats[] = {2 * width * plan->blocks, 2 * width, width, width,
                             5 * plan->piece * (size_t)dev->threads};
    struct room room = cpu_room(dev, floats, 5);
    if (!room.data)
        return false;
    plan->partials = cpu_take(&room, floats[0]);
    plan->sums = cpu_take(&room, floats[1]);
    plan->scale = cpu_take(&room, floats[2]);
    plan->shift = cpu_take(&room, floats[3]);
    plan->rooms = cpu_take(&room, floats[4]);
    memset(plan->partials, 0, floats[0] * sizeof(float));
    return true;
}

static float *piece_room(const struct batchnorm_plan *plan, int which)
{
    return plan->rooms + (size_t)(5 * thread_index() + which) * plan->piece;
}

/* Returns sum number `which` (0 or 1) of column c over all blocks. */
static double block_total(const struct batchnorm_plan *plan, int which, size_t c)
{
    double sum = 0;
    for (size_t b = 0; b < plan->blocks; b++)
        sum += plan->partials[(2 * b + (size_t)which) * plan->width + c];
    return sum;
}

static void sum_rows(struct device *dev, const struct batchnorm_plan *plan, struct view x,
                     const float *pivot)
{
    (void)dev; /* without OpenMP */
    const size_t width = plan->width;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, plan->rows *width))
    for (size_t b = 0; b < plan->blocks; b++) {
        const size_t end = min_size(plan->rows, (b + 1) * plan->block_rows);
        for (size_t r = b * plan->block_rows; r < end; r += plan->piece_rows) {
            const size_t n = min_size(plan->piece_rows, end - r);
            plan->k->image->batch_sums(
                plan->partials + 2 * b * width,
                load_floats(plan->k, x, r * width, n * width, piece_room(plan, 0)), pivot, n,
                width);
        }
    }
}

/* Writes mean and rstd of the rows to `stats`, and moves the running statistics towards them. */
static void measure_batch(const struct batchnorm_plan *plan, const struct batchnorm *p,
                          const float *pivot, float *stats, float *running_mean,
                          float *running_variance)
{
    const double n = (double)plan->rows, m = (double)p->momentum;
    for (size_t c = 0; c < plan->width; c++) {
        const double off = block_total(plan, 0, c) / n, mean = pivot[c] + off;
        const double spread = block_total(plan, 1, c) / n - off * off;
        const double variance = spread < 0 ? 0 : spread; /* NaN stays NaN */
        stats[c] = (float)mean;
        stats[plan->width + c] = (float)(1 / sqrt(variance + (double)p->eps));
        if (!running_mean)
            continue;
        const double unbiased = plan->rows > 1 ? variance * n / (n - 1) : variance;
        running_mean[c] = (float)((1 - m) * running_mean[c] + m * mean);
        running_variance[c] = (float)((1 - m) * running_variance[c] + m * unbiased);
    }
}

void cpu_batchnorm_forward(struct device *dev, const struct batchnorm *p, struct view y,
                           struct view x, struct view gain, struct view bias, struct view residual,
                           struct view running_mean, struct view running_variance,
                           struct view stats)
{
    struct batchnorm_plan plan;
    const size_t width = (size_t)p->width;
    float *mean = stats.data, *rstd = mean + width;
    if (!p->rows || !batchnorm_plan_init(&plan, dev, p))
        return;
    if (p->training && !p->given) {
        const float *pivot = load_floats(plan.k, x, 0, width, plan.scale);
        sum_rows(dev, &plan, x, pivot);
        measure_batch(&plan, p, pivot, mean, running_mean.data, running_variance.data);
    } else if (!p->given) {
        for (size_t c = 0; c < width; c++) {
            mean[c] = ((const float *)running_mean.data)[c];
            rstd[c] = 1 / sqrtf(((const float *)running_variance.data)[c] + p->eps);
        }
    }
    const float *scale = load_floats(plan.k, gain, 0, width, plan.scale);
    for (size_t c = 0; c < width; c++)
        plan.scale[c] = scale[c] * rstd[c];
    const float *shift = load_floats(plan.k, bias, 0, width, plan.shift);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, plan.rows *width))
    for (size_t i = 0; i < plan.pieces; i++) {
        const size_t r = i * plan.piece_rows, n = min_size(plan.piece_rows, plan.rows - r);
        const size_t at = r * width, count = n * width;
        float *out = place_floats(y, at, piece_room(&plan, 0));
        plan.k->image->batch_forward(out, load_floats(plan.k, x, at, count, piece_room(&plan, 1)),
                                     load_floats(plan.k, residual, at, count, piece_room(&plan, 2)),
                                     mean, plan.scale, shift, p->relu, n, width);
        store_floats(plan.k, y, at, count, out);
    }
}

static void sum_rows_backward(struct device *dev, const struct batchnorm_plan *plan, struct view dy,
                              struct view x, struct view y, const float *mean)
{
    (void)dev; /* without OpenMP */
    const size_t width = plan->width;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, plan->rows *width))
    for (size_t b = 0; b < plan->blocks; b++) {
        const size_t end = min_size(plan->rows, (b + 1) * plan->block_rows);
        for (size_t r = b * plan->block_rows; r < end; r += plan->piece_rows) {
            const size_t n = min_size(plan->piece_rows, end - r), at = r * width;
            plan->k->image->batch_sums_backward(
                plan->partials + 2 * b * width,
                load_floats(plan->k, dy, at, n * width, piece_room(plan, 0)),
                load_floats(plan->k, x, at, n * width, piece_room(plan, 1)),
                load_floats(plan->k, y, at, n * width, piece_room(plan, 2)), mean, n, width);
        }
    }
}

/* dgain, dbias += the sums; plan->sums = the parts that every row's gradient loses. */
static void spread_sums(const struct batchnorm_plan *plan, const struct batchnorm *p,
                        const float *rstd, struct view dgain, struct view dbias)
{
    const size_t width = plan->width;
    const double n = (double)plan->rows;
    float *dg = load_floats(plan->k, dgain, 0, width, piece_room(plan, 0));
    float *db = load_floats(plan->k, dbias, 0, width, piece_room(plan, 1));
    for (size_t c = 0; c < width; c++) {
        const double sum = block_total(plan, 0, c), hat = block_total(plan, 1, c) * rstd[c];
        if (dg)
            dg[c] += (float)hat;
        if (db)
            db[c] += (float)sum;
        plan->sums[c] = p->training ? (float)(sum / n) : 0;
        plan->sums[width + c] = p->training ? (float)(hat * rstd[c] / n) : 0;
    }
    store_floats(plan->k, dgain, 0, width, dg);
    store_floats(plan->k, dbias, 0, width, db);
}

void cpu_batchnorm_backward(struct device *dev, const struct batchnorm *p, struct view dx,
                            struct view dgain, struct view dbias, struct view dresidual,
                            struct view dy, struct view x, struct view y, struct view gain,
                            struct view stats)
{
    struct batchnorm_plan plan;
    const size_t width = (size_t)p->width;
    const float *mean = stats.data, *rstd = mean + width;
    const struct view mask = p->relu ? y : view_none;
    if (!p->rows || !batchnorm_plan_init(&plan, dev, p))
        return;
    sum_rows_backward(dev, &plan, dy, x, mask, mean);
    spread_sums(&plan, p, rstd, dgain, dbias);
    const float *scale = load_floats(plan.k, gain, 0, width, plan.scale);
    for (size_t c = 0; c < width; c++)
        plan.scale[c] = scale[c] * rstd[c];
#pragma omp parallel for schedule(static) num_threads(team_size(dev, plan.rows *width))
    for (size_t i = 0; i < plan.pieces; i++) {
        const size_t r = i * plan.piece_rows, n = min_size(plan.piece_rows, plan.rows - r);
        const size_t at = r * width, count = n * width;
        float *out = place_floats(dx, at, piece_room(&plan, 0));
        float *rest = place_floats(dresidual, at, piece_room(&plan, 1));
        plan.k->image->batch_backward(out, rest,
                                      load_floats(plan.k, dy, at, count, piece_room(&plan, 2)),
                                      load_floats(plan.k, x, at, count, piece_room(&plan, 3)),
                                      load_floats(plan.k, mask, at, count, piece_room(&plan, 4)),
                                      mean, plan.scale, plan.sums, n, width);
        store_floats(plan.k, dx, at, count, out);
        store_floats(plan.k, dresidual, at, count, rest);
    }
}

/* Cuts a matrix product: the depth by the shape alone, rows and columns also by the number of
 * threads. Also computes the scratch of packed operands. */
#include "tensor/cpu/gemm/plan.h"

#include <assert.h>
#include <math.h>

enum {
    DEPTH = 768,   /* k of a slice: a tile's strips stay in the second cache     */
    ROOM_M = 2048, /* rows of a and columns of b that a few threads pack at once */
    ROOM_N = 2048,
    BLOCK = 5 << 16, /* floats of a packed block of rows, which stays in the second cache */
    COLUMNS = 32,    /* columns of a part of a block: a multiple of every kernel's */
    PACKING = 64,    /* time to pack an element, in multiplications */
    SUMS = 1 << 22   /* largest scratch for sums of slices at once, in floats */
};

/* Returns the largest depth of a slice. bf16 takes half the space, and a deeper slice moves sums
 * less often. */
static int deepest_slice(const struct gemm_kernels *f)
{
    return f->halves == 1 ? 2 * DEPTH : DEPTH;
}

int cpu_gemm_slice(const struct device *dev, bool half)
{
    return deepest_slice(gemm_of(dev, half));
}

size_t cpu_gemm_tiles(const struct device *dev, int k, bool half)
{
    const struct gemm_kernels *f = gemm_of(dev, half);
    if (dev->threads <= few_threads(dev) || k > deepest_slice(f))
        return 0;
    return (size_t)dev->threads * (size_t)f->tile_rows * (size_t)f->tile_columns;
}

/* Chooses the largest tile if every thread then has a few tiles. Otherwise chooses the tile with
 * which a part takes the least time, in units of the register tile: strips are read from a cache
 * that threads share, and threads wait for the last tile of another thread. */
static void choose_tile(struct gemm_plan *plan, int threads)
{
    const struct gemm_kernels *f = plan->kernels;
    const int m = min_int(plan->rows, plan->m), n = min_int(plan->columns, plan->n);
    const int down = ceil_div(m, f->rows), across = ceil_div(n, f->columns);
    plan->tile_rows = f->tile_rows;
    plan->tile_columns = f->tile_columns;
    const int enough = threads == 1 ? 1 : 2 * threads;
    if (ceil_div(m, f->tile_rows) * ceil_div(n, f->tile_columns) >= enough)
        return;
    double least = INFINITY;
    for (int r = f->tile_rows / f->rows; r > 0; r--) {
        for (int c = f->tile_columns / f->columns; c > 0; c--) {
            const double tiles_m = ceil_div(down, r), tiles_n = ceil_div(across, c);
            const double turns = tiles_m * tiles_n / threads;
            const double wait = fmax(ceil(turns) / turns, 1 + 0.5 / turns);
            const double time = wait * (down * across + down * tiles_n + across * tiles_m);
            if (time < least) {
                least = time;
                plan->tile_rows = r * f->rows;
                plan->tile_columns = c * f->columns;
            }
        }
    }
}

/* Cuts `size` into equal parts of at most `most`, rounded up to `unit`, rather than a short last
 * part. Returns the number of parts; `*each` is their size. */
static int cut_evenly(int size, int most, int unit, int *each)
{
    *each = (int)round_up((size_t)ceil_div(size, ceil_div(size, most)), (size_t)unit);
    return ceil_div(size, *each);
}

/* Returns the floats of a packed block of rows. Products of bf16 are fast; a smaller block leaves
 * more of the second cache to columns and results. */
static size_t block_size(const struct gemm_kernels *f)
{
    return f->halves == 1 ? BLOCK / 2 : BLOCK;
}

/* Returns the rows of a block of which a slice stays in a thread's second cache. */
static int most_block_rows(const struct gemm_kernels *f, int depth)
{
    return (int)(block_size(f) / strip_size(f, f->rows, depth)) * f->rows;
}

/* Returns the largest number of blocks to try: more blocks, of fewer rows, keep more threads busy
 * at the end. */
static int most_blocks(const struct gemm_kernels *f, int m, int depth, int threads)
{
    const int least = ceil_div(m, most_block_rows(f, depth)),
              most = min_int(ceil_div(m, f->rows), 4 * threads);
    return least > most ? least : most;
}

/* Returns the largest number of slices at once. Threads that would share a block's columns may take
 * different slices of the block; with two slices the sums would cost more than is saved. */
static int most_abreast(int deep, int threads, int blocks)
{
    const int owners = threads / blocks;
    return owners > 1 && deep > 2 ? min_int(owners, deep) : 1;
}

/* Returns the floats of separate sums; 0 if slices run one after the other. */
static size_t sums_room(size_t m, size_t n, int abreast)
{
    return abreast > 1 ? m * n * (size_t)abreast : 0;
}

/* Returns the time of `abreast` slices at once, in blocks of `rows` rows: a thread packs its blocks
 * of each slice and the columns of each part; half of the slices store their sums separately. */
static double time_at_once(const struct gemm_plan *plan, int threads, int rows, int down,
                           int abreast)
{
    const int blocks = down * abreast;
    const double parts = ceil_div(blocks * plan->across, threads);
    return parts * COLUMNS * (rows + PACKING) + (double)ceil_div(blocks, threads) * rows * PACKING +
           parts * COLUMNS * rows * PACKING * (abreast - 1) / (2.0 * abreast * plan->depth);
}

static double block_time(const struct gemm_plan *plan, int threads, int rows, int down, int abreast)
{
    const int last = plan->deep % abreast;
    return plan->deep / abreast * time_at_once(plan, threads, rows, down, abreast) +
           (last ? time_at_once(plan, threads, rows, down, last) : 0);
}

/* Chooses the blocks of rows, and the slices at once, with the least time. */
static void choose_blocks(struct gemm_plan *plan, int threads)
{
    const struct gemm_kernels *f = plan->kernels;
    const int m = plan->m, strips = ceil_div(m, f->rows);
    double least = INFINITY;
    assert(COLUMNS % f->columns == 0);
    plan->columns = COLUMNS;
    plan->across = ceil_div(plan->n, COLUMNS);
    const int most = most_blocks(f, m, plan->depth, threads);
    for (int down = ceil_div(m, most_block_rows(f, plan->depth)); down <= most; down++) {
        const int rows = ceil_div(strips, down) * f->rows, blocks = ceil_div(m, rows);
        for (int abreast = 1; abreast <= most_abreast(plan->deep, threads, blocks); abreast++) {
            const size_t wide = (size_t)plan->across * COLUMNS;
            const double time = block_time(plan, threads, rows, blocks, abreast);
            if (time >= least || sums_room((size_t)(rows * blocks), wide, abreast) > SUMS)
                continue;
            least = time;
            plan->rows = rows, plan->down = blocks, plan->abreast = abreast;
        }
    }
    const int part = COLUMNS * (plan->rows + PACKING);
    const int owners = ceil_div(threads, plan->down * plan->abreast);
    plan->help = owners * (part + plan->rows * PACKING) / part + 1;
    plan->tile_rows = f->tile_rows, plan->tile_columns = COLUMNS;
}

/* Returns the floats of the packed operands of a small team. */
static size_t few_room(const struct gemm_kernels *f, int m, int n, int depth)
{
    return strip_size(f, (int)round_up((size_t)min_int(m, ROOM_M), (size_t)f->rows), depth) +
           strip_size(f, (int)round_up((size_t)min_int(n, ROOM_N), (size_t)f->columns), depth);
}

/* Returns the floats of a packed block of rows of a thread of a large team. */
static size_t block_room(const struct gemm_kernels *f, int m, int depth)
{
    return min_size(strip_size(f, (int)round_up((size_t)m, (size_t)f->rows), depth), block_size(f));
}

/* Returns the floats of the packed operands of a thread of a large team. */
static size_t own_room(const struct gemm_kernels *f, int m, int depth)
{
    return round_up(block_room(f, m, depth) + strip_size(f, COLUMNS, depth), 16);
}

/* Returns the number of counters; `left`: blocks times slices at once. */
static size_t counters_room(int deep, int down, int across, int left)
{
    return round_up((size_t)down * (size_t)deep + (size_t)across * (size_t)(down + left), 16);
}

static void place_counters(struct gemm_plan *plan, float *room)
{
    const size_t places = (size_t)plan->down * (size_t)plan->across;
    const size_t counters =
        counters_room(plan->deep, plan->down, plan->across, plan->down * plan->abreast);
    plan->taken = (atomic_int *)(void *)room;
    plan->added = plan->taken + (size_t)plan->deep * (size_t)plan->down;
    plan->left = plan->added + places;
    plan->sums = room + counters;
    memset(plan->taken, 0, counters * sizeof(atomic_int));
}

static struct gemm_plan start_plan(const struct device *dev, int m, int n, int k, bool half,
                                   float *room, int threads)
{
    struct gemm_plan plan = {.m = m,
                             .n = n,
                             .threads = threads,
                             .vector = kernels_of(dev)->vector,
                             .kernels = gemm_of(dev, half),
                             .a = room};
    plan.deep = cut_evenly(k, deepest_slice(plan.kernels), 1, &plan.depth);
    return plan;
}

struct gemm_plan gemm_plan_many(const struct device *dev, int m, int n, int k, bool half,
                                float *room, int threads)
{
    struct gemm_plan plan = start_plan(dev, m, n, k, half, room, threads);
    const struct gemm_kernels *f = plan.kernels;
    choose_blocks(&plan, threads);
    plan.send = f->send_block && dev->threads > MANY_THREADS;
    plan.thread_stride = own_room(f, m, plan.depth);
    plan.b = plan.a + block_room(f, m, plan.depth);
    place_counters(&plan, plan.a + plan.thread_stride * (size_t)dev->threads);
    return plan;
}

struct gemm_plan gemm_plan_of(const struct device *dev, int m, int n, int k, bool half, float *room,
                              int threads)
{
    if (threads > few_threads(dev))
        return gemm_plan_many(dev, m, n, k, half, room, threads);
    struct gemm_plan plan = start_plan(dev, m, n, k, half, room, threads);
    const struct gemm_kernels *f = plan.kernels;
    plan.down = cut_evenly(m, ROOM_M, f->rows, &plan.rows);
    plan.across = cut_evenly(n, ROOM_N, f->columns, &plan.columns);
    plan.b = plan.a + strip_size(f, plan.rows, plan.depth);
    choose_tile(&plan, threads);
    return plan;
}

/* Returns the floats of separate sums for any number of slices at once that this product or a
 * smaller product may have. */
static size_t abreast_room(const struct gemm_kernels *f, int m, int n, int deep, int threads)
{
    const int abreast = most_abreast(deep, threads, 1);
    const size_t rows = round_up((size_t)m, (size_t)f->rows) + (size_t)(threads * f->rows);
    return min_size(sums_room(rows, round_up((size_t)n, COLUMNS), abreast), SUMS);
}

size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half)
{
    const struct gemm_kernels *f = gemm_of(dev, half);
    const int depth = min_int(k, deepest_slice(f)), deep = ceil_div(k, deepest_slice(f));
    const int threads = dev->threads;
    const size_t few = few_room(f, m, n, depth);
    if (threads <= few_threads(dev))
        return few;
    const int down =
        most_blocks(f, m, depth, threads); /* blocks; times slices at once: `threads` at most */
    const size_t counters =
        counters_room(deep, down, ceil_div(n, COLUMNS), down > threads ? down : threads);
    const size_t many =
        own_room(f, m, depth) * (size_t)threads + counters + abreast_room(f, m, n, deep, threads);
    return many > few ? many : few;
}

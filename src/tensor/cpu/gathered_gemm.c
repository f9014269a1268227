/* Products of gathered matrices, with the kernels of all matrix products.
 *
 * There is one thin operand and one that is much larger than memory should hold, so the larger one
 * is packed by the thread that multiplies it, a tile at a time that stays in the second cache.
 * Tiles follow from the shape alone, and a tile is one thread's: bits do not depend on threads. */
#include "tensor/cpu/gathered.h"

enum {
    WIDEST = 32,       /* rows or columns of a strip, of any kernel                  */
    STEP = 128,        /* gathered at once, a multiple of every kernel's depth       */
    DEPTH = 512,       /* k of a packed tile of a row product                        */
    TILE_ROWS = 256,   /* of it                                                      */
    SUM_DEPTH = 256,   /* k of the packed tiles of a sum product                     */
    SUM_TILE = 512,    /* rows and columns of c that one thread sums                 */
    SUM_SHARES = 16,   /* parts, at least, that a sum product is cut into, if it is long enough */
    SUM_LONG = 1024,   /* rows of a and b that are worth a share                     */
    SUM_ROOM = 4 << 20 /* floats that shares of c may take                         */
};

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static const struct gemm_kernels *chosen(const struct device *dev, bool half)
{
    return half ? kernels_of(dev)->gemm_half : kernels_of(dev)->gemm;
}

/* Floats of a packed strip of `width` rows or columns. */
static size_t strip_size(const struct gemm_kernels *f, int width, int k)
{
    return (size_t)width * round_up((size_t)k, (size_t)f->depth) * (size_t)f->halves / 2;
}

typedef void pack_strip(float *strip, const float *x, size_t ld, int n, int k, bool turned);

/* Rows [row, row + n) of m, columns [l, l + k), are the n rows or columns of a strip. */
static void pack_rows(const struct kernels *kernels, const struct gemm_kernels *f, pack_strip *pack,
                      int width, struct gathered m, float *strip, size_t row, int n, int l, int k)
{
    float block[WIDEST * STEP] __attribute__((aligned(64)));
    for (int at = 0; at < k; at += STEP) {
        const int deep = min_int(STEP, k - at);
        cpu_gather(kernels, m, block, STEP, row, n, l + at, deep);
        pack(strip + strip_size(f, width, at), block, STEP, n, deep, true);
    }
}

/* Rows [l, l + k) of m are the depth of strips of `width`, side by side, for columns [column,
 * column + n). */
static void pack_depth(const struct kernels *kernels, const struct gemm_kernels *f,
                       pack_strip *pack, int width, struct gathered m, float *strips, size_t l,
                       int k, int column, int n)
{
    float block[WIDEST * STEP] __attribute__((aligned(64)));
    const int step = STEP / width * width;
    for (int at = 0; at < k; at += WIDEST) {
        const int deep = min_int(WIDEST, k - at);
        for (int j = 0; j < n; j += step) {
            const int columns = min_int(step, n - j);
            cpu_gather(kernels, m, block, STEP, l + (size_t)at, deep, column + j, columns);
            for (int i = 0; i < columns; i += width)
                pack(strips + strip_size(f, j + i, k) + strip_size(f, width, at), block + i, STEP,
                     min_int(width, columns - i), deep, false);
        }
    }
}

/* How a row product is cut. */
struct row_plan {
    const struct gemm_kernels *f;
    int depth, parts; /* of k */
    int rows;         /* of a tile */
    size_t tiles;
    size_t b_size, a_size, c_size; /* floats: all of b; a tile of a, of c */
};

static bool in_place(const struct row_product *p)
{
    return p->step == 1 && p->c.type == DTYPE_F32;
}

static struct row_plan plan_rows(const struct device *dev, const struct row_product *p)
{
    struct row_plan plan = {.f = chosen(dev, p->half)};
    const struct gemm_kernels *f = plan.f;
    plan.depth = (int)round_up((size_t)ceil_div(p->k, ceil_div(p->k, DEPTH)), (size_t)f->depth);
    plan.parts = ceil_div(p->k, plan.depth);
    const size_t eighth = round_up((p->m + 7) / 8, (size_t)f->rows);
    plan.rows = (int)min_size(round_up(TILE_ROWS, (size_t)f->rows), eighth);
    plan.tiles = (p->m + (size_t)plan.rows - 1) / (size_t)plan.rows;
    const int columns = (int)round_up((size_t)p->n, (size_t)f->columns);
    plan.b_size = strip_size(f, columns, plan.depth) * (size_t)plan.parts;
    plan.a_size = round_up(strip_size(f, plan.rows, plan.depth), 16);
    plan.c_size = in_place(p) ? 0 : round_up((size_t)plan.rows * (size_t)p->n, 16);
    return plan;
}

size_t cpu_row_product_room(const struct device *dev, const struct row_product *p)
{
    const struct row_plan plan = plan_rows(dev, p);
    return plan.b_size + (plan.a_size + plan.c_size) * (size_t)dev->threads;
}

static float *part_of_b(const struct row_plan *plan, const struct row_product *p, float *b,
                        int part)
{
    const int columns = (int)round_up((size_t)p->n, (size_t)plan->f->columns);
    return b + (size_t)part * strip_size(plan->f, columns, plan->depth);
}

/* Strip `index` of b, over all parts. */
static void pack_b_strip(const struct kernels *kernels, const struct row_plan *plan,
                         const struct row_product *p, float *b, int index)
{
    const struct gemm_kernels *f = plan->f;
    const int j = index * f->columns, n = min_int(f->columns, p->n - j);
    for (int part = 0; part < plan->parts; part++) {
        const int l = part * plan->depth, k = min_int(plan->depth, p->k - l);
        float *strip = part_of_b(plan, p, b, part) + strip_size(f, j, k);
        if (p->b_turned)
            pack_rows(kernels, f, f->pack_b, f->columns, p->b, strip, (size_t)j, n, l, k);
        else
            pack_depth(kernels, f, f->pack_b, f->columns, p->b, strip, (size_t)l, k, j, n);
    }
}

/* Rows of a tile to where they belong. */
static void spread_rows(const struct kernels *k, const struct row_product *p, const float *tile,
                        size_t first, int rows)
{
    const size_t n = (size_t)p->n, wide = (size_t)p->wide, tall = (size_t)p->tall;
    for (int r = 0; r < rows; r++, tile += n) {
        const size_t row = first + (size_t)r, image = row / (tall * wide);
        const size_t y = (size_t)p->first_y + row / wide % tall * (size_t)p->step;
        const size_t x = (size_t)p->first_x + row % wide * (size_t)p->step;
        const size_t at = ((image * (size_t)p->h + y) * (size_t)p->w + x) * n;
        for (size_t c = 0; c < n; c += STEP) {
            float room[STEP];
            const size_t size = min_size(STEP, n - c);
            if (p->add) {
                float *sum = load(k, p->c, at + c, size, room);
                k->vector->add(sum, tile + c, size);
                store(k, p->c, at + c, size, sum);
            } else {
                store(k, p->c, at + c, size, tile + c);
            }
        }
    }
}

static void multiply_rows(const struct kernels *kernels, const struct row_plan *plan,
                          const struct row_product *p, float *b, float *a, float *room, size_t tile)
{
    const struct gemm_kernels *f = plan->f;
    const size_t first = tile * (size_t)plan->rows, n = (size_t)p->n;
    const int rows = (int)min_size((size_t)plan->rows, p->m - first);
    float *c = in_place(p) ? (float *)p->c.data + first * n : room;
    for (int part = 0; part < plan->parts; part++) {
        const int l = part * plan->depth, k = min_int(plan->depth, p->k - l);
        for (int i = 0; i < rows; i += f->rows)
            pack_rows(kernels, f, f->pack_a, f->rows, p->a, a + strip_size(f, i, k),
                      first + (size_t)i, min_int(f->rows, rows - i), l, k);
        const bool adds = part > 0 || (in_place(p) && p->add);
        f->block(rows, p->n, k, a, part_of_b(plan, p, b, part), c, n, adds ? c : NULL, n,
                 part ? NULL : p->bias);
    }
    if (!in_place(p))
        spread_rows(kernels, p, room, first, rows);
}

void cpu_row_product(struct device *dev, const struct row_product *p, float *room)
{
    const struct kernels *kernels = kernels_of(dev);
    const struct row_plan plan = plan_rows(dev, p);
    const size_t own = plan.a_size + plan.c_size, work = p->m * (size_t)p->n * (size_t)p->k / 16;
    float *b = room, *rooms = room + plan.b_size;
#pragma omp parallel num_threads(team(dev, work))
    {
        float *a = rooms + own * (size_t)thread_index();
#pragma omp for schedule(static)
        for (int i = 0; i < ceil_div(p->n, plan.f->columns); i++)
            pack_b_strip(kernels, &plan, p, b, i);
#pragma omp for schedule(dynamic)
        for (size_t tile = 0; tile < plan.tiles; tile++)
            multiply_rows(kernels, &plan, p, b, a, a + plan.a_size, tile);
    }
}

/* How a sum product is cut: shares of k, tiles of c. */
struct sum_plan {
    const struct gemm_kernels *f;
    int rows, columns, down, across; /* of a tile; tiles */
    int shares;
    size_t length; /* rows of a share */
    size_t a_size, b_size, c_size;
};

/* Equal tiles of at most SUM_TILE; an even number of them, where there are several. */
static int tile_side(int n, int unit)
{
    int tiles = ceil_div(n, SUM_TILE);
    tiles += tiles > 1 && tiles % 2;
    return (int)round_up((size_t)ceil_div(n, tiles), (size_t)unit);
}

static struct sum_plan plan_sums(const struct device *dev, const struct sum_product *p)
{
    struct sum_plan plan = {.f = chosen(dev, p->half)};
    const struct gemm_kernels *f = plan.f;
    plan.rows = tile_side(p->m, f->rows);
    plan.columns = tile_side(p->n, f->columns);
    plan.down = ceil_div(p->m, plan.rows);
    plan.across = ceil_div(p->n, plan.columns);
    const size_t c = (size_t)p->m * (size_t)p->n, tiles = (size_t)(plan.down * plan.across);
    size_t shares =
        min_size(min_size((SUM_SHARES + tiles - 1) / tiles, p->k / SUM_LONG), SUM_ROOM / c);
    shares = shares ? shares : 1;
    plan.length = round_up((p->k + shares - 1) / shares, SUM_DEPTH);
    plan.shares = (int)((p->k + plan.length - 1) / plan.length);
    plan.a_size = round_up(strip_size(f, plan.rows, SUM_DEPTH), 16);
    plan.b_size = round_up(strip_size(f, plan.columns, SUM_DEPTH), 16);
    plan.c_size = plan.shares > 1 ? c : 0;
    return plan;
}

size_t cpu_sum_product_room(const struct device *dev, const struct sum_product *p)
{
    const struct sum_plan plan = plan_sums(dev, p);
    return (plan.a_size + plan.b_size) * (size_t)dev->threads + plan.c_size * (size_t)plan.shares;
}

/* One tile of c over one share of k. */
static void sum_tile(const struct kernels *kernels, const struct sum_plan *plan,
                     const struct sum_product *p, int share, int tile, float *a, float *b, float *c)
{
    const struct gemm_kernels *f = plan->f;
    const int i = tile % plan->down * plan->rows, j = tile / plan->down * plan->columns;
    const int m = min_int(plan->rows, p->m - i), n = min_int(plan->columns, p->n - j);
    const size_t ld = (size_t)p->n, start = (size_t)share * plan->length;
    const size_t end = min_size(p->k, start + plan->length);
    c += (size_t)i * ld + (size_t)j;
    for (size_t l = start; l < end; l += SUM_DEPTH) {
        const int k = (int)min_size(SUM_DEPTH, end - l);
        const bool adds = plan->shares == 1 || l > start;
        pack_depth(kernels, f, f->pack_a, f->rows, p->a, a, l, k, i, m);
        pack_depth(kernels, f, f->pack_b, f->columns, p->b, b, l, k, j, n);
        f->block(m, n, k, a, b, c, ld, adds ? c : NULL, ld, NULL);
    }
}

void cpu_sum_product(struct device *dev, const struct sum_product *p, float *room)
{
    const struct kernels *kernels = kernels_of(dev);
    const struct sum_plan plan = plan_sums(dev, p);
    const size_t own = plan.a_size + plan.b_size, count = (size_t)p->m * (size_t)p->n;
    const size_t work = count * p->k / 16;
    float *shares = room + own * (size_t)dev->threads;
    const int tiles = plan.down * plan.across;
#pragma omp parallel num_threads(team(dev, work))
    {
        float *a = room + own * (size_t)thread_index(), *b = a + plan.a_size;
#pragma omp for schedule(dynamic)
        for (int i = 0; i < tiles * plan.shares; i++)
            sum_tile(kernels, &plan, p, i / tiles, i % tiles, a, b,
                     plan.shares == 1 ? p->c : shares + (size_t)(i / tiles) * count);
#pragma omp for schedule(static)
        for (size_t at = 0; at < (plan.shares == 1 ? 0 : count); at += CHUNK)
            for (int s = 0; s < plan.shares; s++)
                kernels->vector->add(p->c + at, shares + (size_t)s * count + at,
                                     min_size(CHUNK, count - at));
    }
}

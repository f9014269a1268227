/* Products that sum over very many rows: the rows are cut into shares and the result into tiles, by
 * the shape alone. A thread packs the rows of its tile and share; shares are added in order. */
#include "tensor/cpu/gemm/products.h"

enum {
    SUM_DEPTH = PACK_DEPTH, /* rows packed at once */
    SUM_TILE = 576,         /* rows and columns of c that a thread sums */
    SUM_SHARES = 16,        /* tiles times shares, at least, if k is large enough */
    SUM_LONG = 1024,        /* rows worth a share */
    SUM_ROOM = 4 << 20      /* floats of all shares of c, at most */
};

/* The cut of a sum product: shares of k, tiles of c. */
struct sum_plan {
    const struct gemm_kernels *f;
    int rows, columns, down, across; /* of a tile; tiles */
    int shares;
    size_t length;                 /* rows of a share */
    size_t a_size, b_size, c_size; /* floats: tiles of a and b, a share of c */
    size_t split_size;             /* floats: split lines of a tile of b */
};

/* Returns the side of equal tiles of at most SUM_TILE; their number is even if there are
 * several. */
static int tile_side(int n, int unit)
{
    int tiles = ceil_div(n, SUM_TILE);
    tiles += tiles > 1 && tiles % 2;
    return (int)round_up((size_t)ceil_div(n, tiles), (size_t)unit);
}

static struct sum_plan plan_sums(const struct device *dev, const struct sum_product *p)
{
    struct sum_plan plan = {.f = gemm_of(dev, p->half)};
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
    for (size_t l = 0; l < p->k; l += SUM_DEPTH) {
        const size_t size = cpu_split_room(f, p->b.windows, l, min_size(SUM_DEPTH, p->k - l));
        plan.split_size = size > plan.split_size ? size : plan.split_size;
    }
    plan.split_size = round_up(plan.split_size, 16);
    return plan;
}

/* Returns the floats of a thread's scratch. */
static size_t sum_thread_size(const struct sum_plan *plan)
{
    return plan->a_size + plan->b_size + plan->split_size;
}

size_t cpu_sum_product_room(const struct device *dev, const struct sum_product *p)
{
    const struct sum_plan plan = plan_sums(dev, p);
    return sum_thread_size(&plan) * (size_t)dev->threads + plan.c_size * (size_t)plan.shares;
}

/* Sums a tile of c over a share of k; `own` is the thread's scratch. */
static void sum_tile(const struct kernels *kernels, const struct sum_plan *plan,
                     const struct sum_product *p, int share, int tile, float *own, float *c)
{
    const struct gemm_kernels *f = plan->f;
    const int i = tile % plan->down * plan->rows, j = tile / plan->down * plan->columns;
    const int m = min_int(plan->rows, p->m - i), n = min_int(plan->columns, p->n - j);
    const size_t ld = (size_t)p->n, start = (size_t)share * plan->length;
    const size_t end = min_size(p->k, start + plan->length);
    float *a = own, *b = a + plan->a_size;
    const struct strip_packer left = {kernels, f, SIDE_LEFT, p->a, NULL, 0};
    struct strip_packer right = {kernels, f, SIDE_RIGHT, p->b, NULL, 0};
    c += (size_t)i * ld + (size_t)j;
    for (size_t l = start; l < end; l += SUM_DEPTH) {
        const int k = (int)min_size(SUM_DEPTH, end - l);
        const bool adds = plan->shares == 1 || l > start;
        cpu_split(&right, l, (size_t)k, b + plan->b_size);
        cpu_pack_depth(&left, a, k, l, k, i, m);
        cpu_pack_depth(&right, b, k, l, k, j, n);
        f->block(m, n, k, a, b, c, ld, adds ? c : NULL, ld, NULL);
    }
}

void cpu_sum_product(struct device *dev, const struct sum_product *p, float *room)
{
    const struct kernels *kernels = kernels_of(dev);
    const struct sum_plan plan = plan_sums(dev, p);
    const size_t own = sum_thread_size(&plan), count = (size_t)p->m * (size_t)p->n;
    const size_t work = count * p->k / 16;
    float *shares = room + own * (size_t)dev->threads;
    const int tiles = plan.down * plan.across;
    (void)work; /* without OpenMP */
#pragma omp parallel num_threads(team_size(dev, work))
    {
        float *mine = room + own * (size_t)thread_index();
#pragma omp for schedule(dynamic)
        for (int i = 0; i < tiles * plan.shares; i++)
            sum_tile(kernels, &plan, p, i / tiles, i % tiles, mine,
                     plan.shares == 1 ? p->c : shares + (size_t)(i / tiles) * count);
#pragma omp for schedule(static)
        for (size_t at = 0; at < (plan.shares == 1 ? 0 : count); at += CHUNK)
            for (int s = 0; s < plan.shares; s++)
                kernels->vector->add(p->c + at, shares + (size_t)s * count + at,
                                     min_size(CHUNK, count - at));
    }
}

/* Products with a left operand too large for memory: each thread packs the rows of a that it
 * multiplies, a tile at a time, and the tile stays in the second cache. All of b is packed
 * first. */
#include "tensor/cpu/gemm/products.h"

enum {
    DEPTH = 576,     /* k of a packed tile: nine taps of 64 channels */
    TILE_ROWS = 256, /* rows of a tile, at most                      */
    STEP = 128       /* columns of b that a thread packs at once     */
};

/* The cut of a row product into parts of k and tiles of rows. */
struct row_plan {
    const struct gemm_kernels *f;
    int depth, parts; /* of k */
    int rows;         /* rows of a tile */
    size_t tiles;
    size_t b_size, a_size, c_size; /* floats: all of b; a tile of a, of c */
    size_t split_size;             /* floats: split lines of a tile of a  */
};

static bool writes_in_place(const struct row_product *p)
{
    return p->step == 1 && p->c.type == DTYPE_F32;
}

static struct row_plan plan_rows(const struct device *dev, const struct row_product *p)
{
    struct row_plan plan = {.f = gemm_of(dev, p->half)};
    const struct gemm_kernels *f = plan.f;
    plan.depth = (int)round_up((size_t)ceil_div(p->k, ceil_div(p->k, DEPTH)), (size_t)f->depth);
    plan.parts = ceil_div(p->k, plan.depth);
    /* A tile may depend on the number of threads, since an element of c is a single chain over
     * k. */
    const size_t threads = (size_t)dev->threads, most = TILE_ROWS * threads;
    const size_t turns = (p->m + most - 1) / most;
    plan.rows = (int)round_up((p->m + turns * threads - 1) / (turns * threads), (size_t)f->rows);
    plan.tiles = (p->m + (size_t)plan.rows - 1) / (size_t)plan.rows;
    const int columns = (int)round_up((size_t)p->n, (size_t)f->columns);
    plan.b_size = strip_size(f, columns, plan.depth) * (size_t)plan.parts;
    plan.a_size = round_up(strip_size(f, plan.rows, plan.depth), 16);
    plan.c_size = writes_in_place(p) ? 0 : round_up((size_t)plan.rows * (size_t)p->n, 16);
    for (size_t i = 0; i < plan.tiles; i++) {
        const size_t first = i * (size_t)plan.rows;
        const size_t size =
            cpu_split_room(f, p->a.windows, first, min_size((size_t)plan.rows, p->m - first));
        plan.split_size = size > plan.split_size ? size : plan.split_size;
    }
    plan.split_size = round_up(plan.split_size, 16);
    return plan;
}

/* Returns the floats of a thread's scratch. */
static size_t row_thread_size(const struct row_plan *plan)
{
    return plan->a_size + plan->c_size + plan->split_size;
}

/* Plans of several products, and their scratch: b of all products, then the largest tile of each
 * thread. */
struct row_plans {
    struct row_plan plan[ROW_PRODUCTS];
    float *b[ROW_PRODUCTS]; /* NULL without a room */
    size_t b_size, own, tiles, work;
    int pieces; /* pieces of b, packed in parallel */
};

static void plan_all(struct row_plans *all, const struct device *dev, const struct row_product *p,
                     int n, float *room)
{
    *all = (struct row_plans){0};
    assert(n <= ROW_PRODUCTS);
    for (int i = 0; i < n; i++) {
        const struct row_plan plan = plan_rows(dev, &p[i]);
        all->plan[i] = plan;
        all->b[i] = room ? room + all->b_size : NULL;
        all->b_size += plan.b_size;
        all->own = row_thread_size(&plan) > all->own ? row_thread_size(&plan) : all->own;
        all->tiles += plan.tiles;
        all->work += p[i].m * (size_t)p[i].n * (size_t)p[i].k / 16;
        all->pieces += ceil_div(p[i].n, STEP);
    }
}

size_t cpu_row_products_room(const struct device *dev, const struct row_product *p, int n)
{
    struct row_plans all;
    plan_all(&all, dev, p, n, NULL);
    return all.b_size + all.own * (size_t)dev->threads;
}

static float *part_of_b(const struct row_plan *plan, const struct row_product *p, float *b,
                        int part)
{
    const int columns = (int)round_up((size_t)p->n, (size_t)plan->f->columns);
    return b + (size_t)part * strip_size(plan->f, columns, plan->depth);
}

/* Packs the strips of b for columns [j, j + n), over all parts. */
static void pack_b_strips(const struct kernels *kernels, const struct row_plan *plan,
                          const struct row_product *p, float *b, int j, int n)
{
    const struct gemm_kernels *f = plan->f;
    const struct strip_packer packer = {kernels, f, SIDE_RIGHT, p->b, NULL, 0};
    for (int part = 0; part < plan->parts; part++) {
        const int l = part * plan->depth, k = min_int(plan->depth, p->k - l);
        float *strips = part_of_b(plan, p, b, part) + strip_size(f, j, k);
        for (int at = 0; at < k && !p->b_turned; at += PACK_DEPTH)
            cpu_pack_depth(&packer, strips + strip_size(f, f->columns, at), k, (size_t)(l + at),
                           min_int(PACK_DEPTH, k - at), j, n);
        for (int i = 0; i < n && p->b_turned; i += f->columns)
            cpu_pack_rows(&packer, strips + strip_size(f, i, k), (size_t)(j + i),
                          min_int(f->columns, n - i), l, k);
    }
}

/* Writes the rows of a tile to their places in c, all at once if they are in order. */
static void spread_rows(const struct kernels *k, const struct row_product *p, const float *tile,
                        size_t first, int rows)
{
    enum { AT_ONCE = 1024 };
    const size_t n = (size_t)p->n, wide = (size_t)p->wide, tall = (size_t)p->tall;
    const int together = p->step == 1 ? rows : 1;
    const size_t stretch = n * (size_t)together;
    for (int r = 0; r < rows; r += together, tile += stretch) {
        const size_t row = first + (size_t)r, image = row / (tall * wide);
        const size_t y = (size_t)p->first_y + row / wide % tall * (size_t)p->step;
        const size_t x = (size_t)p->first_x + row % wide * (size_t)p->step;
        const size_t at = ((image * (size_t)p->h + y) * (size_t)p->w + x) * n;
        for (size_t c = 0; c < stretch; c += AT_ONCE) {
            float room[AT_ONCE];
            const size_t size = min_size(AT_ONCE, stretch - c);
            if (p->add) {
                float *sum = load_floats(k, p->c, at + c, size, room);
                k->vector->add(sum, tile + c, size);
                store_floats(k, p->c, at + c, size, sum);
            } else {
                store_floats(k, p->c, at + c, size, tile + c);
            }
        }
    }
}

/* Multiplies a tile; `own` is the thread's scratch. */
static void multiply_row_tile(const struct kernels *kernels, const struct row_plan *plan,
                              const struct row_product *p, float *b, float *own, size_t tile)
{
    const struct gemm_kernels *f = plan->f;
    const size_t first = tile * (size_t)plan->rows, n = (size_t)p->n;
    const int rows = (int)min_size((size_t)plan->rows, p->m - first);
    float *a = own, *sums = own + plan->a_size;
    float *c = writes_in_place(p) ? (float *)p->c.data + first * n : sums;
    struct strip_packer packer = {kernels, f, SIDE_LEFT, p->a, NULL, 0};
    cpu_split(&packer, first, (size_t)rows, sums + plan->c_size);
    for (int part = 0; part < plan->parts; part++) {
        const int l = part * plan->depth, k = min_int(plan->depth, p->k - l);
        for (int i = 0; i < rows; i += f->rows)
            cpu_pack_rows(&packer, a + strip_size(f, i, k), first + (size_t)i,
                          min_int(f->rows, rows - i), l, k);
        const bool adds = part > 0 || (writes_in_place(p) && p->add);
        f->block(rows, p->n, k, a, part_of_b(plan, p, b, part), c, n, adds ? c : NULL, n,
                 part ? NULL : p->bias);
    }
    if (!writes_in_place(p))
        spread_rows(kernels, p, sums, first, rows);
}

void cpu_row_products(struct device *dev, const struct row_product *p, int n, float *room)
{
    const struct kernels *kernels = kernels_of(dev);
    struct row_plans all;
    plan_all(&all, dev, p, n, room);
#pragma omp parallel num_threads(team_size(dev, all.work))
    {
        float *own = room + all.b_size + all.own * (size_t)thread_index();
#pragma omp for schedule(static)
        for (int piece = 0; piece < all.pieces; piece++) {
            int i = 0, j = piece * STEP; /* whole strips of any kernel */
            for (; j >= (int)round_up((size_t)p[i].n, STEP); i++)
                j -= (int)round_up((size_t)p[i].n, STEP);
            pack_b_strips(kernels, &all.plan[i], &p[i], all.b[i], j, min_int(STEP, p[i].n - j));
        }
#pragma omp for schedule(dynamic)
        for (size_t index = 0; index < all.tiles; index++) {
            int i = 0;
            size_t tile = index;
            for (; tile >= all.plan[i].tiles; i++)
                tile -= all.plan[i].tiles;
            multiply_row_tile(kernels, &all.plan[i], &p[i], all.b[i], own, tile);
        }
    }
}

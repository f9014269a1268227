/* Matrix products over the threads of a device, after Goto and van de Geijn (2008): a product is
 * cut into parts, strips of both operands of a part are packed once, and every thread multiplies
 * tiles of the result. A strip is as deep as a slice; many threads pack several slices at once, so
 * that a tile stays with its thread over all of them, and meet once a part: they pack the next one
 * when no tile of this one is left. A few meet before and after packing, and so keep one part, of
 * one slice, in the cache.
 *
 * Slices follow from the shape alone; parts and tiles also from the number of threads, since every
 * element is one chain over the depth of a slice, added slice by slice, whatever tile it falls
 * into.
 *
 * Not a BLAS, for three reasons. Several workers live in one process and a library's thread pool
 * serves one caller at a time, while its serial build may not be called twice at once. The last bit
 * of a library's result depends on the shape of the call, and so on the number of threads. And bias
 * and residual go in while a tile is in the cache. */
#include "tensor/cpu/gemm.h"

#include <math.h>

enum {
    DEPTH = 768,   /* k of a slice: a tile's strips stay in the second cache           */
    PACKED = 3072, /* k that many threads pack at once                                 */
    THIN = 4,      /* fewer rows than this: packing b would cost more than the product */
    ROOM_M = 2048, /* rows of a and columns of b that are packed at once            */
    ROOM_N = 2048,
    FEW = 2 /* threads that meet before and after packing */
};

/* One product and how it is cut: parts down (rows), across (columns) and along the depth, of so
 * many rows, columns and slices each; tiles of a part. For many threads, operands that change from
 * part to part have room for two. */
struct plan {
    const struct gemm *g;
    const struct vector_kernels *vector;
    const struct gemm_kernels *kernels;
    int down, across, deep;
    int rows, columns, slices;
    int depth; /* of a slice */
    int tile_rows, tile_columns;
    size_t a_slice, b_slice; /* floats of a packed slice */
    float *a[2], *b[2];
};

/* Rows [i, i + m), columns [j, j + n), depth [l, l + k); `new_a`, `new_b`: not packed before. */
struct part {
    const struct plan *plan;
    float *a, *b;
    bool new_a, new_b;
    int i, m, j, n, l, k;
};

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

static const struct gemm_kernels *chosen(const struct device *dev, bool half)
{
    return half ? kernels_of(dev)->gemm_half : kernels_of(dev)->gemm;
}

/* Floats of scratch that a strip of `width` rows or columns takes. */
static size_t strip_size(const struct gemm_kernels *f, int width, int k)
{
    return (size_t)width * round_up((size_t)k, (size_t)f->depth) * (size_t)f->halves / 2;
}

/* How deep a slice of a part is. */
static int slice_depth(const struct part *p, int slice)
{
    return min_int(p->plan->depth, p->k - slice * p->plan->depth);
}

static void pack_strip_a(const struct part *p, int slice, int strip)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    const int k = slice_depth(p, slice);
    size_t i = (size_t)(p->i + strip * f->rows), l = (size_t)(p->l + slice * p->plan->depth);
    const float *from = g->trans_a ? g->a + l * g->lda + i : g->a + i * g->lda + l;
    float *to = p->a + (size_t)slice * p->plan->a_slice + (size_t)strip * strip_size(f, f->rows, k);
    f->pack_a(to, from, g->lda, min_int(f->rows, p->m - strip * f->rows), k, !g->trans_a);
}

static void pack_strip_b(const struct part *p, int slice, int strip)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    const int k = slice_depth(p, slice);
    size_t j = (size_t)(p->j + strip * f->columns), l = (size_t)(p->l + slice * p->plan->depth);
    size_t at = g->trans_b ? j * g->ldb + l : l * g->ldb + j;
    float *to =
        p->b + (size_t)slice * p->plan->b_slice + (size_t)strip * strip_size(f, f->columns, k);
    int n = min_int(f->columns, p->n - strip * f->columns);
    if (g->b_half)
        f->pack_b_half(to, g->b_half + at, g->ldb, n, k, g->trans_b);
    else
        f->pack_b(to, g->b + at, g->ldb, n, k, g->trans_b);
}

static int slices_of(const struct part *p)
{
    return ceil_div(p->k, p->plan->depth);
}

static int tiles_down(const struct part *p)
{
    return ceil_div(p->m, p->plan->tile_rows);
}

/* Elements (i, j) to (i + m, j + n) of c, which are at `at`, from bf16, and back: while a tile is
 * in the cache. */
static void widen_c(const struct vector_kernels *f, const struct gemm *g, float *at, size_t ld,
                    size_t i, size_t j, int m, int n)
{
    for (size_t r = i; r < i + (size_t)m; r++, at += ld)
        f->widen(at, g->c_from + r * g->ld_half + j, (size_t)n);
}

static void narrow_c(const struct vector_kernels *f, const struct gemm *g, const float *at,
                     size_t ld, size_t i, size_t j, int m, int n)
{
    for (size_t r = i; r < i + (size_t)m; r++, at += ld)
        f->narrow(g->c_to + r * g->ld_half + j, at, (size_t)n);
}

static void multiply_tile(const struct part *p, int tile)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    const int rows = p->plan->tile_rows, columns = p->plan->tile_columns;
    int i = tile % tiles_down(p) * rows, j = tile / tiles_down(p) * columns;
    size_t row = (size_t)(p->i + i), column = (size_t)(p->j + j);
    const int m = min_int(rows, p->m - i), n = min_int(columns, p->n - j);
    const size_t own = (size_t)f->tile_rows * (size_t)f->tile_columns;
    const size_t ldc = g->c ? g->ldc : (size_t)f->tile_columns;
    float *c = g->c ? g->c + row * ldc + column : g->tiles + (size_t)thread_index() * own;
    const float *from = c, *bias = NULL;
    size_t ld_from = ldc;
    if (p->l == 0 && !g->add) {
        from = g->residual ? g->residual + row * g->ld_residual + column : NULL;
        ld_from = g->ld_residual;
        bias = g->bias ? g->bias + column : NULL;
    }
    if (p->l == 0 && g->c_from)
        widen_c(p->plan->vector, g, c, ldc, row, column, m, n);
    for (int slice = 0; slice < slices_of(p); slice++) {
        const int k = slice_depth(p, slice);
        const float *a = p->a + (size_t)slice * p->plan->a_slice + strip_size(f, i, k);
        const float *b = p->b + (size_t)slice * p->plan->b_slice + strip_size(f, j, k);
        if (slice == 0)
            f->block(m, n, k, a, b, c, ldc, from, ld_from, bias);
        else
            f->block(m, n, k, a, b, c, ldc, c, ldc, NULL);
    }
    if (p->l + p->k == g->k && g->c_to)
        narrow_c(p->plan->vector, g, c, ldc, row, column, m, n);
}

static int parts_of(const struct plan *plan)
{
    return plan->down * plan->deep * plan->across;
}

/* Rows change fastest, then depth, then columns. */
static struct part part_of(const struct plan *plan, int index)
{
    const struct gemm *g = plan->g;
    const bool one_a = plan->down * plan->deep == 1;
    const int b = index / plan->down; /* how often b has changed */
    struct part p = {.plan = plan,
                     .a = plan->a[one_a ? 0 : index % 2],
                     .b = plan->b[b % 2],
                     .new_a = index == 0 || !one_a,
                     .new_b = index % plan->down == 0,
                     .i = index % plan->down * plan->rows,
                     .l = b % plan->deep * plan->slices * plan->depth,
                     .j = b / plan->deep * plan->columns};
    p.m = min_int(plan->rows, g->m - p.i);
    p.n = min_int(plan->columns, g->n - p.j);
    p.k = min_int(plan->slices * plan->depth, g->k - p.l);
    return p;
}

/* Of a slice. */
static int strips_a(const struct part *p)
{
    return p->new_a ? ceil_div(p->m, p->plan->kernels->rows) : 0;
}

static int strips_b(const struct part *p)
{
    return p->new_b ? ceil_div(p->n, p->plan->kernels->columns) : 0;
}

static int strips_of(const struct part *p)
{
    return slices_of(p) * (strips_a(p) + strips_b(p));
}

static int tiles_of(const struct part *p)
{
    return tiles_down(p) * ceil_div(p->n, p->plan->tile_columns);
}

static void pack_strip(const struct part *p, int index)
{
    const int a = strips_a(p), slice = index / (a + strips_b(p)), strip = index % (a + strips_b(p));
    if (strip < a)
        pack_strip_a(p, slice, strip);
    else
        pack_strip_b(p, slice, strip - a);
}

/* Runs on every thread of a small team. */
static void multiply_part(const struct plan *plan, int index)
{
    const struct part p = part_of(plan, index);
#pragma omp for schedule(static)
    for (int strip = 0; strip < strips_of(&p); strip++)
        pack_strip(&p, strip);
#pragma omp for schedule(dynamic)
    for (int tile = 0; tile < tiles_of(&p); tile++)
        multiply_tile(&p, tile);
}

/* Runs on every thread of a large team: multiplies a part, if index >= 0, and packs the next. */
static void work_between(const struct plan *plan, int index)
{
    struct part now = {0}, next = {0};
    int tiles = 0, strips = 0;
    if (index >= 0) {
        now = part_of(plan, index);
        tiles = tiles_of(&now);
    }
    if (index + 1 < parts_of(plan)) {
        next = part_of(plan, index + 1);
        strips = strips_of(&next);
    }
    /* Strips last: they are the smaller pieces, and fill what tiles leave. */
#pragma omp for schedule(dynamic)
    for (int task = 0; task < tiles + strips; task++) {
        if (task < tiles)
            multiply_tile(&now, task);
        else
            pack_strip(&next, task - tiles);
    }
}

/* c = bias + residual, ready for products to be added. The residual may be c. */
static void start_rows(const struct gemm *g, const struct kernels *k, int i, int m, int j, int n)
{
    size_t bytes = (size_t)n * sizeof(float);
    for (int r = i; r < i + m; r++) {
        float *to = g->c + (size_t)r * g->ldc + j;
        const float *residual = g->residual ? g->residual + (size_t)r * g->ld_residual + j : NULL;
        if (residual && residual != to)
            memcpy(to, residual, bytes);
        if (g->bias && residual)
            k->vector->add(to, g->bias + j, (size_t)n);
        else if (g->bias)
            memcpy(to, g->bias + j, bytes);
    }
}

/* Fewer than THIN rows. */
static void multiply_thin(struct device *dev, const struct gemm *g)
{
    const struct kernels *k = kernels_of(dev);
    enum { STRIP = 128 };
    bool start = g->bias || g->residual;
#pragma omp parallel for schedule(static) num_threads(team(dev, (size_t)g->n *(size_t)g->k))
    for (int j = 0; j < g->n; j += STRIP) {
        int n = min_int(STRIP, g->n - j);
        if (start)
            start_rows(g, k, 0, g->m, j, n);
        if (g->c_from)
            widen_c(k->vector, g, g->c + j, g->ldc, 0, (size_t)j, g->m, n);
        for (int i = 0; i < g->m; i++) {
            float *c = g->c + (size_t)i * g->ldc + j;
            const float *a = g->a + (size_t)i * g->lda;
            if (!g->add && !start)
                memset(c, 0, (size_t)n * sizeof *c);
            for (int x = 0; g->trans_b && x < n; x++)
                c[x] += k->attention->dot(a, g->b + (size_t)(j + x) * g->ldb, g->k);
            for (int l = 0; !g->trans_b && l < g->k; l++)
                k->vector->axpy(c, a[l], g->b + (size_t)l * g->ldb + j, (size_t)n);
        }
        if (g->c_to)
            narrow_c(k->vector, g, g->c + j, g->ldc, 0, (size_t)j, g->m, n);
    }
}

static inline size_t gemm_work(const struct gemm *g)
{
    return (size_t)g->m * (size_t)g->n * (size_t)g->k / 16;
}

bool cpu_gemm_takes_half(int m)
{
    return m >= THIN;
}

size_t cpu_gemm_tiles(const struct device *dev, int k, bool half)
{
    const struct gemm_kernels *f = chosen(dev, half);
    if (dev->threads <= FEW || k > PACKED)
        return 0;
    return (size_t)dev->threads * (size_t)f->tile_rows * (size_t)f->tile_columns;
}

/* The largest tile where it leaves every thread a few. Else that with which a part takes the least
 * time, in units of the tile in registers: its strips come from a cache that threads share, and
 * some threads wait for the others' last tile. */
static void choose_tile(struct plan *plan, int threads)
{
    const struct gemm_kernels *f = plan->kernels;
    const int m = min_int(plan->rows, plan->g->m), n = min_int(plan->columns, plan->g->n);
    const int down = ceil_div(m, f->rows), across = ceil_div(n, f->columns);
    plan->tile_rows = f->tile_rows;
    plan->tile_columns = f->tile_columns;
    const int enough = threads == 1 ? 1 : threads > FEW ? 3 * threads : 2 * threads;
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

/* Floats that the packed rows and columns of a slice take, slices of a part, and for how many
 * parts. */
struct sizes {
    size_t a, b;
    int slices, a_rooms, b_rooms;
};

/* The deepest slice: bf16 takes half the room, and sums travel less often. */
static int deepest(const struct gemm_kernels *f)
{
    return f->halves == 1 ? 2 * DEPTH : DEPTH;
}

static struct sizes sizes_of(const struct device *dev, const struct gemm_kernels *f, int m, int n,
                             int k, int depth)
{
    const bool many = dev->threads > FEW;
    const int slices = many ? min_int(ceil_div(k, depth), PACKED / deepest(f)) : 1;
    const bool deep = k > slices * depth;
    const size_t rows = round_up((size_t)min_int(m, ROOM_M), (size_t)f->rows);
    const size_t columns = round_up((size_t)min_int(n, ROOM_N), (size_t)f->columns);
    return (struct sizes){strip_size(f, (int)rows, depth), strip_size(f, (int)columns, depth),
                          slices, many && (deep || m > ROOM_M) ? 2 : 1,
                          many && (deep || n > ROOM_N) ? 2 : 1};
}

static size_t room_of(const struct sizes *s)
{
    return (s->a * (size_t)s->a_rooms + s->b * (size_t)s->b_rooms) * (size_t)s->slices;
}

/* Equal parts, not a short last one: how many of at most `most`, and of how much each. */
static int cut(int size, int most, int unit, int *each)
{
    *each = (int)round_up((size_t)ceil_div(size, ceil_div(size, most)), (size_t)unit);
    return ceil_div(size, *each);
}

static struct plan plan_of(const struct device *dev, const struct gemm *g, int threads)
{
    struct plan plan = {.g = g, .vector = kernels_of(dev)->vector, .kernels = chosen(dev, g->half)};
    plan.down = cut(g->m, ROOM_M, plan.kernels->rows, &plan.rows);
    plan.across = cut(g->n, ROOM_N, plan.kernels->columns, &plan.columns);
    const int slices = cut(g->k, deepest(plan.kernels), 1, &plan.depth);
    const struct sizes sizes = sizes_of(dev, plan.kernels, g->m, g->n, g->k, plan.depth);
    plan.slices = sizes.slices;
    plan.deep = ceil_div(slices, sizes.slices);
    plan.a_slice = sizes.a, plan.b_slice = sizes.b;
    const size_t a = sizes.a * (size_t)sizes.slices, b = sizes.b * (size_t)sizes.slices;
    for (int i = 0; i < 2; i++) {
        plan.a[i] = g->room + a * (size_t)(i % sizes.a_rooms);
        plan.b[i] = g->room + a * (size_t)sizes.a_rooms + b * (size_t)(i % sizes.b_rooms);
    }
    choose_tile(&plan, threads);
    return plan;
}

void cpu_gemm(struct device *dev, const struct gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    if (g->m < THIN && !g->trans_a) {
        multiply_thin(dev, g);
        return;
    }
    const int threads = team(dev, gemm_work(g));
    const struct plan plan = plan_of(dev, g, threads);
    const int parts = parts_of(&plan);
    if (threads > FEW) {
#pragma omp parallel num_threads(threads)
        for (int part = -1; part < parts; part++)
            work_between(&plan, part);
    } else {
#pragma omp parallel num_threads(threads)
        for (int part = 0; part < parts; part++)
            multiply_part(&plan, part);
    }
}

size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half)
{
    const struct gemm_kernels *f = chosen(dev, half);
    const struct sizes sizes = sizes_of(dev, f, m, n, k, min_int(k, deepest(f)));
    return room_of(&sizes);
}

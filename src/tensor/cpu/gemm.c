/* Matrix products over the threads of a device, after Goto and van de Geijn (2008): strips of both
 * operands are packed, and tiles of the result are multiplied in registers. The depth is cut into
 * slices, one after the other.
 *
 * One thread or a few cut the product into parts, pack a part together, and share its tiles. Many
 * threads share nothing but what they read: each packs a block of rows, which stays in its second
 * cache, and then the columns of part after part of that block. What several of them pack costs
 * less than packed strips that travel from one core to the others. Who has finished a block helps
 * with another of which much is left; nobody waits but for the slice before of the same part, or at
 * the end.
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

#include <sched.h>

enum { THIN = 4 }; /* fewer rows than this: packing b would cost more than the product */

/* Rows [i, i + m), columns [j, j + n), depth [l, l + k); `new_a`, `new_b`: not packed before. */
struct part {
    const struct gemm_plan *plan;
    float *a, *b;
    bool new_a, new_b;
    int i, m, j, n, l, k;
};

static void pack_strip_a(const struct part *p, int strip)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    size_t i = (size_t)(p->i + strip * f->rows), l = (size_t)p->l;
    const float *from = g->trans_a ? g->a + l * g->lda + i : g->a + i * g->lda + l;
    float *to = p->a + (size_t)strip * strip_size(f, f->rows, p->k);
    f->pack_a(to, from, g->lda, min_int(f->rows, p->m - strip * f->rows), p->k, !g->trans_a);
}

static void pack_strip_b(const struct part *p, int strip)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    size_t j = (size_t)(p->j + strip * f->columns), l = (size_t)p->l;
    size_t at = g->trans_b ? j * g->ldb + l : l * g->ldb + j;
    float *to = p->b + (size_t)strip * strip_size(f, f->columns, p->k);
    int n = min_int(f->columns, p->n - strip * f->columns);
    if (g->b_half)
        f->pack_b_half(to, g->b_half + at, g->ldb, n, p->k, g->trans_b);
    else
        f->pack_b(to, g->b + at, g->ldb, n, p->k, g->trans_b);
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
    const size_t ldc = g->c ? g->ldc : (size_t)columns;
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
    const bool send = p->plan->send && g->c && p->l + p->k == g->k && from != c;
    (send ? f->send_block : f->block)(m, n, p->k, p->a + strip_size(f, i, p->k),
                                      p->b + strip_size(f, j, p->k), c, ldc, from, ld_from, bias);
    if (p->l + p->k == g->k && g->c_to)
        narrow_c(p->plan->vector, g, c, ldc, row, column, m, n);
}

/* Rows change fastest, then depth, then columns. */
static struct part part_of(const struct gemm_plan *plan, int index)
{
    const struct gemm *g = plan->g;
    const int b = index / plan->down; /* how often b has changed */
    struct part p = {.plan = plan,
                     .a = plan->a,
                     .b = plan->b,
                     .new_a = index == 0 || plan->down * plan->deep > 1,
                     .new_b = index % plan->down == 0,
                     .i = index % plan->down * plan->rows,
                     .l = b % plan->deep * plan->depth,
                     .j = b / plan->deep * plan->columns};
    p.m = min_int(plan->rows, g->m - p.i);
    p.n = min_int(plan->columns, g->n - p.j);
    p.k = min_int(plan->depth, g->k - p.l);
    return p;
}

static int strips_a(const struct part *p)
{
    return p->new_a ? ceil_div(p->m, p->plan->kernels->rows) : 0;
}

static int strips_of(const struct part *p)
{
    return strips_a(p) + (p->new_b ? ceil_div(p->n, p->plan->kernels->columns) : 0);
}

static int tiles_of(const struct part *p)
{
    return tiles_down(p) * ceil_div(p->n, p->plan->tile_columns);
}

static void pack_strip(const struct part *p, int strip)
{
    const int a = strips_a(p);
    if (strip < a)
        pack_strip_a(p, strip);
    else
        pack_strip_b(p, strip - a);
}

/* Runs on every thread of a small team. */
static void multiply_part(const struct gemm_plan *plan, int index)
{
    const struct part p = part_of(plan, index);
#pragma omp for schedule(static)
    for (int strip = 0; strip < strips_of(&p); strip++)
        pack_strip(&p, strip);
#pragma omp for schedule(dynamic)
    for (int tile = 0; tile < tiles_of(&p); tile++)
        multiply_tile(&p, tile);
}

/* What a part is added to comes while its columns are packed. */
static void fetch_c(const struct part *p)
{
    const struct gemm *g = p->plan->g;
    for (int r = 0; g->c_from && p->l == 0 && r < p->m; r++)
        __builtin_prefetch(g->c_from + (size_t)(p->i + r) * g->ld_half + p->j, 1, 2);
}

/* Takes parts of a block of rows, of one slice, until none is left. */
static void work_on(const struct gemm_plan *plan, int slice, int block)
{
    const size_t own = (size_t)thread_index() * plan->apart;
    atomic_int *taken = &plan->taken[slice * plan->down + block];
    bool packed = false;
    for (int j; (j = atomic_fetch_add(taken, 1)) < plan->across; packed = true) {
        atomic_int *done = &plan->done[block * plan->across + j];
        struct part p = part_of(plan, (j * plan->deep + slice) * plan->down + block);
        p.a += own, p.b += own;
        p.new_a = !packed, p.new_b = true;
        fetch_c(&p);
        for (int strip = 0; strip < strips_of(&p); strip++)
            pack_strip(&p, strip);
        while (atomic_load(done) < slice) /* another thread still adds the slice before */
            sched_yield();
        for (int tile = 0; tile < tiles_of(&p); tile++)
            multiply_tile(&p, tile);
        atomic_store(done, slice + 1);
    }
}

/* Whether so much of a block is left that it pays to pack its rows once more. */
static bool wants_help(const struct gemm_plan *plan, int slice, int block)
{
    return plan->across - atomic_load(&plan->taken[slice * plan->down + block]) >= plan->help;
}

/* Runs on every thread of a large team: blocks of its own, which it may share, then others'. */
static void work(const struct gemm_plan *plan)
{
    const int self = thread_index(), threads = thread_count();
    for (int slice = 0; slice < plan->deep; slice++) {
        for (int block = self % plan->down; block < plan->down; block += threads)
            work_on(plan, slice, block);
        for (int i = 1; i < plan->down; i++) {
            const int block = (self + i) % plan->down;
            if (wants_help(plan, slice, block))
                work_on(plan, slice, block);
        }
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

void cpu_gemm(struct device *dev, const struct gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    if (g->m < THIN && !g->trans_a) {
        multiply_thin(dev, g);
        return;
    }
    const int threads = team(dev, gemm_work(g));
    struct gemm_plan plan = gemm_plan_of(dev, g->m, g->n, g->k, g->half, g->room, threads);
    plan.g = g;
    if (threads > FEW_THREADS) {
#pragma omp parallel num_threads(threads)
        work(&plan);
    } else {
#pragma omp parallel num_threads(threads)
        for (int part = 0; part < plan.down * plan.deep * plan.across; part++)
            multiply_part(&plan, part);
    }
}

/* Matrix products over the threads of a device, after Goto and van de Geijn (2008): strips of both
 * operands are packed, and tiles of the result are multiplied in registers. The depth is cut into
 * slices, one after the other.
 *
 * One thread or a few cut the product into parts, pack a part together, and share its tiles. Many
 * threads share nothing but what they read: each packs a block of rows, which stays in its second
 * cache, and then the columns of part after part of that block. What several of them pack costs
 * less than packed strips that travel from one core to the others. Who has finished a block helps
 * with another; nobody waits but for the slice before of the same part, or at the end.
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

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    DEPTH = 768,   /* k of a slice: a tile's strips stay in the second cache           */
    THIN = 4,      /* fewer rows than this: packing b would cost more than the product */
    FEW = 2,       /* threads that pack together                                       */
    ROOM_M = 2048, /* rows of a and columns of b that they pack at once                */
    ROOM_N = 2048,
    BLOCK = 5 << 16, /* floats of a packed block of rows, which stays in the second cache  */
    COLUMNS = 32,    /* of a part of such a block: a multiple of every kernel's            */
    PACKING = 32     /* to pack an element takes as long as to multiply so many            */
};

/* One product and how it is cut: parts down (rows), across (columns) and along the depth, of so
 * many rows, columns and so deep each; tiles of a part. */
struct plan {
    const struct gemm *g;
    const struct vector_kernels *vector;
    const struct gemm_kernels *kernels;
    int down, across, deep;
    int rows, columns, depth;
    int tile_rows, tile_columns;
    float *a, *b;      /* packed: of the team, or of the first thread             */
    size_t apart;      /* floats from a thread's to the next one's                */
    atomic_int *taken; /* (deep, down): parts of a slice and block that are taken */
    atomic_int *done;  /* (down, across): slices that are added                   */
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
    f->block(m, n, p->k, p->a + strip_size(f, i, p->k), p->b + strip_size(f, j, p->k), c, ldc, from,
             ld_from, bias);
    if (p->l + p->k == g->k && g->c_to)
        narrow_c(p->plan->vector, g, c, ldc, row, column, m, n);
}

/* Rows change fastest, then depth, then columns. */
static struct part part_of(const struct plan *plan, int index)
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

/* Takes parts of a block of rows, of one slice, until none is left. */
static void work_on(const struct plan *plan, int slice, int block)
{
    const size_t own = (size_t)thread_index() * plan->apart;
    atomic_int *taken = &plan->taken[slice * plan->down + block];
    bool packed = false;
    for (int j; (j = atomic_fetch_add(taken, 1)) < plan->across; packed = true) {
        atomic_int *done = &plan->done[block * plan->across + j];
        struct part p = part_of(plan, (j * plan->deep + slice) * plan->down + block);
        p.a += own, p.b += own;
        p.new_a = !packed, p.new_b = true;
        for (int strip = 0; strip < strips_of(&p); strip++)
            pack_strip(&p, strip);
        while (atomic_load(done) < slice) /* another thread still adds the slice before */
            sched_yield();
        for (int tile = 0; tile < tiles_of(&p); tile++)
            multiply_tile(&p, tile);
        atomic_store(done, slice + 1);
    }
}

/* Runs on every thread of a large team: blocks of its own, then what others have left. */
static void work(const struct plan *plan, int threads)
{
    const int self = thread_index();
    for (int slice = 0; slice < plan->deep; slice++) {
        for (int block = self; block < plan->down; block += threads)
            work_on(plan, slice, block);
        for (int i = 0; i < plan->down; i++)
            work_on(plan, slice, (self + i) % plan->down);
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

/* The deepest slice: bf16 takes half the room, and sums travel less often. */
static int deepest(const struct gemm_kernels *f)
{
    return f->halves == 1 ? 2 * DEPTH : DEPTH;
}

size_t cpu_gemm_tiles(const struct device *dev, int k, bool half)
{
    const struct gemm_kernels *f = chosen(dev, half);
    if (dev->threads <= FEW || k > deepest(f))
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

/* Equal parts, not a short last one: how many of at most `most`, and of how much each. */
static int cut(int size, int most, int unit, int *each)
{
    *each = (int)round_up((size_t)ceil_div(size, ceil_div(size, most)), (size_t)unit);
    return ceil_div(size, *each);
}

/* Rows of a block, of which a slice stays in a thread's second cache. */
static int most_rows(const struct gemm_kernels *f, int depth)
{
    return (int)(BLOCK / strip_size(f, f->rows, depth)) * f->rows;
}

/* Blocks of rows for so many threads, the least time: a thread packs its block of each slice, and
 * the columns of each part. */
static void choose_blocks(struct plan *plan, int threads)
{
    const struct gemm_kernels *f = plan->kernels;
    const int m = plan->g->m, strips = ceil_div(m, f->rows);
    double least = INFINITY;
    assert(COLUMNS % f->columns == 0);
    plan->columns = COLUMNS;
    plan->across = ceil_div(plan->g->n, COLUMNS);
    for (int down = ceil_div(m, most_rows(f, plan->depth)); down <= strips; down++) {
        const int rows = ceil_div(strips, down) * f->rows, blocks = ceil_div(m, rows);
        const double parts = ceil_div(blocks * plan->across, threads);
        const double time =
            parts * COLUMNS * (rows + PACKING) + (double)ceil_div(blocks, threads) * rows * PACKING;
        if (time < least) {
            least = time;
            plan->rows = rows;
            plan->down = blocks;
        }
        if (down >= 4 * threads)
            break;
    }
    plan->tile_rows = f->tile_rows, plan->tile_columns = COLUMNS;
}

/* Floats that packed operands take: of the team, or of each of its threads; and how many counters
 * it has. */
static size_t few_room(const struct gemm_kernels *f, int m, int n, int depth)
{
    return strip_size(f, (int)round_up((size_t)min_int(m, ROOM_M), (size_t)f->rows), depth) +
           strip_size(f, (int)round_up((size_t)min_int(n, ROOM_N), (size_t)f->columns), depth);
}

static size_t block_room(const struct gemm_kernels *f, int m, int depth)
{
    return min_size(strip_size(f, (int)round_up((size_t)m, (size_t)f->rows), depth), BLOCK);
}

static size_t own_room(const struct gemm_kernels *f, int m, int depth)
{
    return round_up(block_room(f, m, depth) + strip_size(f, COLUMNS, depth), 16);
}

static size_t counters_room(int deep, int down, int across)
{
    return round_up((size_t)deep * (size_t)down + (size_t)down * (size_t)across, 16);
}

static struct plan plan_of(const struct device *dev, const struct gemm *g, int threads)
{
    struct plan plan = {.g = g, .vector = kernels_of(dev)->vector, .kernels = chosen(dev, g->half)};
    const struct gemm_kernels *f = plan.kernels;
    plan.deep = cut(g->k, deepest(f), 1, &plan.depth);
    plan.a = g->room;
    if (threads <= FEW) {
        plan.down = cut(g->m, ROOM_M, f->rows, &plan.rows);
        plan.across = cut(g->n, ROOM_N, f->columns, &plan.columns);
        plan.b = plan.a + strip_size(f, plan.rows, plan.depth);
        choose_tile(&plan, threads);
        return plan;
    }
    choose_blocks(&plan, threads);
    plan.apart = own_room(f, g->m, plan.depth);
    plan.b = plan.a + block_room(f, g->m, plan.depth);
    plan.taken = (atomic_int *)(void *)(plan.a + plan.apart * (size_t)threads);
    plan.done = plan.taken + (size_t)plan.deep * (size_t)plan.down;
    memset(plan.taken, 0, counters_room(plan.deep, plan.down, plan.across) * sizeof(atomic_int));
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
    if (threads > FEW) {
#pragma omp parallel num_threads(threads)
        work(&plan, threads);
    } else {
#pragma omp parallel num_threads(threads)
        for (int part = 0; part < plan.down * plan.deep * plan.across; part++)
            multiply_part(&plan, part);
    }
}

size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half)
{
    const struct gemm_kernels *f = chosen(dev, half);
    const int depth = min_int(k, deepest(f));
    const size_t few = few_room(f, m, n, depth);
    if (dev->threads <= FEW)
        return few;
    const size_t counters =
        counters_room(ceil_div(k, deepest(f)), ceil_div(m, f->rows), ceil_div(n, COLUMNS));
    const size_t many = own_room(f, m, depth) * (size_t)dev->threads + counters;
    return many > few ? many : few;
}

/* Matrix products over the threads of a device, after Goto and van de Geijn (2008): strips of both
 * operands are packed once, in parallel, and every thread multiplies tiles of the result.
 *
 * Not a BLAS, for three reasons. Several workers live in one process and a library's thread pool
 * serves one caller at a time, while its serial build may not be called twice at once. The last bit
 * of a library's result depends on the shape of the call, and so on the number of threads. And bias
 * and residual go in while a tile is in the cache. */
#include "tensor/cpu/gemm.h"

enum {
    DEPTH = 768,   /* k of a packed strip: a tile's strips stay in the second cache   */
    THIN = 4,      /* fewer rows than this: packing b would cost more than the product */
    ROOM_M = 2048, /* rows of a and columns of b that are packed at once            */
    ROOM_N = 2048
};

/* One product and the part of it that is packed: rows [i, i + m), columns [j, j + n), depth [l, l +
 * k). */
struct part {
    const struct gemm *g;
    const struct gemm_kernels *kernels;
    float *a, *b;
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
    const struct gemm *g = p->g;
    const struct gemm_kernels *f = p->kernels;
    size_t i = (size_t)(p->i + strip * f->rows), l = (size_t)p->l;
    const float *from = g->trans_a ? g->a + l * g->lda + i : g->a + i * g->lda + l;
    f->pack_a(p->a + (size_t)strip * strip_size(f, f->rows, p->k), from, g->lda,
              min_int(f->rows, p->m - strip * f->rows), p->k, !g->trans_a);
}

static void pack_strip_b(const struct part *p, int strip)
{
    const struct gemm *g = p->g;
    const struct gemm_kernels *f = p->kernels;
    size_t j = (size_t)(p->j + strip * f->columns), l = (size_t)p->l;
    size_t at = g->trans_b ? j * g->ldb + l : l * g->ldb + j;
    float *to = p->b + (size_t)strip * strip_size(f, f->columns, p->k);
    int n = min_int(f->columns, p->n - strip * f->columns);
    if (g->b_half)
        f->pack_b_half(to, g->b_half + at, g->ldb, n, p->k, g->trans_b);
    else
        f->pack_b(to, g->b + at, g->ldb, n, p->k, g->trans_b);
}

static void multiply_tile(const struct part *p, int tile)
{
    const struct gemm *g = p->g;
    const struct gemm_kernels *f = p->kernels;
    int across = ceil_div(p->m, f->tile_rows);
    int i = tile % across * f->tile_rows, j = tile / across * f->tile_columns;
    size_t row = (size_t)(p->i + i), column = (size_t)(p->j + j);
    float *c = g->c + row * g->ldc + column;
    const float *from = c, *bias = NULL;
    size_t ld_from = g->ldc;
    if (p->l == 0 && !g->add) {
        from = g->residual ? g->residual + row * g->ld_residual + column : NULL;
        ld_from = g->ld_residual;
        bias = g->bias ? g->bias + column : NULL;
    }
    f->block(min_int(f->tile_rows, p->m - i), min_int(f->tile_columns, p->n - j), p->k,
             p->a + strip_size(f, i, p->k), p->b + strip_size(f, j, p->k), c, g->ldc, from, ld_from,
             bias);
}

/* Runs on every thread of the team: packs the part, then multiplies it. */
static void multiply_part(const struct part *p)
{
    /* What an earlier part packed may still be there. */
    bool same_a = p->j > 0 && p->k == p->g->k && p->m == p->g->m, same_b = p->i > 0;
    int strips_a = same_a ? 0 : ceil_div(p->m, p->kernels->rows);
    int strips_b = same_b ? 0 : ceil_div(p->n, p->kernels->columns);
#pragma omp for schedule(static)
    for (int strip = 0; strip < strips_a + strips_b; strip++) {
        if (strip < strips_a)
            pack_strip_a(p, strip);
        else
            pack_strip_b(p, strip - strips_a);
    }
    const struct gemm_kernels *f = p->kernels;
    int tiles = ceil_div(p->m, f->tile_rows) * ceil_div(p->n, f->tile_columns);
#pragma omp for schedule(dynamic)
    for (int tile = 0; tile < tiles; tile++)
        multiply_tile(p, tile);
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
    }
}

static inline size_t gemm_work(const struct gemm *g)
{
    return (size_t)g->m * (size_t)g->n * (size_t)g->k / 16;
}

bool cpu_gemm_takes_half(const struct device *dev, int m)
{
    return kernels_of(dev)->gemm_half->pack_b_half && m >= THIN;
}

void cpu_gemm(struct device *dev, const struct gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    if (g->m < THIN && !g->trans_a) {
        multiply_thin(dev, g);
        return;
    }
    const struct gemm_kernels *kernels = chosen(dev, g->half);
    int depth = ceil_div(g->k, ceil_div(g->k, DEPTH)); /* equal parts, not a short last one */
    size_t rows = round_up((size_t)min_int(g->m, ROOM_M), (size_t)kernels->rows);
    float *room_a = g->room, *room_b = room_a + strip_size(kernels, (int)rows, depth);
#pragma omp parallel num_threads(team(dev, gemm_work(g)))
    for (int j = 0; j < g->n; j += ROOM_N) {
        for (int l = 0; l < g->k; l += depth) {
            for (int i = 0; i < g->m; i += ROOM_M) {
                struct part p = {.g = g,
                                 .kernels = kernels,
                                 .a = room_a,
                                 .b = room_b,
                                 .i = i,
                                 .m = min_int(ROOM_M, g->m - i),
                                 .j = j,
                                 .n = min_int(ROOM_N, g->n - j),
                                 .l = l,
                                 .k = min_int(depth, g->k - l)};
                multiply_part(&p);
            }
        }
    }
}

size_t cpu_gemm_room(const struct device *dev, int m, int n, int k, bool half)
{
    const struct gemm_kernels *f = chosen(dev, half);
    size_t rows = round_up((size_t)min_int(m, ROOM_M), (size_t)f->rows);
    size_t columns = round_up((size_t)min_int(n, ROOM_N), (size_t)f->columns);
    return strip_size(f, (int)(rows + columns), min_int(k, DEPTH));
}

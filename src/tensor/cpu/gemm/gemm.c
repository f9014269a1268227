/* Matrix products over the threads of a device, after Goto and van de Geijn (2008): strips of both
 * operands are packed, and tiles of the result are multiplied in registers. The depth is cut into
 * slices.
 *
 * A small team cuts the product into parts, packs each part together, and shares its tiles. In a
 * large team each thread packs for itself: see gemm/many.c.
 *
 * Slices follow from the shape alone; parts and tiles also from the number of threads. An element
 * is a single chain over the depth of a slice, added slice by slice, in any tile.
 *
 * Not a BLAS, for three reasons. Several workers live in one process: a library's thread pool
 * serves one caller at a time, and its serial build must not be called twice at once. The last bit
 * of a library's result depends on the shape of the call, and so on the number of threads. And bias
 * and residual are added while a tile is in the cache. */
#include "tensor/cpu/gemm/gemm.h"

#include "tensor/cpu/gemm/many.h"

enum { THIN = 4 }; /* fewer rows than this: packing b would cost more than the product */

/* Runs on every thread of a small team. */
static void multiply_part(const struct gemm_plan *plan, int index)
{
    const struct gemm_part p = part_of(plan, index);
#pragma omp for schedule(static)
    for (int strip = 0; strip < part_strips(&p); strip++)
        part_pack(&p, strip);
#pragma omp for schedule(dynamic)
    for (int tile = 0; tile < part_tiles(&p); tile++)
        part_multiply(&p, tile);
}

/* Sets c = bias + residual; products are added later. The residual may be c. */
static void start_result_rows(const struct gemm *g, const struct kernels *k, int i, int m, int j,
                              int n)
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

/* Multiplies fewer than THIN rows of a. */
static void multiply_thin(struct device *dev, const struct gemm *g)
{
    const struct kernels *k = kernels_of(dev);
    enum { STRIP = 128 };
    bool start = g->bias || g->residual;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, (size_t)g->n *(size_t)g->k))
    for (int j = 0; j < g->n; j += STRIP) {
        int n = min_int(STRIP, g->n - j);
        if (start)
            start_result_rows(g, k, 0, g->m, j, n);
        if (g->c_from)
            gemm_widen(k->vector, g, g->c + j, g->ldc, 0, (size_t)j, g->m, n);
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
            gemm_narrow(k->vector, g, g->c + j, g->ldc, 0, (size_t)j, g->m, n);
    }
}

static inline size_t product_work(const struct gemm *g)
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
    const int threads = team_size(dev, product_work(g));
    struct gemm_plan plan = gemm_plan_of(dev, g->m, g->n, g->k, g->half, g->room, threads);
    plan.g = g;
    if (threads > few_threads(dev)) {
#pragma omp parallel num_threads(threads)
        gemm_work(&plan);
    } else {
#pragma omp parallel num_threads(threads)
        for (int part = 0; part < plan.down * plan.deep * plan.across; part++)
            multiply_part(&plan, part);
    }
}

bool cpu_gemm_takes_both(const struct device *dev)
{
    return dev->threads > few_threads(dev) && dev->threads != 3; /* 3 threads took 1.03 times as
                                                                    long */
}

/* True if a team packs and multiplies the product. */
static bool takes_team(const struct device *dev, const struct gemm *g)
{
    return g->m > 0 && g->n > 0 && (g->m >= THIN || g->trans_a) &&
           team_size(dev, product_work(g)) > 1;
}

void cpu_gemm_both(struct device *dev, const struct gemm *g, const struct gemm *h)
{
    if (!cpu_gemm_takes_both(dev) || !takes_team(dev, g) || !takes_team(dev, h)) {
        cpu_gemm(dev, g);
        cpu_gemm(dev, h);
        return;
    }
    const int threads = dev->threads;
    const double share = (double)product_work(g) / (double)(product_work(g) + product_work(h));
    const int wanted = (int)(threads * share + 0.5);
    const int first = wanted < 1 ? 1 : min_int(wanted, threads - 1);
    struct gemm_plan one = gemm_plan_many(dev, g->m, g->n, g->k, g->half, g->room, first);
    struct gemm_plan other =
        gemm_plan_many(dev, h->m, h->n, h->k, h->half, h->room, threads - first);
    one.g = g, other.g = h;
#pragma omp parallel num_threads(threads)
    gemm_work_both(&one, &other);
}

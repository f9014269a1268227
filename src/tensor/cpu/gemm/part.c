/* Parts of matrix products: packed strip by strip, multiplied tile by tile. */
#include "tensor/cpu/gemm/part.h"

static void pack_strip_a(const struct gemm_part *p, int strip)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    size_t i = (size_t)(p->i + strip * f->rows), l = (size_t)p->l;
    const float *from = g->trans_a ? g->a + l * g->lda + i : g->a + i * g->lda + l;
    float *to = p->a + (size_t)strip * strip_size(f, f->rows, p->k);
    f->pack_a(to, from, g->lda, min_int(f->rows, p->m - strip * f->rows), p->k, !g->trans_a);
}

static void pack_strip_b(const struct gemm_part *p, int strip)
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

static int tiles_down(const struct gemm_part *p)
{
    return ceil_div(p->m, p->plan->tile_rows);
}

void gemm_widen(const struct vector_kernels *f, const struct gemm *g, float *at, size_t ld,
                size_t i, size_t j, int m, int n)
{
    for (size_t r = i; r < i + (size_t)m; r++, at += ld)
        f->widen(at, g->c_from + r * g->ld_half + j, (size_t)n);
}

void gemm_narrow(const struct vector_kernels *f, const struct gemm *g, const float *at, size_t ld,
                 size_t i, size_t j, int m, int n)
{
    for (size_t r = i; r < i + (size_t)m; r++, at += ld)
        f->narrow(g->c_to + r * g->ld_half + j, at, (size_t)n);
}

void part_multiply(const struct gemm_part *p, int tile)
{
    const struct gemm *g = p->plan->g;
    const struct gemm_kernels *f = p->plan->kernels;
    const int rows = p->plan->tile_rows, columns = p->plan->tile_columns;
    int i = tile % tiles_down(p) * rows, j = tile / tiles_down(p) * columns;
    size_t row = (size_t)(p->i + i), column = (size_t)(p->j + j);
    const int m = min_int(rows, p->m - i), n = min_int(columns, p->n - j);
    const size_t own = (size_t)f->tile_rows * (size_t)f->tile_columns;
    if (p->sums) {
        f->block(m, n, p->k, p->a + strip_size(f, i, p->k), p->b + strip_size(f, j, p->k),
                 p->sums + (size_t)i * (size_t)p->plan->columns + j, (size_t)p->plan->columns, NULL,
                 0, NULL);
        return;
    }
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
        gemm_widen(p->plan->vector, g, c, ldc, row, column, m, n);
    const bool send = p->plan->send && g->c && p->l + p->k == g->k && from != c;
    (send ? f->send_block : f->block)(m, n, p->k, p->a + strip_size(f, i, p->k),
                                      p->b + strip_size(f, j, p->k), c, ldc, from, ld_from, bias);
    if (p->l + p->k == g->k && g->c_to)
        gemm_narrow(p->plan->vector, g, c, ldc, row, column, m, n);
}

struct gemm_part part_of(const struct gemm_plan *plan, int index)
{
    const struct gemm *g = plan->g;
    const int b = index / plan->down; /* how often b has changed */
    struct gemm_part p = {.plan = plan,
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

static int strips_a(const struct gemm_part *p)
{
    return p->new_a ? ceil_div(p->m, p->plan->kernels->rows) : 0;
}

int part_strips(const struct gemm_part *p)
{
    return strips_a(p) + (p->new_b ? ceil_div(p->n, p->plan->kernels->columns) : 0);
}

int part_tiles(const struct gemm_part *p)
{
    return tiles_down(p) * ceil_div(p->n, p->plan->tile_columns);
}

void part_pack(const struct gemm_part *p, int strip)
{
    const int a = strips_a(p);
    if (strip < a)
        pack_strip_a(p, strip);
    else
        pack_strip_b(p, strip - a);
}

void part_add(const struct gemm_part *p)
{
    const struct gemm *g = p->plan->g;
    const struct vector_kernels *f = p->plan->vector;
    float *c = g->c + (size_t)p->i * g->ldc + p->j;
    for (int r = 0; r < p->m; r++)
        f->add(c + (size_t)r * g->ldc, p->sums + (size_t)r * (size_t)p->plan->columns,
               (size_t)p->n);
    if (p->l + p->k == g->k && g->c_to)
        gemm_narrow(f, g, c, g->ldc, (size_t)p->i, (size_t)p->j, p->m, p->n);
}

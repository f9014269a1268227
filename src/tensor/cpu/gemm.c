/* Matrix products: OpenBLAS on tiles, threads of ours.
 *
 * Several workers live in one process and OpenBLAS's own pool serves one caller at a time, so it
 * runs single-threaded and the tiles go to the threads of the device. The sum over k is never cut.
 * The last bit of an element depends on the shape of the call that makes it, so the tiles follow
 * from the shape of the product alone. */
#include <cblas.h>

#include "tensor/cpu/cpu.h"

/* The larger of m and n is cut: every tile packs the other operand again. 256 rows a tile cost 4 %.
 */
static int tile_size(int length)
{
    int tiles = length / 256;
    if (tiles > 16)
        tiles = 16;
    return tiles <= 1 ? length : (int)round_up((size_t)((length + tiles - 1) / tiles), 32);
}

void cpu_gemm(struct device *dev, bool trans_a, bool trans_b, int m, int n, int k, const float *a,
              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    bool by_rows = m >= n;
    int length = by_rows ? m : n, step = tile_size(length);
    enum CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans;
    enum CBLAS_TRANSPOSE tb = trans_b ? CblasTrans : CblasNoTrans;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(team(dev, (size_t)m *(size_t)n *(size_t)k / 16))
    for (int at = 0; at < length; at += step) {
        int size = min_int(step, length - at);
        size_t s = (size_t)at;
        if (by_rows)
            cblas_sgemm(CblasRowMajor, ta, tb, size, n, k, 1, a + (trans_a ? s : s * lda), (int)lda,
                        b, (int)ldb, beta, c + s * ldc, (int)ldc);
        else
            cblas_sgemm(CblasRowMajor, ta, tb, m, size, k, 1, a, (int)lda,
                        b + (trans_b ? s * ldb : s), (int)ldb, beta, c + s, (int)ldc);
    }
}

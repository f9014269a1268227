/* The tile of a matrix product: ROWS x COLUMNS elements of c in registers, from packed strips of a
 * and b (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
 *
 * Every element of c is a single chain of multiply-adds over k in any tile, so a product has the
 * same bits however the product is cut into tiles. */
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/strips.h"

/* Steps of k to prefetch ahead: a tile's first strips are read from the third cache, which stalled
 * AVX-512, and AVX2 not, on a Xeon with 1 MB of second cache. */
#if defined(__AVX512F__)
enum { A_AHEAD = 32, B_AHEAD = 8 };
#else
enum { A_AHEAD = 0, B_AHEAD = 0 };
#endif

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12, VECTORS = 2 }; /* 24 of 32 registers hold c */
#elif defined(__AVX__)
enum { LANES = 8, ROWS = 6, VECTORS = 2 }; /* 12 of 16 */
#elif defined(__aarch64__)
enum { LANES = 4, ROWS = 12, VECTORS = 2 }; /* 24 of 32 */
#else
enum { LANES = 4, ROWS = 6, VECTORS = 2 };
#endif
enum { COLUMNS = VECTORS * LANES };

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#if defined(__aarch64__)
#define LANE(i)                                                                                    \
    sum[i][0] = vfmaq_laneq_f32(sum[i][0], row[0], rows, (i) % 4);                                 \
    sum[i][1] = vfmaq_laneq_f32(sum[i][1], row[1], rows, (i) % 4)
#define LANES_FROM(i)                                                                              \
    rows = vld1q_f32(a + (i));                                                                     \
    LANE(i);                                                                                       \
    LANE((i) + 1);                                                                                 \
    LANE((i) + 2);                                                                                 \
    LANE((i) + 3)

/* Adds a column of a times a row of b to `sum`: four rows of a share a register, which leaves
 * enough registers for all of the tile. */
static inline __attribute__((always_inline)) void multiply_add_row(vec sum[ROWS][VECTORS],
                                                                   const float *a,
                                                                   const vec row[VECTORS])
{
    vec rows;
    LANES_FROM(0);
    LANES_FROM(4);
    LANES_FROM(8);
}
#else
static inline __attribute__((always_inline)) void multiply_add_row(vec sum[ROWS][VECTORS],
                                                                   const float *a,
                                                                   const vec row[VECTORS])
{
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < VECTORS; j++)
            sum[i][j] += a[i] * row[j];
    }
}
#endif

/* Computes c = a b + from + bias; `from` (the residual, or c itself) and bias may be NULL. */
static void gemm_tile(int k, const float *a, const float *b, float *c, size_t ldc,
                      const float *from, size_t ld_from, const float *bias)
{
    vec sum[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < VECTORS; j++) {
            sum[i][j] = (vec){0};
            __builtin_prefetch(c + (size_t)i * ldc + j * LANES, 1);
            if (from && from != c)
                __builtin_prefetch(from + (size_t)i * ld_from + j * LANES);
        }
    }
    for (int l = 0; l < k; l++, a += ROWS, b += COLUMNS) {
        vec row[VECTORS];
        if (A_AHEAD > 0)
            fetch_ahead(a, A_AHEAD * ROWS * sizeof *a);
        for (int j = 0; B_AHEAD > 0 && j < VECTORS; j++)
            fetch_ahead(b + j * LANES, B_AHEAD * COLUMNS * sizeof *b);
        for (int j = 0; j < VECTORS; j++)
            row[j] = *(const vec_at *)(b + j * LANES);
        multiply_add_row(sum, a, row);
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < VECTORS; j++) {
            if (from)
                sum[i][j] += *(const vec_at *)(from + (size_t)i * ld_from + j * LANES);
            if (bias)
                sum[i][j] += *(const vec_at *)(bias + j * LANES);
            *(vec_at *)(c + (size_t)i * ldc + j * LANES) = sum[i][j];
        }
    }
}

/* Computes a tile at the edge: the whole tile in scratch, then the elements inside c. */
static void gemm_edge(int k, const float *a, const float *b, float *c, size_t ldc,
                      const float *from, size_t ld_from, const float *bias, int rows, int columns)
{
    float whole[ROWS * COLUMNS];
    gemm_tile(k, a, b, whole, COLUMNS, NULL, 0, NULL);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            float x = whole[i * COLUMNS + j];
            x = from ? x + from[(size_t)i * ld_from + (size_t)j] : x;
            c[(size_t)i * ldc + (size_t)j] = bias ? x + bias[j] : x;
        }
    }
}

static void gemm_block(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                       const float *from, size_t ld_from, const float *bias)
{
    for (int j = 0; j < n; j += COLUMNS, b += (size_t)k * COLUMNS) {
        const float *strip = a, *bias_at = bias ? bias + j : NULL;
        for (int i = 0; i < m; i += ROWS, strip += (size_t)k * ROWS) {
            float *to = c + (size_t)i * ldc + (size_t)j;
            const float *from_at = from ? from + (size_t)i * ld_from + (size_t)j : NULL;
            int rows = m - i < ROWS ? m - i : ROWS, columns = n - j < COLUMNS ? n - j : COLUMNS;
            if (rows == ROWS && columns == COLUMNS)
                gemm_tile(k, strip, b, to, ldc, from_at, ld_from, bias_at);
            else
                gemm_edge(k, strip, b, to, ldc, from_at, ld_from, bias_at, rows, columns);
        }
    }
}

/* Widens bf16, which is the upper half of fp32. */
static inline void widen_words(float *to, const uint16_t *x, int n)
{
    for (int i = 0; i < n; i++) {
        const uint32_t word = (uint32_t)x[i] << 16;
        memcpy(to + i, &word, sizeof word);
    }
}

static void gemm_pack_a(float *to, const float *a, size_t ld, int n, int k, bool turned)
{
    if (turned)
        turn_strip(to, a, ld, n, k, ROWS);
    else
        copy_strip(to, a, ld, n, k, ROWS);
}

static void gemm_pack_b(float *to, const float *b, size_t ld, int n, int k, bool turned)
{
    if (turned)
        turn_strip(to, b, ld, n, k, COLUMNS);
    else
        copy_strip(to, b, ld, n, k, COLUMNS);
}

static void gemm_pack_b_half(float *to, const uint16_t *b, size_t ld, int n, int k, bool turned)
{
    enum { DEEP = 64 }; /* one or two cache lines of b */
    float wide[COLUMNS * DEEP];
    for (int l = 0; !turned && l < k; l++, to += COLUMNS, b += ld) {
        if (ROWS_AHEAD > 0)
            fetch_row(b, ROWS_AHEAD * ld * sizeof *b, COLUMNS * sizeof *b);
        widen_words(to, b, n);
        for (int j = n; j < COLUMNS; j++)
            to[j] = 0;
    }
    for (int l = 0; turned && l < k; l += DEEP) {
        const int deep = k - l < DEEP ? k - l : DEEP;
        for (int j = 0; j < n; j++)
            widen_words(wide + j * DEEP, b + (size_t)j * ld + l, deep);
        turn_strip(to + l * COLUMNS, wide, DEEP, n, deep, COLUMNS);
    }
}

const struct gemm_kernels KERNELS(fast_gemm) = {
    .rows = ROWS,
    .columns = COLUMNS,
    .tile_rows = 96,
    .tile_columns = 128,
    .depth = 1,
    .halves = 2,
    .pack_a = gemm_pack_a,
    .pack_b = gemm_pack_b,
    .pack_b_half = gemm_pack_b_half,
    .block = gemm_block,
};

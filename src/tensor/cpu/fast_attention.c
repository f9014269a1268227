/* Softmax of rows of scores, and small matrix products (of the cosine transform, codec.c).
 *
 * Such a product has a few dozen rows and lives in the first two caches, where packing would cost
 * more than it saves. A tile of ROWS x VECTORS vectors of c stays in registers; a is broadcast,
 * which makes its transposition free, and b is read in rows. */
#include <math.h>

#include "tensor/cpu/fast_math.h"
#include "tensor/cpu/kernels.h"

#if defined(__AVX512F__)
enum { LANES = 16, VECTORS = 4 }; /* 24 of 32 registers hold c */
#elif defined(__AVX__)
enum { LANES = 8, VECTORS = 2 }; /* 12 of 16 */
#else
enum { LANES = 4, VECTORS = 2 };
#endif
enum { ROWS = ATTENTION_STRIP };

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Inlined with constant rows and vectors, which the unrolling needs. */
static inline __attribute__((always_inline)) void tile(int rows, int vectors, int k, const float *a,
                                                       size_t a_row, size_t a_col, const float *b,
                                                       size_t ldb, float *c, size_t ldc, bool add)
{
    vec sum[ROWS][VECTORS];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (vec){0};
    }
    for (int l = 0; l < k; l++) {
        vec row[VECTORS];
        for (int j = 0; j < vectors; j++)
            row[j] = *(const vec_at *)(b + l * ldb + j * LANES);
        for (int i = 0; i < rows; i++) {
            float x = a[i * a_row + l * a_col];
            for (int j = 0; j < vectors; j++)
                sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) {
            vec_at *to = (vec_at *)(c + i * ldc + j * LANES);
            if (add)
                sum[i][j] += *to;
            *to = sum[i][j];
        }
    }
}

/* All of n for `rows` rows. */
static inline __attribute__((always_inline)) void strip(int rows, int n, int k, const float *a,
                                                        size_t a_row, size_t a_col, const float *b,
                                                        size_t ldb, float *c, size_t ldc, bool add)
{
    int j = 0;
    for (; j + VECTORS * LANES <= n; j += VECTORS * LANES)
        tile(rows, VECTORS, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
    for (; j + 2 * LANES <= n; j += 2 * LANES)
        tile(rows, 2, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
    for (; j + LANES <= n; j += LANES)
        tile(rows, 1, k, a, a_row, a_col, b + j, ldb, c + j, ldc, add);
}

static void product(int m, int n, int k, const float *a, size_t a_row, size_t a_col, const float *b,
                    size_t ldb, float *c, size_t ldc, bool add)
{
    for (; m >= ROWS; m -= ROWS, a += ROWS * a_row, c += ROWS * ldc)
        strip(ROWS, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
    switch (m) {
    case 5:
        strip(5, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
        break;
    case 4:
        strip(4, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
        break;
    case 3:
        strip(3, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
        break;
    case 2:
        strip(2, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
        break;
    case 1:
        strip(1, n, k, a, a_row, a_col, b, ldb, c, ldc, add);
        break;
    }
}

/* Rows are short, so what costs is not the arithmetic: loops run over whole groups of GROUP scores,
 * as many for every row of a strip, and what a row does not see is set aside by its place. */
enum { GROUP = ATTENTION_PAD };

static float largest(float x[GROUP])
{
#pragma GCC unroll 4
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            x[j] = x[j + half] > x[j] ? x[j + half] : x[j];
    }
    return x[0];
}

static float total(float x[GROUP])
{
#pragma GCC unroll 4
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            x[j] += x[j + half];
    }
    return x[0];
}

static float softmax(float *s, int lo, int hi, int n, float scale, float *lse)
{
    float most[GROUP], part[GROUP] = {0};
    for (int j = 0; j < GROUP; j++)
        most[j] = -INFINITY;
    for (int i = 0; i < n; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            const bool seen = (unsigned)(i + j - lo) < (unsigned)(hi - lo);
            s[i + j] = seen ? s[i + j] * scale : -INFINITY;
            most[j] = s[i + j] > most[j] ? s[i + j] : most[j];
        }
    }
    const float max = largest(most);
    for (int i = 0; i < n; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            float e = fast_exp(s[i + j] - max);
            s[i + j] = e;
            part[j] += e;
        }
    }
    const float sum = total(part);
    *lse = max + logf(sum);
    return 1.0f / sum;
}

/* p and ds of a group, of which places [lo, hi) are seen; all of them if not at an `edge`. */
static inline __attribute__((always_inline)) void group_backward(float *s, float *dp, int lo,
                                                                 int hi, float scale, float lse,
                                                                 float delta, bool edge)
{
#pragma omp simd
    for (int j = 0; j < GROUP; j++) {
        const uint32_t seen = !edge || (unsigned)(j - lo) < (unsigned)(hi - lo) ? ~0u : 0;
        const float p = fast_exp(scale * s[j] - lse), ds = p * (dp[j] - delta) * scale;
        s[j] = bits_float(float_bits(p) & seen);
        dp[j] = bits_float(float_bits(ds) & seen);
    }
}

static void softmax_backward(float *s, float *dp, int lo, int hi, int n, float scale, float lse,
                             float delta)
{
    for (int i = 0; i < n; i += GROUP) {
        if (lo <= i && i + GROUP <= hi)
            group_backward(s + i, dp + i, 0, GROUP, scale, lse, delta, false);
        else
            group_backward(s + i, dp + i, lo - i, hi - i, scale, lse, delta, true);
    }
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

const struct attention_kernels KERNELS(fast_attention) = {
    .product = product,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .dot = dot,
};

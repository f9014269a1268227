/* The pieces of blocked attention: small matrix products, softmax of a score row, a transposition.
 *
 * The products have a few dozen rows and live in the first two caches, where a library's packing
 * costs more than it saves. A tile of ROWS x VECTORS vectors of c stays in registers; a is
 * broadcast, which makes its transposition free, and b is read in rows. */
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

static void transpose(float *y, const float *x, size_t ldx, int rows, int columns)
{
    for (int r = 0; r < rows; r += ATTENTION_PANEL, y += columns * ATTENTION_PANEL) {
        int n = rows - r < ATTENTION_PANEL ? rows - r : ATTENTION_PANEL;
        for (int c = 0; c < columns; c++) {
            float *to = y + c * ATTENTION_PANEL;
            for (int i = 0; i < n; i++)
                to[i] = x[(size_t)(r + i) * ldx + (size_t)c];
            for (int i = n; i < ATTENTION_PANEL; i++)
                to[i] = 0;
        }
    }
}

static float softmax(float *s, int lo, int hi, int n, float scale, float *lse)
{
    float max = s[lo];
#pragma omp simd reduction(max : max)
    for (int i = lo; i < hi; i++)
        max = s[i] > max ? s[i] : max;
    if (scale < 0) { /* the largest product is then the smallest score */
        max = s[lo];
        for (int i = lo; i < hi; i++)
            max = s[i] < max ? s[i] : max;
    }
    max *= scale;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = lo; i < hi; i++) {
        float e = fast_exp(scale * s[i] - max);
        s[i] = e;
        sum += e;
    }
    memset(s, 0, (size_t)lo * sizeof *s);
    memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    *lse = max + logf(sum);
    return 1.0f / sum;
}

static void softmax_backward(float *s, float *dp, int lo, int hi, int n, float scale, float lse,
                             float delta)
{
#pragma omp simd
    for (int i = lo; i < hi; i++) {
        float p = fast_exp(scale * s[i] - lse);
        s[i] = p;
        dp[i] = p * (dp[i] - delta) * scale;
    }
    memset(s, 0, (size_t)lo * sizeof *s);
    memset(dp, 0, (size_t)lo * sizeof *dp);
    memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    memset(dp + hi, 0, (size_t)(n - hi) * sizeof *dp);
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
    .transpose = transpose,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .dot = dot,
};

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

/* Rows are short, so loops run over whole groups of GROUP scores and what lies outside is set
 * aside: a remainder, element by element, would cost more than the rest. */
enum { GROUP = ATTENTION_PAD };

static void set(float *s, int from, int to, float value)
{
    for (int i = from; i < to; i++)
        s[i] = value;
}

/* s *= scale in [lo, hi), -infinity in the rest of its groups; returns the largest. */
static float scale_and_max(float *s, int lo, int hi, float scale)
{
    int first = lo / GROUP * GROUP, end = (hi + GROUP - 1) / GROUP * GROUP;
    float most[GROUP];
    for (int j = 0; j < GROUP; j++)
        most[j] = -INFINITY;
    for (int i = first; i < end; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++)
            s[i + j] *= scale;
    }
    set(s, first, lo, -INFINITY);
    set(s, hi, end, -INFINITY);
    for (int i = first; i < end; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++)
            most[j] = s[i + j] > most[j] ? s[i + j] : most[j];
    }
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            most[j] = most[j + half] > most[j] ? most[j + half] : most[j];
    }
    return most[0];
}

static float softmax(float *s, int lo, int hi, int n, float scale, float *lse)
{
    int first = lo / GROUP * GROUP, end = (hi + GROUP - 1) / GROUP * GROUP;
    float max = scale_and_max(s, lo, hi, scale), part[GROUP] = {0};
    for (int i = first; i < end; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            float e = fast_exp(s[i + j] - max);
            s[i + j] = e;
            part[j] += e;
        }
    }
    for (int half = GROUP / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            part[j] += part[j + half];
    }
    set(s, 0, first, 0);
    set(s, end, n, 0);
    *lse = max + logf(part[0]);
    return 1.0f / part[0];
}

static void softmax_backward(float *s, float *dp, int lo, int hi, int n, float scale, float lse,
                             float delta)
{
    int first = lo / GROUP * GROUP, end = (hi + GROUP - 1) / GROUP * GROUP;
    for (int i = first; i < end; i += GROUP) {
#pragma omp simd
        for (int j = 0; j < GROUP; j++) {
            float p = fast_exp(scale * s[i + j] - lse);
            s[i + j] = p;
            dp[i + j] = p * (dp[i + j] - delta) * scale;
        }
    }
    set(s, 0, lo, 0);
    set(dp, 0, lo, 0);
    set(s, hi, n, 0);
    set(dp, hi, n, 0);
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

/* Matrix products with the bf16 instructions of recent aarch64, for mixed precision: operands are
 * rounded to bf16, sums are fp32.
 *
 * BFMMLA adds the product of 2 x 4 by 4 x 2 elements to 2 x 2 sums. A strip has pairs of rows (of
 * b: of columns) next to each other, four of k each. The processor decides how the four products
 * are rounded: older processors round sums to odd and treat denormal numbers as zero. */
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

#include <arm_neon.h>
#include <string.h>

#include "tensor/cpu/simd/kernels.h"

enum { ROWS = 8, COLUMNS = 8, DEEP = 4 }; /* 16 of 32 registers hold c */

/* Sums of rows 2i and 2i + 1, columns 2j and 2j + 1, as the instruction leaves them. */
typedef float32x4_t sums[ROWS / 2][COLUMNS / 2];

static inline __attribute__((always_inline)) void bfmmla_multiply(int k, const bfloat16_t *a,
                                                                  const bfloat16_t *b, sums c)
{
    for (int i = 0; i < ROWS / 2; i++)
        for (int j = 0; j < COLUMNS / 2; j++)
            c[i][j] = vdupq_n_f32(0);
    for (int l = 0; l < k; l += DEEP, a += ROWS * DEEP, b += COLUMNS * DEEP) {
        bfloat16x8_t column[COLUMNS / 2];
        for (int j = 0; j < COLUMNS / 2; j++)
            column[j] = vld1q_bf16(b + 8 * j);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS / 2; i++) {
            const bfloat16x8_t row = vld1q_bf16(a + 8 * i);
            for (int j = 0; j < COLUMNS / 2; j++)
                c[i][j] = vbfmmlaq_f32(c[i][j], row, column[j]);
        }
    }
}

/* Returns elements j to j + 3 of row i of the sums. */
static inline float32x4_t bfmmla_row(sums c, int i, int j)
{
    const float64x2_t left = vreinterpretq_f64_f32(c[i / 2][j / 2]);
    const float64x2_t right = vreinterpretq_f64_f32(c[i / 2][j / 2 + 1]);
    return vreinterpretq_f32_f64(i % 2 ? vzip2q_f64(left, right) : vzip1q_f64(left, right));
}

/* Computes c = a b + from + bias; `from` (the residual, or c itself) and bias may be NULL. */
static void bfmmla_tile(int k, const bfloat16_t *a, const bfloat16_t *b, float *c, size_t ldc,
                        const float *from, size_t ld_from, const float *bias)
{
    sums sum;
    bfmmla_multiply(k, a, b, sum);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j += 4) {
            float32x4_t x = bfmmla_row(sum, i, j);
            if (from)
                x = vaddq_f32(x, vld1q_f32(from + (size_t)i * ld_from + j));
            if (bias)
                x = vaddq_f32(x, vld1q_f32(bias + j));
            vst1q_f32(c + (size_t)i * ldc + j, x);
        }
    }
}

/* Computes a tile at the edge: the whole tile in scratch, then the elements inside c. */
static void bfmmla_edge(int k, const bfloat16_t *a, const bfloat16_t *b, float *c, size_t ldc,
                        const float *from, size_t ld_from, const float *bias, int rows, int columns)
{
    float whole[ROWS * COLUMNS];
    bfmmla_tile(k, a, b, whole, COLUMNS, NULL, 0, NULL);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            float x = whole[i * COLUMNS + j];
            x += from ? from[(size_t)i * ld_from + (size_t)j] : 0;
            c[(size_t)i * ldc + (size_t)j] = x + (bias ? bias[j] : 0);
        }
    }
}

static void bfmmla_block(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                         const float *from, size_t ld_from, const float *bias)
{
    const size_t deep = (size_t)((k + DEEP - 1) / DEEP * DEEP);
    const bfloat16_t *b_at = (const bfloat16_t *)(const void *)b;
    for (int j = 0; j < n; j += COLUMNS, b_at += deep * COLUMNS) {
        const bfloat16_t *a_at = (const bfloat16_t *)(const void *)a;
        const int columns = n - j < COLUMNS ? n - j : COLUMNS;
        for (int i = 0; i < m; i += ROWS, a_at += deep * ROWS) {
            float *to = c + (size_t)i * ldc + j;
            const float *from_at = from ? from + (size_t)i * ld_from + j : NULL;
            const int rows = m - i < ROWS ? m - i : ROWS;
            if (rows == ROWS && columns == COLUMNS)
                bfmmla_tile(k, a_at, b_at, to, ldc, from_at, ld_from, bias ? bias + j : NULL);
            else
                bfmmla_edge(k, a_at, b_at, to, ldc, from_at, ld_from, bias ? bias + j : NULL, rows,
                            columns);
        }
    }
}

static inline uint16x4_t round_four(float32x4_t x)
{
    return vreinterpret_u16_bf16(vcvt_bf16_f32(x));
}

/* Store four of k of four rows, read from rows (turned) or columns (across) of memory: the first
 * two rows at `to`, the other two at to + 8. */
static inline void store_turned(uint16_t *to, const uint16x4_t row[4])
{
    vst1q_u16(to, vcombine_u16(row[0], row[1]));
    vst1q_u16(to + 8, vcombine_u16(row[2], row[3]));
}

static inline void store_across(uint16_t *to, const uint16x4_t deep[4])
{
    const uint16x8_t low = vcombine_u16(deep[0], deep[2]), high = vcombine_u16(deep[1], deep[3]);
    const uint16x8_t even = vtrn1q_u16(low, high), odd = vtrn2q_u16(low, high);
    /* even: k 0 and 1 of rows 0 and 2, then k 2 and 3; odd: of rows 1 and 3 */
    const uint32x4_t e = vreinterpretq_u32_u16(even), o = vreinterpretq_u32_u16(odd);
    const uint32x2_t row_0 = vtrn1_u32(vget_low_u32(e), vget_high_u32(e));
    const uint32x2_t row_1 = vtrn1_u32(vget_low_u32(o), vget_high_u32(o));
    const uint32x2_t row_2 = vtrn2_u32(vget_low_u32(e), vget_high_u32(e));
    const uint32x2_t row_3 = vtrn2_u32(vget_low_u32(o), vget_high_u32(o));
    vst1q_u16(to, vreinterpretq_u16_u32(vcombine_u32(row_0, row_1)));
    vst1q_u16(to + 8, vreinterpretq_u16_u32(vcombine_u32(row_2, row_3)));
}

/* Packs a strip of `width` rows (columns of b), from fp32 or, if x is NULL, from bf16; element (i,
 * l) is at [i*ld + l] if `turned`, else at [l*ld + i]; zero beyond n and k. */
static inline __attribute__((always_inline)) void bfmmla_pack(float *strip, const float *x,
                                                              const uint16_t *half, size_t ld,
                                                              int n, int k, bool turned, int width)
{
    uint16_t *to = (uint16_t *)(void *)strip;
    for (int l = 0; l < k; l += DEEP) {
        for (int i = 0; i < width; i += 4, to += 16) {
            const size_t at = turned ? (size_t)i * ld + (size_t)l : (size_t)l * ld + (size_t)i;
            const int outer = turned ? n - i : k - l, inner = turned ? k - l : n - i;
            uint16x4_t four[4];
            for (int o = 0; o < 4; o++) {
                const size_t here = at + (size_t)o * ld;
                float some[4] = {0};
                uint16_t words[4] = {0};
                if (outer >= 4 && inner >= 4) {
                    four[o] = x ? round_four(vld1q_f32(x + here)) : vld1_u16(half + here);
                    continue;
                }
                for (int e = 0; o < outer && e < 4 && e < inner; e++) {
                    if (x)
                        some[e] = x[here + (size_t)e];
                    else
                        words[e] = half[here + (size_t)e];
                }
                four[o] = x ? round_four(vld1q_f32(some)) : vld1_u16(words);
            }
            if (turned)
                store_turned(to, four);
            else
                store_across(to, four);
        }
    }
}

static void bfmmla_pack_a(float *strip, const float *x, size_t ld, int n, int k, bool turned)
{
    if (turned)
        bfmmla_pack(strip, x, NULL, ld, n, k, true, ROWS);
    else
        bfmmla_pack(strip, x, NULL, ld, n, k, false, ROWS);
}

static void bfmmla_pack_b(float *strip, const float *x, size_t ld, int n, int k, bool turned)
{
    if (turned)
        bfmmla_pack(strip, x, NULL, ld, n, k, true, COLUMNS);
    else
        bfmmla_pack(strip, x, NULL, ld, n, k, false, COLUMNS);
}

static void bfmmla_pack_b_half(float *strip, const uint16_t *x, size_t ld, int n, int k,
                               bool turned)
{
    if (turned)
        bfmmla_pack(strip, NULL, x, ld, n, k, true, COLUMNS);
    else
        bfmmla_pack(strip, NULL, x, ld, n, k, false, COLUMNS);
}

const struct gemm_kernels gemm_bfmmla = {
    .rows = ROWS,
    .columns = COLUMNS,
    .tile_rows = 96,
    .tile_columns = 256,
    .depth = DEEP,
    .halves = 1,
    .pack_a = bfmmla_pack_a,
    .pack_b = bfmmla_pack_b,
    .pack_b_half = bfmmla_pack_b_half,
    .block = bfmmla_block,
};

#else
typedef int bfmmla_absent; /* not for this machine */
#endif

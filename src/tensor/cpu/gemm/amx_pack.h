/* Operands of the matrix unit (amx.c): strips of 32 rows or columns of bf16; an fp32 number is the
 * sum of three bf16 numbers. */
#ifndef SOTTO_TENSOR_CPU_GEMM_AMX_PACK_H
#define SOTTO_TENSOR_CPU_GEMM_AMX_PACK_H

#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/simd/kernels.h"

enum {
    SIDE = 32,             /* of the tile of c in registers: 2 x 2 of 16 x 16 */
    DEEP = 32,             /* k of a step                                     */
    AHEAD = 2 * DEEP,      /* k to prefetch ahead of a step                   */
    WHOLE = 3,             /* parts, bf16 numbers, for one of fp32            */
    PART = SIDE * DEEP * 2 /* bytes of one part of an operand in a step       */
};

/* Compiled for each number of parts, 1 or WHOLE. */
#define FOR_PARTS static inline __attribute__((always_inline))

/* The unit multiplies pairs of k, and any two of k may be a pair. With one part the pairs are
 * neighbours: an instruction converts to such pairs, and bf16 has them in memory. With three parts
 * the pairs are k and k + 16, since two lines become a line of such pairs without permuting
 * words. */
FOR_PARTS int to_mate(int parts)
{
    return parts == WHOLE ? DEEP / 2 : 1;
}

FOR_PARTS int next_pair(int parts)
{
    return parts == WHOLE ? 1 : 2;
}

/* Interleaves a line: words j and 16 + j become neighbours. */
static inline __m512i interleave_words(__m512i line)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), line);
}

/* Interleave the lower words, or the upper words, of both lines. */
static inline __m512i lower_words(__m512i left, __m512i right)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, left, _mm512_slli_epi32(right, 16));
}

static inline __m512i upper_words(__m512i left, __m512i right)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(left, 16), right);
}

/* Splits pairs of numbers into pairs of bf16, three parts at a `distance` in bytes: each part is
 * the remainder rounded to nearest, and the last part leaves no remainder. */
static inline void split_pair(char *to, __m512 left, __m512 right, int distance)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000), half = _mm512_set1_epi32(0x8000);
    for (int p = 1; p < WHOLE; p++, to += distance) {
        const __m512i l = _mm512_add_epi32(_mm512_castps_si512(left), half);
        const __m512i r = _mm512_add_epi32(_mm512_castps_si512(right), half);
        _mm512_storeu_si512(to, upper_words(l, r));
        left = _mm512_sub_ps(left, _mm512_castsi512_ps(_mm512_and_si512(l, upper)));
        right = _mm512_sub_ps(right, _mm512_castsi512_ps(_mm512_and_si512(r, upper)));
    }
    _mm512_storeu_si512(to, upper_words(_mm512_castps_si512(left), _mm512_castps_si512(right)));
}

/* Splits 32 numbers into 32 bf16, parts at a `distance` in bytes. */
FOR_PARTS void split_line(char *to, const float *x, int parts, int distance)
{
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    if (parts == WHOLE)
        split_pair(to, low, high, distance);
    else
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Splits rows of 32 numbers into rows of 32 bf16, part after part: the left operand of the unit. */
FOR_PARTS void split_rows(char *to, const float *x, size_t ld, int parts)
{
    for (int i = 0; i < SIDE; i++, x += ld)
        split_line(to + i * 64, x, parts, PART);
}

/* Splits columns of 32 numbers, in the same pairs, into the right operand of the unit: line `pair`
 * of the first 16 columns, then of the last 16. */
FOR_PARTS void split_pairs(char *to, const float *x, size_t ld, int parts)
{
    const size_t next = (size_t)next_pair(parts) * ld, mate = (size_t)to_mate(parts) * ld;
    for (int pair = 0; pair < DEEP / 2; pair++, x += next, to += 64) {
        for (int half = 0; half < 2; half++) {
            const __m512 l = _mm512_loadu_ps(x + half * 16);
            const __m512 r = _mm512_loadu_ps(x + mate + half * 16);
            if (parts == WHOLE)
                split_pair(to + half * 1024, l, r, PART);
            else
                _mm512_storeu_si512(to + half * 1024,
                                    interleave_words((__m512i)_mm512_cvtne2ps_pbh(r, l)));
        }
    }
}

/* Computes y[c*ldy + r] = a[r][c], 16 x 16 in registers: pairs of rows, fours, eights, all. */
static inline void transpose_lines(float *y, size_t ldy, __m512 a[16])
{
    __m512 b[16];
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            const __m512d p = _mm512_castps_pd(b[i + h]), q = _mm512_castps_pd(b[i + h + 2]);
            a[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
            a[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
        }
    for (int i = 0; i < 16; i += 8)
        for (int c = 0; c < 4; c++) {
            b[i + c] = _mm512_shuffle_f32x4(a[i + c], a[i + c + 4], 0x88);
            b[i + c + 4] = _mm512_shuffle_f32x4(a[i + c], a[i + c + 4], 0xdd);
        }
    for (int c = 0; c < 8; c++) {
        _mm512_storeu_ps(y + (size_t)c * ldy, _mm512_shuffle_f32x4(b[c], b[c + 8], 0x88));
        _mm512_storeu_ps(y + (size_t)(c + 8) * ldy, _mm512_shuffle_f32x4(b[c], b[c + 8], 0xdd));
    }
}

static inline void transpose_16(float *y, size_t ldy, const float *x, size_t ldx)
{
    __m512 a[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(x + (size_t)i * ldx);
    transpose_lines(y, ldy, a);
}

/* Transposes 16 x 16 pairs of bf16, each pair as a number of 32 bits. */
static inline void transpose_words(char *to, const uint16_t *x, size_t ldx)
{
    __m512 a[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(x + (size_t)i * ldx);
    transpose_lines((float *)to, 16, a);
}

/* Transposes a square of SIDE. */
static void transpose_square(float *y, const float *x, size_t ldx)
{
    for (int r = 0; r < SIDE; r += 16)
        for (int c = 0; c < SIDE; c += 16)
            transpose_16(y + c * SIDE + r, SIDE, x + (size_t)r * ldx + c, ldx);
}

/* Prefetches the source of step l + AHEAD of a strip into the second cache, and at first the source
 * of the steps before. Rows are often pages apart, where processors do not predict the next row. */
static inline void fetch_strip(const float *x, size_t ld, int n, int k, int l, bool turned)
{
    for (int at = l ? l + AHEAD : 0; at <= l + AHEAD && at < k; at += DEEP) {
        const int deep = k - at < DEEP ? k - at : DEEP;
        const int rows = turned ? n : deep, columns = turned ? deep : n;
        const float *row = x + (turned ? (size_t)at : (size_t)at * ld);
        for (int r = 0; r < rows; r++, row += ld) {
            for (int c = 0; c < columns; c += 16)
                __builtin_prefetch(row + c, 0, 2);
            __builtin_prefetch(row + columns - 1, 0, 2);
        }
    }
}

/* Returns the `rows` x `columns` elements at `x` as a square of SIDE with zeros beyond: x itself if
 * x has all elements, else a copy in `whole`, with `*ld` changed. */
static const float *whole_square(float whole[SIDE * SIDE], const float *x, size_t *ld, int rows,
                                 int columns)
{
    if (rows == SIDE && columns == SIDE)
        return x;
    memset(whole, 0, SIDE * SIDE * sizeof *whole);
    for (int r = 0; r < rows; r++)
        memcpy(whole + r * SIDE, x + (size_t)r * *ld, (size_t)columns * sizeof *whole);
    *ld = SIDE;
    return whole;
}

/* Packs rows of a or, on the `right`, columns of b. */
FOR_PARTS void amx_pack(float *strip, const float *x, size_t ld, int n, int k, bool turned,
                        int parts, bool right)
{
    char *to = (char *)strip;
    float whole[SIDE * SIDE], across[SIDE * SIDE];
    for (int l = 0; l < k; l += DEEP, to += parts * PART) {
        const int deep = k - l < DEEP ? k - l : DEEP;
        size_t stride = ld;
        fetch_strip(x, ld, n, k, l, turned);
        const float *from = turned ? whole_square(whole, x + l, &stride, n, deep)
                                   : whole_square(whole, x + (size_t)l * ld, &stride, deep, n);
        if (turned == right) {
            transpose_square(across, from, stride);
            from = across, stride = SIDE;
        }
        if (right)
            split_pairs(to, from, stride, parts);
        else
            split_rows(to, from, stride, parts);
    }
}

/* Returns a square of bf16, as whole_square does for fp32. */
static const uint16_t *whole_square_half(uint16_t whole[SIDE * SIDE], const uint16_t *x, size_t *ld,
                                         int rows, int columns)
{
    if (rows == SIDE && columns == SIDE)
        return x;
    memset(whole, 0, SIDE * SIDE * sizeof *whole);
    for (int r = 0; r < rows; r++)
        memcpy(whole + r * SIDE, x + (size_t)r * *ld, (size_t)columns * sizeof *whole);
    *ld = SIDE;
    return whole;
}

/* Loads 32 words of `x` from `at` on, or zeros if x is NULL. */
static inline __m512i line_at(const uint16_t *x, size_t at)
{
    return x ? _mm512_loadu_si512(x + at) : _mm512_setzero_si512();
}

/* Stores two rows of 32 words as two lines of 16 pairs (even, odd). */
static inline void pair_up(char *to, __m512i even, __m512i odd)
{
    const __m512i low = _mm512_shuffle_i64x2(even, odd, 0x44); /* 16 words of each */
    const __m512i high = _mm512_shuffle_i64x2(even, odd, 0xee);
    _mm512_store_si512(to, interleave_words(low));
    _mm512_store_si512(to + 1024, interleave_words(high));
}

static void amx_pack_b_half(float *strip, const uint16_t *x, size_t ld, int n, int k, bool turned)
{
    char *to = (char *)strip;
    uint16_t whole[SIDE * SIDE] __attribute__((aligned(64)));
    for (int l = 0; l < k; l += DEEP, to += PART) {
        int deep = k - l < DEEP ? k - l : DEEP;
        size_t stride = ld;
        if (turned) { /* pairs are neighbours already: only pairs are transposed */
            const uint16_t *from = whole_square_half(whole, x + l, &stride, n, deep);
            for (int half = 0; half < 2; half++)
                transpose_words(to + half * 1024, from + (size_t)half * 16 * stride, stride);
            continue;
        }
        const uint16_t *from = whole_square_half(whole, x + (size_t)l * ld, &stride, deep, n);
        for (int pair = 0; pair < DEEP / 2; pair++, from += 2 * stride)
            pair_up(to + pair * 64, line_at(from, 0), line_at(from, stride));
    }
}

/* Splits a row: of every 32 elements part after part. */
FOR_PARTS void split_row(uint16_t *to, const float *x, size_t n, int parts)
{
    for (size_t at = 0; at < n; at += DEEP, to += parts * DEEP)
        split_line((char *)to, x + at, parts, 2 * DEEP);
}

FOR_PARTS void amx_pack_a_split(float *strip, const uint16_t *const *rows, size_t at, int n, int k,
                                int parts)
{
    char *to = (char *)strip;
    for (int l = 0; l < k; l += DEEP, at += (size_t)(parts * DEEP), to += parts * PART) {
        for (int i = 0; i < SIDE; i++)
            for (int p = 0; p < parts; p++)
                _mm512_store_si512(to + p * PART + i * 64,
                                   line_at(i < n ? rows[i] : NULL, at + (size_t)(p * DEEP)));
    }
}

FOR_PARTS void amx_pack_b_split(float *strip, const uint16_t *const *rows, size_t at, int k,
                                int parts)
{
    char *to = (char *)strip;
    for (int l = 0; l < k; l += DEEP, to += parts * PART) {
        for (int pair = 0; pair < DEEP / 2; pair++) {
            const int r = l + pair * next_pair(parts), mate = r + to_mate(parts);
            const uint16_t *left = r < k ? rows[r] : NULL, *right = mate < k ? rows[mate] : NULL;
            for (int p = 0; p < parts; p++) {
                const __m512i one = line_at(left, at + (size_t)(p * DEEP));
                const __m512i other = line_at(right, at + (size_t)(p * DEEP));
                char *pairs = to + p * PART + pair * 64;
                if (parts == WHOLE) {
                    _mm512_store_si512(pairs, lower_words(one, other));
                    _mm512_store_si512(pairs + 1024, upper_words(one, other));
                } else {
                    pair_up(pairs, one, other);
                }
            }
        }
    }
}

#endif

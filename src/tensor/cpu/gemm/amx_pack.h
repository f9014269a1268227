/* What the matrix unit takes (amx.c): strips of 32 rows or columns of bf16, an fp32 number as the
 * sum of three. */
#ifndef SOTTO_TENSOR_CPU_GEMM_AMX_PACK_H
#define SOTTO_TENSOR_CPU_GEMM_AMX_PACK_H

#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/simd/kernels.h"

enum {
    SIDE = 32,             /* of the tile of c in registers: 2 x 2 of 16 x 16 */
    DEEP = 32,             /* k of a step                                     */
    AHEAD = 2 * DEEP,      /* of a step, what is asked for while it is packed */
    WHOLE = 3,             /* parts, bf16 numbers, for one of fp32            */
    PART = SIDE * DEEP * 2 /* bytes of one part of an operand in a step       */
};

/* Compiled for either number of parts. */
#define FOR_PARTS static inline __attribute__((always_inline))

/* The unit multiplies pairs of k, and any two may be a pair. Of one part they are neighbours: an
 * instruction converts them so, and bf16 lies so. Of three they are k and k + 16, since two lines
 * become one of such pairs without permuting words. */
FOR_PARTS int to_mate(int parts)
{
    return parts == WHOLE ? DEEP / 2 : 1;
}

FOR_PARTS int next_pair(int parts)
{
    return parts == WHOLE ? 1 : 2;
}

/* Words j and 16 + j of a line side by side. */
static inline __m512i interleave_words(__m512i line)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), line);
}

/* Lower or upper words of both, side by side. */
static inline __m512i lower_words(__m512i left, __m512i right)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, left, _mm512_slli_epi32(right, 16));
}

static inline __m512i upper_words(__m512i left, __m512i right)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(left, 16), right);
}

/* Pairs of numbers as pairs of bf16, three parts so many bytes apart: each is the rounding to
 * nearest of what the ones before it leave, and the last one leaves nothing. */
static inline void split_pair(char *to, __m512 left, __m512 right, int apart)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000), half = _mm512_set1_epi32(0x8000);
    for (int p = 1; p < WHOLE; p++, to += apart) {
        const __m512i l = _mm512_add_epi32(_mm512_castps_si512(left), half);
        const __m512i r = _mm512_add_epi32(_mm512_castps_si512(right), half);
        _mm512_storeu_si512(to, upper_words(l, r));
        left = _mm512_sub_ps(left, _mm512_castsi512_ps(_mm512_and_si512(l, upper)));
        right = _mm512_sub_ps(right, _mm512_castsi512_ps(_mm512_and_si512(r, upper)));
    }
    _mm512_storeu_si512(to, upper_words(_mm512_castps_si512(left), _mm512_castps_si512(right)));
}

/* 32 numbers as 32 bf16, the parts so many bytes apart. */
FOR_PARTS void split_line(char *to, const float *x, int parts, int apart)
{
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    if (parts == WHOLE)
        split_pair(to, low, high, apart);
    else
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Rows of 32 numbers as rows of 32 bf16, part after part: what the unit takes as its left operand.
 */
FOR_PARTS void split_rows(char *to, const float *x, size_t ld, int parts)
{
    for (int i = 0; i < SIDE; i++, x += ld)
        split_line(to + i * 64, x, parts, PART);
}

/* The right operand has columns of the same pairs: line `pair` of 16 columns, and of the others. */
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

/* y[c*ldy + r] = a[r][c], 16 x 16 in registers: pairs of rows, fours, eights, all. */
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

/* Pairs of bf16 for numbers. */
static inline void transpose_words(char *to, const uint16_t *x, size_t ldx)
{
    __m512 a[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(x + (size_t)i * ldx);
    transpose_lines((float *)to, 16, a);
}

/* A square of SIDE. */
static void transpose_square(float *y, const float *x, size_t ldx)
{
    for (int r = 0; r < SIDE; r += 16)
        for (int c = 0; c < SIDE; c += 16)
            transpose_16(y + c * SIDE + r, SIDE, x + (size_t)r * ldx + c, ldx);
}

/* Asks the second cache for what step l + AHEAD of a strip is packed from, and at first for what
 * comes before it: rows often lie pages apart, where no processor guesses the next. */
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

/* Element (i, l) of the step at x[i*ld + l], or x[l*ld + i] when not `turned`, as rows of `whole`:
 * zero beyond n and k. Returns where they are, which is x itself when nothing has to be moved. */
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

/* Rows of a or, on the `right`, columns of b. */
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

/* As `whole_square`, of bf16. */
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

/* 32 words, or zeros. */
static inline __m512i line_at(const uint16_t *x, size_t at)
{
    return x ? _mm512_loadu_si512(x + at) : _mm512_setzero_si512();
}

/* Words (even, odd) of 32 columns, as two lines of 16 pairs. */
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
        if (turned) { /* pairs lie side by side already: words change places */
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

/* Rows that are split: of every 32 elements part after part, in pairs as above. */
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

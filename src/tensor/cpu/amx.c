/* Matrix products on the matrix unit of recent x86-64 (AMX), which multiplies bf16 and sums fp32.
 *
 * In mixed precision operands are rounded to bf16: one part each, one product.
 *
 * For fp32: an fp32 number is the exact sum of three bf16 numbers, x = x0 + x1 + x2, each the
 * rounding of what the ones before it leave. Of the nine products of two such sums the six largest
 * are taken, smallest first, and summed in fp32; the three that are dropped are below 2^-25 of |a
 * b|. So the error is that of any fp32 product (measured: smaller, for sums of 384 terms), at about
 * three times the speed of fused multiply-adds.
 *
 * Numbers below 2^-108 lose their last bits; an infinity becomes a NaN. */
#if (defined(__AMX_BF16__) && defined(__AMX_TILE__)) ||                                            \
    (defined(__AMXBF16__) && defined(__AMXTILE__)) /* clang before 16 */

#include <immintrin.h>
#include <string.h>

#include "tensor/cpu/kernels.h"

enum {
    SIDE = 32,             /* of the tile of c in registers: 2 x 2 of 16 x 16 */
    DEEP = 32,             /* k of a step                                     */
    AHEAD = 2 * DEEP,      /* of a step, what is asked for while it is packed */
    WHOLE = 3,             /* parts, bf16 numbers, for one of fp32            */
    PART = SIDE * DEEP * 2 /* bytes of one part of an operand in a step       */
};

/* Compiled for either number of parts. */
#define FOR_PARTS static inline __attribute__((always_inline))

static inline __m512 widened(__m256i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

/* 32 numbers as 32 bf16, the parts so many bytes apart: each part is the rounding to nearest of
 * what the ones before it leave. */
FOR_PARTS void split_line(char *to, const float *x, int parts, int apart)
{
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    for (int p = 0; p < parts; p++, to += apart) {
        const __m512i part = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_storeu_si512(to, part);
        low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(part)));
        high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64(part, 1)));
    }
}

/* Rows of 32 numbers as rows of 32 bf16, part after part: what the unit takes as its left operand.
 */
FOR_PARTS void split_rows(char *to, const float *x, size_t ld, int parts)
{
    for (int i = 0; i < SIDE; i++, x += ld)
        split_line(to + i * 64, x, parts, PART);
}

/* Words j and 16 + j of a line side by side. */
static inline __m512i interleaved(__m512i line)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), line);
}

/* The right operand has pairs of k side by side: word (l/2, j) is b[l][j] and b[l+1][j]. */
FOR_PARTS void split_pairs(char *to, const float *x, size_t ld, int parts)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < DEEP; l += 2) {
            const float *even = x + (size_t)l * ld + half * 16;
            __m512 a = _mm512_loadu_ps(even), b = _mm512_loadu_ps(even + ld);
            char *out = to + half * 1024 + l / 2 * 64;
            for (int p = 0; p < parts; p++, out += PART) {
                const __m512i pairs = interleaved((__m512i)_mm512_cvtne2ps_pbh(b, a));
                _mm512_storeu_si512(out, pairs);
                a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
                b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)));
            }
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
static inline void fetch(const float *x, size_t ld, int n, int k, int l, bool turned)
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
static const float *square(float whole[SIDE * SIDE], const float *x, size_t *ld, int rows,
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

FOR_PARTS void pack_a(float *strip, const float *x, size_t ld, int n, int k, bool turned, int parts)
{
    char *to = (char *)strip;
    float whole[SIDE * SIDE], across[SIDE * SIDE];
    for (int l = 0; l < k; l += DEEP, to += parts * PART) {
        int deep = k - l < DEEP ? k - l : DEEP;
        size_t stride = ld;
        fetch(x, ld, n, k, l, turned);
        if (turned) {
            const float *from = square(whole, x + l, &stride, n, deep);
            split_rows(to, from, stride, parts);
        } else {
            const float *from = square(whole, x + (size_t)l * ld, &stride, deep, n);
            transpose_square(across, from, stride);
            split_rows(to, across, SIDE, parts);
        }
    }
}

FOR_PARTS void pack_b(float *strip, const float *x, size_t ld, int n, int k, bool turned, int parts)
{
    char *to = (char *)strip;
    float whole[SIDE * SIDE], across[SIDE * SIDE];
    for (int l = 0; l < k; l += DEEP, to += parts * PART) {
        int deep = k - l < DEEP ? k - l : DEEP;
        size_t stride = ld;
        fetch(x, ld, n, k, l, turned);
        if (turned) {
            const float *from = square(whole, x + l, &stride, n, deep);
            transpose_square(across, from, stride);
            split_pairs(to, across, SIDE, parts);
        } else {
            const float *from = square(whole, x + (size_t)l * ld, &stride, deep, n);
            split_pairs(to, from, stride, parts);
        }
    }
}

/* As `square`, of bf16. */
static const uint16_t *square_half(uint16_t whole[SIDE * SIDE], const uint16_t *x, size_t *ld,
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
    _mm512_store_si512(to, interleaved(low));
    _mm512_store_si512(to + 1024, interleaved(high));
}

static void pack_b_half(float *strip, const uint16_t *x, size_t ld, int n, int k, bool turned)
{
    char *to = (char *)strip;
    uint16_t whole[SIDE * SIDE] __attribute__((aligned(64)));
    for (int l = 0; l < k; l += DEEP, to += PART) {
        int deep = k - l < DEEP ? k - l : DEEP;
        size_t stride = ld;
        if (turned) { /* pairs lie side by side already: words change places */
            const uint16_t *from = square_half(whole, x + l, &stride, n, deep);
            for (int half = 0; half < 2; half++)
                transpose_words(to + half * 1024, from + (size_t)half * 16 * stride, stride);
            continue;
        }
        const uint16_t *from = square_half(whole, x + (size_t)l * ld, &stride, deep, n);
        for (int pair = 0; pair < DEEP / 2; pair++, from += 2 * stride)
            pair_up(to + pair * 64, line_at(from, 0), line_at(from, stride));
    }
}

/* Rows that are split: of every 32 elements part after part. */
FOR_PARTS void split_row(uint16_t *to, const float *x, size_t n, int parts)
{
    for (size_t at = 0; at < n; at += DEEP, to += parts * DEEP)
        split_line((char *)to, x + at, parts, 2 * DEEP);
}

FOR_PARTS void pack_a_split(float *strip, const uint16_t *const *rows, size_t at, int n, int k,
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

FOR_PARTS void pack_b_split(float *strip, const uint16_t *const *rows, size_t at, int k, int parts)
{
    char *to = (char *)strip;
    for (int l = 0; l < k; l += DEEP, to += parts * PART) {
        for (int pair = 0; pair < DEEP / 2; pair++) {
            const int r = l + 2 * pair;
            const uint16_t *even = r < k ? rows[r] : NULL, *odd = r + 1 < k ? rows[r + 1] : NULL;
            for (int p = 0; p < parts; p++)
                pair_up(to + p * PART + pair * 64, line_at(even, at + (size_t)(p * DEEP)),
                        line_at(odd, at + (size_t)(p * DEEP)));
        }
    }
}

/* Registers 0 to 3 are c, 4 and 5 rows of a, 6 and 7 columns of b. */
#define LOAD_A(part)                                                                               \
    _tile_loadd(4, a + (part)*PART, 64);                                                           \
    _tile_loadd(5, a + (part)*PART + 1024, 64)
#define LOAD_B(part)                                                                               \
    _tile_loadd(6, b + (part)*PART, 64);                                                           \
    _tile_loadd(7, b + (part)*PART + 1024, 64)
#define MULTIPLY                                                                                   \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    _tile_dpbf16ps(1, 4, 7);                                                                       \
    _tile_dpbf16ps(2, 5, 6);                                                                       \
    _tile_dpbf16ps(3, 5, 7)

/* c = a b of one strip each; the order of the products needs the fewest loads. Meanwhile it asks
 * for the lines of `next`, which are needed behind it and which another core may have. */
FOR_PARTS void tile(int k, const char *a, const char *b, float *c, size_t ldc, int parts,
                    const float *next, size_t ld_next)
{
    const int each = (2 * SIDE * DEEP + k - 1) / k; /* lines of `next` that a step asks for */
    int line = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int l = 0; l < k; l += DEEP, a += parts * PART, b += parts * PART) {
        for (int i = 0; i < each; i++, line++)
            __builtin_prefetch(next + (size_t)(line / 2) * ld_next + line % 2 * 16, 1);
        LOAD_A(0);
        if (parts == 1) {
            LOAD_B(0);
            MULTIPLY;
            continue;
        }
        LOAD_B(2);
        MULTIPLY; /* a0 b2 */
        LOAD_B(1);
        MULTIPLY; /* a0 b1 */
        LOAD_A(1);
        MULTIPLY; /* a1 b1 */
        LOAD_B(0);
        MULTIPLY; /* a1 b0 */
        LOAD_A(2);
        MULTIPLY; /* a2 b0 */
        LOAD_A(0);
        MULTIPLY; /* a0 b0 */
    }
    _tile_stored(0, c, ldc * sizeof *c);
    _tile_stored(1, c + 16, ldc * sizeof *c);
    _tile_stored(2, c + 16 * ldc, ldc * sizeof *c);
    _tile_stored(3, c + 16 * ldc + 16, ldc * sizeof *c);
}

static void merge(float *c, size_t ldc, const float *sum, const float *from, size_t ld_from,
                  const float *bias, int rows, int columns)
{
    for (int i = 0; i < rows; i++, c += ldc, sum += SIDE) {
        for (int j = 0; j < columns; j++)
            c[j] =
                sum[j] + (from ? from[(size_t)i * ld_from + (size_t)j] : 0) + (bias ? bias[j] : 0);
    }
}

static inline void put(float *c, __m512 x, bool send)
{
    if (send)
        _mm512_stream_ps(c, x);
    else
        _mm512_storeu_ps(c, x);
}

/* As `merge`, of a whole tile. */
FOR_PARTS void merge_whole(float *c, size_t ldc, const float *sum, const float *from,
                           size_t ld_from, const float *bias, bool send)
{
    const __m512 zero = _mm512_setzero_ps();
    const __m512 bias_0 = bias ? _mm512_loadu_ps(bias) : zero;
    const __m512 bias_1 = bias ? _mm512_loadu_ps(bias + 16) : zero;
    for (int i = 0; i < SIDE; i++, c += ldc, sum += SIDE) {
        if (!from && !bias) { /* -0 stays what it is */
            put(c, _mm512_load_ps(sum), send);
            put(c + 16, _mm512_load_ps(sum + 16), send);
            continue;
        }
        const float *at = from ? from + (size_t)i * ld_from : NULL;
        const __m512 from_0 = at ? _mm512_loadu_ps(at) : zero;
        const __m512 from_1 = at ? _mm512_loadu_ps(at + 16) : zero;
        const __m512 sum_0 = _mm512_add_ps(_mm512_load_ps(sum), from_0);
        const __m512 sum_1 = _mm512_add_ps(_mm512_load_ps(sum + 16), from_1);
        put(c, _mm512_add_ps(sum_0, bias_0), send);
        put(c + 16, _mm512_add_ps(sum_1, bias_1), send);
    }
}

/* How the eight registers are shaped: 16 rows of 64 bytes each. */
struct shape {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

FOR_PARTS void block(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                     const float *from, size_t ld_from, const float *bias, int parts, bool send)
{
    struct shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = 64;
        shape.rows[i] = 16;
    }
    /* gcc 12 believes that loadconfig reads 8 bytes */
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
    float sum[SIDE * SIDE] __attribute__((aligned(64)));
    const size_t strip = (size_t)((k + DEEP - 1) / DEEP) * (size_t)(parts * PART);
    const char *b_at = (const char *)b;
    for (int j = 0; j < n; j += SIDE, b_at += strip) {
        const char *a_at = (const char *)a;
        int columns = n - j < SIDE ? n - j : SIDE;
        const float *bias_at = bias ? bias + j : NULL;
        for (int i = 0; i < m; i += SIDE, a_at += strip) {
            float *to = c + (size_t)i * ldc + j;
            const float *base = from ? from + (size_t)i * ld_from + j : NULL;
            int rows = m - i < SIDE ? m - i : SIDE;
            const bool whole = rows == SIDE && columns == SIDE;
            if (!from && !bias && whole && !send) {
                tile(k, a_at, b_at, to, ldc, parts, to, ldc);
                continue;
            }
            const float *next = base ? base : send ? sum : to; /* `sum`: here already */
            tile(k, a_at, b_at, sum, SIDE, parts, next, base ? ld_from : send ? SIDE : ldc);
            if (whole)
                merge_whole(to, ldc, sum, base, ld_from, bias_at, send);
            else
                merge(to, ldc, sum, base, ld_from, bias_at, rows, columns);
        }
    }
    _tile_release();
    if (send)
        _mm_sfence();
}

/* The table for a number of parts. */
#define TABLE(name, parts, from_half)                                                              \
    static void name##_pack_a(float *strip, const float *x, size_t ld, int n, int k, bool turned)  \
    {                                                                                              \
        pack_a(strip, x, ld, n, k, turned, parts);                                                 \
    }                                                                                              \
    static void name##_pack_b(float *strip, const float *x, size_t ld, int n, int k, bool turned)  \
    {                                                                                              \
        pack_b(strip, x, ld, n, k, turned, parts);                                                 \
    }                                                                                              \
    static void name##_block(int m, int n, int k, const float *a, const float *b, float *c,        \
                             size_t ldc, const float *from, size_t ld_from, const float *bias)     \
    {                                                                                              \
        block(m, n, k, a, b, c, ldc, from, ld_from, bias, parts, false);                           \
    }                                                                                              \
    static void name##_send_block(int m, int n, int k, const float *a, const float *b, float *c,   \
                                  size_t ldc, const float *from, size_t ld_from,                   \
                                  const float *bias)                                               \
    {                                                                                              \
        block(m, n, k, a, b, c, ldc, from, ld_from, bias, parts, at_lines(c, ldc));                \
    }                                                                                              \
    static void name##_split(uint16_t *to, const float *x, size_t n)                               \
    {                                                                                              \
        split_row(to, x, n, parts);                                                                \
    }                                                                                              \
    static void name##_pack_a_split(float *strip, const uint16_t *const *rows, size_t at, int n,   \
                                    int k)                                                         \
    {                                                                                              \
        pack_a_split(strip, rows, at, n, k, parts);                                                \
    }                                                                                              \
    static void name##_pack_b_split(float *strip, const uint16_t *const *rows, size_t at, int k)   \
    {                                                                                              \
        pack_b_split(strip, rows, at, k, parts);                                                   \
    }                                                                                              \
    const struct gemm_kernels name = {                                                             \
        .rows = SIDE,                                                                              \
        .columns = SIDE,                                                                           \
        .tile_rows = 256, /* of a, which stay in the second cache while columns of b pass by */    \
        .tile_columns = 512,                                                                       \
        .depth = DEEP,                                                                             \
        .halves = parts,                                                                           \
        .pack_a = name##_pack_a,                                                                   \
        .pack_b = name##_pack_b,                                                                   \
        .pack_b_half = from_half,                                                                  \
        .split = name##_split,                                                                     \
        .pack_a_split = name##_pack_a_split,                                                       \
        .pack_b_split = name##_pack_b_split,                                                       \
        .block = name##_block,                                                                     \
        .send_block = name##_send_block,                                                           \
    }

TABLE(gemm_amx, WHOLE, NULL);
TABLE(gemm_amx_half, 1, pack_b_half);

#else
typedef int amx_absent; /* not for this machine */
#endif

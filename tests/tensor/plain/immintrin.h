/* The instructions of tensor/cpu/gemm/amx.c in plain C, so that any machine can test the file.
 * Aligned accesses are checked. */
#ifndef SOTTO_TESTS_TENSOR_PLAIN_IMMINTRIN_H
#define SOTTO_TESTS_TENSOR_PLAIN_IMMINTRIN_H

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float __m512 __attribute__((vector_size(64)));
typedef double __m512d __attribute__((vector_size(64)));
typedef long long __m512i __attribute__((vector_size(64)));
typedef __m512i __m512bh;

typedef uint32_t plain_words __attribute__((vector_size(64)));
typedef uint16_t plain_halves __attribute__((vector_size(64)));

extern int plain_sent; /* lines stored past the caches */

static inline const void *plain_line(const void *p)
{
    assert((uintptr_t)p % 64 == 0);
    return p;
}

/* Memory */

static inline __m512 _mm512_loadu_ps(const void *p)
{
    __m512 x = {0};
    memcpy(&x, p, sizeof x);
    return x;
}

static inline __m512 _mm512_load_ps(const void *p)
{
    return _mm512_loadu_ps(plain_line(p));
}

static inline void _mm512_storeu_ps(void *p, __m512 x)
{
    memcpy(p, &x, sizeof x);
}

static inline void _mm512_stream_ps(void *p, __m512 x)
{
    plain_line(p);
    plain_sent++;
    memcpy(p, &x, sizeof x);
}

static inline void _mm_sfence(void)
{
}

static inline __m512i _mm512_loadu_si512(const void *p)
{
    return (__m512i)_mm512_loadu_ps(p);
}

static inline void _mm512_storeu_si512(void *p, __m512i x)
{
    memcpy(p, &x, sizeof x);
}

static inline void _mm512_store_si512(void *p, __m512i x)
{
    plain_line(p);
    memcpy(p, &x, sizeof x);
}

/* Arithmetic */

static inline __m512 _mm512_setzero_ps(void)
{
    return (__m512){0};
}

static inline __m512i _mm512_setzero_si512(void)
{
    return (__m512i){0};
}

static inline __m512i _mm512_set1_epi32(int x)
{
    return (__m512i)((plain_words){0} + (uint32_t)x);
}

static inline __m512 _mm512_add_ps(__m512 a, __m512 b)
{
    return a + b;
}

static inline __m512 _mm512_sub_ps(__m512 a, __m512 b)
{
    return a - b;
}

static inline __m512i _mm512_and_si512(__m512i a, __m512i b)
{
    return a & b;
}

static inline __m512i _mm512_add_epi32(__m512i a, __m512i b)
{
    return (__m512i)((plain_words)a + (plain_words)b);
}

static inline __m512i _mm512_srli_epi32(__m512i a, int bits)
{
    return (__m512i)((plain_words)a >> bits);
}

static inline __m512i _mm512_slli_epi32(__m512i a, int bits)
{
    return (__m512i)((plain_words)a << bits);
}

/* bf16 */

static inline float plain_widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline uint16_t plain_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low)
{
    plain_halves y = {0};
    for (int i = 0; i < 16; i++)
        y[i] = plain_round(low[i]), y[16 + i] = plain_round(high[i]);
    return (__m512bh)y;
}

/* Other types and places */

#define _mm512_castsi512_ps(x) ((__m512)(x))
#define _mm512_castps_si512(x) ((__m512i)(x))
#define _mm512_castps_pd(x) ((__m512d)(x))
#define _mm512_castpd_ps(x) ((__m512)(x))

static inline __m512i _mm512_mask_blend_epi16(uint32_t second, __m512i a, __m512i b)
{
    plain_halves y = {0};
    for (int i = 0; i < 32; i++)
        y[i] = ((plain_halves)(second >> i & 1 ? b : a))[i];
    return (__m512i)y;
}

static inline __m512i _mm512_permutexvar_epi16(__m512i order, __m512i a)
{
    plain_halves y = {0};
    for (int i = 0; i < 32; i++)
        y[i] = ((plain_halves)a)[((plain_halves)order)[i] & 31];
    return (__m512i)y;
}

/* Takes two numbers in turn of each quarter of a and b, from number `first` of the quarter on. */
static inline __m512 plain_unpack(__m512 a, __m512 b, int first)
{
    __m512 y = {0};
    for (int i = 0; i < 16; i++) {
        const int from = i / 4 * 4 + first + i % 4 / 2;
        y[i] = i % 2 ? b[from] : a[from];
    }
    return y;
}

#define _mm512_unpacklo_ps(a, b) plain_unpack(a, b, 0)
#define _mm512_unpackhi_ps(a, b) plain_unpack(a, b, 2)

static inline __m512d plain_unpack_pairs(__m512d a, __m512d b, int which)
{
    __m512d y = {0};
    for (int i = 0; i < 8; i++)
        y[i] = i % 2 ? b[i / 2 * 2 + which] : a[i / 2 * 2 + which];
    return y;
}

#define _mm512_unpacklo_pd(a, b) plain_unpack_pairs(a, b, 0)
#define _mm512_unpackhi_pd(a, b) plain_unpack_pairs(a, b, 1)

/* Two quarters of a, two of b. */
static inline __m512i _mm512_shuffle_i64x2(__m512i a, __m512i b, int which)
{
    __m512i y = {0};
    for (int i = 0; i < 8; i++) {
        const int from = (which >> i / 2 * 2 & 3) * 2 + i % 2;
        y[i] = i < 4 ? a[from] : b[from];
    }
    return y;
}

static inline __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int which)
{
    return (__m512)_mm512_shuffle_i64x2((__m512i)a, (__m512i)b, which);
}

/* The matrix unit: eight registers of 16 rows of 64 bytes, the only shape that amx.c uses. */

typedef struct {
    unsigned char row[16][64];
} plain_tile;

static plain_tile plain_tiles[8];

static inline void _tile_loadconfig(const void *shape)
{
    (void)shape;
}

static inline void _tile_release(void)
{
    memset(plain_tiles, 0xff, sizeof plain_tiles); /* NaNs */
}

static inline void _tile_zero(int t)
{
    memset(&plain_tiles[t], 0, sizeof plain_tiles[t]);
}

static inline void _tile_loadd(int t, const void *from, size_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy(plain_tiles[t].row[r], (const char *)from + (size_t)r * stride, 64);
}

static inline void _tile_stored(int t, void *to, size_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy((char *)to + (size_t)r * stride, plain_tiles[t].row[r], 64);
}

/* Returns x, or zero with x's sign below the smallest normal number. */
static inline float plain_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* c += a b; b has pairs of rows as neighbours. */
static inline void _tile_dpbf16ps(int c, int a, int b)
{
    for (int i = 0; i < 16; i++) {
        uint16_t left[32];
        float sum[16];
        memcpy(left, plain_tiles[a].row[i], sizeof left);
        memcpy(sum, plain_tiles[c].row[i], sizeof sum);
        for (int l = 0; l < 32; l++) {
            uint16_t right[32];
            memcpy(right, plain_tiles[b].row[l / 2], sizeof right);
            for (int j = 0; j < 16; j++)
                sum[j] = plain_flush(fmaf(plain_flush(plain_widen(left[l])),
                                          plain_flush(plain_widen(right[2 * j + l % 2])), sum[j]));
        }
        memcpy(plain_tiles[c].row[i], sum, sizeof sum);
    }
}

#endif

/* Matrix products on the matrix unit of recent x86-64 (AMX), which multiplies bf16 and sums fp32.
 *
 * In mixed precision operands are rounded to bf16: one part each, one product.
 *
 * For fp32: an fp32 number is the exact sum of three bf16 numbers, x = x0 + x1 + x2, each the
 * rounded remainder. Of the nine products of two such sums the six largest are taken, the largest
 * last, and summed in fp32; the other three are below 2^-25 of |a b|. So the error is that of any
 * fp32 product (measured: smaller, for sums of 384 terms), at about three times the speed of fused
 * multiply-adds.
 *
 * Numbers below 2^-108 lose their last bits; an infinity becomes a NaN. */
#if (defined(__AMX_BF16__) && defined(__AMX_TILE__)) ||                                            \
    (defined(__AMXBF16__) && defined(__AMXTILE__)) /* clang before 16 */

#include "tensor/cpu/gemm/amx_pack.h"

/* Registers 0 to 3 are c, 4 rows of a, 5 and 6 columns of b.
 *
 * If another thread runs on the core, the core behaves as if it had 9 registers for tiles instead
 * of many: writing a tile takes a free register, and with eight tiles in use products run one after
 * the other, four in 109 ns instead of 28. So the eighth tile stays empty, the next operand is
 * loaded as soon as the old operand has been read, and other instructions separate products and
 * loads: 57 ns, and still 28 ns if the core is not shared. */
#define PRODUCT(c, b)                                                                              \
    __asm__ volatile(".rept 8\n\tnop\n\t.endr");                                                   \
    _tile_dpbf16ps(c, 4, b)
#define LOAD(tile, from)                                                                           \
    __asm__ volatile(".rept 16\n\tnop\n\t.endr");                                                  \
    _tile_loadd(tile, from, 64)
#define LOAD_UPPER(part) LOAD(4, a + (part)*PART)
#define LOAD_LOWER(part) LOAD(4, a + (part)*PART + 1024)
#define LOAD_LEFT(from) LOAD(5, from)
#define LOAD_RIGHT(from) LOAD(6, (from) + 1024)
#define UPPER                                                                                      \
    PRODUCT(0, 5);                                                                                 \
    PRODUCT(1, 6)
#define LOWER                                                                                      \
    PRODUCT(2, 5);                                                                                 \
    PRODUCT(3, 6)
/* Multiplies the last rows by the current columns, and loads the next columns. */
#define LOWER_AND_LOAD(from)                                                                       \
    PRODUCT(2, 5);                                                                                 \
    LOAD_LEFT(from);                                                                               \
    PRODUCT(3, 6);                                                                                 \
    LOAD_RIGHT(from)

/* Computes c = a b of one strip each. Meanwhile prefetches the lines of `next`, which are needed
 * afterwards and may be in another core's cache. */
FOR_PARTS void amx_tile(int k, const char *a, const char *b, float *c, size_t ldc, int parts,
                        const float *next, size_t ld_next)
{
    const int each = (2 * SIDE * DEEP + k - 1) / k; /* lines of `next` to prefetch in a step */
    int line = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    LOAD_LEFT(b + (parts - 1) * PART);
    LOAD_RIGHT(b + (parts - 1) * PART);
    for (int l = 0; l < k; l += DEEP, a += parts * PART, b += parts * PART) {
        for (int i = 0; i < each; i++, line++)
            __builtin_prefetch(next + (size_t)(line / 2) * ld_next + line % 2 * 16, 1);
        if (parts == WHOLE) {
            LOAD_UPPER(0);
            UPPER; /* a0 b2 */
            LOAD_LOWER(0);
            LOWER_AND_LOAD(b + PART);
            LOWER; /* a0 b1 */
            LOAD_UPPER(0);
            UPPER;
            LOAD_UPPER(1);
            UPPER; /* a1 b1 */
            LOAD_LOWER(1);
            LOWER_AND_LOAD(b);
            LOWER; /* a1 b0 */
            LOAD_UPPER(1);
            UPPER;
            LOAD_UPPER(2);
            UPPER; /* a2 b0 */
            LOAD_LOWER(2);
            LOWER;
        }
        const char *following = l + DEEP < k ? b + parts * PART : b; /* of the next step, or any */
        LOAD_UPPER(0);
        UPPER; /* a0 b0 */
        LOAD_LOWER(0);
        LOWER_AND_LOAD(following + (parts - 1) * PART);
    }
    _tile_stored(0, c, ldc * sizeof *c);
    _tile_stored(1, c + 16, ldc * sizeof *c);
    _tile_stored(2, c + 16 * ldc, ldc * sizeof *c);
    _tile_stored(3, c + 16 * ldc + 16, ldc * sizeof *c);
}

static void amx_merge_edge(float *c, size_t ldc, const float *sum, const float *from,
                           size_t ld_from, const float *bias, int rows, int columns)
{
    for (int i = 0; i < rows; i++, c += ldc, sum += SIDE) {
        for (int j = 0; j < columns; j++) {
            const float x = from ? sum[j] + from[(size_t)i * ld_from + (size_t)j] : sum[j];
            c[j] = bias ? x + bias[j] : x;
        }
    }
}

static inline void put_vector(float *c, __m512 x, bool send)
{
    if (send)
        _mm512_stream_ps(c, x);
    else
        _mm512_storeu_ps(c, x);
}

/* Merges a whole tile, as amx_merge_edge does. */
FOR_PARTS void amx_merge_whole(float *c, size_t ldc, const float *sum, const float *from,
                               size_t ld_from, const float *bias, bool send)
{
    for (int i = 0; i < SIDE; i++, c += ldc, sum += SIDE) {
        for (int j = 0; j < SIDE; j += 16) {
            __m512 x = _mm512_load_ps(sum + j);
            if (from)
                x = _mm512_add_ps(x, _mm512_loadu_ps(from + (size_t)i * ld_from + j));
            if (bias)
                x = _mm512_add_ps(x, _mm512_loadu_ps(bias + j));
            put_vector(c + j, x, send);
        }
    }
}

/* The shape of the eight registers: 16 rows of 64 bytes each. */
struct amx_shape {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

FOR_PARTS void amx_block(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                         const float *from, size_t ld_from, const float *bias, int parts, bool send)
{
    struct amx_shape shape = {.palette = 1};
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
                amx_tile(k, a_at, b_at, to, ldc, parts, to, ldc);
                continue;
            }
            const float *next = base ? base : send ? sum : to; /* `sum`: in this core's cache */
            amx_tile(k, a_at, b_at, sum, SIDE, parts, next, base ? ld_from : send ? SIDE : ldc);
            if (whole)
                amx_merge_whole(to, ldc, sum, base, ld_from, bias_at, send);
            else
                amx_merge_edge(to, ldc, sum, base, ld_from, bias_at, rows, columns);
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
        amx_pack(strip, x, ld, n, k, turned, parts, false);                                        \
    }                                                                                              \
    static void name##_pack_b(float *strip, const float *x, size_t ld, int n, int k, bool turned)  \
    {                                                                                              \
        amx_pack(strip, x, ld, n, k, turned, parts, true);                                         \
    }                                                                                              \
    static void name##_block(int m, int n, int k, const float *a, const float *b, float *c,        \
                             size_t ldc, const float *from, size_t ld_from, const float *bias)     \
    {                                                                                              \
        amx_block(m, n, k, a, b, c, ldc, from, ld_from, bias, parts, false);                       \
    }                                                                                              \
    static void name##_send_block(int m, int n, int k, const float *a, const float *b, float *c,   \
                                  size_t ldc, const float *from, size_t ld_from,                   \
                                  const float *bias)                                               \
    {                                                                                              \
        amx_block(m, n, k, a, b, c, ldc, from, ld_from, bias, parts, at_lines(c, ldc));            \
    }                                                                                              \
    static void name##_split(uint16_t *to, const float *x, size_t n)                               \
    {                                                                                              \
        split_row(to, x, n, parts);                                                                \
    }                                                                                              \
    static void name##_pack_a_split(float *strip, const uint16_t *const *rows, size_t at, int n,   \
                                    int k)                                                         \
    {                                                                                              \
        amx_pack_a_split(strip, rows, at, n, k, parts);                                            \
    }                                                                                              \
    static void name##_pack_b_split(float *strip, const uint16_t *const *rows, size_t at, int k)   \
    {                                                                                              \
        amx_pack_b_split(strip, rows, at, k, parts);                                               \
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
TABLE(gemm_amx_half, 1, amx_pack_b_half);

#else
typedef int amx_absent; /* not for this machine */
#endif

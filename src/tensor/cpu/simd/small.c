/* Products that stay in the first two caches, where packing both operands would cost more than it
 * saves: products of attention and of the cosine transform (codec.c). A tile of ROWS x VECTORS
 * vectors of c stays in registers; a is broadcast from memory, so a transposed a costs nothing
 * extra. */
#include "tensor/cpu/simd/kernels.h"
#include "tensor/cpu/simd/strips.h"

#if defined(__AVX512F__)
enum { LANES = 16, VECTORS = 4 }; /* 24 of 32 registers hold c */
#elif defined(__AVX__)
enum { LANES = 8, VECTORS = 2 }; /* 12 of 16 */
#else
enum { LANES = 4, VECTORS = 2 };
#endif
enum { ROWS = SMALL_ROWS };
_Static_assert(ATTENTION_PAD % LANES == 0, "padded rows are whole vectors");

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* Strides of the operands: element (i, l) of a at i * a_row + l * a_col, vector j of row l of b at
 * l * b_row + j * b_next. */
struct operand_places {
    size_t a_row, a_col, b_row, b_next, c_row;
};

/* Multiplies a tile. Inlined with constant rows and vectors for the unrolling. */
static inline __attribute__((always_inline)) void small_tile(int rows, int vectors, int k,
                                                             const float *a, const float *b,
                                                             float *c,
                                                             const struct operand_places *at,
                                                             bool add)
{
    vec sum[ROWS][VECTORS];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (vec){0};
    }
    for (int l = 0; l < k; l++) {
        vec row[VECTORS];
        for (int j = 0; j < vectors; j++)
            row[j] = *(const vec_at *)(b + (size_t)l * at->b_row + (size_t)j * at->b_next);
        for (int i = 0; i < rows; i++) {
            float x = a[(size_t)i * at->a_row + (size_t)l * at->a_col];
            for (int j = 0; j < vectors; j++)
                sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) {
            vec_at *to = (vec_at *)(c + (size_t)i * at->c_row + j * LANES);
            if (add)
                sum[i][j] += *to;
            *to = sum[i][j];
        }
    }
}

/* Multiplies the last columns, fewer than a vector. */
static inline __attribute__((always_inline)) void small_edge(int rows, int columns, int k,
                                                             const float *a, const float *b,
                                                             float *c,
                                                             const struct operand_places *at,
                                                             bool add)
{
    float part[ROWS * LANES];
    struct operand_places to = *at;
    to.c_row = LANES;
    small_tile(rows, 1, k, a, b, part, &to, false);
    for (int i = 0; i < rows; i++, c += at->c_row) {
        for (int j = 0; j < columns; j++)
            c[j] = add ? part[i * LANES + j] + c[j] : part[i * LANES + j];
    }
}

/* Multiplies all n columns for `rows` rows. */
static inline __attribute__((always_inline)) void small_strip(int rows, int n, int k,
                                                              const float *a, const float *b,
                                                              float *c,
                                                              const struct operand_places *at,
                                                              bool add)
{
    int left = n / LANES;
    for (; left >= VECTORS; left -= VECTORS, b += VECTORS * at->b_next, c += VECTORS * LANES)
        small_tile(rows, VECTORS, k, a, b, c, at, add);
    for (; left >= 2; left -= 2, b += 2 * at->b_next, c += 2 * LANES)
        small_tile(rows, 2, k, a, b, c, at, add);
    for (; left >= 1; left--, b += at->b_next, c += LANES)
        small_tile(rows, 1, k, a, b, c, at, add);
    if (n % LANES)
        small_edge(rows, n % LANES, k, a, b, c, at, add);
}

static void small_direct(int m, int n, int k, const float *a, size_t a_row, size_t a_col,
                         const float *b, size_t b_row, size_t b_next, float *c, size_t ldc,
                         bool add)
{
    const struct operand_places at = {a_row, a_col, b_row, b_next, ldc};
    for (; m >= ROWS; m -= ROWS, a += ROWS * a_row, c += ROWS * ldc)
        small_strip(ROWS, n, k, a, b, c, &at, add);
    switch (m) {
    case 5:
        small_strip(5, n, k, a, b, c, &at, add);
        break;
    case 4:
        small_strip(4, n, k, a, b, c, &at, add);
        break;
    case 3:
        small_strip(3, n, k, a, b, c, &at, add);
        break;
    case 2:
        small_strip(2, n, k, a, b, c, &at, add);
        break;
    case 1:
        small_strip(1, n, k, a, b, c, &at, add);
        break;
    }
}

static void small_pack_b(float *to, const float *b, size_t ld, int n, int k, bool turned)
{
    if (turned)
        turn_strip(to, b, ld, n, k, LANES);
    else
        copy_strip(to, b, ld, n, k, LANES);
}

const struct gemm_kernels KERNELS(fast_small) = {
    .rows = ROWS,
    .columns = LANES,
    .tile_rows = 2 * ROWS, /* queries of a strip */
    .depth = 1,
    .halves = 2,
    .pack_b = small_pack_b,
    .direct = small_direct,
};

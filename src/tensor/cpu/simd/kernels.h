/* The serial fp32 kernels of the fast table: plain loops that a compiler turns into SIMD.
 *
 * Every file of this folder is compiled once for each instruction set and exports one table,
 * fast_FILE_VARIANT; cpu.c picks the best set of the machine. Kernels know nothing of views, bf16
 * (except widen and narrow) or threads: the drivers cut the work into blocks that do not depend on
 * the number of threads, and pass the blocks to kernels. */
#ifndef SOTTO_TENSOR_CPU_SIMD_KERNELS_H
#define SOTTO_TENSOR_CPU_SIMD_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/ops.h"

struct vector_kernels {
    void (*widen)(float *y, const uint16_t *x, size_t n);
    void (*narrow)(uint16_t *y, const float *x, size_t n);
    /* (optional, both) y = x, bypassing the caches, for data that other threads read; `sent` waits
     * until the data is visible. */
    void (*send)(float *y, const float *x, size_t n);
    void (*sent)(void);
    void (*fill)(float *y, float value, size_t n);
    void (*add)(float *y, const float *x, size_t n);
    void (*axpy)(float *y, float a, const float *x, size_t n);
    void (*axpby)(float *y, float b, float a, const float *x, size_t n);
    void (*scale)(float *y, float a, size_t n);
    double (*sum_squares)(const float *x, size_t n);
    /* Elements first, first + 1, ... of the permutation. */
    void (*shuffle)(const struct shuffle *p, size_t first, int32_t *out, size_t n);
    void (*signs_pack)(uint8_t *y, const float *x, size_t n);
    void (*signs_unpack)(float *y, const uint8_t *x, size_t n);
};

struct optim_kernels {
    void (*adamw_step)(const struct adamw *p, float decay, float *x, const float *g, float *m,
                       float *v, size_t n);
    void (*adamw_peek)(const struct adamw *p, float decay, float *theta, const float *x,
                       const float *g, const float *m, const float *v, size_t n);
    /* m NULL: no momentum */
    void (*sgd_step)(const struct sgd *p, float decay, float *x, const float *g, float *m,
                     size_t n);
    void (*sgd_peek)(const struct sgd *p, float decay, float *theta, const float *x, const float *g,
                     const float *m, size_t n);
};

/* One row each. */
struct norm_kernels {
    /* bias may be NULL; stats: mean, rstd */
    void (*layer_forward)(float *y, const float *x, const float *gain, const float *bias,
                          float stats[2], int width, float eps);
    /* dx = `from` (optional) + ...; dgain and dbias += unless NULL; dx may be `from` or dy */
    void (*layer_backward)(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                           const float *gain, const float stats[2], const float *from, int width);
    void (*rms_forward)(float *y, const float *x, const float *gain, float stats[2], int width,
                        float eps);
    void (*rms_backward)(float *dx, float *dgain, const float *dy, const float *x,
                         const float *gain, const float stats[2], const float *from, int width);
};

struct activation_kernels {
    void (*gelu_forward)(enum gelu_kind kind, float *y, const float *x, size_t n);
    void (*gelu_backward)(enum gelu_kind kind, float *dx, const float *dy, const float *x,
                          size_t n);
    void (*swiglu_forward)(float *y, const float *gate, const float *up, size_t n);
    void (*swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t n);
    void (*relu_forward)(float *y, const float *x, size_t n);
    void (*relu_backward)(float *dx, const float *dy, const float *y, size_t n);
    /* cosines and sines of p*frequencies[i], i < n */
    void (*rope_angles)(float *cosine, float *sine, int p, const float *frequencies, int n);
    /* rotates the pairs (a[i], b[i]) */
    void (*rope_rotate)(float *a, float *b, const float *cosine, const float *sine, int n);
};

struct loss_kernels {
    /* One row: returns its loss; the row becomes scale * (softmax - onehot) when scale is not 0. */
    float (*cross_entropy)(float *logits, int vocab, int target, float scale, uint8_t *place);
};

/* Rows of pixels, `width` channels each. */
struct image_kernels {
    /* sums (2, width) += x - pivot, (x - pivot)^2 */
    void (*batch_sums)(float *sums, const float *x, const float *pivot, size_t rows, size_t width);
    /* y = (x - mean) * scale + bias + residual, then relu; residual may be NULL, y may be either */
    void (*batch_forward)(float *y, const float *x, const float *residual, const float *mean,
                          const float *scale, const float *bias, bool relu, size_t rows,
                          size_t width);
    /* sums (2, width) += d, d (x - mean), with d = dy, or 0 where y is 0; y may be NULL */
    void (*batch_sums_backward)(float *sums, const float *dy, const float *x, const float *y,
                                const float *mean, size_t rows, size_t width);
    /* dx = scale * (d - sums[0] - (x - mean) sums[1]), dresidual = d unless NULL; d as in
     * batch_sums_backward; dx or dresidual may be dy */
    void (*batch_backward)(float *dx, float *dresidual, const float *dy, const float *x,
                           const float *y, const float *mean, const float *scale, const float *sums,
                           size_t rows, size_t width);
    /* Where x is larger than best: best = x, winner = tap. */
    void (*max_take)(float *best, uint8_t *winner, const float *x, uint8_t tap, size_t n);
    /* y += x where winner is tap. */
    void (*max_give)(float *y, const float *x, const uint8_t *winner, uint8_t tap, size_t n);
};

/* Scores computed at once, and the multiple that rows of small products are padded to: a multiple
 * of every vector. */
enum { ATTENTION_PAD = 16 };

struct attention_kernels {
    /* s[lo, hi) becomes exp(scale*s - max), the rest of s[0, n) zero; returns 1 / sum and the lse.
     * s has space up to a multiple of ATTENTION_PAD; the padding may hold any value. */
    float (*softmax)(float *s, int lo, int hi, int n, float scale, float *lse);
    /* s[lo, hi) becomes p = exp(scale*s - lse), dp becomes ds = p * (dp - delta) * scale; both zero
     * in the rest of [0, n). s and dp have space as in softmax. */
    void (*softmax_backward)(float *s, float *dp, int lo, int hi, int n, float scale, float lse,
                             float delta);
    float (*dot)(const float *a, const float *b, int n);
};

/* Tiles of the cosine transform. */
enum { DCT_SIDE = 64 };
struct codec_kernels {
    /* y (n, DCT_SIDE) = the transform of each row of x; y may be x. */
    void (*rows)(float *y, size_t ldy, const float *x, size_t ldx, int n);
    /* y (DCT_SIDE, n) = the transform of each column of x, n a multiple of ATTENTION_PAD; y may be
     * x. columns_back inverts the transform; `subtract`: y -= the result. */
    void (*columns)(float *y, size_t ldy, const float *x, size_t ldx, int n);
    void (*columns_back)(float *y, size_t ldy, const float *x, size_t ldx, int n, bool subtract);
    /* index, value = the `keep` largest of c (rows, w), by index; rows of c are `ld` apart. keys,
     * room and where: scratch of the size of c. */
    void (*select)(const float *c, int rows, int w, size_t ld, int keep, uint32_t *keys,
                   uint32_t *room, int32_t *where, int32_t *index, float *value);
    /* Row r of y (rows, ld) = the sum of value * row index % w of bw (w, ld), over the coefficients
     * with index / w = r; n coefficients of a tile of width w. */
    void (*sum_rows)(float *y, int rows, int w, size_t ld, const int32_t *index, const float *value,
                     int n, const float *bw);
    /* y = the n/2 sums, then the n/2 differences, of x and its mirror image; n is even. */
    void (*fold)(float *y, const float *x, int n);
    /* y (2n) = a and b in turn. */
    void (*weave)(float *y, const float *a, const float *b, int n);
    /* a, b <- a + b, b - a; back: a - b, a + b. */
    void (*mirror)(float *a, float *b, size_t n, bool back);
    void (*subtract)(float *y, const float *x, size_t n); /* y -= x */
    void (*sign)(float *y, const float *x, size_t n);
};

enum { SMALL_ROWS = 6 }; /* rows of a tile of small products, which stay in the caches */

/* Operands are packed into strips of `rows` rows of a and `columns` columns of b, the last strip
 * padded with zeros. The layout of a strip is private to the kernel. */
struct gemm_kernels {
    int rows, columns;           /* of the tile in registers */
    int tile_rows, tile_columns; /* the tile that a thread takes at once: multiples of rows,
                                    columns */
    int depth;                   /* k of a strip is rounded up to a multiple */
    int halves;                  /* 16-bit words of an element of a strip */
    /* Packs n rows of a (columns of b) at `x`; `turned`: element (i, l) is at x[i*ld + l], else
     * x[l*ld + i]. */
    void (*pack_a)(float *strip, const float *x, size_t ld, int n, int k, bool turned);
    void (*pack_b)(float *strip, const float *x, size_t ld, int n, int k, bool turned);
    /* (optional) Packs n columns of b from bf16. */
    void (*pack_b_half)(float *strip, const uint16_t *x, size_t ld, int n, int k, bool turned);
    /* (optional, all three) For rows that many strips share. `split` converts every 32 elements (n
     * is a multiple) to 32 * halves words, in the order of the elements; bf16 with halves 1 needs
     * no split. Strips are packed from split rows, starting at word `at`; a NULL row is zero: n
     * rows of a, of which k elements (a multiple of 32), or k rows of b, of which 32 columns. */
    void (*split)(uint16_t *to, const float *x, size_t n);
    void (*pack_a_split)(float *strip, const uint16_t *const *rows, size_t at, int n, int k);
    void (*pack_b_split)(float *strip, const uint16_t *const *rows, size_t at, int k);
    /* c (m, n) = a b + from + bias, of consecutive strips; `from` and bias may be NULL, `from` may
     * be c. */
    void (*block)(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                  const float *from, size_t ld_from, const float *bias);
    /* (optional) Computes a block as `block` does, bypassing the caches if c's rows begin at cache
     * lines: for results that other threads read. */
    void (*send_block)(int m, int n, int k, const float *a, const float *b, float *c, size_t ldc,
                       const float *from, size_t ld_from, const float *bias);
    /* (in place of pack_a and the blocks, in tables for operands that stay in the caches) c (m, n)
     * = a b, or += if `add`: element (i, l) of a is at a[i*a_row + l*a_col], column j of b at
     * b[l*b_row + j / columns * b_next + j % columns]; the last group of columns is read whole. */
    void (*direct)(int m, int n, int k, const float *a, size_t a_row, size_t a_col, const float *b,
                   size_t b_row, size_t b_next, float *c, size_t ldc, bool add);
};

/* True if all rows of c begin at a cache line. */
static inline bool at_lines(const float *c, size_t ldc)
{
    return ((uintptr_t)c | ldc * sizeof *c) % 64 == 0;
}

struct kernels {
    const char *name; /* "baseline", "v3", "v4", "amx", "bf16" */
    int few;          /* largest team that packs products together; in a larger team each thread
                         packs for itself */
    const struct vector_kernels *vector;
    const struct optim_kernels *optim;
    const struct norm_kernels *norm;
    const struct activation_kernels *activation;
    const struct loss_kernels *loss;
    const struct image_kernels *image;
    const struct attention_kernels *attention;
    const struct codec_kernels *codec;
    const struct gemm_kernels *gemm;
    const struct gemm_kernels *gemm_half; /* operands rounded to bf16, where that is faster */
    const struct gemm_kernels *small;     /* `direct`: operands that stay in the caches */
    const struct gemm_kernels *attend;    /* products of attention: operands not rounded */
};

#define KERNELS_PASTE_(table, variant) table##_##variant
#define KERNELS_PASTE(table, variant) KERNELS_PASTE_(table, variant)
#define KERNELS(table) KERNELS_PASTE(table, VARIANT)

#define KERNELS_DECLARE(variant)                                                                   \
    extern const struct vector_kernels fast_vector_##variant;                                      \
    extern const struct optim_kernels fast_optim_##variant;                                        \
    extern const struct norm_kernels fast_norm_##variant;                                          \
    extern const struct activation_kernels fast_activation_##variant;                              \
    extern const struct loss_kernels fast_loss_##variant;                                          \
    extern const struct image_kernels fast_image_##variant;                                        \
    extern const struct attention_kernels fast_attention_##variant;                                \
    extern const struct codec_kernels fast_codec_##variant;                                        \
    extern const struct gemm_kernels fast_gemm_##variant, fast_small_##variant

extern const struct gemm_kernels gemm_amx, gemm_amx_half, gemm_bfmmla;

KERNELS_DECLARE(baseline);
KERNELS_DECLARE(v3);
KERNELS_DECLARE(v4);

#endif

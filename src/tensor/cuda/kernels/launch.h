/* The interface of the kernels for C: functions that issue kernels on a stream and return a
 * cudaError_t, 0 for success. ops.h does not compile under nvcc, so shapes are declared here again
 * where needed. An absent view has no data. */
#ifndef SOTTO_TENSOR_CUDA_KERNELS_LAUNCH_H
#define SOTTO_TENSOR_CUDA_KERNELS_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *stream_t; /* cudaStream_t */

/* Elements in device memory, fp32 or bf16. */
struct vec {
    void *data;
    int half;
};

/* vectors.cu */
int launch_fill(stream_t s, struct vec y, size_t n, float value);
int launch_copy(stream_t s, struct vec y, struct vec x, size_t n);
int launch_copy_rows(stream_t s, struct vec y, struct vec x, int batch, int rows, int width,
                     size_t y_stride, size_t x_stride, size_t y_batch, size_t x_batch);
int launch_axpby(stream_t s, struct vec y, float b, float a, struct vec x, size_t n);
int launch_scale(stream_t s, struct vec y, float a, size_t n);
int launch_relu_forward(stream_t s, struct vec y, struct vec x, size_t n);
int launch_relu_backward(stream_t s, struct vec dx, struct vec dy, struct vec y, size_t n);
int launch_sign(stream_t s, struct vec y, struct vec x, size_t n);
/* y = product + bias (optional, of a row) + residual (optional); product (rows, width) is fp32. */
int launch_finish(stream_t s, struct vec y, const float *product, struct vec bias,
                  struct vec residual, size_t rows, int width);

/* activations.cu */
int launch_gelu_forward(stream_t s, int exact, struct vec y, struct vec x, size_t n);
int launch_gelu_backward(stream_t s, int exact, struct vec dx, struct vec dy, struct vec x,
                         size_t n);
/* Computes launch_gelu_backward of (rows, width), and adds the column sums of dx to dbias (width);
 * `parts`: column_parts doubles. */
int launch_gelu_bias_backward(stream_t s, int exact, int rows, int width, struct vec dx,
                              struct vec dbias, struct vec dy, struct vec x, double *parts);
int launch_swiglu_forward(stream_t s, struct vec y, struct vec gate, struct vec up, size_t n);
int launch_swiglu_backward(stream_t s, struct vec dgate, struct vec dup, struct vec dy,
                           struct vec gate, struct vec up, size_t n);

/* ranks.cu: every out = the sum of the x, one x of each rank, in order: of `each` ranks on a node,
 * then of `nodes` nodes. All begin at the first of `count` elements; an out may be an x. */
enum { LAUNCH_RANKS = 128 };
struct ranks {
    int nodes, each, n_out, half;
    const void *x[LAUNCH_RANKS];
    void *out[LAUNCH_RANKS];
};
int launch_sum_ranks(stream_t s, const struct ranks *p, size_t count);

/* sums.cu: sums of blocks, whose sizes follow from the shape alone, added in order. */
enum { SQUARES_BLOCK = 1 << 15 }; /* elements of a partial sum */
int launch_sum_squares(stream_t s, double *sum, double *parts, struct vec x, struct vec y,
                       size_t n);
/* Rows of a part in the column sums of a (rows, width) matrix. */
enum { COLUMN_ROWS = 128 };
/* y (width) += column sums of x; `parts`: column_parts doubles. */
size_t column_parts(int rows, int width, int sums);
int launch_column_sums(stream_t s, struct vec y, struct vec x, int rows, int width, double *parts);

/* norm.cu; mean and rstd are (rows, 2) */
struct norm_shape {
    int rows, width;
    float eps;
    int center; /* layernorm; else rmsnorm */
};
int launch_norm_forward(stream_t s, struct norm_shape p, struct vec y, struct vec x,
                        struct vec gain, struct vec bias, float *stats);
/* Rows of a part in the sums for dgain and dbias; `parts`: norm_parts doubles, if there is a dgain
 * or dbias. */
enum { NORM_ROWS = 64 };
size_t norm_parts(int rows, int width);
int launch_norm_backward(stream_t s, struct norm_shape p, struct vec dx, struct vec dgain,
                         struct vec dbias, struct vec dy, struct vec x, struct vec gain,
                         const float *stats, int add, double *parts);

/* product.cu. An element (i, j) of a factor is at i * row + j * column. */
struct factor {
    struct vec v;
    size_t row, column;
};
/* c (m, n) = a (m, k) b (k, n) + bias (n) (optional) + residual (m, n) (optional), which may be c.
 */
struct product {
    int m, n, k;
    struct factor a, b;
    struct vec c, bias, residual;
    size_t c_row; /* elements from one row of c and residual to the next; 0: n */
};
int launch_product(stream_t s, const struct product *p);

/* tokens.cu */
enum { ROPE_PAIRS = 512 };
struct rope_shape {
    int batch, t, heads, width, stride, start, inverse;
    float frequencies[ROPE_PAIRS];
};
int launch_rope(stream_t s, const struct rope_shape *p, struct vec x);
struct embedding_shape {
    int batch, t, width, start;
};
int launch_embedding_forward(stream_t s, struct embedding_shape p, struct vec y,
                             const int32_t *tokens, struct vec table, struct vec positions);
/* `keys`: embedding_keys(rows) elements of scratch */
size_t embedding_keys(int rows);
int launch_embedding_backward(stream_t s, struct embedding_shape p, struct vec dtable,
                              struct vec dpositions, const int32_t *tokens, struct vec dy,
                              uint64_t *keys);
/* Rows of logits are `stride` elements apart. */
int launch_cross_entropy(stream_t s, int rows, int vocab, size_t stride, struct vec logits,
                         const int32_t *targets, float scale, float *losses, uint8_t *places);

/* attention.cu, flash*.cu; batch strides are elements between sequences */
struct attention_shape {
    int batch, t_q, t_k, heads, kv_heads, width, window, whole;
    float scale;
    int q_stride, k_stride, v_stride, o_stride;
    size_t k_batch, v_batch;
};
struct attention_rows {
    struct vec q, k, v, o;
    float *lse; /* (batch, heads, t_q) */
};
struct attention_grads {
    struct vec dq, dk, dv, dy;
    float *delta; /* room for attention_deltas() */
};
enum { ATTENTION_WIDTH = 256 }; /* of a head, at most */
size_t attention_deltas(const struct attention_shape *p);
int launch_attention_forward(stream_t s, const struct attention_shape *p,
                             const struct attention_rows *r);
int launch_attention_backward(stream_t s, const struct attention_shape *p,
                              const struct attention_rows *r, const struct attention_grads *g);
/* Attention on matrix units. flash_can is true for bf16, widths up to 128 that are multiples of 8,
 * and rows on 16 bytes. */
int flash_can(const struct attention_shape *p, const struct attention_rows *r,
              const struct attention_grads *g);
int launch_flash_forward(stream_t s, const struct attention_shape *p,
                         const struct attention_rows *r);
int launch_flash_backward(stream_t s, const struct attention_shape *p,
                          const struct attention_rows *r, const struct attention_grads *g);

/* images.cu */
struct window_shape {
    int rows, h, w, channels; /* of x */
    int kernel, stride, pad, out_h, out_w;
};
/* y (rows * out_h * out_w, kernel, kernel, channels) = the windows of x, 0 outside. */
int launch_gather_windows(stream_t s, struct window_shape p, struct vec y, struct vec x);
/* dx = or += the sums of the windows' gradients at a pixel; dy fp32, shaped as y above. */
int launch_scatter_windows(stream_t s, struct window_shape p, struct vec dx, const float *dy,
                           int add);
int launch_maxpool_forward(stream_t s, struct window_shape p, struct vec y, uint8_t *winner,
                           struct vec x);
int launch_maxpool_backward(stream_t s, struct window_shape p, struct vec dx, struct vec dy,
                            const uint8_t *winner);
int launch_meanpool_forward(stream_t s, int rows, int pixels, int channels, struct vec y,
                            struct vec x);
int launch_meanpool_backward(stream_t s, int rows, int pixels, int channels, struct vec dx,
                             struct vec dy);

/* batchnorm.cu; stats (2, width) */
struct batchnorm_shape {
    int rows, width;
    float eps, momentum;
    int training, relu, given;
};
int launch_batchnorm_forward(stream_t s, struct batchnorm_shape p, struct vec y, struct vec x,
                             struct vec gain, struct vec bias, struct vec residual,
                             float *running_mean, float *running_variance, float *stats,
                             double *parts);
/* parts: column_parts(rows, width, 2) and 2 width more */
int launch_batchnorm_backward(stream_t s, struct batchnorm_shape p, struct vec dx, struct vec dgain,
                              struct vec dbias, struct vec dresidual, struct vec dy, struct vec x,
                              struct vec y, struct vec gain, const float *stats, double *parts);

/* optim.cu */
struct optim_run { /* a stretch of elements with the same decay */
    struct vec x, theta, g, m, v;
    size_t count;
    float decay;
};
struct adamw_step {
    float lr, beta1, beta2, eps, correct1, correct2, grad_scale;
    int peek;
};
struct sgd_step {
    float lr, momentum, grad_scale;
    int nesterov, peek, first;
};
struct co2_update {
    float mean, tau, alpha, beta, clip, lambda;
};
enum { RUNS = 32 }; /* stretches of a launch, at most */
int launch_adamw(stream_t s, const struct adamw_step *p, const struct optim_run *runs, int n);
int launch_sgd(stream_t s, const struct sgd_step *p, const struct optim_run *runs, int n);
int launch_co2(stream_t s, const struct co2_update *p, float *x, float *now, float *m, float *sent,
               float *d, size_t n);

/* codec.cu */
struct tile_shape {
    size_t at, stride, kept; /* `at`: offset in the vector */
    int nx, h, w, keep;
    int begin, end; /* tiles */
    const float *basis_h, *basis_w;
};
/* Returns the number of blocks that run at once, each with tile_room(p) floats of scratch. */
int tile_blocks(const struct tile_shape *p);
size_t tile_room(const struct tile_shape *p);
int launch_tiles_encode(stream_t s, const struct tile_shape *p, float *m, int32_t *index,
                        struct vec value, float *room);
struct tile_messages { /* coefficients of `senders` senders, a step from one sender to the next */
    const int32_t *index;
    size_t index_step;
    struct vec value;
    size_t value_step;
    int senders;
};
/* `damaged` becomes index << 32 | h << 16 | w if a message names a coefficient beyond a tile. */
int launch_tiles_decode(stream_t s, const struct tile_shape *p, float *y,
                        const struct tile_messages *sent, float *room, uint64_t *damaged);

/* tiles.cu: as codec.cu, for tiles of at most 64 rows of 64 elements, without scratch. */
int tiles_by_butterflies(const struct tile_shape *p);
int launch_butterflies_encode(stream_t s, const struct tile_shape *p, float *m, int32_t *index,
                              struct vec value);
int launch_butterflies_decode(stream_t s, const struct tile_shape *p, float *y,
                              const struct tile_messages *sent, uint64_t *damaged);

/* pick.cu */
int launch_bits_pack(stream_t s, int bits, uint8_t *y, const int32_t *x, size_t n);
int launch_bits_unpack(stream_t s, int bits, int32_t *y, const uint8_t *x, size_t n);
enum { CHOOSE_ROUNDS = 4 };
struct choose_shape { /* base/rng.h's shuffle */
    uint32_t multiply[CHOOSE_ROUNDS], add[CHOOSE_ROUNDS], mask;
    int shift;
    uint64_t of;
};
int launch_choose(stream_t s, const struct choose_shape *p, int32_t *index, size_t n);
struct pick_shape {
    size_t count, first, stride;
    const int32_t *index; /* (optional) */
};
int launch_pick(stream_t s, struct pick_shape p, struct vec value, float *m);
int launch_put(stream_t s, struct pick_shape p, float *y, float a, struct vec value);
int launch_signs_pack(stream_t s, uint8_t *y, struct vec x, size_t n);
int launch_signs_unpack(stream_t s, struct vec y, const uint8_t *x, size_t n, int add);

#ifdef __cplusplus
}
#endif

#endif

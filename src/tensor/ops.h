/* The op table: all that models and optimizers ask of a device.
 *
 * Rows are tokens, so a (B, T, C) activation is (rows = B*T, C), contiguous unless a stride is
 * given. Activations, parameters and gradients may each be fp32 or bf16 (a view knows); arithmetic
 * is fp32 at least, but products with a bf16 weight, or that make the gradient of one, may round
 * their other operands to bf16 too before they multiply, and attention of bf16 rows its weights.
 * "dw +=" means that the op adds to what is there, since gradients accumulate over micro-batches.
 * Views marked (optional) may be view_none. Shapes are the caller's promise: ops assert, not
 * return. */
#ifndef SOTTO_TENSOR_OPS_H
#define SOTTO_TENSOR_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/device.h"
#include "tensor/ranks.h"

enum linear_layout {
    LINEAR_OUT_IN, /* w is (out, in), as in torch.nn.Linear   */
    LINEAR_IN_OUT, /* w is (in, out), as in GPT-2's Conv1D    */
};

struct linear {
    int rows, in, out;
    enum linear_layout layout;
    bool half;  /* the weight is bf16, whatever its gradient is */
    bool fresh; /* its gradient is written, whatever was there, not added to */
};

/* A projection without bias and the cross-entropy of it; what has no data is left out. */
struct linear_loss {
    struct view x, w;
    struct view targets, losses, places; /* as of cross_entropy */
    float scale;                         /* 0: without the gradients below */
    struct view dx, dw;                  /* dx = , dw += or, of a fresh one, = */
};

struct norm {
    int rows, width;
    float eps;
};

enum gelu_kind { GELU_TANH, GELU_EXACT };

/* Attention, causal unless it is `whole`. Query head h reads key/value head h / (heads / kv_heads).
 * q, k, v, o are rows of heads side by side: element d of head h of token (b, t) is at ((b*T + t) *
 * stride + h*width + d). With t_q < t_k the queries are the last t_q of t_k positions (decoding
 * with a cache). */
struct attention {
    int batch, t_q, t_k;
    int heads, kv_heads, width;                 /* width: of one head                             */
    int window;                                 /* a query sees its last `window` keys; 0: all    */
    bool whole;                                 /* ... or all keys, those behind it too           */
    float scale;                                /* of the scores, e.g. 1/sqrt(width)              */
    int q_stride, k_stride, v_stride, o_stride; /* elements from row to row       */
    size_t
        kv_batch_stride; /* elements between sequences of k and of v, 0: t_k * their row stride */
    bool half;           /* weights are bf16: what is multiplied may be rounded to it */
};

struct rope {
    int batch, t, heads, width, stride; /* rows as in struct attention                */
    int start;                          /* position of the first token                */
    const float *frequencies; /* (width/2): angle of pair i at position p is p*f[i]; host memory,
                                 the op's until it is done */
};

/* Rows of `width` elements: row r of sequence b is at b * batch stride + r * stride. */
struct row_copy {
    int batch, rows, width;
    size_t y_stride, x_stride, y_batch_stride, x_batch_stride;
};

/* One of the vectors that a reduction takes at once. */
struct pair {
    struct view x, y;
    size_t count;
};

/* Elements that one step of an optimizer moves alike, of which it takes many at once that have
 * nothing in common. `x` is the fp32 truth that the step starts from, `theta` (optional) receives
 * the rounded copy for computing; it may be g itself, of the same type. A peek writes theta only:
 * x, m and v stay as they are. */
struct stretch {
    struct view x, theta, g;
    struct view m, v; /* sgd: m alone, view_none without momentum */
    size_t count;
    float decay; /* multiplies x */
};

struct adamw {
    float lr, beta1, beta2, eps;
    float correct1, correct2; /* 1 - beta^t of this step */
    float grad_scale;         /* g is multiplied by this first: averaging and clipping */
    bool peek;
};

/* An outer update of CO2. `sent` comes as the sum of what all groups sent, of which `mean` makes
 * the average, and leaves as what this one sends next: m <- beta m + sent / lambda;  next = now -
 * alpha clip(m) sent <- (now - x) / Lambda,  Lambda = |next - now| / (tau |d| + eps) + 1, or 1
 * without d x <- now;  now <- next d comes as a sum, too. */
struct co2_step {
    float mean, tau, alpha, beta, clip, lambda;
};

struct sgd {
    float lr, momentum; /* a stretch's decay is L2, added to the gradient */
    bool nesterov, peek;
    bool first; /* the velocity starts as the gradient, as in torch */
    float grad_scale;
};

/* Images are rows of (h, w, channels). A side has window_count windows, which make the pixels of
 * the result; `pad` pixels around an image are zero for a convolution and not there for pooling. */
struct conv {
    int rows, h, w;          /* of x                                            */
    int in, out;             /* channels                                        */
    int kernel, stride, pad; /* w is (out, kernel, kernel, in)                   */
    bool half;               /* the weight is bf16, whatever its gradient is     */
};

struct pooling {
    int rows, h, w, channels;
    int kernel, stride, pad; /* kernel <= 16, 2 pad <= kernel */
};

static inline int window_count(int side, int kernel, int stride, int pad)
{
    return (side + 2 * pad - kernel) / stride + 1;
}

struct batchnorm {
    int rows, width;     /* pixels of all images, channels                              */
    float eps, momentum; /* momentum: the share of now in the running statistics        */
    bool training;       /* mean and variance are those of these rows, else the running */
    bool relu;           /* negative results become 0                                   */
    bool given;          /* forward: stats are, as an earlier forward has left them     */
};

/* Tiles that vectors are cut into for the cosine transform (DCT-II, orthonormal): ny x nx tiles of
 * (h, w) elements each, rows `stride` elements apart; a chunk of a vector is a tile of one row. The
 * first begins at element `at`. Of each `keep` coefficients are kept; those of the first tile lie
 * from `kept` on among all that are kept, tile after tile. Sides are at most TILE_SIDE,
 * and ny nx is at most 2^30. */
enum { TILE_SIDE = 256 };
struct tiles {
    size_t at, stride;
    int ny, nx, h, w, keep;
    size_t kept;
    size_t basis_h, basis_w; /* where the matrices of h and w are in `basis` */
};

/* The list is the caller's until the device was checked. */
struct tiling {
    const struct tiles *tiles; /* (n) */
    int n;
    int begin, end; /* with end > 0: of the only list, the tiles from `begin` to before `end` */
    size_t from;    /* the element that the vector given begins with; none before it is touched */
};

/* For tables: keeps the failure that a message named a coefficient that no tile of t has. */
void tiles_damaged(struct device *dev, const struct tiles *t, uint32_t index);

/* `count` elements of a vector, in turn: those that a list of int32 (optional) names, none of them
 * twice, or every `stride`-th from `first` on. */
struct picks {
    size_t count, first, stride;
};

enum { RANKS_MOST = 128 }; /* whose vectors one op adds up */

/* What another library does in the place of an op: with a GPU's stream and memory, to which it
 * issues, or with the host's (stream NULL). A failure is kept as an op's. */
enum { DEVICE_CALL_VIEWS = 2 * RANKS_MOST, DEVICE_CALL_BYTES = 8 << 10 };
typedef enum sotto_status device_call(void *stream, const struct view *v, const void *arg);

struct ops {
    const char *name;
    enum place place; /* of its memory */
    bool own_caches;  /* of each thread: to write what others have just read takes longer */
    enum sotto_status (*open)(struct device *dev); /* (optional) choose kernels, create streams */
    /* (optional) The same on a machine that lacks the device, for `takes` and `close` alone. */
    enum sotto_status (*open_absent)(struct device *dev);
    /* (optional) Others of its kernels than `open` chose. */
    enum sotto_status (*select)(struct device *dev, const char *kernels);
    /* (optional) Those that this machine has, best first, with spaces between them. */
    void (*kernels)(char text[DEVICE_KERNELS_ROOM]);
    void (*close)(struct device *dev); /* (optional) waits for what was issued      */
    const char *(*describe)(
        const struct device *dev); /* (optional) what was chosen; else the name */

    /* Memory that the ops can reach, 64-byte aligned and zeroed; NULL when there is none left.
     * (optional, both) without them buffers and scratch are accounted and hold nothing: their data
     * are NULL. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*release)(struct device *dev, void *memory, size_t bytes);
    /* (optional) Bytes that are left for anybody, and that there are in all. */
    void (*left)(struct device *dev, size_t *left, size_t *all);
    /* Elements of the view's type. The host's memory is the caller's again on return: a write has
     * taken what it needs, a read waits. */
    void (*write)(struct device *dev, struct view to, const void *host, size_t count);
    void (*read)(struct device *dev, void *host, struct view from, size_t count);

    /* (optional, all three) For tables whose ops return before they are done: waits until all that
     * were issued are; device_mark and device_follow, of contexts of this table. */
    void (*sync)(struct device *dev);
    uint64_t (*mark)(struct device *dev);
    void (*follow)(struct device *dev, struct device_mark mark);
    /* (optional) Seconds of the device's own clock from one mark to another, both among its last
     * 64; waits for them. */
    double (*elapsed)(struct device *dev, uint64_t begin, uint64_t end);

    /* (optional) For tables with memory of their own: sum_ranks, of at most RANKS_MOST. */
    void (*sum_ranks)(struct device *dev, const struct rank_sum *p, const struct view *out,
                      int n_out, const struct view *x);

    /* (optional, both) For tables with memory of their own: a call, with n <= DEVICE_CALL_VIEWS
     * views and a copy of `bytes` <= DEVICE_CALL_BYTES of arg; and which GPU it is, a number that
     * on a machine no other has, whatever GPUs a process is shown; without it, or negative: none.
     */
    void (*call)(struct device *dev, device_call *call, const struct view *v, int n,
                 const void *arg, size_t bytes);
    int (*number)(const struct device *dev);

    /* (optional) linear_forward, cross_entropy and linear's backward passes at once, for tables
     * that lay logits out as suits them; they may round them to bf16 where x and w are. */
    void (*linear_loss)(struct device *dev, const struct linear *p, const struct linear_loss *l);

    /* (optional) Ops of this table, not all, as they are on a device without memory: they take
     * their scratch and do no more. They look at what views there are and at their types. */
    const struct ops *takes;
    const char *behind; /* (optional) the table that computes, and takes scratch, for this one */

    /* (optional) gelu_backward of (rows, width) elements, and dbias (width) += the column sums of
     * dx; without it linear_backward_w makes them. */
    void (*gelu_bias_backward)(struct device *dev, enum gelu_kind kind, int rows, int width,
                               struct view dx, struct view dbias, struct view dy, struct view x);

    /* (optional) linear_backward_w and linear_backward_x at once; dx overlaps none of the others.
     */
    void (*linear_backward)(struct device *dev, const struct linear *p, struct view dx,
                            struct view dw, struct view dbias, struct view dy, struct view x,
                            struct view w, bool add);

    /* From here on every table has all. */

    /* Flat vectors. */
    void (*fill)(struct device *dev, struct view y, size_t count, float value);
    void (*copy)(struct device *dev, struct view y, struct view x, size_t count); /* converts   */
    void (*copy_rows)(struct device *dev, const struct row_copy *p, struct view y,
                      struct view x); /* converts */
    void (*axpy)(struct device *dev, struct view y, float a, struct view x,
                 size_t count); /* y += a x */
    void (*axpby)(struct device *dev, struct view y, float b, float a, struct view x,
                  size_t count); /* y = b y + a x */
    void (*scale)(struct device *dev, struct view y, float a, size_t count);
    /* The sum, in order, of |x|^2 or, where there is a y (optional), |x - y|^2, which `each`
     * (optional) receives; both are the host's, so it waits. */
    double (*sum_squares)(struct device *dev, const struct pair *p, int n, double *each);

    /* y = x w^T + bias + residual; y (rows, out), x (rows, in). bias (out), residual like y:
     * (optional); residual may be y itself. */
    void (*linear_forward)(struct device *dev, const struct linear *p, struct view y, struct view x,
                           struct view w, struct view bias, struct view residual);
    /* dx = dy w, or dx += when `add`. */
    void (*linear_backward_x)(struct device *dev, const struct linear *p, struct view dx,
                              struct view dy, struct view w, bool add);
    /* dw += dy^T x, or = of a fresh one, dbias (optional) += column sums of dy; summed in fp32 and
     * rounded once. */
    void (*linear_backward_w)(struct device *dev, const struct linear *p, struct view dw,
                              struct view dbias, struct view dy, struct view x);

    /* y = (x - mean) * rstd * gain + bias; bias (optional). stats is fp32 (rows, 2): mean, rstd. */
    void (*layernorm_forward)(struct device *dev, const struct norm *p, struct view y,
                              struct view x, struct view gain, struct view bias, struct view stats);
    /* dx = `from` (optional) + what comes through; dgain, dbias (optional) +=. dx may be `from`, or
     * dy where there is none. */
    void (*layernorm_backward)(struct device *dev, const struct norm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dy, struct view x,
                               struct view gain, struct view stats, struct view from);
    /* y = x * rstd * gain, rstd = 1/sqrt(mean(x^2) + eps). stats is fp32 (rows, 2): 0, rstd. */
    void (*rmsnorm_forward)(struct device *dev, const struct norm *p, struct view y, struct view x,
                            struct view gain, struct view stats);
    void (*rmsnorm_backward)(struct device *dev, const struct norm *p, struct view dx,
                             struct view dgain, struct view dy, struct view x, struct view gain,
                             struct view stats, struct view from);

    void (*gelu_forward)(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                         size_t count);
    /* dx = dy * gelu'(x); dx may be dy. */
    void (*gelu_backward)(struct device *dev, enum gelu_kind kind, struct view dx, struct view dy,
                          struct view x, size_t count);
    /* y = silu(gate) * up. */
    void (*swiglu_forward)(struct device *dev, struct view y, struct view gate, struct view up,
                           size_t count);
    /* dgate, dup =; either may be dy. */
    void (*swiglu_backward)(struct device *dev, struct view dgate, struct view dup, struct view dy,
                            struct view gate, struct view up, size_t count);

    /* Rotates pairs (i, i + width/2) of every head in place; `inverse` is its backward. */
    void (*rope)(struct device *dev, const struct rope *p, struct view x, bool inverse);

    /* y[r] = table[tokens[r]] + positions[start + r % t]; positions (optional), tokens int32. */
    void (*embedding_forward)(struct device *dev, int batch, int t, int width, int start,
                              struct view y, struct view tokens, struct view table,
                              struct view positions);
    /* dtable, dpositions (optional, both; tokens with dtable) +=; what a token or position occurs
     * in is summed in fp32 and rounded once. */
    void (*embedding_backward)(struct device *dev, int batch, int t, int width, struct view dtable,
                               struct view dpositions, struct view tokens, struct view dy);

    /* lse is fp32 (batch, heads, t_q): log of the sum of exponentials of each query's scores. */
    void (*attention_forward)(struct device *dev, const struct attention *p, struct view o,
                              struct view q, struct view k, struct view v, struct view lse);
    /* dq, dk, dv = (strides as q, k, v; t_q == t_k). */
    void (*attention_backward)(struct device *dev, const struct attention *p, struct view dq,
                               struct view dk, struct view dv, struct view dy, struct view o,
                               struct view q, struct view k, struct view v, struct view lse);

    /* y (rows, h', w', out) = the products of x's windows and w, + bias (out) (optional). */
    void (*conv_forward)(struct device *dev, const struct conv *p, struct view y, struct view x,
                         struct view w, struct view bias);
    /* dx =, or += when `add`. */
    void (*conv_backward_x)(struct device *dev, const struct conv *p, struct view dx,
                            struct view dy, struct view w, bool add);
    /* dw, dbias (optional) +=; summed in fp32 and rounded once. */
    void (*conv_backward_w)(struct device *dev, const struct conv *p, struct view dw,
                            struct view dbias, struct view dy, struct view x);
    /* y (rows, h', w', channels) = the largest of each window, and winner (uint8, as y) where it
     * was: ky * kernel + kx, the first of equal ones. */
    void (*maxpool_forward)(struct device *dev, const struct pooling *p, struct view y,
                            struct view winner, struct view x);
    /* dx =. */
    void (*maxpool_backward)(struct device *dev, const struct pooling *p, struct view dx,
                             struct view dy, struct view winner);
    /* y (rows, channels) = the mean over the pixels of x (rows, pixels, channels). */
    void (*meanpool_forward)(struct device *dev, int rows, int pixels, int channels, struct view y,
                             struct view x);
    /* dx =. */
    void (*meanpool_backward)(struct device *dev, int rows, int pixels, int channels,
                              struct view dx, struct view dy);
    /* y = (x - mean) * rstd * gain + bias + residual, then relu; residual (optional), and it or x
     * may be y. stats, fp32 (2, width), is left for the backward pass: mean, rstd. In training the
     * running mean and variance, fp32 (width) (optional, both), take their share, of the variance
     * that n - 1 divides (n where that is 1), as in torch. */
    void (*batchnorm_forward)(struct device *dev, const struct batchnorm *p, struct view y,
                              struct view x, struct view gain, struct view bias,
                              struct view residual, struct view running_mean,
                              struct view running_variance, struct view stats);
    /* dx =, dgain, dbias (optional, each) +=, dresidual (optional) =. After relu dy counts where
     * the y of forward is not 0; without, y is not read. One of dx and dresidual may be dy. */
    void (*batchnorm_backward)(struct device *dev, const struct batchnorm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dresidual,
                               struct view dy, struct view x, struct view y, struct view gain,
                               struct view stats);
    /* y = x, 0 where it is negative; y may be x. */
    void (*relu_forward)(struct device *dev, struct view y, struct view x, size_t count);
    /* dx = dy, 0 where the y of forward is; dx may be dy. */
    void (*relu_backward)(struct device *dev, struct view dx, struct view dy, struct view y,
                          size_t count);

    /* losses[r] = -log softmax(logits[r])[targets[r]], 0 where the target is negative (ignored).
     * When `scale` is not 0 the logits become their gradient, scale * (softmax - onehot), 0 where
     * ignored. targets are int32, losses fp32; places (optional) uint8, where the target stands
     * among the logits: 1 for the largest (the first of equal ones), at most 255; 0 where ignored.
     */
    void (*cross_entropy)(struct device *dev, int rows, int vocab, struct view logits,
                          struct view targets, float scale, struct view losses, struct view places);

    void (*adamw)(struct device *dev, const struct adamw *p, const struct stretch *s, int n);
    void (*sgd)(struct device *dev, const struct sgd *p, const struct stretch *s, int n);
    /* Of each tile of m (fp32) its `keep` largest coefficients, the earlier of equal ones, by
     * index: where in the tile (int32), and their value (fp32 or bf16, rounded). They are taken out
     * of m, as rounded. `basis` (fp32): for each side n that tiles have the matrix (n, n) of the
     * transform, a row for each frequency. */
    void (*tiles_encode)(struct device *dev, const struct tiling *p, struct view basis,
                         struct view m, struct view index, struct view value);
    /* Each tile of y (fp32) from coefficients that `senders` kept, `index_step` and `value_step`
     * elements from one to the next: the mean of those who sent it, added in their order; 0 where
     * nobody did. An index beyond its tile is left out, and a failure. */
    void (*tiles_decode)(struct device *dev, const struct tiling *p, struct view basis, int senders,
                         struct view y, struct view index, size_t index_step, struct view value,
                         size_t value_step);
    /* The lowest `bits` (1 to 16) of each element of x (int32), one behind the other from the
     * lowest bits of the first byte of y on; the last byte is filled with zeros. And back. */
    void (*bits_pack)(struct device *dev, int bits, struct view y, struct view x, size_t count);
    void (*bits_unpack)(struct device *dev, int bits, struct view y, struct view x, size_t count);
    /* y = -1, 0 or 1, or no number where x is none; y may be x. */
    void (*sign)(struct device *dev, struct view y, struct view x, size_t count);

    /* index (int32) = the first `count` elements of the shuffle (base/rng.h). */
    void (*choose)(struct device *dev, const struct shuffle *p, struct view index, size_t count);
    /* value (fp32 or bf16, rounded) = what is picked of m (fp32), from which it is taken away. */
    void (*pick)(struct device *dev, const struct picks *p, struct view value, struct view m,
                 struct view index);
    /* y (fp32) = a value where it is picked; the rest stays. */
    void (*put)(struct device *dev, const struct picks *p, struct view y, float a,
                struct view value, struct view index);
    /* Signs of x, two bits each, four in a byte of y from its lowest bits on: 0, 1, or 3 for -1, 2
     * for no number; the last byte is filled with zeros. */
    void (*signs_pack)(struct device *dev, struct view y, struct view x, size_t count);
    /* y = the signs in x, or += when `add`. */
    void (*signs_unpack)(struct device *dev, struct view y, struct view x, size_t count, bool add);

    /* All fp32; d view_none: without. */
    void (*co2)(struct device *dev, const struct co2_step *p, struct view x, struct view now,
                struct view m, struct view sent, struct view d, size_t count);
};

/* The entries of a table that computes, all of them: what is not there does not compile. The
 * function of op x is prefix_x. */
#define OPS_COMPUTE(prefix)                                                                        \
    .fill = prefix##_fill, .copy = prefix##_copy, .copy_rows = prefix##_copy_rows,                 \
    .axpy = prefix##_axpy, .axpby = prefix##_axpby, .scale = prefix##_scale,                       \
    .sum_squares = prefix##_sum_squares, .linear_forward = prefix##_linear_forward,                \
    .linear_backward_x = prefix##_linear_backward_x,                                               \
    .linear_backward_w = prefix##_linear_backward_w,                                               \
    .layernorm_forward = prefix##_layernorm_forward,                                               \
    .layernorm_backward = prefix##_layernorm_backward,                                             \
    .rmsnorm_forward = prefix##_rmsnorm_forward, .rmsnorm_backward = prefix##_rmsnorm_backward,    \
    .gelu_forward = prefix##_gelu_forward, .gelu_backward = prefix##_gelu_backward,                \
    .swiglu_forward = prefix##_swiglu_forward, .swiglu_backward = prefix##_swiglu_backward,        \
    .rope = prefix##_rope, .embedding_forward = prefix##_embedding_forward,                        \
    .embedding_backward = prefix##_embedding_backward,                                             \
    .attention_forward = prefix##_attention_forward,                                               \
    .attention_backward = prefix##_attention_backward, .conv_forward = prefix##_conv_forward,      \
    .conv_backward_x = prefix##_conv_backward_x, .conv_backward_w = prefix##_conv_backward_w,      \
    .maxpool_forward = prefix##_maxpool_forward, .maxpool_backward = prefix##_maxpool_backward,    \
    .meanpool_forward = prefix##_meanpool_forward,                                                 \
    .meanpool_backward = prefix##_meanpool_backward,                                               \
    .batchnorm_forward = prefix##_batchnorm_forward,                                               \
    .batchnorm_backward = prefix##_batchnorm_backward, .relu_forward = prefix##_relu_forward,      \
    .relu_backward = prefix##_relu_backward, .cross_entropy = prefix##_cross_entropy,              \
    .adamw = prefix##_adamw, .sgd = prefix##_sgd, .co2 = prefix##_co2,                             \
    .tiles_encode = prefix##_tiles_encode, .tiles_decode = prefix##_tiles_decode,                  \
    .bits_pack = prefix##_bits_pack, .bits_unpack = prefix##_bits_unpack, .sign = prefix##_sign,   \
    .choose = prefix##_choose, .pick = prefix##_pick, .put = prefix##_put,                         \
    .signs_pack = prefix##_signs_pack, .signs_unpack = prefix##_signs_unpack

extern const struct ops ops_reference; /* plain loops in double precision */
extern const struct ops ops_cpu;       /* SIMD kernels, OpenMP             */
extern const struct ops ops_null;      /* nothing: for sizes and times     */
extern const struct ops ops_apart;     /* cpu, as far away as a GPU         */
extern const struct ops ops_cuda;      /* a GPU, in builds with CUDA        */

#endif

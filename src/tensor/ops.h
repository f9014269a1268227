/* The op table: what models and optimizers ask a device to compute. The ops are in op_list.h; this
 * header has the structs that they take and the rest of a table: memory, marks, host access.
 *
 * Rows are tokens, so a (B, T, C) activation is (rows = B*T, C), contiguous unless a stride is
 * given. Activations, parameters and gradients may each be fp32 or bf16 (view.type). Arithmetic is
 * fp32 at least, with two exceptions: a product with a bf16 weight, or with a bf16 gradient of a
 * weight, may round its other operands to bf16 before it multiplies; attention of bf16 rows may
 * round its weights to bf16. Gradients accumulate over micro-batches, hence the ops that add.
 * Shapes are the caller's promise: ops assert and return no status (device_failed). */
#ifndef SOTTO_TENSOR_OPS_H
#define SOTTO_TENSOR_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/device.h"
#include "tensor/op_parameters.h"
#include "tensor/ranks.h"

enum linear_layout {
    LINEAR_OUT_IN, /* w is (out, in), as in torch.nn.Linear   */
    LINEAR_IN_OUT, /* w is (in, out), as in GPT-2's Conv1D    */
};

struct linear {
    int rows, in, out;
    enum linear_layout layout;
    bool half;  /* true: the weight is bf16, whatever type its gradient has */
    bool fresh; /* true: the gradient of the weight is overwritten, not added to */
};

/* A projection without bias, and its cross-entropy (ops->linear_loss). */
struct linear_loss {
    struct view x, w;
    struct view targets, losses, places; /* as in cross_entropy; places may be view_none */
    float scale;                         /* 0: losses only, dx and dw are not computed */
    struct view dx, dw;                  /* dx =, dw += (with linear.fresh: dw =) */
};

struct norm {
    int rows, width;
    float eps;
};

enum gelu_kind { GELU_TANH, GELU_EXACT };

/* Attention, causal unless `whole`. Query head h reads key/value head h / (heads / kv_heads). A row
 * of q, k, v or o has the heads one after another: element d of head h of token (b, t) is at
 * (b*T + t) * stride + h*width + d. With t_q < t_k the queries are the last t_q of t_k positions
 * (decoding with a cache). */
struct attention {
    int batch, t_q, t_k;
    int heads, kv_heads, width;                 /* width: elements of one head */
    int window;                                 /* keys that a query sees, its own last; 0: all */
    bool whole;                                 /* true: a query also sees later keys */
    float scale;                                /* factor of the scores, e.g. 1/sqrt(width) */
    int q_stride, k_stride, v_stride, o_stride; /* elements from row to row */
    size_t kv_batch_stride; /* elements between sequences of k and of v; 0: t_k * the row stride */
    bool half;              /* true: weights are bf16, so products may round operands to bf16 */
};

struct rope {
    int batch, t, heads, width, stride; /* rows as in struct attention */
    int start;                          /* position of the first token */
    const float *frequencies; /* (width/2), host memory, valid until the op is done: the angle of
                               * pair i at position p is p * frequencies[i] */
};

/* Rows of `width` elements: row r of sequence b is at b * batch_stride + r * stride. */
struct row_copy {
    int batch, rows, width;
    size_t y_stride, x_stride, y_batch_stride, x_batch_stride;
};

/* One of the vectors of sum_squares; y may be view_none. */
struct vector_pair {
    struct view x, y;
    size_t count;
};

/* Elements that an optimizer's step updates with one weight decay. A step takes any number of
 * stretches. `x` (fp32) is the exact parameter that the step starts from, `theta` (or view_none)
 * the rounded copy that the model computes with; theta may be g, of the same type. A peek writes
 * theta only and leaves x, m and v as they are. */
struct stretch {
    struct view x, theta, g;
    struct view m, v; /* sgd uses m only, view_none without momentum */
    size_t count;
    float decay; /* multiplies x */
};

struct adamw {
    float lr, beta1, beta2, eps;
    float correct1, correct2; /* 1 - beta^t of this step */
    float grad_scale;         /* multiplies g first: averaging and clipping */
    bool peek;
};

/* An outer update of CO2. On entry `sent` and `d` are sums over all groups, which `mean` turns into
 * averages; on return `sent` is the vector that this group sends next.
 *
 *     m    <- beta m + mean sent / lambda
 *     next  = now - alpha clip(m)
 *     sent <- (now - x) / Lambda,  Lambda = |next - now| / (tau |mean d| + eps) + 1, or 1 without d
 *     x    <- now;  now <- next */
struct co2_step {
    float mean, tau, alpha, beta, clip, lambda;
};

struct sgd {
    float lr, momentum; /* stretch.decay is L2, added to the gradient */
    bool nesterov, peek;
    bool first; /* true: the velocity starts as the gradient, as in torch */
    float grad_scale;
};

/* Images are rows of (h, w, channels). The windows on an image (window_count on each side) make the
 * pixels of the result. The `pad` pixels around an image are zeros for a convolution; pooling skips
 * them. */
struct conv {
    int rows, h, w;          /* of x */
    int in, out;             /* channels */
    int kernel, stride, pad; /* w is (out, kernel, kernel, in) */
    bool half;               /* true: the weight is bf16, whatever type its gradient has */
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
    int rows, width;     /* pixels of all images; channels */
    float eps, momentum; /* momentum: share of this batch in the running statistics */
    bool training;       /* true: mean and variance of these rows; false: the running statistics */
    bool relu;           /* true: negative results become 0 */
    bool given;          /* true: forward takes `stats` from an earlier forward pass */
};

/* Tiles of a vector for the cosine transform (DCT-II, orthonormal): ny x nx tiles of (h, w)
 * elements each, in rows `stride` elements apart. A chunk of a vector is a tile of one row. `keep`
 * coefficients of each tile are kept. Sides are at most TILE_SIDE, ny nx at most 2^30. */
enum { TILE_SIDE = 256 };
struct tiles {
    size_t at, stride; /* at: first element of the first tile in the vector */
    int ny, nx, h, w, keep;
    size_t kept; /* place of the first tile's coefficients among all kept coefficients */
    size_t basis_h, basis_w; /* place of the matrices of sides h and w in `basis` */
};

/* Lists of tiles in a vector. The caller keeps `tiles` until the op is done (device_check). */
struct tiling {
    const struct tiles *tiles; /* (n) */
    int n;
    int begin, end; /* with end > 0 and n = 1: only the tiles from `begin` to before `end` */
    size_t from;    /* element of the vector that the op's view begins with */
};

/* Keeps the failure that a message names coefficient `index`, which no tile of `t` has. Called by
 * op tables. */
void tiles_damaged(struct device *dev, const struct tiles *t, uint32_t index);

/* `count` selected elements of a vector, in order: the elements named by an index (int32, each at
 * most once) if there is one, else every `stride`-th from `first` on. */
struct picks {
    size_t count, first, stride;
};

enum { RANKS_MOST = 128 }; /* vectors that one sum_ranks adds */

/* A call into another library in the order of a device's ops (ops->call). `stream` is the GPU's
 * stream, which the call issues to, or NULL: then the views are the host's memory. A failure is
 * kept as an op's. */
enum { DEVICE_CALL_VIEWS = 2 * RANKS_MOST, DEVICE_CALL_BYTES = 8 << 10 };
typedef enum sotto_status device_call(void *stream, const struct view *v, const void *arg);

struct ops {
    const char *name;
    enum place place; /* of the device's memory */
    bool own_caches;  /* threads have own caches: writing what other threads have read is slow */
    enum sotto_status (*open)(struct device *dev); /* (optional) chooses kernels, creates streams */
    /* (optional) Opens a device that this machine lacks, for `takes` and `close` only. */
    enum sotto_status (*open_absent)(struct device *dev);
    /* (optional) Replaces the kernels that `open` chose. */
    enum sotto_status (*select)(struct device *dev, const char *kernels);
    /* (optional) Writes the names of the kernels of this machine, best first, separated by spaces.
     */
    void (*kernels)(char text[DEVICE_KERNELS_ROOM]);
    void (*close)(struct device *dev); /* (optional) waits for all issued ops */
    /* (optional) Returns the name of the GPU or kernels in use. Without it, device_describe returns
     * the table's name. */
    const char *(*describe)(const struct device *dev);

    /* Returns memory that the ops can reach, 64-byte aligned and zeroed; NULL if there is too
     * little. Tables without alloc and release have buffers and scratch that are accounted and hold
     * nothing: data is NULL. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*release)(struct device *dev, void *memory, size_t bytes);
    /* (optional) Reports the free bytes of the device, for all processes, and all its bytes. */
    void (*left)(struct device *dev, size_t *left, size_t *all);
    /* Copies `count` elements of the view's type between host memory and the device. On return the
     * host memory is the caller's again: write has copied it, read has waited. */
    void (*write)(struct device *dev, struct view to, const void *host, size_t count);
    void (*read)(struct device *dev, void *host, struct view from, size_t count);
    /* Returns the sum, in order, of |x|^2 over all pairs, or of |x - y|^2 where a pair has a y;
     * each[i] (or `each` NULL) = the sum of pair i. Waits. */
    double (*sum_squares)(struct device *dev, const struct vector_pair *p, int n, double *each);

    /* (optional, all three) For tables whose ops return before they are done. sync waits for all
     * issued ops; mark and follow are device_mark and device_follow among contexts of this table.
     */
    void (*sync)(struct device *dev);
    uint64_t (*mark)(struct device *dev);
    void (*follow)(struct device *dev, struct device_mark mark);
    /* (optional) Waits for two marks, both among the last 64, and returns the seconds between them
     * by the device's own clock. */
    double (*elapsed)(struct device *dev, uint64_t begin, uint64_t end);

    /* (optional) sum_ranks (ranks.h) of at most RANKS_MOST vectors, for tables with separate
     * memory.
     */
    void (*sum_ranks)(struct device *dev, const struct rank_sum *p, const struct view *out,
                      int n_out, const struct view *x);

    /* (optional, both) For tables with separate memory. call issues a device_call with
     * n <= DEVICE_CALL_VIEWS views and a copy of `bytes` <= DEVICE_CALL_BYTES of arg. number
     * returns a number of the GPU that is unique on this machine, whatever GPUs a process is shown;
     * without it, or if negative: not a GPU. */
    void (*call)(struct device *dev, device_call *call, const struct view *v, int n,
                 const void *arg, size_t bytes);
    int (*number)(const struct device *dev);

    /* (optional) linear_forward, cross_entropy and both backward passes of linear at once, for
     * tables that choose their own layout of logits. The logits may be rounded to bf16 where x and
     * w are bf16. */
    void (*linear_loss)(struct device *dev, const struct linear *p, const struct linear_loss *l);

    /* (optional) The ops that take scratch, as they behave on a device without memory: they account
     * for their scratch and return. They look at types and presence of views, not at data. */
    const struct ops *takes;
    /* (optional) Name of the table that computes, and takes scratch, for this table. */
    const char *computed_by;

#define OP(op, ...) void (*op)(OP_PARAMETERS(__VA_ARGS__));
#include "tensor/op_list.h"
};

extern const struct ops ops_reference; /* plain loops in double precision           */
extern const struct ops ops_cpu;       /* SIMD kernels, OpenMP                       */
extern const struct ops ops_null;      /* nothing: for sizes and times               */
extern const struct ops ops_separate;  /* tests/device: cpu with the memory of a GPU */
extern const struct ops ops_cuda;      /* a GPU, in builds with CUDA                 */

#endif

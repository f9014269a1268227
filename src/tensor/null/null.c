/* The null device: buffers that are accounted as real ones but hold nothing, and ops that do
 * nothing. A method runs on it unchanged, so that its time and memory can be known for models that
 * no machine at hand could hold.
 *
 * What reaches host memory is zeros, which is what an untouched buffer holds; an op that returns a
 * number returns 0. */
#include <string.h>

#include "tensor/ops.h"

static void write_nothing(struct device *dev, struct view to, const void *host, size_t count)
{
    (void)dev, (void)to, (void)host, (void)count;
}

static void read_zeros(struct device *dev, void *host, struct view from, size_t count)
{
    (void)dev;
    memset(host, 0, count * dtype_size(from.type));
}

static void fill(struct device *dev, struct view y, size_t count, float value)
{
    (void)dev, (void)y, (void)count, (void)value;
}

static void copy(struct device *dev, struct view y, struct view x, size_t count)
{
    (void)dev, (void)y, (void)x, (void)count;
}

static void axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
    (void)dev, (void)y, (void)a, (void)x, (void)count;
}

static void scale(struct device *dev, struct view y, float a, size_t count)
{
    (void)dev, (void)y, (void)a, (void)count;
}

static double sum_squares(struct device *dev, struct view x, size_t count)
{
    (void)dev, (void)x, (void)count;
    return 0;
}

static double distance(struct device *dev, struct view x, struct view y, size_t count)
{
    (void)dev, (void)x, (void)y, (void)count;
    return 0;
}

static void linear_forward(struct device *dev, const struct linear *p, struct view y, struct view x,
                           struct view w, struct view bias, struct view residual)
{
    (void)dev, (void)p, (void)y, (void)x, (void)w, (void)bias, (void)residual;
}

static void linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                              struct view dy, struct view w, bool add)
{
    (void)dev, (void)p, (void)dx, (void)dy, (void)w, (void)add;
}

static void linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                              struct view dbias, struct view dy, struct view x)
{
    (void)dev, (void)p, (void)dw, (void)dbias, (void)dy, (void)x;
}

static void layernorm_forward(struct device *dev, const struct norm *p, struct view y,
                              struct view x, struct view gain, struct view bias, struct view stats)
{
    (void)dev, (void)p, (void)y, (void)x, (void)gain, (void)bias, (void)stats;
}

static void layernorm_backward(struct device *dev, const struct norm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dy, struct view x,
                               struct view gain, struct view stats, bool add)
{
    (void)dev, (void)p, (void)dx, (void)dgain, (void)dbias, (void)dy, (void)x, (void)gain,
        (void)stats, (void)add;
}

static void rmsnorm_forward(struct device *dev, const struct norm *p, struct view y, struct view x,
                            struct view gain, struct view stats)
{
    (void)dev, (void)p, (void)y, (void)x, (void)gain, (void)stats;
}

static void rmsnorm_backward(struct device *dev, const struct norm *p, struct view dx,
                             struct view dgain, struct view dy, struct view x, struct view gain,
                             struct view stats, bool add)
{
    (void)dev, (void)p, (void)dx, (void)dgain, (void)dy, (void)x, (void)gain, (void)stats,
        (void)add;
}

static void gelu_forward(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                         size_t count)
{
    (void)dev, (void)kind, (void)y, (void)x, (void)count;
}

static void gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx, struct view dy,
                          struct view x, size_t count)
{
    (void)dev, (void)kind, (void)dx, (void)dy, (void)x, (void)count;
}

static void swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                           size_t count)
{
    (void)dev, (void)y, (void)gate, (void)up, (void)count;
}

static void swiglu_backward(struct device *dev, struct view dgate, struct view dup, struct view dy,
                            struct view gate, struct view up, size_t count)
{
    (void)dev, (void)dgate, (void)dup, (void)dy, (void)gate, (void)up, (void)count;
}

static void rope(struct device *dev, const struct rope *p, struct view x, bool inverse)
{
    (void)dev, (void)p, (void)x, (void)inverse;
}

static void embedding_forward(struct device *dev, int batch, int t, int width, int start,
                              struct view y, const int32_t *tokens, struct view table,
                              struct view positions)
{
    (void)dev, (void)batch, (void)t, (void)width, (void)start, (void)y, (void)tokens, (void)table,
        (void)positions;
}

static void embedding_backward(struct device *dev, int batch, int t, int width, struct view dtable,
                               struct view dpositions, const int32_t *tokens, struct view dy)
{
    (void)dev, (void)batch, (void)t, (void)width, (void)dtable, (void)dpositions, (void)tokens,
        (void)dy;
}

static void attention_forward(struct device *dev, const struct attention *p, struct view o,
                              struct view q, struct view k, struct view v, struct view lse)
{
    (void)dev, (void)p, (void)o, (void)q, (void)k, (void)v, (void)lse;
}

static void attention_backward(struct device *dev, const struct attention *p, struct view dq,
                               struct view dk, struct view dv, struct view dy, struct view o,
                               struct view q, struct view k, struct view v, struct view lse)
{
    (void)dev, (void)p, (void)dq, (void)dk, (void)dv, (void)dy, (void)o, (void)q, (void)k, (void)v,
        (void)lse;
}

static void cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                          const int32_t *targets, float factor, float *losses, uint8_t *hits)
{
    (void)dev, (void)vocab, (void)logits, (void)targets, (void)factor;
    memset(losses, 0, (size_t)rows * sizeof *losses);
    if (hits)
        memset(hits, 0, (size_t)rows * sizeof *hits);
}

static void adamw(struct device *dev, const struct adamw *p, struct view x, struct view theta,
                  struct view g, struct view m, struct view v, size_t count)
{
    (void)dev, (void)p, (void)x, (void)theta, (void)g, (void)m, (void)v, (void)count;
}

static void sgd(struct device *dev, const struct sgd *p, struct view x, struct view theta,
                struct view g, struct view m, size_t count)
{
    (void)dev, (void)p, (void)x, (void)theta, (void)g, (void)m, (void)count;
}

static void co2(struct device *dev, const struct co2_step *p, struct view x, struct view now,
                struct view m, struct view sent, struct view d, size_t count)
{
    (void)dev, (void)p, (void)x, (void)now, (void)m, (void)sent, (void)d, (void)count;
}

const struct ops ops_null = {
    .name = "null",
    .write = write_nothing,
    .read = read_zeros,
    .fill = fill,
    .copy = copy,
    .axpy = axpy,
    .scale = scale,
    .sum_squares = sum_squares,
    .distance = distance,
    .linear_forward = linear_forward,
    .linear_backward_x = linear_backward_x,
    .linear_backward_w = linear_backward_w,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward = rmsnorm_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .rope = rope,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .cross_entropy = cross_entropy,
    .adamw = adamw,
    .sgd = sgd,
    .co2 = co2,
};

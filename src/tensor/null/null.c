/* The null device: buffers that are accounted as real ones but hold nothing, and ops that do
 * nothing. A method runs on it unchanged, so that its time and memory can be known for models that
 * no machine at hand could hold.
 *
 * What reaches host memory is zeros, which is what an untouched buffer holds; an op that returns a
 * number returns 0.
 *
 * One that counts takes the scratch of another table's largest ops. It has the optional ones of
 * that table, and its views are of the memory that they would be in, by which a view that is there
 * is told from one that is not. */
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* what does nothing uses nothing */

struct counting {
    struct ops table;
    struct device like;    /* whose ops are asked what they take */
    struct device counter; /* without memory: what they ask      */
    struct memory aside;   /* like's own                         */
};

static struct counting *counting_of(const struct device *dev)
{
    return (struct counting *)(void *)(uintptr_t)dev->impl;
}

/* There, and not to be looked at. */
static struct view some(const struct device *dev, struct view v)
{
    static const _Alignas(64) char somewhere[64]; /* nor written to */
    return (struct view){(void *)(uintptr_t)somewhere, v.type, counting_of(dev)->like.ops->place};
}

/* In the host's memory one that is not there has the type of view_none; where one that is there has
 * it, too, nothing more is taken for it. */
static struct view some_if(const struct device *dev, struct view v)
{
    return view_there(v) || v.type != view_none.type ? some(dev, v) : view_none;
}

/* A bias's gradient: in the host's memory something is taken for it. */
static struct view some_sums(const struct device *dev, struct view v)
{
    return dev->ops->place == PLACE_HOST ? some(dev, v) : some_if(dev, v);
}

#define V(v) some(dev, v)
#define OPTIONAL(v) some_if(dev, v)
#define SUMS(v) some_sums(dev, v)
#define TAKE(op, ...)                                                                              \
    do {                                                                                           \
        struct counting *c = counting_of(dev);                                                     \
        if (c && c->like.ops->takes && c->like.ops->takes->op)                                     \
            c->like.ops->takes->op(&c->counter, __VA_ARGS__);                                      \
    } while (0)

static void write_nothing(struct device *dev, struct view to, const void *host, size_t count)
{
}

static void read_zeros(struct device *dev, void *host, struct view from, size_t count)
{
    memset(host, 0, count * dtype_size(from.type));
}

static void null_fill(struct device *dev, struct view y, size_t count, float value)
{
}

static void null_copy(struct device *dev, struct view y, struct view x, size_t count)
{
}

static void null_copy_rows(struct device *dev, const struct row_copy *p, struct view y,
                           struct view x)
{
}

static void null_axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
}

static void null_axpby(struct device *dev, struct view y, float b, float a, struct view x,
                       size_t count)
{
}

static void null_scale(struct device *dev, struct view y, float a, size_t count)
{
}

static double null_sum_squares(struct device *dev, const struct pair *p, int n, double *each)
{
    for (int i = 0; i < n && each; i++)
        each[i] = 0;
    return 0;
}

static void null_linear_forward(struct device *dev, const struct linear *p, struct view y,
                                struct view x, struct view w, struct view bias,
                                struct view residual)
{
    TAKE(linear_forward, p, V(y), V(x), V(w), OPTIONAL(bias), OPTIONAL(residual));
}

static void null_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                                   struct view dy, struct view w, bool add)
{
    TAKE(linear_backward_x, p, V(dx), V(dy), V(w), add);
}

static void null_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                                   struct view dbias, struct view dy, struct view x)
{
    TAKE(linear_backward_w, p, V(dw), SUMS(dbias), V(dy), V(x));
}

static void null_linear_backward(struct device *dev, const struct linear *p, struct view dx,
                                 struct view dw, struct view dbias, struct view dy, struct view x,
                                 struct view w, bool add)
{
    TAKE(linear_backward, p, V(dx), V(dw), SUMS(dbias), V(dy), V(x), V(w), add);
}

static void null_linear_loss(struct device *dev, const struct linear *p,
                             const struct linear_loss *l)
{
    const struct linear_loss there = {.x = V(l->x),
                                      .w = V(l->w),
                                      .targets = V(l->targets),
                                      .losses = V(l->losses),
                                      .scale = l->scale,
                                      .dx = OPTIONAL(l->dx),
                                      .dw = OPTIONAL(l->dw)};
    TAKE(linear_loss, p, &there);
}

static void null_gelu_bias_backward(struct device *dev, enum gelu_kind kind, int rows, int width,
                                    struct view dx, struct view dbias, struct view dy,
                                    struct view x)
{
    TAKE(gelu_bias_backward, kind, rows, width, V(dx), V(dbias), V(dy), V(x));
}

static void null_layernorm_forward(struct device *dev, const struct norm *p, struct view y,
                                   struct view x, struct view gain, struct view bias,
                                   struct view stats)
{
}

static void null_layernorm_backward(struct device *dev, const struct norm *p, struct view dx,
                                    struct view dgain, struct view dbias, struct view dy,
                                    struct view x, struct view gain, struct view stats,
                                    struct view from)
{
    TAKE(layernorm_backward, p, V(dx), V(dgain), OPTIONAL(dbias), V(dy), V(x), V(gain), V(stats),
         OPTIONAL(from));
}

static void null_rmsnorm_forward(struct device *dev, const struct norm *p, struct view y,
                                 struct view x, struct view gain, struct view stats)
{
}

static void null_rmsnorm_backward(struct device *dev, const struct norm *p, struct view dx,
                                  struct view dgain, struct view dy, struct view x,
                                  struct view gain, struct view stats, struct view from)
{
    TAKE(rmsnorm_backward, p, V(dx), V(dgain), V(dy), V(x), V(gain), V(stats), OPTIONAL(from));
}

static void null_gelu_forward(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                              size_t count)
{
}

static void null_gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx,
                               struct view dy, struct view x, size_t count)
{
}

static void null_swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                                size_t count)
{
}

static void null_swiglu_backward(struct device *dev, struct view dgate, struct view dup,
                                 struct view dy, struct view gate, struct view up, size_t count)
{
}

static void null_rope(struct device *dev, const struct rope *p, struct view x, bool inverse)
{
}

static void null_embedding_forward(struct device *dev, int batch, int t, int width, int start,
                                   struct view y, struct view tokens, struct view table,
                                   struct view positions)
{
}

static void null_embedding_backward(struct device *dev, int batch, int t, int width,
                                    struct view dtable, struct view dpositions, struct view tokens,
                                    struct view dy)
{
    TAKE(embedding_backward, batch, t, width, OPTIONAL(dtable), OPTIONAL(dpositions), V(tokens),
         V(dy));
}

static void null_attention_forward(struct device *dev, const struct attention *p, struct view o,
                                   struct view q, struct view k, struct view v, struct view lse)
{
    TAKE(attention_forward, p, V(o), V(q), V(k), V(v), V(lse));
}

static void null_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                                    struct view dk, struct view dv, struct view dy, struct view o,
                                    struct view q, struct view k, struct view v, struct view lse)
{
    TAKE(attention_backward, p, V(dq), V(dk), V(dv), V(dy), V(o), V(q), V(k), V(v), V(lse));
}

static void null_conv_forward(struct device *dev, const struct conv *p, struct view y,
                              struct view x, struct view w, struct view bias)
{
    TAKE(conv_forward, p, V(y), V(x), V(w), OPTIONAL(bias));
}

static void null_conv_backward_x(struct device *dev, const struct conv *p, struct view dx,
                                 struct view dy, struct view w, bool add)
{
    TAKE(conv_backward_x, p, V(dx), V(dy), V(w), true); /* so that it fills nothing */
}

static void null_conv_backward_w(struct device *dev, const struct conv *p, struct view dw,
                                 struct view dbias, struct view dy, struct view x)
{
    TAKE(conv_backward_w, p, V(dw), SUMS(dbias), V(dy), V(x));
}

static void null_maxpool_forward(struct device *dev, const struct pooling *p, struct view y,
                                 struct view winner, struct view x)
{
}

static void null_maxpool_backward(struct device *dev, const struct pooling *p, struct view dx,
                                  struct view dy, struct view winner)
{
}

static void null_meanpool_forward(struct device *dev, int rows, int pixels, int channels,
                                  struct view y, struct view x)
{
}

static void null_meanpool_backward(struct device *dev, int rows, int pixels, int channels,
                                   struct view dx, struct view dy)
{
}

static void null_batchnorm_forward(struct device *dev, const struct batchnorm *p, struct view y,
                                   struct view x, struct view gain, struct view bias,
                                   struct view residual, struct view running_mean,
                                   struct view running_variance, struct view stats)
{
    TAKE(batchnorm_forward, p, V(y), V(x), V(gain), V(bias), OPTIONAL(residual),
         OPTIONAL(running_mean), OPTIONAL(running_variance), V(stats));
}

static void null_batchnorm_backward(struct device *dev, const struct batchnorm *p, struct view dx,
                                    struct view dgain, struct view dbias, struct view dresidual,
                                    struct view dy, struct view x, struct view y, struct view gain,
                                    struct view stats)
{
    TAKE(batchnorm_backward, p, V(dx), OPTIONAL(dgain), OPTIONAL(dbias), OPTIONAL(dresidual), V(dy),
         V(x), V(y), V(gain), V(stats));
}

static void null_relu_forward(struct device *dev, struct view y, struct view x, size_t count)
{
}

static void null_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                               size_t count)
{
}

static void null_cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                               struct view targets, float factor, struct view losses,
                               struct view places)
{
}

static void null_adamw(struct device *dev, const struct adamw *p, const struct stretch *s, int n)
{
}

static void null_sgd(struct device *dev, const struct sgd *p, const struct stretch *s, int n)
{
}

static void null_co2(struct device *dev, const struct co2_step *p, struct view x, struct view now,
                     struct view m, struct view sent, struct view d, size_t count)
{
}

static void null_tiles_encode(struct device *dev, const struct tiling *p, struct view basis,
                              struct view m, struct view index, struct view value)
{
}

static void null_tiles_decode(struct device *dev, const struct tiling *p, struct view basis,
                              int senders, struct view y, struct view index, size_t index_step,
                              struct view value, size_t value_step)
{
}

static void null_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
}

static void null_bits_unpack(struct device *dev, int bits, struct view y, struct view x,
                             size_t count)
{
}

static void null_sign(struct device *dev, struct view y, struct view x, size_t count)
{
}

static void null_choose(struct device *dev, const struct shuffle *p, struct view index,
                        size_t count)
{
}

static void null_pick(struct device *dev, const struct picks *p, struct view value, struct view m,
                      struct view index)
{
}

static void null_put(struct device *dev, const struct picks *p, struct view y, float a,
                     struct view value, struct view index)
{
}

static void null_signs_pack(struct device *dev, struct view y, struct view x, size_t count)
{
}

static void null_signs_unpack(struct device *dev, struct view y, struct view x, size_t count,
                              bool add)
{
}

static void counting_close(struct device *dev)
{
    struct counting *c = counting_of(dev);
    device_close(&c->counter);
    device_close(&c->like);
    free(c);
}

#define NULL_TABLE(...)                                                                            \
    {                                                                                              \
        .name = "null", .write = write_nothing, .read = read_zeros, OPS_COMPUTE(null), __VA_ARGS__ \
    }
const struct ops ops_null = NULL_TABLE();
static const struct ops counts = NULL_TABLE(.close = counting_close);

/* `counts` with the optional ops of the other table. */
static struct ops counts_like(const struct ops *like)
{
    struct ops table = counts;
    table.place = like->place;
    table.linear_loss = like->linear_loss ? null_linear_loss : NULL;
    table.linear_backward = like->linear_backward ? null_linear_backward : NULL;
    table.gelu_bias_backward = like->gelu_bias_backward ? null_gelu_bias_backward : NULL;
    return table;
}

enum sotto_status device_open_counting(struct device *dev, const char *name, struct memory *memory,
                                       int threads)
{
    struct counting *c = calloc(1, sizeof *c);
    if (!c)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    const bool absent = device_absent(name);
    enum sotto_status st = absent ? device_open_absent(&c->like, name, &c->aside)
                                  : device_open(&c->like, name, &c->aside, threads);
    const bool own_caches = st == SOTTO_OK && c->like.ops->own_caches; /* not who is behind */
    if (st == SOTTO_OK && c->like.ops->behind) {
        const char *behind = c->like.ops->behind;
        device_close(&c->like);
        st = device_open(&c->like, behind, &c->aside, threads);
    }
    if (st != SOTTO_OK) {
        free(c);
        return st;
    }
    c->counter = (struct device){
        .ops = &ops_null, .memory = memory, .threads = c->like.threads, .impl = c->like.impl};
    c->table = counts_like(c->like.ops);
    if (absent)
        c->table.place = device_place(name);
    c->table.own_caches = own_caches;
    *dev = (struct device){.ops = &c->table, .memory = memory, .threads = threads, .impl = c};
    return SOTTO_OK;
}

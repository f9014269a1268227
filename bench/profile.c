#include "profile.h"

#include "base/clock.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/ops.h"

enum slot {
    FILL,
    COPY,
    AXPY,
    LINEAR_FORWARD,
    LINEAR_BACKWARD_X,
    LINEAR_BACKWARD_W,
    LINEAR_BACKWARD,
    LAYERNORM_FORWARD,
    LAYERNORM_BACKWARD,
    GELU_FORWARD,
    GELU_BACKWARD,
    GELU_BIAS_BACKWARD,
    SWIGLU_FORWARD,
    SWIGLU_BACKWARD,
    RMSNORM_FORWARD,
    RMSNORM_BACKWARD,
    ROPE,
    EMBEDDING_FORWARD,
    EMBEDDING_BACKWARD,
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    CONV_FORWARD,
    CONV_BACKWARD_X,
    CONV_BACKWARD_W,
    BATCHNORM_FORWARD,
    BATCHNORM_BACKWARD,
    CROSS_ENTROPY,
    LINEAR_LOSS,
    ADAMW,
    SLOTS
};
static const char *const slot_name[SLOTS] = {
    "fill",
    "copy",
    "axpy",
    "linear_forward",
    "linear_backward_x",
    "linear_backward_w",
    "linear_backward",
    "layernorm_forward",
    "layernorm_backward",
    "gelu_forward",
    "gelu_backward",
    "gelu_bias_backward",
    "swiglu_forward",
    "swiglu_backward",
    "rmsnorm_forward",
    "rmsnorm_backward",
    "rope",
    "embedding_forward",
    "embedding_backward",
    "attention_forward",
    "attention_backward",
    "conv_forward",
    "conv_backward_x",
    "conv_backward_w",
    "batchnorm_forward",
    "batchnorm_backward",
    "cross_entropy",
    "linear_loss",
    "adamw",
};

static struct ops timed;
static const struct ops *real;
static double seconds[SLOTS], flops[SLOTS], started;

/* Capacity for ops of a device with a clock of its own that were issued but not read yet. */
enum { ISSUED = 24 };
static struct {
    int slot;
    uint64_t begin, end;
} issued[ISSUED];
static int n_issued;

static void read_issued(struct device *dev)
{
    for (int i = 0; i < n_issued; i++)
        seconds[issued[i].slot] += real->elapsed(dev, issued[i].begin, issued[i].end);
    n_issued = 0;
}

static void note_issued(struct device *dev, int slot, uint64_t begin)
{
    issued[n_issued].slot = slot;
    issued[n_issued].begin = begin;
    issued[n_issued++].end = real->mark(dev);
    if (n_issued == ISSUED)
        read_issued(dev);
}

#define TIMED(slot, work, call)                                                                    \
    do {                                                                                           \
        const uint64_t mark = real->elapsed ? real->mark(d) : 0;                                   \
        double begin = clock_now(&clock_real);                                                     \
        call;                                                                                      \
        if (real->elapsed)                                                                         \
            note_issued(d, slot, mark);                                                            \
        else                                                                                       \
            seconds[slot] += clock_now(&clock_real) - begin;                                       \
        flops[slot] += (work);                                                                     \
    } while (0)

static void fill(struct device *d, struct view y, size_t n, float value)
{
    TIMED(FILL, 0, real->fill(d, y, n, value));
}

static void copy(struct device *d, struct view y, struct view x, size_t n)
{
    TIMED(COPY, 0, real->copy(d, y, x, n));
}

static void axpy(struct device *d, struct view y, float a, struct view x, size_t n)
{
    TIMED(AXPY, 0, real->axpy(d, y, a, x, n));
}

static double product(const struct linear *p)
{
    return 2.0 * p->rows * p->in * p->out;
}

static void linear_forward(struct device *d, const struct linear *p, struct view y, struct view x,
                           struct view w, struct view bias, struct view residual)
{
    TIMED(LINEAR_FORWARD, product(p), real->linear_forward(d, p, y, x, w, bias, residual));
}

static void linear_backward_x(struct device *d, const struct linear *p, struct view dx,
                              struct view dy, struct view w, bool add)
{
    TIMED(LINEAR_BACKWARD_X, product(p), real->linear_backward_x(d, p, dx, dy, w, add));
}

static void linear_backward_w(struct device *d, const struct linear *p, struct view dw,
                              struct view db, struct view dy, struct view x)
{
    TIMED(LINEAR_BACKWARD_W, product(p), real->linear_backward_w(d, p, dw, db, dy, x));
}

static void linear_backward(struct device *d, const struct linear *p, struct view dx,
                            struct view dw, struct view db, struct view dy, struct view x,
                            struct view w, bool add)
{
    TIMED(LINEAR_BACKWARD, 2 * product(p), real->linear_backward(d, p, dx, dw, db, dy, x, w, add));
}

static void layernorm_forward(struct device *d, const struct norm *p, struct view y, struct view x,
                              struct view gain, struct view bias, struct view stats)
{
    TIMED(LAYERNORM_FORWARD, 0, real->layernorm_forward(d, p, y, x, gain, bias, stats));
}

static void layernorm_backward(struct device *d, const struct norm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dy, struct view x,
                               struct view gain, struct view stats, struct view from)
{
    TIMED(LAYERNORM_BACKWARD, 0,
          real->layernorm_backward(d, p, dx, dgain, dbias, dy, x, gain, stats, from));
}

static void gelu_forward(struct device *d, enum gelu_kind kind, struct view y, struct view x,
                         size_t n)
{
    TIMED(GELU_FORWARD, 0, real->gelu_forward(d, kind, y, x, n));
}

static void gelu_backward(struct device *d, enum gelu_kind kind, struct view dx, struct view dy,
                          struct view x, size_t n)
{
    TIMED(GELU_BACKWARD, 0, real->gelu_backward(d, kind, dx, dy, x, n));
}

static void embedding_forward(struct device *d, int batch, int t, int width, int start,
                              struct view y, struct view tokens, struct view tab,
                              struct view positions)
{
    TIMED(EMBEDDING_FORWARD, 0,
          real->embedding_forward(d, batch, t, width, start, y, tokens, tab, positions));
}

static void embedding_backward(struct device *d, int batch, int t, int width, struct view dtable,
                               struct view dpositions, struct view tokens, struct view dy)
{
    TIMED(EMBEDDING_BACKWARD, 0,
          real->embedding_backward(d, batch, t, width, dtable, dpositions, tokens, dy));
}

static double scores(const struct attention *p)
{
    return 2.0 * p->batch * p->heads * p->width * p->t_q * (p->whole ? p->t_q : (p->t_q + 1) / 2.0);
}

static void attention_forward(struct device *d, const struct attention *p, struct view o,
                              struct view q, struct view k, struct view v, struct view lse)
{
    TIMED(ATTENTION_FORWARD, 2 * scores(p), real->attention_forward(d, p, o, q, k, v, lse));
}

static void attention_backward(struct device *d, const struct attention *p, struct view dq,
                               struct view dk, struct view dv, struct view dy, struct view o,
                               struct view q, struct view k, struct view v, struct view lse)
{
    TIMED(ATTENTION_BACKWARD, 5 * scores(p),
          real->attention_backward(d, p, dq, dk, dv, dy, o, q, k, v, lse));
}

static double taps(const struct conv *p)
{
    const double windows = (double)window_count(p->h, p->kernel, p->stride, p->pad) *
                           window_count(p->w, p->kernel, p->stride, p->pad);
    return 2 * windows * p->rows * p->in * p->out * p->kernel * p->kernel;
}

static void conv_forward(struct device *d, const struct conv *p, struct view y, struct view x,
                         struct view w, struct view b)
{
    TIMED(CONV_FORWARD, taps(p), real->conv_forward(d, p, y, x, w, b));
}

static void conv_backward_x(struct device *d, const struct conv *p, struct view dx, struct view dy,
                            struct view w, bool add)
{
    TIMED(CONV_BACKWARD_X, taps(p), real->conv_backward_x(d, p, dx, dy, w, add));
}

static void conv_backward_w(struct device *d, const struct conv *p, struct view dw, struct view db,
                            struct view dy, struct view x)
{
    TIMED(CONV_BACKWARD_W, taps(p), real->conv_backward_w(d, p, dw, db, dy, x));
}

static void batchnorm_forward(struct device *d, const struct batchnorm *p, struct view y,
                              struct view x, struct view gain, struct view bias,
                              struct view residual, struct view mean, struct view variance,
                              struct view stats)
{
    TIMED(BATCHNORM_FORWARD, 0,
          real->batchnorm_forward(d, p, y, x, gain, bias, residual, mean, variance, stats));
}

static void batchnorm_backward(struct device *d, const struct batchnorm *p, struct view dx,
                               struct view dgain, struct view dbias, struct view dresidual,
                               struct view dy, struct view x, struct view y, struct view gain,
                               struct view stats)
{
    TIMED(BATCHNORM_BACKWARD, 0,
          real->batchnorm_backward(d, p, dx, dgain, dbias, dresidual, dy, x, y, gain, stats));
}

static void cross_entropy(struct device *d, int rows, int vocab, struct view logits,
                          struct view targets, float scale, struct view losses, struct view places)
{
    TIMED(CROSS_ENTROPY, 0,
          real->cross_entropy(d, rows, vocab, logits, targets, scale, losses, places));
}

static void linear_loss(struct device *d, const struct linear *p, const struct linear_loss *l)
{
    TIMED(LINEAR_LOSS, (l->scale ? 3 : 1) * product(p), real->linear_loss(d, p, l));
}

static void gelu_bias_backward(struct device *d, enum gelu_kind kind, int rows, int width,
                               struct view dx, struct view dbias, struct view dy, struct view x)
{
    TIMED(GELU_BIAS_BACKWARD, 0, real->gelu_bias_backward(d, kind, rows, width, dx, dbias, dy, x));
}

static void swiglu_forward(struct device *d, struct view y, struct view gate, struct view up,
                           size_t count)
{
    TIMED(SWIGLU_FORWARD, 0, real->swiglu_forward(d, y, gate, up, count));
}

static void swiglu_backward(struct device *d, struct view dgate, struct view dup, struct view dy,
                            struct view gate, struct view up, size_t count)
{
    TIMED(SWIGLU_BACKWARD, 0, real->swiglu_backward(d, dgate, dup, dy, gate, up, count));
}

static void rmsnorm_forward(struct device *d, const struct norm *p, struct view y, struct view x,
                            struct view gain, struct view stats)
{
    TIMED(RMSNORM_FORWARD, 0, real->rmsnorm_forward(d, p, y, x, gain, stats));
}

static void rmsnorm_backward(struct device *d, const struct norm *p, struct view dx,
                             struct view dgain, struct view dy, struct view x, struct view gain,
                             struct view stats, struct view from)
{
    TIMED(RMSNORM_BACKWARD, 0, real->rmsnorm_backward(d, p, dx, dgain, dy, x, gain, stats, from));
}

static void rope(struct device *d, const struct rope *p, struct view x, bool inverse)
{
    TIMED(ROPE, 0, real->rope(d, p, x, inverse));
}

static void adamw(struct device *d, const struct adamw *p, const struct stretch *s, int n)
{
    TIMED(ADAMW, 0, real->adamw(d, p, s, n));
}

void profile_start(struct device *dev)
{
    real = dev->ops;
    timed = *real;
    timed.fill = fill;
    timed.copy = copy;
    timed.axpy = axpy;
    timed.linear_forward = linear_forward;
    timed.linear_backward_x = linear_backward_x;
    timed.linear_backward_w = linear_backward_w;
    timed.layernorm_forward = layernorm_forward;
    timed.layernorm_backward = layernorm_backward;
    timed.gelu_forward = gelu_forward;
    timed.gelu_backward = gelu_backward;
    timed.embedding_forward = embedding_forward;
    timed.embedding_backward = embedding_backward;
    timed.attention_forward = attention_forward;
    timed.attention_backward = attention_backward;
    timed.conv_forward = conv_forward;
    timed.conv_backward_x = conv_backward_x;
    timed.conv_backward_w = conv_backward_w;
    timed.batchnorm_forward = batchnorm_forward;
    timed.batchnorm_backward = batchnorm_backward;
    timed.cross_entropy = cross_entropy;
    if (real->linear_backward) /* NULL: two products one after the other, each timed */
        timed.linear_backward = cpu_gemm_takes_both(dev) ? linear_backward : NULL;
    if (real->linear_loss)
        timed.linear_loss = linear_loss;
    if (real->gelu_bias_backward)
        timed.gelu_bias_backward = gelu_bias_backward;
    timed.swiglu_forward = swiglu_forward;
    timed.swiglu_backward = swiglu_backward;
    timed.rmsnorm_forward = rmsnorm_forward;
    timed.rmsnorm_backward = rmsnorm_backward;
    timed.rope = rope;
    timed.adamw = adamw;
    dev->ops = &timed;
}

void profile_reset(struct device *dev)
{
    read_issued(dev);
    for (int i = 0; i < SLOTS; i++)
        seconds[i] = flops[i] = 0;
    started = clock_now(&clock_real);
}

void profile_print(struct device *dev, int steps, FILE *out)
{
    read_issued(dev);
    double total = clock_now(&clock_real) - started, known = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (seconds[i] == 0)
            continue;
        known += seconds[i];
        fprintf(out, "%-20s %8.2f ms  %5.1f %%", slot_name[i], 1e3 * seconds[i] / steps,
                100 * seconds[i] / total);
        if (flops[i] > 0)
            fprintf(out, "  %6.1f GFLOP/s", flops[i] / seconds[i] / 1e9);
        fputc('\n', out);
    }
    fprintf(out, "%-20s %8.2f ms  %5.1f %%\n", "the rest", 1e3 * (total - known) / steps,
            100 * (total - known) / total);
}

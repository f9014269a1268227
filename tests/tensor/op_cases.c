#include "tensor/op_cases.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { TOKENS_MAX = 4096 };

static bool has(const struct op_case *c, unsigned flag)
{
    return (c->flags & flag) != 0;
}

/* Makes the tokens or targets of a case by a fixed function that repeats some tokens. */
static void make_tokens(int32_t *tokens, size_t count, int vocab, bool ignore)
{
    assert(count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)(rng_at(7, 7, i) % (uint64_t)vocab);
        if (ignore && i % 3 == 1)
            tokens[i] = -1;
    }
}

/* Returns device memory with these numbers; the caller frees the buffer. */
static struct buffer upload(struct device *dev, enum dtype type, const void *data, size_t count)
{
    struct buffer out;
    if (buffer_init(&out, dev, type, count, MEMORY_SCRATCH) != SOTTO_OK)
        abort();
    dev->ops->write(dev, out.view, data, count);
    return out;
}

static struct operand normal(const char *name, enum role role, enum kind kind, size_t count,
                             float mean, float spread)
{
    return (struct operand){name, role, kind, count, -1, false, mean, spread, 0, 0};
}

static struct operand operand(const char *name, enum role role, enum kind kind, size_t count)
{
    return normal(name, role, kind, count, 0, 1);
}

static struct operand gradient(const char *name, enum kind kind, size_t count, int of, bool adds)
{
    return (struct operand){name, ROLE_GRAD, kind, count, of, adds, 0, 1, 0, 0};
}

/* flat: d = count */
static int flat_operands(const struct op_case *c, struct operand *out)
{
    size_t n = (size_t)c->d[0];
    out[0] = operand("x", ROLE_IN, KIND_WEIGHT, n);
    out[1] = operand("filled", ROLE_OUT, KIND_ACTIVATION, n);
    out[2] = operand("copied", ROLE_OUT, KIND_ACTIVATION, n);
    out[3] = operand("added", ROLE_SAVED, KIND_ACTIVATION, n);
    out[4] = operand("scaled", ROLE_SAVED, KIND_GRADIENT, n);
    out[5] = operand("sum", ROLE_OUT, KIND_F32, 1);
    out[6] = operand("y", ROLE_IN, KIND_ACTIVATION, n);
    out[7] = operand("distance", ROLE_OUT, KIND_F32, 1);
    out[8] = operand("mixed", ROLE_SAVED, KIND_GRADIENT, n);
    return 9;
}

static void flat_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    (void)pass;
    size_t n = (size_t)c->d[0];
    dev->ops->fill(dev, v[1], n, 1.5f);
    dev->ops->copy(dev, v[2], v[0], n);
    dev->ops->axpy(dev, v[3], -0.7f, v[0], n);
    dev->ops->scale(dev, v[4], 0.3f, n);
    dev->ops->axpby(dev, v[8], 0.3f, -0.7f, v[0], n);
    const struct vector_pair p[] = {{.x = v[0], .count = n}, {v[0], v[6], n}};
    double each[2];
    const double sum = dev->ops->sum_squares(dev, p, 2, each);
    dev->ops->write(dev, v[5], &(float){(float)each[0]}, 1);
    dev->ops->write(dev, v[7], &(float){(float)(sum - each[0])}, 1);
}

/* rows: d = batch, rows, width, gap; each sequence of y has two more rows of space. */
static int rows_operands(const struct op_case *c, struct operand *out)
{
    const size_t batch = (size_t)c->d[0], rows = (size_t)c->d[1], width = (size_t)c->d[2];
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, batch * rows * (width + (size_t)c->d[3]));
    out[1] = operand("y", ROLE_SAVED, KIND_WEIGHT, batch * (rows + 2) * width);
    return 2;
}

static void rows_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    (void)pass;
    const size_t rows = (size_t)c->d[1], width = (size_t)c->d[2], x = width + (size_t)c->d[3];
    const struct row_copy p = {c->d[0], c->d[1], c->d[2], width, x, (rows + 2) * width, rows * x};
    dev->ops->copy_rows(dev, &p, v[1], v[0]);
}

/* linear: d = rows, in, out */
static int linear_operands(const struct op_case *c, struct operand *out)
{
    size_t rows = (size_t)c->d[0], in = (size_t)c->d[1], width = (size_t)c->d[2];
    bool residual = has(c, CASE_RESIDUAL), bias = has(c, CASE_BIAS);
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, rows * in);
    out[1] = operand("w", ROLE_IN, KIND_WEIGHT, in * width);
    out[2] = operand("bias", ROLE_IN, KIND_WEIGHT, bias ? width : 0);
    out[3] = operand("residual", ROLE_IN, KIND_ACTIVATION, residual ? rows * width : 0);
    out[4] = operand("y", ROLE_OUT, KIND_ACTIVATION, rows * width);
    out[5] = operand("dy", ROLE_DY, KIND_ACTIVATION, rows * width);
    out[6] = gradient("dx", KIND_ACTIVATION, rows * in, 0, has(c, CASE_ADD));
    out[7] = gradient("dw", KIND_GRADIENT, in * width, 1, !has(c, CASE_FRESH));
    out[8] = gradient("dbias", KIND_GRADIENT, bias ? width : 0, 2, true);
    return 9;
}

static void linear_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    struct linear p = {c->d[0],
                       c->d[1],
                       c->d[2],
                       has(c, CASE_IN_OUT) ? LINEAR_IN_OUT : LINEAR_OUT_IN,
                       v[1].type == DTYPE_BF16,
                       has(c, CASE_FRESH)};
    if (pass == 0 && has(c, CASE_ALIAS)) {
        dev->ops->copy(dev, v[4], v[3], (size_t)p.rows * (size_t)p.out);
        dev->ops->linear_forward(dev, &p, v[4], v[0], v[1], v[2], v[4]);
    } else if (pass == 0) {
        dev->ops->linear_forward(dev, &p, v[4], v[0], v[1], v[2], v[3]);
    } else if (has(c, CASE_BOTH) && dev->ops->linear_backward) {
        if (pass == 2)
            dev->ops->linear_backward(dev, &p, v[6], v[7], v[8], v[5], v[0], v[1],
                                      has(c, CASE_ADD));
    } else {
        if (pass == (has(c, CASE_BOTH) ? 2 : 1))
            dev->ops->linear_backward_x(dev, &p, v[6], v[5], v[1], has(c, CASE_ADD));
        if (pass == 2)
            dev->ops->linear_backward_w(dev, &p, v[7], v[8], v[5], v[0]);
    }
}

/* layernorm, rmsnorm: d = rows, width */
static int norm_operands(const struct op_case *c, struct operand *out)
{
    size_t rows = (size_t)c->d[0], width = (size_t)c->d[1];
    size_t bias = has(c, CASE_BIAS) ? width : 0, dgain = has(c, CASE_SPARE) ? 0 : width;
    out[0] = normal("x", ROLE_IN, KIND_ACTIVATION, rows * width, 0.5f, 1);
    out[1] = normal("gain", ROLE_IN, KIND_WEIGHT, width, 1, 0.3f);
    out[2] = operand("bias", ROLE_IN, KIND_WEIGHT, bias);
    out[3] = operand("y", ROLE_OUT, KIND_ACTIVATION, rows * width);
    out[4] = operand("stats", ROLE_SAVED, KIND_F32, rows * 2);
    out[5] = operand("dy", ROLE_DY, KIND_ACTIVATION, rows * width);
    out[6] = gradient("dx", KIND_ACTIVATION, rows * width, 0, has(c, CASE_ADD));
    out[7] = gradient("dgain", KIND_GRADIENT, dgain, 1, true);
    out[8] = gradient("dbias", KIND_GRADIENT, dgain ? bias : 0, 2, true);
    out[9] = operand("from", ROLE_SAVED, KIND_ACTIVATION, has(c, CASE_RESIDUAL) ? rows * width : 0);
    return 10;
}

static void norm_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    struct norm p = {c->d[0], c->d[1], 1e-3f};
    const size_t count = (size_t)p.rows * (size_t)p.width;
    bool layer = c->op[0] == 'l';
    struct view dy = v[5], from = has(c, CASE_ADD) ? v[6] : view_none;
    if (pass == 1 && has(c, CASE_ALIAS)) {
        dev->ops->copy(dev, v[6], dy, count);
        dy = v[6];
    }
    if (pass == 1 && has(c, CASE_RESIDUAL)) { /* the gradient to add is a separate operand */
        from = v[9];
        dev->ops->copy(dev, from, v[6], count);
        dev->ops->fill(dev, v[6], count, 7);
    }
    if (pass == 0 && layer)
        dev->ops->layernorm_forward(dev, &p, v[3], v[0], v[1], v[2], v[4]);
    else if (pass == 0)
        dev->ops->rmsnorm_forward(dev, &p, v[3], v[0], v[1], v[4]);
    else if (layer)
        dev->ops->layernorm_backward(dev, &p, v[6], v[7], v[8], dy, v[0], v[1], v[4], from);
    else
        dev->ops->rmsnorm_backward(dev, &p, v[6], v[7], dy, v[0], v[1], v[4], from);
}

/* gelu: d = count */
static int gelu_operands(const struct op_case *c, struct operand *out)
{
    size_t n = (size_t)c->d[0];
    out[0] = normal("x", ROLE_IN, KIND_ACTIVATION, n, 0, 2);
    out[1] = operand("y", ROLE_OUT, KIND_ACTIVATION, n);
    out[2] = operand("dy", ROLE_DY, KIND_ACTIVATION, n);
    out[3] = gradient("dx", KIND_ACTIVATION, n, 0, false);
    return 4;
}

static void gelu_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    enum gelu_kind kind = has(c, CASE_EXACT) ? GELU_EXACT : GELU_TANH;
    size_t n = (size_t)c->d[0];
    struct view dy = v[2];
    if (pass == 1 && has(c, CASE_ALIAS)) {
        dev->ops->copy(dev, v[3], dy, n);
        dy = v[3];
    }
    if (pass == 0)
        dev->ops->gelu_forward(dev, kind, v[1], v[0], n);
    else
        dev->ops->gelu_backward(dev, kind, v[3], dy, v[0], n);
}

/* swiglu: d = count, which of dgate (1) and dup (2) is dy */
static int swiglu_operands(const struct op_case *c, struct operand *out)
{
    size_t n = (size_t)c->d[0];
    out[0] = normal("gate", ROLE_IN, KIND_ACTIVATION, n, 0, 2);
    out[1] = operand("up", ROLE_IN, KIND_ACTIVATION, n);
    out[2] = operand("y", ROLE_OUT, KIND_ACTIVATION, n);
    out[3] = operand("dy", ROLE_DY, KIND_ACTIVATION, n);
    out[4] = gradient("dgate", KIND_ACTIVATION, n, 0, false);
    out[5] = gradient("dup", KIND_ACTIVATION, n, 1, false);
    return 6;
}

static void swiglu_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    size_t n = (size_t)c->d[0];
    struct view dy = v[3];
    if (pass == 1 && c->d[1]) {
        dev->ops->copy(dev, v[3 + c->d[1]], dy, n);
        dy = v[3 + c->d[1]];
    }
    if (pass == 0)
        dev->ops->swiglu_forward(dev, v[2], v[0], v[1], n);
    else
        dev->ops->swiglu_backward(dev, v[4], v[5], dy, v[0], v[1], n);
}

/* rope: d = batch, t, heads, width, stride beyond heads * width, start */
static size_t rope_count(const struct op_case *c)
{
    return (size_t)c->d[0] * (size_t)c->d[1] * (size_t)(c->d[2] * c->d[3] + c->d[4]);
}

static int rope_operands(const struct op_case *c, struct operand *out)
{
    size_t n = rope_count(c);
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, n);
    out[1] = operand("y", ROLE_OUT, KIND_ACTIVATION, n);
    out[2] = operand("dy", ROLE_DY, KIND_ACTIVATION, n);
    out[3] = gradient("dx", KIND_ACTIVATION, n, 0, false);
    return 4;
}

static void rope_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    float frequencies[128];
    int width = c->d[3];
    for (int i = 0; i < width / 2; i++)
        frequencies[i] = powf(10000.0f, -2.0f * (float)i / (float)width);
    struct rope p = {c->d[0], c->d[1],    c->d[2], width, c->d[2] * width + c->d[4],
                     c->d[5], frequencies};
    struct view to = v[pass ? 3 : 1], from = v[pass ? 2 : 0];
    if (!has(c, CASE_IN_PLACE))
        dev->ops->copy(dev, to, from, rope_count(c));
    dev->ops->rope(dev, &p, to, pass == 1);
    if (device_check(dev) != SOTTO_OK) /* the device has read the frequencies */
        abort();
}

/* embedding: d = batch, t, width, vocab, start */
static int embedding_operands(const struct op_case *c, struct operand *out)
{
    size_t rows = (size_t)c->d[0] * (size_t)c->d[1], w = (size_t)c->d[2];
    size_t positions = has(c, CASE_SPARE) ? 0 : (size_t)(c->d[1] + c->d[4]) * w;
    size_t dpositions = c->d[4] ? 0 : positions;
    out[0] = operand("table", ROLE_IN, KIND_WEIGHT, (size_t)c->d[3] * w);
    out[1] = operand("positions", ROLE_IN, KIND_WEIGHT, positions);
    out[2] = operand("y", ROLE_OUT, KIND_ACTIVATION, rows * w);
    out[3] = operand("dy", ROLE_DY, KIND_ACTIVATION, rows * w);
    out[4] = gradient("dtable", KIND_GRADIENT, (size_t)c->d[3] * w, 0, true);
    out[5] = gradient("dpositions", KIND_GRADIENT, dpositions, 1, true);
    return 6;
}

static void embedding_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    int32_t tokens[TOKENS_MAX];
    const size_t count = (size_t)c->d[0] * (size_t)c->d[1];
    make_tokens(tokens, count, c->d[3], false);
    struct buffer ids = upload(dev, DTYPE_I32, tokens, count);
    if (pass == 0)
        dev->ops->embedding_forward(dev, c->d[0], c->d[1], c->d[2], c->d[4], v[2], ids.view, v[0],
                                    v[1]);
    else
        dev->ops->embedding_backward(dev, c->d[0], c->d[1], c->d[2], v[4], v[5], ids.view, v[3]);
    (void)device_check(dev);
    buffer_free(&ids);
}

/* attention: d = batch, t_q, t_k, heads, kv_heads, width, window, keys allocated beyond t_k. FUSED:
 * one operand holds q, k and v as neighbours, and another holds their gradients. */
static struct attention attention_shape(const struct op_case *c)
{
    struct attention p = {.batch = c->d[0],
                          .t_q = c->d[1],
                          .t_k = c->d[2],
                          .heads = c->d[3],
                          .kv_heads = c->d[4],
                          .width = c->d[5],
                          .window = c->d[6],
                          .whole = has(c, CASE_WHOLE),
                          .half = has(c, CASE_HALF),
                          .scale = 1 / sqrtf((float)c->d[5])};
    int q = p.heads * p.width, kv = p.kv_heads * p.width;
    bool fused = has(c, CASE_FUSED);
    p.q_stride = fused ? q + 2 * kv : q;
    p.k_stride = p.v_stride = fused ? q + 2 * kv : kv;
    p.o_stride = q;
    p.kv_batch_stride = c->d[7] ? (size_t)(p.t_k + c->d[7]) * (size_t)p.k_stride : 0;
    return p;
}

static int attention_operands(const struct op_case *c, struct operand *out)
{
    struct attention p = attention_shape(c);
    bool fused = has(c, CASE_FUSED), square = p.t_q == p.t_k;
    size_t q = (size_t)p.batch * (size_t)p.t_q * (size_t)p.q_stride;
    size_t kv = fused ? 0 : (size_t)p.batch * (size_t)(p.t_k + c->d[7]) * (size_t)p.k_stride;
    size_t o = (size_t)p.batch * (size_t)p.t_q * (size_t)p.o_stride;
    size_t lse = (size_t)p.batch * (size_t)p.heads * (size_t)p.t_q;
    bool whole = square && !c->d[7]; /* spare keys have no gradient to compare */
    out[0] = operand("q", ROLE_IN, KIND_ACTIVATION, q);
    out[1] = operand("k", ROLE_IN, KIND_ACTIVATION, kv);
    out[2] = operand("v", ROLE_IN, KIND_ACTIVATION, kv);
    out[3] = operand("o", ROLE_OUT, KIND_ACTIVATION, o);
    out[4] = operand("lse", ROLE_SAVED, KIND_F32, lse);
    out[5] = operand("dy", ROLE_DY, KIND_ACTIVATION, o);
    out[6] = gradient("dq", KIND_ACTIVATION, square ? q : 0, 0, false);
    out[7] = gradient("dk", KIND_ACTIVATION, square ? kv : 0, whole ? 1 : -1, false);
    out[8] = gradient("dv", KIND_ACTIVATION, square ? kv : 0, whole ? 2 : -1, false);
    return 9;
}

static void attention_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    struct attention p = attention_shape(c);
    size_t q = (size_t)(p.heads * p.width), kv = (size_t)(p.kv_heads * p.width);
    bool fused = has(c, CASE_FUSED);
    struct view k = fused ? view_at(v[0], q) : v[1], dk = fused ? view_at(v[6], q) : v[7];
    struct view vv = fused ? view_at(v[0], q + kv) : v[2],
                dv = fused ? view_at(v[6], q + kv) : v[8];
    if (pass == 0)
        dev->ops->attention_forward(dev, &p, v[3], v[0], k, vv, v[4]);
    else if (p.t_q == p.t_k)
        dev->ops->attention_backward(dev, &p, v[6], dk, dv, v[5], v[3], v[0], k, vv, v[4]);
}

/* cross_entropy: d = rows, vocab. Logits are rounded to a coarse grid so that ties occur. */
static int loss_operands(const struct op_case *c, struct operand *out)
{
    size_t rows = (size_t)c->d[0], n = rows * (size_t)c->d[1];
    out[0] = normal("logits", ROLE_IN, KIND_ACTIVATION, n, 0, 2);
    out[1] = operand("losses", ROLE_OUT, KIND_F32, rows);
    out[2] = operand("places", ROLE_SAVED, KIND_F32, rows);
    out[3] = normal("dy", ROLE_DY, KIND_F32, rows, 0.25f, 0);
    out[4] = gradient("dlogits", KIND_ACTIVATION, n, 0, false);
    return 5;
}

static void loss_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    int32_t targets[TOKENS_MAX];
    uint8_t places[TOKENS_MAX] = {0};
    float counts[TOKENS_MAX];
    size_t rows = (size_t)c->d[0], n = rows * (size_t)c->d[1];
    make_tokens(targets, rows, c->d[1], has(c, CASE_IGNORE));
    struct view logits = v[pass ? 4 : 0];
    if (pass && !has(c, CASE_IN_PLACE))
        dev->ops->copy(dev, logits, v[0], n);
    bool counted = !has(c, CASE_SPARE);
    struct buffer ids = upload(dev, DTYPE_I32, targets, rows);
    struct buffer marks = upload(dev, DTYPE_U8, places, rows);
    dev->ops->cross_entropy(dev, c->d[0], c->d[1], logits, ids.view, pass ? 0.25f : 0, v[1],
                            counted ? marks.view : view_none);
    dev->ops->read(dev, places, marks.view, rows);
    for (size_t r = 0; r < rows; r++)
        counts[r] = places[r];
    if (counted)
        dev->ops->write(dev, v[2], counts, rows);
    buffer_free(&ids);
    buffer_free(&marks);
}

/* Two stretches with different decay; v: x, theta, g, m and, for adamw, v. */
static void two_stretches(struct stretch *s, const struct view *v, size_t count)
{
    const size_t first = count / 3;
    s[0] = (struct stretch){v[0], v[1], v[2], v[3], v[4], first, 0.1f};
    s[1] = (struct stretch){view_at(v[0], first),
                            view_at(v[1], first),
                            view_at(v[2], first),
                            view_at(v[3], first),
                            view_at(v[4], first),
                            count - first,
                            0};
}

/* adamw: d = count */
static int adamw_operands(const struct op_case *c, struct operand *out)
{
    size_t n = (size_t)c->d[0], theta = has(c, CASE_THETA | CASE_PEEK) ? n : 0;
    out[0] = operand("x", ROLE_IN, KIND_F32, n);
    out[1] = operand("theta", ROLE_OUT, KIND_WEIGHT, theta);
    out[2] = operand("g", ROLE_IN, KIND_GRADIENT, n);
    out[3] = normal("m", ROLE_IN, KIND_F32, n, 0, 0.1f);
    out[4] = normal("v", ROLE_IN, KIND_F32, n, 1, 0.1f);
    return 5;
}

static void adamw_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    (void)pass;
    struct adamw p = {.lr = 0.01f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .correct1 = 0.19f,
                      .correct2 = 0.0975f,
                      .grad_scale = 0.5f,
                      .peek = has(c, CASE_PEEK)};
    struct stretch s[2];
    two_stretches(s, v, (size_t)c->d[0]);
    dev->ops->adamw(dev, &p, s, 2);
}

/* sgd: d = count; SPARE: no momentum */
static int sgd_operands(const struct op_case *c, struct operand *out)
{
    size_t n = (size_t)c->d[0], theta = has(c, CASE_THETA | CASE_PEEK) ? n : 0;
    out[0] = operand("x", ROLE_IN, KIND_F32, n);
    out[1] = operand("theta", ROLE_OUT, KIND_WEIGHT, theta);
    out[2] = operand("g", ROLE_IN, KIND_GRADIENT, n);
    out[3] = operand("m", ROLE_IN, KIND_F32, has(c, CASE_SPARE) ? 0 : n);
    return 4;
}

static void sgd_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    (void)pass;
    struct sgd p = {.lr = 0.01f,
                    .momentum = has(c, CASE_SPARE) ? 0 : 0.9f,
                    .nesterov = has(c, CASE_NESTEROV),
                    .peek = has(c, CASE_PEEK),
                    .first = has(c, CASE_FIRST),
                    .grad_scale = 0.5f};
    struct stretch s[2];
    two_stretches(s, v, (size_t)c->d[0]);
    dev->ops->sgd(dev, &p, s, 2);
}

/* conv: d = rows, h, w, in, out, kernel, stride, pad */
static struct conv conv_shape(const struct op_case *c, const struct view *w)
{
    const int *d = c->d;
    return (struct conv){d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], w->type == DTYPE_BF16};
}

static int conv_operands(const struct op_case *c, struct operand *out)
{
    const int *d = c->d;
    const size_t pixels = (size_t)(d[0] * d[1] * d[2]), in = (size_t)d[3], width = (size_t)d[4];
    const size_t windows = (size_t)(d[0] * window_count(d[1], d[5], d[6], d[7])) *
                           (size_t)window_count(d[2], d[5], d[6], d[7]);
    const size_t weight = width * (size_t)(d[5] * d[5]) * in;
    const size_t bias = has(c, CASE_BIAS) ? width : 0;
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, pixels * in);
    out[1] = operand("w", ROLE_IN, KIND_WEIGHT, weight);
    out[2] = operand("bias", ROLE_IN, KIND_WEIGHT, bias);
    out[3] = operand("y", ROLE_OUT, KIND_ACTIVATION, windows * width);
    out[4] = operand("dy", ROLE_DY, KIND_ACTIVATION, windows * width);
    out[5] = gradient("dx", KIND_ACTIVATION, pixels * in, 0, has(c, CASE_ADD));
    out[6] = gradient("dw", KIND_GRADIENT, weight, 1, true);
    out[7] = gradient("dbias", KIND_GRADIENT, bias, 2, true);
    return 8;
}

static void conv_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    const struct conv p = conv_shape(c, &v[1]);
    if (pass == 0)
        dev->ops->conv_forward(dev, &p, v[3], v[0], v[1], v[2]);
    else if (pass == 1)
        dev->ops->conv_backward_x(dev, &p, v[5], v[4], v[1], has(c, CASE_ADD));
    else
        dev->ops->conv_backward_w(dev, &p, v[6], v[7], v[4], v[0]);
}

/* maxpool: d = rows, h, w, channels, kernel, stride, pad. Levels are further apart than the steps
 * of finite differences. */
static size_t pool_windows(const struct op_case *c)
{
    const int *d = c->d;
    return (size_t)(d[0] * window_count(d[1], d[4], d[5], d[6])) *
           (size_t)window_count(d[2], d[4], d[5], d[6]);
}

static int maxpool_operands(const struct op_case *c, struct operand *out)
{
    const int *d = c->d;
    const size_t pixels = (size_t)(d[0] * d[1] * d[2]), channels = (size_t)d[3];
    const size_t windows = pool_windows(c);
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, pixels * channels);
    out[0].level = 0.25f;
    out[1] = operand("y", ROLE_OUT, KIND_ACTIVATION, windows * channels);
    out[2] = operand("winner", ROLE_SAVED, KIND_F32, windows * channels);
    out[3] = operand("dy", ROLE_DY, KIND_ACTIVATION, windows * channels);
    out[4] = gradient("dx", KIND_ACTIVATION, pixels * channels, 0, false);
    return 5;
}

static void maxpool_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    const int *d = c->d;
    const struct pooling p = {d[0], d[1], d[2], d[3], d[4], d[5], d[6]};
    const size_t count = pool_windows(c) * (size_t)d[3];
    float *saved = calloc(count, sizeof *saved);
    uint8_t *winner = calloc(count, 1);
    if (!saved || !winner)
        abort();
    if (pass) {
        dev->ops->read(dev, saved, v[2], count);
        for (size_t i = 0; i < count; i++)
            winner[i] = (uint8_t)saved[i];
    }
    struct buffer marks = upload(dev, DTYPE_U8, winner, count);
    if (pass)
        dev->ops->maxpool_backward(dev, &p, v[4], v[3], marks.view);
    else
        dev->ops->maxpool_forward(dev, &p, v[1], marks.view, v[0]);
    dev->ops->read(dev, winner, marks.view, count);
    for (size_t i = 0; i < count; i++)
        saved[i] = winner[i];
    if (!pass)
        dev->ops->write(dev, v[2], saved, count);
    buffer_free(&marks);
    free(saved);
    free(winner);
}

/* meanpool: d = rows, pixels, channels */
static int meanpool_operands(const struct op_case *c, struct operand *out)
{
    const size_t rows = (size_t)c->d[0], channels = (size_t)c->d[2];
    const size_t n = rows * (size_t)c->d[1] * channels;
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, n);
    out[1] = operand("y", ROLE_OUT, KIND_ACTIVATION, rows * channels);
    out[2] = operand("dy", ROLE_DY, KIND_ACTIVATION, rows * channels);
    out[3] = gradient("dx", KIND_ACTIVATION, n, 0, false);
    return 4;
}

static void meanpool_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    const int *d = c->d;
    if (pass)
        dev->ops->meanpool_backward(dev, d[0], d[1], d[2], v[3], v[2]);
    else
        dev->ops->meanpool_forward(dev, d[0], d[1], d[2], v[1], v[0]);
}

/* batchnorm: d = rows, width, training; SPARE: no dgain, dbias or running statistics. At the edge
 * of relu there is no derivative, so relu is checked with a residual that stays away from the
 * edge. */
static int batchnorm_operands(const struct op_case *c, struct operand *out)
{
    const size_t width = (size_t)c->d[1], n = (size_t)c->d[0] * width;
    const size_t residual = has(c, CASE_RESIDUAL) ? n : 0, spare = has(c, CASE_SPARE) ? 0 : width;
    const bool smooth = !has(c, CASE_RELU) || has(c, CASE_RESIDUAL);
    out[0] = normal("x", ROLE_IN, KIND_ACTIVATION, n, 3, 1);
    out[1] = normal("gain", ROLE_IN, KIND_WEIGHT, width, 1, 0.3f);
    out[2] = operand("bias", ROLE_IN, KIND_WEIGHT, width);
    out[3] = operand("residual", ROLE_IN, KIND_ACTIVATION, residual);
    out[3].gap = has(c, CASE_RELU) ? 16 : 0;
    out[4] = operand("running_mean", ROLE_SAVED, KIND_F32, spare);
    out[5] = normal("running_variance", ROLE_SAVED, KIND_F32, spare, 2, 0.3f);
    out[6] = operand("y", ROLE_OUT, KIND_ACTIVATION, n);
    out[7] = operand("stats", ROLE_SAVED, KIND_F32, 2 * width);
    out[8] = operand("dy", ROLE_DY, KIND_ACTIVATION, n);
    out[9] = gradient("dx", KIND_ACTIVATION, n, smooth ? 0 : -1, false);
    out[10] = gradient("dgain", KIND_GRADIENT, spare, smooth ? 1 : -1, true);
    out[11] = gradient("dbias", KIND_GRADIENT, spare, smooth ? 2 : -1, true);
    out[12] = gradient("dresidual", KIND_ACTIVATION, residual, 3, false);
    return 13;
}

/* ALIAS: y is the residual, or x; dy is the residual's gradient, or x's. */
static void batchnorm_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    const struct batchnorm p = {c->d[0], c->d[1], 1e-3f, 0.1f, c->d[2], has(c, CASE_RELU), false};
    const size_t n = (size_t)p.rows * (size_t)p.width;
    const bool alias = has(c, CASE_ALIAS), residual = has(c, CASE_RESIDUAL);
    struct view x = v[0], rest = v[3], dy = v[8];
    if (alias && pass == 0) {
        dev->ops->copy(dev, v[6], residual ? rest : x, n);
        x = residual ? x : v[6];
        rest = residual ? v[6] : rest;
    } else if (alias) {
        const struct view to = residual ? v[12] : v[9];
        dev->ops->copy(dev, to, dy, n);
        dy = to;
    }
    if (pass == 0)
        dev->ops->batchnorm_forward(dev, &p, v[6], x, v[1], v[2], rest, v[4], v[5], v[7]);
    else
        dev->ops->batchnorm_backward(dev, &p, v[9], v[10], v[11], v[12], dy, v[0], v[6], v[1],
                                     v[7]);
}

/* relu: d = count */
static int relu_operands(const struct op_case *c, struct operand *out)
{
    const size_t n = (size_t)c->d[0];
    out[0] = operand("x", ROLE_IN, KIND_ACTIVATION, n);
    out[0].gap = 0.125f;
    out[1] = operand("y", ROLE_OUT, KIND_ACTIVATION, n);
    out[2] = operand("dy", ROLE_DY, KIND_ACTIVATION, n);
    out[3] = gradient("dx", KIND_ACTIVATION, n, 0, false);
    return 4;
}

static void relu_run(struct device *dev, const struct op_case *c, struct view *v, int pass)
{
    const size_t n = (size_t)c->d[0];
    const struct view from = v[pass ? 2 : 0], to = v[pass ? 3 : 1];
    if (has(c, CASE_ALIAS))
        dev->ops->copy(dev, to, from, n);
    if (pass)
        dev->ops->relu_backward(dev, to, has(c, CASE_ALIAS) ? to : from, v[1], n);
    else
        dev->ops->relu_forward(dev, to, has(c, CASE_ALIAS) ? to : from, n);
}

/* Tolerances of fp32: an elementwise op is a few roundings and a polynomial of 1e-7; a sum of n
 * random terms in fp32 is off by about sqrt(n) roundings of its largest partial sum. */
static const struct family families[] = {
    {"flat", "count", 1, flat_operands, flat_run, 3e-7, true},
    {"rows", "batch,rows,width,gap", 1, rows_operands, rows_run, 3e-7, false},
    {"linear", "rows,in,out", 3, linear_operands, linear_run, 4e-6, true},
    {"layernorm", "rows,width", 2, norm_operands, norm_run, 3e-6, true},
    {"rmsnorm", "rows,width", 2, norm_operands, norm_run, 3e-6, true},
    {"gelu", "count", 2, gelu_operands, gelu_run, 5e-7, false},
    {"swiglu", "count", 2, swiglu_operands, swiglu_run, 4e-7, false},
    {"rope", "batch,t,heads,width,gap,start", 2, rope_operands, rope_run, 4e-7, false},
    {"embedding", "batch,t,width,vocab,start", 2, embedding_operands, embedding_run, 1e-6, false},
    {"attention", "batch,t_q,t_k,heads,kv_heads,width,window,spare", 2, attention_operands,
     attention_run, 4e-6, true},
    {"conv", "rows,h,w,in,out,kernel,stride,pad", 3, conv_operands, conv_run, 4e-6, true},
    {"maxpool", "rows,h,w,channels,kernel,stride,pad", 2, maxpool_operands, maxpool_run, 4e-7,
     false},
    {"meanpool", "rows,pixels,channels", 2, meanpool_operands, meanpool_run, 1e-6, true},
    {"batchnorm", "rows,width,training", 2, batchnorm_operands, batchnorm_run, 3e-6, true},
    {"relu", "count", 2, relu_operands, relu_run, 1e-7, false},
    {"cross_entropy", "rows,vocab", 2, loss_operands, loss_run, 4e-7, false},
    {"adamw", "count", 1, adamw_operands, adamw_run, 4e-7, false},
    {"sgd", "count", 1, sgd_operands, sgd_run, 4e-7, false},
};

const struct family *family_of(const struct op_case *c)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].op, c->op) == 0)
            return &families[i];
    }
    return NULL;
}

size_t op_case_elements(const struct op_case *c)
{
    struct operand operand[OPERANDS];
    size_t elements = 0;
    for (int i = family_of(c)->operands(c, operand); i-- > 0;)
        elements += operand[i].count;
    return elements;
}

/* Returns the sum of four uniform numbers, of mean 0 and deviation 1: cheaper than a normal number.
 * The mixing is that of splitmix64. */
static float near_normal(uint64_t index)
{
    uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    int sum = (int)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return (float)(sum - 131070) * (1.7320508f / 65536);
}

/* Returns the values of operand `i`. The values of the last operand with this index are kept: the
 * next case often differs in its types alone, and making values takes longer than most ops. */
static const float *values_of(const struct operand *o, int i)
{
    static struct {
        struct operand is;
        float *value;
    } last[OPERANDS];
    const struct operand *is = &last[i].is;
    if (last[i].value && is->count == o->count && is->mean == o->mean && is->spread == o->spread &&
        is->gap == o->gap && is->level == o->level)
        return last[i].value;
    free(last[i].value);
    float *out = last[i].value = malloc(o->count * sizeof *out);
    last[i].is = *o;
    for (size_t e = 0; e < o->count && out && o->level != 0; e++)
        out[e] = o->level * (float)((e * 7919 + 13) % o->count);
    for (size_t e = 0; e < o->count && out && o->level == 0; e++) {
        const float x = o->mean + o->spread * near_normal((uint64_t)i << 40 | e);
        out[e] = x < 0 ? x - o->gap : x + o->gap;
    }
    return out;
}

/* `coarse`: all values are bf16 numbers, whatever their type. */
static enum sotto_status start_value(struct op_room *room, int i, bool coarse)
{
    const struct operand *o = &room->operand[i];
    const float *value = values_of(o, i);
    float *host = malloc(o->count * sizeof *host);
    uint16_t *half = malloc(o->count * sizeof *half);
    if (value && host && half) {
        for (size_t e = 0; e < o->count; e++) {
            half[e] = bf16_round(value[e]);
            host[e] = coarse ? bf16_widen(half[e]) : value[e];
        }
        room->dev->ops->write(room->dev, room->view[i],
                              room->view[i].type == DTYPE_F32 ? (void *)host : half, o->count);
    }
    const bool ok = value && host && half;
    free(host);
    free(half);
    return ok ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for a test's operand");
}

enum sotto_status op_room_make(struct op_room *room, struct device *dev, const struct op_case *c,
                               unsigned half)
{
    *room = (struct op_room){.dev = dev, .c = c};
    room->n = family_of(c)->operands(c, room->operand);
    for (int i = 0; i < room->n; i++) {
        const struct operand *o = &room->operand[i];
        if (o->count == 0)
            continue;
        TRY(buffer_init(&room->buffer[i], dev, o->kind & half ? DTYPE_BF16 : DTYPE_F32, o->count,
                        MEMORY_ACTIVATIONS));
        room->view[i] = room->buffer[i].view;
    }
    return SOTTO_OK;
}

enum sotto_status op_room_init(struct op_room *room, struct device *dev, const struct op_case *c,
                               unsigned half)
{
    /* Products may round the factor of a bf16 weight; coarse values are bf16 numbers, which need no
     * rounding. */
    const bool product = strcmp(c->op, "linear") == 0 || strcmp(c->op, "conv") == 0;
    const bool coarse = (half && product) || has(c, CASE_HALF);
    TRY(op_room_make(room, dev, c, half));
    for (int i = 0; i < room->n; i++)
        if (room->operand[i].count)
            TRY(start_value(room, i, coarse));
    return SOTTO_OK;
}

enum sotto_status op_room_copy(struct op_room *room, struct device *dev, const struct op_room *from,
                               unsigned half)
{
    TRY(op_room_make(room, dev, from->c, half));
    for (int i = 0; i < room->n; i++)
        if (room->operand[i].count)
            memcpy(room->view[i].data, from->view[i].data,
                   room->operand[i].count * dtype_size(room->view[i].type));
    return SOTTO_OK;
}

void op_room_free(struct op_room *room)
{
    for (int i = 0; i < room->n; i++)
        buffer_free(&room->buffer[i]);
}

void op_room_run(struct op_room *room, int pass)
{
    family_of(room->c)->run(room->dev, room->c, room->view, pass);
}

const struct op_case op_cases[] = {
    {"flat", {1}, 0},
    {"flat", {7}, 0},
    {"flat", {70001}, 0},
    {"rows", {1, 1, 1, 0}, 0},
    {"rows", {3, 5, 7, 4}, 0},
    {"rows", {2, 3, 5000, 1}, 0},
    {"linear", {1, 1, 1}, 0},
    {"linear", {3, 7, 33}, CASE_BIAS},
    {"linear", {3, 7, 33}, CASE_BIAS | CASE_IN_OUT | CASE_RESIDUAL},
    {"linear", {5, 33, 7}, CASE_RESIDUAL | CASE_ADD},
    {"linear", {5, 33, 7}, CASE_RESIDUAL | CASE_ALIAS | CASE_BIAS | CASE_IN_OUT | CASE_ADD},
    {"linear", {1, 200, 300}, CASE_BIAS},
    {"linear", {1, 200, 300}, CASE_IN_OUT},
    {"linear", {300, 96, 520}, CASE_BIAS | CASE_RESIDUAL},
    {"linear", {65, 300, 131}, CASE_BIAS | CASE_IN_OUT | CASE_ADD},
    {"linear", {700, 33, 48}, CASE_IN_OUT},
    {"linear", {40, 1000, 48}, 0},
    {"linear", {5, 800, 2100}, CASE_BIAS}, /* more than fits a pack, in every direction */
    {"linear", {2100, 800, 9}, CASE_BIAS | CASE_IN_OUT},
    {"linear", {5, 3200, 40}, CASE_BIAS}, /* and deeper than a pack */
    {"linear", {12, 2300, 2301}, 0},      /* slices of different depth */
    {"linear", {3200, 9, 40}, CASE_BIAS | CASE_IN_OUT},
    {"linear", {5, 33, 7}, CASE_BIAS | CASE_FRESH},
    {"linear", {300, 96, 520}, CASE_BIAS | CASE_IN_OUT | CASE_FRESH},
    {"linear", {2100, 40, 90}, CASE_FRESH},
    {"linear", {2, 2300, 2301}, CASE_IN_OUT | CASE_FRESH}, /* panels of a bf16 weight */
    {"linear", {3, 7, 33}, CASE_BIAS | CASE_BOTH},
    {"linear", {300, 96, 520}, CASE_BIAS | CASE_BOTH},
    {"linear", {65, 300, 131}, CASE_BIAS | CASE_IN_OUT | CASE_ADD | CASE_BOTH},
    {"linear", {12, 2300, 2301}, CASE_FRESH | CASE_BOTH},
    {"linear", {2100, 800, 9}, CASE_BIAS | CASE_IN_OUT | CASE_BOTH},
    {"linear", {2, 2300, 2301}, CASE_BOTH},
    {"linear", {3200, 9, 40}, CASE_BIAS | CASE_ADD | CASE_FRESH | CASE_BOTH},
    {"layernorm", {1, 1}, CASE_BIAS},
    {"layernorm", {3, 7}, CASE_BIAS},
    {"layernorm", {5, 33}, CASE_ADD},
    {"layernorm", {5, 33}, CASE_ALIAS | CASE_BIAS},
    {"layernorm", {4, 48}, CASE_SPARE | CASE_BIAS},
    {"layernorm", {333, 130}, CASE_BIAS},
    {"layernorm", {9, 264}, CASE_BIAS},
    {"layernorm", {21, 712}, CASE_BIAS},
    {"layernorm", {37, 776}, CASE_BIAS | CASE_ADD},
    {"layernorm", {35, 24}, CASE_BIAS | CASE_ADD | CASE_RESIDUAL},
    {"layernorm", {67, 776}, CASE_BIAS | CASE_ADD | CASE_RESIDUAL},
    {"layernorm", {5, 1032}, CASE_BIAS},
    {"layernorm", {130, 768}, CASE_BIAS | CASE_ADD},
    {"layernorm", {67, 2056}, CASE_BIAS | CASE_ALIAS},
    {"layernorm", {3, 8200}, CASE_BIAS},
    {"rmsnorm", {1, 1}, 0},
    {"rmsnorm", {3, 7}, CASE_ADD},
    {"rmsnorm", {5, 33}, CASE_ALIAS},
    {"rmsnorm", {34, 33}, CASE_ADD | CASE_RESIDUAL},
    {"rmsnorm", {67, 776}, CASE_ADD | CASE_RESIDUAL},
    {"rmsnorm", {67, 768}, CASE_ADD},
    {"rmsnorm", {4, 48}, CASE_SPARE},
    {"rmsnorm", {333, 130}, 0},
    {"gelu", {1}, 0},
    {"gelu", {333}, CASE_ALIAS},
    {"gelu", {333}, CASE_EXACT},
    {"gelu", {70001}, CASE_EXACT | CASE_ALIAS},
    {"gelu", {70001}, 0},
    {"swiglu", {1}, 0},
    {"swiglu", {333, 1}, 0},
    {"swiglu", {333, 2}, 0},
    {"swiglu", {70001}, 0},
    {"rope", {1, 1, 1, 2, 0, 0}, 0},
    {"rope", {2, 5, 3, 6, 0, 0}, 0},
    {"rope", {2, 3, 2, 34, 7, 1000}, 0},
    {"rope", {2, 65, 4, 64, 64, 3}, 0},
    {"embedding", {1, 1, 1, 3, 0}, 0},
    {"embedding", {2, 5, 7, 4, 0}, 0},
    {"embedding", {2, 5, 33, 4, 2}, 0},
    {"embedding", {3, 5, 33, 4, 0}, CASE_SPARE},
    {"embedding", {4, 65, 150, 20, 0}, 0},
    {"embedding", {3, 1000, 24, 300, 0}, 0},
    {"attention", {1, 1, 1, 1, 1, 4, 0, 0}, 0},
    {"attention", {2, 5, 5, 4, 1, 7, 0, 0}, 0},
    {"attention", {1, 7, 7, 4, 2, 16, 3, 0}, CASE_FUSED},
    {"attention", {2, 9, 9, 2, 2, 33, 1, 0}, 0},
    {"attention", {1, 6, 6, 2, 1, 8, 100, 2}, 0},
    {"attention", {2, 1, 9, 4, 2, 16, 0, 3}, 0},
    {"attention", {1, 2, 70, 2, 2, 32, 5, 0}, 0},
    {"attention", {1, 8, 20, 2, 1, 20, 4, 0}, 0},
    {"attention", {2, 65, 65, 4, 2, 32, 0, 0}, CASE_FUSED},
    {"attention", {1, 130, 130, 2, 1, 64, 70, 0}, CASE_FUSED},
    {"attention", {1, 67, 67, 1, 1, 128, 0, 0}, 0},
    {"attention", {1, 150, 150, 4, 2, 48, 37, 0}, CASE_FUSED},
    {"attention", {2, 66, 66, 3, 1, 40, 0, 0}, 0},
    {"attention", {1, 130, 130, 2, 1, 80, 0, 0}, CASE_FUSED},
    {"attention", {1, 70, 70, 2, 2, 96, 20, 0}, 0},
    {"attention", {2, 70, 70, 2, 1, 24, 0, 0}, CASE_WHOLE | CASE_FUSED},
    {"attention", {1, 390, 390, 2, 1, 64, 0, 0}, CASE_FUSED}, /* more tiles than stages */
    {"attention", {1, 330, 330, 1, 1, 128, 250, 0}, 0},
    {"attention", {2, 5, 5, 4, 2, 7, 0, 0}, CASE_WHOLE},
    {"attention", {1, 65, 65, 2, 1, 16, 3, 0}, CASE_WHOLE | CASE_FUSED},
    {"attention", {1, 2, 70, 2, 2, 32, 0, 0}, CASE_WHOLE},
    {"attention", {2, 13, 150, 4, 2, 20, 70, 9}, 0},
    {"attention", {1, 33, 163, 2, 1, 64, 0, 5}, 0},
    {"attention", {1, 200, 200, 2, 1, 20, 40, 0}, 0}, /* windows after the first panel */
    {"attention", {2, 65, 65, 4, 2, 32, 0, 0}, CASE_HALF | CASE_FUSED},
    {"attention", {1, 130, 130, 2, 1, 20, 70, 0}, CASE_HALF},
    {"attention", {2, 9, 70, 2, 1, 33, 20, 3}, CASE_HALF},
    {"attention", {1, 67, 67, 2, 2, 64, 0, 0}, CASE_HALF | CASE_WHOLE},
    {"conv", {1, 1, 1, 1, 1, 1, 1, 0}, 0},
    {"conv", {2, 5, 4, 3, 7, 3, 1, 1}, CASE_BIAS},
    {"conv", {3, 7, 5, 1, 5, 3, 2, 1}, CASE_ADD},
    {"conv", {1, 9, 8, 3, 16, 7, 2, 3}, 0},
    {"conv", {1, 10, 7, 2, 3, 7, 1, 2}, CASE_BIAS | CASE_ADD},
    {"conv", {2, 6, 7, 17, 3, 1, 2, 0}, 0},
    {"conv", {2, 4, 7, 16, 17, 1, 1, 0}, CASE_ADD | CASE_BIAS},
    {"conv", {1, 4, 3, 2, 3, 3, 1, 2}, 0}, /* windows start outside the image */
    {"conv", {1, 5, 6, 4, 6, 3, 1, 0}, 0},
    {"conv", {2, 8, 12, 3, 20, 4, 4, 0}, CASE_BIAS}, /* patches */
    {"conv", {1, 7, 8, 5, 6, 2, 3, 0}, 0},           /* pixels outside every window */
    {"conv", {1, 3, 3, 2, 2, 1, 3, 2}, CASE_ADD},    /* windows without a pixel */
    {"conv", {3, 9, 13, 64, 17, 3, 1, 1}, 0},
    {"conv", {2, 10, 9, 64, 96, 3, 2, 1}, 0},
    {"conv", {1, 6, 5, 160, 33, 3, 1, 1}, CASE_BIAS}, /* more than fits a pack: taps, */
    {"conv", {3, 30, 31, 3, 16, 3, 1, 1}, 0},         /* windows                      */
    {"conv", {2, 34, 33, 16, 9, 1, 1, 0}, CASE_ADD},
    {"maxpool", {1, 1, 1, 1, 1, 1, 0}, 0},
    {"maxpool", {2, 5, 7, 3, 3, 2, 1}, 0},
    {"maxpool", {1, 6, 5, 7, 2, 2, 0}, 0},
    {"maxpool", {1, 7, 8, 5, 3, 1, 1}, 0},
    {"maxpool", {1, 8, 8, 4, 2, 3, 1}, 0},
    {"maxpool", {3, 21, 20, 65, 3, 2, 1}, 0},
    {"maxpool", {1, 3, 4, 600, 2, 1, 0}, 0},
    {"meanpool", {1, 1, 1}, 0},
    {"meanpool", {3, 49, 7}, 0},
    {"meanpool", {2, 64, 600}, 0},
    {"batchnorm", {1, 3, 1}, 0},
    {"batchnorm", {7, 3, 0}, 0},
    {"batchnorm", {30, 17, 1}, CASE_ALIAS},
    {"batchnorm", {30, 17, 1}, CASE_RESIDUAL | CASE_RELU},
    {"batchnorm", {33, 5, 1}, CASE_RESIDUAL | CASE_RELU | CASE_ALIAS | CASE_SPARE},
    {"batchnorm", {9, 64, 0}, CASE_RESIDUAL | CASE_RELU | CASE_ALIAS},
    {"batchnorm", {33, 20, 1}, CASE_RESIDUAL},
    {"batchnorm", {40, 130, 1}, CASE_RELU},
    {"batchnorm", {1500, 33, 1}, CASE_RELU | CASE_ALIAS},
    {"batchnorm", {3, 4200, 1}, CASE_RELU},
    {"relu", {1}, 0},
    {"relu", {333}, CASE_ALIAS},
    {"relu", {70001}, 0},
    {"cross_entropy", {1, 1}, 0},
    {"cross_entropy", {5, 7}, CASE_IGNORE},
    {"cross_entropy", {3, 33}, CASE_SPARE},
    {"cross_entropy", {9, 5003}, CASE_IGNORE},
    {"cross_entropy", {4, 5000}, CASE_IGNORE},
    {"adamw", {1}, 0},
    {"adamw", {333}, CASE_THETA},
    {"adamw", {333}, CASE_PEEK},
    {"adamw", {70001}, CASE_THETA},
    {"sgd", {1}, 0},
    {"sgd", {333}, CASE_FIRST | CASE_THETA},
    {"sgd", {333}, CASE_NESTEROV},
    {"sgd", {333}, CASE_SPARE},
    {"sgd", {333}, CASE_SPARE | CASE_PEEK},
    {"sgd", {333}, CASE_PEEK | CASE_NESTEROV | CASE_FIRST},
    {"sgd", {70001}, CASE_NESTEROV | CASE_THETA},
};
const size_t op_cases_count = sizeof op_cases / sizeof *op_cases;

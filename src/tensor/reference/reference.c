/* Reference ops on vectors, products, norms, activations and optimizers. */
#include <math.h>

#include "tensor/cpu/cpu.h"
#include "tensor/reference/reference.h"

void reference_fill(struct device *dev, struct view y, size_t count, float value)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, value);
}

void reference_copy(struct device *dev, struct view y, struct view x, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, get_value(x, i));
}

void reference_copy_rows(struct device *dev, const struct row_copy *p, struct view y, struct view x)
{
    for (int b = 0; b < p->batch; b++)
        for (int r = 0; r < p->rows; r++)
            reference_copy(dev, view_at(y, (size_t)b * p->y_batch_stride + (size_t)r * p->y_stride),
                           view_at(x, (size_t)b * p->x_batch_stride + (size_t)r * p->x_stride),
                           (size_t)p->width);
}

void reference_axpy(struct device *dev, struct view y, float a, struct view x, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, get_value(y, i) + (double)a * get_value(x, i));
}

void reference_axpby(struct device *dev, struct view y, float b, float a, struct view x,
                     size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, (double)b * get_value(y, i) + (double)a * get_value(x, i));
}

void reference_scale(struct device *dev, struct view y, float a, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, a * get_value(y, i));
}

static double reference_sum_squares(struct device *dev, const struct vector_pair *p, int n,
                                    double *each)
{
    (void)dev;
    double sum = 0;
    for (int k = 0; k < n; k++) {
        double part = 0;
        for (size_t i = 0; i < p[k].count; i++) {
            const double x = get_value(p[k].x, i) - (p[k].y.data ? get_value(p[k].y, i) : 0);
            part += x * x;
        }
        sum += part;
        if (each)
            each[k] = part;
    }
    return sum;
}

/* Returns the element of w for output o and input i. */
static size_t weight_at(const struct linear *p, int o, int i)
{
    return p->layout == LINEAR_OUT_IN ? (size_t)o * (size_t)p->in + (size_t)i
                                      : (size_t)i * (size_t)p->out + (size_t)o;
}

void reference_linear_forward(struct device *dev, const struct linear *p, struct view y,
                              struct view x, struct view w, struct view bias, struct view residual)
{
    (void)dev;
    for (int r = 0; r < p->rows; r++) {
        for (int o = 0; o < p->out; o++) {
            size_t at = (size_t)r * (size_t)p->out + (size_t)o;
            double sum = get_or_zero(bias, (size_t)o) + get_or_zero(residual, at);
            for (int i = 0; i < p->in; i++)
                sum += get_value(x, (size_t)r * (size_t)p->in + (size_t)i) *
                       get_value(w, weight_at(p, o, i));
            set_value(y, at, sum);
        }
    }
}

void reference_linear_backward_x(struct device *dev, const struct linear *p, struct view dx,
                                 struct view dy, struct view w, bool add)
{
    (void)dev;
    for (int r = 0; r < p->rows; r++) {
        for (int i = 0; i < p->in; i++) {
            double sum = 0;
            for (int o = 0; o < p->out; o++)
                sum += get_value(dy, (size_t)r * (size_t)p->out + (size_t)o) *
                       get_value(w, weight_at(p, o, i));
            put_add(dx, (size_t)r * (size_t)p->in + (size_t)i, sum, add);
        }
    }
}

void reference_linear_backward_w(struct device *dev, const struct linear *p, struct view dw,
                                 struct view dbias, struct view dy, struct view x)
{
    (void)dev;
    for (int o = 0; o < p->out; o++) {
        double bias = 0;
        for (int i = 0; i < p->in; i++) {
            double sum = 0;
            for (int r = 0; r < p->rows; r++)
                sum += get_value(dy, (size_t)r * (size_t)p->out + (size_t)o) *
                       get_value(x, (size_t)r * (size_t)p->in + (size_t)i);
            put_add(dw, weight_at(p, o, i), sum, !p->fresh);
        }
        for (int r = 0; r < p->rows; r++)
            bias += get_value(dy, (size_t)r * (size_t)p->out + (size_t)o);
        if (dbias.data)
            put_add(dbias, (size_t)o, bias, true);
    }
}

/* Layer norm, which subtracts the mean, with `center`; else RMS norm. */
static void exact_norm(const struct norm *p, struct view y, struct view x, struct view gain,
                       struct view bias, struct view stats, bool center)
{
    size_t width = (size_t)p->width;
    for (size_t r = 0; r < (size_t)p->rows; r++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < width && center; i++)
            mean += get_value(x, r * width + i) / (double)width;
        for (size_t i = 0; i < width; i++)
            square += pow(get_value(x, r * width + i) - mean, 2) / (double)width;
        double rstd = 1 / sqrt(square + p->eps);
        set_value(stats, 2 * r, mean);
        set_value(stats, 2 * r + 1, rstd);
        for (size_t i = 0; i < width; i++)
            set_value(y, r * width + i,
                      (get_value(x, r * width + i) - mean) * rstd * get_value(gain, i) +
                          get_or_zero(bias, i));
    }
}

static void exact_norm_backward(const struct norm *p, struct view dx, struct view dgain,
                                struct view dbias, struct view dy, struct view x, struct view gain,
                                struct view stats, bool center, struct view from)
{
    size_t width = (size_t)p->width, rows = (size_t)p->rows;
    for (size_t i = 0; i < width; i++) { /* before dx is written, which may be dy */
        double sum = 0, sum_hat = 0;
        for (size_t r = 0; r < rows; r++) {
            double hat = (get_value(x, r * width + i) - get_value(stats, 2 * r)) *
                         get_value(stats, 2 * r + 1);
            sum += get_value(dy, r * width + i);
            sum_hat += get_value(dy, r * width + i) * hat;
        }
        if (dgain.data)
            put_add(dgain, i, sum_hat, true);
        if (dbias.data)
            put_add(dbias, i, sum, true);
    }
    for (size_t r = 0; r < rows; r++) {
        double mean = get_value(stats, 2 * r), rstd = get_value(stats, 2 * r + 1), d = 0, d_hat = 0;
        for (size_t i = 0; i < width; i++) {
            double term = get_value(dy, r * width + i) * get_value(gain, i) / (double)width;
            d += center ? term : 0;
            d_hat += term * (get_value(x, r * width + i) - mean) * rstd;
        }
        for (size_t i = 0; i < width; i++) {
            double hat = (get_value(x, r * width + i) - mean) * rstd;
            const size_t at = r * width + i;
            const double through =
                rstd * (get_value(dy, at) * get_value(gain, i) - d - hat * d_hat);
            set_value(dx, at, from.data ? get_value(from, at) + through : through);
        }
    }
}

void reference_layernorm_forward(struct device *dev, const struct norm *p, struct view y,
                                 struct view x, struct view gain, struct view bias,
                                 struct view stats)
{
    (void)dev;
    exact_norm(p, y, x, gain, bias, stats, true);
}

void reference_layernorm_backward(struct device *dev, const struct norm *p, struct view dx,
                                  struct view dgain, struct view dbias, struct view dy,
                                  struct view x, struct view gain, struct view stats,
                                  struct view from)
{
    (void)dev;
    exact_norm_backward(p, dx, dgain, dbias, dy, x, gain, stats, true, from);
}

void reference_rmsnorm_forward(struct device *dev, const struct norm *p, struct view y,
                               struct view x, struct view gain, struct view stats)
{
    (void)dev;
    exact_norm(p, y, x, gain, view_none, stats, false);
}

void reference_rmsnorm_backward(struct device *dev, const struct norm *p, struct view dx,
                                struct view dgain, struct view dy, struct view x, struct view gain,
                                struct view stats, struct view from)
{
    (void)dev;
    exact_norm_backward(p, dx, dgain, view_none, dy, x, gain, stats, false, from);
}

/* gelu(x) = x * weight(x); *slope is the derivative of the weight. */
static double gelu_weight(enum gelu_kind kind, double x, double *slope)
{
    const double pi = 3.14159265358979323846;
    if (kind == GELU_EXACT) {
        *slope = exp(-x * x / 2) / sqrt(2 * pi);
        return erfc(-x / sqrt(2)) / 2;
    }
    double tanh_u = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    *slope = (1 - tanh_u * tanh_u) / 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    return (1 + tanh_u) / 2;
}

void reference_gelu_forward(struct device *dev, enum gelu_kind kind, struct view y, struct view x,
                            size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        double slope;
        set_value(y, i, get_value(x, i) * gelu_weight(kind, get_value(x, i), &slope));
    }
}

void reference_gelu_backward(struct device *dev, enum gelu_kind kind, struct view dx,
                             struct view dy, struct view x, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        double slope, weight = gelu_weight(kind, get_value(x, i), &slope);
        set_value(dx, i, get_value(dy, i) * (weight + get_value(x, i) * slope));
    }
}

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void reference_swiglu_forward(struct device *dev, struct view y, struct view gate, struct view up,
                              size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++)
        set_value(y, i, get_value(gate, i) * exact_sigmoid(get_value(gate, i)) * get_value(up, i));
}

void reference_swiglu_backward(struct device *dev, struct view dgate, struct view dup,
                               struct view dy, struct view gate, struct view up, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        double d = get_value(dy, i), g = get_value(gate, i), s = exact_sigmoid(g),
               u = get_value(up, i);
        set_value(dgate, i, d * u * s * (1 + g * (1 - s)));
        set_value(dup, i, d * g * s);
    }
}

static void adamw_stretch(const struct adamw *p, const struct stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        double grad = get_value(s->g, i) * p->grad_scale, x = get_value(s->x, i);
        double m_next = p->beta1 * get_value(s->m, i) + (1 - (double)p->beta1) * grad;
        double v_next = p->beta2 * get_value(s->v, i) + (1 - (double)p->beta2) * grad * grad;
        double step = m_next / p->correct1 / (sqrt(v_next / p->correct2) + p->eps);
        double x_next = x - p->lr * (step + s->decay * x);
        if (s->theta.data)
            set_value(s->theta, i, (float)x_next);
        if (p->peek)
            continue;
        set_value(s->x, i, x_next);
        set_value(s->m, i, m_next);
        set_value(s->v, i, v_next);
    }
}

void reference_adamw(struct device *dev, const struct adamw *p, const struct stretch *s, int n)
{
    (void)dev;
    for (int k = 0; k < n; k++)
        adamw_stretch(p, &s[k]);
}

static void sgd_stretch(const struct sgd *p, const struct stretch *s)
{
    for (size_t i = 0; i < s->count; i++) {
        double x = get_value(s->x, i), grad = get_value(s->g, i) * p->grad_scale + s->decay * x;
        double velocity = grad;
        if (s->m.data && !p->first)
            velocity = p->momentum * get_value(s->m, i) + grad;
        double step = p->nesterov && s->m.data ? grad + p->momentum * velocity : velocity;
        double x_next = x - p->lr * step;
        if (s->theta.data)
            set_value(s->theta, i, (float)x_next);
        if (p->peek)
            continue;
        set_value(s->x, i, x_next);
        if (s->m.data)
            set_value(s->m, i, velocity);
    }
}

void reference_sgd(struct device *dev, const struct sgd *p, const struct stretch *s, int n)
{
    (void)dev;
    for (int k = 0; k < n; k++)
        sgd_stretch(p, &s[k]);
}

void reference_co2(struct device *dev, const struct co2_step *p, struct view x, struct view now,
                   struct view m, struct view sent, struct view d, size_t count)
{
    (void)dev;
    for (size_t i = 0; i < count; i++) {
        const double before = get_value(now, i), moved = before - get_value(x, i);
        const double momentum =
            p->beta * get_value(m, i) + p->mean * get_value(sent, i) / p->lambda;
        const double next = before - p->alpha * fmax(-p->clip, fmin(momentum, p->clip));
        double lambda = 1;
        if (d.data)
            lambda += fabs(next - before) / (p->tau * fabs(p->mean * get_value(d, i)) + 1e-12);
        set_value(m, i, momentum);
        set_value(now, i, next);
        set_value(sent, i, moved / lambda);
        set_value(x, i, before);
    }
}

const struct ops ops_reference = {
    .name = "reference",
    .alloc = host_alloc,
    .release = host_release,
    .write = host_write,
    .read = host_read,
    .sum_squares = reference_sum_squares,
#define OP(op, ...) .op = reference_##op,
#define OPTIONAL_OP(op, ...)
#include "tensor/op_list.h"
};

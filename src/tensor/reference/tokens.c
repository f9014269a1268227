/* Reference ops on positions and tokens. */
#include <math.h>

#include "tensor/reference/reference.h"

void reference_rope(struct device *dev, const struct rope *p, struct view x, bool inverse)
{
    (void)dev;
    size_t half = (size_t)p->width / 2;
    for (size_t r = 0; r < (size_t)p->batch * (size_t)p->t; r++) {
        int position = p->start + (int)(r % (size_t)p->t);
        for (size_t h = 0; h < (size_t)p->heads; h++) {
            for (size_t i = 0; i < half; i++) {
                size_t a = r * (size_t)p->stride + h * 2 * half + i, b = a + half;
                double angle = (double)position * p->frequencies[i] * (inverse ? -1 : 1);
                double xa = get_value(x, a), xb = get_value(x, b);
                set_value(x, a, xa * cos(angle) - xb * sin(angle));
                set_value(x, b, xb * cos(angle) + xa * sin(angle));
            }
        }
    }
}

void reference_embedding_forward(struct device *dev, int batch, int t, int width, int start,
                                 struct view y, struct view tokens, struct view table,
                                 struct view positions)
{
    (void)dev;
    const int32_t *token = tokens.data;
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)batch * (size_t)t; r++) {
        size_t position = (size_t)start + r % (size_t)t;
        for (size_t i = 0; i < w; i++)
            set_value(y, r * w + i,
                      get_value(table, (size_t)token[r] * w + i) +
                          get_or_zero(positions, position * w + i));
    }
}

void reference_embedding_backward(struct device *dev, int batch, int t, int width,
                                  struct view dtable, struct view dpositions, struct view tokens,
                                  struct view dy)
{
    (void)dev;
    const int32_t *token = tokens.data;
    const size_t w = (size_t)width, rows = (size_t)batch * (size_t)t;
    for (size_t r = 0; r < rows && dtable.data; r++) {
        size_t first = 0;
        while (token[first] != token[r])
            first++;
        for (size_t i = 0; i < w && first == r; i++) { /* once a token */
            double sum = 0;
            for (size_t s = r; s < rows; s++)
                sum += token[s] == token[r] ? get_value(dy, s * w + i) : 0;
            put_add(dtable, (size_t)token[r] * w + i, sum, true);
        }
    }
    for (size_t p = 0; p < (size_t)t && dpositions.data; p++) {
        for (size_t i = 0; i < w; i++) {
            double sum = 0;
            for (size_t r = p; r < rows; r += (size_t)t)
                sum += get_value(dy, r * w + i);
            put_add(dpositions, p * w + i, sum, true);
        }
    }
}

/* Returns the first element of row t of a head; `sequence`: elements between sequences. */
static size_t row_at(int b, int t, int head, size_t sequence, int stride, int width)
{
    return (size_t)b * sequence + (size_t)t * (size_t)stride + (size_t)head * (size_t)width;
}

static size_t key_at(const struct attention *p, int b, int j, int head, int stride)
{
    size_t own = (size_t)p->t_k * (size_t)stride;
    return row_at(b, j, head / (p->heads / p->kv_heads),
                  p->kv_batch_stride ? p->kv_batch_stride : own, stride, p->width);
}

static size_t query_at(const struct attention *p, int b, int i, int head, int stride)
{
    return row_at(b, i, head, (size_t)p->t_q * (size_t)stride, stride, p->width);
}

static bool sees_key(const struct attention *p, int i, int j)
{
    int position = p->t_k - p->t_q + i;
    return p->whole || (j <= position && (p->window <= 0 || j > position - p->window));
}

static double dot_views(struct view a, size_t a_at, struct view b, size_t b_at, int width)
{
    double sum = 0;
    for (size_t d = 0; d < (size_t)width; d++)
        sum += get_value(a, a_at + d) * get_value(b, b_at + d);
    return sum;
}

static double key_score(const struct attention *p, struct view q, struct view k, int b, int head,
                        int i, int j)
{
    return p->scale * dot_views(q, query_at(p, b, i, head, p->q_stride), k,
                                key_at(p, b, j, head, p->k_stride), p->width);
}

static double log_sum_exp(const struct attention *p, struct view q, struct view k, int b, int head,
                          int i)
{
    double max = -INFINITY, sum = 0;
    for (int j = 0; j < p->t_k; j++) {
        if (sees_key(p, i, j))
            max = fmax(max, key_score(p, q, k, b, head, i, j));
    }
    for (int j = 0; j < p->t_k; j++) {
        if (sees_key(p, i, j))
            sum += exp(key_score(p, q, k, b, head, i, j) - max);
    }
    return max + log(sum);
}

/* Computes o of query i. `weight` has room for t_k probabilities. */
static void attend_query(const struct attention *p, struct view o, struct view q, struct view k,
                         struct view v, int b, int head, int i, double lse, double *weight)
{
    for (int j = 0; j < p->t_k; j++)
        weight[j] = sees_key(p, i, j) ? exp(key_score(p, q, k, b, head, i, j) - lse) : 0;
    for (int d = 0; d < p->width; d++) {
        double sum = 0;
        for (int j = 0; j < p->t_k; j++) {
            if (sees_key(p, i, j))
                sum += weight[j] * get_value(v, key_at(p, b, j, head, p->v_stride) + (size_t)d);
        }
        set_value(o, query_at(p, b, i, head, p->o_stride) + (size_t)d, sum);
    }
}

void reference_attention_forward(struct device *dev, const struct attention *p, struct view o,
                                 struct view q, struct view k, struct view v, struct view lse)
{
    double *weight = device_scratch(dev, (size_t)p->t_k * sizeof *weight);
    if (!weight)
        return;
    for (int b = 0; b < p->batch; b++) {
        for (int head = 0; head < p->heads; head++) {
            for (int i = 0; i < p->t_q; i++) {
                double sum = log_sum_exp(p, q, k, b, head, i);
                set_value(lse, (size_t)(b * p->heads + head) * (size_t)p->t_q + (size_t)i, sum);
                attend_query(p, o, q, k, v, b, head, i, sum, weight);
            }
        }
    }
}

/* dq, dk and dv of one sequence, summed in double: (heads, t, width), (kv_heads, t, width)
 * twice. */
struct attention_sums {
    double *dq, *dk, *dv;
};

static void backward_pair(const struct attention *p, const struct attention_sums *sums,
                          struct view dy, struct view q, struct view k, struct view v, int b,
                          int head, int i, int j, double lse, double delta)
{
    size_t width = (size_t)p->width, kv = (size_t)(head / (p->heads / p->kv_heads));
    size_t dy_at = query_at(p, b, i, head, p->o_stride);
    size_t q_at = query_at(p, b, i, head, p->q_stride);
    size_t k_at = key_at(p, b, j, head, p->k_stride), v_at = key_at(p, b, j, head, p->v_stride);
    double weight = exp(key_score(p, q, k, b, head, i, j) - lse);
    double ds = weight * (dot_views(dy, dy_at, v, v_at, p->width) - delta) * p->scale;
    double *dq = sums->dq + ((size_t)head * (size_t)p->t_q + (size_t)i) * width;
    double *dk = sums->dk + (kv * (size_t)p->t_k + (size_t)j) * width;
    double *dv = sums->dv + (kv * (size_t)p->t_k + (size_t)j) * width;
    for (size_t d = 0; d < width; d++) {
        dv[d] += weight * get_value(dy, dy_at + d);
        dq[d] += ds * get_value(k, k_at + d);
        dk[d] += ds * get_value(q, q_at + d);
    }
}

static void put_sums(const struct attention *p, const struct attention_sums *sums, struct view dq,
                     struct view dk, struct view dv, int b)
{
    size_t width = (size_t)p->width;
    int group = p->heads / p->kv_heads;
    for (int head = 0; head < p->heads; head++) {
        for (int t = 0; t < p->t_q; t++) {
            for (size_t d = 0; d < width; d++) {
                size_t from = ((size_t)head * (size_t)p->t_q + (size_t)t) * width + d;
                set_value(dq, query_at(p, b, t, head, p->q_stride) + d, sums->dq[from]);
                if (head >= p->kv_heads)
                    continue;
                set_value(dk, key_at(p, b, t, head * group, p->k_stride) + d, sums->dk[from]);
                set_value(dv, key_at(p, b, t, head * group, p->v_stride) + d, sums->dv[from]);
            }
        }
    }
}

void reference_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                                  struct view dk, struct view dv, struct view dy, struct view o,
                                  struct view q, struct view k, struct view v, struct view lse)
{
    size_t rows = (size_t)p->t_q * (size_t)p->width,
           total = rows * (size_t)(p->heads + 2 * p->kv_heads);
    struct attention_sums sums = {.dq = device_scratch(dev, total * sizeof(double))};
    if (!sums.dq)
        return;
    sums.dk = sums.dq + rows * (size_t)p->heads;
    sums.dv = sums.dk + rows * (size_t)p->kv_heads;
    for (int b = 0; b < p->batch; b++) {
        memset(sums.dq, 0, total * sizeof(double));
        for (int head = 0; head < p->heads; head++) {
            for (int i = 0; i < p->t_q; i++) {
                size_t at = query_at(p, b, i, head, p->o_stride);
                double delta = dot_views(dy, at, o, at, p->width);
                double sum =
                    get_value(lse, (size_t)(b * p->heads + head) * (size_t)p->t_q + (size_t)i);
                for (int j = 0; j < p->t_k; j++) {
                    if (sees_key(p, i, j))
                        backward_pair(p, &sums, dy, q, k, v, b, head, i, j, sum, delta);
                }
            }
        }
        put_sums(p, &sums, dq, dk, dv, b);
    }
}

static uint8_t place_among(struct view row, int vocab, int target)
{
    const double own = get_value(row, (size_t)target);
    int place = 1;
    for (int i = 0; i < vocab; i++) {
        const double x = get_value(row, (size_t)i);
        place += x > own || (x == own && i < target);
    }
    return (uint8_t)(isnan(own) || place > 255 ? 255 : place);
}

void reference_cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                             struct view targets, float scale, struct view losses,
                             struct view places)
{
    (void)dev;
    const int32_t *target = targets.data;
    for (int r = 0; r < rows; r++) {
        struct view row = view_at(logits, (size_t)r * (size_t)vocab);
        int best = 0;
        double sum = 0;
        for (int i = 1; i < vocab; i++) {
            if (get_value(row, (size_t)i) > get_value(row, (size_t)best))
                best = i;
        }
        double max = get_value(row, (size_t)best);
        for (int i = 0; i < vocab; i++)
            sum += exp(get_value(row, (size_t)i) - max);
        bool ignored = target[r] < 0;
        set_value(losses, (size_t)r,
                  ignored ? 0 : log(sum) - (get_value(row, (size_t)target[r]) - max));
        if (places.data)
            ((uint8_t *)places.data)[r] = ignored ? 0 : place_among(row, vocab, target[r]);
        for (int i = 0; scale != 0 && i < vocab; i++) {
            double p = exp(get_value(row, (size_t)i) - max) / sum;
            set_value(row, (size_t)i, ignored ? 0 : scale * (p - (i == target[r])));
        }
    }
}

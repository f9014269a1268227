/* Ops of transformers other than products. */
#include "tensor/cuda/cuda.h"

static void issue_norm_backward(struct device *dev, const struct norm *p, bool center,
                                struct view dx, struct view dgain, struct view dbias,
                                struct view dy, struct view x, struct view gain, struct view stats,
                                struct view from)
{
    const struct norm_shape shape = {p->rows, p->width, p->eps, center};
    double *parts = NULL;
    if (from.data && from.data != dx.data)
        cuda_copy(dev, dx, from, (size_t)p->rows * (size_t)p->width);
    if (dgain.data || dbias.data) {
        parts = device_scratch(dev, norm_parts(p->rows, p->width) * sizeof *parts);
        if (!parts)
            return;
    }
    cuda_check(dev,
               launch_norm_backward(cuda_stream(dev), shape, cuda_vec(dx), cuda_vec(dgain),
                                    cuda_vec(dbias), cuda_vec(dy), cuda_vec(x), cuda_vec(gain),
                                    stats.data, from.data != NULL, parts),
               "normalize");
}

static void issue_norm_forward(struct device *dev, const struct norm *p, bool center, struct view y,
                               struct view x, struct view gain, struct view bias, struct view stats)
{
    const struct norm_shape shape = {p->rows, p->width, p->eps, center};
    cuda_check(dev,
               launch_norm_forward(cuda_stream(dev), shape, cuda_vec(y), cuda_vec(x),
                                   cuda_vec(gain), cuda_vec(bias), stats.data),
               "normalize");
}

void cuda_layernorm_forward(struct device *dev, const struct norm *p, struct view y, struct view x,
                            struct view gain, struct view bias, struct view stats)
{
    issue_norm_forward(dev, p, true, y, x, gain, bias, stats);
}

void cuda_layernorm_backward(struct device *dev, const struct norm *p, struct view dx,
                             struct view dgain, struct view dbias, struct view dy, struct view x,
                             struct view gain, struct view stats, struct view from)
{
    issue_norm_backward(dev, p, true, dx, dgain, dbias, dy, x, gain, stats, from);
}

void cuda_rmsnorm_forward(struct device *dev, const struct norm *p, struct view y, struct view x,
                          struct view gain, struct view stats)
{
    issue_norm_forward(dev, p, false, y, x, gain, view_none, stats);
}

void cuda_rmsnorm_backward(struct device *dev, const struct norm *p, struct view dx,
                           struct view dgain, struct view dy, struct view x, struct view gain,
                           struct view stats, struct view from)
{
    issue_norm_backward(dev, p, false, dx, dgain, view_none, dy, x, gain, stats, from);
}

void cuda_rope(struct device *dev, const struct rope *p, struct view x, bool inverse)
{
    struct rope_shape shape = {.batch = p->batch,
                               .t = p->t,
                               .heads = p->heads,
                               .width = p->width,
                               .stride = p->stride,
                               .start = p->start,
                               .inverse = inverse};
    if (p->width / 2 > ROPE_PAIRS) {
        device_fail(dev, fail(SOTTO_EINVAL, "heads of %d on 'cuda': rotations take %d at most",
                              p->width, 2 * ROPE_PAIRS));
        return;
    }
    for (int i = 0; i < p->width / 2; i++)
        shape.frequencies[i] = p->frequencies[i];
    cuda_check(dev, launch_rope(cuda_stream(dev), &shape, cuda_vec(x)), "rotate");
}

void cuda_embedding_forward(struct device *dev, int batch, int t, int width, int start,
                            struct view y, struct view tokens, struct view table,
                            struct view positions)
{
    const struct embedding_shape shape = {batch, t, width, start};
    cuda_check(dev,
               launch_embedding_forward(cuda_stream(dev), shape, cuda_vec(y), tokens.data,
                                        cuda_vec(table), cuda_vec(positions)),
               "look up tokens");
}

void cuda_embedding_backward(struct device *dev, int batch, int t, int width, struct view dtable,
                             struct view dpositions, struct view tokens, struct view dy)
{
    const struct embedding_shape shape = {batch, t, width, 0};
    uint64_t *keys = device_scratch(dev, embedding_keys(batch * t) * sizeof *keys);
    if (keys)
        cuda_check(dev,
                   launch_embedding_backward(cuda_stream(dev), shape, cuda_vec(dtable),
                                             cuda_vec(dpositions), tokens.data, cuda_vec(dy), keys),
                   "add up tokens");
}

/* Makes the kernels' shape. Returns false after a kept failure. */
static bool attention_of(struct device *dev, const struct attention *p, struct attention_shape *out)
{
    const size_t k = (size_t)p->t_k * (size_t)p->k_stride, v = (size_t)p->t_k * (size_t)p->v_stride;
    *out = (struct attention_shape){p->batch,
                                    p->t_q,
                                    p->t_k,
                                    p->heads,
                                    p->kv_heads,
                                    p->width,
                                    p->window,
                                    p->whole,
                                    p->scale,
                                    p->q_stride,
                                    p->k_stride,
                                    p->v_stride,
                                    p->o_stride,
                                    p->kv_batch_stride ? p->kv_batch_stride : k,
                                    p->kv_batch_stride ? p->kv_batch_stride : v};
    if (p->width <= ATTENTION_WIDTH)
        return true;
    device_fail(dev, fail(SOTTO_EINVAL, "heads of %d on 'cuda': attention takes %d at most",
                          p->width, ATTENTION_WIDTH));
    return false;
}

void cuda_attention_forward(struct device *dev, const struct attention *p, struct view o,
                            struct view q, struct view k, struct view v, struct view lse)
{
    struct attention_shape shape;
    const struct attention_rows r = {cuda_vec(q), cuda_vec(k), cuda_vec(v), cuda_vec(o), lse.data};
    if (!attention_of(dev, p, &shape))
        return;
    stream_t s = cuda_stream(dev);
    cuda_check(dev,
               flash_can(&shape, &r, NULL) ? launch_flash_forward(s, &shape, &r)
                                           : launch_attention_forward(s, &shape, &r),
               "attend");
}

void cuda_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                             struct view dk, struct view dv, struct view dy, struct view o,
                             struct view q, struct view k, struct view v, struct view lse)
{
    struct attention_shape shape;
    const struct attention_rows r = {cuda_vec(q), cuda_vec(k), cuda_vec(v), cuda_vec(o), lse.data};
    struct attention_grads g = {cuda_vec(dq), cuda_vec(dk), cuda_vec(dv), cuda_vec(dy), NULL};
    if (!attention_of(dev, p, &shape))
        return;
    g.delta = device_scratch(dev, attention_deltas(&shape) * sizeof *g.delta);
    if (!g.delta)
        return;
    stream_t s = cuda_stream(dev);
    cuda_check(dev,
               flash_can(&shape, &r, &g) ? launch_flash_backward(s, &shape, &r, &g)
                                         : launch_attention_backward(s, &shape, &r, &g),
               "attend");
}

void cuda_cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                        struct view targets, float scale, struct view losses, struct view places)
{
    cuda_check(dev,
               launch_cross_entropy(cuda_stream(dev), rows, vocab, (size_t)vocab, cuda_vec(logits),
                                    targets.data, scale, losses.data, places.data),
               "compute the loss");
}

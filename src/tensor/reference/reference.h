/* The oracle: every op as its formula, element by element in double precision. Nothing here is
 * shared with the fast table but memory, and nothing is tuned. */
#ifndef SOTTO_TENSOR_REFERENCE_REFERENCE_H
#define SOTTO_TENSOR_REFERENCE_REFERENCE_H

#include "tensor/ops.h"

static inline double get(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((const float *)v.data)[i]
                               : bf16_widen(((const uint16_t *)v.data)[i]);
}

static inline void put(struct view v, size_t i, double value)
{
    if (v.type == DTYPE_F32)
        ((float *)v.data)[i] = (float)value;
    else
        ((uint16_t *)v.data)[i] = bf16_round((float)value);
}

static inline void put_add(struct view v, size_t i, double value, bool add)
{
    put(v, i, add ? get(v, i) + value : value);
}

/* An absent view reads as zero. */
static inline double get_or_zero(struct view v, size_t i)
{
    return v.data ? get(v, i) : 0;
}

/* tokens.c */
void reference_rope(struct device *dev, const struct rope *p, struct view x, bool inverse);
void reference_embedding_forward(struct device *dev, int batch, int t, int width, int start,
                                 struct view y, struct view tokens, struct view table,
                                 struct view positions);
void reference_embedding_backward(struct device *dev, int batch, int t, int width,
                                  struct view dtable, struct view dpositions, struct view tokens,
                                  struct view dy);
void reference_attention_forward(struct device *dev, const struct attention *p, struct view o,
                                 struct view q, struct view k, struct view v, struct view lse);
void reference_attention_backward(struct device *dev, const struct attention *p, struct view dq,
                                  struct view dk, struct view dv, struct view dy, struct view o,
                                  struct view q, struct view k, struct view v, struct view lse);
void reference_cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                             struct view targets, float scale, struct view losses,
                             struct view places);

/* images.c */
void reference_conv_forward(struct device *dev, const struct conv *p, struct view y, struct view x,
                            struct view w, struct view bias);
void reference_conv_backward_x(struct device *dev, const struct conv *p, struct view dx,
                               struct view dy, struct view w, bool add);
void reference_conv_backward_w(struct device *dev, const struct conv *p, struct view dw,
                               struct view dbias, struct view dy, struct view x);
void reference_maxpool_forward(struct device *dev, const struct pooling *p, struct view y,
                               struct view winner, struct view x);
void reference_maxpool_backward(struct device *dev, const struct pooling *p, struct view dx,
                                struct view dy, struct view winner);
void reference_meanpool_forward(struct device *dev, int rows, int pixels, int channels,
                                struct view y, struct view x);
void reference_meanpool_backward(struct device *dev, int rows, int pixels, int channels,
                                 struct view dx, struct view dy);
void reference_batchnorm_forward(struct device *dev, const struct batchnorm *p, struct view y,
                                 struct view x, struct view gain, struct view bias,
                                 struct view residual, struct view running_mean,
                                 struct view running_variance, struct view stats);
void reference_batchnorm_backward(struct device *dev, const struct batchnorm *p, struct view dx,
                                  struct view dgain, struct view dbias, struct view dresidual,
                                  struct view dy, struct view x, struct view y, struct view gain,
                                  struct view stats);
void reference_relu_forward(struct device *dev, struct view y, struct view x, size_t count);
void reference_relu_backward(struct device *dev, struct view dx, struct view dy, struct view y,
                             size_t count);

/* codec.c */
void reference_tiles_encode(struct device *dev, const struct tiling *p, struct view basis_view,
                            struct view m, struct view index, struct view value);
void reference_tiles_decode(struct device *dev, const struct tiling *p, struct view basis_view,
                            int senders, struct view y, struct view index, size_t index_step,
                            struct view value, size_t value_step);
void reference_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count);
void reference_bits_unpack(struct device *dev, int bits, struct view y, struct view x,
                           size_t count);
void reference_sign(struct device *dev, struct view y, struct view x, size_t count);

/* pick.c */
void reference_choose(struct device *dev, const struct shuffle *p, struct view index, size_t count);
void reference_pick(struct device *dev, const struct picks *p, struct view value, struct view m,
                    struct view index);
void reference_put(struct device *dev, const struct picks *p, struct view y, float a,
                   struct view value, struct view index);
void reference_signs_pack(struct device *dev, struct view y, struct view x, size_t count);
void reference_signs_unpack(struct device *dev, struct view y, struct view x, size_t count,
                            bool add);

#endif

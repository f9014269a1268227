/* The layers that architectures chain together. Tensor members are indices into the table, -1:
 * none. */
#ifndef SOTTO_NN_LAYERS_LAYERS_H
#define SOTTO_NN_LAYERS_LAYERS_H

#include "nn/layers/conv.h"
#include "nn/layers/norm.h"

/* y = table[token] (+ positions) */
struct embed_layer {
    struct layer base;
    int width;
    int table, positions;
};

/* RMS norms of q and k before the rotation: over all heads, or over each with the same gain. */
enum qk_norm { QK_NONE, QK_ALL_HEADS, QK_EACH_HEAD };

/* y = x + out(attend(norm(x))), or with norm_after y = x + norm(out(attend(x))). */
struct attention_layer {
    struct layer base;
    int width, heads, kv_heads, head_width;
    int window;  /* 0: all earlier positions */
    bool whole;  /* every position attends to all positions, later positions too */
    float scale; /* of the scores            */
    enum linear_layout layout;
    bool norm_after;
    struct norm_part norm;
    int qkv_w, qkv_b; /* one projection for q, k and v; -1: three projections */
    int q_w, q_b, k_w, k_b, v_w, v_b;
    int o_w, o_b;
    enum qk_norm qk_norm;
    struct norm_part q_norm, k_norm;
    float *frequencies; /* (head_width/2) rotary embedding, owned; NULL: none */
    int index;          /* number of this layer among the attending layers, for the cache */
};

enum mlp_kind { MLP_GELU_TANH, MLP_GELU_EXACT, MLP_SWIGLU };

/* y = x + down(act(up(norm(x)))), norm_after as above. */
struct mlp_layer {
    struct layer base;
    int width, hidden;
    enum mlp_kind kind;
    enum linear_layout layout;
    bool norm_after;
    struct norm_part norm;
    int gate_w, up_w, up_b, down_w, down_b; /* gate: SwiGLU only */
};

static inline enum gelu_kind mlp_gelu(const struct mlp_layer *l)
{
    return l->kind == MLP_GELU_TANH ? GELU_TANH : GELU_EXACT;
}

/* The two halves of an mlp_layer with GELU and the norm before it are layers too, where a stage
 * ends between them: (x, up(norm(x))), and x + down(act(up)). */

/* y = gelu(w x + b); `first`: x are the samples. */
struct dense_layer {
    struct layer base;
    int in, out;
    bool first;
    int w, b;
};

/* The mean cross-entropy of the next token; has no output. */
struct head_layer {
    struct layer base;
    int width, vocab;
    struct norm_part norm;
    int w; /* (vocab, width) */
};

/* y = relu(norm(conv(images))), then the largest of 3 x 3 pixels at every second where it `pools`.
 */
struct stem_layer {
    struct layer base;
    struct conv_part conv;
    bool pools;
};

void stem_sides(const struct stem_layer *l, int *h,
                int *w); /* Writes the rows and columns of the output. */

/* y = relu(parts(x) + x), or + shortcut(x) where it `projects`. */
enum { RESIDUAL_PARTS = 3 };
struct residual_layer {
    struct layer base;
    int parts;
    struct conv_part part[RESIDUAL_PARTS], shortcut;
    bool projects;
};

/* Parts `from` to `to`-1 of a residual block, where stages end inside the block. The edge between
 * two slices holds the tensor that the block adds at its end, x or shortcut(x), and the result of
 * the last part. */
struct slice_layer {
    struct residual_layer block; /* the whole, the same in all of its slices */
    int from, to;
};

/* Positions of a sequence out of an image of h x w pixels: `token`, then the patches. */
struct patch_layer {
    struct layer base;
    int h, w, channels, patch, width;
    int token, positions; /* (1, 1, width), (1, 1 + patches, width) */
    int weight, bias;
};

/* The mean cross-entropy of a sample's class; has no output. */
struct classify_layer {
    struct layer base;
    int width, classes;
    int pixels;            /* pixels whose mean is projected; 0: the first position is */
    struct norm_part norm; /* layer norm of the first position, if `pixels` is 0 */
    int w, b;              /* (classes, width)                             */
};

extern const struct layer_ops embed_ops, attention_ops, mlp_ops, dense_ops, head_ops;
extern const struct layer_ops stem_ops, residual_ops, patch_ops, classify_ops;
extern const struct layer_ops slice_ops, mlp_up_ops,
    mlp_down_ops; /* pieces that join into a whole sublayer */

#endif

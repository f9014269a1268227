/* Layers: forward/backward pairs in a chain.
 *
 * A layer owns no activations and no parameters. What flows between layers is an `edge` of one or
 * more tensors (a decoder carries one; an encoder-decoder carries two), stored side by side so that
 * it can be sent as one flat buffer. What a layer must remember from forward to backward is `saved`
 * memory whose size it declares; `scratch` is its own until it returns. Both sizes grow with the
 * extent: memory for a large micro-batch must do for every smaller one. Parameters and gradients
 * come as one view a stage. */
#ifndef SOTTO_NN_LAYER_H
#define SOTTO_NN_LAYER_H

#include "tensor/batch.h"
#include "tensor/carve.h"
#include "tensor/ops.h"
#include "tensor/table.h"

#define EDGE_PARTS 2

/* The size of a micro-batch, and the type its activations are kept in. */
struct extent {
    int rows, t; /* sequences, positions */
    enum dtype type;
    bool all; /* results of norms and activations are kept too, which layers could compute again */
};

static inline size_t extent_tokens(struct extent e)
{
    return (size_t)e.rows * (size_t)e.t;
}

struct edge {
    int n;
    struct {
        size_t rows, width;
    } part[EDGE_PARTS];
};

static inline size_t edge_count(const struct edge *edge)
{
    size_t count = 0;
    for (int i = 0; i < edge->n; i++)
        count += edge->part[i].rows * edge->part[i].width;
    return count;
}

/* A part of what is laid out as `edge`. */
static inline struct view edge_part(struct view v, struct edge edge, int part)
{
    edge.n = part;
    return view_at(v, edge_count(&edge));
}

/* Keys and values of the positions already seen, for decoding. */
struct cache {
    int positions;        /* room, in tokens */
    struct buffer *k, *v; /* one a layer that attends: (batch, positions, kv_heads * width) */
};

/* One micro-batch on its way through the chain, as layers see it. */
struct pass {
    struct device *dev;
    const struct table *table;
    struct extent extent;
    struct view input;   /* the samples: tokens int32, or numbers fp32                  */
    struct view targets; /* int32: a token to predict at each position, or a class      */
    struct view state;   /* (optional) fp32, all of the model's that is not trained     */
    const struct table *state_table;
    bool again;       /* forward is run once more, for backward: state is not to be moved twice */
    bool training;    /* backward follows; the loss may be left to it         */
    bool half;        /* parameters are bf16, whatever their gradients are    */
    bool fresh;       /* backward writes what `writes` marks, and adds to the rest */
    float loss_scale; /* the gradient is that of loss_scale * sum of losses   */
    int start;        /* position of the first token; 0 unless decoding       */
    struct cache *cache; /* (optional) */
    float *logits;       /* (optional) (rows, vocab): the last layer writes them here */
    struct view losses;  /* (optional) (rows) fp32: one a token, by the last layer   */
    struct view places;  /* (optional) (rows) uint8: where the target came, 1: first */
};

/* Where a layer reads and writes. Backward may be given dx == dy (see `passes_on`). */
struct flow {
    struct view x, y;   /* input and output, laid out as their edges */
    struct view dx, dy; /* their gradients; none in forward          */
    struct room saved, scratch;
};

struct layer;

struct layer_ops {
    const char *name;
    bool passes_on; /* dx = dy + something; dx may be dy */
    struct edge (*output)(const struct layer *layer, struct extent e); /* (optional) none */
    /* Bytes; (optional) 0. */
    size_t (*saved)(const struct layer *layer, struct extent e);
    size_t (*scratch)(const struct layer *layer, struct extent e, bool backward);
    double (*flops)(const struct layer *layer, struct extent e); /* of forward */
    void (*forward)(const struct layer *layer, struct pass *pass, const struct view *theta,
                    struct flow flow);
    void (*backward)(const struct layer *layer, struct pass *pass, const struct view *theta,
                     const struct view *grad, struct flow flow);
    /* (optional) Marks the stages beside its own whose parameters it reads, and to whose gradients
     * it adds (tied weights). */
    void (*needs)(const struct layer *layer, const struct table *table, bool *needs);
    /* (optional) Marks in the table the tensors whose gradients its backward writes in a fresh
     * pass, each once and before any layer adds to it: those of linear_backward_w. */
    void (*writes)(const struct layer *layer, struct table *table);
    /* (optional) Becomes the layer that does its own work and then that of `next`, the one behind
     * it in its stage, if these are pieces of one sublayer that could have been cut there. */
    bool (*join)(struct layer *layer, const struct layer *next);
    void (*free)(struct layer *layer); /* (optional) what it owns beside itself */
};

struct layer {
    const struct layer_ops *ops;
    int stage;
};

static inline struct edge layer_output(const struct layer *l, struct extent e)
{
    return l->ops->output ? l->ops->output(l, e) : (struct edge){0};
}

static inline size_t layer_saved(const struct layer *l, struct extent e)
{
    return l->ops->saved ? l->ops->saved(l, e) : 0;
}

static inline size_t layer_scratch(const struct layer *l, struct extent e, bool backward)
{
    return l->ops->scratch ? l->ops->scratch(l, e, backward) : 0;
}

/* A tensor of the model's state that is not trained. */
static inline struct view state_of(const struct pass *pass, int tensor)
{
    return table_view(pass->state_table, &pass->state, tensor);
}

/* A projection of `rows` with parameters of this pass. */
static inline struct linear pass_linear(const struct pass *pass, size_t rows, int in, int out,
                                        enum linear_layout layout)
{
    return (struct linear){(int)rows, in, out, layout, pass->half, pass->fresh};
}

static inline struct view param(const struct pass *pass, const struct view *stages, int tensor)
{
    return table_view(pass->table, stages, tensor);
}

/* Of a projection y = x w + bias, dw and dbias, and dx = or, when `add`, +=; dx overlaps none
 * of the others. */
static inline void projection_backward(struct pass *pass, const struct linear *p, struct view dx,
                                       struct view dw, struct view dbias, struct view dy,
                                       struct view x, struct view w, bool add)
{
    struct device *dev = pass->dev;
    if (dev->ops->linear_backward) {
        dev->ops->linear_backward(dev, p, dx, dw, dbias, dy, x, w, add);
        return;
    }
    dev->ops->linear_backward_w(dev, p, dw, dbias, dy, x);
    dev->ops->linear_backward_x(dev, p, dx, dy, w, add);
}

/* The gradient in front of a layer that passes on, before it adds to it. */
static inline void start_dx(struct pass *pass, struct flow flow, int width)
{
    if (flow.dx.data != flow.dy.data)
        pass->dev->ops->copy(pass->dev, flow.dx, flow.dy,
                             extent_tokens(pass->extent) * (size_t)width);
}

#endif

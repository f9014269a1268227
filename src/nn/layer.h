/* Layers: forward/backward pairs in a chain.
 *
 * A layer owns no activations and no parameters. An `edge` of one or more tensors flows between two
 * layers (a decoder has one tensor, an encoder-decoder two), stored in one piece, so that a
 * pipeline sends an edge as one flat buffer. A layer declares the bytes of `saved` memory that it
 * keeps from forward to backward; `scratch` is the layer's own until the call returns. Both sizes
 * grow with the extent: memory for a large micro-batch must do for every smaller micro-batch.
 * Parameters and gradients arrive as one view a stage. */
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
    bool all; /* also keep results of norms and activations that layers could compute again */
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

/* Returns the view of one part of a buffer that is laid out as `edge`. */
static inline struct view edge_part(struct view v, struct edge edge, int part)
{
    edge.n = part;
    return view_at(v, edge_count(&edge));
}

/* Keys and values of the positions already seen, for decoding. */
struct cache {
    int positions;        /* room, in tokens */
    struct buffer *k, *v; /* (batch, positions, kv_heads * width) for each attending layer */
};

/* One micro-batch on the way through the chain. */
struct pass {
    struct device *dev;
    const struct table *table;
    struct extent extent;
    struct view input;   /* the samples: tokens int32, or numbers fp32 */
    struct view targets; /* int32: a token to predict at each position, or a class */
    struct view state;   /* (optional) fp32, the whole untrained state of the model */
    const struct table *state_table;
    bool again;          /* forward is run again for backward: the state must not move twice */
    bool training;       /* backward follows; the loss may be left to it */
    bool half;           /* parameters are bf16, whatever their gradients are */
    bool fresh;          /* backward writes tensors marked by `writes`, adds to all others */
    float loss_scale;    /* the gradient is that of loss_scale * sum of losses */
    int start;           /* position of the first token; 0 unless decoding */
    struct cache *cache; /* (optional) */
    float *logits;       /* (optional) (rows, vocab): written by the last layer */
    struct view losses;  /* (optional) (rows) fp32: losses, written by the last layer */
    struct view places;  /* (optional) (rows) uint8: rank of the target, 1: most likely */
};

/* Memory that a layer reads and writes. Backward may be given dx == dy (see `passes_on`). */
struct layer_flow {
    struct view x, y;   /* input and output, laid out as edges */
    struct view dx, dy; /* gradients of x and y; none in forward */
    struct room saved, scratch;
};

struct layer;

struct layer_ops {
    const char *name;
    bool passes_on; /* dx = dy + more; dx may be dy */
    struct edge (*output)(const struct layer *layer, struct extent e); /* (optional) none */
    /* Bytes; (optional) 0. */
    size_t (*saved)(const struct layer *layer, struct extent e);
    size_t (*scratch)(const struct layer *layer, struct extent e, bool backward);
    double (*flops)(const struct layer *layer, struct extent e); /* of forward */
    void (*forward)(const struct layer *layer, struct pass *pass, const struct view *theta,
                    struct layer_flow flow);
    void (*backward)(const struct layer *layer, struct pass *pass, const struct view *theta,
                     const struct view *grad, struct layer_flow flow);
    /* (optional) Marks the other stages whose parameters the layer reads and to whose gradients the
     * layer adds (tied weights). */
    void (*needs)(const struct layer *layer, const struct table *table, bool *needs);
    /* (optional) Marks in the table the tensors whose gradients backward writes in a fresh pass,
     * each once and before any layer adds to the gradient: the tensors of linear_backward_w. */
    void (*writes)(const struct layer *layer, struct table *table);
    /* (optional) Turns the layer into one that does its work and the work of `next`, the following
     * layer of the same stage, if both are pieces of one sublayer that a stage border could have
     * cut there. Returns true if the layers were joined. */
    bool (*join)(struct layer *layer, const struct layer *next);
    void (*free)(struct layer *layer); /* (optional) frees what the layer owns */
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

/* Returns a tensor of the model's untrained state. */
static inline struct view state_of(const struct pass *pass, int tensor)
{
    return table_view(pass->state_table, &pass->state, tensor);
}

/* Describes a projection of `rows` with parameters of this pass. */
static inline struct linear pass_linear(const struct pass *pass, size_t rows, int in, int out,
                                        enum linear_layout layout)
{
    return (struct linear){(int)rows, in, out, layout, pass->half, pass->fresh};
}

static inline struct view pass_param(const struct pass *pass, const struct view *stages, int tensor)
{
    return table_view(pass->table, stages, tensor);
}

/* Computes dw and dbias of a projection y = x w + bias, and dx = (or += when `add`); dx overlaps no
 * other argument. */
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

/* Copies dy to dx for a layer that passes dy on and then adds to dx; does nothing if dx is dy. */
static inline void start_dx(struct pass *pass, struct layer_flow flow, int width)
{
    if (flow.dx.data != flow.dy.data)
        pass->dev->ops->copy(pass->dev, flow.dx, flow.dy,
                             extent_tokens(pass->extent) * (size_t)width);
}

#endif

/* A tape: the activations of one micro-batch in flight through a model.
 *
 * Several tapes may be under way through one model at once. Memory is taken from a pool stage by
 * stage in forward and given back stage by stage in backward, so a schedule pays for what is really
 * alive. The input of every stage is one flat buffer of its own (an edge): a pipeline sends and
 * receives it as it is.
 *
 *     tape_begin(tape, batch, TAPE_TRAIN, scale)
 *     tape_forward(tape, 0, theta) ... tape_forward(tape, n-1, theta)
 *     tape_backward(tape, n-1, theta, grad) ... tape_backward(tape, 0, theta, grad)
 *
 * `theta` and `grad` are one view a stage; only those that model_stage_needs names are read.
 * Backward adds to `grad`, unless it is fresh, and must be given the parameters that forward was
 * given. */
#ifndef SOTTO_NN_TAPE_H
#define SOTTO_NN_TAPE_H

#include "nn/model.h"
#include "tensor/pool.h"

struct tape_stage {
    struct pool_block *edge;  /* input of the stage; none for the first          */
    struct pool_block *dedge; /* its gradient, once backward reached it          */
    struct pool_block *saved; /* what the layers keep, inner edges included      */
};

struct tape {
    const struct model *model;
    struct device *dev;
    struct pool *pool; /* shared by the tapes of a worker */
    struct pass pass;
    bool recompute;           /* keep only the edges and run forward again in backward */
    struct tape_stage *stage; /* (n_stage + 1)  */
    struct flow *flow;        /* (n_layer) where backward finds things; used within a call */
    struct extent most;       /* what it was made for */
    const struct batch *batch;
    struct buffer input, targets, losses, places; /* see struct pass */
    float *host_losses;                           /* ... and read from there */
    uint8_t *host_places;
    struct view state; /* (optional) of the model, not owned: see struct pass. Without it none */
    bool want_hits;
    bool scored;                  /* the last stage has run: there are losses */
    struct device_mark scored_at; /* in training: when the last layer's backward made them */
};

enum sotto_status tape_init(struct tape *tape, const struct model *model, struct device *dev,
                            struct pool *pool, struct extent most, bool recompute);
void tape_free(struct tape *tape);

enum tape_mode { TAPE_TRAIN, TAPE_EVALUATE };

/* Bytes of activations that one micro-batch of extent `e` holds when its forward is done. */
size_t tape_bytes(const struct model *model, struct extent e, bool recompute);

/* A new micro-batch; what an earlier one left is dropped. Training: backward follows, and adds the
 * gradient of `scale`, not 0, times the summed loss. */
enum sotto_status tape_begin(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                             float scale);

/* Of a training micro-batch that has just begun: the gradients hold nothing yet, not even zeros,
 * and the backward passes of all stages, the last one's first, write what they would add. */
void tape_fresh(struct tape *tape);

enum sotto_status tape_forward(struct tape *tape, int k, const struct view *theta);
enum sotto_status tape_backward(struct tape *tape, int k, const struct view *theta,
                                const struct view *grad);

/* The whole chain. */
enum sotto_status tape_run(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                           float scale, const struct view *theta, const struct view *grad);

/* Sum of the losses and number of targets (and, if want_hits, of those that came first,
 * or among the first TAPE_NEAR), once the
 * last stage has run: after its backward in training, after its forward otherwise. Where it runs
 * elsewhere there is no loss. It is read on `dev`, the tape's or another one, which waits for the
 * losses and not for the rest of a backward pass; device_check(dev) raises failures. */
enum { TAPE_NEAR = 5 };
struct tape_result {
    double loss;
    int64_t targets, hits, near;
};
struct tape_result tape_result(struct tape *tape, struct device *dev);

/* The border before stage k (k >= 1) as one flat buffer of tape_edge_count elements: written by
 * stage k - 1, or by whoever imports it. Makes the memory if it is not there yet. */
size_t tape_edge_count(const struct tape *tape, int k);
enum sotto_status tape_edge(struct tape *tape, int k, struct view *out);
enum sotto_status tape_edge_gradient(struct tape *tape, int k, struct view *out);

/* Gives both back, where what they held has been sent and is not needed here. */
void tape_edge_drop(struct tape *tape, int k);

#endif

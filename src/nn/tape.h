/* A tape: the activations of one micro-batch in flight through a model.
 *
 * Several tapes of one model may be in flight at once. Forward takes memory from a pool stage by
 * stage, and backward gives it back stage by stage, so a schedule pays for live activations only.
 * The input of every stage is one flat buffer (an edge), which a pipeline sends and receives as it
 * is.
 *
 *     tape_begin(tape, batch, TAPE_TRAIN, scale)
 *     tape_forward(tape, 0, theta) ... tape_forward(tape, n-1, theta)
 *     tape_backward(tape, n-1, theta, grad) ... tape_backward(tape, 0, theta, grad)
 *
 * `theta` and `grad` are one view a stage; the stages of model_stage_needs are read, no others.
 * Backward adds to `grad`, unless the tape is fresh, and needs the parameters that forward had. */
#ifndef SOTTO_NN_TAPE_H
#define SOTTO_NN_TAPE_H

#include "nn/model.h"
#include "tensor/pool.h"

struct tape_stage {
    struct pool_block *edge;  /* input of the stage; none for the first stage */
    struct pool_block *dedge; /* gradient of the input, from the start of backward on */
    struct pool_block *saved; /* saved memory of the layers, inner edges included */
};

struct tape {
    const struct model *model;
    struct device *dev;
    struct pool *pool; /* shared by the tapes of a worker */
    struct pass pass;
    bool recompute;           /* keep only the edges and run forward again in backward */
    struct tape_stage *stage; /* (n_stage + 1) */
    struct layer_flow *flow;  /* (n_layer) memory of the layers in backward; used within a call */
    struct extent most;       /* largest micro-batch that fits */
    const struct batch *batch;
    struct buffer input, targets, losses, places; /* see struct pass */
    float *host_losses;                           /* copies in host memory, (targets) each */
    uint8_t *host_places;
    struct view state; /* (optional) of the model, not owned: see struct pass; absent: no state */
    bool want_hits;
    bool scored;                  /* the last stage has run and has made the losses */
    struct device_mark scored_at; /* in training: after the last layer's backward */
};

enum sotto_status tape_init(struct tape *tape, const struct model *model, struct device *dev,
                            struct pool *pool, struct extent most, bool recompute);
void tape_free(struct tape *tape);

enum tape_mode { TAPE_TRAIN, TAPE_EVALUATE };

/* Returns the bytes of activations that one micro-batch of extent `e` holds after its forward. */
size_t tape_bytes(const struct model *model, struct extent e, bool recompute);

/* Starts a micro-batch; memory of an earlier micro-batch is dropped. In training backward follows,
 * and adds the gradient of `scale` (not 0) times the summed loss. */
enum sotto_status tape_begin(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                             float scale);

/* For a training micro-batch that has just begun: the gradients hold nothing yet, not even zeros.
 * The backward passes of all stages, from the last stage on, write what they would add. */
void tape_fresh(struct tape *tape);

enum sotto_status tape_forward(struct tape *tape, int k, const struct view *theta);
enum sotto_status tape_backward(struct tape *tape, int k, const struct view *theta,
                                const struct view *grad);

/* Runs the whole chain. */
enum sotto_status tape_run(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                           float scale, const struct view *theta, const struct view *grad);

/* Returns the sum of the losses and the number of targets, and with want_hits the targets that were
 * the most likely (`hits`) or among the TAPE_NEAR most likely (`near`). To be called once the last
 * stage has run: after backward in training, after forward otherwise. The loss is 0 in a process
 * without the last stage. `dev`, the tape's device or another, reads the losses; it waits for the
 * losses and not for the rest of a backward pass; device_check(dev) raises failures. */
enum { TAPE_NEAR = 5 };
struct tape_result {
    double loss;
    int64_t targets, hits, near;
};
struct tape_result tape_result(struct tape *tape, struct device *dev);

/* Returns the border before stage k (k >= 1) as one flat buffer of tape_edge_count elements:
 * written by stage k - 1, or by a caller that imports an edge. Allocated at the first call. */
size_t tape_edge_count(const struct tape *tape, int k);
enum sotto_status tape_edge(struct tape *tape, int k, struct view *out);
enum sotto_status tape_edge_gradient(struct tape *tape, int k, struct view *out);

/* Gives both buffers back, after the contents have been sent and are not needed here. */
void tape_edge_drop(struct tape *tape, int k);

#endif

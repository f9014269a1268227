/* A model: a chain of layers cut into stages of balanced work, and the table of the tensors.
 *
 * A model holds no parameters and no activations, so one model serves any number of workers,
 * versions and micro-batches at once. */
#ifndef SOTTO_NN_MODEL_H
#define SOTTO_NN_MODEL_H

#include "nn/config.h"
#include "nn/layer.h"

struct model {
    struct model_config config;
    struct table table;
    struct table state;   /* untrained numbers next to the parameters; n 0: none */
    struct sample sample; /* of the model's input */
    struct layer **layer; /* owned; a layer names the tensors of its parameters */
    int n_layer, room;
    int n_stage;
    int *first; /* (n_stage + 1): stage k is layers first[k] .. first[k+1]-1 */
    int n_attention;
    bool no_memory; /* a tensor could not be added; model_init fails */
};

/* Builds the model of a complete configuration (model_config_check); `pad`: see table_layout. */
enum sotto_status model_init(struct model *model, const struct model_config *config, int n_stage,
                             int pad);
void model_free(struct model *model);

/* model_init with an architecture that a configuration cannot name. */
struct arch;
enum sotto_status model_init_as(struct model *model, const struct arch *arch,
                                const struct model_config *config, int n_stage, int pad);

/* Sets needs[j] for every stage j whose parameters stage k reads: k itself, and the stages with a
 * tensor of stage k. */
void model_stage_needs(const struct model *model, int k, bool *needs);

/* Returns the extent of a micro-batch of `rows` samples, of up to `t` tokens each if samples are
 * tokens. */
struct extent model_extent(const struct model *model, int rows, int t, enum dtype type);

/* Returns the FLOPs of one forward and backward over a micro-batch, or of stage k's forward alone.
 */
double model_flops(const struct model *model, struct extent e);
double model_stage_flops(const struct model *model, int k, struct extent e);

/* Writes new parameters into a whole flat fp32 vector, as a function of the seed and of each
 * tensor's name alone. */
void model_randomize(const struct model *model, uint64_t seed, float *flat);

/* Writes the initial state, (table_count of model->state). */
void model_state_start(const struct model *model, float *flat);

/* Scales the state as a training step does before it adds to the state: a running mean by 1 -
 * momentum; a count stays. */
void model_state_fade(const struct model *model, struct device *dev, struct view state);

#endif

/* A model: a chain of layers cut into stages of balanced work, and the table of its tensors.
 *
 * It holds no parameters and no activations, so one model serves any number of workers, versions
 * and micro-batches at once. */
#ifndef SOTTO_NN_MODEL_H
#define SOTTO_NN_MODEL_H

#include "nn/config.h"
#include "nn/layer.h"

struct model {
    struct model_config config;
    struct table table;
    struct table state;   /* what is kept beside the parameters and not trained; n 0: nothing */
    struct sample sample; /* what it is computed from */
    struct layer **layer; /* owned; parameters of layer i are the tensors it names */
    int n_layer, room;
    int n_stage;
    int *first; /* (n_stage + 1): stage k is layers first[k] .. first[k+1]-1 */
    int n_attention;
    bool no_memory; /* a tensor could not be added; model_init fails */
};

/* `config` complete (model_config_check); `pad`: see table_layout. */
enum sotto_status model_init(struct model *model, const struct model_config *config, int n_stage,
                             int pad);
void model_free(struct model *model);

/* The same with an architecture that is not among those a configuration can name. */
struct arch;
enum sotto_status model_init_as(struct model *model, const struct arch *arch,
                                const struct model_config *config, int n_stage, int pad);

/* The stages whose parameters stage k reads, its own and those it shares a tensor with: needs[j]
 * for all j. */
void model_stage_needs(const struct model *model, int k, bool *needs);

/* A micro-batch of `rows` samples, of up to `t` tokens each if they are of tokens. */
struct extent model_extent(const struct model *model, int rows, int t, enum dtype type);

/* FLOPs of one forward and backward over a micro-batch, and of stage k's forward alone. */
double model_flops(const struct model *model, struct extent e);
double model_stage_flops(const struct model *model, int k, struct extent e);

/* New parameters into a whole flat fp32 vector, a function of the seed and each tensor's name
 * alone. */
void model_randomize(const struct model *model, uint64_t seed, float *flat);

/* The state as it begins, (table_count of model->state). */
void model_state_start(const struct model *model, float *flat);

/* What a training step leaves of the state before it adds its own: the other share of a running
 * mean, and all of a count. */
void model_state_fade(const struct model *model, struct device *dev, struct view state);

#endif

/* A model: an architecture and its sizes, from a preset, from options, or from a Hugging Face
 * config.json. */
#ifndef SOTTO_NN_CONFIG_H
#define SOTTO_NN_CONFIG_H

#include <stddef.h>

#include "base/json.h"
#include "base/option/option.h"
#include "nn/arch/arch.h"
#include "tensor/batch.h"

enum { ARCH_ROOM = 256 }; /* bytes of an architecture's own configuration */
enum model_tied { TIED_UNSET, TIED_YES, TIED_NO };

/* Rotary frequencies for sequences longer than those of the first training. LLAMA3 divides low
 * frequencies by `factor`: those of less than `low` turns in `original` positions wholly, those of
 * more than `high` turns not at all. LINEAR divides all. */
enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };
struct rope_scaling {
    enum rope_kind kind;
    double factor, low, high, original;
};

/* [model]. A field that is 0, "" or unset is filled in by model_config_resolve. */
struct model_config {
    char preset[OPTION_ROOM];
    int arch; /* enum model_arch */
    int layers, width, heads, kv_heads, head_width, mlp_width;
    int vocab, positions;
    int window;                   /* of local attention, in positions */
    char pattern[OPTION_ROOM];    /* 'g'lobal or 'l'ocal a layer, repeated */
    char activation[OPTION_ROOM]; /* by its Hugging Face name */
    double norm_eps, rope_theta, init_std;
    struct rope_scaling rope; /* of config.json */
    int tied;                 /* enum model_tied: the output projection is the token embedding */
    /* The configurations that architectures have of their own, by enum model_arch. */
    _Alignas(max_align_t) unsigned char own[ARCH_COUNT][ARCH_ROOM];
};

/* Returns the architecture's own configuration in `config`. */
static inline void *arch_config(struct model_config *config, const struct arch *arch)
{
    return config->own[arch->number];
}

static inline const void *arch_own(const struct model_config *config, const struct arch *arch)
{
    return config->own[arch->number];
}

/* Returns the architecture's own section, over the values of arch_config. */
struct option_section arch_section(struct model_config *config, const struct arch *arch);

/* Refuses options of `arch` that the user set, since the model has another architecture. */
enum sotto_status arch_refuse(const struct model_config *config, const struct arch *arch);

extern const struct option model_options[];
extern const int model_options_count;

/* [model], and a section for each architecture with keys of its own. */
enum { MODEL_SECTIONS = ARCH_COUNT };
void model_sections(struct model_config *config, struct option_section out[MODEL_SECTIONS]);

struct model_preset {
    const char *about;
    struct model_config config; /* config.preset is the name */
    const char *own;            /* (optional) its architecture's own keys: "key=value key=value" */
};

extern const struct model_preset model_presets[];
extern const int model_presets_count;

/* Returns the architecture that the configuration or its preset names, ARCH_UNSET for none. */
int model_config_arch(const struct model_config *config);

/* Turns a user's section into a complete configuration: preset, overrides, then derived sizes. A
 * vocabulary of 0 stays 0 until the tokenizer is known; open sizes of images stay 0 until the data
 * are known. */
enum sotto_status model_config_resolve(struct model_config *config);

/* Returns the kind of the model's samples: images if the architecture has sizes of images. */
const struct sample_kind *model_config_kind(const struct model_config *config);

/* Returns the sizes of the images of a model over images, NULL for a model over text. */
struct image_sizes *model_config_image(struct model_config *config);

/* Takes the sizes that a model over images leaves open from the data. Fails if the data do not fit.
 */
enum sotto_status model_config_fit(struct model_config *config, const struct image_sizes *data);

/* True if a size is left for the data to determine: the vocabulary, or sizes of images. */
bool model_config_is_open(const struct model_config *config);

/* Checks that the sizes fit together; no size may be open. */
enum sotto_status model_config_check(const struct model_config *config);

/* Read and write Hugging Face's config.json; `*json` is a new reference. A model over images may
 * leave sizes open. */
enum sotto_status model_config_from_json(struct model_config *config, const json_t *json);
enum sotto_status model_config_to_json(const struct model_config *config, json_t **json);

/* True if layer `i` attends locally. */
bool model_config_local(const struct model_config *config, int i);

#endif

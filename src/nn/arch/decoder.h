/* Decoders: transformers that predict the next token of a text. A family of decoders is a row of
 * families.c: a choice of parts, names of tensors, members of config.json and defaults. No other
 * code knows the families. */
#ifndef SOTTO_NN_ARCH_DECODER_H
#define SOTTO_NN_ARCH_DECODER_H

#include "nn/config.h"
#include "nn/layers/layers.h"

/* Layers that attend within a window, of `window` positions: with WINDOWS_BY_LAYER those of
 * `pattern`. */
enum decoder_windows { WINDOWS_NONE, WINDOWS_ALL, WINDOWS_BY_LAYER };

/* The parts of a family. */
struct decoder_choices {
    enum norm_kind norm; /* layer norms have biases */
    bool norm_after;     /* y = x + norm(f(x)) instead of y = x + f(norm(x)) */
    enum qk_norm qk_norm;
    bool qkv_fused; /* one projection for q, k and v */
    bool qkv_bias, out_bias, mlp_bias;
    enum linear_layout layout; /* of all projections but the output over the vocabulary */
    bool positions;            /* a learned table of positions instead of a rotation of q and k */
    bool unscaled;             /* scores are q k, not q k / sqrt(head_width) */
    bool equal_heads;          /* kv_heads = heads */
    bool even_heads;           /* heads times head_width = width */
    enum decoder_windows windows; /* if the model has a `window` */
    bool gated;                   /* down(silu(gate(x)) * up(x)) instead of down(gelu(up(x))) */
    bool narrow_init;             /* new out and down weights: init_std / sqrt(2 layers) */
};

/* Modules of a decoder. Their names in model.safetensors end with ".weight" and ".bias". */
enum decoder_role {
    ROLE_EMBED,
    ROLE_POSITIONS,
    ROLE_NORM1, /* of the attention sublayer */
    ROLE_QKV,   /* if qkv_fused, otherwise the following three */
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_OUT,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_NORM2, /* of the feed-forward sublayer */
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_NORM, /* before the output over the vocabulary */
    ROLE_HEAD, /* unless tied */
    ROLE_COUNT
};

/* Names by role, with %d for the number of the layer. */
typedef const char *const decoder_names[ROLE_COUNT];
extern decoder_names gpt2_names, gpt_neo_names, llama_names, olmo2_names;

struct decoder {
    struct decoder_choices choices;
    const decoder_names *names;
    const struct arch_member *members; /* of config.json */
    int n_members;
    const char *activation;         /* the member of config.json */
    const char *const *activations; /* its values, ends with NULL; the first is the default */
    struct model_config fresh;      /* sizes of a new model that the user leaves open; 0: derived */
    /* Values of members that config.json lacks, which are those of transformers' configuration
     * class; 0: as `fresh` has them. */
    struct model_config absent;
    /* (optional) Members of config.json that no table can describe. */
    enum sotto_status (*read)(struct model_config *c, const json_t *json);
    void (*write)(const struct model_config *c, json_t *json);
};

#define DECODER_MEMBERS(table)                                                                     \
    .members = (table), .n_members = (int)(sizeof(table) / sizeof *(table))

void decoder_defaults(struct model_config *c);
enum sotto_status decoder_check(const struct model_config *c);
enum sotto_status decoder_from_json(struct model_config *c, const json_t *json);
json_t *decoder_to_json(const struct model_config *c);
enum sotto_status decoder_build(struct model *m);

/* The rotary part of the same. rope_frequencies returns radians a position, (head_width / 2), to be
 * freed; NULL without memory. */
enum sotto_status rope_check(const struct model_config *c);
enum sotto_status rope_read(struct model_config *c, const json_t *json);
json_t *rope_write(const struct model_config *c);
float *rope_frequencies(const struct model_config *c);

/* The members of a family's struct arch, with the row `word`. */
#define DECODER(id, word)                                                                          \
    .number = ARCH_##id, .name = #word, .text = true, .decoder = &(word),                          \
    .defaults = decoder_defaults, .check = decoder_check, .from_json = decoder_from_json,          \
    .to_json = decoder_to_json, .build = decoder_build

#endif

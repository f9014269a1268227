/* An architecture: how its chain is built and how its config.json reads. One file each. */
#ifndef SOTTO_NN_ARCH_ARCH_H
#define SOTTO_NN_ARCH_ARCH_H

#include "base/json.h"
#include "base/option/option.h"

struct model;
struct model_config;

/* The architectures there are: a line each, and a file with its struct arch. The name is Hugging
 * Face's model_type. */
#define ARCHS(ARCH)                                                                                \
    ARCH(GPT2, gpt2)                                                                               \
    ARCH(GPT_NEO, gpt_neo)                                                                         \
    ARCH(LLAMA, llama)                                                                             \
    ARCH(OLMO2, olmo2)                                                                             \
    ARCH(MLP, mlp)                                                                                 \
    ARCH(RESNET, resnet)                                                                           \
    ARCH(VIT, vit)

#define ARCH_NUMBER(id, name) ARCH_##id,
enum model_arch { ARCH_UNSET, ARCHS(ARCH_NUMBER) ARCH_COUNT };

/* What a model over images is computed from and tells apart; 0: open, the data's to say. */
struct image_sizes {
    int height, width, channels, classes;
};

/* What the names of a classifier's tensors begin with, in models over images: they alone depend on
 * the classes. */
#define ARCH_CLASSIFIER "classifier."

/* A part of tensors' names, and what stands for it in files of other versions of transformers. */
struct arch_rename {
    const char *from, *to;
};

struct arch {
    enum model_arch number; /* its place in archs[]; ARCH_UNSET: it has none */
    const char *name;       /* Hugging Face's model_type */
    const char *about;      /* a paragraph for --help */
    const char *hf_class;   /* in config.json's "architectures" */
    /* (optional) Keys of its own, with its own defaults, beside those of [model] that all share:
     * the section of its name. Where their values are kept, arch_own tells. */
    const struct option *options;
    int n_options;
    size_t config_bytes;
    bool
        text; /* a language model: it has the sizes of [model], which text.c completes and checks */
    const char *const *keys; /* (optional) of [model] that it has a use for without being text */
    const struct arch_rename *renames;        /* (optional) the first that fits, up to a NULL */
    void (*defaults)(struct model_config *c); /* (optional) fills what is still open */
    enum sotto_status (*check)(const struct model_config *c); /* (optional) */
    /* (optional) Of models over images: where its own configuration has their sizes. */
    struct image_sizes *(*image)(struct model_config *c);
    /* (optional) Whether transformers has no such model: no one else reads the folder. Default: it
     * has. */
    bool (*alone)(const struct model_config *c);
    enum sotto_status (*from_json)(struct model_config *c, const json_t *json);
    json_t *(*to_json)(const struct model_config *c); /* all but the members every model has */
    enum sotto_status (*build)(struct model *m);
};

#define ARCH_OPTIONS(S, table)                                                                     \
    .options = (table), .n_options = (int)(sizeof(table) / sizeof *(table)),                       \
    .config_bytes = sizeof(S)

/* The keys of the image_sizes that a configuration has as its member `image`. */
#define IMAGE_OPTION(S, name, most, about)                                                         \
    {                                                                                              \
        .key = #name, .type = OPTION_TYPE_INT, .offset = offsetof(S, image.name), .preset = "0",   \
        .max = (most), .help = (about)                                                             \
    }
#define IMAGE_OPTIONS(S)                                                                           \
    IMAGE_OPTION(S, height, IMAGE_SIDE,                                                            \
                 "rows of an image; 0: as the data have it, here and below"),                      \
        IMAGE_OPTION(S, width, IMAGE_SIDE, "columns of an image"),                                 \
        IMAGE_OPTION(S, channels, IMAGE_CHANNELS, "1: grey, 3: red, green and blue"),              \
        IMAGE_OPTION(S, classes, IMAGE_CLASSES, "classes to tell apart")
enum { IMAGE_SIDE = 1 << 14, IMAGE_CHANNELS = 4, IMAGE_CLASSES = 1 << 20 };

#define ARCH_DECLARE(id, name) extern const struct arch arch_##name;
ARCHS(ARCH_DECLARE)
extern const struct arch *const archs[]; /* by enum model_arch; [0]: none */

/* Of language models: what the user left open from a preset, sizes that follow from others, and
 * whether they go together. */
void text_inherit(struct model_config *c, const struct model_config *preset);
enum sotto_status text_sizes(struct model_config *c);
enum sotto_status text_check(const struct model_config *c);

/* config.json by table: integer and real members of struct model_config under their Hugging Face
 * names. */
struct arch_member {
    const char *hf;
    size_t offset;
    bool real, required;
};

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n);
json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class);

/* A text member that must have one of the values sotto knows; absent is fine. */
enum sotto_status arch_expect(const json_t *json, const char *key, const char *const *known);

/* Angles of the rotary embedding; NULL without memory. */
float *arch_frequencies(const struct model_config *c);

#endif

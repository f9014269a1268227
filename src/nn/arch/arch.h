/* An architecture: builds a chain of layers, reads and writes config.json. */
#ifndef SOTTO_NN_ARCH_ARCH_H
#define SOTTO_NN_ARCH_ARCH_H

#include <stddef.h>

#include "base/json.h"
#include "base/option/option.h"

struct decoder;
struct model;
struct model_config;

/* The architectures: a line each, and a struct arch in families.c or in a file of its own. The name
 * is Hugging Face's model_type. */
#define ARCHS(ARCH)                                                                                \
    ARCH(GPT2, gpt2)                                                                               \
    ARCH(GPT_NEO, gpt_neo)                                                                         \
    ARCH(LLAMA, llama)                                                                             \
    ARCH(OLMO2, olmo2)                                                                             \
    ARCH(MISTRAL, mistral)                                                                         \
    ARCH(QWEN2, qwen2)                                                                             \
    ARCH(QWEN3, qwen3)                                                                             \
    ARCH(MLP, mlp)                                                                                 \
    ARCH(RESNET, resnet)                                                                           \
    ARCH(VIT, vit)

#define ARCH_NUMBER(id, name) ARCH_##id,
enum model_arch { ARCH_UNSET, ARCHS(ARCH_NUMBER) ARCH_COUNT };

/* Sizes of a model over images; 0: open, taken from the data. */
struct image_sizes {
    int height, width, channels, classes;
};

/* The first part of the names of a classifier's tensors, in models over images: only these tensors
 * depend on the number of classes. */
#define ARCH_CLASSIFIER "classifier."

/* A part of tensors' names, and its replacement in files of other versions of transformers. */
struct arch_rename {
    const char *from, *to;
};

struct arch {
    enum model_arch number; /* index in archs[]; ARCH_UNSET: not in archs[] */
    const char *name;       /* Hugging Face's model_type */
    const char *about;      /* a paragraph for --help */
    const char *hf_class;   /* in config.json's "architectures" */
    /* (optional) Own keys with own defaults, in addition to the common keys of [model]: the section
     * that has the architecture's name. arch_own returns the values. */
    const struct option *options;
    int n_options;
    size_t config_bytes;
    bool text; /* a language model: has the sizes of [model], which text.c completes and checks */
    const struct decoder *decoder; /* (optional) the row of a family of families.c */
    const char *const *keys;       /* (optional) keys of [model] that a model without `text` uses */
    const struct arch_rename *renames; /* (optional) the first match applies; ends with NULL */
    void (*defaults)(struct model_config *c);                 /* (optional) fills open sizes */
    enum sotto_status (*check)(const struct model_config *c); /* (optional) */
    /* (optional) Of models over images: the sizes of the images in the architecture's
     * configuration. */
    struct image_sizes *(*image)(struct model_config *c);
    /* (optional) True if the model is not in transformers and only sotto reads the folder. Default:
     * false. */
    bool (*alone)(const struct model_config *c);
    enum sotto_status (*from_json)(struct model_config *c, const json_t *json);
    json_t *(*to_json)(const struct model_config *c); /* all but the members of every model */
    enum sotto_status (*build)(struct model *m);
};

#define ARCH_OPTIONS(S, table)                                                                     \
    .options = (table), .n_options = (int)(sizeof(table) / sizeof *(table)),                       \
    .config_bytes = sizeof(S)

/* Options for the image_sizes that a configuration holds as its member `image`. */
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
        IMAGE_OPTION(S, classes, IMAGE_CLASSES, "number of classes")
enum { IMAGE_SIDE = 1 << 14, IMAGE_CHANNELS = 4, IMAGE_CLASSES = 1 << 20 };

#define ARCH_DECLARE(id, name) extern const struct arch arch_##name;
ARCHS(ARCH_DECLARE)
extern const struct arch *const archs[]; /* by enum model_arch; [0]: none */

/* For language models: take open sizes from a preset (text_inherit: of the sizes of another
 * architecture's preset only those that fit every architecture), derive sizes from other sizes, and
 * check that the sizes fit together. */
void text_inherit(struct model_config *c, const struct model_config *preset);
void text_take(struct model_config *c, const struct model_config *from);
enum sotto_status text_sizes(struct model_config *c);
enum sotto_status text_check(const struct model_config *c);

/* config.json by table: members of struct model_config under Hugging Face's names, and booleans of
 * which the architecture has one value. */
enum member_kind { MEMBER_KIND_INT, MEMBER_KIND_REAL, MEMBER_KIND_TRUE, MEMBER_KIND_FALSE };

struct arch_member {
    const char *hf;
    enum member_kind kind;
    /* of an int from 0 to 2^24, which is null in config.json if it is 0, or of a double; unused by
     * booleans */
    size_t offset;
    bool required; /* an error if config.json has no such member, or null */
};

#define MEMBER_OF(name, type, field, needed)                                                       \
    {                                                                                              \
        .hf = (name), .kind = MEMBER_KIND_##type, .offset = offsetof(struct model_config, field),  \
        .required = (needed)                                                                       \
    }
#define MEMBER_REQUIRED(name, field) MEMBER_OF(name, INT, field, true)
#define MEMBER_INT(name, field) MEMBER_OF(name, INT, field, false)
#define MEMBER_REAL(name, field) MEMBER_OF(name, REAL, field, false)
#define MEMBER_FIXED(name, value)                                                                  \
    {                                                                                              \
        .hf = (name), .kind = (value) ? MEMBER_KIND_TRUE : MEMBER_KIND_FALSE                       \
    }

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n);
json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class);

/* Writes "a, b or c" for messages; `names` ends with NULL. */
enum { ARCH_LIST_ROOM = 256 };
void arch_list(char out[ARCH_LIST_ROOM], const char *const *names);

/* Checks that a text member has one of the values in `known`; an absent member is fine. */
enum sotto_status arch_expect(const json_t *json, const char *key, const char *const *known);

/* arch_expect, then copies the value of a present member to `name`. */
enum sotto_status arch_read_name(const json_t *json, const char *key, const char *const *known,
                                 char name[OPTION_ROOM]);

#endif

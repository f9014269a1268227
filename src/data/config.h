/* The section [data] of a configuration. */
#ifndef SOTTO_DATA_CONFIG_H
#define SOTTO_DATA_CONFIG_H

#include "base/file.h"
#include "base/option/option.h"
#include "tensor/batch.h"

enum data_format {
    DATA_AUTO,
    DATA_TEXT,
    DATA_JSONL,
    DATA_INSTRUCT,
    DATA_TOKENS,
    DATA_RAW16,
    DATA_STORIES,
    DATA_CIFAR10, /* this format and the following hold images */
    DATA_CIFAR100,
    DATA_IDX,
    DATA_IMAGES
};
static inline enum sample_content data_format_content(int format)
{
    return format >= DATA_CIFAR10 && format <= DATA_IMAGES ? SAMPLE_FLOATS : SAMPLE_TOKENS;
}
enum data_resize { DATA_RESIZE_AUTO, DATA_CROP, DATA_STRETCH };
enum data_sharding { DATA_IID, DATA_BY_SOURCE };
enum data_split { DATA_TRAIN, DATA_VALID };

struct data_config {              /* [data] */
    char train[OPTION_LONG_ROOM]; /* files, folders, stories[:topic], comma separated; each file is
                                a source */
    char valid[OPTION_LONG_ROOM]; /* empty: the last `holdout` of every training source */
    double holdout;
    int format;                  /* enum data_format */
    int sharding;                /* enum data_sharding */
    char tokenizer[OPTION_ROOM]; /* file or folder; empty: trained on the data */
    int vocab;                   /* of a tokenizer trained on the data; 0: 4096 */
    char text_key[OPTION_ROOM];  /* JSONL: member with the text */
    char cache[OPTION_ROOM];     /* folder for token files made from text; empty: none */
    int64_t stories;             /* synthetic stories: documents of a source */
    int64_t stories_seed;
    int image_size; /* rows and columns; 0: the model's, or of the data */
    int resize;     /* enum data_resize */
    int crop;       /* pixels of padding of random crops; 0: none */
    bool flip;
    char mean[OPTION_ROOM], std[OPTION_ROOM]; /* a number a channel, with commas; "": the model's or
                                                 the training set's */
};

struct option_section data_section(struct data_config *config);
void data_defaults(struct data_config *config);

/* Refuses keys that the user set and that have no meaning for samples of this kind. */
enum sotto_status data_refuse(const struct data_config *config, const struct sample_kind *kind);

/* True if the user has set another holdout than the default. */
bool data_says_holdout(const struct data_config *config);

/* Reads the next word of a list with commas, without blanks around it, and advances `*list`; "" at
 * the end. */
enum sotto_status data_word(const char **list, char word[FILE_PATH_ROOM]);

#endif

#include "data/config.h"

#include <string.h>

#include "base/option/only.h"

static const char *const formats[] = {"auto",     "text",  "jsonl",   "instruct",
                                      "tokens",   "raw16", "stories", "cifar10",
                                      "cifar100", "idx",   "images",  NULL};
static const char *const resizes[] = {"auto", "crop", "stretch", NULL};
static const char *const shardings[] = {"iid", "source", NULL};

static const struct option options[] = {
    OPTION_TEXT(
        struct data_config, train, "",
        "files or folders, comma separated, each file a source; stories[:tales|weather|recipes|talks|letters] is made up"),
    OPTION_TEXT(struct data_config, valid, "",
                "the same for validation; empty: the test part of a folder of images that has one, "
                "else the end of every training source (holdout)"),
    OPTION_REAL(struct data_config, holdout, "0.05", 0, 0.9,
                "fraction of every training source kept for validation when valid is empty"),
    OPTION_ENUM(struct data_config, format, "auto", formats,
                "format of the files; auto: by their names and first bytes; images: a folder of "
                "PNG, PPM or PGM for each class"),
    OPTION_ENUM(struct data_config, sharding, "iid", shardings,
                "iid: all workers read all sources; source: each worker reads its own (non-iid)"),
    OPTION_TEXT(
        struct data_config, tokenizer, "",
        "tokenizer.json, or a folder with one or with vocab.json and merges.txt; empty: trained on the data"),
    OPTION_INT(struct data_config, vocab, "0", 0, 1e6,
               "vocabulary of a tokenizer trained on the data, at least 257; 0: 4096"),
    OPTION_TEXT(struct data_config, text_key, "text",
                "member of a JSONL record that holds the text"),
    OPTION_TEXT(struct data_config, cache, "",
                "folder that keeps tokenized text from one run to the next; empty: none"),
    OPTION_LONG(
        struct data_config, stories, "10000", 1, 1e9,
        "documents of each synthetic source (as validation data: the holdout fraction of it)"),
    OPTION_LONG(struct data_config, stories_seed, "1", 0, 9e15, "seed of the synthetic sources"),
    OPTION_INT(
        struct data_config, image_size, "0", 0, 1 << 14,
        "rows and columns that images are brought to; 0: as the model wants them, or as they "
        "are"),
    OPTION_ENUM(struct data_config, resize, "auto", resizes,
                "of an image with other sides: crop to the middle, or stretch the whole; auto: as "
                "in the model's preprocessor_config.json, else crop"),
    OPTION_INT(
        struct data_config, crop, "0", 0, 1 << 12,
        "training images are moved by up to this many pixels, with black at the edges; 0: not "
        "moved"),
    OPTION_BOOL(
        struct data_config, flip, "false",
        "half of the training images, drawn at random, are seen in a mirror, left to right"),
    OPTION_TEXT(struct data_config, mean, "",
                "mean to subtract from the values from 0 to 1: a number, or one a channel with "
                "commas; empty: as in the model's preprocessor_config.json, else the mean of the "
                "training images"),
    OPTION_TEXT(struct data_config, std, "", "standard deviation to divide by, in the same form"),
};

/* Keys with a meaning for samples of one content only. */
static const char *const only_for[][8] = {
    [SAMPLE_TOKENS] = {"tokenizer", "vocab", "text_key", "cache", "stories", "stories_seed"},
    [SAMPLE_FLOATS] = {"image_size", "resize", "crop", "flip", "mean", "std"},
};

enum sotto_status data_refuse(const struct data_config *c, const struct sample_kind *kind)
{
    const enum sample_content other =
        kind == &sample_kinds[SAMPLE_TOKENS] ? SAMPLE_FLOATS : SAMPLE_TOKENS;
    for (const char *const *key = only_for[other]; *key; key++)
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (strcmp(options[i].key, *key) == 0 && !option_is_default(&options[i], c))
                return fail(SOTTO_EINVAL,
                            "data.%s has no effect: it is for %s, and the model reads %s", *key,
                            sample_kinds[other].noun, kind->noun);
    if (c->format != DATA_AUTO && data_format_content(c->format) == other)
        return fail(SOTTO_EINVAL, "data.format = %s, but the model reads %s", formats[c->format],
                    kind->noun);
    return SOTTO_OK;
}

bool data_says_holdout(const struct data_config *c)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(options[i].key, "holdout") == 0)
            return !option_is_default(&options[i], c);
    return false;
}

enum sotto_status data_word(const char **list, char word[FILE_PATH_ROOM])
{
    for (const char *p = *list;;) {
        const size_t length = strcspn(p, ","), lead = strspn(p, " \t");
        size_t n = lead < length ? length - lead : 0;
        while (n > 0 && (p[lead + n - 1] == ' ' || p[lead + n - 1] == '\t'))
            n--;
        if (n >= FILE_PATH_ROOM)
            return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", n, p + lead);
        memcpy(word, p + lead, n);
        word[n] = '\0';
        p += length + (p[length] == ',');
        *list = p;
        if (n || !*p)
            return SOTTO_OK;
    }
}

struct option_section data_section(struct data_config *c)
{
    return (struct option_section)OPTION_SECTION(
        "data", "training data: files, tokenizer, held-out part", options, c);
}

void data_defaults(struct data_config *c)
{
    const struct option_section section = data_section(c);
    option_defaults(&section, 1);
}

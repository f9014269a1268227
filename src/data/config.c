#include "data/config.h"

static const char *const formats[] = {"auto",   "text",  "jsonl",   "instruct",
                                      "tokens", "raw16", "stories", NULL};
static const char *const shardings[] = {"iid", "source", NULL};

static const struct option options[] = {
    OPTION_TEXT(
        struct data_config, train, "",
        "files or folders, comma separated, each file a source; stories[:tales|weather|recipes|talks|letters] is made up"),
    OPTION_TEXT(struct data_config, valid, "",
                "the same for validation; empty: the end of every training source (holdout)"),
    OPTION_REAL(struct data_config, holdout, "0.05", 0, 0.9,
                "fraction of every training source kept for validation when valid is empty"),
    OPTION_ENUM(struct data_config, format, "auto", formats,
                "what the files hold; auto: by their names and first bytes"),
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
};

struct option_section data_section(struct data_config *c)
{
    return (struct option_section)OPTION_SECTION(
        "data", "what it is trained on: files, tokenizer, held-out part", options, c);
}

void data_defaults(struct data_config *c)
{
    const struct option_section section = data_section(c);
    option_defaults(&section, 1);
}

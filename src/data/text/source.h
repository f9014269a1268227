/* A source: one file (or one synthetic topic) opened as a stream of tokens or as a set of examples.
 */
#ifndef SOTTO_DATA_TEXT_SOURCE_H
#define SOTTO_DATA_TEXT_SOURCE_H

#include "data/config.h"
#include "data/stories/stories.h"
#include "data/text/instruct.h"
#include "data/text/token_files.h"

#define SOURCE_SEPARATOR                                                                           \
    "<|endoftext|>" /* on a line of its own between two documents of a text file */

struct source_spec {
    char path[FILE_PATH_ROOM]; /* the file, or the word that asked for stories */
    enum data_format format;   /* never DATA_AUTO */
    const char *text_key;      /* of the configuration */
    enum stories_topic topic;  /* DATA_STORIES: these three */
    uint64_t seed;
    int64_t count;
};

/* What `config` names for the split: folders expanded, formats recognised. The caller frees `*out`.
 */
enum sotto_status source_list(struct source_spec **out, int *count,
                              const struct data_config *config, enum data_split split);

/* Calls `visit` with every document that is not empty, in order, until one fails. Examples of
 * instruction data are given as prompt and response in one. Not for token files. */
typedef enum sotto_status source_visitor(void *arg, const char *text, size_t size);
enum sotto_status source_visit(const struct source_spec *spec, source_visitor *visit, void *arg);

/* What a word of data.train names where it is no file: the topic of made-up stories; NULL: a file.
 */
const char *source_made_up(const struct data_config *config, const char *word);

/* Warns where a text file is not UTF-8 first. */
void source_warn_encoding(const struct source_spec *spec);

/* The documents as one list of tokens, the end token behind each. `cache`: the folder that keeps
 * token files from one run to the next, or "". */
enum sotto_status source_tokenize(struct tokens *out, const struct source_spec *spec,
                                  const char *cache, const struct tokenizer *tokenizer);

struct source {
    char name[FILE_PATH_ROOM];
    bool instruct;
    bool borrowed;                /* tokens and examples are another source's */
    struct tokens tokens;         /* of a stream      */
    struct instruct_set examples; /* of instructions  */
    int64_t begin, end;           /* what belongs to the split: tokens, or examples */
};

/* `holdout` is the fraction at the end that belongs to DATA_VALID; 0: all of it belongs to `split`.
 */
enum sotto_status source_open(struct source *source, const struct source_spec *spec, double holdout,
                              enum data_split split, const char *cache,
                              const struct tokenizer *tokenizer);

/* What the split of `train` left over, over the same tokens: `train` must outlive it. */
enum sotto_status source_borrow_rest(struct source *source, const struct source *train,
                                     double holdout);
void source_close(struct source *source);

#endif

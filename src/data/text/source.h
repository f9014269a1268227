/* A source: one file (or one synthetic topic), opened as a stream of tokens or as a set of
 * examples. */
#ifndef SOTTO_DATA_TEXT_SOURCE_H
#define SOTTO_DATA_TEXT_SOURCE_H

#include "data/config.h"
#include "data/stories/stories.h"
#include "data/text/instruct.h"
#include "data/text/token_files.h"

#define SOURCE_SEPARATOR                                                                           \
    "<|endoftext|>" /* on a line of its own between two documents of a text file */

struct source_spec {
    char path[FILE_PATH_ROOM]; /* the file, or the word for stories */
    enum data_format format;   /* never DATA_AUTO */
    const char *text_key;      /* of the configuration */
    enum stories_topic topic;  /* DATA_STORIES: topic, seed and count */
    uint64_t seed;
    int64_t count;
};

/* Lists the sources of the split in `config`, with folders expanded and formats recognised. The
 * caller frees `*out`. */
enum sotto_status source_list(struct source_spec **out, int *count,
                              const struct data_config *config, enum data_split split);

/* Calls `visit` with every document that is not empty, in order, until a call fails. Examples of
 * instruction data are passed as prompt and response in one text. Not for token files. */
typedef enum sotto_status source_visitor(void *arg, const char *text, size_t size);
enum sotto_status source_visit(const struct source_spec *spec, source_visitor *visit, void *arg);

/* Returns the topic of the stories that a word of data.train names, NULL if the word is a file. */
const char *source_made_up(const struct data_config *config, const char *word);

/* Warns at the first byte of a text file that is not UTF-8. */
void source_warn_encoding(const struct source_spec *spec);

/* Returns the documents as one list of tokens, each document followed by the end token. `cache`:
 * folder of token files for later runs, or "". */
enum sotto_status source_tokenize(struct tokens *out, const struct source_spec *spec,
                                  const char *cache, const struct tokenizer *tokenizer);

struct source {
    char name[FILE_PATH_ROOM];
    bool instruct;
    bool borrowed;                /* another source owns tokens and examples */
    struct tokens tokens;         /* of a stream */
    struct instruct_set examples; /* of instructions */
    int64_t begin, end;           /* tokens or examples of the split */
};

/* Opens a source. `holdout`: fraction at the end for DATA_VALID; 0: `split` gets the whole source.
 */
enum sotto_status source_open(struct source *source, const struct source_spec *spec, double holdout,
                              enum data_split split, const char *cache,
                              const struct tokenizer *tokenizer);

/* Opens the rest that the split of `train` leaves, over the same tokens: `train` must outlive it.
 */
enum sotto_status source_borrow_rest(struct source *source, const struct source *train,
                                     double holdout);
void source_close(struct source *source);

#endif

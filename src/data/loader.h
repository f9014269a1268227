/* The loader: a pure function (seed, index, rank) -> micro-batch. No hidden state, so a resumed
 * run, another worker, or a simulated one gets the same batch by asking for the same number.
 *
 * All sources of a split, one behind the other, are one stream (of tokens, or of examples for
 * instruction data). With `sharding = source` every worker has a stream of its own: sources are
 * dealt out evenly in order when there are at least as many as workers, else worker r reads source
 * r mod sources and shares it with the others that do. */
#ifndef SOTTO_DATA_LOADER_H
#define SOTTO_DATA_LOADER_H

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"
#include "tensor/batch.h"

struct loader; /* read-only once open: shared by all workers of a process */

/* Opens (and where needed tokenizes) the sources of one split. The tokenizer may be NULL for token
 * files and is then not needed; it must outlive the loader. */
enum sotto_status loader_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct tokenizer *tokenizer);
/* What `train`, opened as DATA_TRAIN with a holdout and without data.valid, holds out: the same as
 * opening it as DATA_VALID, but nothing is read, tokenized or kept a second time. `train` must
 * outlive it. */
enum sotto_status loader_open_rest(struct loader **out, const struct loader *train);
void loader_close(struct loader *loader);

/* The tokenizer that `config` asks for: read, or trained on its training data (at most 64 MB of
 * it). NULL with SOTTO_OK when the data are token files and none is named. */
enum sotto_status loader_tokenizer(struct tokenizer **out, const struct data_config *config);

/* Largest id + 1 that may occur, tokens in all, and sources. */
int64_t loader_vocab(const struct loader *loader);
int64_t loader_tokens(const struct loader *loader);
int loader_sources(const struct loader *loader);
bool loader_instructs(const struct loader *loader); /* instruction data, not running text */

/* Whether each of `size` workers has at least one sequence of `t` positions; loader_fill fails with
 * the same message. */
enum sotto_status loader_check(const struct loader *loader, int size, int t);

/* Of instruction data: how many of the split's examples are longer than `t` positions, and what
 * they lose there. */
struct loader_cuts {
    int64_t examples, longer, response, prompt;
};
struct loader_cuts loader_cuts(const struct loader *loader, int t);
/* Says so in a warning, if any is. */
void loader_warn_cuts(const struct loader *loader, int t);

/* Tokens or examples that worker `rank` of `size` reads before it sees one twice. */
double loader_share(const struct loader *loader, int rank, int size);

struct loader_place {
    uint64_t seed;
    int64_t index;  /* the worker's how-manieth micro-batch        */
    int rank, size; /* of the worker among those that read         */
};

/* Fills `batch` with `rows` sequences of at most `t` positions (rows * t <= batch->room) and sets
 * its rows and t. Windows of a token stream are visited in a random order, each once before any is
 * seen twice, and over all ranks; they begin at multiples of `t` plus an offset that changes from
 * epoch to epoch. Sequences of instruction data are padded to the longest of the micro-batch,
 * prompt and padding masked by negative targets. */
enum sotto_status loader_fill(const struct loader *loader, struct loader_place place, int rows,
                              int t, struct batch *batch);

/* Evaluation in order: micro-batches 0 .. loader_batches-1 cover every window (at multiples of `t`)
 * or example once; the last may have fewer rows. 0 when there is not one sequence of `t`:
 * loader_check says so in words. */
int64_t loader_batches(const struct loader *loader, int rows, int t);
enum sotto_status loader_fill_in_order(const struct loader *loader, int64_t index, int rows, int t,
                                       struct batch *batch);

#endif

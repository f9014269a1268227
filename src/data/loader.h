/* The loader: a pure function (seed, index, rank) -> micro-batch. There is no hidden state, so a
 * resumed run, another worker, or a simulated worker gets the same batch for the same number.
 * Loaders of images have loader_ops of their own.
 *
 * Tokens: all sources of a split, in order, are one stream (of tokens, or of examples for
 * instruction data). With `sharding = source` every worker has its own stream: data/share.h.
 * Images: data/image/images.h. */
#ifndef SOTTO_DATA_LOADER_H
#define SOTTO_DATA_LOADER_H

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"
#include "tensor/batch.h"

struct loader_place {
    uint64_t seed;
    int64_t index;  /* number of the worker's micro-batch */
    int rank, size; /* of the worker among the readers */
};

/* Read-only once open: shared by all workers of a process. Members embed this struct first. */
struct loader {
    const struct loader_ops *ops;
    struct sample sample; /* of its batches; all 0: tokens */
    int sources;          /* of the split */
    bool instructs;       /* instruction data, not running text */
    int64_t vocab;        /* upper limit of the tokens; 0: no tokens */
};

struct loader_ops {
    enum sotto_status (*fill)(const struct loader *loader, struct loader_place place, int rows,
                              int t, struct batch *batch);
    int64_t (*batches)(const struct loader *loader, int rows, int t);
    enum sotto_status (*fill_in_order)(const struct loader *loader, int64_t index, int rows, int t,
                                       struct batch *batch);
    double (*share)(const struct loader *loader, int rank, int size);
    int64_t (*amount)(const struct loader *loader);
    enum sotto_status (*check)(const struct loader *loader, int size, int t);
    void (*close)(struct loader *loader);
};

/* Opens (and if needed tokenizes) the sources of one split. The tokenizer may be NULL for token
 * files; it must outlive the loader. */
enum sotto_status loader_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct tokenizer *tokenizer);
/* Opens the held-out part of `train`, which was opened as DATA_TRAIN with a holdout and without
 * data.valid: the same as opening DATA_VALID, but without reading, tokenizing or storing anything
 * twice. `train` must outlive it. */
enum sotto_status loader_open_rest(struct loader **out, const struct loader *train);
static inline void loader_close(struct loader *loader)
{
    loader->ops->close(loader);
}

/* Makes the tokenizer of `config`: read, or trained on at most 64 MB of its training data. NULL
 * with SOTTO_OK for token files without a named tokenizer. */
enum sotto_status loader_tokenizer(struct tokenizer **out, const struct data_config *config);

/* Tokens in all, or images. */
static inline int64_t loader_tokens(const struct loader *loader)
{
    return loader->ops->amount(loader);
}

/* Checks that each of `size` workers has at least one sequence of `t` positions; loader_fill fails
 * with the same message. */
static inline enum sotto_status loader_check(const struct loader *loader, int size, int t)
{
    return loader->ops->check(loader, size, t);
}

/* For instruction data: the examples of the split that are longer than `t` positions, and the
 * losses. */
struct loader_cuts {
    int64_t examples, longer, response, prompt;
};
struct loader_cuts loader_cuts(const struct loader *loader, int t);
/* Warns if examples are longer than `t`, with the length that would hold them; the model has `most`
 * positions. */
void loader_warn_cuts(const struct loader *loader, int t, int most);
/* Warns if the token at the end of responses in instruction data was guessed. */
void loader_warn_turn(const struct loader *loader, const struct tokenizer *tokenizer);

/* Returns the tokens or examples that worker `rank` of `size` reads before the first repetition. */
static inline double loader_share(const struct loader *loader, int rank, int size)
{
    return loader->ops->share(loader, rank, size);
}

/* Fills `batch` with `rows` sequences of at most `t` positions (rows * t <= batch->room) and sets
 * its rows and t. Windows of a token stream are visited in a random order, all of them, over all
 * ranks, before the first repetition; they begin at multiples of `t` plus an offset that changes
 * from epoch to epoch. Sequences of instruction data are padded to the longest of the micro-batch,
 * prompt and padding masked by negative targets. */
static inline enum sotto_status loader_fill(const struct loader *loader, struct loader_place place,
                                            int rows, int t, struct batch *batch)
{
    return loader->ops->fill(loader, place, rows, t, batch);
}

/* Returns the number of micro-batches of an evaluation in order: micro-batches 0 .. n-1 cover every
 * window (at multiples of `t`) or example once; the last may have fewer rows. 0 without a sequence
 * of `t`, for which loader_check has a message. */
static inline int64_t loader_batches(const struct loader *loader, int rows, int t)
{
    return loader->ops->batches(loader, rows, t);
}

static inline enum sotto_status loader_fill_in_order(const struct loader *loader, int64_t index,
                                                     int rows, int t, struct batch *batch)
{
    return loader->ops->fill_in_order(loader, index, rows, t, batch);
}

#endif

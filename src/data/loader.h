/* The loader: a pure function (seed, index, rank) -> micro-batch. No hidden state, so a resumed
 * run, another worker, or a simulated one gets the same batch by asking for the same number. What
 * fills batches of other samples than tokens has loader_ops of its own.
 *
 * Of tokens: all sources of a split, one behind the other, are one stream (of tokens, or of
 * examples for instruction data). With `sharding = source` every worker has a stream of its own:
 * data/share.h. Of images: data/image/images.h. */
#ifndef SOTTO_DATA_LOADER_H
#define SOTTO_DATA_LOADER_H

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"
#include "tensor/batch.h"

struct loader_place {
    uint64_t seed;
    int64_t index;  /* the worker's how-manieth micro-batch        */
    int rank, size; /* of the worker among those that read         */
};

/* Read-only once open: shared by all workers of a process. Members embed it first. */
struct loader {
    const struct loader_ops *ops;
    struct sample sample; /* of its batches; all 0: tokens                          */
    int sources;          /* of the split                                           */
    bool instructs;       /* instruction data, not running text                     */
    int64_t vocab;        /* largest token that may occur, plus 1; 0: no tokens     */
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

/* Opens (and where needed tokenizes) the sources of one split. The tokenizer may be NULL for token
 * files and is then not needed; it must outlive the loader. */
enum sotto_status loader_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct tokenizer *tokenizer);
/* What `train`, opened as DATA_TRAIN with a holdout and without data.valid, holds out: the same as
 * opening it as DATA_VALID, but nothing is read, tokenized or kept a second time. `train` must
 * outlive it. */
enum sotto_status loader_open_rest(struct loader **out, const struct loader *train);
static inline void loader_close(struct loader *loader)
{
    loader->ops->close(loader);
}

/* The tokenizer that `config` asks for: read, or trained on its training data (at most 64 MB of
 * it). NULL with SOTTO_OK when the data are token files and none is named. */
enum sotto_status loader_tokenizer(struct tokenizer **out, const struct data_config *config);

/* Tokens in all, or images. */
static inline int64_t loader_tokens(const struct loader *loader)
{
    return loader->ops->amount(loader);
}

/* Whether each of `size` workers has at least one sequence of `t` positions; loader_fill fails with
 * the same message. */
static inline enum sotto_status loader_check(const struct loader *loader, int size, int t)
{
    return loader->ops->check(loader, size, t);
}

/* Of instruction data: how many of the split's examples are longer than `t` positions, and what
 * they lose there. */
struct loader_cuts {
    int64_t examples, longer, response, prompt;
};
struct loader_cuts loader_cuts(const struct loader *loader, int t);
/* Warns if any is, and of the length that would hold them; the model has `most` positions. */
void loader_warn_cuts(const struct loader *loader, int t, int most);
/* Warns where responses of instruction data end with a token that was guessed. */
void loader_warn_turn(const struct loader *loader, const struct tokenizer *tokenizer);

/* Tokens or examples that worker `rank` of `size` reads before it sees one twice. */
static inline double loader_share(const struct loader *loader, int rank, int size)
{
    return loader->ops->share(loader, rank, size);
}

/* Fills `batch` with `rows` sequences of at most `t` positions (rows * t <= batch->room) and sets
 * its rows and t. Windows of a token stream are visited in a random order, each once before any is
 * seen twice, and over all ranks; they begin at multiples of `t` plus an offset that changes from
 * epoch to epoch. Sequences of instruction data are padded to the longest of the micro-batch,
 * prompt and padding masked by negative targets. */
static inline enum sotto_status loader_fill(const struct loader *loader, struct loader_place place,
                                            int rows, int t, struct batch *batch)
{
    return loader->ops->fill(loader, place, rows, t, batch);
}

/* Evaluation in order: micro-batches 0 .. loader_batches-1 cover every window (at multiples of `t`)
 * or example once; the last may have fewer rows. 0 when there is not one sequence of `t`:
 * loader_check says so in words. */
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

/* The order of sequences in batches. Let W be the sequences of a stream (windows or examples) and g
 * count the rows of all readers: g = (index * members + member) * rows + row. Row g belongs to
 * epoch e = g / W and is sequence pi_e(g mod W), pi_e a random permutation. Window w of epoch e
 * begins at w t + offset_e: all windows shift from epoch to epoch, within the tokens that W windows
 * leave of the stream (t to 2 t - 1 places; fewer for a stream of one window). */
#include <assert.h>
#include <string.h>

#include "data/share.h"
#include "data/text/stream.h"

static struct share stream_reads(const struct stream *loader, int rank, int size)
{
    return share_of(loader->sharding, loader->base.sources, rank, size);
}

static int64_t stream_share_count(const struct stream *loader, struct share s)
{
    return loader->before[s.last] - loader->before[s.first];
}

double stream_share(const struct loader *base, int rank, int size)
{
    const struct stream *loader = (const struct stream *)base;
    struct share s = stream_reads(loader, rank, size);
    return (double)stream_share_count(loader, s) / s.members;
}

/* Returns the windows of an epoch: one fewer than fit, unless only one fits, to make room for the
 * offset. */
static int64_t epoch_windows(int64_t tokens, int t)
{
    if (tokens <= t)
        return 0;
    return tokens < 2 * (int64_t)t ? 1 : tokens / t - 1;
}

static int64_t window_offset(int64_t tokens, int t, uint64_t seed, uint64_t stream)
{
    int64_t most =
        tokens - 1 - epoch_windows(tokens, t) * t; /* then the last window ends the stream */
    return (int64_t)(rng_at(seed, stream, 0) % (uint64_t)(most + 1));
}

static enum sotto_status fail_too_short(const struct stream *loader, struct share s, int t)
{
    bool one = s.last - s.first == 1;
    return fail(SOTTO_EINVAL, "%s has %lld tokens, one sequence needs %lld",
                one ? loader->sources[s.first].name : "data",
                (long long)stream_share_count(loader, s), (long long)t + 1);
}

static enum sotto_status check_share(const struct stream *loader, struct share s, int t)
{
    if (!loader->base.instructs && stream_share_count(loader, s) <= t)
        return fail_too_short(loader, s, t);
    return SOTTO_OK;
}

enum sotto_status stream_check(const struct loader *base, int size, int t)
{
    const struct stream *loader = (const struct stream *)base;
    for (int rank = 0; rank < size; rank++)
        TRY(check_share(loader, stream_reads(loader, rank, size), t));
    return SOTTO_OK;
}

/* Returns the source with element `at` of the whole stream. */
static int source_at(const struct stream *loader, int64_t at)
{
    int low = 0, high = loader->base.sources;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (loader->before[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Reads tokens [at, at + count) of the whole stream, across borders of sources. */
static enum sotto_status read_stream(const struct stream *loader, int64_t at, int64_t count,
                                     int32_t *out)
{
    for (int s = source_at(loader, at); count > 0; s++) {
        const struct source *source = &loader->sources[s];
        int64_t here = loader->before[s + 1] - at;
        if (here > count)
            here = count;
        enum sotto_status st =
            tokens_copy(&source->tokens, source->begin + at - loader->before[s], here, out);
        TRY(fail_in(st, "%s: ", source->name));
        at += here;
        out += here;
        count -= here;
    }
    return SOTTO_OK;
}

/* Reads the t + 1 tokens from `at` on: targets are the tokens shifted by one. */
static enum sotto_status fill_window(const struct stream *loader, int64_t at, struct batch *batch,
                                     int row)
{
    int t = batch->t;
    int32_t *tokens = batch->tokens + (int64_t)row * t,
            *targets = batch->targets + (int64_t)row * t;
    TRY(read_stream(loader, at, 1, tokens));
    TRY(read_stream(loader, at + 1, t, targets));
    memcpy(tokens + 1, targets, (size_t)(t - 1) * sizeof *tokens);
    return SOTTO_OK;
}

static const struct instruct_set *example_at(const struct stream *loader, int64_t at, int64_t *i)
{
    int s = source_at(loader, at);
    *i = loader->sources[s].begin + at - loader->before[s];
    return &loader->sources[s].examples;
}

static void fill_example(const struct stream *loader, int64_t at, int t, struct batch *batch,
                         int row)
{
    int64_t i;
    const struct instruct_set *set = example_at(loader, at, &i);
    int32_t *tokens = batch->tokens + (int64_t)row * batch->t;
    int32_t *targets = batch->targets + (int64_t)row * batch->t;
    int length = instruct_row(set, i, t, tokens, targets);
    for (int k = length; k < batch->t; k++) {
        tokens[k] = loader->pad;
        targets[k] = INSTRUCT_MASKED;
    }
}

/* The elements of the stream in the rows of a batch. */
struct row_order {
    struct share share;
    uint64_t seed;
    int64_t g; /* of row 0 */
    bool shuffled;
    int t;
};

static int64_t row_place(const struct stream *loader, const struct row_order *o, int row)
{
    const int64_t base = loader->before[o->share.first],
                  count = stream_share_count(loader, o->share);
    const int64_t g = o->g + row;
    if (!o->shuffled)
        return base + g * (loader->base.instructs ? 1 : o->t);
    const int64_t total = loader->base.instructs ? count : epoch_windows(count, o->t);
    const int64_t k = share_visit(o->share, o->seed, g, total);
    if (loader->base.instructs)
        return base + k;
    return base + k * o->t +
           window_offset(count, o->t, o->seed, share_draw(DRAW_OFFSET, o->share, g / total));
}

static enum sotto_status fill_rows(const struct stream *loader, const struct row_order *o, int rows,
                                   struct batch *batch)
{
    assert(rows > 0 && o->t > 0 && (int64_t)rows * o->t <= batch->room);
    batch->rows = rows;
    batch->t = o->t;
    if (loader->base.instructs) {
        batch->t = 1;
        for (int row = 0; row < rows; row++) {
            int64_t i;
            const struct instruct_set *set = example_at(loader, row_place(loader, o, row), &i);
            int length = instruct_length(set, i, o->t);
            batch->t = length > batch->t ? length : batch->t;
        }
    }
    for (int row = 0; row < rows; row++) {
        int64_t at = row_place(loader, o, row);
        if (loader->base.instructs)
            fill_example(loader, at, o->t, batch, row);
        else
            TRY(fill_window(loader, at, batch, row));
    }
    batch->n_targets = 0;
    for (int64_t i = 0; i < (int64_t)rows * batch->t; i++)
        batch->n_targets += batch->targets[i] >= 0;
    return SOTTO_OK;
}

enum sotto_status stream_fill(const struct loader *base, struct loader_place place, int rows, int t,
                              struct batch *batch)
{
    const struct stream *loader = (const struct stream *)base;
    assert(place.index >= 0 && place.rank >= 0 && place.rank < place.size);
    struct share share = stream_reads(loader, place.rank, place.size);
    TRY(check_share(loader, share, t));
    struct row_order order = {.share = share, .seed = place.seed, .shuffled = true, .t = t};
    order.g = (place.index * share.members + share.member) * rows;
    return fill_rows(loader, &order, rows, batch);
}

static int64_t sequences_in_order(const struct stream *loader, int t)
{
    int64_t count = loader->before[loader->base.sources];
    return loader->base.instructs ? count : (count - 1) / t;
}

int64_t stream_batches(const struct loader *base, int rows, int t)
{
    return (sequences_in_order((const struct stream *)base, t) + rows - 1) / rows;
}

enum sotto_status stream_fill_in_order(const struct loader *base, int64_t index, int rows, int t,
                                       struct batch *batch)
{
    const struct stream *loader = (const struct stream *)base;
    struct share all = {0, loader->base.sources, 0, 1};
    TRY(check_share(loader, all, t));
    int64_t left = sequences_in_order(loader, t) - index * rows;
    assert(index >= 0 && left > 0);
    struct row_order order = {.share = all, .g = index * rows, .t = t};
    return fill_rows(loader, &order, left < rows ? (int)left : rows, batch);
}

/* The order of images in batches, and the changes to an image at each visit. */
#include <assert.h>
#include <stdlib.h>

#include "data/image/image_impl.h"
#include "data/share.h"

const struct images *images_of(const struct loader *loader)
{
    assert(loader->ops == &images_ops);
    return (const struct images *)loader;
}

const struct image_set *images_set(const struct loader *loader)
{
    return &images_of(loader)->set;
}

const struct image_norm *images_norm(const struct loader *loader)
{
    return &images_of(loader)->norm;
}

struct image_processor images_processor(const struct loader *loader)
{
    const struct images *l = images_of(loader);
    return (struct image_processor){l->set.height, l->set.width,
                                    l->set.resize, l->set.keep > 0 ? l->set.keep : 1,
                                    l->set.filter, norm_spread(l->norm, l->set.channels)};
}

/* The changes to an image at one visit. */
struct image_change {
    int down, right; /* offset of the visible part, within the padding */
    bool mirrored;
};

static struct image_change draw_image_change(const struct images *l, struct share s, uint64_t seed,
                                             int64_t g)
{
    const uint64_t stream = share_draw(DRAW_CHANGE, s, 0), at = 2 * (uint64_t)g;
    const uint64_t places = rng_at(seed, stream, at), span = 2 * (uint64_t)l->crop + 1;
    return (struct image_change){(int)((places >> 32) * span >> 32) - l->crop,
                                 (int)((places & 0xffffffff) * span >> 32) - l->crop,
                                 l->flip && rng_at(seed, stream, at + 1) & 1};
}

static void fill_image_row(const struct images *l, int64_t item, struct image_change change,
                           float *out)
{
    const struct image_set *set = &l->set;
    const int height = set->height, width = set->width, channels = set->channels;
    const uint8_t *image = set->pixels + (size_t)item * image_set_bytes(set);
    for (int y = 0; y < height; y++) {
        const int from_y = y + change.down;
        const bool black = from_y < 0 || from_y >= height;
        const uint8_t *line = image + (size_t)(black ? 0 : from_y) * (size_t)(width * channels);
        for (int x = 0; x < width; x++) {
            const int from_x = (change.mirrored ? width - 1 - x : x) + change.right;
            const bool outside = black || from_x < 0 || from_x >= width;
            for (int c = 0; c < channels; c++)
                *out++ = l->value[c][outside ? 0 : line[from_x * channels + c]];
        }
    }
}

/* Returns the item of the set that is element `at` of the split. */
static int64_t image_item_at(const struct images *l, int64_t at)
{
    int low = 0, high = l->set.n_sources;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (l->before[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return l->begin[low] + at - l->before[low];
}

static void put_image(const struct images *l, struct batch *batch, int row, int64_t at,
                      struct image_change change)
{
    const int64_t item = image_item_at(l, at);
    fill_image_row(l, item, change, batch->floats + (size_t)row * image_set_bytes(&l->set));
    batch->targets[row] = l->set.labels[item];
}

static void begin_batch(const struct images *l, struct batch *batch, int rows)
{
    assert(rows > 0 && rows <= batch->room && batch->sample.content == SAMPLE_FLOATS);
    batch->sample = l->base.sample;
    batch->rows = rows;
    batch->t = 1;
    batch->n_targets = rows;
}

static int64_t images_share_count(const struct images *l, struct share s)
{
    return l->before[s.last] - l->before[s.first];
}

static struct share images_reads(const struct images *l, int rank, int size)
{
    return share_of(l->sharding, l->set.n_sources, rank, size);
}

static enum sotto_status images_fill(const struct loader *base, struct loader_place place, int rows,
                                     int t, struct batch *batch)
{
    const struct images *l = images_of(base);
    const struct share s = images_reads(l, place.rank, place.size);
    const int64_t g = (place.index * s.members + s.member) * rows, count = images_share_count(l, s);
    (void)t;
    begin_batch(l, batch, rows);
    for (int row = 0; row < rows; row++)
        put_image(l, batch, row, l->before[s.first] + share_visit(s, place.seed, g + row, count),
                  draw_image_change(l, s, place.seed, g + row));
    return SOTTO_OK;
}

static int64_t images_amount(const struct loader *base)
{
    const struct images *l = images_of(base);
    return l->before[l->set.n_sources];
}

static int64_t images_batches(const struct loader *base, int rows, int t)
{
    (void)t;
    return (images_amount(base) + rows - 1) / rows;
}

static enum sotto_status images_fill_in_order(const struct loader *base, int64_t index, int rows,
                                              int t, struct batch *batch)
{
    const struct images *l = images_of(base);
    const int64_t left = images_amount(base) - index * rows;
    (void)t;
    assert(index >= 0 && left > 0);
    begin_batch(l, batch, left < rows ? (int)left : rows);
    for (int row = 0; row < batch->rows; row++)
        put_image(l, batch, row, index * rows + row, (struct image_change){0});
    return SOTTO_OK;
}

static double images_share(const struct loader *base, int rank, int size)
{
    const struct images *l = images_of(base);
    const struct share s = images_reads(l, rank, size);
    return (double)images_share_count(l, s) / s.members;
}

/* Accepts any number of workers: every source has images, so every worker has images. */
static enum sotto_status images_check(const struct loader *base, int size, int t)
{
    (void)base, (void)size, (void)t;
    return SOTTO_OK;
}

void images_close(struct loader *base)
{
    struct images *l = (struct images *)base;
    if (!l->borrowed)
        image_set_free(&l->set);
    free(l->begin);
    free(l->end);
    free(l->before);
    free(l);
}

const struct loader_ops images_ops = {.fill = images_fill,
                                      .batches = images_batches,
                                      .fill_in_order = images_fill_in_order,
                                      .share = images_share,
                                      .amount = images_amount,
                                      .check = images_check,
                                      .close = images_close};

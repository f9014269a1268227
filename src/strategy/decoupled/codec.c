#include "strategy/decoupled/codec.h"

#include <assert.h>
#include <stdlib.h>

/* Of an index into `size` elements. */
static int bits_of(int size)
{
    int bits = 0;
    while (1 << bits < size)
        bits++;
    return bits;
}

static size_t value_bytes(const struct codec *c, size_t n)
{
    return c->values == CODEC_SIGNS ? (n + 3) / 4 : n * (c->values == CODEC_BF16 ? 2 : 4);
}

/* Lists of tiles that follow one another and have indices of as many bits are one. Sections before
 * k are placed. */
static void place_section(struct codec *c, int k)
{
    const struct cut_section *cut = &c->cut.section[k];
    struct codec_section *s = &c->section[k];
    struct codec_list *list = c->list;
    if (k)
        list = c->list + (s->first = s[-1].first + s[-1].n);
    for (int i = cut->first; i < cut->first + cut->n; i++) {
        const struct tiles *t = &c->cut.list[i];
        if (t->h * t->w == 1) /* all of its indices are 0, as they are from the beginning */
            continue;
        const size_t count = (size_t)t->ny * (size_t)t->nx * (size_t)t->keep;
        struct codec_list *last = s->n ? &list[s->n - 1] : NULL;
        if (last && last->bits == bits_of(t->h * t->w) && last->first + last->count == t->kept)
            last->count += count;
        else
            list[s->n++] =
                (struct codec_list){.bits = bits_of(t->h * t->w), .first = t->kept, .count = count};
    }
    s->bytes = value_bytes(c, cut->kept);
    for (int i = 0; i < s->n; i++) {
        list[i].at = s->bytes;
        s->bytes += (list[i].count * (size_t)list[i].bits + 7) / 8;
    }
    s->bytes = (s->bytes + 3) / 4 * 4;
}

static enum sotto_status place_messages(struct codec *c)
{
    const size_t senders = (size_t)c->senders;
    size_t kept = 0;
    c->list = calloc((size_t)c->cut.n + 1, sizeof *c->list);
    c->section = calloc((size_t)c->cut.n_section, sizeof *c->section);
    if (!c->list || !c->section)
        return fail(SOTTO_ENOMEM, "no memory for %d lists of indices", c->cut.n);
    for (int k = 0; k < c->cut.n_section; k++) {
        place_section(c, k);
        c->section[k].at = senders * c->bytes;
        c->section[k].coefficients = senders * kept;
        c->bytes += c->section[k].bytes;
        kept += c->cut.section[k].kept;
    }
    return SOTTO_OK;
}

static enum sotto_status make_basis(struct codec *c)
{
    TRY(buffer_init(&c->basis, c->dev, DTYPE_F32, c->cut.basis, MEMORY_SCRATCH));
    float *basis = malloc((c->cut.basis + 1) * sizeof *basis);
    if (!basis)
        return fail(SOTTO_ENOMEM, "no memory for the cosine transform");
    cut_basis(&c->cut, basis);
    c->dev->ops->write(c->dev, c->basis.view, basis, c->cut.basis);
    free(basis);
    return SOTTO_OK;
}

static enum sotto_status make_buffers(struct codec *c)
{
    const size_t n = (size_t)c->senders;
    const enum memory_category use = MEMORY_COMMUNICATION;
    TRY(buffer_init(&c->message, c->dev, DTYPE_U8, n * c->bytes, use));
    TRY(buffer_init(&c->index, c->dev, DTYPE_I32, n * c->cut.kept, use));
    if (c->values == CODEC_SIGNS)
        TRY(buffer_init(&c->value, c->dev, DTYPE_F32, n * c->cut.kept, use));
    return SOTTO_OK;
}

enum sotto_status codec_init(struct codec *c, struct device *dev, const struct cut_rule *rule,
                             enum codec_values values, const struct table *table,
                             const struct owned *own, const int *section, int senders)
{
    *c = (struct codec){.dev = dev, .values = values, .senders = senders};
    enum sotto_status st = cut_make(&c->cut, rule, table, own, section);
    if (st == SOTTO_OK)
        st = place_messages(c);
    if (st == SOTTO_OK)
        st = make_basis(c);
    if (st == SOTTO_OK)
        st = make_buffers(c);
    if (st != SOTTO_OK)
        codec_free(c);
    return st;
}

void codec_free(struct codec *c)
{
    struct buffer *const all[] = {&c->basis, &c->message, &c->index, &c->value};
    if (c->dev)
        (void)device_check(c->dev); /* ops under way read the list of tiles */
    for (int i = 0; i < 4; i++)
        buffer_free(all[i]);
    free(c->list);
    free(c->section);
    cut_free(&c->cut);
    *c = (struct codec){0};
}

struct view codec_messages(const struct codec *c, int k)
{
    return view_at(c->message.view, c->section[k].at);
}

/* Sender 0's values of section k as ops take them, and how far it is to the next one's. */
static struct view values_of(const struct codec *c, int k, size_t *step)
{
    if (c->values == CODEC_SIGNS) {
        *step = c->cut.section[k].kept;
        return view_at(c->value.view, c->section[k].coefficients);
    }
    struct view v = codec_messages(c, k); /* a message begins with them, and is whole words */
    v.type = c->values == CODEC_BF16 ? DTYPE_BF16 : DTYPE_F32;
    *step = c->section[k].bytes / dtype_size(v.type);
    return v;
}

static struct tiling tiles_of(const struct codec *c, int k)
{
    const struct cut_section *s = &c->cut.section[k];
    return (struct tiling){.tiles = c->cut.list + s->first, .n = s->n};
}

/* The next tiles of section k that stay in the second caches of the device's cores, or give a GPU's
 * enough to do, in whole rows, so that they are all of the vector from b->from to `end`; none
 * before: b is zero. */
enum { BLOCK = 1 << 17, BLOCK_FAR = 1 << 24 }; /* elements, of a core, of a GPU */
static bool next_tiles(const struct codec *c, int k, struct tiling *b, size_t *end)
{
    const struct cut_section *s = &c->cut.section[k];
    const struct tiles *t = b->tiles ? b->tiles : c->cut.list + s->first;
    if (b->tiles && b->end == t->ny * t->nx)
        *b = (struct tiling){.tiles = ++t};
    if (t == c->cut.list + s->first + s->n)
        return false;
    assert(t->h * t->ny == 1 || (size_t)t->nx * (size_t)t->w == t->stride);
    const int row = t->h > 1 ? t->nx : 1;
    const size_t most = c->dev->ops->place == PLACE_DEVICE
                            ? (size_t)BLOCK_FAR
                            : (size_t)BLOCK * (size_t)c->dev->threads;
    const size_t rows = most / ((size_t)row * (size_t)t->h * (size_t)t->w);
    const size_t left = (size_t)(t->ny * t->nx - b->end), n = (rows ? rows : 1) * (size_t)row;
    *b = (struct tiling){t, 1, b->end, b->end + (int)(n < left ? n : left), 0};
    const size_t first = (size_t)b->begin, last = (size_t)b->end - 1;
    const size_t nx = (size_t)t->nx, h = (size_t)t->h, w = (size_t)t->w;
    b->from = t->at + first / nx * h * t->stride + first % nx * w;
    *end = t->at + (last / nx * h + h - 1) * t->stride + (last % nx + 1) * w;
    return true;
}

/* A device without data takes all at once. */
static bool next_block(const struct codec *c, int k, struct tiling *b, size_t *end)
{
    const struct cut_section *s = &c->cut.section[k];
    if (c->dev->ops->alloc)
        return next_tiles(c, k, b, end);
    const bool begins = !b->tiles && s->n > 0;
    *b = tiles_of(c, k);
    b->from = s->n > 0 ? b->tiles->at : 0;
    *end = s->end;
    return begins;
}

size_t codec_room(const struct codec *c)
{
    size_t most = 0, end;
    for (int k = 0; k < c->cut.n_section; k++)
        for (struct tiling b = {0}; next_tiles(c, k, &b, &end);)
            most = end - b.from > most ? end - b.from : most;
    return most;
}

void codec_encode(struct codec *c, int k, int sender, struct view m, codec_pass *before, void *arg)
{
    const struct ops *ops = c->dev->ops;
    const struct codec_section *s = &c->section[k];
    struct tiling block = {0};
    size_t end;
    const size_t kept = c->cut.section[k].kept;
    const struct view message = view_at(codec_messages(c, k), (size_t)sender * s->bytes);
    const struct view index = view_at(c->index.view, s->coefficients + (size_t)sender * kept);
    size_t step;
    const struct view first = values_of(c, k, &step), value = view_at(first, (size_t)sender * step);
    while (next_block(c, k, &block, &end)) {
        if (before)
            before(arg, block.from, end);
        block.from = 0;
        ops->tiles_encode(c->dev, &block, c->basis.view, m, index, value);
    }
    if (c->values == CODEC_SIGNS)
        ops->signs_pack(c->dev, message, value, kept);
    for (const struct codec_list *l = c->list + s->first; l < c->list + s->first + s->n; l++)
        ops->bits_pack(c->dev, l->bits, view_at(message, l->at), view_at(index, l->first),
                       l->count);
}

void codec_decode(struct codec *c, int k, struct view y, codec_pass *take, void *arg)
{
    const struct ops *ops = c->dev->ops;
    const struct codec_section *s = &c->section[k];
    struct tiling block = {0};
    size_t end;
    const size_t kept = c->cut.section[k].kept;
    const struct view all = view_at(c->index.view, s->coefficients);
    size_t step;
    const struct view value = values_of(c, k, &step);
    for (int r = 0; r < c->senders; r++) {
        const struct view message = view_at(codec_messages(c, k), (size_t)r * s->bytes);
        const struct view index = view_at(all, (size_t)r * kept);
        if (c->values == CODEC_SIGNS)
            ops->signs_unpack(c->dev, view_at(value, (size_t)r * step), message, kept, false);
        for (const struct codec_list *l = c->list + s->first; l < c->list + s->first + s->n; l++)
            ops->bits_unpack(c->dev, l->bits, view_at(index, l->first), view_at(message, l->at),
                             l->count);
    }
    while (next_block(c, k, &block, &end)) {
        ops->tiles_decode(c->dev, &block, c->basis.view, c->senders, y, all, kept, value, step);
        take(arg, block.from, end);
    }
}

/* A coefficient: its place, its value, and both again in a message. */
static double message_bytes(const struct codec *c, int k)
{
    return 8. * (double)c->cut.section[k].kept + 2. * (double)c->section[k].bytes;
}

double codec_encode_bytes(const struct codec *c, int k)
{
    return 8. * (double)c->cut.section[k].elements + message_bytes(c, k);
}

double codec_decode_bytes(const struct codec *c, int k)
{
    return 4. * (double)c->cut.section[k].elements + (double)c->senders * message_bytes(c, k);
}

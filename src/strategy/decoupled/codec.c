#include "strategy/decoupled/codec.h"

#include <assert.h>
#include <stdlib.h>

/* Returns the bits of an index into `size` elements. */
static int index_bits(int size)
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

/* Places the lists and messages of section k, after those of earlier sections. Consecutive lists of
 * tiles with indices of the same bits become one list. */
static void place_section(struct codec *c, int k)
{
    const struct tiling_section *tiled = &c->tiling.section[k];
    struct codec_section *s = &c->section[k];
    struct codec_list *list = c->list;
    if (k)
        list = c->list + (s->first = s[-1].first + s[-1].n);
    for (int i = tiled->first; i < tiled->first + tiled->n; i++) {
        const struct tiles *t = &c->tiling.list[i];
        if (t->h * t->w == 1) /* all of its indices are 0 and stay so */
            continue;
        const size_t count = (size_t)t->ny * (size_t)t->nx * (size_t)t->keep;
        struct codec_list *last = s->n ? &list[s->n - 1] : NULL;
        if (last && last->bits == index_bits(t->h * t->w) && last->first + last->count == t->kept)
            last->count += count;
        else
            list[s->n++] = (struct codec_list){
                .bits = index_bits(t->h * t->w), .first = t->kept, .count = count};
    }
    s->bytes = value_bytes(c, tiled->kept);
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
    c->list = calloc((size_t)c->tiling.n + 1, sizeof *c->list);
    c->section = calloc((size_t)c->tiling.n_section, sizeof *c->section);
    if (!c->list || !c->section)
        return fail(SOTTO_ENOMEM, "no memory for %d lists of indices", c->tiling.n);
    for (int k = 0; k < c->tiling.n_section; k++) {
        place_section(c, k);
        c->section[k].at = senders * c->bytes;
        c->section[k].coefficients = senders * kept;
        c->bytes += c->section[k].bytes;
        kept += c->tiling.section[k].kept;
    }
    return SOTTO_OK;
}

static enum sotto_status make_basis(struct codec *c)
{
    TRY(buffer_init(&c->basis, c->dev, DTYPE_F32, c->tiling.basis, MEMORY_SCRATCH));
    float *basis = malloc((c->tiling.basis + 1) * sizeof *basis);
    if (!basis)
        return fail(SOTTO_ENOMEM, "no memory for the cosine transform");
    tiling_write_basis(&c->tiling, basis);
    c->dev->ops->write(c->dev, c->basis.view, basis, c->tiling.basis);
    free(basis);
    return SOTTO_OK;
}

static enum sotto_status make_buffers(struct codec *c)
{
    const size_t n = (size_t)c->senders;
    const enum memory_category use = MEMORY_COMMUNICATION;
    TRY(buffer_init(&c->message, c->dev, DTYPE_U8, n * c->bytes, use));
    TRY(buffer_init(&c->index, c->dev, DTYPE_I32, n * c->tiling.kept, use));
    if (c->values == CODEC_SIGNS)
        TRY(buffer_init(&c->value, c->dev, DTYPE_F32, n * c->tiling.kept, use));
    return SOTTO_OK;
}

enum sotto_status codec_init(struct codec *c, struct device *dev, const struct tiling_rule *rule,
                             enum codec_values values, const struct table *table,
                             const struct owned *own, const int *section, int senders)
{
    *c = (struct codec){.dev = dev, .values = values, .senders = senders};
    enum sotto_status st = tiling_make(&c->tiling, rule, table, own, section);
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
        (void)device_check(c->dev); /* ops in flight read the list of tiles */
    for (int i = 0; i < 4; i++)
        buffer_free(all[i]);
    free(c->list);
    free(c->section);
    tiling_free(&c->tiling);
    *c = (struct codec){0};
}

struct view codec_messages(const struct codec *c, int k)
{
    return view_at(c->message.view, c->section[k].at);
}

/* Returns sender 0's values of section k in the type of the ops. `step`: distance to the next
 * sender's values. */
static struct view values_of(const struct codec *c, int k, size_t *step)
{
    if (c->values == CODEC_SIGNS) {
        *step = c->tiling.section[k].kept;
        return view_at(c->value.view, c->section[k].coefficients);
    }
    struct view v = codec_messages(c, k); /* a message begins with its values and has whole words */
    v.type = c->values == CODEC_BF16 ? DTYPE_BF16 : DTYPE_F32;
    *step = c->section[k].bytes / dtype_size(v.type);
    return v;
}

static struct tiling section_tiles(const struct codec *c, int k)
{
    const struct tiling_section *s = &c->tiling.section[k];
    return (struct tiling){.tiles = c->tiling.list + s->first, .n = s->n};
}

/* Finds the next tiles of section k: whole rows, which fill the second-level caches of the device's
 * cores or keep a GPU busy. They cover the vector from b->from to `end`. The first call has a zero
 * `b`. */
enum { BLOCK = 1 << 17, BLOCK_FAR = 1 << 24 }; /* elements, of a core, of a GPU */
static bool next_tiles(const struct codec *c, int k, struct tiling *b, size_t *end)
{
    const struct tiling_section *s = &c->tiling.section[k];
    const struct tiles *t = b->tiles ? b->tiles : c->tiling.list + s->first;
    if (b->tiles && b->end == t->ny * t->nx)
        *b = (struct tiling){.tiles = ++t};
    if (t == c->tiling.list + s->first + s->n)
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

/* Finds the next block. A device without data has one block. */
static bool next_block(const struct codec *c, int k, struct tiling *b, size_t *end)
{
    const struct tiling_section *s = &c->tiling.section[k];
    if (c->dev->ops->alloc)
        return next_tiles(c, k, b, end);
    const bool begins = !b->tiles && s->n > 0;
    *b = section_tiles(c, k);
    b->from = s->n > 0 ? b->tiles->at : 0;
    *end = s->end;
    return begins;
}

size_t codec_room(const struct codec *c)
{
    size_t most = 0, end;
    for (int k = 0; k < c->tiling.n_section; k++)
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
    const size_t kept = c->tiling.section[k].kept;
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
    const size_t kept = c->tiling.section[k].kept;
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

/* Bytes of all coefficients: places and values in memory, and both again in the message. */
static double message_bytes(const struct codec *c, int k)
{
    return 8. * (double)c->tiling.section[k].kept + 2. * (double)c->section[k].bytes;
}

double codec_encode_bytes(const struct codec *c, int k)
{
    return 8. * (double)c->tiling.section[k].elements + message_bytes(c, k);
}

double codec_decode_bytes(const struct codec *c, int k)
{
    return 4. * (double)c->tiling.section[k].elements + (double)c->senders * message_bytes(c, k);
}

#include "codec/codec.h"

#include <stdlib.h>

/* Of an index into `size` elements. */
static int bits_of(int size)
{
    int bits = 0;
    while (1 << bits < size)
        bits++;
    return bits;
}

static size_t value_bytes(const struct codec *c)
{
    const size_t n = c->cut.kept;
    return c->values == CODEC_SIGNS ? (n + 3) / 4 : n * (c->values == CODEC_BF16 ? 2 : 4);
}

/* Lists of tiles that follow one another and have indices of as many bits are one. */
static enum sotto_status place_indices(struct codec *c)
{
    c->list = calloc((size_t)c->cut.n + 1, sizeof *c->list);
    if (!c->list)
        return fail(SOTTO_ENOMEM, "no memory for %d lists of indices", c->cut.n);
    for (int i = 0; i < c->cut.n; i++) {
        const struct tiles *t = &c->cut.list[i];
        if (t->h * t->w == 1) /* all of its indices are 0, as they are from the beginning */
            continue;
        const size_t count = (size_t)t->ny * (size_t)t->nx * (size_t)t->keep;
        struct codec_list *last = c->n_list ? &c->list[c->n_list - 1] : NULL;
        if (last && last->bits == bits_of(t->h * t->w) && last->first + last->count == t->kept)
            last->count += count;
        else
            c->list[c->n_list++] =
                (struct codec_list){.bits = bits_of(t->h * t->w), .first = t->kept, .count = count};
    }
    c->bytes = value_bytes(c);
    for (int i = 0; i < c->n_list; i++) {
        c->list[i].at = c->bytes;
        c->bytes += (c->list[i].count * (size_t)c->list[i].bits + 7) / 8;
    }
    c->bytes = (c->bytes + 3) / 4 * 4;
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
                             const struct owned *own, int senders)
{
    *c = (struct codec){.dev = dev, .values = values, .senders = senders};
    enum sotto_status st = cut_make(&c->cut, rule, table, own);
    if (st == SOTTO_OK)
        st = place_indices(c);
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
    cut_free(&c->cut);
    *c = (struct codec){0};
}

/* The values as ops take them: sender 0's, and how far it is to the next one's. */
static struct view values_of(const struct codec *c, size_t *step)
{
    if (c->values == CODEC_SIGNS) {
        *step = c->cut.kept;
        return c->value.view;
    }
    struct view v = c->message.view; /* a message begins with them, and is whole words */
    v.type = c->values == CODEC_BF16 ? DTYPE_BF16 : DTYPE_F32;
    *step = c->bytes / dtype_size(v.type);
    return v;
}

void codec_encode(struct codec *c, int sender, struct view m)
{
    const struct ops *ops = c->dev->ops;
    const struct tiling tiling = {c->cut.list, c->cut.n};
    const struct view message = view_at(c->message.view, (size_t)sender * c->bytes);
    const struct view index = view_at(c->index.view, (size_t)sender * c->cut.kept);
    size_t step;
    const struct view first = values_of(c, &step), value = view_at(first, (size_t)sender * step);
    ops->tiles_encode(c->dev, &tiling, c->basis.view, m, index, value);
    if (c->values == CODEC_SIGNS)
        ops->signs_pack(c->dev, message, value, c->cut.kept);
    for (int i = 0; i < c->n_list; i++)
        ops->bits_pack(c->dev, c->list[i].bits, view_at(message, c->list[i].at),
                       view_at(index, c->list[i].first), c->list[i].count);
}

void codec_decode(struct codec *c, struct view y)
{
    const struct ops *ops = c->dev->ops;
    const struct tiling tiling = {c->cut.list, c->cut.n};
    size_t step;
    const struct view value = values_of(c, &step);
    for (int r = 0; r < c->senders; r++) {
        const struct view message = view_at(c->message.view, (size_t)r * c->bytes);
        const struct view index = view_at(c->index.view, (size_t)r * c->cut.kept);
        if (c->values == CODEC_SIGNS)
            ops->signs_unpack(c->dev, view_at(value, (size_t)r * step), message, c->cut.kept,
                              false);
        for (int i = 0; i < c->n_list; i++)
            ops->bits_unpack(c->dev, c->list[i].bits, view_at(index, c->list[i].first),
                             view_at(message, c->list[i].at), c->list[i].count);
    }
    ops->tiles_decode(c->dev, &tiling, c->basis.view, c->senders, y, c->index.view, c->cut.kept,
                      value, step);
}

/* A coefficient: its place, its value, and both again in a message. */
static double message_bytes(const struct codec *c)
{
    return 8. * (double)c->cut.kept + 2. * (double)c->bytes;
}

double codec_encode_bytes(const struct codec *c)
{
    return 8. * (double)c->cut.elements + message_bytes(c);
}

double codec_decode_bytes(const struct codec *c)
{
    return 4. * (double)c->cut.elements + (double)c->senders * message_bytes(c);
}

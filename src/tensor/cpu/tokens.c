/* Ops between tokens and activations: embedding, rotary positions, cross-entropy. */
#include <assert.h>

#include "tensor/cpu/cpu.h"

void cpu_embedding_forward(struct device *dev, int batch, int t, int width, int start,
                           struct view y, struct view tokens, struct view table,
                           struct view positions)
{
    const int32_t *token = tokens.data;
    const struct kernels *k = kernels_of(dev);
    size_t w = (size_t)width, rows = (size_t)batch * (size_t)t;
    float *rooms = device_scratch(dev, 2 * w * (size_t)dev->threads * sizeof *rooms);
    if (!rooms)
        return;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, rows *w))
    for (size_t r = 0; r < rows; r++) {
        float *room = rooms + 2 * w * (size_t)thread_index();
        float *out = place_floats(y, r * w, room);
        const float *from = load_floats(k, table, (size_t)token[r] * w, w, out);
        if (from != out)
            memcpy(out, from, w * sizeof *out);
        if (positions.data) {
            size_t position = (size_t)start + r % (size_t)t;
            k->vector->add(out, load_floats(k, positions, position * w, w, room + w), w);
        }
        store_floats(k, y, r * w, w, out);
    }
}

/* A row of the batch and its token. */
struct row_token {
    uint32_t token, row;
};

/* Sorts rows by token, rows of a token in their order: a merge sort of runs that double in
 * length, between two halves of `room`. Returns the half with the result. */
static struct row_token *sort_rows(struct row_token *room, const int32_t *tokens, size_t rows)
{
    struct row_token *from = room, *to = room + rows;
    for (size_t r = 0; r < rows; r++)
        from[r] = (struct row_token){(uint32_t)tokens[r], (uint32_t)r};
    for (size_t run = 1; run < rows; run *= 2) {
        for (size_t at = 0; at < rows; at += 2 * run) {
            size_t a = at, a_end = min_size(at + run, rows), b = a_end;
            size_t b_end = min_size(at + 2 * run, rows);
            for (size_t i = at; i < b_end; i++)
                to[i] = b == b_end || (a < a_end && from[a].token <= from[b].token) ? from[a++]
                                                                                    : from[b++];
        }
        struct row_token *sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* y += the sum of columns [c, c + n) of rows of dy, rounded once. The rows are order[first ..
 * end) of a sorted batch, or without `order` first, first + every, ... up to `end`. */
static void add_rows(const struct kernels *k, struct view y, struct view dy, size_t w, size_t c,
                     size_t n, const struct row_token *order, size_t first, size_t end,
                     size_t every)
{
    float total[CHUNK], x_room[CHUNK], y_room[CHUNK];
    const float *sum = load_floats(k, dy, (order ? order[first].row : first) * w + c, n, x_room);
    if (first + every < end)
        sum = memcpy(total, sum, n * sizeof *sum);
    for (size_t i = first + every; i < end; i += every) {
        size_t row = order ? order[i].row : i;
        k->vector->add(total, load_floats(k, dy, row * w + c, n, x_room), n);
    }
    float *to = load_floats(k, y, c, n, y_room);
    k->vector->add(to, sum, n);
    store_floats(k, y, c, n, to);
}

/* A token may occur in many rows, so threads own columns, not rows. */
void cpu_embedding_backward(struct device *dev, int batch, int t, int width, struct view dtable,
                            struct view dpositions, struct view tokens, struct view dy)
{
    const struct kernels *k = kernels_of(dev);
    size_t w = (size_t)width, rows = (size_t)batch * (size_t)t, period = (size_t)t;
    size_t step = min_size(CHUNK, round_up(w / (size_t)dev->threads + 1, 64));
    struct row_token *room = device_scratch(dev, 2 * rows * sizeof *room);
    if (!room)
        return;
    const struct row_token *order = dtable.data ? sort_rows(room, tokens.data, rows) : NULL;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, rows *w))
    for (size_t c = 0; c < w; c += step) {
        size_t n = min_size(step, w - c);
        for (size_t first = 0, end; dtable.data && first < rows; first = end) {
            for (end = first + 1; end < rows && order[end].token == order[first].token;)
                end++;
            add_rows(k, view_at(dtable, order[first].token * w), dy, w, c, n, order, first, end, 1);
        }
        for (size_t p = 0; dpositions.data && p < period; p++)
            add_rows(k, view_at(dpositions, p * w), dy, w, c, n, NULL, p, rows, period);
    }
}

static inline size_t rope_work(const struct rope *p)
{
    return (size_t)p->batch * (size_t)p->t * (size_t)p->heads * (size_t)p->width;
}

/* The angles of a position serve all its heads and sequences, so threads own positions. */
void cpu_rope(struct device *dev, const struct rope *p, struct view x, bool inverse)
{
    const struct kernels *k = kernels_of(dev);
    assert(p->width % 2 == 0);
    size_t half = (size_t)p->width / 2;
    float *rooms = device_scratch(dev, 4 * half * (size_t)dev->threads * sizeof *rooms);
    if (!rooms)
        return;
#pragma omp parallel for schedule(static) num_threads(team_size(dev, rope_work(p)))
    for (int t = 0; t < p->t; t++) {
        float *cosine = rooms + 4 * half * (size_t)thread_index();
        float *sine = cosine + half, *room = sine + half;
        k->activation->rope_angles(cosine, sine, p->start + t, p->frequencies, (int)half);
        if (inverse)
            k->vector->scale(sine, -1, half);
        for (int b = 0; b < p->batch; b++) {
            size_t row = ((size_t)b * (size_t)p->t + (size_t)t) * (size_t)p->stride;
            for (int head = 0; head < p->heads; head++) {
                size_t at = row + (size_t)head * 2 * half;
                float *pair = load_floats(k, x, at, 2 * half, room);
                k->activation->rope_rotate(pair, pair + half, cosine, sine, (int)half);
                store_floats(k, x, at, 2 * half, pair);
            }
        }
    }
}

void cpu_cross_entropy(struct device *dev, int rows, int vocab, struct view logits,
                       struct view targets, float scale, struct view losses, struct view places)
{
    const int32_t *target = targets.data;
    float *loss = losses.data;
    uint8_t *place_of = places.data;
    const struct kernels *k = kernels_of(dev);
    size_t w = (size_t)vocab;
    bool widened = logits.type != DTYPE_F32;
    float *rooms = NULL;
    if (widened && !(rooms = device_scratch(dev, w * (size_t)dev->threads * sizeof *rooms)))
        return;
    const int threads = team_size(dev, w * (size_t)rows);
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads)                                                      \
    schedule(dynamic, chunks_per_turn((size_t)rows, threads))
    for (int r = 0; r < rows; r++) {
        float *room = widened ? rooms + w * (size_t)thread_index() : NULL;
        float *row = load_floats(k, logits, (size_t)r * w, w, room);
        assert(target[r] < vocab);
        if (target[r] >= 0) {
            loss[r] = k->loss->cross_entropy(row, vocab, target[r], scale,
                                             place_of ? &place_of[r] : NULL);
        } else {
            loss[r] = 0;
            if (place_of)
                place_of[r] = 0;
            if (scale != 0)
                k->vector->fill(row, 0, w);
        }
        if (scale != 0)
            store_floats(k, logits, (size_t)r * w, w, row);
    }
}

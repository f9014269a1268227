#include "strategy/replicate/sparse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

/* A message: how many values, the mask, the values; all as words of four bytes. */
static size_t mask_words(size_t count)
{
    return (count + 31) / 32;
}

static size_t row_length(const struct table_entry *e)
{
    return e->ndim >= 2 ? e->count / (size_t)e->shape[0] : e->count;
}

enum sotto_status sparse_init(struct sparse *s, const struct table *table, int index, int parts,
                              struct device *dev, size_t count, int size, double prune)
{
    size_t longest = 1, block = comm_block(count, size, 0).end;
    const size_t message = 1 + mask_words(block) + block;
    for (int i = 0; i < table->n; i++)
        if (row_length(&table->entry[i]) > longest)
            longest = row_length(&table->entry[i]);
    *s = (struct sparse){.table = table,
                         .index = index,
                         .parts = parts,
                         .prune = prune,
                         .count = count,
                         .memory = dev->memory,
                         .bytes = (count + longest + 2 * message) * sizeof(float)};
    memory_add(s->memory, MEMORY_COMMUNICATION, s->bytes);
    if (!dev->ops->alloc)
        return SOTTO_OK;
    s->value = calloc(count + 1, sizeof *s->value);
    s->row = calloc(longest, sizeof *s->row);
    s->out = calloc(message, sizeof *s->out);
    s->in = calloc(message, sizeof *s->in);
    if (s->value && s->row && s->out && s->in)
        return SOTTO_OK;
    sparse_free(s);
    return fail(SOTTO_ENOMEM, "no memory to prune %zu values", count);
}

void sparse_free(struct sparse *s)
{
    free(s->value);
    free(s->row);
    free(s->out);
    free(s->in);
    if (s->memory)
        memory_remove(s->memory, MEMORY_COMMUNICATION, s->bytes);
    *s = (struct sparse){0};
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static size_t kept_of(const struct sparse *s, size_t n)
{
    return (size_t)ceil((1 - s->prune) * (double)n - 1e-9);
}

/* Keeps (1-p) n values, rounded up; ties go to the lower index. */
static void prune_row(struct sparse *s, float *x, size_t n)
{
    size_t keep = kept_of(s, n), equal = 0;
    for (size_t i = 0; i < n; i++)
        s->row[i] = fabsf(x[i]);
    qsort(s->row, n, sizeof *s->row, descending);
    const float least = keep ? s->row[keep - 1] : INFINITY;
    for (size_t i = 0; i < keep; i++)
        equal += s->row[i] == least;
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        if (size > least || (size == least && equal > 0))
            equal -= size == least;
        else
            x[i] = 0;
    }
}

void sparse_prune(struct sparse *s)
{
    for (int i = 0; s->value && i < s->table->n; i++) {
        struct span span = table_span(s->table, i, s->index, s->parts);
        size_t length = row_length(&s->table->entry[i]), end = span.first + span.count;
        for (size_t at = span.first, next; at < end; at = next) { /* a slice may cut a row */
            next = (at / length + 1) * length < end ? (at / length + 1) * length : end;
            prune_row(s, s->value + span.begin + (at - span.first), next - at);
        }
    }
}

/* Words of the message behind its first one. */
static size_t pack(struct sparse *s, struct comm_block b)
{
    const size_t n = b.end - b.begin, words = mask_words(n);
    if (!s->value)
        return words + kept_of(s, n);
    uint32_t *mask = (uint32_t *)(void *)s->out + 1, kept = 0;
    float *to = s->out + 1 + words;
    memset(mask, 0, words * sizeof *mask);
    for (size_t i = 0; i < n; i++) {
        float x = s->value[b.begin + i];
        if (x != 0) {
            mask[i / 32] |= 1u << i % 32;
            to[kept++] = x;
        }
    }
    memcpy(s->out, &kept, sizeof kept);
    return words + kept;
}

static void add(struct sparse *s, struct comm_block b)
{
    const size_t n = b.end - b.begin;
    if (!s->value)
        return;
    const uint32_t *mask = (const uint32_t *)(const void *)s->in + 1;
    const float *from = s->in + 1 + mask_words(n);
    for (size_t i = 0; i < n; i++)
        if (mask[i / 32] >> i % 32 & 1)
            s->value[b.begin + i] += *from++;
}

static enum sotto_status send_block(struct sparse *s, struct comm *c, int to)
{
    const struct view out = {s->out, DTYPE_F32};
    size_t words = pack(s, comm_block(s->count, c->size, to));
    TRY(comm_send(c, out, 1, to));
    return comm_send(c, view_at(out, 1), words, to);
}

static enum sotto_status receive_block(struct sparse *s, struct comm *c, int from)
{
    const struct comm_block mine = comm_block(s->count, c->size, c->rank);
    const size_t n = mine.end - mine.begin;
    const struct view in = {s->in, DTYPE_F32};
    uint32_t kept = (uint32_t)kept_of(s, n);
    TRY(comm_recv(c, in, 1, from));
    if (s->in)
        memcpy(&kept, s->in, sizeof kept);
    if (kept > n)
        return fail(SOTTO_EPEER, "rank %d sends %u values of a block of %zu", from, kept, n);
    return comm_recv(c, view_at(in, 1), mask_words(n) + kept, from);
}

/* Everybody sends to everybody, one distance after another. A send may wait for its receiver: those
 * whose partner lies beyond the end receive first, so somebody always does. */
enum sotto_status sparse_sum(struct sparse *s, struct comm *c)
{
    const struct comm_block mine = comm_block(s->count, c->size, c->rank);
    for (int far = 1; far < c->size; far++) {
        const int to = (c->rank + far) % c->size, from = (c->rank + c->size - far) % c->size;
        const bool first = c->rank + far < c->size;
        if (first)
            TRY(send_block(s, c, to));
        TRY(receive_block(s, c, from));
        add(s, mine);
        if (!first)
            TRY(send_block(s, c, to));
    }
    const struct view all = {s->value, DTYPE_F32};
    return comm_allgather(c, all, view_at(all, mine.begin), s->count);
}

#include "strategy/replicate/sparse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/ops.h"

/* A message: a mask and the marked values, in words of a value's bytes; or all values, if that is
 * no longer. */
static size_t mask_words(const struct sparse *s, size_t count)
{
    const size_t bits = 8 * dtype_size(s->type);
    return (count + bits - 1) / bits;
}

/* Returns a value as other ranks receive it. */
static float round_value(const struct sparse *s, float x)
{
    return s->type == DTYPE_BF16 ? bf16_widen(bf16_round(x)) : x;
}

static void put_value(const struct sparse *s, void *words, size_t i, float x)
{
    if (s->type == DTYPE_BF16)
        ((uint16_t *)words)[i] = bf16_round(x);
    else
        ((float *)words)[i] = x;
}

static float value_at(const struct sparse *s, const void *words, size_t i)
{
    return s->type == DTYPE_BF16 ? bf16_widen(((const uint16_t *)words)[i])
                                 : ((const float *)words)[i];
}

static size_t row_length(const struct table_entry *e)
{
    return e->ndim >= 2 ? e->count / (size_t)e->shape[0] : e->count;
}

/* Initializes for messages of up to `block` elements. */
static enum sotto_status init_sparse(struct sparse *s, const struct work *on,
                                     const struct table *table, const struct owned *own,
                                     double prune, enum dtype type, size_t block)
{
    struct device *dev = on->dev;
    const size_t count = owned_count(own, table);
    size_t longest = 1;
    for (int i = 0; i < table->n; i++)
        if (row_length(&table->entry[i]) > longest)
            longest = row_length(&table->entry[i]);
    *s = (struct sparse){.table = table,
                         .own = own,
                         .prune = prune,
                         .type = type,
                         .count = count,
                         .memory = dev->memory,
                         .on = *on,
                         .bytes = (count + longest) * sizeof(float) + 2 * block * dtype_size(type)};
    memory_add(s->memory, MEMORY_COMMUNICATION, s->bytes);
    if (!dev->ops->alloc)
        return SOTTO_OK;
    s->value = calloc(count + 1, sizeof *s->value);
    s->row = calloc(longest, sizeof *s->row);
    s->out = calloc(block + 1, dtype_size(type));
    s->in = calloc(block + 1, dtype_size(type));
    if (s->value && s->row && s->out && s->in)
        return SOTTO_OK;
    sparse_free(s);
    return fail(SOTTO_ENOMEM, "no memory to prune %zu values", count);
}

enum sotto_status sparse_init(struct sparse *s, const struct work *on, const struct table *table,
                              const struct owned *own, double prune, enum dtype type)
{
    const size_t count = owned_count(own, table);
    const int size = on->mesh->n_r;
    return init_sparse(s, on, table, own, prune, type,
                       size == 2 ? count : comm_block(count, size, 0).end);
}

enum sotto_status sparse_init_message(struct sparse *s, const struct work *on,
                                      const struct table *table, const struct owned *own,
                                      double prune, enum dtype type)
{
    return init_sparse(s, on, table, own, prune, type, owned_count(own, table));
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

/* Moves the k largest to the front and returns the least of them, 0 < k <= n: Hoare's FIND, a few
 * passes. A sort took most of an exchange. */
static float find_largest(float *x, size_t n, size_t k)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, last = (ptrdiff_t)k - 1;
    while (low < high) {
        const float pivot = x[last];
        ptrdiff_t i = low, j = high;
        do {
            while (x[i] > pivot)
                i++;
            while (pivot > x[j])
                j--;
            if (i <= j) {
                const float moved = x[i];
                x[i++] = x[j];
                x[j--] = moved;
            }
        } while (i <= j);
        if (j < last)
            low = i;
        if (last < i)
            high = j;
    }
    return x[last];
}

/* Returns the number of n values that at least one of `ranks` ranks keeps, if ranks choose
 * independently. */
static size_t values_kept(const struct sparse *s, size_t n, int ranks)
{
    return (size_t)ceil((1 - pow(s->prune, ranks)) * (double)n - 1e-9);
}

/* Returns |x|, and infinity for a value that is no number: the value is sent, and does not hide
 * others. */
static float magnitude_of(float x)
{
    return isnan(x) ? INFINITY : fabsf(x);
}

/* Keeps (1-p) n values, rounded up; ties go to the lower index. */
static void prune_row(struct sparse *s, float *x, size_t n)
{
    size_t keep = values_kept(s, n, 1), equal = 0;
    for (size_t i = 0; i < n; i++)
        s->row[i] = magnitude_of(x[i]);
    const float least = keep ? find_largest(s->row, n, keep) : INFINITY;
    for (size_t i = 0; i < keep; i++)
        equal += s->row[i] == least;
    for (size_t i = 0; i < n; i++) {
        float size = magnitude_of(x[i]);
        const bool kept = size > least || (size == least && equal > 0);
        equal -= kept && size == least;
        x[i] = kept ? round_value(s, x[i]) : 0;
    }
}

/* Prunes the rows of a piece of a tensor, from element `first` of the tensor on. The first and the
 * last row may be partial. */
static void prune_piece(struct sparse *s, struct piece p, size_t first, size_t length)
{
    const size_t end = first + p.count;
    for (size_t at = first, next; at < end; at = next) {
        next = (at / length + 1) * length < end ? (at / length + 1) * length : end;
        prune_row(s, s->value + p.own + (at - first), next - at);
    }
}

static enum sotto_status prune_job(void *arg)
{
    struct sparse *s = arg;
    for (int i = 0; s->value && i < s->table->n; i++) {
        const struct range tensor = table_range(s->table, i);
        for (struct piece p = {0}; owned_next(s->own, tensor, &p);)
            prune_piece(s, p, p.whole - tensor.begin, row_length(&s->table->entry[i]));
    }
    return SOTTO_OK;
}

enum sotto_status sparse_prune(struct sparse *s)
{
    /* A value is copied, compared and zeroed; the search reads and writes about two more. */
    return work_run(&s->on, prune_job, s, 8. * sizeof(float) * (double)s->count);
}

/* Rounds the values of a block as in a message, makes -0 to 0, so that sent and kept values have
 * the same bits, and counts values that are not 0. */
static size_t count_values(const struct sparse *s, float *value, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        value[i] = round_value(s, value[i]);
        if (value[i] != 0)
            count++;
        else
            value[i] = 0;
    }
    return count;
}

/* Writes the message's words: all values of the block, or the mask and values that are not 0. */
static enum sotto_status pack_block(void *arg)
{
    struct sparse *s = arg;
    const struct comm_block b = s->now.block;
    const size_t n = b.end - b.begin, mask_length = mask_words(s, n);
    if (!s->value)
        return SOTTO_OK;
    float *value = s->value + b.begin;
    const size_t kept = count_values(s, value, n);
    s->now.dense = mask_length + kept >= n;
    s->now.words = s->now.dense ? n : mask_length + kept;
    if (s->now.dense) {
        for (size_t i = 0; i < n; i++)
            put_value(s, s->out, i, value[i]);
        return SOTTO_OK;
    }
    uint8_t *mask = s->out;
    size_t to = mask_length;
    memset(mask, 0, mask_length * dtype_size(s->type));
    for (size_t i = 0; i < n; i++)
        if (value[i] != 0) {
            mask[i / 8] |= (uint8_t)(1u << i % 8);
            put_value(s, s->out, to++, value[i]);
        }
    return SOTTO_OK;
}

static double word_bytes(const struct sparse *s, size_t words)
{
    return (double)dtype_size(s->type) * (double)words;
}

/* Packs block `b` in s->out. Without data, `kept` values are assumed, also for the time. */
static enum sotto_status pack_message(struct sparse *s, struct comm_block b, size_t kept,
                                      size_t *words)
{
    const size_t n = b.end - b.begin;
    const size_t expected = mask_words(s, n) + kept >= n ? n : mask_words(s, n) + kept;
    s->now.block = b;
    s->now.words = expected;
    TRY(work_run(&s->on, pack_block, s, 2. * sizeof(float) * (double)n + word_bytes(s, expected)));
    *words = s->now.words;
    return SOTTO_OK;
}

static enum sotto_status add_message(void *arg)
{
    struct sparse *s = arg;
    const struct comm_block b = s->now.block;
    const bool dense = s->now.dense;
    if (!s->value) /* a null device has nothing to add */
        return SOTTO_OK;
    const uint8_t *mask = s->in;
    size_t from = dense ? 0 : mask_words(s, b.end - b.begin);
    for (size_t i = 0; i < b.end - b.begin; i++)
        if (dense || mask[i / 8] >> i % 8 & 1)
            s->value[b.begin + i] += value_at(s, s->in, from++);
    return SOTTO_OK;
}

/* Adds a message of `words` words in s->in to block `b`. */
static enum sotto_status unpack_message(struct sparse *s, size_t words, struct comm_block b,
                                        int from)
{
    const size_t n = b.end - b.begin;
    size_t want = mask_words(s, n);
    const uint8_t *mask = s->in;
    for (size_t i = 0; s->value && words < n && i < (n + 7) / 8 && want <= words; i++)
        want += (size_t)__builtin_popcount(mask[i]);
    if (s->value && words != n && words != want)
        return fail(SOTTO_EPEER, "rank %d sends %zu words for a block of %zu values", from, words,
                    n);
    s->now.block = b;
    s->now.dense = words == n;
    return work_run(&s->on, add_message, s, 2. * sizeof(float) * (double)n + word_bytes(s, words));
}

enum sotto_status sparse_pack(struct sparse *s, size_t *words)
{
    return pack_message(s, (struct comm_block){0, s->count}, values_kept(s, s->count, 1), words);
}

enum sotto_status sparse_unpack(struct sparse *s, size_t words, int from)
{
    if (s->value)
        memset(s->value, 0, s->count * sizeof *s->value);
    return unpack_message(s, words, (struct comm_block){0, s->count}, from);
}

/* Sends `words` of s->out to the rank `far` ahead, and adds the message of the rank `far` before
 * this one to block `b`. */
static enum sotto_status exchange_blocks(struct sparse *s, struct comm *c, int far, size_t words,
                                         struct comm_block b)
{
    const int to = (c->rank + far) % c->size, from = (c->rank + c->size - far) % c->size;
    const struct view out = view_of(s->out, s->type), in = view_of(s->in, s->type);
    size_t received;
    TRY(comm_exchange(c, out, words, to, in, b.end - b.begin, from, &received));
    return unpack_message(s, received, b, from);
}

enum sotto_status sparse_sum(struct sparse *s, struct comm *c)
{
    size_t words;
    if (c->size == 2) {
        const struct comm_block all = {0, s->count};
        TRY(pack_message(s, all, values_kept(s, s->count, 1), &words));
        return exchange_blocks(s, c, 1, words, all);
    }
    const struct comm_block mine = comm_block(s->count, c->size, c->rank);
    for (int far = 1; far < c->size; far++) {
        struct comm_block to = comm_block(s->count, c->size, (c->rank + far) % c->size);
        TRY(pack_message(s, to, values_kept(s, to.end - to.begin, 1), &words));
        TRY(exchange_blocks(s, c, far, words, mine));
    }
    TRY(pack_message(s, mine, values_kept(s, mine.end - mine.begin, c->size), &words));
    for (int far = 1; far < c->size; far++) {
        struct comm_block b = comm_block(s->count, c->size, (c->rank + c->size - far) % c->size);
        if (s->value)
            memset(s->value + b.begin, 0, (b.end - b.begin) * sizeof *s->value);
        TRY(exchange_blocks(s, c, far, words, b));
    }
    return SOTTO_OK;
}

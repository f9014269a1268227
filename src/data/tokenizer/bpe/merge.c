/* From the bytes or characters of a word to ids: of all neighbouring pairs with a merge, the
 * leftmost pair of the lowest rank becomes one token, until no pair is left.
 *
 * Short words are searched for each merge; long words keep their pairs in a heap: O(n log n). */
#include "data/tokenizer/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 48 /* symbols: the heap is faster above */

struct bpe_symbol {
    uint32_t id; /* BPE_NONE: merged into its left neighbour */
    uint32_t left, right;
};

static size_t word_to_symbols(const struct bpe_model *model, const uint8_t *word, size_t size,
                              uint32_t *id)
{
    size_t n = 0;
    bool fuse = false;
    if (model->characters)
        return bpe_character_symbols(model, word, size, id);
    for (size_t i = 0; i < size; i++) {
        uint32_t next = model->byte_id[word[i]];
        bool unknown = next == BPE_NONE;
        if (unknown && (fuse || model->unknown == BPE_NONE))
            continue;
        id[n++] = unknown ? model->unknown : next;
        fuse = unknown && model->fuse_unknown;
    }
    return n;
}

static uint32_t pair_rank(const struct bpe_model *model, uint32_t left, uint32_t right)
{
    const struct bpe_pair_slot *slot = bpe_model_pair(model, left, right);
    return slot ? slot->rank : BPE_NONE;
}

/* Returns the number of ids that are left. */
static size_t merge_short(const struct bpe_model *model, uint32_t *id, size_t n)
{
    uint32_t rank[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pair_rank(model, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NONE)
            break;
        id[best] = model->merge[rank[best]].result;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
        }
        if (best > 0)
            rank[best - 1] = pair_rank(model, id[best - 1], id[best]);
        if (best + 1 < n)
            rank[best] = pair_rank(model, id[best], id[best + 1]);
    }
    return n;
}

static void sift_pair_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t key = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void sift_pair_up(uint64_t *heap, size_t i, uint64_t key)
{
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

/* Adds the pair at `at` to the heap, if the pair has a merge. */
static size_t push_pair(const struct bpe_model *model, const struct bpe_symbol *s, uint32_t at,
                        uint64_t *heap, size_t n)
{
    uint32_t rank =
        s[at].right == BPE_NONE ? BPE_NONE : pair_rank(model, s[at].id, s[s[at].right].id);
    if (rank != BPE_NONE)
        sift_pair_up(heap, n++, (uint64_t)rank << 32 | at);
    return n;
}

/* Merges with a heap of rank << 32 | place. An entry for a pair that has changed is recognised by
 * the rank: symbols only grow, so the same pair does not return to the same place. Every merge
 * removes one entry and adds at most two: room for 2 n is enough. */
static size_t merge_long(const struct bpe_model *model, struct bpe_symbol *s, size_t n,
                         uint64_t *heap)
{
    size_t pending = 0, left = n;
    for (size_t i = 0; i < n; i++) {
        s[i].left = i > 0 ? (uint32_t)i - 1 : BPE_NONE;
        s[i].right = i + 1 < n ? (uint32_t)i + 1 : BPE_NONE;
    }
    for (size_t i = 0; i + 1 < n; i++)
        pending = push_pair(model, s, (uint32_t)i, heap, pending);
    while (pending > 0) {
        uint32_t rank = (uint32_t)(heap[0] >> 32), at = (uint32_t)heap[0];
        heap[0] = heap[--pending];
        if (pending)
            sift_pair_down(heap, pending, 0);
        uint32_t right = s[at].id == BPE_NONE ? BPE_NONE : s[at].right;
        if (right == BPE_NONE || pair_rank(model, s[at].id, s[right].id) != rank)
            continue;
        s[at].id = model->merge[rank].result;
        s[at].right = s[right].right;
        s[right].id = BPE_NONE;
        if (s[at].right != BPE_NONE)
            s[s[at].right].left = at;
        if (s[at].left != BPE_NONE)
            pending = push_pair(model, s, s[at].left, heap, pending);
        pending = push_pair(model, s, at, heap, pending);
        left--;
    }
    return left;
}

static enum sotto_status reserve_symbols(struct bpe_work *work, size_t n)
{
    if (n <= work->symbol_room)
        return SOTTO_OK;
    free(work->symbol);
    free(work->heap);
    work->symbol_room = n + n / 2;
    work->symbol = malloc(work->symbol_room * sizeof *work->symbol);
    work->heap = malloc(work->symbol_room * 2 * sizeof *work->heap);
    if (work->symbol && work->heap)
        return SOTTO_OK;
    work->symbol_room = 0;
    return fail(SOTTO_ENOMEM, "no memory for a word of %zu bytes", n);
}

enum sotto_status bpe_word_merge(struct bpe_work *work, const struct bpe_model *model,
                                 const char *word, size_t size, int32_t *out, size_t *count)
{
    if (size > BPE_MAX_WORD)
        return fail(SOTTO_EINVAL, "a word of %zu bytes is more than the %u allowed", size,
                    BPE_MAX_WORD);
    if (size <= SHORT_WORD) {
        uint32_t id[SHORT_WORD];
        size_t n = merge_short(model, id, word_to_symbols(model, (const uint8_t *)word, size, id));
        for (size_t i = 0; i < n; i++)
            out[i] = (int32_t)id[i];
        *count = n;
        return SOTTO_OK;
    }
    TRY(reserve_symbols(work, size));
    size_t n = word_to_symbols(model, (const uint8_t *)word, size, (uint32_t *)work->heap);
    for (size_t i = 0; i < n; i++)
        work->symbol[i].id = ((uint32_t *)work->heap)[i];
    *count = n ? merge_long(model, work->symbol, n, work->heap) : 0;
    for (size_t i = 0, k = 0; k < *count; i++)
        if (work->symbol[i].id != BPE_NONE)
            out[k++] = (int32_t)work->symbol[i].id;
    return SOTTO_OK;
}

/* Indexes the words that merging turns into one token: most words of a text are found with one
 * look-up. */
enum sotto_status bpe_model_index_words(struct bpe_model *model)
{
    uint32_t size = bpe_table_size(model->n_text);
    model->whole_mask = size - 1;
    model->whole = malloc(size * sizeof *model->whole);
    if (!model->whole)
        return fail(SOTTO_ENOMEM, "no memory for a vocabulary of %u", model->size);
    for (uint32_t i = 0; i < size; i++)
        model->whole[i].id = BPE_NONE;

    enum sotto_status st = SOTTO_OK;
    struct bpe_work work = {0};
    struct token_list ids = {0};
    for (uint32_t id = 0; id < model->size; id++) {
        struct bpe_token token = model->token[id];
        size_t count;
        if (token.text == BPE_NONE || token.bytes_size == 0 || token.bytes_size > BPE_MAX_WORD)
            continue;
        TRY_DONE(bpe_buffer_reserve(&model->pool, token.text_size));
        if (!model->characters &&
            !bpe_letters_to_bytes(bpe_token_text(model, id), token.text_size,
                                  model->pool.data + model->pool.count, &count))
            continue;
        const char *word = model->pool.data + token.bytes;
        if (!model->ignore_merges) {
            ids.count = 0;
            TRY_DONE(token_list_reserve(&ids, token.bytes_size));
            TRY_DONE(bpe_word_merge(&work, model, word, token.bytes_size, ids.data, &count));
            if (count != 1 || (uint32_t)ids.data[0] != id)
                continue;
        }
        uint32_t hash = bpe_hash(word, token.bytes_size), i = hash & model->whole_mask;
        while (model->whole[i].id != BPE_NONE)
            i = (i + 1) & model->whole_mask;
        model->whole[i] = (struct bpe_whole_slot){hash, id, token.bytes, token.bytes_size};
        if (token.bytes_size > model->longest)
            model->longest = token.bytes_size;
    }
done:
    free(work.symbol);
    free(work.heap);
    free(ids.data);
    return st;
}

static uint32_t find_whole(const struct bpe_model *model, const char *word, size_t size,
                           uint32_t hash)
{
    for (uint32_t i = hash;; i++) {
        const struct bpe_whole_slot *slot = &model->whole[i & model->whole_mask];
        if (slot->id == BPE_NONE)
            return BPE_NONE;
        if (slot->hash == hash && slot->size == size &&
            memcmp(model->pool.data + slot->bytes, word, size) == 0)
            return slot->id;
    }
}

enum sotto_status bpe_merged_ids(struct bpe_work *work, const char *word, size_t size, int32_t *out,
                                 size_t *count)
{
    return bpe_word_merge(work, work->model, word, size, out, count);
}

enum sotto_status bpe_word(struct bpe_work *work, const char *word, size_t size)
{
    const struct bpe_model *model = work->model;
    struct token_list *out = work->out;
    TRY(token_list_reserve(out, size));
    uint32_t hash = bpe_hash(word, size);
    if (size <= model->longest) {
        uint32_t id = find_whole(model, word, size, hash);
        if (id != BPE_NONE) {
            out->data[out->count++] = (int32_t)id;
            return SOTTO_OK;
        }
    }
    struct bpe_cached *cached =
        size <= BPE_CACHED_BYTES ? &work->cache[hash & work->cache_mask] : NULL;
    if (cached && cached->size == size && memcmp(cached->word, word, size) == 0) {
        memcpy(out->data + out->count, out->data + cached->at, cached->count * sizeof *out->data);
        out->count += cached->count;
        return SOTTO_OK;
    }
    size_t count;
    TRY(work->ids_of(work, word, size, out->data + out->count, &count));
    if (cached) {
        memcpy(cached->word, word, size);
        cached->size = (uint8_t)size;
        cached->count = (uint8_t)count;
        cached->at = out->count;
    }
    out->count += count;
    return SOTTO_OK;
}

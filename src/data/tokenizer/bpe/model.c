/* The vocabulary and the merges: building them with every check, and the tables for encoding. */
#include "data/tokenizer/bpe/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Makes ids below `size` exist. */
static enum sotto_status grow_model(struct bpe_model *model, uint32_t size)
{
    if (size > model->room) {
        uint32_t room =
            size / 2 < model->room ? size + size / 2 : size; /* one huge id costs no more */
        struct bpe_token *token = realloc(model->token, room * sizeof *token);
        if (!token)
            return fail(SOTTO_ENOMEM, "no memory for a vocabulary of %u", size);
        model->token = token;
        model->room = room;
    }
    for (; model->size < size; model->size++)
        model->token[model->size] = (struct bpe_token){.text = BPE_NONE, .bytes = BPE_NONE};
    return SOTTO_OK;
}

static enum sotto_status add_to_pool(struct bpe_model *model, const char *text, size_t size,
                                     uint32_t *at)
{
    if (size >= BPE_NONE - model->pool.count)
        return fail(SOTTO_EFORMAT, "the texts of the vocabulary take more than 4 GB");
    *at = (uint32_t)model->pool.count;
    return bpe_buffer_add(&model->pool, text, size);
}

/* Adds the token to the table of texts, which must not have the text yet. */
static enum sotto_status index_text(struct bpe_model *model, uint32_t id)
{
    if (!model->by_text || model->n_text >= model->by_text_mask / 2) {
        uint32_t size = model->by_text ? (model->by_text_mask + 1) * 2 : 1024;
        uint32_t *table = calloc(size, sizeof *table), *old = model->by_text;
        if (!table)
            return fail(SOTTO_ENOMEM, "no memory for a vocabulary of %u", model->size);
        for (uint32_t k = 0; old && k <= model->by_text_mask; k++) {
            if (!old[k])
                continue;
            const struct bpe_token *token = &model->token[old[k] - 1];
            uint32_t i = bpe_hash(model->pool.data + token->text, token->text_size);
            while (table[i & (size - 1)])
                i++;
            table[i & (size - 1)] = old[k];
        }
        free(old);
        model->by_text = table;
        model->by_text_mask = size - 1;
    }
    uint32_t i = bpe_hash(bpe_token_text(model, id), model->token[id].text_size);
    while (model->by_text[i & model->by_text_mask])
        i++;
    model->by_text[i & model->by_text_mask] = id + 1;
    model->n_text++;
    return SOTTO_OK;
}

enum sotto_status bpe_model_add(struct bpe_model *model, const char *text, size_t size, int64_t id)
{
    char a[48], b[48];
    if (id < 0 || id >= BPE_MAX_VOCAB)
        return fail(SOTTO_EFORMAT, "token \"%s\" has id %" PRId64 ", must be in 0..%d",
                    bpe_show(a, text, size), id, BPE_MAX_VOCAB - 1);
    uint32_t other = bpe_model_find(model, text, size);
    if (other != BPE_NONE)
        return fail(SOTTO_EFORMAT, "token \"%s\" has two ids: %u and %" PRId64,
                    bpe_show(a, text, size), other, id);
    TRY(grow_model(model, (uint32_t)id + 1));
    struct bpe_token *token = &model->token[id];
    if (token->text != BPE_NONE)
        return fail(SOTTO_EFORMAT, "tokens \"%s\" and \"%s\" have the same id %" PRId64,
                    bpe_show(a, bpe_token_text(model, (uint32_t)id), token->text_size),
                    bpe_show(b, text, size), id);
    TRY(add_to_pool(model, text, size, &token->text));
    token->text_size = (uint32_t)size;
    token->bytes = token->text;
    token->bytes_size = token->text_size;

    if (model->characters)
        return index_text(model, (uint32_t)id);
    TRY(bpe_buffer_reserve(&model->pool, size)); /* letters never take less than the bytes */
    char *bytes = model->pool.data + model->pool.count;
    size_t n;
    if (bpe_letters_to_bytes(bpe_token_text(model, (uint32_t)id), size, bytes, &n) &&
        (n != size || memcmp(bytes, bpe_token_text(model, (uint32_t)id), n) != 0)) {
        token->bytes = (uint32_t)model->pool.count;
        token->bytes_size = (uint32_t)n;
        model->pool.count += n;
    }
    return index_text(model, (uint32_t)id);
}

/* Returns the entry of the table of texts, NULL if the text has none. */
static uint32_t *find_text(const struct bpe_model *model, const char *text, size_t size)
{
    for (uint32_t i = bpe_hash(text, size); model->by_text; i++) {
        uint32_t *entry = &model->by_text[i & model->by_text_mask];
        if (!*entry)
            return NULL;
        const struct bpe_token *token = &model->token[*entry - 1];
        if (token->text_size == size && memcmp(model->pool.data + token->text, text, size) == 0)
            return entry;
    }
    return NULL;
}

uint32_t bpe_model_find(const struct bpe_model *model, const char *text, size_t size)
{
    const uint32_t *entry = find_text(model, text, size);
    return entry ? *entry - 1 : BPE_NONE;
}

enum sotto_status bpe_model_add_piece(struct bpe_model *model, const char *text, size_t size,
                                      uint32_t id)
{
    uint32_t *entry = find_text(model, text, size);
    if (!entry)
        return bpe_model_add(model, text, size, id);
    TRY(grow_model(model, id + 1));
    const struct bpe_token same = model->token[*entry - 1];
    model->token[id] = same;
    *entry = id + 1;
    return SOTTO_OK;
}

enum sotto_status bpe_model_merge(struct bpe_model *model, const char *left, size_t left_size,
                                  const char *right, size_t right_size)
{
    char a[48], b[48];
    if (model->n_merge >= BPE_MAX_VOCAB)
        return fail(SOTTO_EFORMAT, "more than %d merges", BPE_MAX_VOCAB);
    struct bpe_merge merge = {bpe_model_find(model, left, left_size),
                              bpe_model_find(model, right, right_size), BPE_NONE};
    if (merge.left == BPE_NONE || merge.right == BPE_NONE) {
        bool first = merge.left == BPE_NONE;
        return fail(SOTTO_EFORMAT, "merge %u names \"%s\": not in the vocabulary", model->n_merge,
                    bpe_show(a, first ? left : right, first ? left_size : right_size));
    }
    if (left_size == 0 || right_size == 0)
        return fail(SOTTO_EFORMAT, "merge %u has an empty side", model->n_merge);

    TRY(bpe_buffer_reserve(&model->pool, left_size + right_size)); /* scratch after the pool */
    char *joined = model->pool.data + model->pool.count;
    memcpy(joined, left, left_size);
    memcpy(joined + left_size, right, right_size);
    merge.result = bpe_model_find(model, joined, left_size + right_size);
    if (merge.result == BPE_NONE)
        return fail(SOTTO_EFORMAT,
                    "merge %u of \"%s\" and \"%s\" gives a token that is not in the vocabulary",
                    model->n_merge, bpe_show(a, left, left_size), bpe_show(b, right, right_size));
    if (model->n_merge == model->merge_room) {
        uint32_t room = model->merge_room * 2 + 64;
        struct bpe_merge *list = realloc(model->merge, room * sizeof *list);
        if (!list)
            return fail(SOTTO_ENOMEM, "no memory for %u merges", room);
        model->merge = list;
        model->merge_room = room;
    }
    model->merge[model->n_merge++] = merge;
    return SOTTO_OK;
}

static enum sotto_status index_pairs(struct bpe_model *model)
{
    uint32_t size = bpe_table_size(model->n_merge);
    model->pair_mask = size - 1;
    model->pair = malloc(size * sizeof *model->pair);
    if (!model->pair)
        return fail(SOTTO_ENOMEM, "no memory for %u merges", model->n_merge);
    for (uint32_t i = 0; i < size; i++)
        model->pair[i].rank = BPE_NONE;
    for (uint32_t rank = 0; rank < model->n_merge; rank++) {
        struct bpe_merge m = model->merge[rank];
        uint32_t i = bpe_hash_pair(m.left, m.right) & model->pair_mask;
        while (model->pair[i].rank != BPE_NONE &&
               !(model->pair[i].left == m.left && model->pair[i].right == m.right))
            i = (i + 1) & model->pair_mask;
        model->pair[i] = (struct bpe_pair_slot){m.left, m.right, rank, m.result};
    }
    return SOTTO_OK;
}

void bpe_model_find_bytes(struct bpe_model *model)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        int n = bpe_letter_utf8((uint8_t)byte, letter);
        model->byte_id[byte] = bpe_model_find(model, letter, (size_t)n);
    }
}

enum sotto_status bpe_model_finish(struct bpe_model *model)
{
    if (!model->characters)
        bpe_model_find_bytes(model);
    return index_pairs(model);
}

enum sotto_status bpe_model_set_bytes(struct bpe_model *model, uint32_t id, const char *bytes,
                                      size_t size)
{
    TRY(grow_model(model, id + 1));
    model->token[id].bytes_size = (uint32_t)size;
    return add_to_pool(model, bytes, size, &model->token[id].bytes);
}

void bpe_model_free(struct bpe_model *model)
{
    free(model->token);
    free(model->pool.data);
    free(model->merge);
    free(model->by_text);
    free(model->pair);
    free(model->whole);
    *model = (struct bpe_model){0};
}

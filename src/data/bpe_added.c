/* Added tokens: texts that become one id wherever they stand, whatever the merges say.
 *
 * At every place the longest one that begins there is taken, from left to right, as `tokenizers`
 * does. A token with `single_word` counts only where no word character touches it; `lstrip` and
 * `rstrip` let it swallow the white space beside it. */
#include "data/bpe.h"

#include <stdlib.h>
#include <string.h>

enum sotto_status bpe_added_add(struct bpe_added_list *list, struct bpe_added token,
                                const char *content, size_t size)
{
    if (list->count == list->room) {
        uint32_t room = list->room * 2 + 16;
        struct bpe_added *item = realloc(list->item, room * sizeof *item);
        if (!item)
            return fail(SOTTO_ENOMEM, "no memory for %u added tokens", room);
        list->item = item;
        list->room = room;
    }
    token.content = (uint32_t)list->pool.count;
    token.content_size = (uint32_t)size;
    TRY(bpe_buffer_add(&list->pool, content, size));
    list->item[list->count++] = token;
    return SOTTO_OK;
}

static uint32_t trie_next(const struct bpe_trie *trie, uint32_t node, uint8_t byte)
{
    for (uint32_t i = bpe_hash_pair(node, byte);; i++) {
        const struct bpe_trie_slot *slot = &trie->slot[i & trie->mask];
        if (slot->next == BPE_NONE || (slot->node == node && slot->byte == byte))
            return slot->next;
    }
}

static uint32_t new_node(struct bpe_trie *trie)
{
    trie->token[trie->n_node] = BPE_NONE;
    return trie->n_node++;
}

/* Room for contents of `bytes` bytes together. */
static enum sotto_status trie_init(struct bpe_trie *trie, size_t bytes)
{
    for (int i = 0; i < 256; i++)
        trie->first[i] = BPE_NONE;
    if (bytes >= UINT32_MAX / 4)
        return fail(SOTTO_EFORMAT, "the added tokens take %zu bytes", bytes);
    uint32_t size = 16;
    while (size < bytes * 2)
        size *= 2;
    trie->mask = size - 1;
    trie->slot = malloc(size * sizeof *trie->slot);
    trie->token = malloc((bytes + 1) * sizeof *trie->token);
    if (!trie->slot || !trie->token)
        return fail(SOTTO_ENOMEM, "no memory for added tokens of %zu bytes", bytes);
    for (uint32_t i = 0; i < size; i++)
        trie->slot[i].next = BPE_NONE;
    return SOTTO_OK;
}

/* The first of two tokens with the same content is the one that counts. */
static void trie_add(struct bpe_trie *trie, const char *content, size_t size, uint32_t token)
{
    uint8_t first = (uint8_t)content[0];
    if (trie->first[first] == BPE_NONE)
        trie->first[first] = new_node(trie);
    uint32_t node = trie->first[first];
    for (size_t i = 1; i < size; i++) {
        uint8_t byte = (uint8_t)content[i];
        uint32_t next = trie_next(trie, node, byte);
        if (next == BPE_NONE) {
            next = new_node(trie);
            uint32_t k = bpe_hash_pair(node, byte);
            while (trie->slot[k & trie->mask].next != BPE_NONE)
                k++;
            trie->slot[k & trie->mask] = (struct bpe_trie_slot){node, byte, next};
        }
        node = next;
    }
    if (trie->token[node] == BPE_NONE)
        trie->token[node] = token;
}

/* Special tokens go in first, so that of equal contents theirs counts. */
enum sotto_status bpe_added_finish(struct bpe_added_list *list, const struct bpe_unicode *unicode,
                                   bool nfc)
{
    enum sotto_status st = SOTTO_OK;
    struct bpe_buffer normal = {0};
    TRY(trie_init(&list->raw, list->pool.count));
    TRY(trie_init(&list->normal,
                  list->pool.count * 4)); /* NFC of a character takes at most 3 times */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < list->count; i++) {
            const struct bpe_added *token = &list->item[i];
            const char *content = list->pool.data + token->content;
            size_t size = token->content_size;
            bool same = true;
            if (token->special == (pass == 1))
                continue;
            if (token->normalized && nfc)
                TRY_DONE(bpe_nfc(unicode, content, size, &normal, &same));
            if (same)
                trie_add(token->normalized ? &list->normal : &list->raw, content, size, i);
            else if (normal.count > 0)
                trie_add(&list->normal, normal.data, normal.count, i);
        }
done:
    free(normal.data);
    return st;
}

static void trie_free(struct bpe_trie *trie)
{
    free(trie->slot);
    free(trie->token);
}

void bpe_added_free(struct bpe_added_list *list)
{
    trie_free(&list->raw);
    trie_free(&list->normal);
    free(list->item);
    free(list->pool.data);
    *list = (struct bpe_added_list){0};
}

/* The longest token at the first place at or behind `from` where there is one; false: none. */
static bool find(const struct bpe_trie *trie, const char *text, size_t size, size_t from,
                 size_t *start, size_t *end, uint32_t *token)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t i = from; i < size; i++) {
        uint32_t node = trie->first[p[i]];
        if (node == BPE_NONE)
            continue;
        *token = BPE_NONE;
        for (size_t k = i + 1; node != BPE_NONE;
             node = k < size ? trie_next(trie, node, p[k]) : BPE_NONE, k++)
            if (trie->token[node] != BPE_NONE) {
                *token = trie->token[node];
                *end = k;
            }
        if (*token != BPE_NONE) {
            *start = i;
            return true;
        }
    }
    return false;
}

/* The code point that ends at `end`, none at 0 or behind bytes that are not UTF-8. */
static bool code_before(const char *text, size_t end, uint32_t *code, size_t *start)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t back = 1; back <= 4 && back <= end; back++) {
        if ((p[end - back] & 0xc0) == 0x80)
            continue;
        int length = bpe_utf8_length(p + end - back, back);
        if (length != (int)back)
            return false;
        *code = bpe_utf8_code(p + end - back, &length);
        *start = end - back;
        return true;
    }
    return false;
}

static bool code_at(const char *text, size_t size, size_t at, uint32_t *code, int *length)
{
    const uint8_t *p = (const uint8_t *)text + at;
    if (at >= size || bpe_utf8_length(p, size - at) == 0)
        return false;
    *code = bpe_utf8_code(p, length);
    return true;
}

enum sotto_status bpe_added_split(struct bpe_work *work, const struct bpe_trie *trie,
                                  const char *text, size_t size, bpe_piece *piece)
{
    const struct bpe_unicode *unicode = &work->tokenizer->unicode;
    size_t done = 0, start = 0, end = 0, next = 0, before; /* text up to `done` has its ids */
    uint32_t index, code;
    int length;
    while (find(trie, text, size, next, &start, &end, &index)) {
        const struct bpe_added *token = &work->tokenizer->added.item[index];
        next = end;
        if (token->single_word &&
            ((code_before(text, start, &code, &before) && bpe_is_word(code)) ||
             (code_at(text, size, end, &code, &length) && bpe_is_word(code))))
            continue;
        if (token->lstrip)
            while (start > done && code_before(text, start, &code, &before) &&
                   (bpe_look_up(unicode, code) & BPE_CLASS_MASK) == BPE_SPACE)
                start = before;
        if (token->rstrip)
            while (code_at(text, size, end, &code, &length) &&
                   (bpe_look_up(unicode, code) & BPE_CLASS_MASK) == BPE_SPACE)
                end += (size_t)length;
        if (done < start)
            TRY(piece(work, text + done, start - done));
        TRY(bpe_list_reserve(work->out, 1));
        work->out->data[work->out->count++] = (int32_t)token->id;
        done = end;
    }
    return done < size ? piece(work, text + done, size - done) : SOTTO_OK;
}

/* Added tokens: texts that become one id anywhere in a text, without merges.
 *
 * At every place the longest token that begins there is taken, from left to right, as in
 * `tokenizers`. A token with `single_word` must not touch a word character; `lstrip` and `rstrip`
 * let a token include the white space next to it. */
#define _GNU_SOURCE /* qsort_r */
#include "data/tokenizer/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

static enum sotto_status reserve_pool(const struct bpe_added_list *list, size_t size)
{
    if (size > UINT32_MAX - list->pool.count)
        return fail(SOTTO_EFORMAT, "the added tokens take more than %u bytes", UINT32_MAX);
    return SOTTO_OK;
}

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
    TRY(reserve_pool(list, size));
    token.content = token.normal = (uint32_t)list->pool.count;
    token.content_size = token.normal_size = (uint32_t)size;
    TRY(bpe_buffer_add(&list->pool, content, size));
    list->item[list->count++] = token;
    return SOTTO_OK;
}

/* Orders contents. Among equal contents the one to keep is first: special tokens, then earlier
 * ones. */
static int compare_contents(const void *a, const void *b, void *arg)
{
    const struct bpe_content *x = a, *y = b;
    const struct bpe_added_list *list = arg;
    const uint32_t both = x->size < y->size ? x->size : y->size;
    int order = memcmp(list->pool.data + x->at, list->pool.data + y->at, both);
    if (order)
        return order;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    if (list->item[x->token].special != list->item[y->token].special)
        return list->item[x->token].special ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static void sort_contents(struct bpe_contents *c, struct bpe_added_list *list)
{
    uint32_t kept = 0;
    if (c->count)
        qsort_r(c->item, c->count, sizeof *c->item, compare_contents, list);
    for (uint32_t i = 0; i < c->count; i++) {
        const struct bpe_content *last = &c->item[kept - (kept > 0)];
        if (kept && last->size == c->item[i].size &&
            memcmp(list->pool.data + last->at, list->pool.data + c->item[i].at, last->size) == 0)
            continue;
        c->item[kept++] = c->item[i];
    }
    c->count = kept;
    for (uint32_t i = 0; i < kept; i++)
        c->first[(uint8_t)list->pool.data[c->item[i].at] + 1] = i + 1;
    for (int b = 1; b <= 256; b++)
        if (c->first[b] < c->first[b - 1])
            c->first[b] = c->first[b - 1];
}

enum sotto_status bpe_added_set_normal(struct bpe_added_list *list, uint32_t index,
                                       const char *content, size_t size)
{
    TRY(reserve_pool(list, size));
    list->item[index].normal = (uint32_t)list->pool.count;
    list->item[index].normal_size = (uint32_t)size;
    return bpe_buffer_add(&list->pool, content, size);
}

enum sotto_status bpe_added_finish(struct bpe_added_list *list)
{
    list->raw.item = malloc((list->count + 1) * sizeof *list->raw.item);
    list->normal.item = malloc((list->count + 1) * sizeof *list->normal.item);
    if (!list->raw.item || !list->normal.item)
        return fail(SOTTO_ENOMEM, "no memory for %u added tokens", list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct bpe_added *added = &list->item[i];
        struct bpe_contents *c = added->normalized ? &list->normal : &list->raw;
        if (added->normal_size)
            c->item[c->count++] = (struct bpe_content){added->normal, added->normal_size, i};
    }
    sort_contents(&list->raw, list);
    sort_contents(&list->normal, list);
    return SOTTO_OK;
}

void bpe_added_free(struct bpe_added_list *list)
{
    free(list->raw.item);
    free(list->normal.item);
    free(list->item);
    free(list->pool.data);
    *list = (struct bpe_added_list){0};
}

/* Narrows [*from, *to), contents that agree in the first `depth` bytes and are longer, to contents
 * with `byte` next. */
static void narrow_contents(const struct bpe_added_list *list, const struct bpe_content *item,
                            uint32_t depth, uint8_t byte, uint32_t *from, uint32_t *to)
{
    const uint8_t *pool = (const uint8_t *)list->pool.data;
    uint32_t edge[2];
    for (int side = 0; side < 2; side++) {
        uint32_t lo = side ? edge[0] : *from, hi = *to;
        while (lo < hi) {
            uint32_t middle = lo + (hi - lo) / 2;
            if (pool[item[middle].at + depth] < byte + side)
                lo = middle + 1;
            else
                hi = middle;
        }
        edge[side] = lo;
    }
    *from = edge[0];
    *to = edge[1];
}

/* Returns the token with the longest content at the start of `text`, BPE_NONE if there is none. */
static uint32_t longest_content(const struct bpe_added_list *list, const struct bpe_contents *c,
                                const uint8_t *text, size_t size, size_t *length)
{
    uint32_t found = BPE_NONE, from = c->first[text[0]], to = c->first[text[0] + 1];
    for (uint32_t depth = 1; from < to; depth++) {
        if (c->item[from].size == depth) { /* the shortest is first */
            found = c->item[from++].token;
            *length = depth;
        }
        if (depth == size)
            break;
        narrow_contents(list, c->item, depth, text[depth], &from, &to);
    }
    return found;
}

/* Finds the longest token at the first place from `from` on that has a token; false if there is
 * none. */
static bool find_added(const struct bpe_added_list *list, const struct bpe_contents *contents,
                       const char *text, size_t size, size_t from, size_t *start, size_t *end,
                       uint32_t *token)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t length = 0;
    for (size_t i = from; i < size && contents->count; i++) {
        *token = longest_content(list, contents, p + i, size - i, &length);
        if (*token == BPE_NONE)
            continue;
        *start = i;
        *end = i + length;
        return true;
    }
    return false;
}

/* Finds the code point that ends at `end`; false at 0 and after bytes that are not UTF-8. */
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

enum sotto_status bpe_added_split(struct bpe_work *work, const struct bpe_contents *contents,
                                  const char *text, size_t size, bpe_piece *piece)
{
    const struct bpe_unicode *unicode = work->unicode;
    size_t done = 0, start = 0, end = 0, next = 0, before; /* ids up to `done` */
    uint32_t index, code;
    int length;
    const struct bpe_added_list *list = work->added;
    while (find_added(list, contents, text, size, next, &start, &end, &index)) {
        const struct bpe_added *token = &list->item[index];
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
        TRY(token_list_add(work->out, (int32_t)token->id));
        done = end;
    }
    return done < size ? piece(work, text + done, size - done) : SOTTO_OK;
}

/* Text to ids and back, by the steps of bpe/bpe.h. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer_impl.h"

/* Names of tokens that end a text in known models, the most likely first. */
static const char *const end_names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                        "<|im_end|>"};

enum sotto_status tokenizer_make(struct tokenizer **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for a tokenizer");
    (*out)->kind = &model_bpe;
    (*out)->end = (*out)->turn_end = BPE_NONE;
    (*out)->model.unknown = BPE_NONE;
    for (int byte = 0; byte < 256; byte++)
        (*out)->model.byte_id[byte] = BPE_NONE;
    bpe_unicode_init(&(*out)->unicode);
    return SOTTO_OK;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->kind->free)
        tokenizer->kind->free(tokenizer);
    normalizer_free(&tokenizer->normalizer);
    token_decoder_free(&tokenizer->decoder);
    bpe_model_free(&tokenizer->model);
    bpe_added_free(&tokenizer->added);
    bpe_split_free(&tokenizer->split);
    free(tokenizer->shell);
    free(tokenizer);
}

static void find_text_end(struct tokenizer *tokenizer)
{
    const struct bpe_added_list *added = &tokenizer->added;
    uint32_t special = BPE_NONE, n_special = 0;
    for (uint32_t i = 0; i < added->count; i++)
        if (added->item[i].special) {
            special = added->item[i].id;
            n_special++;
        }
    for (size_t k = 0; k < sizeof end_names / sizeof *end_names; k++)
        for (uint32_t i = 0; i < added->count; i++)
            if (added->item[i].special && added->item[i].content_size == strlen(end_names[k]) &&
                memcmp(added->pool.data + added->item[i].content, end_names[k],
                       added->item[i].content_size) == 0) {
                tokenizer->end = added->item[i].id;
                return;
            }
    if (n_special == 1)
        tokenizer->end = special;
}

/* Brings the contents of normalized tokens into the normalizer's form. */
static enum sotto_status normalize_added(struct tokenizer *tokenizer)
{
    enum sotto_status st = SOTTO_OK;
    struct bpe_added_list *list = &tokenizer->added;
    struct bpe_buffer buffer[2] = {{0}, {0}}, content = {0};
    struct bpe_matcher *matcher = NULL;
    for (uint32_t i = 0; i < list->count && tokenizer->normalizer.count; i++) {
        if (!list->item[i].normalized)
            continue;
        content.count = 0;
        TRY_DONE(bpe_buffer_add(&content, list->pool.data + list->item[i].content,
                                list->item[i].content_size));
        const char *text = content.data;
        size_t size = content.count, front;
        TRY_DONE(normalizer_run(&tokenizer->normalizer, &tokenizer->unicode, &matcher, buffer,
                                false, &text, &size, &front));
        if (text != content.data || size != content.count)
            TRY_DONE(bpe_added_set_normal(list, i, text, size));
    }
done:
    bpe_matcher_free(matcher);
    free(buffer[0].data);
    free(buffer[1].data);
    free(content.data);
    return st;
}

enum sotto_status tokenizer_finish(struct tokenizer *tokenizer)
{
    struct bpe_model *model = &tokenizer->model;
    const struct bpe_added_list *added = &tokenizer->added;
    TRY(bpe_model_finish(model));
    TRY(bpe_model_index_words(model));
    TRY(normalize_added(tokenizer));
    TRY(bpe_added_finish(&tokenizer->added));
    for (uint32_t i = 0; i < added->count; i++) {
        /* `tokenizers` decodes a normalized token as normalized; here, bytes as they were */
        const struct bpe_added *a = &added->item[i];
        const bool normal = model->characters;
        TRY(bpe_model_set_bytes(model, a->id, added->pool.data + (normal ? a->normal : a->content),
                                normal ? a->normal_size : a->content_size));
    }
    find_text_end(tokenizer);
    return SOTTO_OK;
}

int tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return (int)tokenizer->model.size;
}

int tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t size)
{
    const struct bpe_added_list *added = &tokenizer->added;
    for (uint32_t i = 0; i < added->count; i++)
        if (added->item[i].content_size == size &&
            memcmp(added->pool.data + added->item[i].content, text, size) == 0)
            return (int)added->item[i].id;
    uint32_t id = bpe_model_find(&tokenizer->model, text, size);
    return id == BPE_NONE ? -1 : (int)id;
}

int tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->end == BPE_NONE ? -1 : (int)tokenizer->end;
}

static enum sotto_status encode_words(struct bpe_work *work, const char *text, size_t size)
{
    return bpe_split_run(work, 0, text, size);
}

static enum sotto_status encode_valid(struct bpe_work *work, const char *text, size_t size)
{
    const bool first = text == work->first;
    size_t front = 1;
    const struct normalizer *normalizer = &work->tokenizer->normalizer;
    if (normalizer->count)
        TRY(normalizer_run(normalizer, work->unicode, &work->matcher, work->normal, work->glued,
                           &text, &size, &front));
    work->first = first && front ? text : NULL;
    work->first_size = front;
    work->joined = work->glued ? text : NULL;
    return bpe_added_split(work, &work->added->normal, text, size, encode_words);
}

/* Makes a word of each run of bytes that are not UTF-8; such a run separates the text around it
 * like an added token. */
static enum sotto_status encode_raw(struct bpe_work *work, const char *text, size_t size)
{
    for (work->glued = false; size > 0; work->glued = true) {
        size_t valid = bpe_utf8_prefix((const uint8_t *)text, size), other = valid;
        while (other < size && bpe_utf8_length((const uint8_t *)text + other, size - other) == 0)
            other++;
        if (valid > 0)
            TRY(encode_valid(work, text, valid));
        if (other > valid)
            TRY(bpe_raw_bytes(work, text + valid, other - valid));
        text += other;
        size -= other;
    }
    return SOTTO_OK;
}

enum sotto_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                   struct token_list *out)
{
    struct bpe_work work = {.unicode = &tokenizer->unicode,
                            .model = &tokenizer->model,
                            .added = &tokenizer->added,
                            .split = &tokenizer->split,
                            .tokenizer = tokenizer,
                            .ids_of = tokenizer->kind->ids_of,
                            .out = out,
                            .first = text,
                            .cache_mask = 15};
    size_t before = out->count;
    while (work.cache_mask < 8191 && work.cache_mask < size / 16)
        work.cache_mask = work.cache_mask * 2 + 1;
    work.cache = calloc(work.cache_mask + 1, sizeof *work.cache);
    if (!work.cache)
        return fail(SOTTO_ENOMEM, "no memory to encode %zu bytes", size);
    enum sotto_status st = bpe_added_split(&work, &tokenizer->added.raw, text, size, encode_raw);
    if (st != SOTTO_OK)
        out->count = before;
    bpe_matcher_free(work.matcher);
    free(work.cache);
    free(work.symbol);
    free(work.heap);
    free(work.normal[0].data);
    free(work.normal[1].data);
    for (size_t i = 0; i < sizeof work.stage_text / sizeof *work.stage_text; i++)
        free(work.stage_text[i].data);
    free(work.path);
    free(work.pieces.data);
    return st;
}

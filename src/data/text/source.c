#include "data/text/source.h"

#include <string.h>

static enum sotto_status open_examples(struct source *source, const struct source_spec *spec,
                                       const struct tokenizer *tokenizer)
{
    struct file_map map;
    TRY(file_map_open(&map, spec->path));
    enum sotto_status st;
    if (map.size == 0)
        st = fail(SOTTO_EFORMAT, "%s is empty", spec->path);
    else
        st = instruct_open(&source->examples, (const char *)map.data, map.size, spec->path,
                           tokenizer);
    file_map_close(&map);
    return st;
}

/* Returns the first beginning of a document from `cut` on, if there is one in the first half of the
 * rest; else `cut`. */
static int64_t next_document(const struct tokens *tokens, int64_t cut, int end)
{
    int64_t last = cut + (tokens->count - cut) / 2;
    for (int64_t i = cut - 1; end >= 0 && i >= 0 && i < last; i++) {
        int32_t id;
        if (tokens_copy(tokens, i, 1, &id) != SOTTO_OK)
            break;
        if (id == end)
            return i + 1;
    }
    return cut;
}

static int64_t source_count(const struct source *source)
{
    return source->instruct ? source->examples.count : source->tokens.count;
}

/* Returns the beginning of the held-out end of a source. */
static int64_t held_out_start(const struct source *source, double holdout, int end_id)
{
    const int64_t count = source_count(source);
    int64_t held = (int64_t)((double)count * holdout);
    if (held == 0 && source->instruct && count > 1)
        held = 1;
    const int64_t cut = count - held;
    return source->instruct ? cut : next_document(&source->tokens, cut, end_id);
}

static enum sotto_status check_split(const struct source *source, double holdout,
                                     enum data_split split)
{
    if (source->begin < source->end)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "%s: a holdout of %g of %lld %s leaves nothing to %s", source->name,
                holdout, (long long)source_count(source), source->instruct ? "examples" : "tokens",
                split == DATA_TRAIN ? "train on" : "validate on");
}

enum sotto_status source_open(struct source *source, const struct source_spec *spec, double holdout,
                              enum data_split split, const char *cache,
                              const struct tokenizer *tokenizer)
{
    *source = (struct source){.instruct = spec->format == DATA_INSTRUCT};
    strcpy(source->name, spec->path);
    bool ready = spec->format == DATA_TOKENS || spec->format == DATA_RAW16;
    if (!ready && !tokenizer)
        return fail(SOTTO_EINVAL, "%s is text: it needs a tokenizer (data.tokenizer)", spec->path);
    if (ready)
        TRY(tokens_open(&source->tokens, spec->path, spec->format == DATA_RAW16));
    else if (source->instruct)
        TRY(open_examples(source, spec, tokenizer));
    else
        TRY(source_tokenize(&source->tokens, spec, cache, tokenizer));
    source->end = source_count(source);
    if (holdout == 0)
        return SOTTO_OK;
    const int64_t cut = held_out_start(source, holdout, ready ? -1 : tokenizer_end(tokenizer));
    if (split == DATA_TRAIN)
        source->end = cut;
    else
        source->begin = cut;
    enum sotto_status st = check_split(source, holdout, split);
    if (st != SOTTO_OK)
        source_close(source);
    return st;
}

enum sotto_status source_borrow_rest(struct source *source, const struct source *train,
                                     double holdout)
{
    *source = *train;
    source->borrowed = true;
    source->begin = train->end;
    source->end = source_count(train);
    return check_split(source, holdout, DATA_VALID);
}

void source_close(struct source *source)
{
    if (!source->borrowed) {
        tokens_close(&source->tokens);
        instruct_close(&source->examples);
    }
    *source = (struct source){0};
}

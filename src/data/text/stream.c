/* Loaders of tokens: opening and closing a sequence of sources; stream_fill.c makes batches. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/text/stream.h"

static void stream_close(struct loader *base)
{
    struct stream *loader = (struct stream *)base;
    if (!loader)
        return;
    for (int i = 0; i < loader->base.sources; i++)
        source_close(&loader->sources[i]);
    free(loader->sources);
    free(loader->before);
    free(loader);
}

static int64_t stream_tokens(const struct loader *base)
{
    const struct stream *loader = (const struct stream *)base;
    int64_t sum = 0;
    for (int i = 0; i < loader->base.sources; i++) {
        const struct source *s = &loader->sources[i];
        sum += s->instruct ? s->examples.start[s->end] - s->examples.start[s->begin]
                           : s->end - s->begin;
    }
    return sum;
}

static const struct loader_ops stream_ops = {.fill = stream_fill,
                                             .batches = stream_batches,
                                             .fill_in_order = stream_fill_in_order,
                                             .share = stream_share,
                                             .amount = stream_tokens,
                                             .check = stream_check,
                                             .close = stream_close};

static const struct stream *stream_of(const struct loader *loader)
{
    assert(loader->ops == &stream_ops);
    return (const struct stream *)loader;
}

static bool is_text_source(const struct source_spec *spec)
{
    return spec->format != DATA_TOKENS && spec->format != DATA_RAW16;
}

static enum sotto_status make_source_room(struct stream *loader, int n)
{
    loader->sources = calloc((size_t)n, sizeof *loader->sources);
    loader->before = calloc((size_t)n + 1, sizeof *loader->before);
    if (!loader->sources || !loader->before)
        return fail(SOTTO_ENOMEM, "no memory for %d sources", n);
    return SOTTO_OK;
}

static void count_source(struct stream *loader)
{
    const struct source *source = &loader->sources[loader->base.sources];
    loader->before[loader->base.sources + 1] =
        loader->before[loader->base.sources] + source->end - source->begin;
    loader->base.sources++;
}

static enum sotto_status open_sources(struct stream *loader, const struct source_spec *specs, int n,
                                      const struct data_config *config, enum data_split split,
                                      const struct tokenizer *tokenizer)
{
    TRY(make_source_room(loader, n));
    for (int i = 0; i < n; i++) {
        struct source *source = &loader->sources[i];
        if ((specs[i].format == DATA_INSTRUCT) != loader->base.instructs)
            return fail(SOTTO_EINVAL,
                        "%s and %s do not mix: one has instructions, the other running text",
                        specs[0].path, specs[i].path);
        TRY(source_open(source, &specs[i], loader->holdout, split, config->cache, tokenizer));
        count_source(loader);
        int64_t vocab =
            is_text_source(&specs[i]) ? tokenizer_vocab_size(tokenizer) : source->tokens.vocab;
        if (vocab > loader->base.vocab)
            loader->base.vocab = vocab;
    }
    return SOTTO_OK;
}

enum sotto_status loader_open(struct loader **out, const struct data_config *config,
                              enum data_split split, const struct tokenizer *tokenizer)
{
    struct source_spec *specs;
    int n;
    *out = NULL;
    double holdout = config->valid[0] ? 0 : config->holdout;
    if (split == DATA_VALID && !config->valid[0] && holdout == 0)
        return fail(SOTTO_EINVAL,
                    "no validation data: name some with valid, or set holdout above 0");
    TRY(source_list(&specs, &n, config, split));
    struct stream *loader = calloc(1, sizeof *loader);
    enum sotto_status st;
    if (!loader) {
        st = fail(SOTTO_ENOMEM, "no memory for a loader");
        goto done;
    }
    loader->base.ops = &stream_ops;
    loader->holdout = holdout;
    loader->base.instructs = specs[0].format == DATA_INSTRUCT;
    loader->sharding = (enum data_sharding)config->sharding;
    if (tokenizer && tokenizer_end(tokenizer) >= 0)
        loader->pad = tokenizer_end(tokenizer);
    TRY_DONE(open_sources(loader, specs, n, config, split, tokenizer));
    *out = &loader->base;
done:
    free(specs);
    if (st != SOTTO_OK)
        stream_close((struct loader *)loader);
    return st;
}

enum sotto_status loader_open_rest(struct loader **out, const struct loader *from)
{
    assert(stream_of(from)->holdout > 0);
    enum sotto_status st;
    *out = NULL;
    const struct stream *train = stream_of(from);
    struct stream *loader = malloc(sizeof *loader);
    if (!loader)
        return fail(SOTTO_ENOMEM, "no memory for a loader");
    *loader = *train;
    loader->base.sources = 0;
    TRY_DONE(make_source_room(loader, train->base.sources));
    for (int i = 0; i < train->base.sources; i++) {
        TRY_DONE(source_borrow_rest(&loader->sources[i], &train->sources[i], train->holdout));
        count_source(loader);
    }
    *out = &loader->base;
done:
    if (st != SOTTO_OK)
        stream_close((struct loader *)loader);
    return st;
}

struct loader_cuts loader_cuts(const struct loader *base, int t)
{
    struct loader_cuts sum = {0};
    if (!base->instructs)
        return sum;
    const struct stream *loader = stream_of(base);
    for (int s = 0; s < loader->base.sources; s++)
        for (int64_t i = loader->sources[s].begin; i < loader->sources[s].end; i++) {
            struct instruct_cut cut = instruct_cut(&loader->sources[s].examples, i, t);
            sum.examples++;
            sum.longer += cut.response || cut.prompt;
            sum.response += cut.response;
            sum.prompt += cut.prompt;
        }
    return sum;
}

/* Returns the least length at which at most `left` examples are longer. */
static int length_that_holds(const struct loader *loader, int64_t left)
{
    int low = 0, high = 1;
    while (loader_cuts(loader, high).longer > left) {
        low = high;
        high = high < INT_MAX / 2 ? 2 * high : INT_MAX;
    }
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        *(loader_cuts(loader, middle).longer > left ? &low : &high) = middle;
    }
    return high;
}

void loader_warn_cuts(const struct loader *loader, int t, int most)
{
    const struct loader_cuts c = loader_cuts(loader, t);
    char lengths[128];
    if (!c.longer)
        return;
    const int all = length_that_holds(loader, 0),
              nearly = length_that_holds(loader, c.examples / 20);
    const int n = nearly < all
                      ? snprintf(lengths, sizeof lengths,
                                 "seq = %d would hold 95 %% of the examples whole, ", nearly)
                      : 0;
    snprintf(lengths + n, sizeof lengths - (size_t)n, "seq = %d %s", all,
             nearly < all ? "all of them" : "would hold all of them whole");
    log_warn("%lld of %lld examples are longer than %d tokens: %lld lose the end of the response, "
             "%lld the beginning of the prompt; %s (the model has %d positions)",
             (long long)c.longer, (long long)c.examples, t, (long long)c.response,
             (long long)c.prompt, lengths, most);
}

void loader_warn_turn(const struct loader *loader, const struct tokenizer *tokenizer)
{
    char *end;
    size_t size;
    if (!tokenizer || !loader->instructs || !tokenizer_turn_guessed(tokenizer))
        return;
    const int id = tokenizer_turn_end(tokenizer);
    if (id < 0 || tokenizer_decode(tokenizer, &id, 1, &end, &size) != SOTTO_OK) {
        log_warn("the model's chat template does not show the token at the end of a response, and "
                 "the tokenizer has none at the end of a text: responses are learned without an "
                 "end");
        return;
    }
    log_warn("the model's chat template does not show the token at the end of a response: %s is "
             "learned there; \"eos_token\" in tokenizer_config.json sets another",
             end);
    free(end);
}

/* Documents collected for the training of a tokenizer. */
struct collection {
    struct text text;
    size_t *sizes, count, room;
    size_t limit; /* bytes of text; the rest of a source is skipped after the limit */
};

static enum sotto_status collect_document(void *arg, const char *text, size_t size)
{
    struct collection *c = arg;
    if (c->text.size >= c->limit)
        return SOTTO_OK;
    if (size > c->limit - c->text.size)
        size = c->limit - c->text.size;
    if (c->count == c->room) {
        size_t room = 2 * c->room + 256;
        size_t *more = realloc(c->sizes, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu documents", room);
        c->sizes = more;
        c->room = room;
    }
    text_put(&c->text, text, size);
    c->sizes[c->count++] = size;
    return text_status(&c->text);
}

static enum sotto_status train_on_documents(struct tokenizer **out, const struct collection *c,
                                            int vocab)
{
    const struct tokenizer_training how = {
        .vocab_size = vocab, .min_frequency = 2, .end = SOURCE_SEPARATOR};
    const char **texts = malloc((c->count + 1) * sizeof *texts);
    if (!texts)
        return fail(SOTTO_ENOMEM, "no memory for %zu documents", c->count);
    const char *p = c->text.data;
    for (size_t i = 0; i < c->count; p += c->sizes[i], i++)
        texts[i] = p;
    enum sotto_status st = tokenizer_train(out, &how, texts, c->sizes, c->count);
    free(texts);
    return st;
}

enum sotto_status loader_tokenizer(struct tokenizer **out, const struct data_config *config)
{
    const size_t most = (size_t)64 << 20;
    struct source_spec *specs;
    struct collection collection = {0};
    int n, texts = 0;
    enum sotto_status st = SOTTO_OK;
    *out = NULL;
    if (config->vocab > 0 && config->vocab < 257)
        return fail(SOTTO_EINVAL,
                    "data.vocab = %d: want at least 257, a token for each byte and "
                    "one for the end of a text",
                    config->vocab);
    if (config->tokenizer[0])
        return tokenizer_open(out, config->tokenizer);
    TRY(source_list(&specs, &n, config, DATA_TRAIN));
    for (int i = 0; i < n; i++)
        texts += is_text_source(&specs[i]);
    if (texts == 0)
        goto done;
    for (int i = 0; i < n; i++) {
        if (!is_text_source(&specs[i])) {
            st = fail(
                SOTTO_EINVAL,
                "%s holds tokens and other sources hold text: name the tokenizer that made the tokens",
                specs[i].path);
            goto done;
        }
        collection.limit = collection.text.size + most / (size_t)texts;
        TRY_DONE(source_visit(&specs[i], collect_document, &collection));
    }
    st = train_on_documents(out, &collection, config->vocab ? config->vocab : 4096);
done:
    free(specs);
    text_free(&collection.text);
    free(collection.sizes);
    return st;
}

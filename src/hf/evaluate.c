#include "hf/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "data/text/records.h"

/* Returns the i-th of `want` micro-batches spread evenly over `n` (want <= n): the first `want`
 * micro-batches would be from one end of the held-out data. */
static int64_t spread_evenly(int64_t i, int64_t want, int64_t n)
{
    return i * (n / want) + i * (n % want) / want + n / want / 2;
}

enum sotto_status evaluate(const struct model *model, struct device *dev, struct pool *pool,
                           const struct view *theta, const struct loader *loader,
                           struct evaluation_range range, struct evaluation *out)
{
    const int rows = range.rows, t = range.t;
    *out = (struct evaluation){.content = model->sample.content};
    const int64_t n = loader_batches(loader, rows, t);
    const int64_t want = range.batches > 0 && range.batches < n ? range.batches : n;
    struct tape tape;
    struct batch batch;
    TRY(batch_init_of(&batch, &model->sample, rows, t));
    enum sotto_status st = tape_init(&tape, model, dev, pool,
                                     (struct extent){rows, t, range.activations, false}, false);
    double loss = 0;
    for (int64_t i = range.part; i < want && st == SOTTO_OK; i += range.parts) {
        st = loader_fill_in_order(loader, spread_evenly(i, want, n), rows, t, &batch);
        tape.want_hits = true;
        tape.state = range.state;
        if (st == SOTTO_OK)
            st = tape_run(&tape, &batch, TAPE_EVALUATE, 0, theta, NULL);
        if (st != SOTTO_OK)
            break;
        struct tape_result r = tape_result(&tape, tape.dev);
        st = device_check(dev);
        if (st != SOTTO_OK)
            break;
        loss += r.loss;
        out->targets += r.targets;
        out->hits += r.hits;
        out->near += r.near;
        if (range.watch)
            range.watch->tell(range.watch->arg, i / range.parts + 1,
                              (want - range.part + range.parts - 1) / range.parts,
                              out->targets ? loss / (double)out->targets : 0);
    }
    if (tape.model)
        tape_free(&tape);
    batch_free(&batch);
    out->loss = out->targets ? loss / (double)out->targets : 0;
    return st;
}

double evaluation_score(const struct evaluation *e)
{
    return sample_kinds[e->content].sequences ? exp(e->loss) : (double)e->near / (double)e->targets;
}

enum sotto_status evaluation_check(const struct evaluation *e)
{
    return e->targets ? SOTTO_OK
                      : fail(SOTTO_EINVAL, "the evaluation data have nothing to predict");
}

static bool is_word_space(char c) /* a NUL is no space */
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns the start of the last word: after the last white space with something else after it. */
static size_t last_word_start(const char *text, size_t size)
{
    size_t end = size;
    while (end && is_word_space(text[end - 1]))
        end--;
    while (end && !is_word_space(text[end - 1]))
        end--;
    return end;
}

struct last_word_task {
    const struct last_word_setup *in;
    struct token_list ids;
    struct tape tape; /* room for one text of tape.most.t tokens; 0: none */
    struct batch batch;
};

static void free_text_room(struct last_word_task *l)
{
    if (l->tape.model)
        tape_free(&l->tape);
    batch_free(&l->batch);
    l->tape = (struct tape){0};
    l->batch = (struct batch){0};
}

/* Makes room for a text of t tokens. Room grows with the texts, since a model may claim millions of
 * positions. */
static enum sotto_status make_text_room(struct last_word_task *l, int t)
{
    const int positions = l->in->model->config.positions;
    int room = 2 * l->tape.most.t > t ? 2 * l->tape.most.t : t;
    if (t <= l->tape.most.t)
        return SOTTO_OK;
    room = room < positions ? room : positions;
    free_text_room(l);
    TRY(batch_init(&l->batch, 1, room));
    TRY(tape_init(&l->tape, l->in->model, l->in->dev, l->in->pool,
                  (struct extent){1, room, l->in->activations, false}, false));
    l->tape.want_hits = true;
    return SOTTO_OK;
}

/* Encodes the word, with the space before the word, as a continuation of the context. */
static enum sotto_status predict_last_word(struct last_word_task *l, const char *text, size_t size,
                                           struct last_word *out)
{
    while (size && is_word_space(text[size - 1]))
        size--;
    size_t cut = last_word_start(text, size);
    if (cut == 0)
        return fail(SOTTO_EFORMAT, "a text needs at least two words: '%.60s'", text);
    l->ids.count = 0;
    TRY(tokenizer_encode_prompt(l->in->tokenizer, text, cut - 1, &l->ids));
    size_t context = l->ids.count;
    TRY(tokenizer_encode_rest(l->in->tokenizer, text, size, cut - 1, &l->ids));
    const size_t positions = (size_t)l->in->model->config.positions;
    int32_t *ids = l->ids.data;
    size_t count = l->ids.count, word = count - context;
    if (word == 0 || context == 0 || word >= positions)
        return fail(SOTTO_EFORMAT, "a text has %zu context and %zu last-word tokens: '%.60s'",
                    context, word, text);
    if (count - 1 > positions) { /* the nearest context matters most */
        ids += count - 1 - positions;
        count = positions + 1;
    }
    TRY(make_text_room(l, (int)count - 1));
    l->batch.t = (int)count - 1;
    for (size_t i = 0; i + 1 < count; i++) {
        if (ids[i] >= l->in->model->config.vocab || ids[i + 1] >= l->in->model->config.vocab)
            return fail(SOTTO_EINVAL, "token %d is beyond the model's vocabulary of %d", ids[i + 1],
                        l->in->model->config.vocab);
        l->batch.tokens[i] = ids[i];
        l->batch.targets[i] = i + 1 + word >= count ? ids[i + 1] : -1;
    }
    l->batch.n_targets = (int64_t)word;
    TRY(tape_run(&l->tape, &l->batch, TAPE_EVALUATE, 0, l->in->theta, NULL));
    struct tape_result r = tape_result(&l->tape, l->tape.dev);
    TRY(device_check(l->in->dev));
    out->loss += r.loss;
    out->right += r.hits == r.targets;
    out->words++;
    return SOTTO_OK;
}

static enum sotto_status predict_record(struct last_word_task *l, const json_t *record,
                                        struct last_word *out)
{
    const char *text, *key = l->in->key;
    TRY(json_get_text(record, key, &text));
    return predict_last_word(l, text, json_string_length(json_object_get(record, key)), out);
}

static enum sotto_status predict_records(struct last_word_task *l, const char *text, size_t size,
                                         struct last_word *out)
{
    const struct evaluation_watch *watch = l->in->watch;
    struct records records;
    json_t *record;
    records_begin(&records, text, size, l->in->path);
    for (;;) {
        TRY(records_next(&records, &record));
        if (!record)
            break;
        enum sotto_status st = predict_record(l, record, out);
        json_decref(record);
        TRY(fail_in(st, "%s:%lld: ", l->in->path, (long long)records.begins));
        if (watch)
            watch->tell(watch->arg, records.at - text, (int64_t)size,
                        out->loss / (double)out->words);
    }
    if (out->words == 0)
        return fail(SOTTO_EFORMAT, "%s holds no texts", l->in->path);
    out->loss /= (double)out->words;
    return SOTTO_OK;
}

enum sotto_status evaluate_last_words(const struct last_word_setup *setup, struct last_word *out)
{
    *out = (struct last_word){0};
    char *text;
    size_t size;
    TRY(file_read(setup->path, (size_t)1 << 32, &text, &size));
    struct last_word_task task = {.in = setup};
    enum sotto_status st = predict_records(&task, text, size, out);
    free_text_room(&task);
    free(task.ids.data);
    free(text);
    return st;
}

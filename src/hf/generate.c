#include "hf/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 128 }; /* tokens of a prompt read at once */
enum { FIRST = 8 };   /* tokens that the cache first has room for */

static enum sotto_status grow_cache_buffer(struct generator *g, struct buffer *b, size_t used,
                                           size_t count)
{
    struct buffer more;
    TRY(buffer_init(&more, g->dev, g->config.activations, count, MEMORY_ACTIVATIONS));
    if (used)
        g->dev->ops->copy(g->dev, more.view, b->view, used);
    buffer_free(b);
    *b = more;
    return device_check(g->dev);
}

/* Makes room for `positions` tokens. Room grows with the text, since a model may claim millions. */
static enum sotto_status reserve_positions(struct generator *g, int positions)
{
    const struct model_config *c = &g->model->config;
    const size_t width = (size_t)c->kv_heads * (size_t)c->head_width;
    int room = g->cache.positions > 0 ? g->cache.positions : FIRST;
    if (positions <= g->cache.positions)
        return SOTTO_OK;
    while (room < positions)
        room *= 2;
    room = room < c->positions ? room : c->positions;
    for (int i = 0; i < g->model->n_attention; i++) {
        TRY(grow_cache_buffer(g, &g->cache.k[i], (size_t)g->seen * width, (size_t)room * width));
        TRY(grow_cache_buffer(g, &g->cache.v[i], (size_t)g->seen * width, (size_t)room * width));
    }
    g->cache.positions = room;
    return SOTTO_OK;
}

static enum sotto_status cache_init(struct generator *g)
{
    g->cache.k = calloc((size_t)g->model->n_attention, sizeof *g->cache.k);
    g->cache.v = calloc((size_t)g->model->n_attention, sizeof *g->cache.v);
    if (!g->cache.k || !g->cache.v)
        return fail(SOTTO_ENOMEM, "no memory for the cache");
    return SOTTO_OK;
}

enum sotto_status generator_init(struct generator *g, const struct model *model, struct device *dev,
                                 const struct view *theta, const struct generate_config *config)
{
    *g = (struct generator){.model = model,
                            .dev = dev,
                            .theta = theta,
                            .config = *config,
                            .rng = rng_make(config->seed, 0x67656e65)};
    const struct model_config *c = &model->config;
    const struct extent most = {1, c->positions < PIECE ? c->positions : PIECE, config->activations,
                                false};
    pool_init(&g->pool, dev, MEMORY_ACTIVATIONS);
    g->history = calloc((size_t)c->positions, sizeof *g->history);
    g->logits = calloc((size_t)c->vocab, sizeof *g->logits);
    g->order = calloc((size_t)c->vocab, sizeof *g->order);
    enum sotto_status st = SOTTO_OK;
    if (!g->history || !g->logits || !g->order)
        st = fail(SOTTO_ENOMEM, "no memory to sample from %d tokens", c->vocab);
    if (st == SOTTO_OK)
        st = batch_init(&g->batch, 1, most.t);
    if (st == SOTTO_OK)
        st = tape_init(&g->tape, model, dev, &g->pool, most, false);
    if (st == SOTTO_OK)
        st = cache_init(g);
    if (st != SOTTO_OK)
        generator_free(g);
    return st;
}

void generator_free(struct generator *g)
{
    for (int i = 0; i < g->model->n_attention; i++) {
        if (g->cache.k)
            buffer_free(&g->cache.k[i]);
        if (g->cache.v)
            buffer_free(&g->cache.v[i]);
    }
    free(g->cache.k);
    free(g->cache.v);
    if (g->tape.model)
        tape_free(&g->tape);
    pool_free(&g->pool);
    batch_free(&g->batch);
    free(g->history);
    free(g->logits);
    free(g->order);
    g->cache = (struct cache){0};
}

static enum sotto_status read_piece(struct generator *g, const int32_t *tokens, int count,
                                    bool last)
{
    const int n_stage = g->model->n_stage;
    g->batch.t = count;
    memcpy(g->batch.tokens, tokens, (size_t)count * sizeof *tokens);
    TRY(tape_begin(&g->tape, &g->batch, TAPE_EVALUATE, 0));
    g->tape.pass.start = g->seen;
    g->tape.pass.cache = &g->cache;
    g->tape.pass.losses = view_none;
    g->tape.pass.logits = last ? g->logits : NULL;
    for (int k = 0; k < n_stage; k++)
        TRY(tape_forward(&g->tape, k, g->theta));
    memmove(g->history + g->seen, tokens, (size_t)count * sizeof *tokens);
    g->seen += count;
    return SOTTO_OK;
}

/* Reads all but the last token to fill the cache, then the last token alone for its logits. */
static enum sotto_status read_tokens(struct generator *g, const int32_t *tokens, size_t count)
{
    const int most = g->tape.most.t;
    while (count > 1) {
        int piece = count - 1 < (size_t)most ? (int)(count - 1) : most;
        TRY(read_piece(g, tokens, piece, false));
        tokens += piece;
        count -= (size_t)piece;
    }
    TRY(read_piece(g, tokens, 1, true));
    return device_check(g->dev);
}

static enum sotto_status forget_half(struct generator *g)
{
    int keep = g->model->config.positions / 2;
    int32_t *from = g->history + g->seen - keep;
    memmove(g->history, from, (size_t)keep * sizeof *from);
    g->seen = 0;
    for (int done = 0; done < keep; done += g->tape.most.t) {
        int piece = keep - done < g->tape.most.t ? keep - done : g->tape.most.t;
        TRY(read_piece(g, g->history + done, piece, false));
    }
    return SOTTO_OK;
}

/* True if `a` is above `b` in the heap: more likely, or the smaller of equally likely tokens. */
static bool is_likelier(const float *logits, int a, int b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(const float *logits, int *heap, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_likelier(logits, heap[child + 1], heap[child]))
            child++;
        if (!is_likelier(logits, heap[child], heap[i]))
            return;
        int swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

static double token_weight(const struct generator *g, int token, int best)
{
    return exp((g->logits[token] - g->logits[best]) / g->config.temperature);
}

/* Draws from the `top_k` most likely tokens, and among these from the smallest set with `top_p` of
 * their probability. Candidates move from a heap to the end of `order`, the most likely last. */
static int32_t draw_token(struct generator *g)
{
    const int vocab = g->model->config.vocab;
    const struct generate_config *c = &g->config;
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = g->logits[i] > g->logits[best] ? i : best;
    if (c->temperature <= 0)
        return best;
    double total = 0;
    for (int i = 0; i < vocab; i++) {
        total += token_weight(g, i, best);
        g->order[i] = i;
    }
    for (int i = vocab / 2 - 1; i >= 0; i--)
        sift_down(g->logits, g->order, vocab, i);

    const bool cut = c->top_k > 0 && c->top_k < vocab;
    const int *candidate = g->order + vocab - 1; /* candidate[-i] is the i-th */
    double held = 0, enough = cut ? INFINITY : c->top_p * total;
    int n = 0;
    while (n < (cut ? c->top_k : vocab) && (n == 0 || held < enough)) {
        int left = vocab - n++, top = g->order[0];
        g->order[0] = g->order[left - 1];
        g->order[left - 1] = top;
        sift_down(g->logits, g->order, left - 1, 0);
        held += token_weight(g, top, best);
    }
    if (cut) {
        enough = c->top_p * held;
        held = 0;
        for (n = 0; n < c->top_k && (n == 0 || held < enough); n++)
            held += token_weight(g, candidate[-n], best);
    }
    double u = rng_uniform(&g->rng) * held;
    for (int i = 0; i < n - 1; i++) {
        u -= token_weight(g, candidate[-i], best);
        if (u <= 0)
            return candidate[-i];
    }
    return candidate[-(n - 1)];
}

enum sotto_status generator_next(struct generator *g, const int32_t *tokens, size_t count,
                                 int32_t *next)
{
    const struct model_config *c = &g->model->config;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= c->vocab)
            return fail(SOTTO_EINVAL, "token %d is not in the model's vocabulary of %d", tokens[i],
                        c->vocab);
    /* tokens with room: all positions, or the positions that forget_half leaves */
    const size_t most = g->seen ? ((size_t)c->positions + 1) / 2 : (size_t)c->positions;
    if (count > most) { /* the end of a long prompt matters most */
        tokens += count - most;
        count = most;
    }
    if (count == 0)
        return fail(SOTTO_EINVAL, "sampling needs at least one token to start from");
    if (g->seen + (int)count > c->positions)
        TRY(forget_half(g));
    TRY(reserve_positions(g, g->seen + (int)count));
    TRY(read_tokens(g, tokens, count));
    for (int i = 0; i < c->vocab; i++)
        if (!isfinite(g->logits[i]))
            return fail(SOTTO_ENUMERIC, "the model's output for token %d is %f", i, g->logits[i]);
    *next = draw_token(g);
    return SOTTO_OK;
}

/* Unigram: of all ways to cut a word into pieces, the way with the largest sum of scores
 * (`encode_optimized` of `tokenizers`). Sums are in double, in the order of the word, and only a
 * strictly larger sum replaces an earlier sum, so that ties fall as in `tokenizers`. */
#include "data/tokenizer/model/unigram.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/model/model.h"
#include "data/tokenizer/tokenizer_impl.h"

#define UNKNOWN_PENALTY 10.0 /* below the smallest score */

struct unigram_edge {
    uint32_t node, next; /* next == 0: free */
    uint8_t byte;
};

/* The best way to the byte before which the place is. */
struct unigram_place {
    double score;
    uint32_t from; /* where the last piece begins; BPE_NONE: no way yet */
    uint32_t id;   /* of the last piece; BPE_NONE: a character without a piece */
};

static uint32_t edge_hash(uint32_t node, uint8_t byte)
{
    return bpe_hash_pair(node, byte);
}

static uint32_t trie_next(const struct unigram *u, uint32_t node, uint8_t byte)
{
    for (uint32_t i = edge_hash(node, byte);; i++) {
        const struct unigram_edge *e = &u->edge[i & u->edge_mask];
        if (e->next == 0 || (e->node == node && e->byte == byte))
            return e->next;
    }
}

static enum sotto_status unigram_no_memory(const struct unigram *u)
{
    return fail(SOTTO_ENOMEM, "no memory for %u pieces", u->count);
}

static void put_edge(struct unigram_edge *table, uint32_t mask, struct unigram_edge edge)
{
    uint32_t i = edge_hash(edge.node, edge.byte);
    while (table[i & mask].next != 0)
        i++;
    table[i & mask] = edge;
}

/* Makes room for one more edge and its node. */
static enum sotto_status grow_trie(struct unigram *u)
{
    if (!u->edge || u->n_edge >= u->edge_mask / 2) {
        const uint32_t size = u->edge ? (u->edge_mask + 1) * 2 : 1 << 12;
        struct unigram_edge *edge = calloc(size, sizeof *edge);
        if (!edge)
            return unigram_no_memory(u);
        for (uint32_t i = 0; u->edge && i <= u->edge_mask; i++)
            if (u->edge[i].next)
                put_edge(edge, size - 1, u->edge[i]);
        free(u->edge);
        u->edge = edge;
        u->edge_mask = size - 1;
    }
    if (u->n_node + 1 >= u->piece_room) {
        const uint32_t room = u->piece_room * 2 + 1024;
        uint32_t *piece = realloc(u->piece, room * sizeof *piece);
        if (!piece)
            return unigram_no_memory(u);
        u->piece = piece;
        u->piece_room = room;
    }
    return SOTTO_OK;
}

/* Adds a piece; of pieces with the same text the last counts. */
static enum sotto_status add_to_trie(struct unigram *u, const char *text, size_t size, uint32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)text[i];
        uint32_t next = trie_next(u, node, byte);
        if (next == 0) {
            TRY(grow_trie(u));
            next = u->n_node++;
            u->piece[next] = BPE_NONE;
            put_edge(u->edge, u->edge_mask, (struct unigram_edge){node, next, byte});
            u->n_edge++;
        }
        node = next;
    }
    u->piece[node] = id;
    return SOTTO_OK;
}

/* Takes the bytes' tokens, or the unknown token, for a run of characters without pieces. */
static enum sotto_status put_unknown(const struct tokenizer *t, const char *text, size_t size,
                                     int32_t *out, size_t *n)
{
    const struct bpe_model *model = &t->model;
    /* as in `tokenizers`, the run may be the text of a piece */
    const uint32_t known = bpe_model_find(model, text, size);
    bool fallback = t->unigram->fallback;
    for (size_t i = 0; i < size && fallback; i++)
        fallback = model->byte_id[(uint8_t)text[i]] != BPE_NONE;
    if (known != BPE_NONE) {
        out[(*n)++] = (int32_t)known;
    } else if (fallback) {
        for (size_t i = 0; i < size; i++)
            out[(*n)++] = (int32_t)model->byte_id[(uint8_t)text[i]];
    } else if (model->unknown != BPE_NONE) {
        out[(*n)++] = (int32_t)model->unknown;
    } else {
        char shown[48];
        return fail(SOTTO_EINVAL, "\"%s\" has no piece, and the model has no \"unk_id\"",
                    bpe_show(shown, text, size));
    }
    return SOTTO_OK;
}

/* Finds the best way to each place of the word. */
static void find_places(const struct unigram *u, uint32_t unknown, const uint8_t *word, size_t size,
                        struct unigram_place *place)
{
    for (size_t i = 0; i <= size; i++)
        place[i].from = BPE_NONE;
    place[0].score = 0;
    for (size_t at = 0; at < size;) {
        int length;
        bpe_utf8_code(word + at, &length);
        const double here = place[at].score;
        bool single = false;
        uint32_t node = 0;
        for (size_t end = at; end < size;) {
            node = trie_next(u, node, word[end++]);
            if (node == 0)
                break;
            if (u->piece[node] == BPE_NONE)
                continue;
            const double score = u->score[u->piece[node]] + here;
            if (place[end].from == BPE_NONE || score > place[end].score)
                place[end] = (struct unigram_place){score, (uint32_t)at, u->piece[node]};
            single = single || end - at == (size_t)length;
        }
        struct unigram_place *next = &place[at + (size_t)length];
        if (!single && (next->from == BPE_NONE || u->unknown_score + here > next->score))
            *next = (struct unigram_place){u->unknown_score + here, (uint32_t)at, unknown};
        at += (size_t)length;
    }
}

static enum sotto_status reserve_path(struct bpe_work *work, size_t bytes)
{
    if (bytes <= work->path_room)
        return SOTTO_OK;
    free(work->path);
    work->path_room = bytes + bytes / 2;
    work->path = malloc(work->path_room);
    if (work->path)
        return SOTTO_OK;
    work->path_room = 0;
    return fail(SOTTO_ENOMEM, "no memory for a word of %zu bytes", bytes);
}

/* Turns the way to the end around: `from` of a place becomes the end of the piece that begins
 * there, and `id` the piece. */
static void turn_path(struct unigram_place *place, size_t size)
{
    uint32_t end = (uint32_t)size, from = place[end].from, id = place[end].id;
    while (end > 0) {
        const struct unigram_place before = place[from];
        place[from].from = end;
        place[from].id = id;
        end = from;
        from = before.from;
        id = before.id;
    }
}

static enum sotto_status unigram_ids(struct bpe_work *work, const char *word, size_t size,
                                     int32_t *out, size_t *count)
{
    const struct tokenizer *t = work->tokenizer;
    const uint32_t unknown = t->model.unknown;
    size_t n = 0;
    if (size > BPE_MAX_WORD)
        return fail(SOTTO_EINVAL, "a word of %zu bytes is more than the %u allowed", size,
                    BPE_MAX_WORD);
    TRY(reserve_path(work, (size + 1) * sizeof(struct unigram_place)));
    struct unigram_place *place = work->path;
    find_places(t->unigram, unknown, (const uint8_t *)word, size, place);
    turn_path(place, size);
    for (size_t at = 0, end; at < size; at = end) {
        end = place[at].from;
        if (place[at].id != unknown) {
            out[n++] = (int32_t)place[at].id;
            continue;
        }
        while (end < size && place[end].id == unknown) /* a run is one token */
            end = place[end].from;
        TRY(put_unknown(t, word + at, end - at, out, &n));
    }
    *count = n;
    return SOTTO_OK;
}

/* Returns the number as `tokenizers` reads the shortest text of the number: its digits as an
 * integer, divided by a power of ten, which may differ from the number in the last bit. */
static double score_as_read(double value)
{
    char text[JSON_REAL_ROOM];
    uint64_t digits = 0;
    int exponent = 0;
    bool point = false;
    json_print_real(text, fabs(value));
    const char *p = text;
    for (; (*p >= '0' && *p <= '9') || *p == '.'; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (digits > (UINT64_MAX - 9) / 10)
            return value;
        digits = digits * 10 + (uint64_t)(*p - '0');
        exponent -= point;
    }
    if (*p == 'e' || *p == 'E')
        exponent += atoi(p + 1);
    if (exponent < -308 || exponent > 308)
        return value;
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int n = abs(exponent);
    char ten[16];
    snprintf(ten, sizeof ten, "1e%d", n);
    const double by = n < (int)(sizeof power / sizeof *power) ? power[n] : strtod(ten, NULL);
    const double read = exponent >= 0 ? (double)digits * by : (double)digits / by;
    return value < 0 ? -read : read;
}

/* Adds the piece [text, score] with the next id. */
static enum sotto_status read_scored_piece(struct tokenizer *tokenizer, const json_t *piece,
                                           size_t index)
{
    struct unigram *u = tokenizer->unigram;
    struct bpe_model *model = &tokenizer->model;
    const json_t *text = json_array_get(piece, 0), *score = json_array_get(piece, 1);
    if (json_array_size(piece) != 2 || !json_is_string(text) || !json_is_number(score))
        return fail(SOTTO_EFORMAT, "piece %zu must be [\"text\", score]", index);
    const double value = json_number_value(score);
    const size_t size = json_string_length(text);
    u->written[index] = value;
    u->score[index] = json_is_integer(score) ? value : score_as_read(value);
    TRY(bpe_model_add_piece(model, json_string_value(text), size, (uint32_t)index));
    return size ? add_to_trie(u, json_string_value(text), size, (uint32_t)index) : SOTTO_OK;
}

static enum sotto_status read_unigram(struct tokenizer *tokenizer, const json_t *json)
{
    struct bpe_model *model = &tokenizer->model;
    json_t *vocab, *piece;
    size_t index;
    if (tokenizer->split.bytes)
        return fail(SOTTO_EFORMAT, "a Unigram model with ByteLevel is not supported");
    TRY(json_get_array(json, "vocab", &vocab));
    const size_t count = json_array_size(vocab);
    if (count == 0 || count > BPE_MAX_VOCAB)
        return fail(SOTTO_EFORMAT, "\"vocab\" must have 1 to %d pieces, got %zu", BPE_MAX_VOCAB,
                    count);
    struct unigram *u = tokenizer->unigram = calloc(1, sizeof *u);
    if (!u)
        return fail(SOTTO_ENOMEM, "no memory for a tokenizer");
    u->count = (uint32_t)count;
    u->n_node = 1;
    u->score = calloc(count, sizeof *u->score);
    u->written = calloc(count, sizeof *u->written);
    if (!u->score || !u->written)
        return unigram_no_memory(u);
    TRY(grow_trie(u));
    u->piece[0] = BPE_NONE;
    model->characters = true;
    double least = INFINITY;
    json_array_foreach(vocab, index, piece)
    {
        TRY(read_scored_piece(tokenizer, piece, index));
        least = u->score[index] < least ? u->score[index] : least;
    }
    u->unknown_score = least - UNKNOWN_PENALTY;
    u->fallback = json_get_bool_or(json, "byte_fallback", false);
    if (u->fallback)
        bpe_find_fallback(model);
    const json_t *unknown = json_object_get(json, "unk_id");
    if (!unknown || json_is_null(unknown))
        return SOTTO_OK;
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        json_integer_value(unknown) >= (int64_t)count)
        return fail(SOTTO_EFORMAT, "\"unk_id\" must be an id below %zu", count);
    model->unknown = (uint32_t)json_integer_value(unknown);
    return SOTTO_OK;
}

static enum sotto_status write_unigram(const struct tokenizer *tokenizer, json_t *json)
{
    const struct bpe_model *model = &tokenizer->model;
    json_t *vocab = json_object_get(json, "vocab");
    for (uint32_t id = 0; id < tokenizer->unigram->count; id++) {
        json_t *piece =
            json_pack("[s%, f]", bpe_token_text(model, id), (size_t)model->token[id].text_size,
                      tokenizer->unigram->written[id]);
        if (json_array_append_new(vocab, piece) != 0)
            return model_write_no_memory();
    }
    return SOTTO_OK;
}

static void unigram_free(struct tokenizer *tokenizer)
{
    struct unigram *u = tokenizer->unigram;
    if (!u)
        return;
    free(u->score);
    free(u->written);
    free(u->edge);
    free(u->piece);
    free(u);
}

bool unigram_same(const struct unigram *a, const struct unigram *b)
{
    if (!a || !b)
        return a == b;
    return a->count == b->count && memcmp(a->score, b->score, a->count * sizeof *a->score) == 0;
}

const struct model_kind model_unigram = {"Unigram", unigram_ids, read_unigram, write_unigram,
                                         unigram_free};

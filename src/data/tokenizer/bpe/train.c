/* Learning merges: the pair of neighbouring tokens that occurs most often in the words becomes a
 * token, again and again (Sennrich et al. 2016, algorithm 1). Of equally frequent pairs the one
 * with the smaller ids is taken, as in `tokenizers`.
 *
 * The distinct words are concatenated in one array of linked symbols. A pair has its count and the
 * places where it was seen, so that the cost of a merge is in proportion to its occurrences, not to
 * the text. Stale places and heap entries are not removed: a place is checked when its pair is
 * merged, and an entry with a larger count than its pair returns to the heap with the present
 * count. */
#include "data/tokenizer/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/words.h"

struct pair_count {
    uint32_t left, right;
    int64_t count;
    uint32_t *place; /* of the left symbol; may be stale */
    uint32_t n_place, room;
    bool raised; /* the count rose in this merge: needs a new heap entry */
};

struct merge_candidate {
    int64_t count;
    uint32_t left, right, pair;
};

struct merge_trainer {
    uint32_t *id, *left,
        *right;     /* (n_symbol) token and neighbours of each symbol, BPE_NONE at a word's ends */
    uint32_t *word; /* (n_symbol) */
    uint32_t n_symbol;
    const struct bpe_words *words;

    struct pair_count *pair;
    uint32_t n_pair, pair_room;
    uint32_t *slot; /* open addressing: index + 1 of the pair (left, right) */
    uint32_t mask;
    uint32_t *raised; /* (n_raised) pairs with `raised` set */
    uint32_t n_raised, raised_room;
    struct merge_candidate *heap;
    size_t n_heap, heap_room;
};

static enum sotto_status training_no_memory(void)
{
    return fail(SOTTO_ENOMEM, "no memory to train a tokenizer");
}

/* Makes room for one more element of `size` bytes. */
static enum sotto_status room_for_one(void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return SOTTO_OK;
    void *more = realloc(*list, (*room * 2 + 16) * size);
    if (!more)
        return training_no_memory();
    *list = more;
    *room = *room * 2 + 16;
    return SOTTO_OK;
}

#define ROOM_FOR_ONE(list, count, room)                                                            \
    do {                                                                                           \
        void *list_ = (list);                                                                      \
        size_t room_ = (room);                                                                     \
        TRY(room_for_one(&list_, (count), &room_, sizeof *(list)));                                \
        (list) = list_;                                                                            \
        (room) = (uint32_t)room_;                                                                  \
    } while (0)

static enum sotto_status grow_pair_table(struct merge_trainer *t)
{
    uint32_t size = t->mask ? (t->mask + 1) * 2 : 1 << 16;
    uint32_t *slot = calloc(size, sizeof *slot);
    if (!slot)
        return training_no_memory();
    for (uint32_t k = 0; k < t->n_pair; k++) {
        uint32_t i = bpe_hash_pair(t->pair[k].left, t->pair[k].right);
        while (slot[i & (size - 1)])
            i++;
        slot[i & (size - 1)] = k + 1;
    }
    free(t->slot);
    t->slot = slot;
    t->mask = size - 1;
    return SOTTO_OK;
}

static enum sotto_status find_pair_count(struct merge_trainer *t, uint32_t left, uint32_t right,
                                         uint32_t *index)
{
    if (t->n_pair >= t->mask / 2)
        TRY(grow_pair_table(t));
    uint32_t i = bpe_hash_pair(left, right);
    for (; t->slot[i & t->mask]; i++) {
        *index = t->slot[i & t->mask] - 1;
        if (t->pair[*index].left == left && t->pair[*index].right == right)
            return SOTTO_OK;
    }
    ROOM_FOR_ONE(t->pair, t->n_pair, t->pair_room);
    *index = t->n_pair;
    t->pair[t->n_pair++] = (struct pair_count){.left = left, .right = right};
    t->slot[i & t->mask] = t->n_pair;
    return SOTTO_OK;
}

/* Adds the count of the word at `place` to the pair (left, right), seen there. */
static enum sotto_status raise_pair(struct merge_trainer *t, uint32_t left, uint32_t right,
                                    uint32_t place)
{
    uint32_t index;
    TRY(find_pair_count(t, left, right, &index));
    struct pair_count *pair = &t->pair[index];
    pair->count += t->words->word[t->word[place]].count;
    ROOM_FOR_ONE(pair->place, pair->n_place, pair->room);
    pair->place[pair->n_place++] = place;
    if (!pair->raised) {
        ROOM_FOR_ONE(t->raised, t->n_raised, t->raised_room);
        t->raised[t->n_raised++] = index;
        pair->raised = true;
    }
    return SOTTO_OK;
}

static enum sotto_status lower_pair(struct merge_trainer *t, uint32_t left, uint32_t right,
                                    uint32_t place)
{
    uint32_t index;
    TRY(find_pair_count(t, left, right, &index));
    t->pair[index].count -= t->words->word[t->word[place]].count;
    return SOTTO_OK;
}

static bool comes_before(struct merge_candidate a, struct merge_candidate b)
{
    if (a.count != b.count)
        return a.count > b.count;
    return a.left != b.left ? a.left < b.left : a.right < b.right;
}

static enum sotto_status push_candidate(struct merge_trainer *t, uint32_t index)
{
    const struct pair_count *pair = &t->pair[index];
    if (pair->count <= 0)
        return SOTTO_OK;
    void *list = t->heap;
    TRY(room_for_one(&list, t->n_heap, &t->heap_room, sizeof *t->heap));
    t->heap = list;
    struct merge_candidate entry = {pair->count, pair->left, pair->right, index};
    size_t i = t->n_heap++;
    for (; i > 0 && comes_before(entry, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = entry;
    return SOTTO_OK;
}

static enum sotto_status push_raised(struct merge_trainer *t)
{
    for (uint32_t i = 0; i < t->n_raised; i++) {
        t->pair[t->raised[i]].raised = false;
        TRY(push_candidate(t, t->raised[i]));
    }
    t->n_raised = 0;
    return SOTTO_OK;
}

static struct merge_candidate pop_candidate(struct merge_trainer *t)
{
    struct merge_candidate top = t->heap[0], entry = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        child += child + 1 < t->n_heap && comes_before(t->heap[child + 1], t->heap[child]);
        if (!comes_before(t->heap[child], entry))
            break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = entry;
    return top;
}

static enum sotto_status lay_out_words(struct merge_trainer *t, const struct bpe_model *model)
{
    size_t n = t->words->pool.count;
    if (n > BPE_MAX_WORD)
        return fail(SOTTO_EINVAL, "the distinct words take %zu bytes, more than the %u allowed", n,
                    BPE_MAX_WORD);
    t->n_symbol = (uint32_t)n;
    t->id = malloc((n + 1) * sizeof *t->id);
    t->left = malloc((n + 1) * sizeof *t->left);
    t->right = malloc((n + 1) * sizeof *t->right);
    t->word = malloc((n + 1) * sizeof *t->word);
    if (!t->id || !t->left || !t->right || !t->word)
        return training_no_memory();
    for (uint32_t w = 0; w < t->words->n; w++) {
        uint32_t from = (uint32_t)t->words->word[w].at, to = from + t->words->word[w].size;
        for (uint32_t i = from; i < to; i++) {
            t->id[i] = model->byte_id[(uint8_t)t->words->pool.data[i]];
            t->left[i] = i > from ? i - 1 : BPE_NONE;
            t->right[i] = i + 1 < to ? i + 1 : BPE_NONE;
            t->word[i] = w;
        }
        for (uint32_t i = from; i + 1 < to; i++)
            TRY(raise_pair(t, t->id[i], t->id[i + 1], i));
    }
    return push_raised(t);
}

static int compare_symbol_places(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static enum sotto_status merge_place(struct merge_trainer *t, uint32_t place, uint32_t result)
{
    uint32_t *id = t->id, next = t->right[place], left = t->left[place], right = t->right[next];
    if (left != BPE_NONE) {
        TRY(lower_pair(t, id[left], id[place], left));
        TRY(raise_pair(t, id[left], result, left));
    }
    if (right != BPE_NONE) {
        TRY(lower_pair(t, id[next], id[right], place));
        TRY(raise_pair(t, result, id[right], place));
        t->left[right] = place;
    }
    id[place] = result;
    id[next] = BPE_NONE;
    t->right[place] = right;
    return SOTTO_OK;
}

/* Merges from left to right: in "aaa" the first two merge. */
static enum sotto_status merge_everywhere(struct merge_trainer *t, struct merge_candidate best,
                                          uint32_t result)
{
    uint32_t *place = t->pair[best.pair].place, n = t->pair[best.pair].n_place;
    t->pair[best.pair].place = NULL;
    t->pair[best.pair].n_place = t->pair[best.pair].room = 0;
    for (uint32_t i = 1; i < n; i++)
        if (place[i] < place[i - 1]) { /* only where two merges made the same token */
            qsort(place, n, sizeof *place, compare_symbol_places);
            break;
        }
    enum sotto_status st = SOTTO_OK;
    for (uint32_t i = 0; i < n && st == SOTTO_OK; i++) {
        uint32_t next = t->id[place[i]] == best.left ? t->right[place[i]] : BPE_NONE;
        if (next != BPE_NONE && t->id[next] == best.right)
            st = merge_place(t, place[i], result);
    }
    free(place);
    t->pair[best.pair].count = 0;
    return st;
}

/* Makes the token of `best`, unless another merge has made the same text before. */
static enum sotto_status make_token(struct bpe_model *model, struct merge_candidate best)
{
    struct bpe_buffer text = {0};
    enum sotto_status st;
    struct bpe_token left = model->token[best.left], right = model->token[best.right];
    TRY_DONE(bpe_buffer_add(&text, model->pool.data + left.text, left.text_size));
    TRY_DONE(bpe_buffer_add(&text, model->pool.data + right.text, right.text_size));
    if (bpe_model_find(model, text.data, text.count) == BPE_NONE)
        TRY_DONE(bpe_model_add(model, text.data, text.count, model->size));
    TRY_DONE(bpe_model_merge(model, text.data, left.text_size, text.data + left.text_size,
                             right.text_size));
done:
    free(text.data);
    return st;
}

static enum sotto_status learn_merges(struct merge_trainer *t, struct bpe_model *model,
                                      uint32_t size, int64_t least)
{
    while (model->size < size && t->n_heap > 0) {
        struct merge_candidate best = pop_candidate(t);
        int64_t now = t->pair[best.pair].count;
        if (best.count != now) { /* fallen; or a higher entry was taken before */
            if (now < best.count)
                TRY(push_candidate(t, best.pair));
            continue;
        }
        if (best.count < least)
            break;
        TRY(make_token(model, best));
        TRY(merge_everywhere(t, best, model->merge[model->n_merge - 1].result));
        TRY(push_raised(t));
    }
    return SOTTO_OK;
}

static void merge_trainer_free(struct merge_trainer *t)
{
    for (uint32_t i = 0; i < t->n_pair; i++)
        free(t->pair[i].place);
    free(t->pair);
    free(t->slot);
    free(t->raised);
    free(t->heap);
    free(t->id);
    free(t->left);
    free(t->right);
    free(t->word);
}

enum sotto_status bpe_learn(struct bpe_model *model, const struct bpe_words *words, uint32_t size,
                            int64_t least)
{
    struct merge_trainer trainer = {.words = words};
    enum sotto_status st = lay_out_words(&trainer, model);
    if (st == SOTTO_OK)
        st = learn_merges(&trainer, model, size, least);
    merge_trainer_free(&trainer);
    return st;
}

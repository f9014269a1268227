/* The parts of a tokenizer.
 *
 * Text becomes ids in five steps, the same as in Hugging Face `tokenizers`, so that the ids are the
 * same:
 *   1. added tokens that match the unchanged text are cut out                added.c
 *   2. text between them is normalized                                       ../normalizer
 *   3. added tokens that match normalized text are cut out                   added.c
 *   4. text between them is split into words by a chain of stages            split.c
 *   5. a word becomes ids: the word's bytes or characters are merged pair
 *      by pair, lowest rank first (merge.c), or another model has the word   ../model
 * Bytes that are not UTF-8 take no part in 2-4: a run of such bytes is a word, so that decoding
 * returns any bytes.
 *
 * Reference: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword
 * units", 2016; bytes as letters: Radford et al., "Language models are unsupervised multitask
 * learners", 2019. */
#ifndef SOTTO_DATA_TOKENIZER_BPE_BPE_H
#define SOTTO_DATA_TOKENIZER_BPE_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/tokenizer/token_list.h"

#define BPE_MAX_VOCAB (1 << 22) /* upper limit of ids */
#define BPE_MAX_ADDED 1024      /* bytes of an added token */
#define BPE_MAX_STAGES 16       /* pre-tokenizers in a row */
#define BPE_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's blank */
#define BPE_MAX_WORD (1u << 30) /* bytes of a word */
#define BPE_NONE UINT32_MAX     /* no id, no rank, no place */
#define BPE_CACHED_BYTES 26     /* a longer word is not kept in the cache */

/* Bytes, tables, messages (buffer.c) */

struct bpe_buffer { /* growing; start from {0} */
    char *data;
    size_t count, room;
};

enum sotto_status bpe_buffer_reserve(struct bpe_buffer *buffer, size_t more);
enum sotto_status bpe_buffer_add(struct bpe_buffer *buffer, const void *data, size_t bytes);
/* Writes text for messages: cut to fit, control characters replaced. */
const char *bpe_show(char out[48], const char *text, size_t size);

/* Returns a power of two that leaves at least half of a table of `count` free. */
static inline uint32_t bpe_table_size(uint32_t count)
{
    uint32_t size = 16;
    while (size < count * 2)
        size *= 2;
    return size;
}

/* Multiplies in 64 bits and folds; good enough for tables that use the low bits. */
static inline uint32_t bpe_hash(const char *data, size_t bytes)
{
    uint64_t h = bytes, word;
    for (; bytes >= sizeof word; data += sizeof word, bytes -= sizeof word) {
        memcpy(&word, data, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    word = 0;
    for (size_t i = 0; i < bytes; i++)
        word = word << 8 | (uint8_t)data[i];
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}
static inline uint32_t bpe_hash_pair(uint32_t left, uint32_t right)
{
    uint64_t x = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

/* Unicode (unicode.c, nfc.c) */

enum bpe_class { BPE_OTHER, BPE_LETTER, BPE_NUMBER, BPE_SPACE }; /* \p{L}, \p{N}, \s, other */
#define BPE_CLASS_MASK 3
#define BPE_INERT 4 /* unchanged by NFC, and not joined with the character before */

struct bpe_unicode {
    uint8_t bmp[0x10000]; /* class | BPE_INERT of the code points below 0x10000 */
};

void bpe_unicode_init(struct bpe_unicode *unicode);
uint8_t bpe_properties(uint32_t code);      /* class | BPE_INERT of any code point, slower */
bool bpe_is_late(uint32_t code);            /* a mark or composite newer than `tokenizers`' NFC */
bool bpe_is_late_compatible(uint32_t code); /* newer, with a compatible form: NFKC, NFKD */
bool bpe_is_word(uint32_t code);            /* \w */
bool bpe_is_white_space(uint32_t code);     /* White_Space */
bool bpe_is_punctuation(uint32_t code);     /* ASCII's and category P, as BERT has punctuation */
uint32_t bpe_lowercase(uint32_t code);
bool bpe_joins_cluster(
    uint32_t code); /* belongs to the grapheme cluster before, since Unicode 16 */
bool bpe_is_new_number(uint32_t code); /* a number of Unicode 17, which only Digits knows */
/* Properties by the tables that `tokenizers` has for BertNormalizer and StripAccents (old.c). */
bool bpe_is_control(uint32_t code);    /* Cc, Cf, Co */
bool bpe_is_old_mark(uint32_t code);   /* M */
bool bpe_is_old_accent(uint32_t code); /* Mn */

static inline uint8_t bpe_look_up(const struct bpe_unicode *unicode, uint32_t code)
{
    return code < 0x10000 ? unicode->bmp[code] : bpe_properties(code);
}

/* Returns the bytes of the valid UTF-8 sequence at `p`, 0 if there is none; n > 0. */
int bpe_utf8_length(const uint8_t *p, size_t n);
/* Returns the bytes of the longest valid prefix. */
size_t bpe_utf8_prefix(const uint8_t *p, size_t n);
/* Returns the code point at `p`, which must be valid UTF-8. */
static inline uint32_t bpe_utf8_code(const uint8_t *p, int *length)
{
    if (p[0] < 0x80)
        return *length = 1, p[0];
    if (p[0] < 0xe0)
        return *length = 2, (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    if (p[0] < 0xf0)
        return *length = 3, (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    *length = 4;
    return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

/* Returns the letter for a byte in vocabulary files: the byte itself if printable, else 256 + n. */
uint32_t bpe_letter(uint8_t byte);
/* Writes the letter as UTF-8: 1 or 2 bytes. */
int bpe_letter_utf8(uint8_t byte, char out[2]);
/* Turns letters back into bytes; false if a character is no letter (the text is then taken
 * unchanged). */
bool bpe_letters_to_bytes(const char *text, size_t size, char *out, size_t *n_out);

/* Writes the form of valid UTF-8 to `out`. */
enum bpe_form { BPE_NFD, BPE_NFKC, BPE_NFKD };
enum sotto_status bpe_normal_form(enum bpe_form form, const char *text, size_t size,
                                  struct bpe_buffer *out);
/* Writes the NFC of valid UTF-8 to `out`; `*same`: the text is in NFC already, and `out` is unused.
 */
enum sotto_status bpe_nfc(const struct bpe_unicode *unicode, const char *text, size_t size,
                          struct bpe_buffer *out, bool *same);

/* The model: vocabulary and merges (model.c, merge.c) */

struct bpe_token {
    uint32_t text,
        text_size; /* as in the file, in `pool`; text == BPE_NONE: not in the model's vocabulary */
    uint32_t bytes, bytes_size; /* decoded bytes; bytes == BPE_NONE: no such id */
};

struct bpe_merge {
    uint32_t left, right, result; /* ids; the index of a merge is its rank */
};

struct bpe_model {
    bool characters;         /* texts of tokens are characters, not letters for bytes */
    struct bpe_token *token; /* (size) */
    uint32_t size, room;     /* largest id + 1 */
    struct bpe_buffer pool;
    struct bpe_merge *merge; /* (n_merge) */
    uint32_t n_merge, merge_room;
    uint32_t byte_id[256]; /* the token of one byte, BPE_NONE if there is none; with `characters`:
                            * <0xXX>, all BPE_NONE without byte_fallback */
    uint32_t unknown;      /* for a symbol without a token; BPE_NONE: the symbol is dropped */
    bool fuse_unknown;     /* a run of unknown symbols is one token */
    bool cut_marks;        /* no merge joins U+2581 to a different character before U+2581 */
    bool ignore_merges;    /* a word that is a token is not merged */
    uint32_t longest;      /* bytes of the longest token in `whole` */

    uint32_t *by_text; /* open addressing: id + 1 at hash of the text */
    uint32_t by_text_mask, n_text;
    struct bpe_pair_slot {
        uint32_t left, right, rank, result;
    } * pair; /* open addressing: (left, right) -> rank; rank == BPE_NONE: free */
    uint32_t pair_mask;
    struct bpe_whole_slot {
        uint32_t hash, id, bytes, size; /* the word, in `pool` */
    } * whole; /* open addressing: words that become one token; id == BPE_NONE: free */
    uint32_t whole_mask;
};

/* Add the tokens of a merge, then the merge; bpe_model_finish follows the last merge. */
enum sotto_status bpe_model_add(struct bpe_model *model, const char *text, size_t size, int64_t id);
/* Adds a token whose text may be another token's: bpe_model_find then finds the later token. */
enum sotto_status bpe_model_add_piece(struct bpe_model *model, const char *text, size_t size,
                                      uint32_t id);
enum sotto_status bpe_model_merge(struct bpe_model *model, const char *left, size_t left_size,
                                  const char *right, size_t right_size);
void bpe_model_find_bytes(struct bpe_model *model); /* fills byte_id; also in finish */
enum sotto_status bpe_model_finish(struct bpe_model *model);
enum sotto_status bpe_model_index_words(struct bpe_model *model); /* after finish: fills `whole` */
void bpe_model_free(struct bpe_model *model);

/* Sets the bytes that `id` decodes to: for added tokens. */
enum sotto_status bpe_model_set_bytes(struct bpe_model *model, uint32_t id, const char *bytes,
                                      size_t size);
uint32_t bpe_model_find(const struct bpe_model *model, const char *text, size_t size);
static inline const char *bpe_token_text(const struct bpe_model *model, uint32_t id)
{
    return model->pool.data + model->token[id].text;
}
static inline const struct bpe_pair_slot *bpe_model_pair(const struct bpe_model *model,
                                                         uint32_t left, uint32_t right)
{
    for (uint32_t i = bpe_hash_pair(left, right);; i++) {
        const struct bpe_pair_slot *slot = &model->pair[i & model->pair_mask];
        if (slot->rank == BPE_NONE)
            return NULL;
        if (slot->left == left && slot->right == right)
            return slot;
    }
}

struct bpe_work;

/* Writes the ids of one word; room for `size` ids at `out`. */
typedef enum sotto_status bpe_ids_of(struct bpe_work *work, const char *word, size_t size,
                                     int32_t *out, size_t *count);

/* Scratch and inputs of one call. A tokenizer is read-only, so threads share it. */
struct bpe_work {
    const struct bpe_unicode *unicode;
    const struct bpe_model *model;
    const struct bpe_added_list *added;
    const struct bpe_split *split;
    const struct tokenizer *tokenizer; /* for models other than BPE */
    bpe_ids_of *ids_of;                /* the model, for words that are not in the tables */
    struct token_list *out;
    struct bpe_cached {
        char word[BPE_CACHED_BYTES];
        uint8_t size;  /* 0: free */
        uint8_t count; /* ids */
        size_t at;     /* index of the same word's ids, earlier in `out` */
    } * cache;
    uint32_t cache_mask;
    struct bpe_symbol *symbol; /* of long words */
    uint64_t *heap;
    size_t symbol_room;
    struct bpe_buffer normal[2];
    struct bpe_buffer stage_text[BPE_MAX_STAGES + 1]; /* of stages that change text */
    struct bpe_buffer pieces;                         /* of model/wordpiece.c */
    void *path;                                       /* of model/unigram.c */
    size_t path_room;                                 /* bytes of `path` */
    const char *first;  /* what the first character of the whole text became; NULL: elsewhere */
    size_t first_size;  /* bytes of `first` */
    bool glued;         /* after bytes that are not UTF-8: no space in between */
    const char *joined; /* normalized text that is `glued`; NULL: none */
    struct bpe_matcher *matcher; /* of regex.c */
};

/* Appends the ids of one word. */
enum sotto_status bpe_word(struct bpe_work *work, const char *word, size_t size);
/* Appends the ids of a run of bytes that are not UTF-8. */
enum sotto_status bpe_raw_bytes(struct bpe_work *work, const char *bytes, size_t size);
/* Appends the ids of one word in the parts before U+2581 that no merge crosses. */
enum sotto_status bpe_word_parts(struct bpe_work *work, const char *word, size_t size);
/* The symbols of a word of characters; room for `size` symbols at `id`; returns the number. */
size_t bpe_character_symbols(const struct bpe_model *model, const uint8_t *word, size_t size,
                             uint32_t *id);
/* True if each byte has a token <0xXX>. */
bool bpe_has_fallback(const struct bpe_model *model, const uint8_t *bytes, size_t size);
/* Finds the tokens <0xXX>: fills byte_id. */
void bpe_find_fallback(struct bpe_model *model);
/* Sets cut_marks. */
void bpe_check_marks(struct bpe_model *model);
/* Merges without the tables of whole words and of the cache; room for `size` ids at `out`. */
enum sotto_status bpe_word_merge(struct bpe_work *work, const struct bpe_model *model,
                                 const char *word, size_t size, int32_t *out, size_t *count);
/* The same as a bpe_ids_of, of the work's model. */
enum sotto_status bpe_merged_ids(struct bpe_work *work, const char *word, size_t size, int32_t *out,
                                 size_t *count);

/* Added tokens (added.c) */

struct bpe_added {
    uint32_t content, content_size; /* in `pool` of the list */
    uint32_t normal, normal_size;   /* the content in normalized text, if `normalized` */
    uint32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
};

struct bpe_contents { /* for finding the longest at a place */
    struct bpe_content {
        uint32_t at, size; /* in `pool` of the list */
        uint32_t token;    /* index in the list */
    } * item;              /* sorted by bytes; no two are equal */
    uint32_t count;
    uint32_t first[257]; /* contents with first byte b: first[b] to first[b + 1] */
};

struct bpe_added_list {
    struct bpe_added *item;
    uint32_t count, room;
    struct bpe_buffer pool;
    struct bpe_contents raw, normal; /* of tokens that match text before and after normalization */
};

enum sotto_status bpe_added_add(struct bpe_added_list *list, struct bpe_added token,
                                const char *content, size_t size);
/* Sets the content that a normalized token has in normalized text. */
enum sotto_status bpe_added_set_normal(struct bpe_added_list *list, uint32_t index,
                                       const char *content, size_t size);
/* Prepares the list for searches. */
enum sotto_status bpe_added_finish(struct bpe_added_list *list);
void bpe_added_free(struct bpe_added_list *list);

typedef enum sotto_status bpe_piece(struct bpe_work *work, const char *text, size_t size);
/* Appends the ids of the tokens found; `piece` handles the text between tokens, in order. */
enum sotto_status bpe_added_split(struct bpe_work *work, const struct bpe_contents *contents,
                                  const char *text, size_t size, bpe_piece *piece);

/* Splitting into words (split.c, regex.c) */

enum bpe_stage_kind {
    BPE_STAGE_GPT2,
    BPE_STAGE_PATTERN,
    BPE_STAGE_CLASS, /* characters of a class are the matches */
    BPE_STAGE_DIGITS,
    BPE_STAGE_PREFIX,
    BPE_STAGE_LETTERS, /* bytes become letters, for stages after ByteLevel */
    BPE_STAGE_MARK,    /* Metaspace */
};

/* What becomes of a match of a stage's pattern, and of the text around the match. */
enum bpe_behavior {
    BPE_REMOVED,
    BPE_ISOLATED,
    BPE_MERGED_WITH_PREVIOUS,
    BPE_MERGED_WITH_NEXT,
    BPE_CONTIGUOUS
};

enum bpe_mark_prefix { BPE_MARK_ALWAYS, BPE_MARK_FIRST, BPE_MARK_NEVER };

/* A regular expression, or a text. */
struct bpe_pattern {
    void *code;    /* pcre2_code; NULL: `literal` */
    char *literal; /* (size) */
    size_t size;
};

struct bpe_stage {
    enum bpe_stage_kind kind;
    enum bpe_behavior behavior;
    bool each;                   /* digits: each number alone */
    bool invert;                 /* pattern: text between matches counts as the matches */
    bool keep;                   /* mark: the text stays one word */
    enum bpe_mark_prefix prefix; /* mark: where U+2581 is put before a text */
    char mark[5];                /* mark: the character for a blank, as UTF-8 */
    bool (*in_class)(const struct bpe_unicode *unicode, uint32_t code);
    struct bpe_pattern pattern;
};

struct bpe_split {
    struct bpe_stage stage[BPE_MAX_STAGES];
    int n_stage;
    bool bytes;   /* a ByteLevel was among the pre-tokenizers */
    bool letters; /* stages follow ByteLevel: words arrive as letters */
};

/* GPT-2's split pattern; a stage with this pattern is BPE_STAGE_GPT2. */
extern const char bpe_gpt2_pattern[];
/* Returns the bytes of the next word of valid UTF-8 by GPT-2's pattern; size > 0. */
size_t bpe_gpt2_next(const struct bpe_unicode *unicode, const char *text, size_t size);

enum sotto_status bpe_regex_compile(void **code, const char *pattern, size_t size, bool literal);
void bpe_regex_free(void *code);
/* Finds the first match at or after `from`. `*matcher` is made if it is NULL. */
enum sotto_status bpe_regex_find(struct bpe_matcher **matcher, const void *code, const char *text,
                                 size_t size, size_t from, bool *found, size_t *start, size_t *end);
void bpe_matcher_free(struct bpe_matcher *matcher);

/* Runs valid UTF-8 through the stages from `stage` on, and the words through bpe_word. */
enum sotto_status bpe_split_run(struct bpe_work *work, int stage, const char *text, size_t size);
void bpe_split_free(struct bpe_split *split);

/* Learning (words.h, train.c) */

struct bpe_words;

/* Adds merges of pairs in the words, the most frequent first, and their tokens to a model of bytes,
 * until the model has `size` tokens or no pair occurs `least` times. */
enum sotto_status bpe_learn(struct bpe_model *model, const struct bpe_words *words, uint32_t size,
                            int64_t least);

#endif

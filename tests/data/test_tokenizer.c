/* Encoding and decoding: equal to the ids that Hugging Face `tokenizers` gave (tests/vectors), to a
 * merge written from its definition, and to the bytes that went in. */
#include "base/scratch.h"

#include <pthread.h>

#include "base/json.h"
#include "base/rng.h"
#include "data/tokenizer/tokenizer.h"

static struct tokenizer *open_vector(const char *name)
{
    char path[FILE_PATH_ROOM];
    struct tokenizer *t;
    assert_ok(file_join(path, TEST_VECTORS, name));
    if (!file_exists(path))
        skip();
    assert_ok(tokenizer_open(&t, path));
    return t;
}

static void assert_ids(const struct tokenizer *t, const char *text, size_t size,
                       const int32_t *want, size_t n_want)
{
    struct token_list ids = {0};
    assert_ok(tokenizer_encode(t, text, size, &ids));
    bool same = ids.count == n_want;
    for (size_t i = 0; same && i < n_want; i++)
        same = ids.data[i] == want[i];
    if (!same) {
        print_error("\"%.*s\"\n want", (int)size, text);
        for (size_t i = 0; i < n_want; i++)
            print_error(" %d", want[i]);
        print_error("\n  got");
        for (size_t i = 0; i < ids.count; i++)
            print_error(" %d", ids.data[i]);
        fail_with(" ");
    }
    free(ids.data);
}

static void assert_round_trip(const struct tokenizer *t, const char *text, size_t size)
{
    struct token_list ids = {0};
    char *back;
    size_t n;
    assert_ok(tokenizer_encode(t, text, size, &ids));
    assert_ok(tokenizer_decode(t, ids.data, ids.count, &back, &n));
    assert_int_equal(n, size);
    assert_memory_equal(back, text, size);
    assert_int_equal(back[n], '\0');
    free(back);
    free(ids.data);
}

/* Every case of tokenizer_cases.json that has ids under `key`. */
static void check_cases(const struct tokenizer *t, const char *key)
{
    char path[FILE_PATH_ROOM];
    json_t *root, *cases, *item, *id;
    size_t i, k, checked = 0;
    assert_ok(file_join(path, TEST_VECTORS, "tokenizer_cases.json"));
    assert_ok(json_open(&root, path, 1 << 24));
    assert_ok(json_get_array(root, "cases", &cases));
    json_array_foreach(cases, i, item)
    {
        json_t *text = json_object_get(item, "text"), *ids = json_object_get(item, key);
        if (!json_is_array(ids))
            continue;
        int32_t *want = calloc(json_array_size(ids) + 1, sizeof *want);
        json_array_foreach(ids, k, id) want[k] = (int32_t)json_integer_value(id);
        assert_ids(t, json_string_value(text), json_string_length(text), want, k);
        free(want);
        checked++;
    }
    assert_true(checked > 50);
    json_decref(root);
}

static void ids_equal_those_of_hugging_face(void **state)
{
    static const char *const file[] = {"tiny_gpt2_tokenizer.json", "tiny_neox_tokenizer.json"};
    static const char *const key[] = {"tiny_gpt2", "tiny_neox"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = open_vector(file[i]);
        check_cases(t, key[i]);
        tokenizer_close(t);
    }
}

static void ids_of_the_real_vocabularies(void **state)
{
    static const char *const folder[] = {"tokenizers/gpt2", "tokenizers/gpt_neox_20b"};
    static const char *const key[] = {"gpt2", "neox"};
    static const int size[] = {50257, 50277}, end[] = {50256, 0};
    const char *data = getenv("SOTTO_DATA");
    (void)state;
    if (!data)
        skip();
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_ROOM];
        struct tokenizer *t;
        assert_ok(file_join(path, data, folder[i]));
        assert_ok(tokenizer_open(&t, path));
        assert_int_equal(tokenizer_vocab_size(t), size[i]);
        assert_int_equal(tokenizer_end(t), end[i]);
        check_cases(t, key[i]);
        tokenizer_close(t);
    }
}

/* A small document; the parts are JSON. The vocabulary has no token for most bytes: those are
 * dropped. */
#define VOCAB                                                                                                    \
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, \"ab\": 4, \"abc\": 5, \"\\u0120a\": 6, \"1\": 7, \"2\": 8," \
    " \"12\": 9, \"<\": 10, \">\": 11, \"\\u00c3\": 12, \"\\u00a1\": 13, \"\\u010a\": 14, \"ca\": 15}"
#define MERGES "[\"a b\", \"ab c\", \"\\u0120 a\", [\"1\", \"2\"]]"
#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}"
#define DOCUMENT(pre, more, added)                                                                 \
    "{\"pre_tokenizer\": " pre ", \"added_tokens\": [" added "], \"model\": {" more                \
    "\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": " MERGES                                 \
    "}, \"normalizer\": {\"type\": \"NFC\"}}"
#define PLAIN DOCUMENT(BYTES, "", "")
#define ADDED(flags) DOCUMENT(BYTES, "", "{\"id\": 16, \"content\": \"<>\"" flags "}")
#define SPLIT(pattern, behavior, invert)                                                           \
    DOCUMENT(                                                                                      \
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": " pattern \
        ", \"behavior\": \"" behavior "\", \"invert\": " invert "}, {\"type\": \"ByteLevel\","     \
        " \"add_prefix_space\": false, \"use_regex\": false}]}",                                   \
        "", "")
#define DIGITS(each)                                                                                       \
    DOCUMENT(                                                                                              \
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": " each \
        "}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}",               \
        "", "")

static const struct {
    const char *what, *document, *text;
    int32_t ids[12];
    int n;
} small_cases[] = {
    {"merges by rank", PLAIN, "abcab", {5, 4}, 2},
    {"a space goes with the word", PLAIN, "ab abc", {4, 3, 5}, 3},
    {"spaces stay behind", PLAIN, "a   ab", {0, 3, 3, 3, 4}, 5},
    {"spaces at the end", PLAIN, "a  ", {0, 3, 3}, 3},
    {"classes part words", PLAIN, "ab12ab", {4, 9, 4}, 3},
    {"NFC", PLAIN, "a\xcc\x81", {12, 13}, 2},
    {"NFC blocked", PLAIN, "a\xff\xcc\x81", {0}, 1},
    {"a byte without a token is as if it were not there", PLAIN, "axb", {4}, 1},
    {"or unknown", DOCUMENT(BYTES, "\"unk_token\": \"c\",", ""), "axyb", {0, 2, 2, 1}, 4},
    {"or one unknown",
     DOCUMENT(BYTES, "\"unk_token\": \"c\", \"fuse_unk\": true,", ""),
     "axyb",
     {0, 2, 1},
     3},
    {"no merge makes ca", PLAIN, "ca", {2, 0}, 2},
    {"ignore_merges", DOCUMENT(BYTES, "\"ignore_merges\": true,", ""), "ca abca", {15, 3, 5, 0}, 4},
    {"a leading space", DOCUMENT("{\"type\": \"ByteLevel\"}", "", ""), "ab ac", {3, 4, 6, 2}, 4},
    {"added token", ADDED(""), "a <> <>b", {0, 3, 16, 3, 16, 1}, 6},
    {"lstrip", ADDED(", \"lstrip\": true"), "a \n<>  <>b", {0, 16, 16, 1}, 4},
    {"rstrip", ADDED(", \"rstrip\": true"), "a <> \n<> b", {0, 3, 16, 16, 1}, 5},
    {"single_word",
     ADDED(", \"single_word\": true"),
     "a<> <> <>b",
     {0, 10, 11, 3, 16, 3, 10, 11, 1},
     9},
    {"not normalized",
     DOCUMENT(BYTES, "", "{\"id\": 16, \"content\": \"a\\u0301\", \"normalized\": false}"),
     "a\xcc\x81 \xc3\xa1",
     {16, 3, 12, 13},
     4},
    {"normalized",
     DOCUMENT(BYTES, "", "{\"id\": 16, \"content\": \"a\\u0301\", \"normalized\": true}"),
     "a\xcc\x81 \xc3\xa1",
     {16, 3, 16},
     3},
    {"split isolated",
     SPLIT("{\"Regex\": \"b\"}", "Isolated", "false"),
     "abcab",
     {0, 1, 2, 0, 1},
     5},
    {"split removed", SPLIT("{\"Regex\": \"b\"}", "Removed", "false"), "abcab", {0, 2, 0}, 3},
    {"split inverted", SPLIT("{\"Regex\": \"[abc]+\"}", "Removed", "true"), "abc 1ab", {5, 4}, 2},
    {"$ is the end of a line",
     SPLIT("{\"Regex\": \"b$\"}", "Isolated", "false"),
     "abc\nab",
     {5, 14, 0, 1},
     4},
    {"split by text", SPLIT("{\"String\": \"b\"}", "Isolated", "false"), "abc", {0, 1, 2}, 3},
    {"digits together", DIGITS("false"), "a12b", {0, 9, 1}, 3},
    {"digits each", DIGITS("true"), "a12b", {0, 7, 8, 1}, 4},
    {"empty", PLAIN, "", {0}, 0},
};

static void small_documents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++) {
        struct tokenizer *t;
        const char *document = small_cases[i].document, *text = small_cases[i].text;
        if (tokenizer_parse(&t, document, strlen(document), small_cases[i].what) != SOTTO_OK)
            fail_with("%s", sotto_error());
        assert_ids(t, text, strlen(text), small_cases[i].ids, (size_t)small_cases[i].n);
        tokenizer_close(t);
    }
}

static void random_bytes_come_back(void **state)
{
    static const char *const bits[] = {"<|endoftext|>",
                                       " ",
                                       "  ",
                                       "\n",
                                       "the",
                                       "'s",
                                       "\xc3\xa9",
                                       "\xe2\x82",
                                       "\xf0\x9f\x91\xa8\xe2\x80\x8d",
                                       "\xed\xa0\x80",
                                       "\xff"};
    struct tokenizer *t = open_vector("tiny_gpt2_tokenizer.json");
    struct rng rng = rng_make(7, 0);
    char text[4096 + 16];
    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = 0, size = rng_below(&rng, 200);
        while (n < size) {
            uint64_t pick = rng_below(&rng, 24);
            if (pick < sizeof bits / sizeof *bits)
                n += (size_t)sprintf(text + n, "%s", bits[pick]);
            else
                text[n++] = (char)rng_below(&rng, pick & 1 ? 256 : 128);
        }
        assert_round_trip(t, text, n);
    }
    for (int byte = 0; byte < 256; byte++) {
        text[0] = (char)byte;
        assert_round_trip(t, text, 1);
    }
    tokenizer_close(t);
}

static void bytes_that_are_not_utf8_are_words(void **state)
{
    struct tokenizer *t = open_vector("tiny_gpt2_tokenizer.json");
    struct token_list whole = {0}, parts = {0};
    (void)state;
    assert_ok(tokenizer_encode(t, "the \xff\xfe the", 10, &whole));
    assert_ok(tokenizer_encode(t, "the ", 4, &parts));
    assert_ok(tokenizer_encode(t, "\xff\xfe", 2, &parts));
    assert_ok(tokenizer_encode(t, " the", 4, &parts)); /* appended */
    assert_int_equal(whole.count, parts.count);
    assert_memory_equal(whole.data, parts.data, parts.count * sizeof *parts.data);
    free(whole.data);
    free(parts.data);
    tokenizer_close(t);
}

static void decoding_refuses_what_is_no_id(void **state)
{
    static const char sparse[] =
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 0, \"b\": 5}, \"merges\": []}}";
    struct tokenizer *t;
    char *text;
    size_t size;
    (void)state;
    assert_ok(tokenizer_parse(&t, sparse, sizeof sparse - 1, "sparse"));
    assert_int_equal(tokenizer_vocab_size(t), 6);
    assert_int_equal(tokenizer_end(t), -1);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){0, 6}, 2, &text, &size), SOTTO_EINVAL);
    assert_string_equal(sotto_error(), "id 6 at place 1 is not in 0..5");
    assert_null(text);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){-1}, 1, &text, &size), SOTTO_EINVAL);
    assert_string_equal(sotto_error(), "id -1 at place 0 is not in 0..5");
    assert_int_equal(tokenizer_decode(t, (int32_t[]){5, 3}, 2, &text, &size), SOTTO_EINVAL);
    assert_string_equal(sotto_error(), "id 3 at place 1 has no token");
    assert_ok(tokenizer_decode(t, NULL, 0, &text, &size));
    assert_string_equal(text, "");
    free(text);
    tokenizer_close(t);
}

/* A million letters in one word: quadratic work would take hours. */
static void long_words(void **state)
{
    enum { SIZE = 1000000 };
    struct tokenizer *t = open_vector("tiny_neox_tokenizer.json");
    char *text = malloc(SIZE);
    struct rng rng = rng_make(3, 0);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', SIZE);
    assert_round_trip(t, text, SIZE);
    for (int i = 0; i < SIZE; i++)
        text[i] = "etaoinshrdlu"[rng_below(&rng, 12)];
    assert_round_trip(t, text, SIZE);
    memset(text, ' ', SIZE);
    assert_round_trip(t, text, SIZE);
    for (int i = 0; i < SIZE / 4; i++) /* marks out of order: U+0315 U+0300 */
        memcpy(text + 4 * i, "\xcc\x95\xcc\x80", 4);
    struct token_list ids = {0};
    assert_ok(tokenizer_encode(t, text, SIZE, &ids));
    free(ids.data);
    free(text);
    tokenizer_close(t);
}

struct job {
    const struct tokenizer *tokenizer;
    const char *text;
    size_t size;
    struct token_list ids;
    enum sotto_status status;
};

static void *encode_job(void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < 20 && job->status == SOTTO_OK; i++) {
        job->ids.count = 0;
        job->status = tokenizer_encode(job->tokenizer, job->text, job->size, &job->ids);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    struct tokenizer *t = open_vector("tiny_neox_tokenizer.json");
    char text[20000];
    struct rng rng = rng_make(11, 0);
    struct job job[4];
    pthread_t thread[4];
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "etaoin shrdlu\n\xc3\xa9.,1"[rng_below(&rng, 19)];
    for (int i = 0; i < 4; i++) {
        job[i] = (struct job){.tokenizer = t, .text = text, .size = sizeof text};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_job, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(job[i].status, SOTTO_OK);
        assert_int_equal(job[i].ids.count, job[0].ids.count);
        assert_memory_equal(job[i].ids.data, job[0].ids.data, job[0].ids.count * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++)
        free(job[i].ids.data);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_those_of_hugging_face),
        cmocka_unit_test(ids_of_the_real_vocabularies),
        cmocka_unit_test(small_documents),
        cmocka_unit_test(random_bytes_come_back),
        cmocka_unit_test(bytes_that_are_not_utf8_are_words),
        cmocka_unit_test(decoding_refuses_what_is_no_id),
        cmocka_unit_test(long_words),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

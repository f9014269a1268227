/* Reading and writing: what is refused and how it is said, and that what is written reads back the
 * same. */
#include "base/scratch.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

#define BYTES "{\"type\": \"ByteLevel\"}"
#define WHOLE(vocab, merges, model, more)                                                          \
    "{\"pre_tokenizer\": " BYTES ", \"model\": {\"vocab\": " vocab ", \"merges\": " merges model   \
    "}" more "}"
#define VOCAB(vocab) WHOLE(vocab, "[]", "", "")
#define MERGES(merges) WHOLE("{\"a\": 0, \"b\": 1, \"ab\": 2, \"\": 3}", merges, "", "")
#define MODEL(model) WHOLE("{\"a\": 0}", "[]", ", " model, "")
#define ADDED(added) WHOLE("{\"a\": 0}", "[]", "", ", \"added_tokens\": " added)
#define PART(part) "{" part ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}"
#define SPLIT(split) PART("\"pre_tokenizer\": {\"type\": \"Split\", " split "}")
#define UNIGRAM(vocab) "{\"model\": {\"type\": \"Unigram\", \"vocab\": " vocab "}}"
#define WORDPIECE(more) "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}" more "}}"
#define REGEX(regex) SPLIT("\"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"" regex "\"}")

static const struct {
    const char *json, *message;
} refused[] = {
    {"", "x is not valid JSON"},
    {"[1, 2", "x is not valid JSON"},
    {"7", "want an object with \"model\", got integer"},
    {"{}", "\"model\" must be an object, got nothing"},
    {"{\"model\": []}", "\"model\" must be an object, got array"},
    {"{\"model\": {}}", "\"vocab\" must be an object, got nothing"},
    {VOCAB("[]"), "\"vocab\" must be an object, got array"},
    {VOCAB("{\"a\": \"0\"}"), "token \"a\" must have an integer id, got string"},
    {VOCAB("{\"a\": 1.5}"), "token \"a\" must have an integer id, got number"},
    {VOCAB("{\"a\": -1}"), "token \"a\" has id -1, must be in 0..4194303"},
    {VOCAB("{\"a\": 4194304}"), "token \"a\" has id 4194304"},
    {VOCAB("{\"a\": 9223372036854775807}"), "token \"a\" has id 9223372036854775807"},
    {VOCAB("{\"a\": 9223372036854775808}"), "x is not valid JSON"},
    {VOCAB("{\"a\": 3, \"b\": 3}"), "tokens \"a\" and \"b\" have the same id 3"},
    {VOCAB("{\"a\\u0000\": 3}"), "NUL byte in object key"},
    {VOCAB("{\"\\ud800\": 3}"), "x is not valid JSON"},
    {MERGES("{}"), "\"merges\" must be an array, got object"},
    {MERGES("[3]"), "merge 0 must be \"a b\" or [\"a\", \"b\"], got integer"},
    {MERGES("[\"a b\", [\"a\"]]"), "merge 1 must be \"a b\" or [\"a\", \"b\"], got array"},
    {MERGES("[[\"a\", 1]]"), "merge 0 must be"},
    {MERGES("[\"ab\"]"), "merge 0 must be two tokens with one space between, got \"ab\""},
    {MERGES("[\"a b c\"]"), "merge 0 must be two tokens with one space between, got \"a b c\""},
    {MERGES("[\"a c\"]"), "merge 0 names \"c\": not in the vocabulary"},
    {MERGES("[\"a b\", \"d\\u0000 a\"]"), "merge 1 names \"d?\": not in the vocabulary"},
    {MERGES("[\"a b\", \"b a\"]"),
     "merge 1 of \"b\" and \"a\" gives a token that is not in the vocabulary"},
    {MERGES("[[\"a\", \"\"]]"), "merge 0 has an empty side"},
    {MODEL("\"type\": \"WordLevel\""),
     "a model of type \"WordLevel\" is not supported, only BPE, Unigram, WordPiece"},
    {MODEL("\"type\": \"Unigram\""), "a Unigram model with ByteLevel is not supported"},
    {MODEL("\"type\": \"WordPiece\""), "a WordPiece model with ByteLevel is not supported"},
    {UNIGRAM("[]"), "\"vocab\" must have 1 to 4194304 pieces, got 0"},
    {UNIGRAM("[[\"a\"]]"), "piece 0 must be [\"text\", score]"},
    {UNIGRAM("[[\"a\", -1], {}]"), "piece 1 must be [\"text\", score]"},
    {UNIGRAM("[[\"a\", -1]], \"unk_id\": 1"), "\"unk_id\" must be an id below 1"},
    {WORDPIECE(""), "\"continuing_subword_prefix\" must be a string, got nothing"},
    {WORDPIECE(", \"continuing_subword_prefix\": \"##\""),
     "\"unk_token\" must be a token of the vocabulary"},
    {WORDPIECE(", \"continuing_subword_prefix\": \"##\", \"unk_token\": \"b\""),
     "unk_token \"b\" is not in the vocabulary"},
    {WORDPIECE(", \"max_input_chars_per_word\": -1"),
     "\"max_input_chars_per_word\" must not be negative"},
    {MODEL("\"type\": 3"), "the type of the model must be a string, got integer"},
    {MODEL("\"dropout\": 0.1"), "a BPE model with \"dropout\" is not supported"},
    {MODEL("\"continuing_subword_prefix\": \"##\""),
     "a BPE model with \"continuing_subword_prefix\""},
    {MODEL("\"end_of_word_suffix\": \"</w>\""), "a BPE model with \"end_of_word_suffix\""},
    {MODEL("\"unk_token\": \"<unk>\""), "unk_token \"<unk>\" is not in the vocabulary"},
    {MODEL("\"byte_fallback\": true"),
     "byte_fallback with ByteLevel is supported with a token for each byte: byte 0x00 has none"},
    {ADDED("{}"), "\"added_tokens\" must be an array, got object"},
    {ADDED("[7]"), "added token 0: want an object with \"content\", got integer"},
    {ADDED("[{\"id\": 3}]"), "added token 0: \"content\" must be a string, got nothing"},
    {ADDED("[{\"content\": \"x\"}]"), "added token 0: \"id\" must be an integer, got nothing"},
    {ADDED("[{\"id\": -3, \"content\": \"x\"}]"), "added token \"x\" has id -3, must be in"},
    {ADDED("[{\"id\": 5000000, \"content\": \"x\"}]"),
     "added token \"x\" has id 5000000, must be in"},
    {ADDED("[{\"id\": 0, \"content\": \"x\"}]"), "added token \"x\" has the id 0 of token \"a\""},
    {ADDED("[{\"id\": 1, \"content\": \"a\"}]"), "added token \"a\" has id 1, in the vocabulary 0"},
    {ADDED("[{\"id\": 1, \"content\": \"x\"}, {\"id\": 1, \"content\": \"y\"}]"),
     "added tokens \"x\" and \"y\" have the same id 1"},
    {PART("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}"),
     "pre_tokenizer of type \"UnicodeScripts\" is not supported, only ByteLevel, Digits, Split"},
    {PART("\"pre_tokenizer\": {\"type\": \"Metaspace\"}"),
     "pre_tokenizer Metaspace: \"replacement\" must be a string of one character"},
    {PART("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}"),
     "pre_tokenizer Metaspace: \"replacement\" must be a string of one character"},
    {PART("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
          "\"prepend_scheme\": \"last\"}"),
     "\"prepend_scheme\" must be always, first or never, got \"last\""},
    {PART("\"pre_tokenizer\": {}"), "pre_tokenizer: \"type\" must be a string, got nothing"},
    {PART("\"pre_tokenizer\": 3"), "pre_tokenizer: want an object with \"type\", got integer"},
    {PART("\"pre_tokenizer\": {\"type\": \"Sequence\"}"),
     "pre_tokenizer: \"pretokenizers\" must be an array"},
    {PART("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", " BYTES "]}"),
     "pre_tokenizer ByteLevel: is not supported after ByteLevel"},
    {PART("\"pre_tokenizer\": " BYTES ", \"normalizer\": {\"type\": \"ByteLevel\"}"),
     "normalizer of type \"ByteLevel\" is not supported, only NFC, NFD"},
    {PART("\"normalizer\": {\"type\": \"Prepend\"}"),
     "normalizer Prepend: \"prepend\" must be a string, got nothing"},
    {PART("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}}"),
     "normalizer Replace: \"content\" must be a string, got nothing"},
    {PART("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"?\"}"),
     "normalizer Precompiled: \"precompiled_charsmap\" is not base64"},
    {PART("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}"),
     "normalizer Precompiled: \"precompiled_charsmap\" of 3 bytes has no trie"},
    {PART("\"pre_tokenizer\": " BYTES ", \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"\"}"),
     "decoder: with the pre_tokenizer ByteLevel, only ByteLevel and Fuse are supported"},
    {PART("\"decoder\": " BYTES), "decoder ByteLevel: only supported with the pre_tokenizer"},
    {PART("\"decoder\": {\"type\": \"CTC\"}"), "decoder of type \"CTC\" is not supported"},
    {PART("\"post_processor\": {\"type\": \"BertProcessing\"}"),
     "post_processor BertProcessing: \"cls\" must be [\"text\", id]"},
    {SPLIT("\"behavior\": \"Other\", \"pattern\": {\"Regex\": \"a\"}"),
     "pre_tokenizer Split: behavior \"Other\" is not supported"},
    {SPLIT("\"behavior\": \"Isolated\", \"pattern\": {\"Regex\": 3}"),
     "must have a string \"Regex\" or \"String\""},
    {SPLIT("\"behavior\": \"Isolated\", \"pattern\": 3"),
     "\"pattern\" must be an object, got integer"},
    {SPLIT("\"behavior\": \"Isolated\", \"pattern\": {\"String\": \"\"}"),
     "a split pattern has 0 bytes"},
    {REGEX("(a"), "split pattern \"(a\": missing closing parenthesis"},
    {REGEX("\\\\p{L}{1,3}+"), "}+ in a split pattern is not supported"},
    {REGEX("\\\\h"), "\\h in a split pattern is not supported"},
    {REGEX("[a&&b]"), "&& in a class of a split pattern is not supported"},
    {REGEX("[a[^b]]"), "[^ inside a class of a split pattern is not supported"},
    {REGEX("[a[[:alpha:]]]"), "[: inside a class of a split pattern is not supported"},
    {REGEX("[a-[b]]"), "[- inside a class of a split pattern is not supported"},
};

static void refusals_say_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tokenizer *t = (void *)&i;
        enum sotto_status st = tokenizer_parse(&t, refused[i].json, strlen(refused[i].json), "x");
        if (st != SOTTO_EFORMAT || !strstr(sotto_error(), refused[i].message))
            fail_with("%s\n wanted: %s\n got: %s (%s)", refused[i].json, refused[i].message,
                      sotto_status_name(st), st == SOTTO_OK ? "" : sotto_error());
        assert_null(t);
        assert_int_equal(strncmp(sotto_error(), "x", 1), 0); /* the name of the document */
    }
}

static void sequences_may_not_nest_without_end(void **state)
{
    char json[4096], *p = json;
    struct tokenizer *t;
    (void)state;
    p += sprintf(p, "{\"pre_tokenizer\": ");
    for (int i = 0; i < 9; i++)
        p += sprintf(p, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    p += sprintf(p, BYTES);
    for (int i = 0; i < 9; i++)
        p += sprintf(p, "]}");
    sprintf(p, ", \"model\": {\"vocab\": {}, \"merges\": []}}");
    assert_int_equal(tokenizer_parse(&t, json, strlen(json), "x"), SOTTO_EFORMAT);
    assert_non_null(strstr(sotto_error(), "pre_tokenizer has sequences more than 8 deep"));
}

static void write_file(const char *name, const char *text)
{
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, scratch, name));
    assert_ok(file_write(path, text, strlen(text)));
}

static void remove_file(const char *name)
{
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, scratch, name));
    unlink(path);
}

static const char sample[] =
    "Once upon a time,  there were 12 caf\xc3\xa9s.\r\n<|endoftext|>It's e\xcc\x81!  <|padding|>\t"
    "            deep\n\n \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x91\x8d\xff\xfe\n";

static void assert_same(const struct tokenizer *a, const struct tokenizer *b)
{
    struct token_list x = {0}, y = {0};
    assert_ok(tokenizer_encode(a, sample, sizeof sample - 1, &x));
    assert_ok(tokenizer_encode(b, sample, sizeof sample - 1, &y));
    assert_int_equal(x.count, y.count);
    assert_memory_equal(x.data, y.data, x.count * sizeof *x.data);
    assert_int_equal(tokenizer_vocab_size(a), tokenizer_vocab_size(b));
    assert_int_equal(tokenizer_end(a), tokenizer_end(b));
    free(x.data);
    free(y.data);
}

static void what_is_written_reads_back(void **state)
{
    static const char *const names[] = {"tiny_gpt2_tokenizer.json", "tiny_neox_tokenizer.json"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_ROOM], first[FILE_PATH_ROOM], second[FILE_PATH_ROOM], *a, *b;
        struct tokenizer *t, *again;
        size_t n_a, n_b;
        assert_ok(file_join(path, TEST_VECTORS, names[i]));
        if (!file_exists(path))
            skip();
        assert_ok(tokenizer_open(&t, path));
        assert_ok(file_join(first, scratch, "first.json"));
        assert_ok(file_join(second, scratch, "second.json"));
        assert_ok(tokenizer_save(t, first));
        assert_ok(tokenizer_open(&again, first));
        assert_same(t, again);
        assert_ok(tokenizer_save(again, second));
        assert_ok(file_read(first, 1 << 24, &a, &n_a));
        assert_ok(file_read(second, 1 << 24, &b, &n_b));
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        free(a);
        free(b);
        tokenizer_close(again);
        tokenizer_close(t);
    }
}

static void parts_that_change_no_id_are_kept(void **state)
{
    static const char json[] =
        "{\"truncation\": {\"max_length\": 7}, \"pre_tokenizer\": " BYTES
        ", \"post_processor\": {\"type\":"
        " \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}]}, \"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2},"
        " \"merges\": [[\"a\", \"b\"]]}, \"mine\": 1.5}";
    char path[FILE_PATH_ROOM];
    struct tokenizer *t;
    json_t *root;
    int64_t length;
    (void)state;
    assert_ok(tokenizer_parse(&t, json, sizeof json - 1, "x"));
    assert_ok(file_join(path, scratch, "kept.json"));
    assert_ok(tokenizer_save(t, path));
    assert_ok(json_open(&root, path, 1 << 20));
    assert_ok(json_get_int(json_object_get(root, "truncation"), "max_length", &length));
    assert_int_equal(length, 7);
    assert_true(json_real_value(json_object_get(root, "mine")) == 1.5);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "post_processor"), "type")),
        "TemplateProcessing");
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    assert_string_equal(json_string_value(json_array_get(merges, 0)), "a b");
    json_decref(root);
    tokenizer_close(t);
}

static void a_folder_with_the_pair_of_files(void **state)
{
    struct tokenizer *t;
    struct token_list ids = {0};
    char *text;
    size_t size;
    (void)state;
    remove_file("tokenizer.json"); /* which would come first */
    write_file("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 3}");
    write_file("merges.txt", "#version: 0.2\r\na b\r\n\n");
    assert_ok(tokenizer_open(&t, scratch));
    assert_int_equal(tokenizer_end(t), 3);
    assert_ok(tokenizer_encode(t, "ab<|endoftext|>a", 16, &ids));
    assert_int_equal(ids.count, 3);
    assert_memory_equal(ids.data, ((int32_t[]){2, 3, 0}), 3 * sizeof(int32_t));
    assert_ok(tokenizer_decode(t, ids.data, ids.count, &text, &size));
    assert_string_equal(text, "ab<|endoftext|>a");
    free(text);
    free(ids.data);
    tokenizer_close(t);
}

static void refused_files(void **state)
{
    struct tokenizer *t;
    (void)state;
    remove_file("tokenizer.json");
    write_file("vocab.json", "[]");
    write_file("merges.txt", "a b\na  b\n");
    assert_int_equal(tokenizer_open(&t, scratch), SOTTO_EFORMAT);
    assert_non_null(strstr(sotto_error(), "vocab.json: must be an object, got array"));
    write_file("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
    assert_int_equal(tokenizer_open(&t, scratch), SOTTO_EFORMAT);
    assert_non_null(strstr(sotto_error(), "merges.txt: line 2: merge 1 must be two tokens"));
    write_file("merges.txt", "a \xff\n");
    assert_int_equal(tokenizer_open(&t, scratch), SOTTO_EFORMAT);
    assert_non_null(strstr(sotto_error(), "line 1: merge 0 names \"?\""));
    remove_file("merges.txt");
    assert_int_equal(tokenizer_open(&t, scratch), SOTTO_EIO);
    assert_non_null(
        strstr(sotto_error(), "has neither tokenizer.json nor vocab.json and merges.txt"));
    write_file("tokenizer.model", "");
    assert_int_equal(tokenizer_open(&t, scratch), SOTTO_EFORMAT);
    assert_non_null(strstr(sotto_error(), "has tokenizer.model without tokenizer.json, which"));
    remove_file("tokenizer.model");
    assert_int_equal(tokenizer_open(&t, "/nowhere/tokenizer.json"), SOTTO_EIO);
    assert_null(t);
}

/* A pattern that takes for ever is an error, not a wait. */
static void hopeless_patterns_give_up(void **state)
{
    static const char document[] =
        "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\":"
        " \"Isolated\", \"pattern\": {\"Regex\": \"(a|aa)+(b|c)\"}}, " BYTES
        "]}, \"model\": {\"vocab\": {\"a\": 0},"
        " \"merges\": []}}";
    char text[64];
    struct tokenizer *t;
    struct token_list ids = {0};
    (void)state;
    assert_ok(tokenizer_parse(&t, document, strlen(document), "x"));
    memset(text, 'a', sizeof text);
    assert_int_equal(tokenizer_encode(t, text, sizeof text, &ids), SOTTO_EINVAL);
    assert_non_null(strstr(sotto_error(), "splitting 64 bytes: match limit exceeded"));
    assert_int_equal(ids.count, 0);
    free(ids.data);
    tokenizer_close(t);
}

/* What it takes to find added tokens is in proportion to their bytes. */
static void many_added_tokens(void **state)
{
    (void)state;
    enum { N = 2048, SIZE = 1000 };
    struct rusage before, after;
    struct tokenizer *tokenizer;
    char content[SIZE + 1] = "";
    json_t *added = json_array();
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < SIZE; k++)
            content[k] = (char)('a' + (i >> k % 11 & 1) * (k / 11 % 7 + 1));
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", i + 1, "content", content,
                                               "normalized", i % 2));
    }
    char *list = json_dumps(added, 0);
    size_t size = strlen(list) + 200;
    char *text = malloc(size);
    assert_true(list && text);
    snprintf(text, size,
             "{\"pre_tokenizer\": " BYTES ", \"model\": {\"vocab\": {\"a\": 0}, "
             "\"merges\": []}, \"added_tokens\": %s}",
             list);
    char path[FILE_PATH_ROOM];
    assert_ok(file_join(path, scratch, "tokenizer.json"));
    assert_ok(file_write(path, text, strlen(text)));
    getrusage(RUSAGE_SELF, &before);
    assert_ok(tokenizer_open(&tokenizer, path));
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 96 << 10); /* KiB; 16 times would be 32 MiB */
    struct token_list ids = {0};
    for (int i = 0; i < N; i += 100) {
        const char *one =
            json_string_value(json_object_get(json_array_get(added, (size_t)i), "content"));
        ids.count = 0;
        assert_ok(tokenizer_encode(tokenizer, one, SIZE, &ids));
        assert_int_equal(ids.count, 1);
        assert_int_equal(ids.data[0], i + 1);
    }
    free(ids.data);
    tokenizer_close(tokenizer);
    remove_file("tokenizer.json");
    free(text);
    free(list);
    json_decref(added);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_say_what_is_wrong),
        cmocka_unit_test(sequences_may_not_nest_without_end),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(parts_that_change_no_id_are_kept),
        cmocka_unit_test(a_folder_with_the_pair_of_files),
        cmocka_unit_test(refused_files),
        cmocka_unit_test(hopeless_patterns_give_up),
        cmocka_unit_test(many_added_tokens),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* Kinds of tokenizers other than byte-level BPE, and their pipelines: ids and decoded texts equal
 * to those of Hugging Face `tokenizers` (tests/vectors/tokenizer_kinds.json, which names the family
 * that each kind imitates). */
#include "base/scratch.h"

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

static json_t *read_kinds(void)
{
    char path[FILE_PATH_ROOM];
    json_t *root;
    assert_ok(file_join(path, TEST_VECTORS, "tokenizer_kinds.json"));
    if (!file_exists(path))
        skip();
    assert_ok(json_open(&root, path, 1 << 24));
    return root;
}

/* Makes the kind's tokenizer.json and opens the file. */
static struct tokenizer *open_kind(const json_t *root, const json_t *kind)
{
    struct tokenizer *t;
    const char *name = json_string_value(json_object_get(kind, "model"));
    json_t *document = json_copy(json_object_get(kind, "document"));
    json_t *model = json_copy(json_object_get(json_object_get(root, "models"), name));
    json_object_update(model, json_object_get(kind, "options"));
    json_object_set_new(document, "model", model);
    char *text = json_dumps(document, JSON_REAL_PRECISION(17));
    assert_non_null(text);
    if (tokenizer_parse(&t, text, strlen(text), name) != SOTTO_OK)
        fail_with("%s: %s", json_string_value(json_object_get(kind, "family")), sotto_error());
    free(text);
    json_decref(document);
    return t;
}

/* Compares one text's ids, and the text decoded from the ids. */
static void check_text(const struct tokenizer *t, const char *family, const json_t *text,
                       const json_t *want, const json_t *decoded)
{
    struct token_list ids = {0};
    char *back;
    size_t size;
    assert_ok(tokenizer_encode_special(t, json_string_value(text), json_string_length(text), &ids));
    bool same = ids.count == json_array_size(want);
    for (size_t i = 0; same && i < ids.count; i++)
        same = ids.data[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        print_error("%s: \"%s\"\n", family, json_string_value(text));
        for (size_t i = 0; i < ids.count || i < json_array_size(want); i++)
            print_error(" %d/%d", i < ids.count ? ids.data[i] : -1,
                        (int)json_integer_value(json_array_get(want, i)));
        fail_with(" (got/want)");
    }
    assert_ok(tokenizer_decode(t, ids.data, ids.count, &back, &size));
    const json_t *expected = json_is_string(decoded) ? decoded : text;
    if (size != json_string_length(expected) ||
        memcmp(back, json_string_value(expected), size) != 0)
        fail_with("%s: \"%s\" decodes to \"%s\", want \"%s\"", family, json_string_value(text),
                  back, json_string_value(expected));
    assert_int_equal(back[size], '\0');
    free(back);
    free(ids.data);
}

static void check_kind(const json_t *root, const json_t *kind, const struct tokenizer *t)
{
    const char *family = json_string_value(json_object_get(kind, "family"));
    json_t *text;
    size_t i;
    json_array_foreach(json_object_get(root, "texts"), i, text)
        check_text(t, family, text, json_array_get(json_object_get(kind, "ids"), i),
                   json_array_get(json_object_get(kind, "decoded"), i));
    assert_true(i > 50);
}

static void ids_of_every_kind(void **state)
{
    json_t *root = read_kinds(), *kind;
    size_t i;
    (void)state;
    json_array_foreach(json_object_get(root, "kinds"), i, kind)
    {
        struct tokenizer *t = open_kind(root, kind);
        check_kind(root, kind, t);
        tokenizer_close(t);
    }
    assert_true(i > 15);
    json_decref(root);
}

static void every_kind_is_written(void **state)
{
    json_t *root = read_kinds(), *kind;
    char path[FILE_PATH_ROOM];
    size_t i;
    (void)state;
    assert_ok(file_join(path, scratch, "written.json"));
    json_array_foreach(json_object_get(root, "kinds"), i, kind)
    {
        struct tokenizer *t = open_kind(root, kind), *again;
        assert_ok(tokenizer_save(t, path));
        assert_ok(tokenizer_open(&again, path));
        assert_true(tokenizer_same(t, again));
        check_kind(root, kind, again);
        tokenizer_close(again);
        tokenizer_close(t);
    }
    json_decref(root);
}

static const json_t *find_kind(const json_t *root, const char *family)
{
    json_t *kind;
    size_t i;
    json_array_foreach(json_object_get(root, "kinds"), i,
                       kind) if (strcmp(json_string_value(json_object_get(kind, "family")),
                                        family) == 0) return kind;
    return NULL;
}

/* Bytes that are not UTF-8, which `tokenizers` does not take, come back from kinds with a token for
 * each byte; other kinds have their unknown token for a run. */
static void bytes_that_are_not_utf8(void **state)
{
    static const struct {
        const char *family, *back;
    } cases[] = {{"Gemma", "a\xff\xfe b"}, {"Llama 2", "a\xff\xfe b"}, {"T5", "a<unk> b"}};
    json_t *root = read_kinds();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = open_kind(root, find_kind(root, cases[i].family));
        struct token_list ids = {0};
        char *back;
        size_t size;
        assert_ok(tokenizer_encode(t, "a\xff\xfe b", 5, &ids));
        assert_ok(tokenizer_decode(t, ids.data, ids.count, &back, &size));
        assert_string_equal(back, cases[i].back);
        free(back);
        free(ids.data);
        tokenizer_close(t);
    }
    json_decref(root);
}

/* The rest of a text has no blank of its own: "a" and " bc" have the ids of "a bc". */
static void rests_continue_texts(void **state)
{
    static const char *const families[] = {"Llama 2", "Mistral", "T5", "RoBERTa"};
    json_t *root = read_kinds();
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct tokenizer *t = open_kind(root, find_kind(root, families[i]));
        struct token_list whole = {0}, parts = {0};
        assert_ok(tokenizer_encode(t, "the rabbit", 10, &whole));
        assert_ok(tokenizer_encode(t, "the", 3, &parts));
        assert_ok(tokenizer_encode_rest(t, "the rabbit", 10, 3, &parts));
        assert_int_equal(whole.count, parts.count);
        assert_memory_equal(whole.data, parts.data, parts.count * sizeof *parts.data);
        free(whole.data);
        free(parts.data);
        tokenizer_close(t);
    }
    json_decref(root);
}

/* Half a million letters without a blank: quadratic work would take hours. */
static void long_texts_without_blanks(void **state)
{
    enum { SIZE = 500000 };
    static const char *const families[] = {"Llama 2", "T5", "BERT, cased"};
    json_t *root = read_kinds();
    char *text = malloc(SIZE);
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < SIZE; i++)
        text[i] = "abcdetnrs"[i * 7 % 9];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct tokenizer *t = open_kind(root, find_kind(root, families[i]));
        struct token_list ids = {0};
        assert_ok(tokenizer_encode(t, text, SIZE, &ids));
        assert_true(ids.count > 0);
        free(ids.data);
        tokenizer_close(t);
    }
    free(text);
    json_decref(root);
}

/* A last piece of an equal text counts, and a score is read as `tokenizers` reads numbers. */
static void a_piece_twice(void **state)
{
    static const char json[] =
        "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"a\", -1], "
        "[\"b\", -1], [\"ab\", -1.5], [\"ab\", -2.5]]}}";
    struct tokenizer *t;
    struct token_list ids = {0};
    (void)state;
    assert_ok(tokenizer_parse(&t, json, sizeof json - 1, "x"));
    assert_ok(tokenizer_encode(t, "abcca", 5, &ids)); /* a, b with -2, before ab with -2.5 */
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.data, ((int32_t[]){1, 2, 0, 1}), 4 * sizeof(int32_t));
    assert_int_equal(tokenizer_find(t, "ab", 2), 4);
    free(ids.data);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_every_kind),       cmocka_unit_test(every_kind_is_written),
        cmocka_unit_test(bytes_that_are_not_utf8), cmocka_unit_test(long_texts_without_blanks),
        cmocka_unit_test(a_piece_twice),           cmocka_unit_test(rests_continue_texts),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

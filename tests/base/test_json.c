/* JSON members fetched by name and type. */
#include "base/json.h"
#include "base/scratch.h"

static json_t *parse(const char *text)
{
    json_t *root;
    assert_ok(json_parse(&root, text, strlen(text), "test"));
    return root;
}

static void members(void **state)
{
    (void)state;
    json_t *root = parse(
        "{\"n\": -5, \"t\": \"x\", \"a\": [1], \"o\": {}, \"b\": true, \"z\": null, \"r\": 1.5}");
    int64_t n;
    const char *t;
    json_t *inner;
    assert_ok(json_get_int(root, "n", &n));
    assert_true(n == -5);
    assert_ok(json_get_text(root, "t", &t));
    assert_string_equal(t, "x");
    assert_ok(json_get_array(root, "a", &inner));
    assert_ok(json_get_object(root, "o", &inner));
    assert_true(json_get_bool_or(root, "b", false));
    assert_true(json_get_bool_or(root, "none", true));
    assert_false(json_get_bool_or(root, "n", false));
    assert_fails(json_get_int(root, "r", &n), SOTTO_EFORMAT,
                 "\"r\" must be an integer, got number");
    assert_fails(json_get_int(root, "none", &n), SOTTO_EFORMAT,
                 "\"none\" must be an integer, got nothing");
    assert_fails(json_get_text(root, "z", &t), SOTTO_EFORMAT, "must be a string, got null");
    assert_fails(json_get_array(root, "o", &inner), SOTTO_EFORMAT, "must be an array, got object");
    assert_fails(json_get_object(root, "a", &inner), SOTTO_EFORMAT, "must be an object, got array");
    assert_ok(json_get_array(root, "a", &inner));
    assert_fails(json_get_int(inner, "n", &n), SOTTO_EFORMAT,
                 "want an object with \"n\", got array");
    assert_fails(json_get_int(NULL, "n", &n), SOTTO_EFORMAT,
                 "want an object with \"n\", got nothing");
    json_decref(root);
}

static void documents(void **state)
{
    (void)state;
    json_t *root;
    assert_fails(json_parse(&root, "{\n1}", 4, "x.json"), SOTTO_EFORMAT,
                 "x.json is not valid JSON: line 2");
    assert_null(root);
    assert_fails(json_open(&root, at("none.json"), 100), SOTTO_EIO, "none.json");
    assert_null(root);

    json_t *made = json_pack("{s:f, s:i}", "x", 0.1 + 0.2, "y", 3);
    assert_ok(json_save(made, at("a.json"), 2));
    char *text = slurp(at("a.json"));
    assert_true(text[strlen(text) - 1] == '\n');
    free(text);
    assert_ok(json_open(&root, at("a.json"), 1000));
    assert_true(json_real_value(json_object_get(root, "x")) == 0.1 + 0.2);
    assert_true(json_equal(root, made));
    json_decref(root);
    json_decref(made);
    assert_fails(json_open(&root, at("a.json"), 3), SOTTO_EFORMAT, "larger than the 3 bytes");
}

/* Numbers are short and have the same bits; text that looks like a number is unchanged. */
static void short_numbers(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [0.1, -1.5, 1e-05, 1.0, 0.30000000000000004, 1e+300, "
                               "7, -0.0], \"0.10000000000000001 \\\" 2.50\": \"\\\\\", "
                               "\"b\": 9007199254740993}\n";
    json_t *root, *back;
    assert_ok(json_parse(&root, text, strlen(text), "numbers"));
    assert_ok(json_save(root, at("numbers.json"), 0));
    char *written = slurp(at("numbers.json"));
    assert_string_equal(written, text);
    free(written);
    const double third = 1 / 3.0;
    json_t *made = json_pack("[f,f]", third, 1e22);
    assert_ok(json_save(made, at("third.json"), 2));
    assert_ok(json_open(&back, at("third.json"), 1000));
    assert_true(json_equal(back, made));
    json_decref(back);
    json_decref(made);
    json_decref(root);
}

static void hostile_nesting(void **state)
{
    (void)state;
    static char deep[1 << 16];
    memset(deep, '[', sizeof deep);
    json_t *root;
    assert_fails(json_parse(&root, deep, sizeof deep, "deep"), SOTTO_EFORMAT, "depth");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members),
        cmocka_unit_test(documents),
        cmocka_unit_test(short_numbers),
        cmocka_unit_test(hostile_nesting),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

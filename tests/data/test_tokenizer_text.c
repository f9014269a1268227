/* What the tokenizer knows of text: where words part, NFC, valid UTF-8, letters for bytes. */
#include "base/scratch.h"

#include "data/tokenizer/bpe/bpe.h"

static struct bpe_unicode unicode;

/* "|" is where GPT-2's pattern parts words. */
static const char *const splits[] = {
    "Hello| world|!",
    "it|'s| we|'ll| they|'re| I|'ve| I|'m| he|'d| don|'t",
    "IT|'|S| we|'|LL", /* contractions are lower case */
    "''|sx",           /* at the start of a word only */
    "!'|s|''|s",
    "'|l|'re",
    "a|12|b|3|.|4",
    "a|  | b|   ",
    "a|\n|b|\n|\n|c",
    "a| |\n|b",
    "a|\t|\t|b",
    "a| |\u00a0|b", /* only the blank goes with a word */
    "a|\u00a0|\u00a0|b",
    "caf\u00e9| e|\u0301|x",
    "\u4e2d\u6587|\uff0c|\u0663\u0664\u00b2",
    " |\u3000|\u4e2d",
    "\u180e!| \u200b\ufeff",     /* no white space */
    "\U00016d41x| \U00011f50|x", /* a letter, a digit of Unicode 15 and 16 */
    "\U0001f468\u200d\U0001f469| \U0001f1e9",
    "\x01\x02| \x7f",
    "  ",
    "",
};

static void words_part_where_the_pattern_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        char text[128], got[256];
        size_t size = 0, n = 0, at = 0;
        for (const char *p = splits[i]; *p; p++)
            if (*p != '|')
                text[size++] = *p;
        for (size_t length; at < size; at += length) {
            length = bpe_gpt2_next(&unicode, text + at, size - at);
            if (at > 0)
                got[n++] = '|';
            memcpy(got + n, text + at, length);
            n += length;
        }
        got[n] = '\0';
        assert_string_equal(got, splits[i]);
    }
}

static const struct {
    const char *text, *nfc;
} forms[] = {
    {"", ""},
    {"plain \u00e9 \u4e2d\U0001f44d", NULL}, /* NULL: the same */
    {"e\u0301", "\u00e9"},
    {"xe\u0301y e\u0301", "x\u00e9y \u00e9"},
    {"\u00e9\u0323", "\u1eb9\u0301"}, /* taken apart, ordered, joined again */
    {"e\u0301\u0323", "\u1eb9\u0301"},
    {"\u212b\u2126", "\u00c5\u03a9"},
    {"\u0958", "\u0915\u093c"}, /* excluded from composition */
    {"\u1112\u1161\u11ab", "\ud55c"},
    {"\uac00\u11a8", "\uac01"},
    {"\u0bc6\u0bbe", "\u0bca"}, /* a spacing mark */
    {"\u0f73", "\u0f71\u0f72"},
    {"\u0301\u0323", "\u0323\u0301"},
    {"\U0001d15e", "\U0001d157\U0001d165"},
    {"\u304b\u3099", "\u304c"},
    {"\u03d2\u0301\u03d2", "\u03d3\u03d2"},
    {"a\u07fd\u0301\u0323", "a\u07fd\u0323\u0301"}, /* U+07FD is newer than Unicode 9 */
};

static void composed_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *want = forms[i].nfc ? forms[i].nfc : forms[i].text;
        struct bpe_buffer out = {0};
        bool same;
        assert_int_equal(bpe_nfc(&unicode, forms[i].text, strlen(forms[i].text), &out, &same),
                         SOTTO_OK);
        if (!same) {
            assert_int_equal(out.count, strlen(want));
            assert_memory_equal(out.data, want, out.count);
        } else {
            assert_string_equal(forms[i].text, want);
        }
        free(out.data);
    }
}

/* Many marks are ordered by another way than few, and stay in place among equals. */
static void long_runs_of_marks(void **state)
{
    enum { N = 40 };
    char text[4 * N + 2] = "x", want[4 * N + 2] = "x";
    struct bpe_buffer out = {0};
    bool same;
    (void)state;
    for (int i = 0; i < N; i++) {
        memcpy(text + 1 + 4 * i, "\u0315\u0300", 4); /* classes 232 and 230 */
        memcpy(want + 1 + 2 * i, "\u0300", 2);
        memcpy(want + 1 + 2 * N + 2 * i, "\u0315", 2);
    }
    assert_int_equal(bpe_nfc(&unicode, text, 4 * N + 1, &out, &same), SOTTO_OK);
    assert_false(same);
    assert_int_equal(out.count, 4 * N + 1);
    assert_memory_equal(out.data, want, out.count);
    free(out.data);
}

static void valid_utf8(void **state)
{
    static const struct {
        const char *text;
        int length;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\x80", 0},
        {"\xc1\xbf", 0},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xc3", 0},
        {"\xc3"
         "a",
         0},
        {"\xe0\x9f\xbf", 0},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xed\xa0\x80", 0},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xe2\x82", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xf0\x9f\x91", 0},
        {"\xff", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t *p = (const uint8_t *)cases[i].text;
        size_t n = strlen(cases[i].text);
        assert_int_equal(bpe_utf8_length(p, n), cases[i].length);
        assert_int_equal(bpe_utf8_prefix(p, n), cases[i].length);
    }
    assert_int_equal(bpe_utf8_prefix((const uint8_t *)"0123456789\xe2\x82\xac"
                                                      "0123\xff",
                                     18),
                     17);
}

static void letters_stand_for_bytes(void **state)
{
    bool seen[512] = {false};
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char text[2], back[2];
        size_t n;
        uint32_t letter = bpe_letter((uint8_t)byte);
        assert_true(letter < 512 && !seen[letter]);
        seen[letter] = true;
        int size = bpe_letter_utf8((uint8_t)byte, text);
        assert_true(bpe_letters_to_bytes(text, (size_t)size, back, &n));
        assert_int_equal(n, 1);
        assert_int_equal((uint8_t)back[0], byte);
    }
    assert_int_equal(bpe_letter(' '), 0x120);
    assert_int_equal(bpe_letter('\n'), 0x10a);
    assert_int_equal(bpe_letter(0xad), 0x143);
    size_t n;
    char out[8];
    assert_false(bpe_letters_to_bytes("a b", 3, out, &n));
    assert_false(bpe_letters_to_bytes("\u0144", 2, out, &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_part_where_the_pattern_says),
        cmocka_unit_test(composed_form),
        cmocka_unit_test(long_runs_of_marks),
        cmocka_unit_test(valid_utf8),
        cmocka_unit_test(letters_stand_for_bytes),
    };
    bpe_unicode_init(&unicode);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

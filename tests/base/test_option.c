/* Option tables: every type, files, the command line, dumps. */
#include "base/option/only.h"
#include "base/option/option.h"
#include "base/scratch.h"

enum color { RED, GREEN, BLUE };
static const char *const color_names[] = {"red", "green", "blue", NULL};

struct run {
    int steps;
    int64_t seed;
    char name[OPTION_ROOM];
};
struct optim {
    double lr;
    int warmup;
    bool nesterov;
    int color;
    int64_t tokens;
};
struct data {
    int warmup; /* a key of two sections */
    int steps;  /* a key that also exists without a section */
    int nesterov;
    char path[OPTION_ROOM];
    char files[OPTION_LONG_ROOM];
};

static const struct option run_table[] = {
    OPTION_INT(struct run, steps, "100", 1, 1e6, "rounds"),
    OPTION_LONG(struct run, seed, "7", -9.3e18, 9.3e18, "of everything random"),
    OPTION_TEXT(struct run, name, "", "of the run"),
};
static const struct option optim_table[] = {
    OPTION_REAL(struct optim, lr, "1e-3", 0, 10, "learning rate"),
    OPTION_INT(struct optim, warmup, "0", 0, 1e9, "rounds of warm-up"),
    OPTION_BOOL(struct optim, nesterov, "false", "Nesterov's momentum"),
    OPTION_ENUM(struct optim, color, "green", color_names, "for the test"),
    OPTION_LONG(struct optim, tokens, "64k", 0, 1e15, "a batch"),
};
static const struct option data_table[] = {
    OPTION_INT(struct data, warmup, "5", 0, 10, "batches"),
    OPTION_INT(struct data, steps, "4", 0, 10, "of the data"),
    OPTION_INT(struct data, nesterov, "3", 0, 10, "a number where [optim] has a flag"),
    OPTION_TEXT(struct data, path, "corpus", "where"),
    OPTION_TEXT(struct data, files, "", "all of them"),
};

struct all {
    struct run run;
    struct optim optim;
    struct data data;
    struct option_section section[3];
};

static void make(struct all *a)
{
    memset(a, 0x5a, sizeof *a); /* a field without a default is visible */
    struct option_section section[3] = {
        OPTION_SECTION("optim", "how", optim_table, &a->optim),
        OPTION_SECTION("", "what", run_table, &a->run), /* not first on purpose */
        OPTION_SECTION("data", "from where", data_table, &a->data),
    };
    memcpy(a->section, section, sizeof section);
    option_defaults(a->section, 3);
}

static enum sotto_status set(struct all *a, const char *key, const char *value)
{
    return option_set(a->section, 3, key, value);
}

static enum sotto_status load(struct all *a, const char *text)
{
    return option_load_text(a->section, 3, text, "my.ini");
}

static void defaults(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_int_equal(a.run.steps, 100);
    assert_true(a.run.seed == 7);
    assert_string_equal(a.run.name, "");
    assert_true(a.optim.lr == 1e-3);
    assert_false(a.optim.nesterov);
    assert_int_equal(a.optim.color, GREEN);
    assert_true(a.optim.tokens == 64000);
}

static void numbers(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_ok(set(&a, "steps", "1e3"));
    assert_int_equal(a.run.steps, 1000);
    assert_ok(set(&a, "tokens", "1.5M"));
    assert_true(a.optim.tokens == 1500000);
    assert_ok(set(&a, "tokens", "2G"));
    assert_true(a.optim.tokens == 2000000000);
    assert_ok(set(&a, "lr", "0x1p-4"));
    assert_true(a.optim.lr == 0.0625);

    /* Beyond 2^53 a double would round. */
    assert_ok(set(&a, "seed", "9007199254740993"));
    assert_true(a.run.seed == 9007199254740993);
    assert_ok(set(&a, "seed", "9223372036854775807"));
    assert_true(a.run.seed == INT64_MAX);
    assert_ok(set(&a, "seed", "-9223372036854775808"));
    assert_true(a.run.seed == INT64_MIN);
    assert_fails(set(&a, "seed", "9223372036854775808"), SOTTO_EINVAL, "out of range");
    assert_fails(set(&a, "seed", "9223372036854775807k"), SOTTO_EINVAL, "out of range");
    assert_fails(set(&a, "seed", "1e300"), SOTTO_EINVAL, "out of range");

    static const char *const wrong[] = {"",    "x",     "1x", "1.5", "nan",
                                        "inf", "1e999", "k",  "1kk", "--1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(set(&a, "steps", wrong[i]), SOTTO_EINVAL, "want an integer");
    assert_fails(set(&a, "lr", "fast"), SOTTO_EINVAL, "lr = fast: want a number");
    assert_ok(set(&a, "lr", "1/32"));
    assert_true(a.optim.lr == 1. / 32);
    assert_ok(set(&a, "lr", "2e-3/4"));
    assert_true(a.optim.lr == 2e-3 / 4);
    for (int i = 0; i < 6; i++) {
        static const char *const none[] = {"1/", "/3", "1/0", "1/2/3", "0/0", "1/nan"};
        assert_fails(set(&a, "lr", none[i]), SOTTO_EINVAL, "want a number");
    }
    assert_fails(set(&a, "lr", "nan"), SOTTO_EINVAL, "want a number");
    assert_int_equal(a.run.steps, 1000); /* a refused value changes nothing */
}

static void ranges(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_ok(set(&a, "steps", "1"));
    assert_ok(set(&a, "steps", "1000000"));
    assert_fails(set(&a, "steps", "0"), SOTTO_EINVAL,
                 "steps = 0 is out of range: want 1 to 1000000");
    assert_fails(set(&a, "steps", "1000001"), SOTTO_EINVAL, "out of range");
    assert_fails(set(&a, "lr", "-1e-9"), SOTTO_EINVAL, "out of range: want 0 to 10");
    assert_fails(set(&a, "optim.warmup", "1e9k"), SOTTO_EINVAL, "out of range");
}

static void words(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    static const char *const yes[] = {"true", "YES", "On", "1"}, *const no[] = {"False", "no",
                                                                                "off", "0"};
    for (int i = 0; i < 4; i++) {
        assert_ok(set(&a, "optim.nesterov", yes[i]));
        assert_true(a.optim.nesterov);
        assert_ok(set(&a, "optim.nesterov", no[i]));
        assert_false(a.optim.nesterov);
    }
    assert_fails(set(&a, "optim.nesterov", "2"), SOTTO_EINVAL, "want true or false");
    assert_ok(set(&a, "color", "blue"));
    assert_int_equal(a.optim.color, BLUE);
    assert_fails(set(&a, "color", "Blue"), SOTTO_EINVAL, "want one of red, green, blue");

    char longest[OPTION_ROOM + 1];
    memset(longest, 'x', sizeof longest);
    longest[OPTION_ROOM - 1] = '\0';
    assert_ok(set(&a, "name", longest));
    assert_string_equal(a.run.name, longest);
    longest[OPTION_ROOM - 1] = 'x';
    longest[OPTION_ROOM] = '\0';
    assert_fails(set(&a, "name", longest), SOTTO_EINVAL,
                 "1024 characters is too long (at most 1023)");
    assert_fails(set(&a, "steps", longest), SOTTO_EINVAL, "want an integer"); /* still readable */
}

static void unknown_keys(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_fails(set(&a, "optim.warmpu", "1"), SOTTO_EINVAL, "did you mean 'optim.warmup'?");
    assert_fails(set(&a, "data.warmpu", "1"), SOTTO_EINVAL, "did you mean 'data.warmup'?");
    assert_fails(set(&a, "stpes", "1"), SOTTO_EINVAL, "did you mean 'steps'?");
    assert_fails(set(&a, "optin.tokens", "1"), SOTTO_EINVAL, "did you mean 'optim.tokens'?");
    assert_fails(set(&a, "qqqqqqqqqqqq", "1"), SOTTO_EINVAL, "unknown key 'qqqqqqqqqqqq'");
    assert_null(strstr(sotto_error(), "did you mean"));
    assert_fails(set(&a, "", "1"), SOTTO_EINVAL, "unknown key ''");
    assert_fails(set(&a, "optim.", "1"), SOTTO_EINVAL, "unknown key");
    assert_string_equal(option_closest("gren", color_names), "green");
    assert_null(option_closest("ultraviolet", color_names));
    assert_string_equal(option_closest("bleu", color_names), "blue"); /* a swap is one slip */
    assert_null(option_closest("reed light", color_names));
    /* Words that share some letters with a name are not near; a first version suggested such
     * names. */
    static const char *const far[] = {"foo", "tames", "loss", "x", "walnut", "stop"};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        assert_fails(set(&a, far[i], "1"), SOTTO_EINVAL, "unknown key");
        if (strstr(sotto_error(), "did you mean"))
            fail_with("%s", sotto_error());
    }
    assert_fails(set(&a, "nest", "1"), SOTTO_EINVAL, "did you mean 'optim.nesterov'?");
    assert_fails(set(&a, "warmpu_rounds", "1"), SOTTO_EINVAL, "unknown key");
    assert_null(strstr(sotto_error(), "did you mean"));
}

/* Two sections with the same key; `chosen` is the section in use. */
struct choice {
    char chosen[16];
    struct colour {
        int64_t depth;
    } red, blue;
};

static bool is_chosen(const void *of, const char *name)
{
    return strcmp(((const struct choice *)of)->chosen, name) == 0;
}

static void sections_in_use(void **state)
{
    (void)state;
    static const struct option choose[] = {
        OPTION_TEXT(struct choice, chosen, "", "which"),
    };
    static const struct option red[] = {
        OPTION_LONG(struct colour, depth, "1", 0, 100, "of red"),
    };
    static const struct option blue[] = {
        OPTION_LONG(struct colour, depth, "2", 0, 100, "of blue"),
    };
    struct choice c;
    const struct option_section s[] = {
        OPTION_SECTION("", "", choose, &c),
        {.name = "red", .about = "", .table = red, 1, &c.red, is_chosen, &c},
        {.name = "blue", .about = "", .table = blue, 1, &c.blue, is_chosen, &c},
    };
    const char *const line[] = {"--depth=7", "--chosen=blue"}, *rest[2];
    int n_rest;
    bool left = false;
    option_defaults(s, 3);
    assert_fails(option_set(s, 3, "depth", "5"), SOTTO_EINVAL,
                 "key 'depth' belongs to red, blue, which are not chosen");
    assert_fails(option_set(s, 3, "green.depth", "5"), SOTTO_EINVAL,
                 "unknown key 'green.depth': did you mean 'red.depth', 'blue.depth'?");
    assert_ok(option_set(s, 3, "red.depth", "5")); /* unambiguous with its section */
    assert_fails(option_parse(s, 3, 1, line, rest, &n_rest), SOTTO_EINVAL, "which are not chosen");
    assert_ok(option_parse_known(s, 3, 1, line, rest, &n_rest, &left));
    assert_true(left && c.red.depth == 5 && c.blue.depth == 2);
    left = false;
    assert_ok(option_parse_known(s, 3, 2, line, rest, &n_rest, &left)); /* in any order */
    assert_true(!left && c.red.depth == 5 && c.blue.depth == 7);
    char *text = option_dump(s, 3);
    assert_string_equal(text, "chosen = blue\n[blue]\ndepth = 7\n");
    free(text);
}

/* A bare key belongs to the general section, even if a chosen section has the key. */
static void general_keys(void **state)
{
    (void)state;
    static const struct option red[] = {
        OPTION_LONG(struct colour, depth, "1", 0, 100, "of red"),
    };
    static const struct option all[] = {
        OPTION_LONG(struct colour, depth, "2", 0, 9, "of all"),
    };
    struct choice c = {.chosen = "red"};
    struct option_section s[] = {
        {.name = "red", .about = "", .table = red, 1, &c.red, is_chosen, &c},
        OPTION_SECTION("all", "", all, &c.blue),
        {.name = "", .about = ""},
    };
    for (int order = 0; order < 2; order++) {
        option_defaults(s, 2);
        assert_ok(option_set(s, 2, "depth", "5"));
        assert_true(c.red.depth == 1 && c.blue.depth == 5);
        assert_fails(option_set(s, 2, "depth", "50"), SOTTO_EINVAL,
                     "'depth' is all.depth, not red.depth: ");
        assert_ok(option_set(s, 2, "red.depth", "50"));
        assert_true(c.red.depth == 50 && c.blue.depth == 5);
        s[2] = s[0];
        s[0] = s[1];
        s[1] = s[2];
    }
}

static void ambiguous_keys(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_fails(set(&a, "warmup", "1"), SOTTO_EINVAL,
                 "ambiguous: use optim.warmup or data.warmup");
    assert_ok(set(&a, "data.warmup", "9"));
    assert_int_equal(a.data.warmup, 9);
    assert_int_equal(a.optim.warmup, 0);
    assert_ok(set(&a, "steps", "9")); /* a bare key means the key without a section */
    assert_int_equal(a.run.steps, 9);
    assert_int_equal(a.data.steps, 4);
    assert_ok(set(&a, "data.steps", "8"));
    assert_int_equal(a.data.steps, 8);
    assert_ok(set(&a, "path", "elsewhere")); /* only [data] has it */
    assert_string_equal(a.data.path, "elsewhere");
}

static void files(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    assert_ok(load(&a, "\xef\xbb\xbfsteps = 3 # a comment\r\n"
                       "; another\n\n"
                       "name = a#b;c   ; and a third\n"
                       "[ optim ]\n"
                       "\tlr=0.5\n"
                       "warmup = 2\n"
                       "[data]\n"
                       "path = \" # kept \\\"as\\\" it is\\n\" # cut\n"
                       "warmup = 1")); /* no newline at the end */
    assert_int_equal(a.run.steps, 3);
    assert_string_equal(a.run.name, "a#b;c");
    assert_true(a.optim.lr == 0.5);
    assert_int_equal(a.optim.warmup, 2);
    assert_int_equal(a.data.warmup, 1);
    assert_string_equal(a.data.path, " # kept \"as\" it is\n");
    assert_ok(load(&a, ""));
    assert_ok(load(&a, "name =\n"));
    assert_string_equal(a.run.name, "");
}

static void file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        enum sotto_status code;
    } table[] = {
        {"steps = 3\nsteps = 0\n", "my.ini:2: steps = 0 is out of range", SOTTO_EINVAL},
        {"\n\n[optim]\nwarmpu = 3\n", "my.ini:4: unknown key 'optim.warmpu'", SOTTO_EINVAL},
        {"[optin]\n", "my.ini:1: unknown section [optin]: did you mean [optim]?", SOTTO_EINVAL},
        {"[zzzzzzzzzz]\n", "my.ini:1: unknown section [zzzzzzzzzz]", SOTTO_EINVAL},
        {"[optim\n", "my.ini:1: malformed section '[optim'", SOTTO_EFORMAT},
        {"[", "malformed section", SOTTO_EFORMAT},
        {"steps\n", "my.ini:1: want 'key = value' in a file of options, got 'steps'",
         SOTTO_EFORMAT},
        {"= 3\n", "my.ini:1: unknown key ''", SOTTO_EINVAL},
        {"name = \"open\n", "my.ini:1: want one \"quoted\" text, got no closing quote",
         SOTTO_EFORMAT},
        {"name = \"a\" b\n", "got more text after it", SOTTO_EFORMAT},
        {"warmup = 1\n", "ambiguous", SOTTO_EINVAL},
        {"steps = 3\n[optim]\nlr = 1\n[data]\nsteps = 2\n\n[optim]\nlr = 1\n",
         "my.ini:8: 'lr' is set a second time, after line 3", SOTTO_EINVAL},
        {"optim.lr = 1\nsteps = 4\n[optim]\nlr = 2\n",
         "my.ini:4: 'lr' is set a second time, after line 1", SOTTO_EINVAL},
    };
    struct all a;
    make(&a);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_fails(load(&a, table[i].text), table[i].code, table[i].message);

    assert_fails(option_load(a.section, 3, at("missing.ini")), SOTTO_EIO, "missing.ini");
    assert_ok(file_write(at("zero.ini"), "steps = 1\0\n", 11));
    assert_fails(option_load(a.section, 3, at("zero.ini")), SOTTO_EFORMAT, "contains a zero byte");
    assert_ok(file_write(at("good.ini"), "steps = 77\n", 11));
    assert_ok(option_load(a.section, 3, at("good.ini")));
    assert_int_equal(a.run.steps, 77);
}

static void dump_and_load(void **state)
{
    (void)state;
    static const char *const names[] = {
        "plain", "",        " blank ends ", "a # b", "#c",    ";",          "\"",
        "\\",    "\\n",     "x\ny\rz",      "a;b",   "tab\t", "\"quoted\"", "back\\slash # too",
        "k = v", "[optim]",
    };
    struct all a, b;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        make(&a);
        make(&b);
        strcpy(a.run.name, names[i]);
        a.run.seed = 9007199254740993;
        a.optim.lr = 0.1 + 0.2;
        a.optim.nesterov = true;
        a.optim.color = BLUE;
        a.data.warmup = 10;
        char *text = option_dump(a.section, 3);
        assert_non_null(text);
        assert_ok(load(&b, text));
        char *again = option_dump(b.section, 3);
        assert_string_equal(text, again);
        assert_string_equal(b.run.name, names[i]);
        assert_true(a.run.seed == b.run.seed && a.optim.lr == b.optim.lr);
        assert_true(b.optim.nesterov && b.optim.color == BLUE && b.data.warmup == 10);
        free(text);
        free(again);
    }
}

/* A long field keeps its full length: from the command line, from a file, and in a dump that is
 * loaded. */
static void long_values(void **state)
{
    (void)state;
    static struct all a, b;
    static char word[OPTION_LONG_ROOM + 16];
    const char *argv[] = {word}, *rest[1];
    int n;
    make(&a);
    make(&b);
    memset(word, 'y', sizeof word);
    memcpy(word, "--files=#", 9); /* to be quoted in a dump */
    word[8 + OPTION_LONG_ROOM - 1] = '\0';
    assert_ok(option_parse(a.section, 3, 1, argv, rest, &n));
    assert_string_equal(a.data.files, word + 8);
    char room[OPTION_ROOM];
    assert_string_equal(option_print(&data_table[4], &a.data, room), word + 8);
    char *text = option_dump(a.section, 3);
    assert_ok(load(&b, text));
    assert_string_equal(b.data.files, word + 8);
    free(text);
    word[8 + OPTION_LONG_ROOM - 1] = 'y';
    word[8 + OPTION_LONG_ROOM] = '\0';
    assert_fails(option_parse(a.section, 3, 1, argv, rest, &n), SOTTO_EINVAL,
                 "131072 characters is too long (at most 131071)");
}

static void command_line(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    const char *argv[] = {"my.ini",
                          "--steps=5",
                          "--optim.lr",
                          "0.25",
                          "--optim.nesterov",
                          "more",
                          "--name=",
                          "--data.nesterov",
                          "4",
                          "--seed",
                          "-3",
                          "-",
                          "--",
                          "--seed=9",
                          "--"};
    int argc = sizeof argv / sizeof *argv, n = 0;
    const char *rest[sizeof argv / sizeof *argv];
    assert_ok(option_parse(a.section, 3, argc, argv, rest, &n));
    assert_int_equal(a.run.steps, 5);
    assert_true(a.optim.lr == 0.25);
    assert_true(a.optim.nesterov);
    assert_string_equal(a.run.name, "");
    assert_int_equal(a.data.nesterov, 4); /* a number in its own section consumes a value */
    assert_true(a.run.seed == -3);
    assert_int_equal(n, 5);
    assert_string_equal(rest[0], "my.ini");
    assert_string_equal(rest[1], "more");
    assert_string_equal(rest[2], "-");
    assert_string_equal(rest[3], "--seed=9"); /* after the "--", which ends the options */
    assert_string_equal(rest[4], "--");

    const char *off[] = {"--optim.nesterov=no"};
    assert_ok(option_parse(a.section, 3, 1, off, rest, &n));
    assert_false(a.optim.nesterov);
    const char *missing[] = {"--steps"};
    assert_fails(option_parse(a.section, 3, 1, missing, rest, &n), SOTTO_EINVAL,
                 "--steps wants a value");
    const char *wrong[] = {"--stpes=1"};
    assert_fails(option_parse(a.section, 3, 1, wrong, rest, &n), SOTTO_EINVAL,
                 "command line: unknown key 'stpes': did you mean 'steps'?");
    const char *flag[] = {"--optim.nesterov=perhaps"};
    assert_fails(option_parse(a.section, 3, 1, flag, rest, &n), SOTTO_EINVAL, "want true or false");
}

static void help_names_everything(void **state)
{
    (void)state;
    struct all a;
    make(&a);
    FILE *out = fopen(at("help"), "w");
    assert_non_null(out);
    option_help(a.section, 3, out);
    fclose(out);
    char *text = slurp(at("help"));
    assert_non_null(strstr(text, "--optim.lr"));
    assert_non_null(strstr(text, "number 0..10; default 1e-3"));
    assert_non_null(strstr(text, "red|green|blue; default green"));
    assert_non_null(strstr(text, "--steps"));
    assert_non_null(strstr(text, "[data]  from where"));
    free(text);
}

/* An option may be set to its default; comparing with the default writes nothing. */
static void said(void **state)
{
    (void)state;
    struct modest {
        double lr;
        bool lr_said;
    } m;
    static const struct option table[] = {
        {OPTION_OF(struct modest, lr, OPTION_TYPE_REAL, "0.1", "rate"), .max = 1,
         .set_flag = offsetof(struct modest, lr_said)},
    };
    const struct option_section s = OPTION_SECTION("optim", "how", table, &m);
    m.lr_said = true;
    option_defaults(&s, 1);
    assert_false(m.lr_said);
    assert_ok(option_set(&s, 1, "optim.lr", "0.1"));
    assert_true(m.lr_said && option_is_default(&table[0], &m) && m.lr_said);
    option_defaults(&s, 1);
    assert_ok(option_load_text(&s, 1, "[optim]\nlr = 0.2\n", "my.ini"));
    assert_true(m.lr_said && m.lr == 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),       cmocka_unit_test(numbers),
        cmocka_unit_test(ranges),         cmocka_unit_test(words),
        cmocka_unit_test(unknown_keys),   cmocka_unit_test(general_keys),
        cmocka_unit_test(ambiguous_keys), cmocka_unit_test(sections_in_use),
        cmocka_unit_test(files),          cmocka_unit_test(file_errors),
        cmocka_unit_test(dump_and_load),  cmocka_unit_test(long_values),
        cmocka_unit_test(command_line),   cmocka_unit_test(help_names_everything),
        cmocka_unit_test(said),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

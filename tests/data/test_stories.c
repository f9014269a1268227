/* The synthetic corpora: reproducible, nearly all different, well-formed, consistent, and unlike
 * each other. */
#include "data/stories/stories.h"
#include "data/fixture.h"

#include <ctype.h>

static void documents_are_pure(void **state)
{
    (void)state;
    struct text a = {0}, b = {0};
    for (int topic = 0; topic < STORIES_TOPICS; topic++) {
        for (int i = 9; i >= 0; i--) {
            text_clear(&a);
            text_clear(&b);
            text_add(&b, "Something before. ");
            size_t before = b.size;
            stories_make(&a, topic, 7, i);
            stories_make(&b, topic, 7, i);
            assert_string_equal(a.data, b.data + before);
            text_clear(&b);
            stories_make(&b, topic, 8, i);
            assert_string_not_equal(a.data, b.data);
        }
    }
    text_free(&a);
    text_free(&b);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void nearly_all_are_different(void **state)
{
    (void)state;
    enum { N = 10000 };
    uint64_t *hashes = malloc(N * sizeof *hashes);
    struct text text = {0};
    assert_non_null(hashes);
    for (int topic = 0; topic < STORIES_TOPICS; topic++) {
        const int n = topic == STORIES_MIXED ? N : N / 5;
        for (int i = 0; i < n; i++) {
            text_clear(&text);
            stories_make(&text, topic, 1, i);
            hashes[i] = 0xcbf29ce484222325u;
            for (size_t k = 0; k < text.size; k++)
                hashes[i] = (hashes[i] ^ (unsigned char)text.data[k]) * 0x100000001b3u;
        }
        qsort(hashes, (size_t)n, sizeof *hashes, by_value);
        int same = 0;
        for (int i = 1; i < n; i++)
            same += hashes[i] == hashes[i - 1];
        assert_true(same < n / 100);
    }
    text_free(&text);
    free(hashes);
}

static void check_form(const char *p, size_t size)
{
    int quotes = 0;
    assert_true(size > 100 && size < 3000);
    assert_true(isupper((unsigned char)p[0]));
    assert_true(strchr(".!?\"", p[size - 1]) || isalpha((unsigned char)p[size - 1]));
    for (size_t i = 0; i < size; i++) {
        const char next = i + 1 < size ? p[i + 1] : '\n', third = i + 2 < size ? p[i + 2] : ' ';
        quotes += p[i] == '"';
        bool legal = isalnum((unsigned char)p[i]) || strchr(" \n.,:!?'\"-", p[i]);
        bool spaced = !(p[i] == ' ' && strchr(" \n.,:!?", next));
        bool article = !(p[i] == ' ' && next == 'a' && third == ' ' && i + 3 < size &&
                         strchr("aeio", p[i + 3]));
        bool sentence = !(strchr(".!?", p[i]) && next == ' ' && islower((unsigned char)third));
        if (!legal || !spaced || !article || !sentence)
            fail_with("at %zu of: %s", i, p);
    }
    assert_int_equal(quotes % 2, 0);
}

static void documents_are_well_formed(void **state)
{
    (void)state;
    struct text text = {0};
    for (int topic = 0; topic < STORIES_TOPICS; topic++)
        for (int i = 0; i < 1000; i++) {
            text_clear(&text);
            stories_make(&text, topic, 3, i);
            check_form(text.data, text.size);
        }
    text_free(&text);
}

/* In "Now NAME had X GOODS left, and OTHER had Y." the earlier "I have Z GOODS" is their sum. */
static void counts_come_out(void **state)
{
    (void)state;
    static const char *const numbers[] = {"zero", "one",   "two",   "three", "four", "five",
                                          "six",  "seven", "eight", "nine",  "ten"};
    struct text text = {0};
    int checked = 0;
    for (int i = 0; i < 2000; i++) {
        text_clear(&text);
        stories_make(&text, STORIES_TALES, 5, i);
        char whole[16], rest[16], part[16], goods[32], again[32], name[32], other[32];
        const char *have = strstr(text.data, "\"I have "), *now = strstr(text.data, "Now ");
        if (!have || !now || !strstr(text.data, " left, and "))
            continue;
        now = strstr(text.data, "Now ");
        if (sscanf(have, "\"I have %15s %31[^!]!", whole, goods) != 2 ||
            sscanf(now, "Now %31s had %15s %31[^,], and %31s had %15[a-z].", name, rest, again,
                   other, part) != 5)
            continue;
        int sum[3] = {-1, -1, -1};
        for (int k = 0; k <= 10; k++) {
            sum[0] = strcmp(numbers[k], whole) == 0 ? k : sum[0];
            sum[1] = strcmp(numbers[k], part) == 0 ? k : sum[1];
            sum[2] = strcmp(numbers[k], rest) == 0 ? k : sum[2];
        }
        assert_int_equal(sum[0], sum[1] + sum[2]);
        assert_memory_equal(goods, again, strlen(goods));
        assert_string_not_equal(name, other);
        checked++;
    }
    assert_true(checked > 100);
    text_free(&text);
}

/* A name of the opening occurs again at the end: what a reader must carry across the whole story.
 */
static void the_hero_stays(void **state)
{
    (void)state;
    struct text text = {0};
    int stays = 0;
    for (int i = 0; i < 500; i++) {
        text_clear(&text);
        stories_make(&text, STORIES_TALES, 6, i);
        char *named = strstr(text.data, "named "), name[32], *last = strrchr(text.data, '\n');
        if (!named || sscanf(named, "named %31[A-Za-z]", name) != 1)
            continue;
        stays += strstr(last, name) != NULL;
    }
    assert_true(stays > 200);
    text_free(&text);
}

/* Frequencies of letters pairs; the distance between two topics, and between two halves of one. */
static void pairs_of(double *out, int topic, uint64_t seed)
{
    struct text text = {0};
    double total = 0;
    memset(out, 0, 65536 * sizeof *out);
    for (int i = 0; i < 300; i++)
        stories_make(&text, topic, seed, i);
    for (size_t k = 1; k < text.size; k++)
        out[(unsigned char)text.data[k - 1] << 8 | (unsigned char)text.data[k]]++, total++;
    for (int k = 0; k < 65536; k++)
        out[k] /= total;
    text_free(&text);
}

static void topics_differ(void **state)
{
    (void)state;
    double(*pairs)[65536] = malloc(2 * STORIES_TOPICS * sizeof *pairs);
    assert_non_null(pairs);
    for (int i = 0; i < 2 * STORIES_TOPICS; i++)
        pairs_of(pairs[i], i % STORIES_TOPICS, 1 + (uint64_t)(i / STORIES_TOPICS));
    for (int a = STORIES_TALES; a < STORIES_TOPICS; a++)
        for (int b = STORIES_TALES; b < STORIES_TOPICS; b++) {
            double distance = 0; /* total variation, 0 to 1 */
            for (int k = 0; k < 65536; k++) {
                double d = pairs[a][k] - pairs[STORIES_TOPICS + b][k];
                distance += d < 0 ? -d / 2 : d / 2;
            }
            assert_true(a == b ? distance < 0.05 : distance > 0.15);
        }
    free(pairs);
}

static void a_corpus_is_written(void **state)
{
    (void)state;
    char path[FILE_PATH_ROOM], *text;
    size_t size;
    int documents = 1;
    struct text first = {0};
    file_join(path, scratch, "corpus.txt");
    assert_int_equal(stories_write(path, STORIES_MIXED, 1, 50), SOTTO_OK);
    assert_int_equal(file_read(path, 1 << 20, &text, &size), SOTTO_OK);
    for (char *p = text; (p = strstr(p, "\n<|endoftext|>\n")); p++)
        documents++;
    assert_int_equal(documents, 50);
    stories_make(&first, STORIES_MIXED, 1, 0);
    assert_memory_equal(text, first.data, first.size);
    text_free(&first);
    free(text);
    assert_error(stories_write("/nowhere/corpus.txt", STORIES_MIXED, 1, 1), SOTTO_EIO,
                 "/nowhere/corpus.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_pure),
        cmocka_unit_test(nearly_all_are_different),
        cmocka_unit_test(documents_are_well_formed),
        cmocka_unit_test(counts_come_out),
        cmocka_unit_test(the_hero_stays),
        cmocka_unit_test(topics_differ),
        cmocka_unit_test(a_corpus_is_written),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

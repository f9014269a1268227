/* Training: merges worked out by hand, a trainer and an encoder written from the definition, and
 * what is refused. */
#include "base/scratch.h"

#include "base/json.h"
#include "base/rng.h"
#include "data/tokenizer/tokenizer.h"

static struct tokenizer *train(const char *text, size_t size, int vocab_size, int min_frequency,
                               const char *end)
{
    struct tokenizer_training how = {vocab_size, min_frequency, end};
    struct tokenizer *t;
    assert_ok(tokenizer_train(&t, &how, &text, &size, 1));
    return t;
}

static void assert_token(const struct tokenizer *t, int32_t id, const char *want)
{
    char *text;
    size_t size;
    assert_ok(tokenizer_decode(t, &id, 1, &text, &size));
    assert_string_equal(text, want);
    free(text);
}

/* aaabdaaabac: aa 4 times; then (a, b) twice, which goes before (aa, a) by its ids; then (aa, ab)
 * twice. */
static void merges_by_hand(void **state)
{
    struct tokenizer *t = train("aaabdaaabac", 11, 1000, 2, "<|end|>");
    (void)state;
    assert_int_equal(tokenizer_vocab_size(t), 260);
    assert_int_equal(tokenizer_end(t), 0);
    assert_token(t, 0, "<|end|>");
    assert_token(t, 1, "!");
    assert_token(t, 1 + 'a' - '!', "a");
    assert_token(t, 257, "aa");
    assert_token(t, 258, "ab");
    assert_token(t, 259, "aaab");
    struct token_list ids = {0};
    assert_ok(tokenizer_encode(t, "aaabaaa<|end|>", 14, &ids));
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.data, ((int32_t[]){259, 257, 1 + 'a' - '!', 0}), 4 * sizeof(int32_t));
    free(ids.data);
    tokenizer_close(t);
}

static void the_end_token_parts_texts(void **state)
{
    const char *text = "xy<|end|>xy<|end|>xy<|en<|end|>";
    struct tokenizer *t = train(text, strlen(text), 300, 3, "<|end|>");
    (void)state;
    assert_int_equal(tokenizer_vocab_size(t),
                     258); /* nothing but xy: no letter of the end token was counted */
    assert_token(t, 257, "xy");
    tokenizer_close(t);
}

/* The definition, as slow as it reads */

enum { MOST = 600 };

struct naive { /* merges and ids out of the files that were written */
    struct {
        int left, right, result;
    } merge[MOST];
    int n_merge;
    int byte_id[256];
};

static void letter(int byte, char out[3]) /* the byte's letter, as UTF-8 */
{
    int c = byte, n = 0;
    bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    if (!prints) {
        c = 256;
        for (int b = 0; b < byte; b++)
            c += !((b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad));
    }
    if (c >= 0x80)
        out[n++] = (char)(0xc0 | c >> 6);
    out[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
    out[n] = '\0';
}

static void read_naive(struct naive *m, const char *path)
{
    json_t *root, *vocab, *merges, *item;
    size_t i;
    assert_ok(json_open(&root, path, 1 << 24));
    assert_ok(json_get_object(json_object_get(root, "model"), "vocab", &vocab));
    assert_ok(json_get_array(json_object_get(root, "model"), "merges", &merges));
    for (int byte = 0; byte < 256; byte++) {
        char text[3];
        letter(byte, text);
        m->byte_id[byte] = (int)json_integer_value(json_object_get(vocab, text));
    }
    m->n_merge = 0;
    json_array_foreach(merges, i, item)
    {
        char left[256], right[256], both[512];
        assert_int_equal(sscanf(json_string_value(item), "%255s %255s", left, right), 2);
        snprintf(both, sizeof both, "%s%s", left, right);
        assert_true(m->n_merge < MOST);
        m->merge[m->n_merge].left = (int)json_integer_value(json_object_get(vocab, left));
        m->merge[m->n_merge].right = (int)json_integer_value(json_object_get(vocab, right));
        m->merge[m->n_merge++].result = (int)json_integer_value(json_object_get(vocab, both));
    }
    json_decref(root);
}

static int naive_word(const struct naive *m, const char *word, int n, int *id)
{
    for (int i = 0; i < n; i++)
        id[i] = m->byte_id[(uint8_t)word[i]];
    for (int rank = 0; rank < m->n_merge; rank++) /* merges make only later merges possible */
        for (int i = 0; i + 1 < n; i++)
            if (id[i] == m->merge[rank].left && id[i + 1] == m->merge[rank].right) {
                id[i] = m->merge[rank].result;
                memmove(id + i + 1, id + i + 2, (size_t)(n - i - 2) * sizeof *id);
                n--;
            }
    return n;
}

/* The pair that occurs most often in `words` of `n` symbols each with ends marked by -1; smallest
 * ids first. */
static int best_pair(const int *id, int n, int *left, int *right)
{
    int best = 0;
    for (int i = 0; i + 1 < n; i++) {
        int count = 0;
        if (id[i] < 0 || id[i + 1] < 0)
            continue;
        for (int k = 0; k + 1 < n; k++)
            count += id[k] == id[i] && id[k + 1] == id[i + 1];
        if (count > best ||
            (count == best && (id[i] < *left || (id[i] == *left && id[i + 1] < *right)))) {
            best = count;
            *left = id[i];
            *right = id[i + 1];
        }
    }
    return best;
}

/* Words over few letters, so that pairs overlap, tie, and make the same token in two ways. */
static void merges_are_those_of_the_definition(void **state)
{
    static struct naive m;
    char text[900], path[FILE_PATH_ROOM];
    static int id[sizeof text];
    (void)state;
    assert_ok(file_join(path, scratch, "trained.json"));
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct rng rng = rng_make(seed, 0);
        int n = sizeof text;
        for (int i = 0; i < n; i++)
            text[i] = "aaabbc\n"[rng_below(&rng, i > 0 && text[i - 1] != '\n' && seed % 2 ? 7 : 6)];
        struct tokenizer *t = train(text, sizeof text, 256 + 60, 2, NULL);
        assert_ok(tokenizer_save(t, path));
        tokenizer_close(t);
        read_naive(&m, path);
        for (int i = 0; i < n; i++) /* a newline is a word without pairs */
            id[i] = text[i] == '\n' ? -1 : m.byte_id[(uint8_t)text[i]];
        for (int k = 0, left = 0, right = 0; k < m.n_merge; k++) {
            assert_true(best_pair(id, n, &left, &right) >= 2);
            assert_int_equal(left, m.merge[k].left);
            assert_int_equal(right, m.merge[k].right);
            for (int i = 0; i + 1 < n; i++)
                if (id[i] == left && id[i + 1] == right) {
                    id[i] = m.merge[k].result;
                    memmove(id + i + 1, id + i + 2, (size_t)(n - i - 2) * sizeof *id);
                    n--;
                }
        }
    }
}

/* Short words by search, long ones by heap: both equal the definition. */
static void ids_are_those_of_the_definition(void **state)
{
    static struct naive m;
    char text[3000], path[FILE_PATH_ROOM];
    struct rng rng = rng_make(5, 1);
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "etaoinshrdlu"[rng_below(&rng, 2 + rng_below(&rng, 11))];
    struct tokenizer *t = train(text, sizeof text, 256 + 300, 2, NULL);
    assert_ok(file_join(path, scratch, "trained.json"));
    assert_ok(tokenizer_save(t, path));
    read_naive(&m, path);
    for (int round = 0; round < 400; round++) {
        int n = 1 + (int)rng_below(&rng, round % 4 == 0 ? 2000 : 90), id[2000];
        for (int i = 0; i < n; i++)
            text[i] = "etaoinshrdlu"[rng_below(&rng, 2 + rng_below(&rng, 11))];
        struct token_list ids = {0};
        assert_ok(tokenizer_encode(t, text, (size_t)n, &ids));
        int want = naive_word(&m, text, n, id);
        assert_int_equal(ids.count, want);
        for (int i = 0; i < want; i++)
            assert_int_equal(ids.data[i], id[i]);
        free(ids.data);
    }
    tokenizer_close(t);
}

static void nothing_to_learn_from(void **state)
{
    struct tokenizer_training how = {.vocab_size = 500, .min_frequency = 0, .end = NULL};
    struct tokenizer *t;
    (void)state;
    assert_ok(tokenizer_train(&t, &how, NULL, NULL, 0));
    assert_int_equal(tokenizer_vocab_size(t), 256);
    assert_int_equal(tokenizer_end(t), -1);
    tokenizer_close(t);
    t = train("\xff\xfe\xff\xfe\xff\0", 6, 258, 0, NULL); /* bytes of any kind */
    assert_int_equal(tokenizer_vocab_size(t), 258);
    tokenizer_close(t);
}

static void refused_trainings(void **state)
{
    static const struct {
        struct tokenizer_training how;
        const char *message;
    } cases[] = {
        {{255, 0, NULL}, "vocabulary of 255 tokens, must be in 256..4194304"},
        {{256, 0, "<|end|>"}, "vocabulary of 256 tokens, must be in 257..4194304"},
        {{1 << 23, 0, NULL}, "vocabulary of 8388608 tokens"},
        {{300, 0, ""}, "end token of 0 bytes, must have 3..1024"},
        {{300, 0, "ab"}, "end token of 2 bytes, must have 3..1024"},
        {{300, 0, "a\xff\xff"}, "the end token is not UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        assert_int_equal(tokenizer_train(&t, &cases[i].how, NULL, NULL, 0), SOTTO_EINVAL);
        assert_non_null(strstr(sotto_error(), cases[i].message));
        assert_null(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_hand),
        cmocka_unit_test(the_end_token_parts_texts),
        cmocka_unit_test(merges_are_those_of_the_definition),
        cmocka_unit_test(ids_are_those_of_the_definition),
        cmocka_unit_test(nothing_to_learn_from),
        cmocka_unit_test(refused_trainings),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* Which part of the held-out data an evaluation sees. */
#include "nn/tiny.h"

#include "data/text/token_files.h"
#include "hf/evaluate.h"

enum { ROWS = 2, T = 8, BATCHES = 20 };

struct lab {
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    float *flat;
    struct view theta;
};

static void open_lab(struct lab *l)
{
    *l = (struct lab){0};
    tiny_model(&l->model, 2, 1, 1);
    assert_ok(device_open(&l->dev, "cpu", &l->memory, 1));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    l->flat = calloc(table_count(&l->model.table), sizeof *l->flat);
    tiny_parameters(&l->model, 5, l->flat);
    l->theta = view_of(l->flat, DTYPE_F32);
}

static void close_lab(struct lab *l)
{
    free(l->flat);
    pool_free(&l->pool);
    device_close(&l->dev);
    model_free(&l->model);
}

/* `batches` micro-batches in as many zones as given, each of one token again and again; the last
 * micro-batch has a row less than the others. */
static struct loader *zones(int batches, int n, int first)
{
    static int number;
    char name[32];
    const int count = (batches * ROWS - 1) * T + 1;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    struct data_config c;
    struct loader *loader;
    for (int i = 0; i < count; i++)
        ids[i] = first + i * n / count;
    snprintf(name, sizeof name, "zones%d.bin", number++);
    assert_ok(tokens_save(at(name), ids, count, 29));
    free(ids);
    data_defaults(&c);
    strcpy(c.train, at(name));
    c.holdout = 0;
    assert_ok(loader_open(&loader, &c, DATA_TRAIN, NULL));
    assert_int_equal(loader_batches(loader, ROWS, T), batches);
    return loader;
}

struct told {
    int64_t times, of;
    double loss;
};

static void on_batch(void *arg, int64_t done, int64_t of, double loss)
{
    struct told *told = arg;
    assert_int_equal(done, ++told->times);
    *told = (struct told){done, of, loss};
}

static struct evaluation see(struct lab *l, const struct loader *loader, int64_t batches, int part,
                             int parts)
{
    struct evaluation e;
    struct told told = {0};
    const struct evaluation_watch watch = {on_batch, &told};
    assert_ok(evaluate(
        &l->model, &l->dev, &l->pool, &l->theta, loader,
        (struct evaluation_range){ROWS, T, DTYPE_F32, view_none, batches, part, parts, &watch},
        &e));
    assert_int_equal(told.times, told.of); /* up to the last one, with what it comes to */
    assert_true(told.loss == e.loss);
    return e;
}

/* As many micro-batches as the data have zones: one is taken from each. */
static void a_few_batches_see_all_parts(void **state)
{
    (void)state;
    struct lab l;
    open_lab(&l);
    for (int n = 1; n <= 6; n++) {
        double want = 0;
        for (int z = 0; z < n; z++) {
            struct loader *one = zones(1, 1, 3 + z);
            want += see(&l, one, 0, 0, 1).loss / n;
            loader_close(one);
        }
        struct loader *loader = zones(BATCHES, n, 3);
        struct evaluation e = see(&l, loader, n, 0, 1);
        assert_int_equal(e.targets, n * ROWS * T);
        assert_true(fabs(e.loss - want) < 1e-5);
        loader_close(loader);
    }
    close_lab(&l);
}

/* Every number of micro-batches, shared by several: the same targets, none twice. */
static void shares_make_the_whole(void **state)
{
    (void)state;
    struct lab l;
    open_lab(&l);
    struct loader *loader = zones(BATCHES, 7, 3);
    for (int64_t batches = 0; batches <= BATCHES + 2; batches++) {
        struct evaluation whole = see(&l, loader, batches, 0, 1);
        const int64_t all = batches == 0 || batches >= BATCHES ? BATCHES : batches;
        const int64_t rows = all == BATCHES ? all * ROWS - 1 : all * ROWS;
        double loss = 0;
        int64_t targets = 0;
        assert_true(whole.targets == rows * T || whole.targets == (rows - 1) * T);
        for (int part = 0; part < 3; part++) {
            struct evaluation e = see(&l, loader, batches, part, 3);
            loss += e.loss * (double)e.targets;
            targets += e.targets;
        }
        assert_int_equal(targets, whole.targets);
        assert_true(fabs(loss / (double)targets - whole.loss) < 1e-9);
    }
    loader_close(loader);
    close_lab(&l);
}

static enum sotto_status last_words_of(struct lab *l, const struct tokenizer *tokenizer,
                                       const char *path, struct last_word *out)
{
    return evaluate_last_words(&(struct last_word_setup){.model = &l->model,
                                                         .dev = &l->dev,
                                                         .pool = &l->pool,
                                                         .theta = &l->theta,
                                                         .tokenizer = tokenizer,
                                                         .path = path,
                                                         .key = "text"},
                               out);
}

/* Texts of all lengths, in any order, give what each gives alone, and cost what they take: not what
 * the model claims to have room for. */
static void last_words(void **state)
{
    (void)state;
    struct model_config config = tiny_configs[2]; /* rotary: no table of positions */
    config.vocab = 260;
    config.positions = 1 << 22;
    static const char *const texts[] = {"a red boat", "boats are red and green and blue", "a b",
                                        "a \\u0000"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    const struct tokenizer_training how = {260, 2, "<|endoftext|>"};
    const char *sample = "a text of texts";
    const size_t length = 15;
    struct tokenizer *tokenizer;
    struct lab l = {0};
    struct last_word one, all;
    char lines[512] = "", line[128];
    double loss = 0;
    assert_ok(tokenizer_train(&tokenizer, &how, &sample, &length, 1));
    assert_ok(model_config_resolve(&config));
    assert_ok(model_init(&l.model, &config, 1, 1));
    assert_ok(device_open(&l.dev, "cpu", &l.memory, 1));
    pool_init(&l.pool, &l.dev, MEMORY_ACTIVATIONS);
    l.flat = calloc(table_count(&l.model.table), sizeof *l.flat);
    tiny_parameters(&l.model, 5, l.flat);
    l.theta = view_of(l.flat, DTYPE_F32);
    for (int i = 0; i < TEXTS; i++) {
        snprintf(line, sizeof line, "{\"text\": \"%s\"}\n", texts[i]);
        strcat(lines, line);
        assert_ok(file_write(at("one.jsonl"), line, strlen(line)));
        assert_ok(last_words_of(&l, tokenizer, at("one.jsonl"), &one));
        assert_int_equal(one.words, 1);
        loss += one.loss / TEXTS;
    }
    assert_ok(file_write(at("all.jsonl"), lines, strlen(lines)));
    assert_ok(last_words_of(&l, tokenizer, at("all.jsonl"), &all));
    assert_int_equal(all.words, TEXTS);
    assert_true(fabs(all.loss - loss) < 1e-5);
    assert_true(l.memory.total_peak < 1 << 20);
    assert_ok(file_write(at("nul.jsonl"), "{\"text\": \"a b\"}\n\0\n", 18));
    assert_fails(last_words_of(&l, tokenizer, at("nul.jsonl"), &all), SOTTO_EFORMAT,
                 "nul.jsonl:2: not valid JSON");
    close_lab(&l);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_batches_see_all_parts),
        cmocka_unit_test(shares_make_the_whole),
        cmocka_unit_test(last_words),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* libFuzzer: any bytes as the texts that training and evaluation read. The first byte (modulo 7, in
 * the order of tests/fuzz/seed) says what the rest is taken for: plain text, JSONL, instructions, a
 * file of which that must be found out, texts whose last word is asked for, a cached token file, or
 * counts to replay. What is accepted holds only ids of the vocabulary, and is the same when it is
 * read again. */
#define _GNU_SOURCE /* memfd_create, mkdtemp */
#include <assert.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "data/text/source.h"
#include "hf/evaluate.h"
#include "strategy/history.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS = 2, T = 8 };

static void must(enum sotto_status st)
{
    if (st != SOTTO_OK)
        abort();
}

static void quiet(enum log_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

/* A file without a name on disk. */
static int make_file(const uint8_t *data, size_t size, char path[FILE_PATH_ROOM])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, FILE_PATH_ROOM, "/proc/self/fd/%d", fd);
    return fd;
}

static const struct tokenizer *tokenizer(void)
{
    static struct tokenizer *made;
    if (!made) {
        const struct tokenizer_training how = {260, 2, "<|endoftext|>"};
        const char *text = "a text of texts";
        const size_t length = 15;
        must(tokenizer_train(&made, &how, &text, &length, 1));
        log_set(quiet, NULL);
    }
    return made;
}

struct summed {
    size_t documents, bytes;
};

static enum sotto_status sum(void *arg, const char *text, size_t size)
{
    struct summed *s = arg;
    assert(size > 0 && text);
    s->documents++;
    s->bytes += size;
    return SOTTO_OK;
}

static void check_tokens(const struct tokens *t)
{
    int32_t ids[64];
    for (int64_t i = 0; i < t->count; i += 64) {
        const int64_t n = t->count - i < 64 ? t->count - i : 64;
        if (tokens_copy(t, i, n, ids) != SOTTO_OK)
            return;
        for (int64_t k = 0; k < n; k++)
            assert(ids[k] >= 0 && ids[k] < tokenizer_vocab_size(tokenizer()));
    }
}

/* Documents are the same each time, and tokenize. */
static void as_documents(const char *path, enum data_format format)
{
    struct source_spec spec = {.format = format, .text_key = "text"};
    struct summed a = {0}, b = {0};
    struct tokens tokens;
    snprintf(spec.path, sizeof spec.path, "%s", path);
    enum sotto_status st = source_visit(&spec, sum, &a);
    assert(source_visit(&spec, sum, &b) == st);
    assert(a.documents == b.documents && a.bytes == b.bytes);
    if (format == DATA_INSTRUCT || source_tokenize(&tokens, &spec, "", tokenizer()) != SOTTO_OK)
        return;
    check_tokens(&tokens);
    tokens_close(&tokens);
}

/* As training would: the format from the bytes, batches in order. */
static void as_data(const char *path)
{
    struct data_config config;
    const struct option_section section = data_section(&config);
    struct loader *loader;
    struct batch batch;
    data_defaults(&config);
    must(option_set(&section, 1, "train", path));
    config.holdout = 0.25;
    if (loader_open(&loader, &config, DATA_TRAIN, tokenizer()) != SOTTO_OK)
        return;
    const int64_t vocab = loader->vocab;
    if (vocab <= 1 << 20 && loader_check(loader, 1, T) == SOTTO_OK) {
        must(batch_init(&batch, ROWS, T));
        int64_t n = loader_batches(loader, ROWS, T);
        for (int64_t i = 0; i < n && i < 8; i++) {
            if (loader_fill_in_order(loader, i, ROWS, T, &batch) != SOTTO_OK)
                break;
            for (int k = 0; k < batch.rows * batch.t; k++)
                assert(batch.tokens[k] >= 0 && batch.tokens[k] < vocab && batch.targets[k] < vocab);
        }
        batch_free(&batch);
    }
    loader_close(loader);
}

struct judge {
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    float *flat;
    struct view theta;
};

static struct judge *judge(void)
{
    static struct judge *made;
    static struct model_config config; /* all zero before its defaults */
    struct option_section section =
        OPTION_SECTION_OF("model", "", model_options, model_options_count, &config);
    static const char *const sizes[][2] = {{"layers", "1"},  {"width", "8"},
                                           {"heads", "1"},   {"positions", "8"},
                                           {"vocab", "260"}, {"mlp_width", "8"}};
    if (made)
        return made;
    if (!(made = calloc(1, sizeof *made)))
        abort();
    option_defaults(&section, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        must(option_set(&section, 1, sizes[i][0], sizes[i][1]));
    must(model_config_resolve(&config));
    must(model_init(&made->model, &config, 1, 1));
    must(device_open(&made->dev, "cpu", &made->memory, 1));
    pool_init(&made->pool, &made->dev, MEMORY_ACTIVATIONS);
    made->flat = calloc(table_count(&made->model.table), sizeof *made->flat);
    model_randomize(&made->model, 1, made->flat);
    made->theta = view_of(made->flat, DTYPE_F32);
    return made;
}

static void as_last_words(const char *path)
{
    struct judge *j = judge();
    struct last_word out;
    const struct last_word_setup setup = {.model = &j->model,
                                          .dev = &j->dev,
                                          .pool = &j->pool,
                                          .theta = &j->theta,
                                          .tokenizer = tokenizer(),
                                          .path = path,
                                          .key = "text"};
    if (evaluate_last_words(&setup, &out) == SOTTO_OK)
        assert(out.words > 0 && isfinite(out.loss));
}

static char folder[] = "/tmp/fuzz_text.XXXXXX";

static void remove_folder(void)
{
    file_remove_tree(folder);
}

/* The cached file of a text, whose place is found once. */
static void as_cache(const uint8_t *data, size_t size)
{
    static char cached[FILE_PATH_ROOM];
    static struct source_spec spec = {.format = DATA_TEXT, .text_key = "text"};
    struct tokens tokens;
    if (!*cached) {
        char name[FILE_PATH_ROOM], cache[FILE_PATH_ROOM];
        if (!mkdtemp(folder) || atexit(remove_folder) != 0)
            abort();
        must(file_join(spec.path, folder, "text"));
        must(file_write(spec.path, "a text", 6));
        must(file_join(cache, folder, "cache"));
        must(source_tokenize(&tokens, &spec, cache, tokenizer()));
        tokens_close(&tokens);
        DIR *dir = opendir(cache);
        for (struct dirent *d; dir && (d = readdir(dir));)
            if (strstr(d->d_name, ".bin"))
                snprintf(name, sizeof name, "%s", d->d_name);
        closedir(dir);
        must(file_join(cached, cache, name));
    }
    FILE *out = fopen(cached, "wb");
    if (!out || fwrite(data, 1, size, out) != size || fclose(out) != 0)
        abort();
    char cache[FILE_PATH_ROOM];
    snprintf(cache, sizeof cache, "%.*s", (int)(strrchr(cached, '/') - cached), cached);
    if (source_tokenize(&tokens, &spec, cache, tokenizer()) != SOTTO_OK)
        abort(); /* what cannot be used is made anew */
    assert(tokens.vocab == tokenizer_vocab_size(tokenizer()));
    check_tokens(&tokens);
    tokens_close(&tokens);
}

static void as_counts(const char *path)
{
    for (int apart = 0; apart < 2; apart++) {
        struct history h;
        if (history_read(&h, path, 1, 2, apart) != SOTTO_OK)
            continue;
        for (int64_t i = 0; i < h.n; i++)
            assert(h.count[i] >= 1);
        history_free(&h);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FILE_PATH_ROOM];
    if (size == 0)
        return 0;
    tokenizer();
    const int kind = data[0] % 7;
    if (kind == 5) {
        as_cache(data + 1, size - 1);
        return 0;
    }
    int fd = make_file(data + 1, size - 1, path);
    if (kind == 0)
        as_documents(path, DATA_TEXT);
    else if (kind == 1)
        as_documents(path, DATA_JSONL);
    else if (kind == 2)
        as_documents(path, DATA_INSTRUCT);
    else if (kind == 3)
        as_data(path);
    else if (kind == 4)
        as_last_words(path);
    else
        as_counts(path);
    close(fd);
    return 0;
}

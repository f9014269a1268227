/* From names to tokens: formats, documents, folders, the cache, the tokenizer, and every error on
 * the way. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "data/text/source.h"
#include "data/fixture.h"

static struct tokenizer *tokenizer;

static int set_up(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    tokenizer = byte_tokenizer();
    return 0;
}

static int tear_down(void **state)
{
    tokenizer_close(tokenizer);
    return scratch_remove(state);
}

/* Everything the split holds as text, the end token as '~'. */
static void read_all(const struct loader *loader, char *out)
{
    struct batch batch;
    int64_t n = loader_tokens(loader);
    assert_int_equal(batch_init(&batch, 1, (int)n), SOTTO_OK);
    assert_int_equal(loader_fill_in_order(loader, 0, 1, (int)n - 1, &batch), SOTTO_OK);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = i + 1 < n ? batch.tokens[i] : batch.targets[n - 2];
        char *text;
        size_t size;
        assert_int_equal(tokenizer_decode(tokenizer, &id, 1, &text, &size), SOTTO_OK);
        *out++ = id == tokenizer_end(tokenizer) ? '~' : text[0];
        free(text);
    }
    *out = '\0';
    batch_free(&batch);
}

static void expect(const struct data_config *config, const char *want)
{
    char got[4096];
    struct loader *loader = open_loader(config, DATA_TRAIN, tokenizer);
    read_all(loader, got);
    assert_string_equal(got, want);
    assert_int_equal(loader->vocab, 257);
    loader_close(loader);
}

static void expect_text(const char *name, const char *text, const char *want)
{
    struct data_config config = config_for(make_text(name, text));
    config.holdout = 0;
    expect(&config, want);
}

static void documents_end_with_the_end_token(void **state)
{
    (void)state;
    expect_text("a.txt", "one\ntwo\n", "one\ntwo\n~");
    expect_text("a.txt", "one\n<|endoftext|>\ntwo\n\n<|endoftext|>\nthree", "one~two~three~");
    expect_text("a.txt", "one\r\n<|endoftext|>\r\ntwo\r\n<|endoftext|>", "one~two~");
    expect_text("a.txt", "<|endoftext|>\n\n<|endoftext|>\nx\n<|endoftext|>\n", "x~");
    expect_text("a.txt", "\xef\xbb\xbfone\r\ntwo", "one\r\ntwo~"); /* as Windows writes it */
    expect_text("a.txt", "no line end", "no line end~");
    expect_text("noextension", "plain", "plain~");
    expect_text("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"t\\nwo\", \"id\": 3}\n",
                "one~t\nwo~");
    expect_text("a.jsonl", "{\"text\": \"\"}\n{\"text\": \"x\"}", "x~");
    expect_text("a.JSON", "\xef\xbb\xbf[{\"text\": \"one\"}, {\"text\":\n\"two\"}]", "one~two~");
    struct data_config config =
        config_for(make_text("b.ndjson", "{\"body\": \"one\", \"text\": \"no\"}\n"));
    config.holdout = 0;
    strcpy(config.text_key, "body");
    expect(&config, "one~");
    config_source(&config, make_text("b.json", "{\"not\": \"parsed\"}"));
    config.holdout = 0;
    config.format = DATA_TEXT;
    expect(&config, "{\"not\": \"parsed\"}~");
}

static void folders_are_their_files(void **state)
{
    (void)state;
    char path[FILE_PATH_ROOM], train[OPTION_ROOM];
    file_join(path, scratch, "many/sub");
    assert_int_equal(file_make_directories(path), SOTTO_OK);
    make_text("many/b.txt", "two");
    make_text("many/a.txt", "one");
    make_text("many/.hidden", "no");
    make_text("many/c.jsonl", "{\"text\": \"three\"}");
    make_text("many/sub/d.txt", "no");
    snprintf(train, sizeof train, " %s/many , %s,", scratch, make_text("z.txt", "four"));
    struct data_config config = config_for(train);
    config.holdout = 0;
    expect(&config, "one~two~three~four~");
    struct loader *loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(loader->sources, 4);
    loader_close(loader);
}

static void holdout_begins_with_a_document(void **state)
{
    (void)state;
    struct data_config config = config_for(make_text(
        "h.txt", "aaaaaaaaa\n<|endoftext|>\nbbbbbbb\n<|endoftext|>\nccccccc\n<|endoftext|>\nddd"));
    char got[64];
    config.holdout = 0.5; /* 10 + 8 + 8 + 4 tokens: cut at 15, moved to 18 */
    struct loader *loader = open_loader(&config, DATA_VALID, tokenizer);
    read_all(loader, got);
    assert_string_equal(got, "ccccccc~ddd~");
    loader_close(loader);
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    read_all(loader, got);
    assert_string_equal(got, "aaaaaaaaa~bbbbbbb~");
    loader_close(loader);

    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    make_text("h.txt", "other text"); /* what is held out is not read again */
    struct loader *rest;
    assert_int_equal(loader_open_rest(&rest, loader), SOTTO_OK);
    read_all(rest, got);
    assert_string_equal(got, "ccccccc~ddd~");
    assert_int_equal(rest->vocab, loader->vocab);
    loader_close(rest);
    read_all(loader, got); /* and is not the rest's to free */
    assert_string_equal(got, "aaaaaaaaa~bbbbbbb~");
    loader_close(loader);
    make_text("h.txt",
              "aaaaaaaaa\n<|endoftext|>\nbbbbbbb\n<|endoftext|>\nccccccc\n<|endoftext|>\nddd");

    strcpy(config.valid, make_text("v.txt", "valid"));
    loader = open_loader(&config, DATA_VALID, tokenizer);
    read_all(loader, got);
    assert_string_equal(got, "valid~");
    loader_close(loader);
    loader = open_loader(&config, DATA_TRAIN, tokenizer); /* nothing is held out of it then */
    assert_int_equal(loader_tokens(loader), 30);
    loader_close(loader);
}

static int count_files(const char *name)
{
    char path[OPTION_ROOM];
    struct data_config config;
    struct source_spec *specs;
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    config_source(&config, path);
    if (source_list(&specs, &n, &config, DATA_TRAIN) == SOTTO_OK)
        free(specs);
    return n;
}

static void count_warnings(enum log_level level, const char *line, void *arg)
{
    (void)line;
    *(int *)arg += level == LOG_WARN;
}

static void cache_is_keyed_by_what_matters(void **state)
{
    (void)state;
    struct data_config config = config_for(make_text("c.txt", "first"));
    config.holdout = 0;
    snprintf(config.cache, sizeof config.cache, "%s/cache/deep", scratch);
    expect(&config, "first~");
    assert_int_equal(count_files("cache/deep"), 1);
    expect(&config, "first~");
    assert_int_equal(count_files("cache/deep"), 1);
    make_text("c.txt", "second!");
    expect(&config, "second!~");
    assert_int_equal(count_files("cache/deep"), 2);

    const struct tokenizer_training how = {260, 1,
                                           "<|endoftext|>"}; /* another tokenizer, another file */
    const char *text = "second! second! second!";
    size_t size = strlen(text);
    struct tokenizer *other;
    assert_int_equal(tokenizer_train(&other, &how, &text, &size, 1), SOTTO_OK);
    struct loader *loader = open_loader(&config, DATA_TRAIN, other);
    assert_int_equal(loader->vocab, tokenizer_vocab_size(other));
    assert_int_equal(count_files("cache/deep"), 3);
    loader_close(loader);
    tokenizer_close(other);

    config =
        config_for(make_text("c.jsonl", "{\"text\": \"x\"}")); /* the same file read otherwise */
    config.holdout = 0;
    snprintf(config.cache, sizeof config.cache, "%s/cache3", scratch);
    expect(&config, "x~");
    config.format = DATA_TEXT;
    expect(&config, "{\"text\": \"x\"}~");

    config_source(&config, "stories:weather");
    config.stories = 3;
    snprintf(config.cache, sizeof config.cache, "%s/cache/deep", scratch);
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(count_files("cache/deep"), 4);
    int64_t tokens = loader_tokens(loader);
    loader_close(loader);
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(loader_tokens(loader), tokens);
    assert_int_equal(count_files("cache/deep"), 4);
    loader_close(loader);
}

static void a_broken_cache_is_made_anew(void **state)
{
    (void)state;
    int warnings = 0;
    struct source_spec *specs;
    int n;
    struct data_config config = config_for(make_text("d.txt", "words"));
    config.holdout = 0;
    snprintf(config.cache, sizeof config.cache, "%s/cache2", scratch);
    expect(&config, "words~");
    struct data_config inside = config_for(config.cache);
    assert_int_equal(source_list(&specs, &n, &inside, DATA_TRAIN), SOTTO_OK);
    assert_int_equal(file_write(specs[0].path, "SOTTOTOK", 8), SOTTO_OK);
    log_set(count_warnings, &warnings);
    expect(&config, "words~");
    assert_int_equal(warnings, 1);
    expect(&config, "words~");
    assert_int_equal(warnings, 1);
    static const int32_t ids[] = {3, 1 << 20}; /* whole, but of another vocabulary */
    assert_int_equal(tokens_save(specs[0].path, ids, 2, (1 << 20) + 1), SOTTO_OK);
    expect(&config, "words~");
    assert_int_equal(warnings, 2);
    log_set(NULL, NULL);
    free(specs);
}

static void keep_line(enum log_level level, const char *line, void *arg)
{
    if (level == LOG_WARN)
        snprintf(arg, 256, "%s", line);
}

/* Text in another encoding is taken as it is, and the first place is named. */
static void other_encodings_are_told(void **state)
{
    (void)state;
    char line[256] = "";
    struct data_config config =
        config_for(make_text("u.txt", "gr\xc3\xbc\xc3\x9f\n\xe2\x82\xac\n"));
    config.holdout = 0;
    log_set(keep_line, line);
    loader_close(open_loader(&config, DATA_TRAIN, tokenizer));
    assert_string_equal(line, "");
    config_source(&config, make_text("l.txt", "one\ntwo\ngr\xfc\xdf dich\nund \xe4 auch"));
    config.holdout = 0;
    struct loader *loader = open_loader(&config, DATA_TRAIN, tokenizer);
    log_set(NULL, NULL);
    assert_int_equal(loader_tokens(loader), 28 + 1);
    loader_close(loader);
    assert_non_null(strstr(line, "l.txt:3: byte 0xfc at place 10 is not UTF-8 (3 such bytes"));
}

static void tokenizer_as_asked_for(void **state)
{
    (void)state;
    struct tokenizer *made;
    struct data_config config = config_for(make_counting("t.bin", 0, 50, 60));
    assert_int_equal(loader_tokenizer(&made, &config), SOTTO_OK);
    assert_null(made);

    config_source(&config, "stories");
    config.stories = 50;
    config.vocab = 400;
    assert_int_equal(loader_tokenizer(&made, &config), SOTTO_OK);
    assert_int_equal(tokenizer_vocab_size(made), 400);
    assert_true(tokenizer_end(made) >= 0);
    tokenizer_close(made);

    config.vocab = 257; /* the least: bytes and the end */
    assert_int_equal(loader_tokenizer(&made, &config), SOTTO_OK);
    assert_int_equal(tokenizer_vocab_size(made), 257);
    tokenizer_close(made);
    config.vocab = 256;
    assert_error(loader_tokenizer(&made, &config), SOTTO_EINVAL, "want at least 257");
    config.vocab = 400;

    snprintf(config.tokenizer, sizeof config.tokenizer, "%s/tokenizer.json", scratch);
    assert_int_equal(loader_tokenizer(&made, &config), SOTTO_EIO);
    assert_int_equal(tokenizer_save(tokenizer, config.tokenizer), SOTTO_OK);
    assert_int_equal(loader_tokenizer(&made, &config), SOTTO_OK);
    assert_int_equal(tokenizer_vocab_size(made), 257);
    tokenizer_close(made);

    char both[OPTION_ROOM];
    snprintf(both, sizeof both, "%s,%s", make_text("a.txt", "text"),
             make_counting("t.bin", 0, 50, 60));
    config_source(&config, both);
    assert_error(loader_tokenizer(&made, &config), SOTTO_EINVAL,
                 "t.bin holds tokens and other sources hold text");
}

static void mixed_sources_and_vocabularies(void **state)
{
    (void)state;
    char both[OPTION_ROOM];
    snprintf(both, sizeof both, "%s,%s", make_text("a.txt", "text"),
             make_counting("t.bin", 0, 50, 6000));
    struct data_config config = config_for(both);
    config.holdout = 0;
    struct loader *loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(loader->vocab, 6000);
    assert_int_equal(loader_tokens(loader), 55);
    loader_close(loader);
    const uint8_t raw[] = {1, 0, 255, 1, 3, 0, 4, 0}; /* largest id 511 */
    config_source(&config, make_file("r.dat", raw, sizeof raw));
    config.holdout = 0;
    config.format = DATA_RAW16;
    loader = open_loader(&config, DATA_TRAIN, NULL);
    assert_int_equal(loader->vocab, 512);
    loader_close(loader);
}

static void errors(void **state)
{
    (void)state;
    struct loader *loader;
    struct data_config config;
    char path[OPTION_ROOM];
    const uint8_t binary[] = {0x1f, 0x8b, 8, 0, 0, 0, 0};
#define FAILS(status, message)                                                                     \
    do {                                                                                           \
        assert_error(loader_open(&loader, &config, DATA_TRAIN, tokenizer), status, message);       \
        assert_null(loader);                                                                       \
    } while (0)
    config_source(&config, "/nowhere/a.txt");
    FAILS(SOTTO_EIO, "cannot open /nowhere/a.txt: No such file");
    config_source(&config, "");
    FAILS(SOTTO_EINVAL, "no training data is named: set --data.train=FILE");
    snprintf(config.valid, sizeof config.valid, "%s", make_text("v.txt", "only this is named"));
    FAILS(SOTTO_EINVAL, "no training data is named: set --data.train=FILE");
    config_source(&config, " , ,");
    FAILS(SOTTO_EINVAL, "no training data is named");
    config_source(&config, make_text("empty.txt", ""));
    FAILS(SOTTO_EFORMAT, "empty.txt is empty");
    config.format = DATA_TEXT;
    FAILS(SOTTO_EFORMAT, "empty.txt is empty");
    config.format = DATA_INSTRUCT;
    FAILS(SOTTO_EFORMAT, "empty.txt is empty");
    config.format = 77;
    FAILS(SOTTO_EINVAL, "unknown data format 77");
    config_source(&config, make_text("none.txt", "\n<|endoftext|>\n\n"));
    FAILS(SOTTO_EFORMAT, "none.txt has no tokens");
    config_source(&config, make_text("none.jsonl", "{\"text\": \"\"}"));
    FAILS(SOTTO_EFORMAT, "none.jsonl has no tokens");
    config_source(&config, make_text("key.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"a\"}"));
    FAILS(SOTTO_EFORMAT, "key.jsonl:2: \"text\" must be a string, got nothing; its texts are "
                         "\"txt\": choose one with data.text_key");
    config_source(&config,
                  make_text("key.jsonl", "{\"id\": 3, \"content\": \"a\", \"url\": \"b\"}"));
    FAILS(SOTTO_EFORMAT, "its texts are \"content\", \"url\": choose one");
    config_source(&config, make_text("key.jsonl", "{\"id\": 3}"));
    FAILS(SOTTO_EFORMAT,
          "got nothing, nor another text member: want {\"text\": ...}, with the name "
          "set by data.text_key, or instructions: {\"messages\"");
    config_source(&config, make_text("key.jsonl", "{\"conversations\": [], \"id\": \"a\"}"));
    FAILS(SOTTO_EFORMAT, "choose one with data.text_key; this is ShareGPT's shape, which is not "
                         "read: jq -c '(arrays[] // .) | {messages: [.conversations[]");
    config_source(&config, make_text("key.jsonl", "{\"conversations\": []}"));
    FAILS(SOTTO_EFORMAT, "got nothing; this is ShareGPT's shape, which is not read");
    config_source(&config, make_text("key.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}"));
    FAILS(SOTTO_EFORMAT, "| {instruction: .question, output: .answer}' OLD >NEW.jsonl");
    config_source(&config, make_text("key.jsonl", "{\"text\": \"a\"}\n"
                                                  "{\"prompt\": \"a\", \"completion\": \"b\"}"));
    FAILS(SOTTO_EFORMAT,
          "key.jsonl:2: \"text\" must be a string, got nothing; this record is one of "
          "instructions (data.format=instruct), and a file has records of one kind: jq");
    config_source(&config, make_text("wide.txt", "\xff\xfeh"));
    FAILS(SOTTO_EFORMAT, "wide.txt is UTF-16: convert it with iconv");
    config_source(&config, make_text("mark.txt", "\xef\xbb\xbf"));
    FAILS(SOTTO_EFORMAT, "mark.txt has no tokens");
    config_source(&config, make_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text: \"a\"}"));
    FAILS(SOTTO_EFORMAT, "bad.jsonl:2: not valid JSON");
    config_source(&config, make_file("x.gz", binary, sizeof binary));
    FAILS(SOTTO_EFORMAT, "x.gz: unknown format");
    config_source(&config, make_text("x.bin", "not tokens"));
    FAILS(SOTTO_EFORMAT, "no header of a token file (raw uint16 needs format = raw16)");
    config_source(&config, "stories:wether");
    FAILS(SOTTO_EINVAL,
          "stories:wether: there are no stories of that kind (did you mean weather?)");
    config_source(&config, make_text("x.csv", "text,label\nhello,1\n"));
    FAILS(SOTTO_EFORMAT, "x.csv is a table, which is not read as text: python3 -c 'import csv");
    assert_non_null(strstr(sotto_error(), "csv.DictReader(sys.stdin)]' <"));
    config_source(&config, make_text("x.TSV", "text\tlabel\nhello\t1\n"));
    FAILS(SOTTO_EFORMAT, "csv.DictReader(sys.stdin, dialect=\"excel-tab\")]' <");
    config.format = DATA_TEXT; /* as it stands */
    config.holdout = 0;
    loader_close(open_loader(&config, DATA_TRAIN, tokenizer));
    snprintf(path, sizeof path, "%s/hollow", scratch);
    assert_int_equal(file_make_directories(path), SOTTO_OK);
    config_source(&config, path);
    FAILS(SOTTO_EIO, "hollow has no files");
    snprintf(path, sizeof path, "%s/hollow/inside", scratch);
    assert_int_equal(file_make_directories(path), SOTTO_OK);
    snprintf(path, sizeof path, "%s/hollow", scratch);
    config_source(&config, path);
    FAILS(SOTTO_EIO, "hollow has no files of its own, and the folders in it are not read");
    snprintf(path, sizeof path, "%s,%s", make_text("m.txt", "some text"),
             make_text("m.json", "{\"prompt\": \"a\", \"completion\": \"b\"}"));
    config_source(&config, path);
    config.holdout = 0;
    FAILS(SOTTO_EINVAL, "do not mix");
    config_source(&config, make_text("tiny.txt", "ab"));
    assert_error(loader_open(&loader, &config, DATA_VALID, tokenizer), SOTTO_EINVAL,
                 "a holdout of 0.05 of 3 tokens leaves nothing to validate on");
    struct loader *rest;
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_error(loader_open_rest(&rest, loader), SOTTO_EINVAL,
                 "a holdout of 0.05 of 3 tokens leaves nothing to validate on");
    assert_null(rest);
    loader_close(loader);
    config.holdout = 0;
    assert_error(loader_open(&loader, &config, DATA_VALID, tokenizer), SOTTO_EINVAL,
                 "no validation data");
    assert_error(loader_open(&loader, &config, DATA_TRAIN, NULL), SOTTO_EINVAL,
                 "tiny.txt is text: it needs a tokenizer");
    snprintf(config.cache, sizeof config.cache, "%s/tiny.txt/cache", scratch);
    FAILS(SOTTO_EIO, "cannot make folder");
    if (geteuid() != 0) { /* root reads everything */
        config_source(&config, make_text("secret.txt", "x"));
        assert_int_equal(chmod(config.train, 0), 0);
        FAILS(SOTTO_EIO, "Permission denied");
    }
}

static void ids_beyond_the_header_are_caught(void **state)
{
    (void)state;
    const char *path = make_counting("high.bin", 0, 50, 60);
    char *bytes;
    size_t size;
    assert_int_equal(file_read(path, 1000, &bytes, &size), SOTTO_OK);
    bytes[32 + 2 * 20] = 77;
    struct data_config config = config_for(make_file("high.bin", bytes, size));
    config.holdout = 0;
    struct loader *loader = open_loader(&config, DATA_TRAIN, NULL);
    struct batch batch;
    assert_int_equal(batch_init(&batch, 1, 49), SOTTO_OK);
    assert_error(loader_fill_in_order(loader, 0, 1, 49, &batch), SOTTO_EFORMAT,
                 "high.bin: token 20 has id 77");
    batch_free(&batch);
    loader_close(loader);
    free(bytes);
}

/* Nothing is made up unless it is asked for: by the word, or by the format. */
static void stories_have_to_be_named(void **state)
{
    (void)state;
    struct data_config config;
    struct loader *loader;
    struct tokenizer *made;
    data_defaults(&config);
    config.stories = 20;
    assert_error(loader_open(&loader, &config, DATA_TRAIN, tokenizer), SOTTO_EINVAL,
                 "no training data is named");
    assert_error(loader_tokenizer(&made, &config), SOTTO_EINVAL, "no training data is named");
    config.format = DATA_STORIES;
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    const int64_t tokens = loader_tokens(loader);
    loader_close(loader);
    config.format = DATA_AUTO;
    strcpy(config.train, "stories");
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(loader_tokens(loader), tokens);
    loader_close(loader);
}

static void stories_are_sources(void **state)
{
    (void)state;
    struct data_config config =
        config_for("stories:tales,stories:weather,stories:recipes,stories:talks,stories:letters");
    config.stories = 20;
    config.sharding = DATA_BY_SOURCE;
    struct loader *train = open_loader(&config, DATA_TRAIN, tokenizer);
    assert_int_equal(train->sources, 5);
    assert_int_equal(loader_check(train, 5, 256), SOTTO_OK);
    strcpy(config.train, "stories");
    strcpy(config.valid, "stories");
    struct loader *mixed = open_loader(&config, DATA_TRAIN, tokenizer);
    struct loader *valid = open_loader(&config, DATA_VALID, tokenizer);
    assert_int_equal(mixed->sources, 1);
    assert_true(loader_tokens(mixed) > loader_tokens(valid));
    struct batch a, b; /* the first document of one is not that of the other */
    assert_int_equal(batch_init(&a, 1, 100), SOTTO_OK);
    assert_int_equal(batch_init(&b, 1, 100), SOTTO_OK);
    assert_int_equal(loader_fill_in_order(mixed, 0, 1, 100, &a), SOTTO_OK);
    assert_int_equal(loader_fill_in_order(valid, 0, 1, 100, &b), SOTTO_OK);
    assert_memory_not_equal(a.tokens, b.tokens, 100 * sizeof *a.tokens);
    batch_free(&a);
    batch_free(&b);
    loader_close(train);
    loader_close(mixed);
    loader_close(valid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_end_with_the_end_token),
        cmocka_unit_test(folders_are_their_files),
        cmocka_unit_test(holdout_begins_with_a_document),
        cmocka_unit_test(cache_is_keyed_by_what_matters),
        cmocka_unit_test(a_broken_cache_is_made_anew),
        cmocka_unit_test(other_encodings_are_told),
        cmocka_unit_test(tokenizer_as_asked_for),
        cmocka_unit_test(mixed_sources_and_vocabularies),
        cmocka_unit_test(errors),
        cmocka_unit_test(ids_beyond_the_header_are_caught),
        cmocka_unit_test(stories_have_to_be_named),
        cmocka_unit_test(stories_are_sources),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

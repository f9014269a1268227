/* What the tests of this layer share: a folder of their own, a configuration, a tokenizer of bytes.
 */
#ifndef SOTTO_TESTS_DATA_FIXTURE_H
#define SOTTO_TESTS_DATA_FIXTURE_H

#include "base/scratch.h"

#include "base/json.h"
#include "data/loader.h"
#include "data/text/token_files.h"

/* The path of a file of that name with these bytes; valid until four calls later. */
static inline const char *make_file(const char *name, const void *data, size_t size)
{
    static char paths[4][FILE_PATH_ROOM];
    static int turn;
    char *path = paths[turn++ % 4];
    assert_int_equal(file_join(path, scratch, name), SOTTO_OK);
    assert_int_equal(file_write(path, data, size), SOTTO_OK);
    return path;
}

static inline const char *make_text(const char *name, const char *text)
{
    return make_file(name, text, strlen(text));
}

/* The defaults with this source; in place, since a configuration holds a quarter of a megabyte. */
static inline void config_source(struct data_config *config, const char *train)
{
    data_defaults(config);
    snprintf(config->train, sizeof config->train, "%s", train);
}

static inline struct data_config config_for(const char *train)
{
    struct data_config config;
    config_source(&config, train);
    return config;
}

/* 256 bytes, in GPT-2's order and spelling, and the end token; an id a byte. */
static inline struct tokenizer *byte_tokenizer(void)
{
    json_t *vocab = json_object();
    int id = 0;
    for (int pass = 0; pass < 2;
         pass++) { /* those that print as themselves first, then the rest from 256 on */
        for (int byte = 0, other = 256; byte < 256; byte++) {
            bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
            int c = prints ? byte : other++;
            char key[3] = {(char)c};
            if (c >= 0x80) {
                key[0] = (char)(0xc0 | c >> 6);
                key[1] = (char)(0x80 | (c & 0x3f));
            }
            if (prints == (pass == 0))
                json_object_set_new(vocab, key, json_integer(id++));
        }
    }
    json_t *root = json_pack("{s:[{s:i,s:s,s:b}],s:{s:s,s:b},s:{s:s},s:{s:s,s:o,s:[]}}",
                             "added_tokens", "id", 256, "content", "<|endoftext|>", "special", 1,
                             "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "decoder",
                             "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    struct tokenizer *tokenizer;
    assert_non_null(text);
    if (tokenizer_parse(&tokenizer, text, strlen(text), "bytes") != SOTTO_OK)
        fail_with("%s", sotto_error());
    assert_int_equal(tokenizer_vocab_size(tokenizer), 257);
    assert_int_equal(tokenizer_end(tokenizer), 256);
    free(text);
    json_decref(root);
    return tokenizer;
}

static inline void assert_error(enum sotto_status got, enum sotto_status want, const char *part)
{
    assert_int_equal(got, want);
    if (!strstr(sotto_error(), part))
        fail_with("the message \"%s\" does not say \"%s\"", sotto_error(), part);
}

/* Opens, and reports failure with the message. */
static inline struct loader *open_loader(const struct data_config *config, enum data_split split,
                                         const struct tokenizer *tokenizer)
{
    struct loader *loader;
    if (loader_open(&loader, config, split, tokenizer) != SOTTO_OK)
        fail_with("loader_open: %s", sotto_error());
    return loader;
}

/* A token file in which token i of `count` has the id first + i. */
static inline const char *make_counting(const char *name, int32_t first, int count, int64_t vocab)
{
    static char paths[8][FILE_PATH_ROOM];
    static int turn;
    char *path = paths[turn++ % 8];
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < count; i++)
        ids[i] = first + i;
    assert_int_equal(file_join(path, scratch, name), SOTTO_OK);
    assert_int_equal(tokens_save(path, ids, count, vocab), SOTTO_OK);
    free(ids);
    return path;
}

#endif

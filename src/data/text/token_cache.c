/* Tokenization, and the folder of cached tokens.
 *
 * The name of a cached file is a hash of everything that determines the ids: the file's path, size
 * and time of change (of stories, the text), the format, and the tokenizer's contents. A stale file
 * is never read, and not removed. */
#define _GNU_SOURCE /* realpath */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "data/text/source.h"

static enum sotto_status mix_document(void *arg, const char *text, size_t size)
{
    uint64_t *hash = arg;
    *hash = hash_bytes(hash_bytes(*hash, &size, sizeof size), text, size);
    return SOTTO_OK;
}

/* Hashes the contents of the tokenizer, by saving it to a file. */
static enum sotto_status mix_tokenizer(uint64_t *hash, const struct tokenizer *tokenizer,
                                       const char *folder)
{
    char path[FILE_PATH_ROOM], *text;
    size_t size;
    TRY(file_join(path, folder, "tokenizer.XXXXXX"));
    int fd = mkstemp(path);
    if (fd < 0)
        return fail_errno(SOTTO_EIO, "cannot write into the cache folder %s", folder);
    close(fd);
    enum sotto_status st = tokenizer_save(tokenizer, path);
    if (st == SOTTO_OK)
        st = file_read(path, SIZE_MAX - 1, &text, &size);
    unlink(path);
    TRY(st);
    *hash = hash_bytes(*hash, text, size);
    free(text);
    return SOTTO_OK;
}

static enum sotto_status cache_path(char out[FILE_PATH_ROOM], const struct source_spec *spec,
                                    const char *folder, const struct tokenizer *tokenizer)
{
    const int version = 2; /* of the encoding; since 2 with the post-processor's tokens */
    uint64_t hash = hash_bytes(HASH_START, &version, sizeof version);
    TRY(file_make_directories(folder));
    if (spec->format == DATA_STORIES) {
        TRY(source_visit(spec, mix_document, &hash));
    } else {
        struct stat info;
        char *full = realpath(spec->path, NULL);
        if (!full || stat(full, &info) != 0) {
            free(full);
            return fail_errno(SOTTO_EIO, "cannot open %s", spec->path);
        }
        int64_t facts[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, spec->format};
        hash = hash_bytes(hash_bytes(hash, full, strlen(full) + 1), facts, sizeof facts);
        free(full);
        if (spec->format == DATA_JSONL)
            hash = hash_bytes(hash, spec->text_key, strlen(spec->text_key) + 1);
    }
    const int end = tokenizer_end(tokenizer); /* perhaps from tokenizer_config.json */
    hash = hash_bytes(hash, &end, sizeof end);
    TRY(mix_tokenizer(&hash, tokenizer, folder));
    char name[64];
    snprintf(name, sizeof name, "%016llx.bin", (unsigned long long)hash);
    return file_join(out, folder, name);
}

struct source_encoding {
    const struct tokenizer *tokenizer;
    struct token_list ids;
    int64_t documents;
};

static enum sotto_status encode_document(void *arg, const char *text, size_t size)
{
    struct source_encoding *e = arg;
    e->documents++;
    return tokenizer_encode_document(e->tokenizer, text, size, &e->ids);
}

/* Opens a cached file. The tokenizer is part of the hash, but ids are checked against the header.
 */
static enum sotto_status open_cached(struct tokens *out, const char *path, int vocab)
{
    TRY(tokens_open(out, path, false));
    if (out->vocab == vocab)
        return SOTTO_OK;
    enum sotto_status st =
        fail(SOTTO_EFORMAT, "%s: vocabulary of %lld in the header, the tokenizer has %d", path,
             (long long)out->vocab, vocab);
    tokens_close(out);
    return st;
}

enum sotto_status source_tokenize(struct tokens *out, const struct source_spec *spec,
                                  const char *cache, const struct tokenizer *tokenizer)
{
    char path[FILE_PATH_ROOM] = "";
    if (cache[0]) {
        TRY(cache_path(path, spec, cache, tokenizer));
        if (file_exists(path)) {
            if (open_cached(out, path, tokenizer_vocab_size(tokenizer)) == SOTTO_OK)
                return SOTTO_OK;
            log_warn("the cached tokens of %s are made again: %s", spec->path, sotto_error());
        }
    }
    source_warn_encoding(spec);
    struct source_encoding encoding = {.tokenizer = tokenizer};
    enum sotto_status st = source_visit(spec, encode_document, &encoding);
    if (st == SOTTO_OK && encoding.ids.count == 0)
        st = fail(SOTTO_EFORMAT, "%s has no tokens", spec->path);
    if (st != SOTTO_OK) {
        free(encoding.ids.data);
        return st;
    }
    if (encoding.documents > 1 && tokenizer_end(tokenizer) < 0 && tokenizer_begin(tokenizer) < 0)
        log_warn("the tokenizer has no token that ends a text: nothing parts the %lld documents of "
                 "%s",
                 (long long)encoding.documents, spec->path);
    int vocab = tokenizer_vocab_size(tokenizer);
    int64_t count = (int64_t)encoding.ids.count;
    if (path[0] && tokens_save(path, encoding.ids.data, count, vocab) != SOTTO_OK)
        log_warn("the tokens of %s are not cached: %s", spec->path, sotto_error());
    tokens_adopt(out, encoding.ids.data, count, vocab);
    return SOTTO_OK;
}

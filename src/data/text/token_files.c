#include "data/text/token_files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER = 32,
    VERSION = 1,
    LLMC_HEADER = 256 * 4, /* int32 magic, version, count, zeros */
    LLMC_GPT2 = 20240520,  /* version 1: uint16 */
    LLMC_LLAMA3 = 20240801 /* version 7: uint32 */
};
static const char magic[8] = {'S', 'O', 'T', 'T', 'O', 'T', 'O', 'K'};

static uint32_t read_uint32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t read_uint64(const uint8_t *p)
{
    return read_uint32(p) | (uint64_t)read_uint32(p + 4) << 32;
}

static void put_little_endian(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t token_at(const struct tokens *t, int64_t i)
{
    const uint8_t *p = t->data + i * t->width;
    if (t->owned)
        return (uint32_t)t->owned[i];
    return t->width == 2 ? p[0] | (uint32_t)p[1] << 8 : read_uint32(p);
}

/* Returns the largest id. Blocks of a fixed size let the compiler vectorise the inner loop. */
static uint32_t largest_id(const struct tokens *t)
{
    enum { BLOCK = 64 };
    const uint8_t *p = t->data;
    uint32_t top[BLOCK] = {0}, max = 0;
    int64_t i = 0;
    if (t->width == 2)
        for (; i + BLOCK <= t->count; i += BLOCK, p += BLOCK * 2)
            for (int j = 0; j < BLOCK; j++) {
                uint32_t id = p[2 * j] | (uint32_t)p[2 * j + 1] << 8;
                top[j] = id > top[j] ? id : top[j];
            }
    else
        for (; i + BLOCK <= t->count; i += BLOCK, p += BLOCK * 4)
            for (int j = 0; j < BLOCK; j++) {
                uint32_t id = read_uint32(p + 4 * j);
                top[j] = id > top[j] ? id : top[j];
            }
    for (; i < t->count; i++)
        max = token_at(t, i) > max ? token_at(t, i) : max;
    for (int j = 0; j < BLOCK; j++)
        max = top[j] > max ? top[j] : max;
    return max;
}

static enum sotto_status parse_own(struct tokens *t, const uint8_t *data, size_t size,
                                   const char *name)
{
    if (size < HEADER)
        return fail(SOTTO_EFORMAT, "%s: header is cut off after %zu bytes", name, size);
    uint32_t version = read_uint32(data + 8), width = read_uint32(data + 12);
    uint64_t vocab = read_uint64(data + 16), count = read_uint64(data + 24);
    if (version != VERSION)
        return fail(SOTTO_EFORMAT, "%s: token file of version %u, want %d", name, version, VERSION);
    if (width != 2 && width != 4)
        return fail(SOTTO_EFORMAT, "%s: header has %u bytes an id, want 2 or 4", name, width);
    if (vocab < 1 || vocab > INT32_MAX)
        return fail(SOTTO_EFORMAT, "%s: header has a vocabulary of %llu, want 1 to %d", name,
                    (unsigned long long)vocab, INT32_MAX);
    if ((size - HEADER) % width != 0 || count != (size - HEADER) / width)
        return fail(SOTTO_EFORMAT,
                    "%s: header has %llu tokens of %u bytes, file has %zu bytes of them", name,
                    (unsigned long long)count, width, size - HEADER);
    t->data = data + HEADER;
    t->width = (int)width;
    t->count = (int64_t)count;
    t->vocab = (int64_t)vocab;
    return SOTTO_OK;
}

/* Parses an llm.c file. llm.c counts in an int32, so larger shards do not exist. */
static enum sotto_status parse_llmc(struct tokens *t, const uint8_t *data, size_t size,
                                    const char *name)
{
    if (size < LLMC_HEADER)
        return fail(SOTTO_EFORMAT, "%s: header is cut off after %zu bytes", name, size);
    bool gpt2 = read_uint32(data) == LLMC_GPT2;
    uint32_t version = read_uint32(data + 4), count = read_uint32(data + 8), want = gpt2 ? 1 : 7;
    int width = gpt2 ? 2 : 4;
    if (version != want)
        return fail(SOTTO_EFORMAT, "%s: llm.c token file of version %u, want %u", name, version,
                    want);
    if (count != (uint64_t)(size - LLMC_HEADER) / (unsigned)width ||
        (size - LLMC_HEADER) % (unsigned)width)
        return fail(SOTTO_EFORMAT,
                    "%s: header has %u tokens of %d bytes, file has %zu bytes of them", name, count,
                    width, size - LLMC_HEADER);
    t->data = data + LLMC_HEADER;
    t->width = width;
    t->count = count;
    return SOTTO_OK;
}

static enum sotto_status parse_raw(struct tokens *t, const uint8_t *data, size_t size,
                                   const char *name)
{
    if (tokens_recognise(data, size))
        return fail(SOTTO_EFORMAT, "%s has a header: it is not raw uint16", name);
    if (size % 2 != 0)
        return fail(SOTTO_EFORMAT, "%s: %zu bytes are not a whole number of uint16", name, size);
    t->data = data;
    t->width = 2;
    t->count = (int64_t)(size / 2);
    return SOTTO_OK;
}

bool tokens_recognise(const uint8_t *data, size_t size)
{
    if (size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0)
        return true;
    return size >= 4 && (read_uint32(data) == LLMC_GPT2 || read_uint32(data) == LLMC_LLAMA3);
}

enum sotto_status tokens_parse(struct tokens *tokens, const uint8_t *data, size_t size,
                               const char *name, bool raw)
{
    *tokens = (struct tokens){0};
    if (size == 0)
        return fail(SOTTO_EFORMAT, "%s is empty", name);
    if (raw)
        TRY(parse_raw(tokens, data, size, name));
    else if (!tokens_recognise(data, size))
        return fail(SOTTO_EFORMAT,
                    "%s has no header of a token file (raw uint16 needs format = raw16)", name);
    else if (memcmp(data, magic, 4) == 0)
        TRY(parse_own(tokens, data, size, name));
    else
        TRY(parse_llmc(tokens, data, size, name));
    if (tokens->count == 0)
        return fail(SOTTO_EFORMAT, "%s has no tokens", name);
    if (tokens->vocab == 0) {
        uint32_t max = largest_id(tokens);
        if (max >= INT32_MAX)
            return fail(SOTTO_EFORMAT, "%s: id %u is out of range", name, max);
        tokens->vocab = (int64_t)max + 1;
    }
    return SOTTO_OK;
}

enum sotto_status tokens_open(struct tokens *tokens, const char *path, bool raw)
{
    struct file_map map;
    *tokens = (struct tokens){0};
    TRY(file_map_open(&map, path));
    enum sotto_status st = tokens_parse(tokens, map.data, map.size, path, raw);
    if (st != SOTTO_OK) {
        file_map_close(&map);
        *tokens = (struct tokens){0};
        return st;
    }
    tokens->map = map;
    return SOTTO_OK;
}

void tokens_adopt(struct tokens *tokens, int32_t *ids, int64_t count, int64_t vocab)
{
    *tokens = (struct tokens){
        .data = (const uint8_t *)ids, .width = 4, .count = count, .vocab = vocab, .owned = ids};
}

void tokens_close(struct tokens *tokens)
{
    file_map_close(&tokens->map);
    free(tokens->owned);
    *tokens = (struct tokens){0};
}

enum sotto_status tokens_copy(const struct tokens *tokens, int64_t start, int64_t count,
                              int32_t *out)
{
    assert(start >= 0 && count >= 0 && start <= tokens->count - count);
    if (tokens->owned) {
        memcpy(out, tokens->owned + start, (size_t)count * sizeof *out);
        return SOTTO_OK;
    }
    uint32_t max = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t id = token_at(tokens, start + i);
        out[i] = (int32_t)id;
        max = id > max ? id : max;
    }
    if (max < tokens->vocab)
        return SOTTO_OK;
    int64_t at = start;
    while (token_at(tokens, at) < tokens->vocab)
        at++;
    return fail(SOTTO_EFORMAT, "token %lld has id %u, the header has a vocabulary of %lld",
                (long long)at, token_at(tokens, at), (long long)tokens->vocab);
}

enum sotto_status tokens_save(const char *path, const int32_t *ids, int64_t count, int64_t vocab)
{
    enum { CHUNK = 4096 };
    int width = vocab <= UINT16_MAX + 1 ? 2 : 4;
    uint8_t bytes[CHUNK * 4];
    struct file_draft draft;
    if (vocab < 1 || vocab > INT32_MAX)
        return fail(SOTTO_EINVAL, "%s: vocabulary of %lld, want 1 to %d", path, (long long)vocab,
                    INT32_MAX);
    TRY(file_draft_open(&draft, path));
    enum sotto_status st;
    memcpy(bytes, magic, sizeof magic);
    put_little_endian(bytes + 8, VERSION, 4);
    put_little_endian(bytes + 12, (uint64_t)width, 4);
    put_little_endian(bytes + 16, (uint64_t)vocab, 8);
    put_little_endian(bytes + 24, (uint64_t)count, 8);
    TRY_DONE(file_put(&draft, bytes, HEADER));
    for (int64_t i = 0; i < count;) {
        int n = 0;
        for (; n < CHUNK && i < count; n++, i++) {
            if (ids[i] < 0 || ids[i] >= vocab) {
                st = fail(SOTTO_EINVAL, "%s: token %lld has id %d, the vocabulary is %lld", path,
                          (long long)i, ids[i], (long long)vocab);
                goto done;
            }
            put_little_endian(bytes + n * width, (uint64_t)ids[i], width);
        }
        TRY_DONE(file_put(&draft, bytes, (size_t)(n * width)));
    }
    return file_commit(&draft);
done:
    file_abort(&draft);
    return st;
}

/* Files that may be compressed. A few bytes may expand to any size: only the bytes that an IDX
 * header claims are taken, and memory grows with the decompressed bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/image/set.h"

#ifdef SOTTO_WITH_ZLIB
#include <limits.h>
#include <zlib.h>
#endif

static bool is_compressed(const uint8_t *data, size_t size)
{
    return size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

enum sotto_status image_bytes_open(struct image_bytes *b, const char *path)
{
    struct file_map map;
    uint8_t *made = NULL;
    *b = (struct image_bytes){0};
    TRY(file_map_open(&map, path));
    b->map.data = map.data;
    b->map.size = map.size;
    b->data = map.data;
    b->size = map.size;
    if (!is_compressed(map.data, map.size))
        return SOTTO_OK;
    enum sotto_status st = image_inflate(map.data, map.size, path, &made, &b->size);
    b->owned = made;
    b->data = made;
    if (st != SOTTO_OK)
        image_bytes_close(b);
    return st;
}

void image_bytes_close(struct image_bytes *b)
{
    struct file_map map = {b->map.data, b->map.size};
    file_map_close(&map);
    free(b->owned);
    *b = (struct image_bytes){0};
}

#ifdef SOTTO_WITH_ZLIB

struct inflate_state {
    z_stream z;
    uint8_t *data;
    size_t size, room;
    const char *name;
};

/* Decompresses until there are `want` bytes or the stream ends. */
static enum sotto_status inflate_more(struct inflate_state *f, size_t want, bool *end)
{
    while (f->size < want && !*end) {
        if (f->size == f->room) {
            const size_t room = 2 * f->room + 4096;
            uint8_t *data = realloc(f->data, room < want ? room : want);
            if (!data)
                return fail(SOTTO_ENOMEM, "no memory for %zu bytes of %s", want, f->name);
            f->data = data;
            f->room = room < want ? room : want;
        }
        const size_t left = f->room - f->size;
        const uInt ask = left < INT_MAX ? (uInt)left : INT_MAX;
        f->z.next_out = f->data + f->size;
        f->z.avail_out = ask;
        const int rc = inflate(&f->z, Z_NO_FLUSH);
        f->size += ask - f->z.avail_out;
        *end = rc == Z_STREAM_END;
        if (rc != Z_OK && rc != Z_STREAM_END)
            return fail(SOTTO_EFORMAT, "%s: its compressed bytes are damaged or end too soon (%s)",
                        f->name, f->z.msg ? f->z.msg : "no more input");
    }
    return SOTTO_OK;
}

static enum sotto_status inflate_all(struct inflate_state *f)
{
    enum { HEAD = 16 };
    bool end = false;
    uint8_t extra;
    TRY(inflate_more(f, HEAD, &end));
    const uint64_t claims = idx_claims(f->data, f->size);
    if (!claims)
        return fail(SOTTO_EFORMAT, "%s: the compressed data are not IDX of bytes", f->name);
    if (claims > SIZE_MAX / 2)
        return fail(SOTTO_EFORMAT, "%s claims %llu bytes", f->name, (unsigned long long)claims);
    TRY(inflate_more(f, (size_t)claims, &end));
    if (f->size < claims)
        return fail(SOTTO_EFORMAT, "%s ends after %zu bytes, but its header claims %llu", f->name,
                    f->size, (unsigned long long)claims);
    if (end && f->size == claims)
        return SOTTO_OK;
    f->z.next_out = &extra;
    f->z.avail_out = 1;
    if (f->size > claims || inflate(&f->z, Z_NO_FLUSH) != Z_STREAM_END || f->z.avail_out == 0)
        return fail(SOTTO_EFORMAT, "%s continues after the %llu bytes that its header claims",
                    f->name, (unsigned long long)claims);
    return SOTTO_OK;
}

enum sotto_status image_inflate(const uint8_t *data, size_t size, const char *name, uint8_t **out,
                                size_t *out_size)
{
    enum { GZIP = 16 };
    struct inflate_state f = {.name = name};
    *out = NULL;
    *out_size = 0;
    if (size > UINT_MAX)
        return fail(SOTTO_EFORMAT, "%s has %zu bytes: unpack it with gunzip", name, size);
    f.z.next_in = (z_const Bytef *)data;
    f.z.avail_in = (uInt)size;
    if (inflateInit2(&f.z, GZIP + MAX_WBITS) != Z_OK)
        return fail(SOTTO_ENOMEM, "no memory to uncompress %s", name);
    enum sotto_status st = inflate_all(&f);
    inflateEnd(&f.z);
    if (st != SOTTO_OK) {
        free(f.data);
        return st;
    }
    *out = f.data;
    *out_size = f.size;
    return SOTTO_OK;
}

#else

enum sotto_status image_inflate(const uint8_t *data, size_t size, const char *name, uint8_t **out,
                                size_t *out_size)
{
    (void)data, (void)size;
    *out = NULL;
    *out_size = 0;
    return fail(SOTTO_EINVAL,
                "%s is compressed, and this build has no zlib: unpack it with gunzip, or install "
                "zlib1g-dev and build again",
                name);
}

#endif

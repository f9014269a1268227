/* FNV-1a, 64 bits: for names and fingerprints, not against an adversary. */
#ifndef SOTTO_BASE_HASH_H
#define SOTTO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START 0xcbf29ce484222325u

/* Extends `hash` by `bytes` bytes; the first call passes HASH_START. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static inline uint64_t hash_text(const char *text)
{
    return hash_bytes(HASH_START, text, strlen(text));
}

#endif

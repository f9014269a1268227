/* libFuzzer: any bytes as a safetensors file. What the reader accepts must be readable to the last
 * byte, and cover the data exactly. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned touch(const struct safetensors_entry *e)
{
    unsigned sum = 0;
    for (size_t i = 0; i < e->bytes; i++)
        sum += e->data[i];
    if (e->type == SAFETENSORS_OTHER)
        return sum;
    assert(e->count * safetensors_type_size(e->type) == e->bytes);
    float *f = malloc(e->count * sizeof *f + 1);
    int64_t *n = malloc(e->count * sizeof *n + 1);
    if (f && safetensors_read_f32(e, f) == SOTTO_OK && e->count) {
        float last;
        enum sotto_status st = safetensors_read_f32_range(e, e->count - 1, 1, &last);
        assert(st == SOTTO_OK && memcmp(&last, &f[e->count - 1], 4) == 0);
        (void)st;
    }
    if (n)
        sum += safetensors_read_i64(e, n) == SOTTO_OK;
    free(f);
    free(n);
    return sum;
}

static void check(const uint8_t *data, size_t size)
{
    struct safetensors set;
    if (safetensors_open_memory(&set, data, size, "input") != SOTTO_OK) {
        assert(*sotto_error());
        return;
    }
    size_t bytes = 0;
    volatile unsigned sum = 0; /* so that the reads are made */
    for (size_t i = 0; i < set.count; i++) {
        const struct safetensors_entry *e = &set.entry[i];
        assert(safetensors_find(&set, e->name) == e);
        assert(e->data >= data && e->data + e->bytes <= data + size);
        bytes += e->bytes;
        sum += touch(e);
    }
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | data[i];
    assert(bytes == size - 8 - header);
    (void)sum;
    safetensors_metadata(&set, "format");
    safetensors_close(&set);
}

/* As it is; and as a header of everything up to the last '}' with the rest as data, since mutations
 * seldom keep the length in front of the header right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    size_t header = size;
    while (header && data[header - 1] != '}')
        header--;
    uint8_t *framed = malloc(8 + size);
    if (!framed)
        return 0;
    for (int i = 0; i < 8; i++)
        framed[i] = (uint8_t)((uint64_t)header >> (8 * i));
    if (size)
        memcpy(framed + 8, data, size);
    check(framed, 8 + size);
    free(framed);
    return 0;
}

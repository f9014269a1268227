#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/bpe.h"

enum sotto_status bpe_buffer_reserve(struct bpe_buffer *buffer, size_t more)
{
    if (buffer->data && more <= buffer->room - buffer->count)
        return SOTTO_OK;
    size_t room = buffer->count + more;
    room += room / 2 + 64;
    char *data = realloc(buffer->data, room);
    if (!data)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of text", room);
    buffer->data = data;
    buffer->room = room;
    return SOTTO_OK;
}

enum sotto_status bpe_buffer_add(struct bpe_buffer *buffer, const void *data, size_t bytes)
{
    TRY(bpe_buffer_reserve(buffer, bytes));
    if (bytes)
        memcpy(buffer->data + buffer->count, data, bytes);
    buffer->count += bytes;
    return SOTTO_OK;
}

const char *bpe_show(char out[48], const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size;) {
        int length = bpe_utf8_length((const uint8_t *)text + i, size - i);
        if (n + (size_t)(length ? length : 1) > 40)
            return strcpy(out + n, "..."), out;
        if (length <= 1)
            out[n++] = length == 0 || (uint8_t)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
        else
            memcpy(out + n, text + i, (size_t)length), n += (size_t)length;
        i += (size_t)(length ? length : 1);
    }
    out[n] = '\0';
    return out;
}

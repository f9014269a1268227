#include "data/string_buffer.h"

#include <stdlib.h>
#include <string.h>

void text_put(struct text *text, const char *bytes, size_t count)
{
    if (text->failed)
        return;
    if (text->size + count + 1 > text->room) {
        size_t room = 2 * text->room + count + 64;
        char *more = realloc(text->data, room);
        if (!more) {
            text->failed = true;
            return;
        }
        text->data = more;
        text->room = room;
    }
    if (count)
        memcpy(text->data + text->size, bytes, count);
    text->size += count;
    text->data[text->size] = '\0';
}

void text_add(struct text *text, const char *string)
{
    text_put(text, string, strlen(string));
}

void text_char(struct text *text, char c)
{
    text_put(text, &c, 1);
}

void text_clear(struct text *text)
{
    text->size = 0;
    if (text->data)
        text->data[0] = '\0';
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

enum sotto_status text_status(const struct text *text)
{
    return text->failed ? fail(SOTTO_ENOMEM, "no memory for a text of %zu bytes", text->size)
                        : SOTTO_OK;
}

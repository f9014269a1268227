#include "data/tokenizer/token_list.h"

#include <stdlib.h>

enum sotto_status token_list_reserve(struct token_list *list, size_t more)
{
    if (more <= list->room - list->count)
        return SOTTO_OK;
    size_t room = list->count + more;
    room += room / 2 + 64;
    int32_t *data = realloc(list->data, room * sizeof *data);
    if (!data)
        return fail(SOTTO_ENOMEM, "no memory for %zu token ids", room);
    list->data = data;
    list->room = room;
    return SOTTO_OK;
}

enum sotto_status token_list_add(struct token_list *list, int32_t id)
{
    TRY(token_list_reserve(list, 1));
    list->data[list->count++] = id;
    return SOTTO_OK;
}

#include "nn/arch/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *model_begin(struct model *m, const struct layer_ops *ops, size_t bytes)
{
    if (m->n_layer == m->room) {
        int room = m->room ? 2 * m->room : 32;
        struct layer **more = realloc(m->layer, (size_t)room * sizeof *more);
        if (!more)
            return NULL;
        m->layer = more;
        m->room = room;
    }
    struct layer *layer = calloc(1, bytes);
    if (!layer)
        return NULL;
    layer->ops = ops;
    m->layer[m->n_layer++] = layer;
    return layer;
}

int model_state(struct model *m, bool ones, int d0, const char *format, ...)
{
    char name[TABLE_NAME_ROOM];
    const int64_t shape[TABLE_DIMS] = {d0};
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    int index = table_add(&m->state, name, shape, ones ? TABLE_ONE : TABLE_ZERO, 0);
    m->no_memory |= index < 0;
    return index;
}

static int add(struct model *m, enum table_init init, double std, int d0, int d1,
               const char *format, va_list args)
{
    char name[TABLE_NAME_ROOM];
    vsnprintf(name, sizeof name, format, args);
    const int64_t shape[TABLE_DIMS] = {d0, d1};
    int index = table_add(&m->table, name, shape, init, (float)std);
    if (index >= 0)
        m->table.entry[index].stage = m->n_layer - 1; /* its layer, until stages are known */
    else
        m->no_memory = true;
    return index;
}

int model_matrix(struct model *m, double std, int d0, int d1, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add(m, TABLE_NORMAL, std, d0, d1, format, args);
    va_end(args);
    return index;
}

int model_ones(struct model *m, int d0, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add(m, TABLE_ONE, 0, d0, 0, format, args);
    va_end(args);
    return index;
}

int model_zeros(struct model *m, int d0, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add(m, TABLE_ZERO, 0, d0, 0, format, args);
    va_end(args);
    return index;
}

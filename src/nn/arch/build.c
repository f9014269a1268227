#include "nn/arch/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void *model_split(struct model *m, const struct layer_ops *ops, size_t bytes)
{
    struct layer *layer = model_begin(m, ops, bytes);
    if (!layer)
        return NULL;
    memcpy(layer, m->layer[m->n_layer - 2], bytes);
    layer->ops = ops;
    return layer;
}

void model_take(struct model *m, int tensor)
{
    if (tensor >= 0)
        m->table.entry[tensor].stage = m->n_layer - 1;
}

static int add_state(struct model *m, enum table_init init, int d0, enum table_form form,
                     const char *format, va_list args)
{
    char name[TABLE_NAME_ROOM];
    const int64_t shape[TABLE_DIMS] = {d0};
    vsnprintf(name, sizeof name, format, args);
    int index = table_add(&m->state, name, shape, init, 0);
    if (index >= 0)
        m->state.entry[index].form = form;
    else
        m->no_memory = true;
    return index;
}

int model_state(struct model *m, bool ones, int d0, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add_state(m, ones ? TABLE_ONE : TABLE_ZERO, d0, FORM_PLAIN, format, args);
    va_end(args);
    return index;
}

int model_counter(struct model *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add_state(m, TABLE_ZERO, 0, FORM_COUNTER, format, args);
    va_end(args);
    return index;
}

static int add_shape(struct model *m, enum table_init init, double std,
                     const int64_t shape[TABLE_DIMS], const char *format, va_list args)
{
    char name[TABLE_NAME_ROOM];
    vsnprintf(name, sizeof name, format, args);
    int index = table_add(&m->table, name, shape, init, (float)std);
    if (index >= 0)
        m->table.entry[index].stage = m->n_layer - 1; /* the layer until stages are known */
    else
        m->no_memory = true;
    return index;
}

static int add_tensor(struct model *m, enum table_init init, double std, int d0, int d1,
                      const char *format, va_list args)
{
    return add_shape(m, init, std, (const int64_t[TABLE_DIMS]){d0, d1}, format, args);
}

int model_cube(struct model *m, double std, int d0, int d1, int d2, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int64_t shape[TABLE_DIMS] = {d0, d1, d2};
    int index = add_shape(m, TABLE_NORMAL, std, shape, format, args);
    va_end(args);
    return index;
}

int model_kernel(struct model *m, double std, int out, int kernel, int in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int64_t shape[TABLE_DIMS] = {out, kernel, kernel, in};
    int index = add_shape(m, TABLE_NORMAL, std, shape, format, args);
    va_end(args);
    if (index >= 0)
        m->table.entry[index].form = FORM_KERNEL;
    return index;
}

int model_matrix(struct model *m, double std, int d0, int d1, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add_tensor(m, TABLE_NORMAL, std, d0, d1, format, args);
    va_end(args);
    return index;
}

int model_ones(struct model *m, int d0, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add_tensor(m, TABLE_ONE, 0, d0, 0, format, args);
    va_end(args);
    return index;
}

int model_zeros(struct model *m, int d0, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int index = add_tensor(m, TABLE_ZERO, 0, d0, 0, format, args);
    va_end(args);
    return index;
}

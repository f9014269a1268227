#include "nn/arch/arch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct arch *const archs[] = {
    [ARCH_GPT2] = &arch_gpt2,
    [ARCH_GPT_NEO] = &arch_gpt_neo,
    [ARCH_LLAMA] = &arch_llama,
    [ARCH_OLMO2] = &arch_olmo2,
};

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

enum sotto_status arch_read(struct model_config *c, const json_t *json,
                            const struct arch_member *table, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *value = json_object_get(json, table[i].hf);
        void *to = (char *)c + table[i].offset;
        if (!value || json_is_null(value)) {
            if (table[i].required)
                return fail(SOTTO_EFORMAT, "\"%s\" is missing", table[i].hf);
        } else if (table[i].real && json_is_number(value)) {
            *(double *)to = json_number_value(value);
        } else if (!table[i].real && json_is_integer(value)) {
            json_int_t number = json_integer_value(value);
            if (number < 0 || number > 1 << 24)
                return fail(SOTTO_EFORMAT, "\"%s\" = %lld is out of range", table[i].hf,
                            (long long)number);
            *(int *)to = (int)number;
        } else {
            return fail(SOTTO_EFORMAT, "\"%s\" must be %s, got %s", table[i].hf,
                        table[i].real ? "a number" : "an integer", json_kind(value));
        }
    }
    const json_t *tied = json_object_get(json, "tie_word_embeddings");
    if (!tied || json_is_null(tied))
        return SOTTO_OK;
    if (!json_is_boolean(tied))
        return fail(SOTTO_EFORMAT, "\"tie_word_embeddings\" must be true or false, got %s",
                    json_kind(tied));
    c->tied = json_is_true(tied) ? TIED_YES : TIED_NO;
    return SOTTO_OK;
}

json_t *arch_write(const struct model_config *c, const struct arch_member *table, int n,
                   const char *hf_class)
{
    json_t *json = json_object();
    json_object_set_new(json, "architectures", json_pack("[s]", hf_class));
    for (int i = 0; i < n; i++) {
        const void *from = (const char *)c + table[i].offset;
        json_object_set_new(json, table[i].hf,
                            table[i].real ? json_real(*(const double *)from)
                                          : json_integer(*(const int *)from));
    }
    return json;
}

enum sotto_status arch_expect(const json_t *json, const char *key, const char *const *known)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return SOTTO_OK;
    if (!json_is_string(value))
        return fail(SOTTO_EFORMAT, "\"%s\" must be a string, got %s", key, json_kind(value));
    for (int i = 0; known[i]; i++)
        if (strcmp(known[i], json_string_value(value)) == 0)
            return SOTTO_OK;
    return fail(SOTTO_EFORMAT, "\"%s\" = \"%s\" is not supported: want \"%s\"", key,
                json_string_value(value), known[0]);
}

float *arch_frequencies(const struct model_config *c)
{
    int half = c->head_width / 2;
    float *f = malloc((size_t)half * sizeof *f);
    for (int i = 0; f && i < half; i++)
        f[i] = (float)(1.0 / pow(c->rope_theta, 2.0 * i / c->head_width));
    return f;
}

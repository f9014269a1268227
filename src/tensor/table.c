#include "tensor/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int table_add(struct table *table, const char *name, const int64_t *shape, enum table_init init,
              float std)
{
    if (table->n == table->room) {
        int room = table->room ? 2 * table->room : 64;
        struct table_entry *more = realloc(table->entry, (size_t)room * sizeof *more);
        if (!more)
            return -1;
        table->entry = more;
        table->room = room;
    }
    struct table_entry *e = &table->entry[table->n];
    *e = (struct table_entry){.count = 1, .init = init, .std = std};
    assert(strlen(name) < sizeof e->name);
    strcpy(e->name, name);
    for (; e->ndim < TABLE_DIMS && shape[e->ndim]; e->ndim++) {
        e->shape[e->ndim] = shape[e->ndim];
        e->count *= (size_t)shape[e->ndim];
    }
    table->parameters += e->count;
    return table->n++;
}

enum sotto_status table_layout(struct table *table, int n_stage, int pad)
{
    table->n_stage = n_stage;
    table->stage_start = calloc((size_t)n_stage + 1, sizeof *table->stage_start);
    if (!table->stage_start)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n_stage);
    size_t start = 0;
    for (int k = 0; k < n_stage; k++) {
        size_t length = 0;
        for (int i = 0; i < table->n; i++) {
            if (table->entry[i].stage == k) {
                table->entry[i].offset = length;
                length += table->entry[i].count;
            }
        }
        length = (length + (size_t)pad - 1) / (size_t)pad * (size_t)pad;
        table->stage_start[k] = start;
        start += length;
    }
    table->stage_start[n_stage] = start;
    return SOTTO_OK;
}

void table_free(struct table *table)
{
    free(table->entry);
    free(table->stage_start);
    *table = (struct table){0};
}

void table_written(struct table *table, int i)
{
    if (i < 0)
        return;
    assert(!table->entry[i].written);
    table->entry[i].written = true;
}

int table_find(const struct table *table, const char *name)
{
    for (int i = 0; i < table->n; i++)
        if (strcmp(table->entry[i].name, name) == 0)
            return i;
    return -1;
}

void table_stages(const struct table *table, struct view flat, struct view *stages)
{
    for (int k = 0; k < table->n_stage; k++)
        stages[k] = view_at(flat, table->stage_start[k]);
}

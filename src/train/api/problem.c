/* A caller's table of tensors: checks, and the layout of vectors. */
#include "train/api/api_impl.h"

#include <string.h>

static enum sotto_status wrong_size(const char *name, size_t has, size_t least)
{
    return fail(SOTTO_EINVAL, "struct_size of a %s is %zu: want its sizeof, at least %zu", name,
                has, least);
}

enum sotto_status api_read_struct(const char *name, void *own, size_t size, size_t least,
                                  const void *theirs)
{
    size_t has;
    if (!theirs)
        return fail(SOTTO_EINVAL, "there is no struct %s", name);
    memcpy(&has, theirs, sizeof has);
    if (has < least)
        return wrong_size(name, has, least);
    for (size_t i = size; i < has; i++)
        if (((const char *)theirs)[i])
            return fail(SOTTO_EINVAL,
                        "a %s of %zu bytes has members that this version (%zu bytes) lacks", name,
                        has, size);
    memset(own, 0, size);
    memcpy(own, theirs, has < size ? has : size);
    return SOTTO_OK;
}

enum sotto_status api_write_struct(const char *name, void *theirs, const void *own, size_t size,
                                   size_t least)
{
    size_t has;
    memcpy(&has, theirs, sizeof has);
    if (has < least)
        return wrong_size(name, has, least);
    memset(theirs, 0, has);
    memcpy(theirs, own, has < size ? has : size);
    memcpy(theirs, &has, sizeof has);
    return SOTTO_OK;
}

/* Checks a name, which checkpoints have as a key. */
static enum sotto_status check_name(const struct sotto_problem *p, int i)
{
    const char *name = p->tensors[i].name;
    if (!name || !*name)
        return fail(SOTTO_EINVAL, "tensor %d has no name", i);
    if (strlen(name) >= TABLE_NAME_ROOM)
        return fail(SOTTO_EINVAL, "tensor %d: a name of %zu characters is too long (at most %d)", i,
                    strlen(name), TABLE_NAME_ROOM - 1);
    for (const char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            return fail(SOTTO_EINVAL, "tensor %d: character %d of its name is not printable", i,
                        (int)(c - name));
    for (int j = 0; j < i; j++)
        if (strcmp(p->tensors[j].name, name) == 0)
            return fail(SOTTO_EINVAL, "tensors %d and %d are both called '%s'", j, i, name);
    return SOTTO_OK;
}

static enum sotto_status check_shape(const struct sotto_tensor *t, size_t *total)
{
    const size_t most = SIZE_MAX / 64; /* bytes of every vector can be counted */
    size_t count = 1;
    for (int d = 0, ends = 0; d < TABLE_DIMS; d++) {
        int64_t n = t->shape[d];
        if (n < 0 || (ends && n))
            return fail(SOTTO_EINVAL, "tensor '%s': dimension %d is %lld", t->name, d,
                        (long long)n);
        ends |= n == 0;
        if (n && (uint64_t)n > most / count)
            return fail(SOTTO_EINVAL, "tensor '%s' is too large", t->name);
        count *= n ? (size_t)n : 1;
    }
    if (count > most - *total)
        return fail(SOTTO_EINVAL, "tensor '%s' makes the problem too large", t->name);
    *total += count;
    return SOTTO_OK;
}

static enum sotto_status check_stage(const struct sotto_problem *p, int i)
{
    const struct sotto_tensor *t = &p->tensors[i];
    int before = i ? p->tensors[i - 1].stage : 0;
    if (p->gradient && t->stage != 0)
        return fail(SOTTO_EINVAL,
                    "tensor '%s' is of stage %d, but stages need forward and backward callbacks",
                    t->name, t->stage);
    if (t->stage != before && (i == 0 || t->stage != before + 1))
        return fail(SOTTO_EINVAL,
                    "tensor '%s' is of stage %d after stage %d: stages are 0, 1, ... "
                    "in the table's order",
                    t->name, t->stage, before);
    return SOTTO_OK;
}

static enum sotto_status check_problem(const struct sotto_problem *p)
{
    size_t total = 0;
    if (p->count < 1 || !p->tensors)
        return fail(SOTTO_EINVAL, "the problem has no tensors");
    if (p->gradient ? p->forward || p->backward : !p->forward || !p->backward)
        return fail(SOTTO_EINVAL, "the problem wants a gradient callback, or forward and backward");
    for (int i = 0; i < p->count; i++) {
        TRY(check_name(p, i));
        TRY(check_shape(&p->tensors[i], &total));
        TRY(check_stage(p, i));
    }
    const int stages = p->tensors[p->count - 1].stage + 1;
    double work = 0;
    for (int k = 0; p->work && k < stages; k++) {
        if (!(p->work[k] >= 0 && p->work[k] < 1e300))
            return fail(SOTTO_EINVAL, "the work of stage %d is %g", k, p->work[k]);
        work += p->work[k];
    }
    if (p->work && work == 0)
        return fail(SOTTO_EINVAL, "no stage has any work");
    for (int k = 1; p->edges && k < stages; k++)
        if (p->edges[k] < 1 || p->edges[k] > SIZE_MAX / 64)
            return fail(SOTTO_EINVAL, "%zu numbers pass to stage %d", p->edges[k], k);
    return SOTTO_OK;
}

enum sotto_status problem_table(const struct sotto_problem *p, int pad, struct table *out)
{
    *out = (struct table){0};
    TRY(check_problem(p));
    for (int i = 0; i < p->count; i++) {
        const struct sotto_tensor *t = &p->tensors[i];
        if (table_add(out, t->name, t->shape, TABLE_ZERO, 0) < 0) {
            table_free(out);
            return fail(SOTTO_ENOMEM, "no memory for a table of %d tensors", p->count);
        }
        out->entry[i].stage = t->stage;
    }
    enum sotto_status st = table_layout(out, p->tensors[p->count - 1].stage + 1, pad);
    if (st != SOTTO_OK)
        table_free(out);
    return st;
}

size_t sotto_problem_count(const struct sotto_problem *problem)
{
    struct sotto_problem own;
    struct table table;
    if (API_READ(sotto_problem, work, &own, problem) != SOTTO_OK ||
        problem_table(&own, 1, &table) != SOTTO_OK)
        return 0;
    size_t count = table.parameters;
    table_free(&table);
    return count;
}

void problem_pack(const struct table *table, float *padded, const float *flat)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        memcpy(padded + table->stage_start[e->stage] + e->offset, flat, e->count * sizeof *flat);
        flat += e->count;
    }
}

void problem_unpack(const struct table *table, float *flat, const float *padded)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        memcpy(flat, padded + table->stage_start[e->stage] + e->offset, e->count * sizeof *flat);
        flat += e->count;
    }
}

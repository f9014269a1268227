/* Checks that the files of a folder hold the model of config.json, and no further tensor that a
 * model is computed with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf/weights.h"
#include "hf/weights_find.h"
#include "nn/arch/arch.h"

/* Marks the tensors of the set that the model reads. */
static enum sotto_status mark_read(const struct safetensors *set, const struct model *model,
                                   const struct table *table, bool body, bool *read)
{
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const struct safetensors_entry *entry;
        if (body && weights_classify(e))
            continue;
        const enum sotto_status st = weights_find(set, model, e, &entry);
        if (!entry && e->form == FORM_COUNTER)
            continue;
        TRY(st);
        read[entry - set->entry] = true;
    }
    return SOTTO_OK;
}

static bool name_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* True if the tensor belongs to the body. A file with the outer module's names has heads next to
 * the body. */
static bool is_in_body(const struct safetensors *set, const char *name)
{
    const bool named = weights_bare_name(name) != name;
    for (size_t i = 0; i < set->count && !named; i++)
        if (weights_bare_name(set->entry[i].name) != set->entry[i].name)
            return false;
    return true;
}

/* True for a tensor that no model is computed with: tables of older versions of transformers, ViT's
 * layers for other tasks, and a classifier that the run replaces. */
static bool is_leftover(const struct safetensors *set, const struct model *model, bool body,
                        const struct safetensors_entry *e)
{
    static const char *const tables[] = {".rotary_emb.inv_freq", ".attn.bias", ".masked_bias"};
    const char *bare = weights_bare_name(e->name);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (name_ends(e->name, tables[i]))
            return true;
    if (name_ends(e->name, ".attention.bias"))
        return e->type == SAFETENSORS_BOOL || e->type == SAFETENSORS_U8;
    if (model->config.arch == ARCH_VIT &&
        (strncmp(bare, "pooler.", 7) == 0 || strcmp(bare, "embeddings.mask_token") == 0))
        return true;
    return body && (strncmp(e->name, ARCH_CLASSIFIER, strlen(ARCH_CLASSIFIER)) == 0 ||
                    !is_in_body(set, e->name));
}

static enum sotto_status compare_numbers(const struct safetensors_entry *a,
                                         const struct safetensors_entry *b, bool *same)
{
    enum { ROOM = 1 << 14 };
    *same = a->count == b->count;
    float *x = malloc(2 * ROOM * sizeof *x);
    enum sotto_status st = x ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory to compare '%s'", a->name);
    for (size_t at = 0, n; at < a->count && *same && st == SOTTO_OK; at += n) {
        n = a->count - at < ROOM ? a->count - at : ROOM;
        st = safetensors_read_f32_range(a, at, n, x);
        if (st == SOTTO_OK)
            st = safetensors_read_f32_range(b, at, n, x + ROOM);
        *same = st == SOTTO_OK && memcmp(x, x + ROOM, n * sizeof *x) == 0;
    }
    free(x);
    return st;
}

#define TIED_HEAD "lm_head.weight"

/* Checks that the output projection in the files equals the embedding, the first tensor, since the
 * model ties both. */
static enum sotto_status check_tied(const struct safetensors *set, const struct model *model,
                                    const struct safetensors_entry *head)
{
    const struct safetensors_entry *embedding = weights_find_name(set, model->table.entry[0].name);
    bool same = false;
    if (embedding)
        TRY(compare_numbers(head, embedding, &same));
    if (same)
        return SOTTO_OK;
    return fail(SOTTO_EFORMAT,
                "'%s' differs from the embedding, '%s', to which the model ties it: with "
                "\"tie_word_embeddings\": false in config.json both are read",
                head->name, model->table.entry[0].name);
}

/* Fails with the names of the first unread tensors, if there are any. */
static enum sotto_status refuse_unread(const struct safetensors *set, const struct model *model,
                                       bool body, const bool *read)
{
    enum { NAMED = 3 };
    char names[NAMED * (TABLE_NAME_ROOM + 8)] = "";
    size_t at = 0;
    int unread = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct safetensors_entry *e = &set->entry[i];
        if (read[i] || is_leftover(set, model, body, e))
            continue;
        if (model->config.tied == TIED_YES && strcmp(e->name, TIED_HEAD) == 0) {
            TRY(check_tied(set, model, e));
            continue;
        }
        if (unread++ < NAMED)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s'%.*s'", at ? ", " : "",
                                   TABLE_NAME_ROOM, e->name);
    }
    if (unread == 0)
        return SOTTO_OK;
    const struct arch *arch = archs[model->config.arch];
    return fail(
        SOTTO_EFORMAT,
        "%d tensor%s not in the model of config.json (%s), and would be ignored: %s%s; if that is "
        "intended, %s.from_pretrained(OLD).save_pretrained(NEW) removes them",
        unread, unread == 1 ? " is" : "s are", arch->name, names, unread > NAMED ? ", ..." : "",
        arch->hf_class);
}

enum sotto_status weights_check(const struct model *model, const char *path, bool body)
{
    struct safetensors set;
    TRY(safetensors_open(&set, path));
    enum sotto_status st;
    bool *read = calloc(set.count + 1, sizeof *read);
    if (!read) {
        st = fail(SOTTO_ENOMEM, "no memory to look at %zu tensors", set.count);
        goto done;
    }
    TRY_DONE(mark_read(&set, model, &model->table, body, read));
    TRY_DONE(mark_read(&set, model, &model->state, false, read));
    st = refuse_unread(&set, model, body, read);
done:
    free(read);
    safetensors_close(&set);
    return fail_in(st, "%s: ", path);
}

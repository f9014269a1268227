#include "hf/weights_find.h"

#include <stdio.h>
#include <string.h>

#include "nn/arch/arch.h"

const char *weights_bare_name(const char *name)
{
    static const char *const prefix[] = {"transformer.", "model.", "resnet.", "vit."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return name + strlen(prefix[i]);
    return name;
}

/* Writes the tensor's name in other versions of transformers. */
static void other_name(char out[2 * TABLE_NAME_ROOM], const char *name,
                       const struct arch_rename *rule)
{
    size_t n = 0;
    while (*name && n + TABLE_NAME_ROOM < 2 * TABLE_NAME_ROOM) {
        const struct arch_rename *r = rule;
        while (r && r->from && strncmp(name, r->from, strlen(r->from)) != 0)
            r++;
        const bool found = r && r->from;
        n += (size_t)sprintf(out + n, found ? "%s" : "%.1s", found ? r->to : name);
        name += found ? strlen(r->from) : 1;
    }
    out[n] = '\0';
}

const struct safetensors_entry *weights_find_name(const struct safetensors *set, const char *name)
{
    const struct safetensors_entry *e = safetensors_find(set, name);
    return e ? e : safetensors_find(set, weights_bare_name(name));
}

void weights_shape(const struct table_entry *e, int64_t shape[TABLE_DIMS])
{
    memcpy(shape, e->shape, sizeof e->shape);
    if (e->form != FORM_KERNEL)
        return;
    shape[1] = e->shape[3];
    shape[2] = e->shape[1];
    shape[3] = e->shape[2];
}

enum sotto_status weights_find(const struct safetensors *set, const struct model *model,
                               const struct table_entry *e, const struct safetensors_entry **out)
{
    const struct arch *arch = archs[model->config.arch];
    char other[2 * TABLE_NAME_ROOM];
    int64_t shape[TABLE_DIMS];
    *out = weights_find_name(set, e->name);
    if (!*out && arch && arch->renames) {
        other_name(other, e->name, arch->renames);
        *out = weights_find_name(set, other);
    }
    if (!*out)
        return fail(SOTTO_EFORMAT, "tensor '%s' is missing", e->name);
    weights_shape(e, shape);
    return safetensors_get(set, (*out)->name, e->ndim, shape, out);
}

bool weights_classify(const struct table_entry *e)
{
    return strncmp(e->name, ARCH_CLASSIFIER, strlen(ARCH_CLASSIFIER)) == 0;
}

/* A file of state: the tensors and the sorted notes of the metadata; on this machine or in another
 * process. */
#include "io/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static int compare_notes(const void *a, const void *b)
{
    return strcmp(((const struct state_note *)a)->name, ((const struct state_note *)b)->name);
}

static enum sotto_status list_notes(struct state_file *f)
{
    json_t *metadata = json_object_get(f->set.file[0].header, "__metadata__"), *value;
    const char *key;
    f->note = calloc(json_object_size(metadata) + 1, sizeof *f->note);
    if (!f->note) {
        state_file_close(f);
        return fail(SOTTO_ENOMEM, "no memory for the notes of a file");
    }
    json_object_foreach(metadata, key, value)
    {
        if (strcmp(key, "format") != 0)
            f->note[f->notes++] = (struct state_note){key, json_string_value(value)};
    }
    qsort(f->note, f->notes, sizeof *f->note, compare_notes);
    return SOTTO_OK;
}

enum sotto_status state_file_open(struct state_file *f, const char *path)
{
    *f = (struct state_file){0};
    TRY(safetensors_open(&f->set, path));
    return list_notes(f);
}

enum sotto_status state_file_open_memory(struct state_file *f, const void *data, size_t size,
                                         const char *name)
{
    *f = (struct state_file){0};
    TRY(safetensors_open_memory(&f->set, data, size, name));
    return list_notes(f);
}

enum sotto_status state_file_open_head(struct state_file *f, const void *head, size_t bytes,
                                       size_t size, const char *name, struct state_source source)
{
    *f = (struct state_file){.source = source};
    TRY(safetensors_open_head(&f->set, head, bytes, size, name));
    return list_notes(f);
}

const void *state_file_head(const struct state_file *f, size_t *bytes, size_t *size)
{
    *bytes = safetensors_head_bytes(&f->set.file[0]);
    *size = f->set.file[0].map.size;
    return f->set.file[0].map.data;
}

uint64_t state_file_fingerprint(const struct state_file *f)
{
    enum { BEGINNING = 4096 };
    size_t bytes, size;
    const void *head = state_file_head(f, &bytes, &size);
    uint64_t hash = hash_bytes(HASH_START, &size, sizeof size);
    hash = hash_bytes(hash, head, bytes);
    for (size_t i = 0; i < f->set.count; i++) {
        const struct safetensors_entry *e = &f->set.entry[i];
        hash = hash_bytes(hash, e->data, e->bytes < BEGINNING ? e->bytes : BEGINNING);
    }
    return hash;
}

void state_file_close(struct state_file *f)
{
    safetensors_close(&f->set);
    free(f->note);
    *f = (struct state_file){0};
}

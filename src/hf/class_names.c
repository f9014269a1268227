#include "hf/class_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "nn/arch/image.h"

static enum sotto_status take_names(struct class_names *c, const json_t *config, int classes)
{
    int named = 0;
    c->name = calloc((size_t)classes, sizeof *c->name);
    for (int i = 0; c->name && i < classes; i++) {
        const char *name = image_class_name(config, i);
        c->name[i] = strdup(name ? name : "");
        c->n += c->name[i] != NULL;
        named += name != NULL;
    }
    if (c->n < classes || !named)
        class_names_close(c);
    return c->n || !named ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %d names", classes);
}

enum sotto_status class_names_open(struct class_names *c, const char *folder, int classes)
{
    char path[FILE_PATH_ROOM];
    json_t *config;
    *c = (struct class_names){0};
    TRY(file_join(path, folder, "config.json"));
    TRY(json_open(&config, path, 1 << 24));
    const enum sotto_status st = take_names(c, config, classes);
    json_decref(config);
    return st;
}

void class_names_close(struct class_names *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->name[i]);
    free(c->name);
    *c = (struct class_names){0};
}

int class_names_find(const struct class_names *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->name[i], name) == 0)
            return i;
    return -1;
}

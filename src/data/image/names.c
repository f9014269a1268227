/* The numbers of classes in folders: the model's numbers if the model has the names, else the
 * numbers of the sorted names. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "data/image/find.h"
#include "data/image/images.h"

const char *image_class_text(const char *name, char room[IMAGE_CLASS_ROOM])
{
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)name;
    size_t used = 0;
    while (*at && used + 5 <= IMAGE_CLASS_ROOM) {
        utf8proc_int32_t code;
        const utf8proc_ssize_t n = utf8proc_iterate(at, -1, &code);
        if (n > 0)
            memcpy(room + used, at, (size_t)n);
        else
            snprintf(room + used, IMAGE_CLASS_ROOM - used, "\\x%02X", *at);
        used += n > 0 ? (size_t)n : 4;
        at += n > 0 ? n : 1;
    }
    room[used] = 0;
    return room;
}

static bool knows_class(const struct images_setup *setup, const char *name)
{
    for (int k = 0; k < setup->classes; k++)
        if (strcmp(setup->names[k], name) == 0)
            return true;
    return false;
}

/* A few names in quotes, and the number of further names. */
struct quoted_names {
    char text[256];
    size_t used;
    int n;
};

static void add_quoted_name(struct quoted_names *l, const char *name)
{
    enum { MOST = 6, LONGEST = 24 };
    if (l->n++ < MOST)
        l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s'%.*s'",
                                    l->used ? ", " : "", LONGEST, name);
}

static void end_quoted_names(struct quoted_names *l)
{
    enum { MOST = 6 };
    if (l->n > MOST)
        snprintf(l->text + l->used, sizeof l->text - l->used, " and %d more", l->n - MOST);
}

static enum sotto_status refuse_unknown_classes(const struct images_setup *setup, const char *path,
                                                struct quoted_names *unknown)
{
    struct quoted_names known = {0};
    for (int k = 0; k < setup->classes; k++)
        add_quoted_name(&known, setup->names[k]);
    end_quoted_names(&known);
    end_quoted_names(unknown);
    return fail(SOTTO_EINVAL, "%s has classes that the model does not know: %s; it knows %s", path,
                unknown->text, known.text);
}

enum sotto_status image_names_take(struct image_set *set, char *const *names, int classes)
{
    set->names = calloc((size_t)classes, sizeof *set->names);
    for (int k = 0; set->names && k < classes; k++) {
        set->names[k] = strdup(names[k]);
        set->classes += set->names[k] != NULL;
    }
    return set->classes == classes ? SOTTO_OK
                                   : fail(SOTTO_ENOMEM, "no memory for %d classes", classes);
}

enum sotto_status image_names_choose(struct image_set *set, const struct image_parts *parts,
                                     bool test, const struct images_setup *setup)
{
    int most = 0;
    for (int i = 0; setup->naming != NAMING_OWN && i < parts->count; i++) {
        const struct image_part *part = &parts->part[i];
        struct quoted_names unknown = {0};
        char **names;
        int n;
        if (part->format != DATA_IMAGES)
            return SOTTO_OK;
        if (part->test != test)
            continue;
        TRY(image_names(part->path, true, &names, &n, NULL));
        for (int k = 0; k < n; k++) {
            char room[IMAGE_CLASS_ROOM];
            const char *text = image_class_text(names[k], room);
            if (!knows_class(setup, text))
                add_quoted_name(&unknown, text);
        }
        image_names_free(names, n);
        if (unknown.n)
            return setup->naming == NAMING_ONLY
                       ? refuse_unknown_classes(setup, part->path, &unknown)
                       : SOTTO_OK;
        most = n > most ? n : most;
    }
    if (most == 0 || (setup->naming == NAMING_SAME && most != setup->classes))
        return SOTTO_OK;
    return image_names_take(set, setup->names, setup->classes);
}

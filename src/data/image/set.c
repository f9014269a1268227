#include "data/image/set.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine/available.h"

/* Refuses more images than an array can have, or than the memory can hold. */
static enum sotto_status check_memory_room(const struct image_set *set, int64_t count)
{
    const double bytes = (double)count * (double)image_set_bytes(set);
    const struct available a = available_memory("");
    if (bytes > a.bytes || bytes > 0x1p46)
        return fail(SOTTO_ENOMEM,
                    "%lld images of %d x %d x %d take %.1f GB of memory, and %s has %.1f GB left",
                    (long long)count, set->height, set->width, set->channels, bytes / 1e9, a.by,
                    a.bytes / 1e9);
    return SOTTO_OK;
}

enum sotto_status image_set_reserve(struct image_set *set, int64_t count, int height, int width,
                                    int channels)
{
    set->height = set->height ? set->height : height;
    set->width = set->width ? set->width : width;
    set->channels = set->channels ? set->channels : channels;
    if (count <= set->room - set->count)
        return SOTTO_OK;
    const int64_t room = set->count + count;
    TRY(check_memory_room(set, room));
    uint8_t *pixels = realloc(set->pixels, (size_t)room * image_set_bytes(set));
    set->pixels = pixels ? pixels : set->pixels;
    int32_t *labels = realloc(set->labels, (size_t)room * sizeof *labels);
    set->labels = labels ? labels : set->labels;
    if (!pixels || !labels)
        return fail(SOTTO_ENOMEM, "no memory for %lld images of %d x %d x %d", (long long)room,
                    set->height, set->width, set->channels);
    set->room = room;
    return SOTTO_OK;
}

/* Converts grey to three equal colours, colours to luma. */
static void convert_channels(uint8_t *to, int to_channels, const uint8_t *from, int from_channels,
                             size_t count)
{
    for (size_t i = 0; i < count; i++, to += to_channels, from += from_channels) {
        if (to_channels == 1)
            to[0] = (uint8_t)((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
        else
            to[0] = to[1] = to[2] = from[0];
    }
}

enum sotto_status image_set_put(struct image_set *set, const struct picture *p, int label,
                                const char *name)
{
    struct picture sized = *p;
    const bool cuts = set->given && set->resize == DATA_CROP && set->keep > 0 && set->keep < 1;
    if (cuts || p->height != set->height || p->width != set->width) {
        if (!set->given)
            return fail(SOTTO_EFORMAT,
                        "%s is of %d x %d, the images before it of %d x %d: set image_size, "
                        "the size that all images are brought to",
                        name, p->height, p->width, set->height, set->width);
        sized = (struct picture){set->height, set->width, p->channels, NULL};
        TRY(picture_resize(p, set->resize, set->keep, set->filter, &sized));
    }
    const size_t bytes = image_set_bytes(set);
    uint8_t *to = set->pixels + (size_t)set->count * bytes;
    if (sized.channels == set->channels)
        memcpy(to, sized.pixels, bytes);
    else
        convert_channels(to, set->channels, sized.pixels, sized.channels,
                         (size_t)set->height * (size_t)set->width);
    if (sized.pixels != p->pixels)
        free(sized.pixels);
    set->labels[set->count++] = label;
    return SOTTO_OK;
}

enum sotto_status image_set_end_source(struct image_set *set, const char *name)
{
    const int n = set->n_sources;
    if (set->count == (n ? set->before[n] : 0))
        return fail(SOTTO_EFORMAT, "%s has no images", name);
    int64_t *before = realloc(set->before, ((size_t)n + 2) * sizeof *before);
    set->before = before ? before : set->before;
    char **source = realloc(set->source, ((size_t)n + 1) * sizeof *source);
    set->source = source ? source : set->source;
    char *copy = strdup(name);
    if (!before || !source || !copy) {
        free(copy);
        return fail(SOTTO_ENOMEM, "no memory for %d sources", n + 1);
    }
    before[0] = 0;
    before[n + 1] = set->count;
    source[n] = copy;
    set->n_sources++;
    return SOTTO_OK;
}

void image_set_free(struct image_set *set)
{
    for (int i = 0; i < set->classes && set->names; i++)
        free(set->names[i]);
    for (int i = 0; i < set->n_sources; i++)
        free(set->source[i]);
    free(set->names);
    free(set->source);
    free(set->before);
    free(set->pixels);
    free(set->labels);
    *set = (struct image_set){0};
}

/* From the words of the configuration to sources: commas, folders, formats. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/text/records.h"
#include "data/text/source.h"

struct spec_list {
    struct source_spec *specs;
    int count, room;
    const struct data_config *config;
    enum data_split split;
};

static bool ends_with(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcasecmp(path + n - m, ending) == 0;
}

static enum sotto_status recognise_first_record(enum data_format *out, const struct file_map *map,
                                                const char *path)
{
    struct records records;
    json_t *record;
    records_begin(&records, (const char *)map->data, map->size, path);
    TRY(records_next(&records, &record));
    *out = instruct_recognise(record) ? DATA_INSTRUCT : DATA_JSONL;
    json_decref(record);
    return SOTTO_OK;
}

/* Refuses a table: the column of the text is unknown, and commas and quotes are not text. */
static enum sotto_status refuse_table(const char *path)
{
    const bool tabs = ends_with(path, ".tsv");
    return fail(SOTTO_EFORMAT,
                "%s is a table, which is not read as text: python3 -c 'import csv, json, sys; "
                "[print(json.dumps(row)) for row in csv.DictReader(sys.stdin%s)]' <%s >NEW.jsonl "
                "makes a JSONL file of it, whose text data.text_key=COLUMN names; data.format=text "
                "reads it as it stands",
                path, tabs ? ", dialect=\"excel-tab\"" : "", path);
}

static enum sotto_status recognise_format(enum data_format *out, const char *path)
{
    struct file_map map;
    TRY(file_map_open(&map, path));
    enum sotto_status st = SOTTO_OK;
    size_t head = map.size < 4096 ? map.size : 4096;
    if (map.size == 0)
        st = fail(SOTTO_EFORMAT, "%s is empty", path);
    else if (ends_with(path, ".bin") || tokens_recognise(map.data, map.size))
        *out = DATA_TOKENS;
    else if (ends_with(path, ".json") || ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))
        st = recognise_first_record(out, &map, path);
    else if (ends_with(path, ".csv") || ends_with(path, ".tsv"))
        st = refuse_table(path);
    else if (map.size >= 2 &&
             (memcmp(map.data, "\xff\xfe", 2) == 0 || memcmp(map.data, "\xfe\xff", 2) == 0))
        st = fail(SOTTO_EFORMAT, "%s is UTF-16: convert it with iconv -f UTF-16 -t UTF-8", path);
    else if (memchr(map.data, '\0', head))
        st =
            fail(SOTTO_EFORMAT,
                 "%s: unknown format; want text, .json, .jsonl or .bin (or set data.format)", path);
    else
        *out = DATA_TEXT;
    file_map_close(&map);
    return st;
}

static enum sotto_status add_source(struct spec_list *list, struct source_spec **out,
                                    const char *path)
{
    if (list->count == list->room) {
        int room = 2 * list->room + 8;
        struct source_spec *more = realloc(list->specs, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d sources", room);
        list->specs = more;
        list->room = room;
    }
    *out = &list->specs[list->count];
    **out = (struct source_spec){.text_key = list->config->text_key};
    if (strlen(path) >= sizeof(*out)->path)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(path),
                    path);
    strcpy((*out)->path, path);
    list->count++;
    return SOTTO_OK;
}

static enum sotto_status add_source_file(struct spec_list *list, const char *path)
{
    struct source_spec *spec;
    TRY(add_source(list, &spec, path));
    spec->format = (enum data_format)list->config->format;
    if (spec->format == DATA_AUTO)
        TRY(recognise_format(&spec->format, path));
    return SOTTO_OK;
}

static int is_visible_source(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int compare_source_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum sotto_status add_source_folder(struct spec_list *list, const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_visible_source, compare_source_names),
        before = list->count;
    if (n < 0)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", folder);
    enum sotto_status st = SOTTO_OK;
    bool folders = false;
    for (int i = 0; i < n && st == SOTTO_OK; i++) {
        char path[FILE_PATH_ROOM];
        struct stat info;
        st = file_join(path, folder, entries[i]->d_name);
        if (st != SOTTO_OK || stat(path, &info) != 0)
            continue;
        folders |= S_ISDIR(info.st_mode);
        if (S_ISREG(info.st_mode))
            st = add_source_file(list, path);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    if (st == SOTTO_OK && list->count == before)
        st = fail(SOTTO_EIO, "folder %s has no files%s", folder,
                  folders ? " of its own, and the folders in it are not read: name each of them"
                          : "");
    return st;
}

/* Returns the topic in "stories" or "stories:topic", or the bare topic under format = stories. */
static const char *topic_in_word(const char *word, bool bare)
{
    if (strcmp(word, "stories") == 0)
        return stories_names[STORIES_MIXED];
    if (strncmp(word, "stories:", 8) == 0)
        return word + 8;
    return bare ? word : NULL;
}

static enum sotto_status add_stories(struct spec_list *list, const char *word, const char *topic)
{
    int k = 0;
    while (stories_names[k] && strcmp(stories_names[k], topic) != 0)
        k++;
    if (!stories_names[k]) {
        const char *close = option_closest(topic, stories_names);
        return fail(SOTTO_EINVAL, "%s: there are no stories of that kind%s%s%s", word,
                    close ? " (did you mean " : "", close ? close : "", close ? "?)" : "");
    }
    const struct data_config *config = list->config;
    struct source_spec *spec;
    TRY(add_source(list, &spec, word));
    spec->format = DATA_STORIES;
    spec->topic = (enum stories_topic)k;
    spec->seed = (uint64_t)config->stories_seed;
    spec->count = config->stories;
    if (list->split == DATA_VALID && config->valid[0]) { /* stories unlike those of `train` */
        spec->seed = ~spec->seed;
        spec->count =
            (int64_t)((double)config->stories * (config->holdout > 0 ? config->holdout : .05));
        if (spec->count < 1)
            spec->count = 1;
    }
    return SOTTO_OK;
}

const char *source_made_up(const struct data_config *config, const char *word)
{
    bool stories = config->format == DATA_STORIES;
    return stories || config->format == DATA_AUTO ? topic_in_word(word, stories) : NULL;
}

static enum sotto_status add_source_word(struct spec_list *list, const char *word)
{
    const char *topic = source_made_up(list->config, word);
    if (topic)
        return add_stories(list, word, topic);
    if (file_is_directory(word))
        return add_source_folder(list, word);
    return add_source_file(list, word);
}

enum sotto_status source_list(struct source_spec **out, int *count,
                              const struct data_config *config, enum data_split split)
{
    struct spec_list list = {.config = config, .split = split};
    const char *names = split == DATA_VALID && config->valid[0] ? config->valid : config->train;
    enum sotto_status st = SOTTO_OK;
    if (!names[0] && config->format == DATA_STORIES) /* from the format */
        names = "stories";
    *out = NULL;
    *count = 0;
    if (config->format < DATA_AUTO || config->format > DATA_STORIES)
        return fail(SOTTO_EINVAL, "unknown data format %d", config->format);
    while (*names && st == SOTTO_OK) {
        char word[FILE_PATH_ROOM];
        st = data_word(&names, word);
        if (st == SOTTO_OK && *word)
            st = add_source_word(&list, word);
    }
    if (st == SOTTO_OK && list.count == 0)
        st = fail(SOTTO_EINVAL, "no %s data is named: set --data.%s=FILE%s",
                  split == DATA_TRAIN ? "training" : "validation",
                  split == DATA_TRAIN ? "train" : "valid",
                  split == DATA_TRAIN ? ", or --data.train=stories for synthetic stories" : "");
    if (st != SOTTO_OK) {
        free(list.specs);
        return st;
    }
    *out = list.specs;
    *count = list.count;
    return SOTTO_OK;
}

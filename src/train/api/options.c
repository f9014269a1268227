/* Options by name, as on the command line. */
#include "train/api/api_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *const train_keys[API_TRAIN_KEYS] = {
    "steps",     "seed",       "workers",      "nodes",      "time",         "threads", "device",
    "log_every", "eval_every", "eval_seconds", "save_every", "save_minutes", "pin",
};

static const char *const section_names[API_SHARED] = {
    "train", "optim", "worker", "link", "comm",
};

static const struct option *find_option_of(const struct option_section *s, const char *key)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->table[i].key, key) == 0)
            return &s->table[i];
    return NULL;
}

void api_sections(struct api_sections *out, struct run_config *config)
{
    struct option_section all[RUN_SECTIONS];
    run_sections(config, all);
    for (int i = 0; i < API_SHARED; i++)
        for (int j = 0; j < RUN_SHARED; j++)
            if (strcmp(all[j].name, section_names[i]) == 0)
                out->section[i] = all[j];
    strategy_sections(&config->strategy, out->section + API_SHARED);
    for (int i = 0; i < API_TRAIN_KEYS; i++) {
        const struct option *o = find_option_of(&out->section[0], train_keys[i]);
        assert(o);
        out->train[i] = *o;
    }
    out->section[0].table = out->train;
    out->section[0].count = API_TRAIN_KEYS;
}

enum sotto_status sotto_options_create(struct sotto_options **out)
{
    struct option_section all[RUN_SECTIONS];
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for options");
    run_sections(&(*out)->config, all);
    option_defaults(all, RUN_SECTIONS);
    return SOTTO_OK;
}

enum sotto_status sotto_options_copy(struct sotto_options **out, const struct sotto_options *from)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for options");
    **out = *from;
    return SOTTO_OK;
}

void sotto_options_destroy(struct sotto_options *options)
{
    free(options);
}

/* Returns "strategy.preset" for "strategy", and so on for each section with a preset. */
static const char *whole_key(const struct api_sections *s, const char *key, char room[OPTION_ROOM])
{
    for (int i = 0; i < API_SECTIONS; i++)
        if (strcmp(s->section[i].name, key) == 0 && find_option_of(&s->section[i], "preset")) {
            snprintf(room, OPTION_ROOM, "%s.preset", key);
            return room;
        }
    return key;
}

enum sotto_status sotto_options_set(struct sotto_options *options, const char *key,
                                    const char *value)
{
    struct api_sections s;
    char room[OPTION_ROOM];
    api_sections(&s, &options->config);
    return option_set(s.section, API_SECTIONS, whole_key(&s, key, room), value);
}

enum sotto_status sotto_options_load(struct sotto_options *options, const char *path)
{
    struct api_sections s;
    api_sections(&s, &options->config);
    return option_load(s.section, API_SECTIONS, path);
}

static enum sotto_status parse_word(struct sotto_options *options, const char *word, bool last)
{
    struct api_sections s;
    char key[OPTION_ROOM];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : 0;
    if (!equals || length >= sizeof key)
        return fail(SOTTO_EINVAL, "command line: want --key=value, got '--%.80s'", word);
    memcpy(key, word, length);
    key[length] = '\0';
    api_sections(&s, &options->config);
    if (option_depends(s.section, API_SECTIONS, key) != last)
        return SOTTO_OK;
    return fail_in(sotto_options_set(options, key, equals + 1), "command line: ");
}

/* Parses twice: keys of methods after the keys that choose the methods. */
enum sotto_status sotto_options_parse(struct sotto_options *options, int *argc, char **argv)
{
    int kept = 0;
    for (int last = 0; last < 2; last++) {
        bool ended = false;
        for (int i = 0; i < *argc; i++) {
            const bool option = !ended && strncmp(argv[i], "--", 2) == 0;
            if (!ended && strcmp(argv[i], "--") == 0)
                ended = true;
            else if (option)
                TRY(parse_word(options, argv[i] + 2, last));
            else if (last)
                argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    return SOTTO_OK;
}

enum sotto_status sotto_options_get(const struct sotto_options *options, const char *key, char *out,
                                    size_t room)
{
    struct api_sections s;
    char whole[OPTION_ROOM], number[OPTION_ROOM];
    api_sections(&s, (struct run_config *)&options->config); /* only read */
    key = whole_key(&s, key, whole);
    for (int i = 0; i < API_SECTIONS; i++) {
        size_t length = strlen(s.section[i].name);
        bool qualified = strncmp(key, s.section[i].name, length) == 0 && key[length] == '.';
        const struct option *o = find_option_of(&s.section[i], qualified ? key + length + 1 : key);
        if (!o || (!qualified && !option_in_use(&s.section[i])))
            continue;
        const char *value = option_print(o, s.section[i].config, number);
        if (strlen(value) >= room)
            return fail(SOTTO_EINVAL, "%s has %zu characters, there is room for %zu", key,
                        strlen(value), room ? room - 1 : 0);
        strcpy(out, value);
        return SOTTO_OK;
    }
    return fail(SOTTO_EINVAL, "unknown key '%s'", key);
}

const char *sotto_strategy_name(int index)
{
    return strategy_preset(index);
}

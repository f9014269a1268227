#include "base/option/only.h"

#include <assert.h>
#include <string.h>

static const struct option *rule_option(const struct option_section *s, const char *key)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->table[i].key, key) == 0)
            return &s->table[i];
    assert(0 && "a rule names an unknown option");
    return NULL;
}

/* Returns a section of one option. */
static struct option_section single_section(const struct option *o, void *config)
{
    return (struct option_section)OPTION_SECTION_OF("", "", o, 1, config);
}

bool option_is_default(const struct option *o, const void *config)
{
    union {
        double real;
        int64_t whole;
        bool flag;
    } value;
    struct option at = *o;
    at.offset = at.set_flag = 0;
    struct option_section section = single_section(&at, &value);
    char now[OPTION_ROOM], preset[OPTION_ROOM];
    if (o->type == OPTION_TYPE_TEXT)
        return strcmp(option_print(o, config, now), o->preset) == 0;
    option_defaults(&section, 1);
    return strcmp(option_print(o, config, now), option_print(&at, &value, preset)) == 0;
}

/* True if the comma-separated `list` contains `name`. */
static bool lists_value(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ','))
            return true;
    return false;
}

static bool has_effect(const struct option_section *s, const struct option_only *only)
{
    const struct option *by = rule_option(s, only->by);
    char value[OPTION_ROOM];
    assert(by->type == OPTION_TYPE_ENUM);
    return lists_value(only->values, option_print(by, s->config, value));
}

static enum sotto_status refuse_useless(const struct option_section *s,
                                        const struct option_only *only)
{
    char value[OPTION_ROOM], choice[OPTION_ROOM];
    return fail(SOTTO_EINVAL, "%s.%s = %.80s has no effect with %s = %s; it is for %s", s->name,
                only->key, option_print(rule_option(s, only->key), s->config, value), only->by,
                option_print(rule_option(s, only->by), s->config, choice), only->values);
}

enum sotto_status option_only_check(const struct option_section *s, const struct option_only *only,
                                    int n)
{
    for (int i = 0; i < n; i++)
        if (!has_effect(s, &only[i]) && !option_is_default(rule_option(s, only[i].key), s->config))
            return refuse_useless(s, &only[i]);
    return SOTTO_OK;
}

void option_only_set_aside(const struct option_section *s, const struct option_only *only, int n,
                           const void *base)
{
    for (int i = 0; i < n; i++) {
        const struct option *o = rule_option(s, only[i].key);
        char mine[OPTION_ROOM], shared[OPTION_ROOM];
        struct option_section section = single_section(o, s->config);
        if (!has_effect(s, &only[i]) &&
            strcmp(option_print(o, s->config, mine), option_print(o, base, shared)) == 0)
            option_defaults(&section, 1);
    }
}

#include "base/option_only.h"

#include <assert.h>
#include <string.h>

static const struct option *find(const struct option_section *s, const char *key)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->table[i].key, key) == 0)
            return &s->table[i];
    assert(0 && "a rule names an option that there is not");
    return NULL;
}

/* One option as a section of its own. */
static struct option_section alone(const struct option *o, void *config)
{
    return (struct option_section){"", "", o, 1, config};
}

static bool is_default(const struct option *o, const void *config)
{
    union {
        double real;
        int64_t whole;
        char text[OPTION_ROOM];
    } value;
    struct option at = *o;
    at.offset = 0;
    struct option_section section = alone(&at, &value);
    char now[OPTION_ROOM], preset[OPTION_ROOM];
    option_defaults(&section, 1);
    option_print(&at, &value, preset);
    option_print(o, config, now);
    return strcmp(now, preset) == 0;
}

static bool has_effect(const struct option_section *s, const struct option_only *only)
{
    const struct option *by = find(s, only->by);
    const int value = *(const int *)(const void *)((const char *)s->config + by->offset);
    assert(by->type == OPTION_TYPE_ENUM);
    return only->values >> value & 1;
}

static enum sotto_status refuse(const struct option_section *s, const struct option_only *only)
{
    const struct option *by = find(s, only->by);
    char value[OPTION_ROOM], choice[OPTION_ROOM], others[256] = "";
    option_print(find(s, only->key), s->config, value);
    option_print(by, s->config, choice);
    for (int i = 0; by->names[i]; i++) {
        size_t used = strlen(others);
        if (only->values >> i & 1)
            snprintf(others + used, sizeof others - used, "%s%s", used ? ", " : "", by->names[i]);
    }
    return fail(SOTTO_EINVAL, "%s.%s = %s has no effect with %s = %s; it is for %s", s->name,
                only->key, value, only->by, choice, others);
}

enum sotto_status option_only_check(const struct option_section *s, const struct option_only *only,
                                    int n)
{
    for (int i = 0; i < n; i++)
        if (!has_effect(s, &only[i]) && !is_default(find(s, only[i].key), s->config))
            return refuse(s, &only[i]);
    return SOTTO_OK;
}

void option_only_forget(const struct option_section *s, const struct option_only *only, int n,
                        const void *base)
{
    for (int i = 0; i < n; i++) {
        const struct option *o = find(s, only[i].key);
        char mine[OPTION_ROOM], shared[OPTION_ROOM];
        option_print(o, s->config, mine);
        option_print(o, base, shared);
        struct option_section section = alone(o, s->config);
        if (!has_effect(s, &only[i]) && strcmp(mine, shared) == 0)
            option_defaults(&section, 1);
    }
}

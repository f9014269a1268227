#include "base/option/option.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *option_field(const struct option *option, const void *config)
{
    return (char *)config + option->offset;
}

/* Consumes a suffix and returns its factor: "64k" -> 64000. Suffixes are decimal because they count
 * tokens, not bytes. */
static int64_t take_suffix(char **end)
{
    switch (**end) {
    case 'k':
    case 'K':
        return (*end)++, 1000;
    case 'M':
        return (*end)++, 1000000;
    case 'G':
        return (*end)++, 1000000000;
    }
    return 1;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value))
        return false;
    *out = value * (double)take_suffix(&end);
    return *end == '\0' && isfinite(*out);
}

/* Parses a number or a fraction such as "1/32". */
static bool parse_fraction(const char *text, double *out)
{
    const char *slash = strchr(text, '/');
    char above[64];
    double below = 0;
    if (!slash || slash - text >= (ptrdiff_t)sizeof above)
        return parse_real(text, out);
    memcpy(above, text, (size_t)(slash - text));
    above[slash - text] = '\0';
    if (!parse_real(above, out) || !parse_real(slash + 1, &below))
        return false;
    *out /= below;
    return isfinite(*out);
}

/* Parses a whole number. Digits are exact; "1e6" and "1.5M" are converted through a double. For a
 * number beyond 64 bits `*value` is 0 and the caller's range check on `*out` fails. */
static bool parse_whole(const char *text, double *out, int64_t *value)
{
    char *end;
    errno = 0;
    long long digits = strtoll(text, &end, 10);
    if (end != text && errno == 0) {
        bool fits = !__builtin_mul_overflow(digits, take_suffix(&end), value);
        if (*end == '\0' && fits)
            return *out = (double)*value, true;
    }
    if (!parse_real(text, out) || *out != floor(*out))
        return false;
    *value = fabs(*out) < 0x1p63 ? (int64_t)*out : 0;
    if (fabs(*out) >= 0x1p63)
        *out = copysign(INFINITY, *out);
    return true;
}

bool option_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0)
            return *out = true, true;
        if (strcasecmp(text, no[i]) == 0)
            return *out = false, true;
    }
    return false;
}

static void join_names(const char *const *names, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; names[i] && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", i ? ", " : "", names[i]);
}

static enum sotto_status assign_number(const struct option *o, void *to, const char *value,
                                       const char *name)
{
    bool whole = o->type != OPTION_TYPE_REAL;
    double x = 0;
    int64_t exact = 0;
    if (whole ? !parse_whole(value, &x, &exact) : !parse_fraction(value, &x))
        return fail(SOTTO_EINVAL, "%s = %.80s: want %s", name, value,
                    whole ? "an integer" : "a number");
    if (x < o->min || x > o->max || (o->type == OPTION_TYPE_INT && exact != (int)exact))
        return fail(SOTTO_EINVAL, "%s = %.80s is out of range: want %.10g to %.10g", name, value,
                    o->min, o->max);
    if (o->type == OPTION_TYPE_INT)
        *(int *)to = (int)exact;
    else if (o->type == OPTION_TYPE_LONG)
        *(int64_t *)to = exact;
    else
        *(double *)to = x;
    return SOTTO_OK;
}

static enum sotto_status assign_enum(const struct option *o, void *to, const char *value,
                                     const char *name)
{
    for (int i = 0; o->names[i]; i++) {
        if (strcmp(o->names[i], value) == 0) {
            *(int *)to = i;
            return SOTTO_OK;
        }
    }
    char known[256];
    join_names(o->names, known, sizeof known);
    return fail(SOTTO_EINVAL, "%s = %.80s: want one of %s", name, value, known);
}

static void mark_set(const struct option *o, void *config, bool set)
{
    if (o->set_flag)
        *(bool *)((char *)config + o->set_flag) = set;
}

static enum sotto_status assign_value(const struct option *o, void *config, const char *value,
                                      const char *name)
{
    void *to = option_field(o, config);
    mark_set(o, config, true);
    switch (o->type) {
    case OPTION_TYPE_INT:
    case OPTION_TYPE_LONG:
    case OPTION_TYPE_REAL:
        return assign_number(o, to, value, name);
    case OPTION_TYPE_BOOL:
        if (!option_bool(value, to))
            return fail(SOTTO_EINVAL, "%s = %.80s: want true or false", name, value);
        return SOTTO_OK;
    case OPTION_TYPE_TEXT:
        if (strlen(value) >= o->room)
            return fail(SOTTO_EINVAL, "%s: value of %zu characters is too long (at most %zu)", name,
                        strlen(value), o->room - 1);
        strcpy(to, value);
        return SOTTO_OK;
    case OPTION_TYPE_ENUM:
        return assign_enum(o, to, value, name);
    }
    assert(0);
    return SOTTO_EINVAL;
}

void option_defaults(const struct option_section *sections, int n)
{
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < sections[s].count; i++) {
            const struct option *o = &sections[s].table[i];
            enum sotto_status st = assign_value(o, sections[s].config, o->preset, o->key);
            assert(st == SOTTO_OK && "an option's default must be a legal value");
            (void)st;
            mark_set(o, sections[s].config, false);
        }
    }
}

bool option_in_use(const struct option_section *s)
{
    return !s->used || s->used(s->of, s->name);
}

static const struct option *section_option(const struct option_section *s, const char *key)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->table[i].key, key) == 0)
            return &s->table[i];
    return NULL;
}

bool option_depends(const struct option_section *sections, int n, const char *key)
{
    for (int s = 0; s < n; s++)
        if (sections[s].used && section_option(&sections[s], key))
            return true;
    return false;
}

bool option_is_used(const struct option_section *sections, int n, const char *key)
{
    for (int s = 0; s < n; s++)
        if (section_option(&sections[s], key) && option_in_use(&sections[s]))
            return true;
    return false;
}

/* Lists the sections that have the key, for messages, and returns their number. */
static int list_sections(const struct option_section *sections, int n, const char *key,
                         const char *end, char *out, size_t room)
{
    size_t used = 0;
    int found = 0;
    *out = '\0';
    for (int s = 0; s < n && used < room; s++)
        if (section_option(&sections[s], key))
            used += (size_t)snprintf(
                out + used, room - used, "%s%s%s%s%s%s", found++ ? ", " : "", *end ? "'" : "",
                sections[s].name, *sections[s].name ? end : "", *end ? key : "", *end ? "'" : "");
    return found;
}

/* True if the key is one of the words, with any letters' case, and hyphens for underscores. */
static bool key_among(const char *key, const char *words)
{
    const size_t length = strlen(key);
    while (words && *words) {
        const size_t word = strcspn(words, " ");
        size_t same = 0;
        while (same < word && same < length &&
               tolower((unsigned char)(key[same] == '-' ? '_' : key[same])) == words[same])
            same++;
        if (same == word && same == length)
            return true;
        words += word + (words[word] == ' ');
    }
    return false;
}

static enum sotto_status refuse_key(const struct option_section *sections, int n, const char *key)
{
    const char *dot = strrchr(key, '.'), *bare = dot ? dot + 1 : key;
    char others[512];
    if (dot && list_sections(sections, n, bare, ".", others, sizeof others) > 0)
        return fail(SOTTO_EINVAL, "unknown key '%s': did you mean %s?", key, others);
    for (int s = 0; s < n && dot; s++) /* "strategy" under [train] */
        if (strcmp(sections[s].name, bare) == 0 && section_option(&sections[s], "preset"))
            return fail(SOTTO_EINVAL, "unknown key '%s': did you mean '%s.preset'?", key, bare);
    const char *best = NULL, *section = "";
    int nearest = OPTION_FAR;
    for (int s = 0; s < n; s++)
        for (int i = 0; i < sections[s].count; i++)
            if (key_among(bare, sections[s].table[i].also))
                return fail(SOTTO_EINVAL, "unknown key '%s': did you mean '%s.%s'?", key,
                            sections[s].name, sections[s].table[i].key);
    for (int s = 0; s < n; s++) {
        /* A key of the named section wins over an equally near key of another section. */
        size_t length = strlen(sections[s].name);
        bool same = dot && (size_t)(dot - key) == length && !strncmp(key, sections[s].name, length);
        for (int i = 0; i < sections[s].count; i++) {
            int d = option_distance(bare, sections[s].table[i].key);
            if (d >= nearest + (same && best != NULL))
                continue;
            nearest = d;
            best = sections[s].table[i].key;
            section = sections[s].name;
        }
        if (!dot && section_option(&sections[s], "preset") &&
            option_distance(key, sections[s].name) < nearest) { /* "strategy" alone */
            nearest = option_distance(key, sections[s].name);
            best = sections[s].name;
            section = "";
        }
    }
    if (!best)
        return fail(SOTTO_EINVAL, "unknown key '%s'", key);
    return fail(SOTTO_EINVAL, "unknown key '%s': did you mean '%s%s%s'?", key, section,
                *section ? "." : "", best);
}

/* Returns the key inside section `s` of "section.key", "preset" for "section", or NULL. */
static const char *key_in_section(const struct option_section *s, const char *key)
{
    const size_t length = strlen(s->name);
    if (!length || strncmp(key, s->name, length) != 0)
        return NULL;
    return key[length] == '.' ? key + length + 1 : key[length] ? NULL : "preset";
}

/* Refuses a key of two sections. If exactly one option has `value` among its names, the message
 * suggests that option: "--preset=llama" is probably meant for model.arch. */
static enum sotto_status refuse_ambiguous(const struct option_section *sections, int n,
                                          const char *key, const char *value,
                                          const struct option_section *a,
                                          const struct option_section *b)
{
    char taker[2 * OPTION_ROOM] = "";
    int takers = 0;
    for (int s = 0; s < n; s++)
        for (int i = 0; i < sections[s].count; i++) {
            const struct option *o = &sections[s].table[i];
            int k = 0;
            while (o->type == OPTION_TYPE_ENUM && o->names[k] && strcmp(o->names[k], value) != 0)
                k++;
            if (o->type == OPTION_TYPE_ENUM && o->names[k] && takers++ == 0)
                snprintf(taker, sizeof taker, "; '%.80s' is also a value of %s.%s", value,
                         sections[s].name, o->key);
        }
    return fail(SOTTO_EINVAL, "key '%s' is ambiguous: use %s.%s or %s.%s%s", key, a->name, key,
                b->name, key, takers == 1 ? taker : "");
}

static enum sotto_status set_bare(const struct option_section *sections, int n, const char *key,
                                  const char *value)
{
    const struct option_section *found = NULL, *other = NULL;
    char owners[512];
    for (int s = 0; s < n; s++) {
        if (!section_option(&sections[s], key) || !option_in_use(&sections[s]))
            continue;
        if (!*sections[s].name)
            return assign_value(section_option(&sections[s], key), sections[s].config, value, key);
        if (found && !found->used == !sections[s].used)
            return refuse_ambiguous(sections, n, key, value, found, &sections[s]);
        const bool wins = !found || found->used;
        other = wins ? found : &sections[s];
        found = wins ? &sections[s] : found;
    }
    const enum sotto_status st =
        found ? assign_value(section_option(found, key), found->config, value, key) : SOTTO_OK;
    if (st != SOTTO_OK && other)
        return fail_in(st, "'%s' is %s.%s, not %s.%s: ", key, found->name, key, other->name, key);
    if (found)
        return st;
    if (!option_depends(sections, n, key))
        return refuse_key(sections, n, key);
    const int others = list_sections(sections, n, key, "", owners, sizeof owners);
    char whole[512];
    list_sections(sections, n, key, ".", whole, sizeof whole);
    return fail(SOTTO_EINVAL, "key '%s' belongs to %s, which %s not chosen; with its section: %s",
                key, owners, others > 1 ? "are" : "is", whole);
}

enum sotto_status option_set(const struct option_section *sections, int n, const char *key,
                             const char *value)
{
    for (int s = 0; s < n; s++) {
        const char *bare = key_in_section(&sections[s], key);
        const struct option *o = bare ? section_option(&sections[s], bare) : NULL;
        if (o)
            return assign_value(o, sections[s].config, value, key);
    }
    return set_bare(sections, n, key, value);
}

struct load_target { /* destination of option_load_text */
    const struct option_section *sections;
    int n;
    bool last; /* true: only keys that depend on others are set */
};

static bool has_section(const struct load_target *t, const char *name)
{
    for (int s = 0; s < t->n; s++)
        if (strcmp(t->sections[s].name, name) == 0)
            return true;
    return false;
}

static enum sotto_status refuse_section(const struct load_target *t, const char *name)
{
    const char *best = NULL;
    int nearest = OPTION_FAR;
    for (int s = 0; s < t->n; s++) {
        int d = option_distance(name, t->sections[s].name);
        if (d < nearest) {
            nearest = d;
            best = t->sections[s].name;
        }
    }
    if (best)
        return fail(SOTTO_EINVAL, "unknown section [%s]: did you mean [%s]?", name, best);
    return fail(SOTTO_EINVAL, "unknown section [%s]", name);
}

static enum sotto_status load_key(void *arg, const char *section, const char *bare,
                                  const char *value)
{
    const struct load_target *t = arg;
    if (!bare)
        return has_section(t, section) ? SOTTO_OK : refuse_section(t, section);
    if ((!*section && option_depends(t->sections, t->n, bare)) != t->last)
        return SOTTO_OK;
    char key[2 * OPTION_ROOM];
    snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", bare);
    return option_set(t->sections, t->n, key, value);
}

enum sotto_status option_load_text(const struct option_section *sections, int n, const char *text,
                                   const char *name)
{
    struct load_target t = {sections, n, false};
    TRY(option_read_text(text, name, NULL, load_key, &t));
    t.last = true;
    return option_read_text(text, name, NULL, load_key, &t);
}

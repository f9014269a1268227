/* Option tables and text: configuration files, the command line and dumps. */
#define _GNU_SOURCE /* open_memstream */
#include "base/option/option.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum sotto_status option_file(const char *path, char **text)
{
    return file_read_text(path, 1 << 24, text);
}

enum sotto_status option_load(const struct option_section *sections, int n, const char *path)
{
    char *text;
    TRY(option_file(path, &text));
    enum sotto_status st = option_load_text(sections, n, text, path);
    free(text);
    return st;
}

static bool is_flag(const struct option_section *sections, int n, const char *key)
{
    for (int s = 0; s < n; s++) {
        size_t length = strlen(sections[s].name);
        bool qualified = length && !strncmp(key, sections[s].name, length) && key[length] == '.';
        const char *bare = qualified ? key + length + 1 : key;
        for (int i = 0; i < sections[s].count; i++)
            if (sections[s].table[i].type == OPTION_TYPE_BOOL &&
                strcmp(sections[s].table[i].key, bare) == 0)
                return true;
    }
    return false;
}

/* The state of option_parse. */
struct option_words {
    const struct option_section *sections;
    int n;
    bool last;  /* true: only keys that depend on others are set */
    bool *left; /* set if a key was skipped; NULL: no key may be skipped */
};

static enum sotto_status take_option(struct option_words *r, const char *key, const char *value)
{
    if (option_depends(r->sections, r->n, key) != r->last)
        return SOTTO_OK;
    if (r->last && r->left && !option_is_used(r->sections, r->n, key)) {
        *r->left = true;
        return SOTTO_OK;
    }
    return fail_in(option_set(r->sections, r->n, key, value), "command line: ");
}

static enum sotto_status read_options(struct option_words *r, int argc, const char *const *argv,
                                      const char **rest, int *n_rest)
{
    bool ended = false;
    *n_rest = 0;
    for (int i = 0; i < argc; i++) {
        if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
            continue;
        }
        if (ended || strncmp(argv[i], "--", 2) != 0) {
            rest[(*n_rest)++] = argv[i];
            continue;
        }
        const char *word = argv[i] + 2, *equals = strchr(word, '=');
        char key[OPTION_ROOM];
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        if (length >= sizeof key)
            return fail(SOTTO_EINVAL, "option of %zu characters is too long", length);
        memcpy(key, word, length);
        key[length] = '\0';
        const char *value = equals ? equals + 1 : NULL;
        if (!value && is_flag(r->sections, r->n, key))
            value = "true";
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value)
            return fail(SOTTO_EINVAL, "--%s wants a value", key);
        TRY(take_option(r, key, value));
    }
    return SOTTO_OK;
}

enum sotto_status option_parse_known(const struct option_section *sections, int n, int argc,
                                     const char *const *argv, const char **rest, int *n_rest,
                                     bool *left)
{
    struct option_words r = {sections, n, false, left};
    TRY(read_options(&r, argc, argv, rest, n_rest));
    r.last = true;
    return read_options(&r, argc, argv, rest, n_rest);
}

enum sotto_status option_parse(const struct option_section *sections, int n, int argc,
                               const char *const *argv, const char **rest, int *n_rest)
{
    return option_parse_known(sections, n, argc, argv, rest, n_rest, NULL);
}

const char *option_print(const struct option *option, const void *config, char room[OPTION_ROOM])
{
    const void *from = (const char *)config + option->offset;
    switch (option->type) {
    case OPTION_TYPE_INT:
        snprintf(room, OPTION_ROOM, "%d", *(const int *)from);
        return room;
    case OPTION_TYPE_LONG:
        snprintf(room, OPTION_ROOM, "%lld", (long long)*(const int64_t *)from);
        return room;
    case OPTION_TYPE_REAL:
        json_print_real(room, *(const double *)from);
        return room;
    case OPTION_TYPE_BOOL:
        return *(const bool *)from ? "true" : "false";
    case OPTION_TYPE_TEXT:
        return from;
    case OPTION_TYPE_ENUM:
        return option->names[*(const int *)from];
    }
    assert(0);
    return "";
}

void option_put_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=:,+-@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            fputs("'\\''", out);
        else
            fputc(*p, out);
    fputc('\'', out);
}

const char *option_word(const char *word, char *out, size_t room)
{
    FILE *text = fmemopen(out, room, "w");
    *out = '\0';
    if (text) {
        option_put_word(word, text);
        fclose(text);
    }
    out[room - 1] = '\0';
    return out;
}

/* Writes a value, quoted if the plain text would be read back differently. */
static void dump_value(const char *value, FILE *out)
{
    size_t length = strlen(value);
    bool blank = length && (strchr(" \t", value[0]) || strchr(" \t", value[length - 1]));
    if (!blank && !strpbrk(value, "#;\"\n\r")) {
        fputs(value, out);
        return;
    }
    fputc('"', out);
    for (const char *p = value; *p; p++) {
        if (*p == '\n')
            fputs("\\n", out);
        else if (*p == '\r')
            fputs("\\r", out);
        else
            fprintf(out, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    }
    fputc('"', out);
}

static void dump_section(const struct option_section *section, FILE *out)
{
    if (*section->name)
        fprintf(out, "[%s]\n", section->name);
    for (int i = 0; i < section->count; i++) {
        char room[OPTION_ROOM];
        fprintf(out, "%s = ", section->table[i].key);
        dump_value(option_print(&section->table[i], section->config, room), out);
        fputc('\n', out);
    }
}

char *option_dump(const struct option_section *sections, int n)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (int named = 0; named < 2; named++) /* keys without a section precede the first heading */
        for (int s = 0; s < n; s++)
            if ((*sections[s].name != '\0') == named && option_in_use(&sections[s]))
                dump_section(&sections[s], out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

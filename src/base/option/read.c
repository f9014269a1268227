/* The reader of INI files: sections, keys, comments and quoted values. A key that is set twice is
 * refused, because one of the two lines would have no effect. */
#define _GNU_SOURCE /* strchrnul, strndup */
#include "base/option/option.h"

#include <stdlib.h>
#include <string.h>

static char *trim_blanks(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t length = strlen(text);
    while (length && strchr(" \t\r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* Cuts a comment: '#' or ';' at the start of the line or after white space, but not in a quoted
 * value. */
static void cut_comment(char *line)
{
    bool opens = false, quoted = false; /* opens: a '"' at p would begin a quoted value; quoted: p
                                           is inside a quoted value */
    for (char *p = line; *p; p++) {
        if (quoted) {
            if (*p == '\\' && p[1])
                p++;
            else if (*p == '"')
                quoted = false;
            continue;
        }
        bool blank = *p == ' ' || *p == '\t';
        if ((*p == '#' || *p == ';') && (p == line || p[-1] == ' ' || p[-1] == '\t')) {
            *p = '\0';
            return;
        }
        quoted = opens && *p == '"';
        opens = *p == '=' || (opens && blank);
    }
}

/* Removes the quotes of a quoted value in place; \" \\ \n \r \t are escapes. */
static enum sotto_status unquote_value(char *value)
{
    static const char letter[] = "nrt", meant[] = "\n\r\t";
    if (*value != '"')
        return SOTTO_OK;
    char *to = value, *p = value + 1;
    for (; *p && *p != '"'; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            const char *known = strchr(letter, *p);
            *to++ = known ? meant[known - letter] : *p;
        } else {
            *to++ = *p;
        }
    }
    if (*p != '"' || p[1] != '\0')
        return fail(SOTTO_EFORMAT, "want one \"quoted\" text, got %s",
                    *p ? "more text after it" : "no closing quote");
    *to = '\0';
    return SOTTO_OK;
}

/* Parses one line and calls `each` for a heading or a key. */
static enum sotto_status read_ini_line(char *line, char section[OPTION_ROOM], option_each *each,
                                       void *arg)
{
    cut_comment(line);
    char *text = trim_blanks(line);
    size_t length = strlen(text);
    if (length == 0)
        return SOTTO_OK;
    if (*text == '[') {
        if (text[length - 1] != ']' || length - 2 >= OPTION_ROOM)
            return fail(SOTTO_EFORMAT, "malformed section '%.80s'", text);
        text[length - 1] = '\0';
        strcpy(section, trim_blanks(text + 1));
        return each(arg, section, NULL, NULL);
    }
    char *equals = strchr(text, '=');
    if (!equals)
        return fail(SOTTO_EFORMAT, "want 'key = value' in a file of options, got '%.80s'", text);
    *equals = '\0';
    const char *key = trim_blanks(text);
    if (strlen(key) >= OPTION_ROOM)
        return fail(SOTTO_EFORMAT, "key of %zu characters is too long", strlen(key));
    char *value = trim_blanks(equals + 1);
    TRY(unquote_value(value));
    return each(arg, section, key, value);
}

/* A key and its line. */
struct key_place {
    char *key;   /* with its section */
    size_t bare; /* offset of the key after the section's name */
    int line;
};

struct ini_reader {
    const char *repeats; /* see option.h */
    option_each *each;
    void *arg;
    struct key_place *places;
    size_t count, room;
    int line;
};

static enum sotto_status remember_key(struct ini_reader *r, const char *section, const char *key)
{
    if (r->count == r->room) {
        const size_t room = 2 * r->room + 64;
        struct key_place *more = realloc(r->places, room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %zu keys", room);
        r->places = more;
        r->room = room;
    }
    const size_t bytes = strlen(section) + strlen(key) + 2;
    char *whole = malloc(bytes);
    if (!whole)
        return fail(SOTTO_ENOMEM, "no memory for the key %s", key);
    const int length = snprintf(whole, bytes, "%s%s%s", section, *section ? "." : "", key);
    r->places[r->count++] = (struct key_place){whole, (size_t)length - strlen(key), r->line};
    return SOTTO_OK;
}

static enum sotto_status take_ini_key(void *arg, const char *section, const char *key,
                                      const char *value)
{
    struct ini_reader *r = arg;
    if (key && !(r->repeats && strcmp(key, r->repeats) == 0))
        TRY(remember_key(r, section, key));
    return r->each(r->arg, section, key, value);
}

static int compare_places(const void *a, const void *b)
{
    const struct key_place *x = a, *y = b;
    const int order = strcmp(x->key, y->key);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Refuses a key that is set twice. Sorts the keys first, since a file may be long. */
static enum sotto_status refuse_twice(struct ini_reader *r)
{
    if (r->count)
        qsort(r->places, r->count, sizeof *r->places, compare_places);
    for (size_t i = 1; i < r->count; i++) {
        const struct key_place *first = &r->places[i - 1], *second = &r->places[i];
        if (strcmp(first->key, second->key) == 0) {
            r->line = second->line;
            return fail(SOTTO_EINVAL, "'%.200s' is set a second time, after line %d",
                        second->key + second->bare, first->line);
        }
    }
    return SOTTO_OK;
}

enum sotto_status option_read_text(const char *text, const char *name, const char *repeats,
                                   option_each *each, void *arg)
{
    struct ini_reader r = {.repeats = repeats, .each = each, .arg = arg};
    char section[OPTION_ROOM] = "";
    enum sotto_status st = SOTTO_OK;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) /* the byte order mark of some editors */
        text += 3;
    while (*text && st == SOTTO_OK) {
        const char *end = strchrnul(text, '\n');
        char *line = strndup(text, (size_t)(end - text));
        r.line++;
        st =
            line ? read_ini_line(line, section, take_ini_key, &r) : fail(SOTTO_ENOMEM, "no memory");
        free(line);
        text = *end ? end + 1 : end;
    }
    if (st == SOTTO_OK)
        st = refuse_twice(&r);
    for (size_t i = 0; i < r.count; i++)
        free(r.places[i].key);
    free(r.places);
    return fail_in(st, "%s:%d: ", name, r.line);
}

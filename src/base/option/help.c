/* Options told to people: what they take, and the lines of --help. */
#include <string.h>

#include "base/option/option.h"

static size_t describe_range(const struct option *o, const char *what, char *out, size_t room)
{
    if (o->max >= 1e15) /* no limit that anybody would meet */
        return (size_t)snprintf(out, room, "%s from %.10g", what, o->min);
    return (size_t)snprintf(out, room, "%s %.10g..%.10g", what, o->min, o->max);
}

void option_describe(const struct option *o, char *out, size_t room)
{
    size_t used = 0;
    switch (o->type) {
    case OPTION_TYPE_INT:
    case OPTION_TYPE_LONG:
        used = describe_range(o, "integer", out, room);
        break;
    case OPTION_TYPE_REAL:
        used = describe_range(o, "number", out, room);
        break;
    case OPTION_TYPE_BOOL:
        used = (size_t)snprintf(out, room, "true|false");
        break;
    case OPTION_TYPE_TEXT:
        used = (size_t)snprintf(out, room, "text");
        break;
    case OPTION_TYPE_ENUM:
        for (int i = 0; o->names[i] && used < room; i++)
            used += (size_t)snprintf(out + used, room - used, "%s%s", i ? "|" : "", o->names[i]);
        break;
    }
    if (*o->preset && used < room)
        snprintf(out + used, room - used, "; default %s", o->preset);
}

enum { WIDTH = 80, INDENT = 29 };

#define GLUE '\t' /* a blank at which no line ends */

/* Of the next word; a list of names that no line has room for is cut behind one of them. */
static int word_length(const char *text, int room)
{
    const int length = (int)strcspn(text, " ");
    for (int cut = room; length > room && cut > 0; cut--)
        if (text[cut - 1] == '|')
            return cut;
    return length;
}

void option_wrap(const char *text, int at, int indent, FILE *out)
{
    for (const char *first = text; *text;) {
        const int length = word_length(text, WIDTH - 1 - indent);
        if (text == first) {
            at += length;
        } else if (at + 1 + length >= WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent + length;
        } else {
            fputc(' ', out);
            at += 1 + length;
        }
        for (const char *end = text + length; text < end; text++)
            fputc(*text == GLUE ? ' ' : *text, out);
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void option_help_one(const struct option_section *section, const struct option *o, FILE *out)
{
    char flag[128], kind[512], text[1536];
    snprintf(flag, sizeof flag, "--%s%s%s", section->name, *section->name ? "." : "", o->key);
    option_describe(o, kind, sizeof kind);
    for (char *p = kind; *p; p++) /* "default 3" stays together */
        if (*p == ' ' && p != kind && p[-1] != ';' && p[-1] != ',')
            *p = GLUE;
    snprintf(text, sizeof text, "%s (%s)", o->help, kind);
    int at = fprintf(out, "  %-26s ", flag);
    option_wrap(text, at, INDENT, out);
}

void option_help(const struct option_section *sections, int n, FILE *out)
{
    for (int s = 0; s < n; s++) {
        if (sections[s].count == 0)
            continue;
        int at = fprintf(out, "\n%s%s%s", *sections[s].name ? "[" : "", sections[s].name,
                         *sections[s].name ? "]  " : "");
        option_wrap(sections[s].about, at, 4, out);
        for (int i = 0; i < sections[s].count; i++)
            option_help_one(&sections[s], &sections[s].table[i], out);
    }
}

/* Descriptions of options: values, the lines of --help, and the known name closest to a mistyped
 * name. */
#include <string.h>

#include "base/option/option.h"

static size_t describe_range(const struct option *o, const char *what, char *out, size_t room)
{
    if (o->max >= 1e15) /* no limit in practice */
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

/* Returns the length of the next word. A list of names longer than a line is cut after a '|'. */
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

static int lesser_of(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
 * Both are cut at ROOM characters, far more than any name has. */
static int count_edits(const char *a, const char *b)
{
    enum { ROOM = 48 };
    int rows[3][ROOM + 1]; /* of i - 2, i - 1 and i characters of a, used in turns */
    const int m = (int)strnlen(a, ROOM), n = (int)strnlen(b, ROOM);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *now = rows[i % 3];
        const int *last = rows[(i - 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n; j++) {
            now[j] =
                lesser_of(last[j - 1] + (a[i - 1] != b[j - 1]), lesser_of(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = lesser_of(now[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

int option_distance(const char *word, const char *name)
{
    const size_t length = strlen(word);
    const int d = count_edits(word, name), near = length == 2 ? 1 : (int)(length / 3);
    if (d <= near)
        return d;
    /* The beginning of a name is near too, but less than any typing error. */
    return length >= 3 && strncmp(word, name, length) == 0 ? OPTION_FAR - 1 : OPTION_FAR;
}

const char *option_closest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int nearest = OPTION_FAR;
    for (int i = 0; names[i]; i++) {
        int d = option_distance(word, names[i]);
        if (d < nearest) {
            nearest = d;
            best = names[i];
        }
    }
    return best;
}

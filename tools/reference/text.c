/* Options and texts as Markdown. */
#include <ctype.h>
#include <string.h>

#include "base/option/only.h"
#include "reference.h"

void put_option_name(const struct owned_section *of, const struct option *o, FILE *out)
{
    if (*of->section.name)
        fprintf(out, "%s.%s", of->section.name, o->key);
    else
        fprintf(out, "%s: %s", of->owner->name, o->key);
}

static void put_small(const char *text, FILE *out)
{
    for (; *text; text++)
        fputc(tolower((unsigned char)*text), out);
}

void put_anchor(const struct owned_section *of, const struct option *o, FILE *out)
{
    put_small(*of->section.name ? of->section.name : of->owner->name, out);
    fputs(*of->section.name ? "" : "-", out);
    put_small(o->key, out);
}

/* Returns the length of "[name]" at the beginning of a text, where `name` has only small letters;
 * 0: there is none. */
static size_t bracketed_length(const char *text)
{
    const size_t n = *text == '[' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
    return n && text[n + 1] == ']' ? n + 2 : 0;
}

void put_text(const char *text, struct target_page at, FILE *out)
{
    while (*text) {
        const size_t n = bracketed_length(text);
        if (n && strncmp(text, "[compare]", n) != 0) { /* no options of that name */
            fprintf(out, "[`%.*s`](%s#%.*s)", (int)n, text, at.options, (int)n - 2, text + 1);
            text += n;
            continue;
        }
        if (strchr("<>*[]", *text) || (at.cell && *text == '|'))
            fputc('\\', out);
        fputc(*text++, out);
    }
}

void put_sentence(const char *help, struct target_page at, FILE *out)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", help);
    const size_t word = strspn(text, "abcdefghijklmnopqrstuvwxyz"), length = strlen(text);
    const size_t list = strspn(text, "abcdefghijklmnopqrstuvwxyz, "); /* "linear, cosine: ..." */
    const bool values = text[list] == ':' && strchr(text, ',') && strchr(text, ',') < text + list;
    if (word && !values && (!text[word] || strchr(" ,;", text[word])))
        text[0] = (char)toupper((unsigned char)text[0]);
    put_text(text, at, out);
    if (length && !strchr(".!?", text[length - 1]))
        fputc('.', out);
}

void put_values(const struct option *o, FILE *out)
{
    struct option plain = *o;
    char text[1024];
    plain.preset = "";
    option_describe(&plain, text, sizeof text);
    if (o->type == OPTION_TYPE_BOOL) {
        fputs("`true` or `false`", out);
    } else if (o->type == OPTION_TYPE_ENUM) {
        for (int i = 0; o->names[i]; i++)
            fprintf(out, "%s`%s`", i == 0 ? "" : o->names[i + 1] ? ", " : " or ", o->names[i]);
    } else {
        fputs(o->file ? "name of a file" : text, out);
    }
}

void put_default(const struct option *o, FILE *out)
{
    if (*o->preset)
        fprintf(out, "`%s`", o->preset);
    else
        fputs("empty", out);
}

void put_only(const struct option_section *s, const struct option *o, const char *before, FILE *out)
{
    for (int i = 0; i < s->n_only; i++)
        if (strcmp(s->only[i].key, o->key) == 0)
            fprintf(out, "%sOnly with `%s` = %s.", before, s->only[i].by, s->only[i].values);
}

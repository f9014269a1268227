/* options.md, and the options of a method. */
#include <stdlib.h>
#include <string.h>

#include "nn/arch/arch.h"
#include "reference.h"
#include "strategy/method.h"

static const struct method *method_of(const char *section)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)); i++)
        if (strcmp(m->name, section) == 0)
            return m;
    return NULL;
}

static const struct target_page here = {.options = ""}, here_cell = {"", true},
                                method_cell = {"../reference/options.md", true};

/* Returns the name of the method's page, which is that of a pair with ddp: "local-sgd" for local.
 */
static const char *page_of(const struct method *m)
{
    const struct method_preset *p;
    for (int i = 0; (p = method_preset(i)); i++)
        if (p->replicate == m && p->shard == method_plain.shard)
            return p->name;
    return m->name;
}

/* Writes a paragraph in lines of 80 columns; `write` writes the text. */
struct paragraph {
    FILE *to, *text;
    char *memory;
    size_t size;
};

static FILE *begin_paragraph(struct paragraph *p, FILE *to)
{
    *p = (struct paragraph){.to = to};
    p->text = open_memstream(&p->memory, &p->size);
    if (!p->text)
        abort();
    return p->text;
}

static void end_paragraph(struct paragraph *p)
{
    fclose(p->text);
    option_wrap(p->memory, 0, 0, p->to);
    fputc('\n', p->to);
    free(p->memory);
}

static void write_option(const struct owned_section *of, const struct option *o, FILE *out)
{
    struct paragraph p;
    fputs("### ", out);
    put_option_name(of, o, out);
    fputs("\n\n", out);
    put_sentence(o->help, here, begin_paragraph(&p, out));
    end_paragraph(&p);
    FILE *line = begin_paragraph(&p, out);
    fputs("Value: ", line);
    put_values(o, line);
    fputs("; default ", line);
    put_default(o, line);
    fputs(".", line);
    put_only(&of->section, o, " ", line);
    end_paragraph(&p);
}

/* Writes when a section has an effect: its method or architecture is chosen. */
static void write_condition(const struct option_section *s, FILE *out)
{
    const struct method *m = method_of(s->name);
    if (m)
        fprintf(out,
                "Only with the method [%s](../methods/%s.md): `--strategy=%s`, or "
                "`strategy.%s = %s`.\n\n",
                m->name, page_of(m), page_of(m), m->axis == METHOD_SHARD ? "shard" : "replicate",
                m->name);
    else if (s->used)
        fprintf(out, "Only with models of this architecture: `model.arch = %s`, or a preset.\n\n",
                s->name);
}

static void write_section(const struct owned_section *of, FILE *out)
{
    const struct option_section *s = &of->section;
    struct paragraph p;
    if (*s->name)
        fprintf(out, "## %s\n\n", s->name);
    if (*s->name || strncmp(s->about, "options", 7) != 0) {
        put_sentence(s->about, here, begin_paragraph(&p, out));
        end_paragraph(&p);
    }
    if (*s->name)
        write_condition(s, out);
    for (int i = 0; i < s->count; i++)
        write_option(of, &s->table[i], out);
}

static void write_contents(const struct owned_section *sections, int n, FILE *out)
{
    const struct command *last = NULL;
    fputs("| Section | Options of |\n|---|---|\n", out);
    for (int i = 0; i < n; i++) {
        const struct option_section *s = &sections[i].section;
        if (*s->name) {
            fprintf(out, "| [%s](#%s) | ", s->name, s->name);
            put_text(s->about, here_cell, out);
            fputs(" |\n", out);
        } else if (sections[i].owner != last) {
            last = sections[i].owner;
            fprintf(out, "| [sotto %s](#sotto-%s) | the command itself |\n", last->name,
                    last->name);
        }
    }
    fputs("\n", out);
}

void write_options(const struct owned_section *sections, int n, FILE *out)
{
    const struct command *last = NULL;
    fputs(
        "# Options\n\n"
        "Every option of `sotto`, by section: meaning, values, default. The page is for looking "
        "up;\n[configuration](../guide/configuration.md) explains how options are given.\n\n"
        "On the command line an option is `--section.key=value`. In a file the option is\n"
        "`key = value` under `[section]`. A key that only one section in use has needs no\n"
        "section: `--steps=100` is `--train.steps=100`.\n\n"
        "Every option has an anchor: the section and the key without the dot, in small letters.\n"
        "`train.steps` is `options.md#trainsteps`, `diloco.H` is `options.md#dilocoh`. Options of\n"
        "a command itself are `command-key`: `options.md#eval-batch`.\n\n",
        out);
    write_contents(sections, n, out);
    for (int named = 1; named >= 0; named--)
        for (int i = 0; i < n; i++) {
            if ((*sections[i].section.name != '\0') != named)
                continue;
            if (!named && sections[i].owner != last) {
                last = sections[i].owner;
                fprintf(out, "## sotto %s\n\n", last->name);
            }
            write_section(&sections[i], out);
        }
}

static void write_method_row(const struct owned_section *of, const struct option *o, FILE *out)
{
    fprintf(out, "| [`%s`](../reference/options.md#", o->key);
    put_anchor(of, o, out);
    fputs(") | ", out);
    put_default(o, out);
    fputs(" | ", out);
    put_values(o, out);
    fputs(" | ", out);
    put_sentence(o->help, method_cell, out);
    put_only(&of->section, o, " ", out);
    fputs(" |\n", out);
}

static bool write_method_table(const struct owned_section *sections, int n, const char *name,
                               FILE *out)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(sections[i].section.name, name) != 0)
            continue;
        fprintf(out,
                "Options of `[%s]`:\n\n| Key | Default | Values | Meaning |\n|---|---|---|---|\n",
                name);
        for (int k = 0; k < sections[i].section.count; k++)
            write_method_row(&sections[i], &sections[i].section.table[k], out);
        return true;
    }
    return false;
}

void write_method(const struct owned_section *sections, int n, const char *name, FILE *out)
{
    const struct method_preset *p = NULL;
    for (int i = 0; !method_of(name) && (p = method_preset(i)); i++)
        if (strcmp(p->name, name) == 0)
            break;
    const struct method *both[] = {p ? p->shard : method_of(name), p ? p->replicate : NULL};
    bool found = false;
    if (p)
        fprintf(out, "`%s` is short for `strategy.shard = %s`, `strategy.replicate = %s`.\n", name,
                p->shard->name, p->replicate->name);
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        size_t size;
        FILE *table = open_memstream(&text, &size);
        if (both[i] && write_method_table(sections, n, both[i]->name, table)) {
            fflush(table);
            fprintf(out, "%s%s", p || found ? "\n" : "", text);
            found = true;
        }
        fclose(table);
        free(text);
    }
    if (!found)
        fprintf(out,
                "%s`%s` has no options of its own. Options of all methods are in\n"
                "[strategy](../reference/options.md#strategy).\n",
                p ? "\n" : "", name);
}

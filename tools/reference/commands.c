/* commands.md: usage, examples and own options of the subcommands. */
#include <string.h>

#include "reference.h"

static const struct target_page cell = {"options.md", true};

static void write_own_options(const struct owned_section *sections, int n, const struct command *c,
                              FILE *out)
{
    bool begun = false;
    for (int s = 0; s < n; s++) {
        if (sections[s].owner != c || *sections[s].section.name)
            continue;
        if (!begun)
            fputs("| Option | Default | Values | Meaning |\n|---|---|---|---|\n", out);
        begun = true;
        for (int i = 0; i < sections[s].section.count; i++) {
            const struct option *o = &sections[s].section.table[i];
            fprintf(out, "| [`--%s`](options.md#", o->key);
            put_anchor(&sections[s], o, out);
            fputs(") | ", out);
            put_default(o, out);
            fputs(" | ", out);
            put_values(o, out);
            fputs(" | ", out);
            put_sentence(o->help, cell, out);
            fputs(" |\n", out);
        }
    }
    fputs(begun ? "\n" : "", out);
}

/* Writes links to the sections that the command takes. */
static void write_command_sections(const struct command *c, void *config, FILE *out)
{
    struct option_section sections[CLI_SECTIONS];
    const int n = command_sections(c, config, sections);
    bool begun = false;
    for (int i = 0; i < n; i++) {
        if (!*sections[i].name || !sections[i].count)
            continue;
        fprintf(out, "%s[%s](options.md#%s)",
                begun ? ", " : "Sections of options: ", sections[i].name, sections[i].name);
        begun = true;
    }
    fputs(begun ? ".\n\n" : "", out);
}

static void write_command(const struct owned_section *sections, int n, const struct command *c,
                          void *config, FILE *out)
{
    fprintf(out, "## sotto %s\n\n", c->name);
    put_sentence(c->summary, (struct target_page){"options.md", false}, out);
    fprintf(out, "\n\nUsage: `sotto %s%s%s`\n\n```sh\n", c->name, *c->usage ? " " : "", c->usage);
    for (const char *p = c->example; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        const char *first = p + (strncmp(p, "  ", 2) == 0 ? 2 : 0);
        fprintf(out, "%.*s\n", (int)(strcspn(p, "\n") - (size_t)(first - p)), first);
    }
    fputs("```\n\n", out);
    write_own_options(sections, n, c, out);
    write_command_sections(c, config, out);
}

void write_commands(const struct owned_section *sections, int n, FILE *out)
{
    static long config[CLI_CONFIG_ROOM / sizeof(long)];
    fputs("# Commands\n\n"
          "Every subcommand of `sotto`: usage, examples, and the options that are its own. The\n"
          "page is for looking up; [one machine](../start/one-machine.md) begins with the first\n"
          "run. `sotto COMMAND --help` prints the same.\n\n"
          "| Command | What the command does |\n|---|---|\n",
          out);
    for (int i = 0; command_list[i]; i++) {
        fprintf(out, "| [%s](#sotto-%s) | ", command_list[i]->name, command_list[i]->name);
        put_text(command_list[i]->summary, cell, out);
        fputs(" |\n", out);
    }
    fputs("| `sotto help [COMMAND]` | the list of commands, or the help of a command |\n"
          "| `sotto version` | the version |\n\n"
          "An option is `--key=value` or `--key value`; `--key` alone sets a key that is `true` "
          "or\n`false`. Words after `--` are names, also if they begin with `--`.\n"
          "[Exit codes](exit-codes.md) tells what a command returns.\n\n",
          out);
    for (int i = 0; command_list[i]; i++)
        write_command(sections, n, command_list[i], config, out);
}

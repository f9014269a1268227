/* sotto man: the manual page, in the macros of man(1), from the same tables as --help. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

/* Prints text with all characters escaped that are commands to the formatter. */
static void print_escaped(const char *text)
{
    const char *const begin = text;
    for (; *text; text++) {
        if ((*text == '.' || *text == '\'') && (text == begin || text[-1] == '\n'))
            fputs("\\&", stdout);
        switch (*text) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '`':
            fputs("\\(ga", stdout);
            break;
        case '\'':
            fputs("\\(aq", stdout);
            break;
        case '^':
            fputs("\\(ha", stdout);
            break;
        case '~':
            fputs("\\(ti", stdout);
            break;
        case '|':
            fputs("|\\:", stdout); /* where a line may end */
            break;
        default:
            putchar(*text);
        }
    }
}

static void print_option(const struct option_section *section, const struct option *o)
{
    char kind[512], flag[128];
    option_describe(o, kind, sizeof kind);
    snprintf(flag, sizeof flag, "--%s%s%s", section->name, *section->name ? "." : "", o->key);
    printf(".TP\n.B ");
    print_escaped(flag);
    printf("\n");
    print_escaped(o->help);
    printf(" (");
    print_escaped(kind);
    printf(")\n");
}

/* Returns the first command with this section, under which the options are printed. */
static const struct command *command_with_section(const struct command *const *all,
                                                  const struct command *c,
                                                  const struct option *table)
{
    struct option_section sections[CLI_SECTIONS];
    void *config = calloc(1, CLI_CONFIG_ROOM);
    const struct command *found = NULL;
    for (int i = 0; config && !found && all[i] != c; i++) {
        const int n = command_sections(all[i], config, sections);
        for (int s = 0; s < n; s++)
            if (sections[s].table == table)
                found = all[i];
    }
    free(config);
    return found;
}

static void print_usage(const struct command *c)
{
    printf(".B sotto %s\n", c->name);
    print_escaped(c->usage);
    fputs(*c->usage ? "\n" : "", stdout);
}

static void print_command(const struct command *const *all, const struct command *c,
                          const struct option_section *sections, int n)
{
    printf(".SH SOTTO %s\n", c->name);
    print_escaped(c->summary);
    printf(".\n.PP\n");
    print_usage(c);
    printf(".PP\n.nf\n");
    print_escaped(c->example);
    printf("\n.fi\n");
    for (int s = 0; s < n; s++) {
        if (sections[s].count == 0)
            continue;
        const struct command *before = command_with_section(all, c, sections[s].table);
        printf(".SS ");
        if (*sections[s].name)
            printf("[%s] ", sections[s].name);
        print_escaped(sections[s].about);
        printf("\n");
        if (before)
            printf("As under\n.BR \"sotto %s\" .\n", before->name);
        for (int i = 0; i < sections[s].count && !before; i++)
            print_option(&sections[s], &sections[s].table[i]);
    }
}

static enum sotto_status print_page(const struct command *const *all, void *config,
                                    const char *const *words, int n_words)
{
    struct option_section sections[CLI_SECTIONS];
    if (n_words > 0)
        return fail(SOTTO_EINVAL, "man prints the manual page and takes no '%s'", words[0]);
    printf(".TH SOTTO 1 \"\" \"sotto %s\" \"User Commands\"\n.SH NAME\nsotto \\- trains neural "
           "networks over slow networks\n.SH SYNOPSIS\n",
           sotto_version());
    for (int i = 0; all[i]; i++) {
        printf("%s", i ? ".br\n" : "");
        print_usage(all[i]);
    }
    printf(".SH DESCRIPTION\nTrains language models, and compares methods that train them, where "
           "the links between\nworkers are slow: as threads, as ranks of MPI, or as a simulated "
           "cluster.\nOptions are given as\n.BI \\-\\-section.key= value\non the command line or as"
           "\n.IB key \" = \" value\nunder\n.RI [ section ]\nin a file; the command line wins.\n");
    for (int i = 0; all[i]; i++)
        print_command(all, all[i], sections, command_sections(all[i], config, sections));
    printf(".SH FILES\n.TP\n.I RUN/config.json, model.safetensors, tokenizer.json\nThe newest "
           "checkpoint, as a Hugging Face model folder.\n.TP\n.I RUN/checkpoints/step\\-N\nA "
           "checkpoint, with the whole configuration in sotto.ini.\n.TP\n.I "
           "RUN/metrics.jsonl, report.json\nNumbers over the rounds, and of the whole run.\n"
           ".SH EXIT STATUS\n0 on success, 1 on an error, 130 after Ctrl\\-C.\n");
    return SOTTO_OK;
}

const struct command command_man = {
    .name = "man",
    .summary = "print the manual page",
    .usage = "",
    .example = "  sotto man | man -l -",
    .describe = print_page,
};

/* reference FOLDER: writes the pages and parts of pages that come from the program's tables. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sotto/sotto.h>

#include "reference.h"
#include "strategy/config.h"

/* True if the section is another command's, too. Methods may share a table. */
static bool is_listed(const struct owned_section *sections, int n, const struct option_section *s)
{
    for (int i = 0; i < n; i++)
        if (sections[i].section.table == s->table && strcmp(sections[i].section.name, s->name) == 0)
            return true;
    return false;
}

int list_sections(void *config, struct owned_section out[SECTIONS_MOST])
{
    int n = 0;
    for (int c = 0; command_list[c]; c++) {
        struct option_section found[CLI_SECTIONS];
        const int count = command_sections(command_list[c], config, found);
        for (int i = 0; i < count && n < SECTIONS_MOST; i++)
            if (found[i].count && !is_listed(out, n, &found[i]))
                out[n++] = (struct owned_section){found[i], command_list[c]};
    }
    return n;
}

void write_statuses(FILE *out)
{
    for (int i = 0; strcmp(sotto_status_name((enum sotto_status)i), "unknown") != 0; i++)
        fprintf(out, "%d\t%s\n", i, sotto_status_name((enum sotto_status)i));
}

static FILE *open_page(const char *folder, const char *before, const char *name, const char *end)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s%s", folder, before, name, end);
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "reference: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    return out;
}

static void close_page(FILE *out)
{
    if (fclose(out) != 0) {
        fprintf(stderr, "reference: cannot write: %s\n", strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static struct owned_section sections[SECTIONS_MOST];
    static long config[CLI_CONFIG_ROOM / sizeof(long)];
    if (argc != 2) {
        fprintf(stderr, "usage: reference FOLDER\n");
        return 2;
    }
    const int n = list_sections(config, sections);
    FILE *out = open_page(argv[1], "", "options.md", "");
    write_options(sections, n, out);
    close_page(out);
    out = open_page(argv[1], "", "commands.md", "");
    write_commands(sections, n, out);
    close_page(out);
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } parts[] = {{"statuses.tsv", write_statuses},
                 {"keys-report.md", write_report_keys},
                 {"keys-metrics.md", write_metric_keys}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        out = open_page(argv[1], "", parts[i].name, "");
        parts[i].write(out);
        close_page(out);
    }
    for (int i = 0; strategy_preset(i); i++) {
        out = open_page(argv[1], "options-", strategy_preset(i), ".md");
        write_method(sections, n, strategy_preset(i), out);
        close_page(out);
    }
    return 0;
}

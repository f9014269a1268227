/* What --help prints: a command in short, one section, one option, or everything. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

/* Options without a section in full, of the others a line a section. */
static void print_short(const struct command *c, const struct option_section *sections, int n)
{
    const struct option_section *first = NULL;
    for (int s = n - 1; s >= 0; s--)
        if (*sections[s].name)
            first = &sections[s];
    for (int s = 0; s < n; s++)
        if (!*sections[s].name)
            option_help(&sections[s], 1, stdout);
    if (!first)
        return;
    printf("\nOptions come in sections:\n");
    for (int s = 0; s < n; s++)
        if (*sections[s].name)
            printf("  %-10s %s\n", sections[s].name, sections[s].about);
    printf("\nsotto %s --help SECTION  tells the options of one section\n"
           "sotto %s --help KEY      tells about one option, such as %s.%s\n"
           "sotto %s --help all      tells everything\n",
           c->name, c->name, first->name, first->table[0].key, c->name);
}

static bool print_section(const struct option_section *sections, int n, const char *topic)
{
    for (int s = 0; s < n; s++)
        if (*topic && strcmp(sections[s].name, topic) == 0) {
            option_help(&sections[s], 1, stdout);
            printf(
                "\nIn a file these stand under [%s] without the prefix; on the command line a key "
                "that\nonly one section has may go without it too.\n",
                topic);
            return true;
        }
    return false;
}

/* "lr" and "optim.lr" alike; a key may be in several sections. */
static bool print_key(const struct option_section *sections, int n, const char *topic)
{
    bool found = false;
    for (int s = 0; s < n; s++) {
        const size_t length = strlen(sections[s].name);
        const bool inside =
            length && !strncmp(topic, sections[s].name, length) && topic[length] == '.';
        for (int i = 0; i < sections[s].count; i++) {
            const struct option *o = &sections[s].table[i];
            if (strcmp(o->key, inside ? topic + length + 1 : topic) != 0)
                continue;
            option_help_one(&sections[s], o, stdout);
            found = true;
        }
    }
    return found;
}

static enum sotto_status unknown_topic(const struct option_section *sections, int n,
                                       const char *topic)
{
    const char *best = NULL;
    int nearest = OPTION_FAR;
    for (int s = 0; s < n; s++) {
        for (int i = -1; i < sections[s].count; i++) {
            const char *name = i < 0 ? sections[s].name : sections[s].table[i].key;
            const int d = option_distance(topic, name);
            if (d < nearest) {
                nearest = d;
                best = name;
            }
        }
    }
    return fail(SOTTO_EINVAL, "--help: there is no section or option '%s'%s%s%s", topic,
                best ? ": did you mean '" : "", best ? best : "", best ? "'?" : "");
}

enum sotto_status help_print(const struct command *c, const struct option_section *sections, int n,
                             const char *topic)
{
    if (topic && strncmp(topic, "--", 2) == 0)
        topic += 2;
    const bool all = topic && strcmp(topic, "all") == 0;
    if (topic && !all) {
        if (print_section(sections, n, topic) || print_key(sections, n, topic))
            return SOTTO_OK;
        return unknown_topic(sections, n, topic);
    }
    printf("sotto %s: %s\n\nusage: sotto %s %s\nexample:\n%s\n", c->name, c->summary, c->name,
           c->usage, c->example);
    if (all)
        option_help(sections, n, stdout);
    else
        print_short(c, sections, n);
    return SOTTO_OK;
}

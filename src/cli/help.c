/* The output of --help: a command in short, one section, one option, or everything. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "nn/arch/arch.h"
#include "strategy/method.h"

/* Prints a paragraph for each method. */
static void print_methods(const char *command)
{
    const struct method *m;
    printf("\nMethods, as strategy.shard and strategy.replicate take them (--strategy=NAME\n"
           "takes either one, with ddp or sync):\n");
    for (int i = 0; (m = method_at(i)); i++) {
        if (i == 0 || m->axis != method_at(i - 1)->axis)
            printf("  %s\n", m->axis == METHOD_SHARD
                                 ? "inside a group of workers, gradients into parameters:"
                                 : "between groups, how they stay in agreement:");
        option_wrap(m->about, printf("    %-14s ", m->name), 19, stdout);
    }
    printf("  others that --strategy takes:\n");
    for (int i = 0; method_preset(i); i++)
        printf("    %s: %s x %s\n", method_preset(i)->name, method_preset(i)->shard->name,
               method_preset(i)->replicate->name);
    printf("sotto %s --help METHOD   the options of one method\n", command);
}

static bool has_methods(const struct option_section *sections, int n)
{
    for (int s = 0; s < n; s++)
        if (strcmp(sections[s].name, "strategy") == 0)
            return true;
    return false;
}

/* Prints a method without options; returns false if `topic` is none. */
static bool print_plain_method(const struct option_section *sections, int n, const char *topic)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)) && has_methods(sections, n); i++)
        if (strcmp(m->name, topic) == 0) {
            option_wrap(m->about, printf("%s  ", m->name), 4, stdout);
            printf("It has no options of its own.\n");
            return true;
        }
    return false;
}

static void print_archs(void)
{
    printf("\nArchitectures:\n");
    for (int i = ARCH_UNSET + 1; i < ARCH_COUNT; i++)
        option_wrap(archs[i]->about, printf("  %-10s ", archs[i]->name), 13, stdout);
}

/* True for the section of an architecture with options of its own. */
static bool is_arch(const struct option_section *section)
{
    for (int i = ARCH_UNSET + 1; i < ARCH_COUNT; i++)
        if (archs[i]->n_options && archs[i]->options == section->table)
            return true;
    return false;
}

/* Prints options without a section in full, and a line for every section. */
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
    printf("\nOptions are in sections:\n");
    for (int s = 0; s < n; s++)
        if (*sections[s].name && (!sections[s].used || is_arch(&sections[s])))
            printf("  %-10s %s\n", sections[s].name, sections[s].about);
    if (has_methods(sections, n))
        print_methods(c->name);
    printf("\nsotto %s --help SECTION  the options of one section\n"
           "sotto %s --help KEY      one option, such as %s.%s\n"
           "sotto %s --help all      everything\n",
           c->name, c->name, first->name, first->table[0].key, c->name);
}

static bool print_section(const struct option_section *sections, int n, const char *topic)
{
    for (int s = 0; s < n; s++)
        if (*topic && strcmp(sections[s].name, topic) == 0) {
            option_help(&sections[s], 1, stdout);
            if (strcmp(topic, "model") == 0)
                print_archs();
            printf(
                "\nIn a file these keys are under [%s] without the prefix; on the command line a "
                "key that only\none section has needs no prefix%s.\n",
                topic, sections[s].used ? ", if the section is in use" : "");
            return true;
        }
    return false;
}

/* Prints a key, "lr" or "optim.lr"; several sections may have the key. */
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

/* Prints a pair of methods with a name of its own, as "local-sgd" is ddp x local, and both methods'
 * options. */
static bool print_preset(const struct option_section *sections, int n, const char *topic)
{
    const struct method_preset *p;
    for (int i = 0; has_methods(sections, n) && (p = method_preset(i)); i++) {
        if (strcmp(p->name, topic) != 0)
            continue;
        printf("%s is %s x %s\n", topic, p->shard->name, p->replicate->name);
        print_section(sections, n, p->shard->name);
        print_section(sections, n, p->replicate->name);
        return true;
    }
    return false;
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
        if (strcmp(topic, "methods") == 0 && has_methods(sections, n))
            return print_methods(c->name), SOTTO_OK;
        if (print_section(sections, n, topic) || print_key(sections, n, topic) ||
            print_plain_method(sections, n, topic) || print_preset(sections, n, topic))
            return SOTTO_OK;
        return unknown_topic(sections, n, topic);
    }
    printf("sotto %s: %s\n\nusage: sotto %s %s\nexample:\n%s\n", c->name, c->summary, c->name,
           c->usage, c->example);
    if (all && has_methods(sections, n))
        print_methods(c->name);
    if (all)
        option_help(sections, n, stdout);
    else
        print_short(c, sections, n);
    return SOTTO_OK;
}

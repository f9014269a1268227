/* sotto completion: commands, options and values for bash's completion, from the same tables as
 * --help. */
#include "cli/command.h"

#include <string.h>

#include "nn/config.h"
#include "strategy/config.h"
#include "strategy/method.h"

/* True for a key of exactly one section, with no need for the section's name. */
static bool is_only_key(const struct option_section *sections, int n, const char *key)
{
    int found = 0;
    for (int s = 0; s < n; s++)
        for (int i = 0; i < sections[s].count; i++)
            found += strcmp(sections[s].table[i].key, key) == 0;
    return found == 1;
}

/* Prints the ways to write an option, each followed by `end`. */
static void print_flags(const struct option_section *sections, int n, int s, const char *key,
                        const char *between, const char *end)
{
    const char *name = sections[s].name;
    printf("%s--%s%s%s%s", between, name, *name ? "." : "", key, end);
    if (*name && is_only_key(sections, n, key))
        printf("%s--%s%s", *between ? between : "|", key, end);
    if (*name && strcmp(key, "preset") == 0)
        printf("%s--%s%s", *between ? between : "|", name, end);
}

static void print_section_options(const struct command *c, const struct option_section *sections,
                                  int n)
{
    printf("    %s) echo '--help", c->name);
    for (int s = 0; s < n; s++)
        for (int i = 0; i < sections[s].count; i++)
            print_flags(sections, n, s, sections[s].table[i].key, " ",
                        sections[s].table[i].type == OPTION_TYPE_BOOL ? "" : "=");
    printf("' ;;\n");
}

static void print_preset_names(const char *section)
{
    if (strcmp(section, "strategy") == 0)
        for (int i = 0; strategy_preset(i); i++)
            printf(" %s", strategy_preset(i));
    else if (strcmp(section, "model") == 0)
        for (int i = 0; i < model_presets_count; i++)
            printf(" %s", model_presets[i].config.preset);
}

/* True for strategy.shard and strategy.replicate, which take the name of a method; sets `axis`. */
static bool takes_method(const struct option_section *s, const char *key, enum method_axis *axis)
{
    *axis = strcmp(key, "shard") == 0 ? METHOD_SHARD : METHOD_REPLICATE;
    return strcmp(s->name, "strategy") == 0 &&
           (strcmp(key, "shard") == 0 || strcmp(key, "replicate") == 0);
}

static void print_method_names(enum method_axis axis)
{
    const struct method *m;
    for (int i = 0; (m = method_at(i)); i++)
        if (m->axis == axis)
            printf(" %s", m->name);
}

static void print_values(const struct command *c, const struct option_section *sections, int n)
{
    printf("    %s)\n        case $2 in\n", c->name);
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < sections[s].count; i++) {
            const struct option *o = &sections[s].table[i];
            const bool preset = strcmp(o->key, "preset") == 0;
            enum method_axis axis;
            const bool method = takes_method(&sections[s], o->key, &axis);
            if (o->type != OPTION_TYPE_ENUM && o->type != OPTION_TYPE_BOOL && !preset && !method)
                continue;
            printf("        ");
            print_flags(sections, n, s, o->key, "", "");
            printf(") echo");
            if (preset)
                print_preset_names(sections[s].name);
            else if (method)
                print_method_names(axis);
            else if (o->type == OPTION_TYPE_BOOL)
                printf(" true false");
            for (int k = 0; o->type == OPTION_TYPE_ENUM && o->names[k]; k++)
                printf(" %s", o->names[k]);
            printf(" ;;\n");
        }
    }
    printf("        esac ;;\n");
}

static void print_topics(const struct command *c, const struct option_section *sections, int n)
{
    printf("    %s) echo all", c->name);
    for (int s = 0; s < n; s++)
        if (*sections[s].name)
            printf(" %s", sections[s].name);
    printf(" ;;\n");
}

static void print_case_table(const struct command *const *all, const char *function, void *config,
                             void (*each)(const struct command *c,
                                          const struct option_section *sections, int n))
{
    struct option_section sections[CLI_SECTIONS];
    printf("%s() {\n    case $1 in\n", function);
    for (int i = 0; all[i]; i++) {
        const int n = command_sections(all[i], config, sections);
        each(all[i], sections, n);
    }
    printf("    esac\n}\n");
}

/* bash cuts --key=value at the '=', into three words. */
static const char rules[] =
    "_sotto() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} key= words\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$_sotto_commands\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n"
    "    if [ \"$cur\" = = ]; then\n"
    "        key=$last cur=\n"
    "    elif [ \"$last\" = = ]; then\n"
    "        key=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n"
    "    if [ -n \"$key\" ]; then\n"
    "        words=$(_sotto_values \"${COMP_WORDS[1]}\" \"$key\")\n"
    "    elif [ \"$last\" = --help ]; then\n"
    "        words=$(_sotto_topics \"${COMP_WORDS[1]}\")\n"
    "    elif [ \"${cur#-}\" != \"$cur\" ]; then\n"
    "        words=$(_sotto_options \"${COMP_WORDS[1]}\")\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "    if [ -n \"$words\" ]; then\n"
    "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "        compopt -o filenames 2>/dev/null\n"
    "    fi\n"
    "}\n"
    "complete -F _sotto sotto\n";

static enum sotto_status print_completion(const struct command *const *all, void *config,
                                          const char *const *words, int n_words)
{
    if (n_words > 1 || (n_words == 1 && strcmp(words[0], "bash") != 0))
        return fail(SOTTO_EINVAL, "completion knows bash, not '%s'", words[n_words - 1]);
    printf("# completion of sotto for bash, made by `sotto completion`\n_sotto_commands='help "
           "version");
    for (int i = 0; all[i]; i++)
        printf(" %s", all[i]->name);
    printf("'\n");
    print_case_table(all, "_sotto_options", config, print_section_options);
    print_case_table(all, "_sotto_values", config, print_values);
    print_case_table(all, "_sotto_topics", config, print_topics);
    fputs(rules, stdout);
    return SOTTO_OK;
}

const struct command command_completion = {
    .name = "completion",
    .summary = "print the completion of commands and options for bash",
    .usage = "[bash]",
    .example = "  . <(sotto completion)",
    .describe = print_completion,
};

/* Subcommands: one file each, in one table. */
#ifndef SOTTO_CLI_COMMAND_H
#define SOTTO_CLI_COMMAND_H

#include <stdio.h>

#include "base/option/option.h"

/* The words of a command line. */
struct command_line {
    const struct command *command;
    void *config;
    struct option_section *sections;
    int n_sections;
    int argc;
    const char *const *argv; /* after the command's name */
    const char **words;      /* (argc) words that are no options */
    int n_words;
    const char *file;   /* the configuration file among the words; NULL: none */
    bool left;          /* keys remain that depend on a choice not made yet */
    const char *folder; /* the folder among the words, for `beneath` */
};

struct command {
    const char *name, *summary;
    const char *usage;   /* after "sotto NAME " */
    const char *example; /* one or more whole commands */
    /* (optional) Fills in the option sections for parsing and help; `config` has room for
     * CLI_CONFIG_ROOM bytes. Default: none. */
    int (*sections)(void *config, struct option_section *out);
    enum sotto_status (*run)(void *config, const char *const *words, int n_words);
    /* (optional) Called in place of `run`, with all commands, which end with NULL. */
    enum sotto_status (*describe)(const struct command *const *all, void *config,
                                  const char *const *words, int n_words);
    /* (optional) Receives the name of the started program and the words after the command's name,
     * for printed commands; the texts stay valid. */
    void (*started_as)(void *config, const char *program, int argc, const char *const *argv);
    bool trains;       /* under mpirun the processes are workers of one run */
    bool reads_config; /* the first word is a configuration file, which options override */
    /* (optional) Reads the file into `config`; default: option_load. */
    enum sotto_status (*load)(void *config, const char *path);
    const char *folder_flag; /* (optional) "--resume": an option with a folder as value */
    /* (optional) Called after file and options are read: may replace `config` by another
     * configuration and read file and options over it with command_overlay. */
    enum sotto_status (*beneath)(void *config, struct command_line *line);
};

/* Runs sotto_command as a program: argv[0] is the name of the started program. */
enum sotto_status command_main(int argc, const char *const *argv);

/* Reads the file and the options of the command line over the present configuration. */
enum sotto_status command_overlay(struct command_line *line);

enum { CLI_SECTIONS = 48 };
#define CLI_CONFIG_ROOM (1024 * 1024)

extern const struct command command_train, command_eval, command_sample, command_tokenize,
    command_info, command_compare, command_man, command_completion;

extern const struct command *const command_list[]; /* ends with NULL */

/* Runs the command that argv[0] names, of the table `all`, which ends with NULL. `program`: the
 * started name, for printed commands. */
enum sotto_status command_run(const struct command *const *all, const char *program, int argc,
                              const char *const *argv);

int command_sections(const struct command *c, void *config, struct option_section *out);

/* Prints --help; topic NULL: in short, "all": everything, or the name of a section or of an option.
 */
enum sotto_status help_print(const struct command *c, const struct option_section *sections, int n,
                             const char *topic);

#endif

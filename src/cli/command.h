/* Subcommands: one file each, one table of them. */
#ifndef SOTTO_CLI_COMMAND_H
#define SOTTO_CLI_COMMAND_H

#include <stdio.h>

#include "base/option/option.h"

/* What a command was called with. */
struct command_line {
    const struct command *command;
    void *config;
    struct option_section *sections;
    int n_sections;
    int argc;
    const char *const *argv; /* behind the command's name                     */
    const char **words;      /* (argc) those that are no options              */
    int n_words;
    const char *file;   /* the word that is a configuration file; NULL: none  */
    bool left;          /* keys that depend on a choice that is not made yet */
    const char *folder; /* the word that is a folder, where `beneath` takes it */
};

struct command {
    const char *name, *summary;
    const char *usage;   /* behind "sotto NAME "        */
    const char *example; /* one or more whole commands  */
    /* (optional) Fills in the option sections for parsing and help; `config` has room for
     * CLI_CONFIG_ROOM bytes. Default: none. */
    int (*sections)(void *config, struct option_section *out);
    enum sotto_status (*run)(void *config, const char *const *words, int n_words);
    /* (optional) Called in place of `run`, with all commands, which end with NULL. */
    enum sotto_status (*describe)(const struct command *const *all, void *config,
                                  const char *const *words, int n_words);
    /* (optional) Told what the program was started as, and with what behind the command's name, for
     * the commands that are printed; the texts stay. */
    void (*started_as)(void *config, const char *program, int argc, const char *const *argv);
    bool trains;       /* under mpirun its processes are workers of one run */
    bool reads_config; /* its first word is a configuration file that options override */
    /* (optional) Reads that file into `config`; default: option_load. */
    enum sotto_status (*load)(void *config, const char *path);
    const char *folder_flag; /* (optional) "--resume": behind it, or as its value, comes a folder */
    /* (optional) Called once file and options are read: it may put another configuration beneath
     * them, and read them over it with command_overlay. */
    enum sotto_status (*beneath)(void *config, struct command_line *line);
};

/* sotto_command as a program: argv[0] is what that was started as. */
enum sotto_status command_main(int argc, const char *const *argv);

/* Reads the file and the options of the command line over what its configuration holds. */
enum sotto_status command_overlay(struct command_line *line);

enum { CLI_SECTIONS = 48 };
#define CLI_CONFIG_ROOM (1024 * 1024)

extern const struct command command_train, command_eval, command_sample, command_tokenize,
    command_info, command_compare, command_man, command_completion;

/* Runs the command of the table `all` (which ends with NULL) that argv[0] names; `program`: the
 * name that the user started, for commands that are printed. */
enum sotto_status command_run(const struct command *const *all, const char *program, int argc,
                              const char *const *argv);

int command_sections(const struct command *c, void *config, struct option_section *out);

/* --help; topic NULL: in short, "all": everything, or the name of a section or of an option. */
enum sotto_status help_print(const struct command *c, const struct option_section *sections, int n,
                             const char *topic);

#endif

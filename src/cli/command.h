/* Subcommands: one file each, one table of them. */
#ifndef SOTTO_CLI_COMMAND_H
#define SOTTO_CLI_COMMAND_H

#include <stdio.h>

#include "base/option.h"

struct command {
    const char *name, *summary;
    const char *usage;   /* behind "sotto NAME "        */
    const char *example; /* one or more whole commands  */
    /* Fills in the option sections for parsing and help; `config` has room for CLI_CONFIG_ROOM
     * bytes. */
    int (*sections)(void *config, struct option_section *out);
    enum sotto_status (*run)(void *config, const char *const *words, int n_words);
    bool trains;       /* under mpirun its processes are workers of one run */
    bool reads_config; /* its first word is a configuration file that options override */
    /* (optional) Reads that file into `config`; default: option_load. */
    enum sotto_status (*load)(void *config, const char *path);
};

enum { CLI_SECTIONS = 16 };
#define CLI_CONFIG_ROOM (1024 * 1024)

extern const struct command command_train, command_eval, command_sample, command_tokenize,
    command_info, command_compare;

#endif

/* The table of subcommands, with an entry for the program and an entry for programs that embed
 * sotto. */
#include "cli/command.h"

#include <sotto/sotto.h>

const struct command *const command_list[] = {
    &command_train,  &command_compare,    &command_eval,
    &command_sample, &command_tokenize,   &command_info,
    &command_man,    &command_completion, NULL,
};

enum sotto_status command_main(int argc, const char *const *argv)
{
    const char *program = argc > 0 && *argv[0] ? argv[0] : "sotto";
    return command_run(command_list, program, argc > 0 ? argc - 1 : 0, argv + (argc > 0));
}

enum sotto_status sotto_command(int argc, const char *const *argv)
{
    return command_run(command_list, "sotto", argc, argv);
}

/* The machinery of all subcommands: finding one, --help, options, messages. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"

int command_sections(const struct command *c, void *config, struct option_section *out)
{
    return c->sections ? c->sections(config, out) : 0;
}

static void print_overview(const struct command *const *all, FILE *out)
{
    fprintf(out,
            "sotto %s: trains neural networks over slow networks\n\nusage: sotto COMMAND ...\n\n",
            sotto_version());
    for (int i = 0; all[i]; i++)
        fprintf(out, "  %-10s %s\n", all[i]->name, all[i]->summary);
    fprintf(out, "\nsotto COMMAND --help describes a command. Start with:\n"
                 "  sotto train --out=my-run --data.train=book.txt --steps=500\n");
}

static void to_stderr(enum log_level level, const char *line, void *arg)
{
    (void)arg;
    static const char *const prefix[] = {
        [LOG_INFO] = "", [LOG_WARN] = "warning: ", [LOG_ERROR] = "sotto: "};
    fprintf(stderr, "%s%s\n", prefix[level], line);
}

/* Reports a failure before the run: only this worker knows of it. */
static enum sotto_status end_workers(enum sotto_status st)
{
    struct status_note note;
    status_save(&note, st);
    mpi_abort_unstarted(&note);
    return status_raise(&note);
}

enum sotto_status command_overlay(struct command_line *line)
{
    const struct command *c = line->command;
    if (line->file)
        TRY(c->load ? c->load(line->config, line->file)
                    : option_load(line->sections, line->n_sections, line->file));
    line->left = false;
    return option_parse_known(line->sections, line->n_sections, line->argc, line->argv, line->words,
                              &line->n_words, &line->left);
}

/* Reads file and options. Options override the file wherever the file's name is, so they are read
 * twice: for the name of the file, and over the file. */
static enum sotto_status read_command_line(struct command_line *line)
{
    const struct command *c = line->command;
    TRY(command_overlay(line));
    for (int i = line->n_words - 1; i >= 0 && c->reads_config; i--) {
        if (c->beneath && file_is_directory(line->words[i]))
            line->folder = line->words[i];
        else if (line->words[i] != line->folder) /* needs to exist on rank 0 only */
            line->file = line->words[i];
    }
    if (line->file) {
        option_defaults(line->sections, line->n_sections);
        TRY(command_overlay(line));
    }
    if (c->beneath)
        TRY(c->beneath(line->config, line));
    if (!line->left)
        return SOTTO_OK;
    return option_parse(line->sections, line->n_sections, line->argc, line->argv, line->words,
                        &line->n_words); /* reports the owners of the keys */
}

/* Returns the number of words before "--"; all words after it are names. */
static int before_names(int argc, const char *const *argv)
{
    int n = 0;
    while (n < argc && strcmp(argv[n], "--") != 0)
        n++;
    return n;
}

/* True for "--help", "--help TOPIC" or "--help=TOPIC" anywhere among the options. */
static bool asks_for_help(int argc, const char *const *argv, const char **topic)
{
    argc = before_names(argc, argv);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--help=", 7) == 0)
            return *topic = argv[i] + 7, true;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *topic = i + 1 < argc && strncmp(argv[i + 1], "-", 1) != 0 ? argv[i + 1] : NULL;
            return true;
        }
    }
    return false;
}

/* Finds the folder in "--resume=RUN" or "--resume RUN", and writes the second form to `out`, which
 * has room for twice the words. */
static enum sotto_status take_folder(struct command_line *line, const char **out)
{
    const char *flag = line->command->folder_flag;
    const size_t length = flag ? strlen(flag) : 0;
    const int options = before_names(line->argc, line->argv);
    int n = 0;
    for (int i = 0; i < line->argc; i++) {
        const char *word = line->argv[i], *folder = NULL;
        bool truth;
        out[n++] = word;
        if (i >= options || !flag || strncmp(word, flag, length) != 0)
            continue;
        if (!word[length] && i + 1 < line->argc && line->argv[i + 1][0] != '-') {
            folder = out[n++] = line->argv[++i];
        } else if (word[length] == '=' && !option_bool(word + length + 1, &truth)) {
            out[n - 1] = flag;
            folder = out[n++] = word + length + 1;
        }
        if (folder)
            line->folder = folder;
        if (folder && !file_is_directory(folder) && mpi_launched_rank() == 0)
            return fail(SOTTO_EINVAL,
                        "%s %s: %s, and %s wants the folder of a run, or of a checkpoint in it",
                        flag, folder,
                        file_exists(folder) ? "that is no folder" : "there is no such folder",
                        flag);
    }
    line->argv = out;
    line->argc = n;
    return SOTTO_OK;
}

/* Runs one command of the table `all`. */
static enum sotto_status run_command(const struct command *const *all, const struct command *c,
                                     const char *program, int argc, const char *const *argv)
{
    struct option_section sections[CLI_SECTIONS];
    struct command_line line = {.command = c,
                                .config = calloc(1, CLI_CONFIG_ROOM),
                                .sections = sections,
                                .argc = argc,
                                .argv = argv,
                                .words = calloc(2 * (size_t)argc + 1, sizeof *line.words)};
    const char **spelt = calloc(2 * (size_t)argc + 1, sizeof *spelt);
    const char *topic;
    enum sotto_status st = SOTTO_OK;
    if (!line.config || !line.words || !spelt) {
        st = fail(SOTTO_ENOMEM, "no memory to read the options");
        goto done;
    }
    line.n_sections = command_sections(c, line.config, sections);
    option_defaults(sections, line.n_sections);
    if (asks_for_help(argc, argv, &topic)) {
        TRY_DONE(help_print(c, sections, line.n_sections, topic));
        goto done;
    }
    TRY_DONE(take_folder(&line, spelt));
    TRY_DONE(read_command_line(&line));
    if (c->started_as)
        c->started_as(line.config, program, argc, argv);
    TRY_DONE(c->describe ? c->describe(all, line.config, line.words, line.n_words)
                         : c->run(line.config, line.words, line.n_words));
done:
    free(line.config);
    free(line.words);
    free(spelt);
    return c->trains && st != SOTTO_OK ? end_workers(st) : st;
}

static const struct command *find_command(const struct command *const *all, const char *name)
{
    for (int i = 0; all[i]; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

static enum sotto_status unknown_command(const struct command *const *all, const char *name)
{
    const char *names[32] = {0};
    for (int i = 0; all[i] && i < 31; i++)
        names[i] = all[i]->name;
    const char *near = option_closest(name, names);
    if (near)
        return fail(SOTTO_EINVAL, "unknown command '%s': did you mean '%s'?", name, near);
    return fail(SOTTO_EINVAL, "unknown command '%s': `sotto help` lists them", name);
}

/* True if rank 0 runs this command for all ranks. Only under mpirun: srun also starts tasks that
 * are independent of each other. */
static bool left_to_first(const struct command *const *all, int argc, const char *const *argv)
{
    const char *launcher = mpi_launcher(), *topic;
    const struct command *c = argc > 0 ? find_command(all, argv[0]) : NULL;
    if (!launcher || strcmp(launcher, "mpirun") != 0 ||
        (c && c->trains && !asks_for_help(argc, argv, &topic)))
        return false;
    if (c && !c->trains && mpi_launched_rank() == 0)
        log_warn("sotto %s runs in one process: the other ranks do nothing", c->name);
    return mpi_launched_rank() > 0;
}

enum sotto_status command_run(const struct command *const *all, const char *program, int argc,
                              const char *const *argv)
{
    log_set(to_stderr, NULL);
    if (left_to_first(all, argc, argv))
        return SOTTO_OK;
    if (argc < 1) {
        print_overview(all, stderr);
        return fail(SOTTO_EINVAL, "no command given");
    }
    if (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 ||
        strcmp(argv[0], "-h") == 0) {
        if (argc == 1)
            return print_overview(all, stdout), SOTTO_OK;
        const char *const asked[] = {"--help", argc > 2 ? argv[2] : ""};
        const struct command *c = find_command(all, argv[1]);
        return c ? run_command(all, c, program, argc > 2 ? 2 : 1, asked)
                 : unknown_command(all, argv[1]);
    }
    if (strcmp(argv[0], "version") == 0 || strcmp(argv[0], "--version") == 0) {
        printf("sotto %s\n", sotto_version());
        return SOTTO_OK;
    }
    const struct command *c = find_command(all, argv[0]);
    return c ? run_command(all, c, program, argc - 1, argv + 1) : unknown_command(all, argv[0]);
}

/* sotto compare */
#include "cli/command.h"

#include <string.h>

#include "cli/progress.h"
#include "cli/stop.h"
#include "comm/mpi/mpi.h"
#include "train/compare/compare.h"

struct compare_command {
    struct compare_config compare;
    char only[COMPARE_LIST_ROOM];
    bool again, list;
    struct run_config base;
    const char *program;
    int argc;
    const char *const *argv;
};

#define S struct compare_command
static const struct option table[] = {
    OPTION_TEXT(S, only, "", "run these only, as in ddp,acco"),
    OPTION_BOOL(S, again, "false", "repeat finished runs: their folders are removed"),
    OPTION_BOOL(S, list, "false", "show the runs and their options, and run nothing"),
};
#undef S

static int compare_sections(void *config, struct option_section *out)
{
    _Static_assert(sizeof(struct compare_command) <= CLI_CONFIG_ROOM, "raise CLI_CONFIG_ROOM");
    _Static_assert(RUN_SECTIONS + 2 <= CLI_SECTIONS, "raise CLI_SECTIONS");
    struct compare_command *c = config;
    out[0] = (struct option_section)OPTION_SECTION("", "options of the command", table, c);
    out[1] = compare_section(&c->compare);
    out[1].name = "";
    out[1].about = "the comparison, over FILE's [compare]";
    run_sections(&c->base, out + 2);
    return RUN_SECTIONS + 2;
}

static enum sotto_status load_comparison(void *config, const char *path)
{
    struct compare_command *c = config;
    struct spec spec;
    TRY(spec_load(&spec, path));
    c->compare = spec.compare;
    c->base = spec.base;
    spec_free(&spec);
    return SOTTO_OK;
}

static void compare_started_as(void *config, const char *program, int argc, const char *const *argv)
{
    struct compare_command *c = config;
    c->program = program;
    c->argc = argc;
    c->argv = argv;
}

struct watched_comparison {
    struct progress progress;
    const struct compare_command *command;
};

static void fresh_line(void *arg)
{
    struct progress *p = &((struct watched_comparison *)arg)->progress;
    if (p->pending) /* the summary takes the place of the last progress line */
        fputs("\r\033[K", p->out);
    p->pending = false;
}

/* Rewrites the line of a round on a terminal; elsewhere prints some of the rounds. */
static void tell_round_of(void *arg, const struct compare_at *at, const struct run_step *s)
{
    struct progress *p = &((struct watched_comparison *)arg)->progress;
    char before[128] = "";
    if (!p->terminal) /* a terminal shows the line of the run's beginning */
        snprintf(before, sizeof before, "[%d/%d] %s: ", at->at, at->wanted, at->label);
    if (p->terminal || at->line)
        progress_step(p, s, before, at->left);
}

/* Prints the command that continues the comparison: the same, without --again, which would repeat
 * finished runs. */
static void print_compare_command(void *arg, const struct comm *world)
{
    const struct compare_command *c = ((struct watched_comparison *)arg)->command;
    printf("to continue: ");
    mpi_print_launcher(world, stdout);
    option_put_word(c->program, stdout);
    printf(" compare");
    for (int i = 0; i < c->argc; i++) {
        if (strncmp(c->argv[i], "--again", 7) == 0)
            continue;
        putchar(' ');
        option_put_word(c->argv[i], stdout);
    }
    putchar('\n');
    fflush(stdout); /* a launcher reads no more once MPI has ended */
}

static enum sotto_status run_spec(const struct spec *spec, const struct run_config *before,
                                  const struct compare_command *c)
{
    struct watched_comparison w = {.command = c};
    progress_init(&w.progress, stdout);
    struct compare_how how = {.only = c->only,
                              .again = c->again,
                              .out = stdout,
                              .before = before,
                              .stop = stop_watch(),
                              .step = tell_round_of,
                              .fresh_line = fresh_line,
                              .stopped = print_compare_command,
                              .arg = &w};
    return compare_run(spec, &how);
}

static enum sotto_status run_compare(void *config, const char *const *words, int n_words)
{
    const struct compare_command *c = config;
    struct spec spec;
    if (n_words != 1)
        return fail(SOTTO_EINVAL, "compare wants one file%s%s", n_words ? ", got also " : "",
                    n_words ? words[1] : "");
    TRY(spec_load(&spec, words[0]));
    const struct run_config before = spec.base;
    spec.compare = c->compare;
    spec.base = c->base;
    enum sotto_status st = c->list ? compare_list(&spec, stdout) : run_spec(&spec, &before, c);
    spec_free(&spec);
    return st;
}

const struct command command_compare = {
    .name = "compare",
    .summary = "run configurations that differ from one base, and compare them",
    .usage = "FILE.ini [--key=value ...]",
    .example = "  sotto compare acco.ini --list\n"
               "  sotto compare acco.ini --out=quick --steps=20",
    .sections = compare_sections,
    .started_as = compare_started_as,
    .run = run_compare,
    .trains = true,
    .reads_config = true,
    .load = load_comparison,
};

/* sotto train */
#define _GNU_SOURCE /* open_memstream, fmemopen */
#include "cli/command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/run_text.h"
#include "cli/stop.h"
#include "comm/mpi/mpi.h"
#include "train/open/resume.h"

struct train_command {
    struct run_config run; /* first: sotto.ini of a checkpoint has only these keys */
    bool dry_run;
    const char *program;
    const char *from;   /* checkpoint in another folder to continue from; NULL: none */
    struct comm *world; /* MPI's, for a resumed run, whose folder only rank 0 needs */
};

#define S struct train_command
static const struct option table[] = {
    OPTION_BOOL(S, dry_run, "false",
                "check everything, print the plan, and leave the folder unchanged"),
};
#undef S

static int train_sections(void *config, struct option_section *out)
{
    _Static_assert(sizeof(struct train_command) <= CLI_CONFIG_ROOM, "raise CLI_CONFIG_ROOM");
    _Static_assert(RUN_SECTIONS + 1 <= CLI_SECTIONS, "raise CLI_SECTIONS");
    struct train_command *c = config;
    out[0] = (struct option_section)OPTION_SECTION("", "options of the command", table, c);
    run_sections(&c->run, out + 1);
    return RUN_SECTIONS + 1;
}

static void train_started_as(void *config, const char *program, int argc, const char *const *argv)
{
    (void)argc, (void)argv;
    ((struct train_command *)config)->program = program;
}

/* Prints, between two texts, what the printed command needs in addition, if anything. */
static void print_missing_flags(const struct run *run, const char *before, const char *behind,
                                FILE *out)
{
    const char *lacks = mpi_launcher_missing(run->cluster.mpi);
    if (lacks)
        fprintf(out, "%s%s%s", before, lacks, behind);
}

/* Prints how to continue a run that did not reach its end. */
static void print_resume_command(const struct run *run, enum sotto_status st, FILE *to)
{
    const char *out = run_place(run);
    char folder[FILE_PATH_ROOM], *command = NULL;
    size_t size;
    int64_t step;
    struct status_note cause;
    status_save(&cause, st);
    if (st != SOTTO_ESTOPPED && checkpoint_newest(out, false, &step, folder) == SOTTO_OK &&
        step >= 0)
        fprintf(to, "the last good checkpoint is %s\n", folder);
    else
        step = -1;
    if (st == SOTTO_ENUMERIC && step > 0 && step == run->diverged)
        fprintf(to,
                "its parameters may have diverged already: if the command below fails at step %lld "
                "again, remove %s, and the command continues from the checkpoint before\n",
                (long long)step + 1, folder);
    FILE *text = open_memstream(&command, &size);
    const bool known = text && resume_command(run, st == SOTTO_ENUMERIC ? 0.1 : 1, text);
    if (text && known)
        print_missing_flags(run, "  # ", "", text);
    fflush(to); /* a launcher prints one write in one piece, and mixes several with other ranks'
                   output */
    if (text && fclose(text) == 0 && known)
        fprintf(to, "to continue%s: %s\n",
                st == SOTTO_ENUMERIC ? " with a tenth of the learning rate" : "", command);
    else if (!known && st != SOTTO_ESTOPPED && run_keeps(run) && run->cluster.leads)
        fprintf(to, "there is no checkpoint to continue from\n");
    free(command);
    fflush(to);
    status_raise(&cause);
}

/* The texts for a signal, prepared before a signal arrives. */
struct signal_words {
    struct progress progress; /* first: argument of the watcher's functions */
    void (*saved)(void *arg, int64_t step, const char *folder); /* progress's */
    const struct run *run;
    struct stop_words said[2]; /* in turns: a handler may be reading the previous texts */
    struct stop_words over;    /* after the run was stopped and saved */
    bool stopped;
    char asked[2][2 * FILE_PATH_ROOM], gone[2][4 * FILE_PATH_ROOM], saved_text[2 * FILE_PATH_ROOM];
    int turn;
};

static void print_last_word(void *arg, const struct run *run, enum sotto_status st)
{
    const struct signal_words *w = arg;
    const char *gone = run->cluster.mpi && !w->stopped ? mpi_lost_rank(run->cluster.mpi) : NULL;
    if (gone)
        fprintf(stderr, "sotto: %s is gone\n", gone);
    print_resume_command(run, w->stopped ? SOTTO_ESTOPPED : gone ? SOTTO_EPEER : st, stderr);
}

/* Returns the name of a lost rank for the reporting rank: rank 0, or rank 1 if rank 0 is lost. */
static const char *find_lost(const void *arg)
{
    const struct comm *mpi = arg;
    const char *name = mpi_lost_rank(mpi);
    const bool first = name && strcmp(name, mpi_rank_name(mpi, 0)) == 0;
    return !name || mpi->rank == 0 || (mpi->rank == 1 && first) ? name : "";
}

static void write_stop_text(const struct run *run, bool saved, FILE *out)
{
    if (!run_keeps(run)) {
        fputs(", will stop as soon as all workers can; nothing is saved\n", out);
        return;
    }
    fputs(", will stop: saving as soon as all workers can (a second signal ends the run unsaved); ",
          out);
    fputs(saved ? "should the process be killed before, " : "there is no checkpoint yet\n", out);
    if (!saved)
        return;
    resume_plainly(run, out);
    print_missing_flags(run, " (", ")", out);
    fputs(" continues from the last checkpoint\n", out);
}

static void write_lost_text(const struct run *run, const char *folder, FILE *out)
{
    fputs(" is gone, and the run cannot continue without it; ", out);
    if (!run_keeps(run)) {
        fputs("nothing is saved\n", out);
    } else if (!run->cluster.leads) {
        resume_plainly(run, out);
        print_missing_flags(run, " (", ")", out);
        fputs(" continues from the last checkpoint, if there is one\n", out);
    } else if (!*folder) {
        fputs("there is no checkpoint yet\n", out);
    } else {
        fprintf(out, "the last checkpoint is %s\nto continue: ", folder);
        resume_plainly(run, out);
        print_missing_flags(run, "  # ", "", out);
        fputc('\n', out);
    }
}

/* Sets the texts for a signal. `folder`: the newest checkpoint, "" if there is none. */
static void set_signal_texts(struct signal_words *w, const char *folder)
{
    const struct run *run = w->run;
    struct stop_words *said = &w->said[w->turn ^= 1];
    FILE *asked = fmemopen(w->asked[w->turn], sizeof *w->asked - 1, "w");
    FILE *gone = fmemopen(w->gone[w->turn], sizeof *w->gone - 1, "w");
    *said = (struct stop_words){.gone = gone ? w->gone[w->turn] : NULL};
    if (run->cluster.leads && asked)
        said->asked = w->asked[w->turn];
    if (run->cluster.mpi) {
        said->lost = find_lost;
        said->arg = run->cluster.mpi;
    }
    if (asked) {
        write_stop_text(run, *folder, asked);
        fclose(asked);
    }
    if (gone) {
        write_lost_text(run, folder, gone);
        fclose(gone);
    }
    stop_words(said);
}

static void tell_saved(void *arg, int64_t step, const char *folder)
{
    struct signal_words *w = arg;
    w->saved(&w->progress, step, folder);
    set_signal_texts(w, folder);
}

/* Returns "the run" in the rank that reports a loss: then the run is saved. */
static const char *find_saved(const void *arg)
{
    const char *name = find_lost(arg);
    return name && *name ? "the run" : name;
}

static void write_saved_text(const struct run *run, FILE *out)
{
    if (!run_keeps(run)) {
        fputs(" was stopped, and nothing is saved\n", out);
        return;
    }
    fputs(" was stopped and is saved, without a report: ", out);
    resume_plainly(run, out);
    print_missing_flags(run, " (", ")", out);
    fputs(" continues the run\n", out);
}

/* Sets the texts for the time after saving: a launcher may kill a rank whose report takes long, and
 * then signal the others, but nothing of the run is lost. */
static void tell_stopped_run(void *arg)
{
    struct signal_words *w = arg;
    FILE *text = fmemopen(w->saved_text, sizeof w->saved_text - 1, "w");
    if (text) {
        write_saved_text(w->run, text);
        fclose(text);
    }
    if (w->run->cluster.mpi)
        w->over = (struct stop_words){
            .gone = w->saved_text, .lost = find_saved, .arg = w->run->cluster.mpi};
    w->stopped = true;
    stop_words(&w->over);
}

/* Drops the former length if a length is given, in any unit. */
static void forget_length(struct train_config *before, const struct train_config *given)
{
    if (given->steps < 0 && !given->tokens && !given->samples && !(given->seconds > 0))
        return;
    before->steps = -1;
    before->tokens = before->samples = 0;
    before->seconds = 0;
}

/* True if the user named neither data nor folder: the folder after --resume was forgotten. */
static bool is_bare(const struct run_config *c)
{
    return strcmp(c->train.out, "run") == 0 && !*c->data.train && c->train.oracle == ORACLE_MODEL;
}

/* True if the command line or the file names the run's folder. */
static bool names_out(const struct run_config *c, const struct command_line *line)
{
    bool says = strcmp(c->train.out, "run") != 0;
    for (int i = 0; i < line->argc && strcmp(line->argv[i], "--") != 0; i++)
        says |= strncmp(line->argv[i], "--out=", 6) == 0 ||
                strncmp(line->argv[i], "--train.out=", 12) == 0 ||
                strcmp(line->argv[i], "--out") == 0 || strcmp(line->argv[i], "--train.out") == 0;
    return says;
}

/* Refuses a folder with a checkpoint under a wrong name or in a wrong place. */
static enum sotto_status refuse_checkpoint(const char *folder)
{
    char path[FILE_PATH_ROOM], run[FILE_PATH_ROOM];
    int64_t step;
    TRY(file_join(path, folder, "state.safetensors"));
    if (!file_exists(path))
        return SOTTO_OK;
    if (steps_named(folder, &step, run))
        return fail(SOTTO_EINVAL,
                    "%s is a checkpoint outside of a run's folder: --out=FOLDER sets the folder to "
                    "continue in",
                    folder);
    return fail(SOTTO_EINVAL,
                "%s holds a checkpoint under another name than step-00000100, and its step is "
                "unknown: --resume takes a checkpoint under such a name only",
                folder);
}

/* Refuses --resume with one run and --out with another folder. */
static enum sotto_status refuse_two_folders(const char *folder, const char *out)
{
    char newest[FILE_PATH_ROOM], from[FILE_PATH_ROOM], to[FILE_PATH_ROOM];
    int64_t step;
    TRY(refuse_checkpoint(folder));
    TRY(checkpoint_latest(folder, &step, newest));
    if (step < 0)
        return fail(SOTTO_EINVAL, "--resume %s and train.out = %s name two folders", folder, out);
    return fail(SOTTO_EINVAL,
                "--resume %s and train.out = %s name two folders: `sotto train --resume %s "
                "--out=%s` continues from that run's newest checkpoint in the other folder",
                folder, out, option_word(newest, from, sizeof from),
                option_word(out, to, sizeof to));
}

/* Refuses to resume the run of a folder without a checkpoint. */
static enum sotto_status refuse_without(const char *folder)
{
    TRY(rundir_unused(folder)); /* the first checkpoint may be in progress */
    TRY(refuse_checkpoint(folder));
    return fail(SOTTO_EINVAL,
                "there is no checkpoint in %s to continue from: a run is saved at its end, and "
                "before that by train.save_minutes and train.save_every",
                folder);
}

/* Reads the configuration of the run, or of its named checkpoint. A folder with a checkpoint's name
 * outside of a folder of checkpoints is a run, unless --out is given. */
static enum sotto_status read_before(struct train_command *t, const struct command_line *line,
                                     struct run_config *before, bool *found)
{
    const struct run_config *c = &t->run;
    const char *folder = line->folder;
    const bool says = names_out(c, line);
    const bool other = folder && says && !file_same_name(c->train.out, folder);
    char run[FILE_PATH_ROOM];
    int64_t step;
    if (folder && steps_named(folder, &step, run) && (*run || (other && *c->train.out))) {
        bool from;
        TRY(resume_config_at(before, t->world, folder, says ? c->train.out : "", &from));
        t->from = from ? folder : NULL;
        *found = true;
        return SOTTO_OK;
    }
    if (other)
        return refuse_two_folders(folder, c->train.out);
    return resume_config(before, t->world, folder ? folder : c->train.out, found);
}

/* Puts the run's own configuration under the file and the options. */
static enum sotto_status put_beneath(struct train_command *t, struct command_line *line)
{
    struct run_config *c = &t->run;
    const char *folder = line->folder;
    bool found = false;
    struct run_config *before = calloc(1, sizeof *before);
    if (!before)
        return fail(SOTTO_ENOMEM, "no memory for a configuration");
    enum sotto_status st;
    TRY_DONE(read_before(t, line, before, &found));
    if (folder && !found)
        TRY_DONE(refuse_without(folder));
    if (!found && is_bare(c))
        TRY_DONE(fail(SOTTO_EINVAL, "--resume wants the folder of a run: sotto train --resume RUN "
                                    "(there is none in ./run, and nothing to begin one with)"));
    if (!found)
        goto done;
    if (t->world) /* the launcher counts the ranks */
        before->train.workers = 0;
    forget_length(&before->train, &c->train);
    strategy_unsay(&before->strategy);
    if (before->optim.kind == OPTIM_SGD) /* SGD does not use the key */
        before->optim.beta2_said = false;
    *c = *before;
    TRY_DONE(command_overlay(line));
    strcpy(c->train.out, before->train.out);
    TRY_DONE(strategy_optim(&c->strategy, &c->optim, &before->optim));
    optim_set_aside(&c->optim, &before->optim);
    strategy_set_aside(&c->strategy, &before->strategy);
done:
    free(before);
    return st;
}

/* Allows one configuration file and one folder of a run; checked by rank 0. */
static enum sotto_status check_words(const char *const *words, int n)
{
    for (int i = 1; i < n && mpi_launched_rank() == 0; i++)
        if (n > 2 || file_is_directory(words[0]) == file_is_directory(words[1]))
            return fail(SOTTO_EINVAL, "one configuration file at most, got '%s' and '%s'", words[0],
                        words[1]);
    return SOTTO_OK;
}

/* Ends all ranks on a failure after MPI's start. */
static enum sotto_status end_ranks(struct train_command *t, enum sotto_status st)
{
    struct status_note note;
    if (st == SOTTO_OK || st == SOTTO_ESTOPPED || !t->world)
        return st;
    status_save(&note, st);
    t->world->ops->abort(t->world, &note);
    return status_raise(&note);
}

/* Puts the run's configuration under the options for --resume. Under MPI the other ranks receive
 * rank 0's results, so MPI starts here and stays until the run has ended. */
static enum sotto_status train_beneath(void *config, struct command_line *line)
{
    struct train_command *t = config;
    TRY(check_words(line->words, line->n_words));
    if (line->folder && !t->run.train.resume)
        return fail(SOTTO_EINVAL, "%s is a folder: --resume %s continues the run in it",
                    line->folder, line->folder);
    if (!t->run.train.resume)
        return SOTTO_OK;
    const struct mpi_config mpi = {.collectives = MPI_COLLECTIVES_RING, .meet = t->run.comm.meet};
    if (mpi_detected())
        TRY(mpi_world(&t->world, &mpi));
    return end_ranks(t, put_beneath(t, line));
}

static enum sotto_status print_dry_run(struct run *run, const struct train_command *c)
{
    TRY(run_plan(run, &c->run, c->from));
    enum sotto_status st = run->cluster.leads ? plan_print(run) : SOTTO_OK;
    run_close(run);
    return st;
}

static enum sotto_status train_and_report(struct run *run, const struct train_command *c)
{
    struct signal_words words = {.run = run};
    progress_init(&words.progress, stdout);
    struct run_watch watch = progress_watch(&words.progress);
    words.saved = watch.saved;
    watch.saved = tell_saved;
    watch.stopped = tell_stopped_run;
    watch.stop = stop_watch();
    watch.failed = print_last_word;
    watch.program = c->program;
    watch.from = c->from;
    TRY(run_open(run, &c->run, &watch));
    if (run->cluster.mpi)
        mpi_record_connections(run->cluster.mpi);
    set_signal_texts(&words, run->checkpoint);
    if (run->cluster.leads)
        plan_begin(run);
    enum sotto_status st = run_train(run);
    stop_words(NULL);
    progress_end(&words.progress);
    if (st == SOTTO_OK && run->cluster.leads) {
        report_print(run);
    } else if (st != SOTTO_OK) {
        print_resume_command(run, st, stdout);
    }
    if (st == SOTTO_ESTOPPED && *watch.stop)
        st = fail_in(st, "%s: ", stop_name(*watch.stop));
    const bool said = st == SOTTO_ESTOPPED && run->cluster.mpi;
    if (said) /* an interrupted launcher reads nothing after MPI's end, which is next */
        fprintf(stderr, "sotto: %s\n", sotto_error());
    run_close(run);
    return said ? fail(st, "%s", "") : st;
}

static enum sotto_status run_train_command(void *config, const char *const *words, int n_words)
{
    struct train_command *c = config;
    struct run *run = malloc(sizeof *run); /* half a megabyte */
    (void)words, (void)n_words;
    enum sotto_status st = !run         ? fail(SOTTO_ENOMEM, "no memory for a run")
                           : c->dry_run ? print_dry_run(run, c)
                                        : train_and_report(run, c);
    st = end_ranks(c, st);
    free(run);
    comm_free(c->world);
    c->world = NULL;
    return st;
}

const struct command command_train = {
    .name = "train",
    .summary = "train a model, or continue training",
    .usage = "[CONFIG.ini] [--resume RUN] [--key=value ...]",
    .example = "  sotto train --out=my-run --data.train=book.txt --steps=500\n"
               "  sotto train --resume my-run\n"
               "  sotto train --resume my-run/checkpoints/step-00000500 --out=other\n"
               "  sotto train my.ini --workers=4 --strategy=zero1\n"
               "  mpirun -n 4 sotto train my.ini --strategy=fsdp\n"
               "  sotto train my.ini --workers=8 --nodes=8 --time=virtual \\\n"
               "      --link.inter=100Mbit/s,5ms",
    .sections = train_sections,
    .started_as = train_started_as,
    .run = run_train_command,
    .trains = true,
    .reads_config = true,
    .folder_flag = "--resume",
    .beneath = train_beneath,
};

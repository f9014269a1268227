#include "train/open/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/config/paths.h"
#include "train/run/lend.h"
#include "train/run/rescue_find.h"

void resume_keep(struct run_config *config)
{
    paths_complete(config);
    config->train.resume = false;
    config->train.check_memory = config->train.check_disk = true;
}

enum sotto_status resume_read(struct run_config *out, struct comm *mpi, const char *checkpoint)
{
    char path[FILE_PATH_ROOM], *text = NULL;
    TRY(file_join(path, checkpoint, "sotto.ini"));
    if (!mpi || mpi->rank == 0)
        TRY(option_file(path, &text));
    size_t size = text ? strlen(text) : 0;
    enum sotto_status st = mpi ? lend_text(mpi, &text, &size) : SOTTO_OK;
    if (st == SOTTO_OK)
        st = config_parse_kept(out, text, path);
    free(text);
    return st;
}

enum sotto_status resume_find(struct comm *mpi, const char *folder, bool say, int64_t *step,
                              char checkpoint[FILE_PATH_ROOM], struct checkpoint_hold *hold)
{
    *step = -1;
    hold->file = -1;
    if (!mpi || mpi->rank == 0)
        TRY(rescue_newest(hold, folder, say, step, checkpoint));
    if (!mpi)
        return SOTTO_OK;
    struct {
        int64_t step;
        char checkpoint[FILE_PATH_ROOM];
    } found = {.step = *step};
    if (*step >= 0)
        strcpy(found.checkpoint, checkpoint);
    TRY(comm_broadcast(mpi, view_of(&found, DTYPE_U8), sizeof found, 0));
    *step = found.step;
    strcpy(checkpoint, found.checkpoint);
    return SOTTO_OK;
}

static enum sotto_status check_out_room(const struct run_config *c, const char *folder)
{
    if (strlen(folder) >= sizeof c->train.out)
        return fail(SOTTO_EINVAL, "%s is too long a path", folder);
    return SOTTO_OK;
}

enum sotto_status resume_config(struct run_config *out, struct comm *mpi, const char *folder,
                                bool *found)
{
    char checkpoint[FILE_PATH_ROOM];
    struct checkpoint_hold hold;
    int64_t step;
    *found = false;
    TRY(check_out_room(out, folder));
    TRY(resume_find(mpi, folder, false, &step, checkpoint, &hold));
    if (step < 0)
        return SOTTO_OK;
    *found = true;
    const enum sotto_status st = resume_read(out, mpi, checkpoint);
    checkpoint_release(&hold);
    TRY(st);
    strcpy(out->train.out, folder);
    out->train.resume = true;
    return SOTTO_OK;
}

/* Fails unless `checkpoint` is the newest readable one in its run's own folder. */
static enum sotto_status check_is_newest(struct comm *mpi, const char *checkpoint, int64_t step,
                                         const char *run)
{
    char newest[FILE_PATH_ROOM], from[FILE_PATH_ROOM], whole[FILE_PATH_ROOM];
    struct checkpoint_hold hold;
    int64_t last;
    TRY(resume_find(mpi, run, false, &last, newest, &hold));
    checkpoint_release(&hold);
    if (last < step && (!mpi || mpi->rank == 0))
        TRY(fail_in(checkpoint_check(checkpoint), "%s cannot be read: ", checkpoint));
    if (last <= step)
        return SOTTO_OK;
    return fail(
        SOTTO_EINVAL,
        "the run in %s has continued from there to step %lld: `sotto train --resume %s "
        "--out=FOLDER` continues from step %lld in another folder and leaves that run as it "
        "is; `sotto train --resume %s` continues from step %lld",
        run, (long long)last, option_word(checkpoint, from, sizeof from), (long long)step,
        option_word(run, whole, sizeof whole), (long long)last);
}

enum sotto_status resume_config_at(struct run_config *out, struct comm *mpi, const char *checkpoint,
                                   const char *folder, bool *from)
{
    char run[FILE_PATH_ROOM];
    int64_t step;
    bool found;
    steps_named(checkpoint, &step, run);
    *from = *folder && !file_same_name(folder, run);
    TRY(check_out_room(out, *from ? folder : run));
    if (!*from) {
        TRY(check_is_newest(mpi, checkpoint, step, run));
        return resume_config(out, mpi, run, &found);
    }
    TRY(resume_read(out, mpi, checkpoint));
    strcpy(out->train.out, folder);
    out->train.resume = true;
    return SOTTO_OK;
}

/* Keys that a run cannot change, with the reason. Sizes of the model are not here: check.c compares
 * the sizes with the loaded model's. */
static const struct {
    const char *key, *reason;
} fixed[] = {
    {"train.init", "its parameters come from the checkpoint"},
    {"train.head", "its parameters come from the checkpoint"},
    {"model.preset", "the model is the checkpoint's"},
    {"data.vocab", "the tokenizer is the checkpoint's"},
    {"data.tokenizer", "the tokenizer is the checkpoint's"},
    {"optim.kind", NULL}, /* resume_check_optim */
};

struct resume_refusal {
    const struct run *run;
    enum sotto_status st;
};

enum sotto_status resume_check_optim(const struct strategy_config *strategy,
                                     const struct optim_config *before,
                                     const struct optim_config *now, const char *where)
{
    static const char reason[] = "the checkpoint holds its state";
    char key[OPTION_ROOM], value[OPTION_ROOM], other[OPTION_ROOM];
    if (before->kind == now->kind || !optim_keeps(before))
        return SOTTO_OK;
    if (!strategy_optim_key(strategy, key, value))
        return fail(SOTTO_EINVAL, "optim.kind = %s: %s has '%s' and keeps it, since %s",
                    optim_name(now), where, optim_name(before), reason);
    if (strategy_optim_value(strategy, before->kind, other) && before->momentum == 0)
        return fail(SOTTO_EINVAL,
                    "%s = %.200s: %s has the optimizer '%s' and keeps it, since %s; %s = %.200s "
                    "continues with it",
                    key, value, where, optim_name(before), reason, key, other);
    return fail(SOTTO_EINVAL, "%s = %.200s: %s has the optimizer '%s'%s and keeps it, since %s",
                key, value, where, optim_name(before),
                before->momentum != 0 ? " with momentum" : "", reason);
}

/* The folder that the run continues from. */
static const char *folder_before(const struct run *run)
{
    return run->watch.from ? run->watch.from : run->config.train.out;
}

static void refuse_one(void *arg, const char *key, const char *old_value, const char *new_value)
{
    struct resume_refusal *r = arg;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && r->st == SOTTO_OK; i++) {
        if (strcmp(fixed[i].key, key) != 0)
            continue;
        if (strncmp(key, "data.", 5) == 0 && !r->run->own_tokenizer)
            continue; /* data may change from tokens to text */
        if (strncmp(key, "model.", 6) == 0 && *r->run->config.train.init && !*old_value)
            continue; /* the user never set the preset */
        if (strcmp(key, "optim.kind") == 0) {
            char where[FILE_PATH_ROOM + 16];
            snprintf(where, sizeof where, "the run in %s", folder_before(r->run));
            r->st = resume_check_optim(&r->run->config.strategy, &r->run->before->optim,
                                       &r->run->config.optim, where);
            continue;
        }
        r->st =
            fail(SOTTO_EINVAL, "%s = %.200s: the run in %s has %s'%.200s' and keeps it, since %s",
                 key, new_value, folder_before(r->run), *old_value ? "" : "the default ", old_value,
                 fixed[i].reason);
    }
}

static bool is_reported_key(const char *key)
{
    return strncmp(key, "model.", 6) != 0 && strcmp(key, "train.out") != 0 &&
           strcmp(key, "train.init") != 0 && strcmp(key, "train.resume") != 0;
}

/* The value of a key in messages: train.steps = -1 is not set. */
static const char *shown_value(const char *key, const char *value)
{
    if (strcmp(key, "train.steps") == 0 && strcmp(value, "-1") == 0)
        return "not said";
    return *value ? value : "''";
}

static void report_change(void *arg, const char *key, const char *old_value, const char *new_value)
{
    (void)arg;
    if (is_reported_key(key))
        log_info("changed: %s %.200s -> %.200s", key, shown_value(key, old_value),
                 shown_value(key, new_value));
}

struct used_keys {
    const struct strategy_config *strategy;
    config_difference *each;
    void *arg;
};

static void pass_used(void *arg, const char *key, const char *old_value, const char *new_value)
{
    const struct used_keys *u = arg;
    if (!strategy_unused(u->strategy, key))
        u->each(u->arg, key, old_value, new_value);
}

/* Compares two configurations as checkpoints keep them, but for options that `now` does not use. */
static enum sotto_status compare_configs(const struct run_config *before,
                                         const struct run_config *now, config_difference *each,
                                         void *arg)
{
    struct run_config *kept = malloc(sizeof *kept);
    if (!kept)
        return fail(SOTTO_ENOMEM, "no memory for a configuration");
    *kept = *now;
    resume_keep(kept);
    config_differences(before, kept, pass_used, &(struct used_keys){&now->strategy, each, arg});
    free(kept);
    return SOTTO_OK;
}

enum sotto_status resume_refuse(const struct run *run)
{
    struct resume_refusal r = {run, SOTTO_OK};
    TRY(compare_configs(run->before, &run->config, refuse_one, &r));
    return r.st;
}

/* Logs the optimizer that the method before has set and that stays: methods set no optimizer back.
 */
static void report_optimizer(const struct run *run)
{
    const struct run_config *before = run->before, *now = &run->config;
    char key[OPTION_ROOM], value[OPTION_ROOM], other[OPTION_ROOM];
    const bool own = strategy_optim_key(&now->strategy, key, other);
    if (!strategy_optim_key(&before->strategy, key, value) ||
        (own && before->optim.kind == now->optim.kind))
        return;
    if (before->optim.kind == now->optim.kind)
        log_info("unchanged since %s = %s: optim.kind = %s", key, value, optim_name(&now->optim));
    if (before->optim.weight_decay == now->optim.weight_decay)
        log_info("unchanged since %s = %s: optim.weight_decay = %g", key, value,
                 now->optim.weight_decay);
}

void resume_report(const struct run *run)
{
    if (compare_configs(run->before, &run->config, report_change, NULL) != SOTTO_OK)
        log_warn("changed options are not listed: %s", sotto_error());
    report_optimizer(run);
}

enum sotto_status resume_finish(struct state_visitor *v, const char *before,
                                const struct strategy_config *now, bool leads)
{
    char method[OPTION_ROOM];
    const char *first;
    strategy_describe(now, method);
    if (strcmp(method, before) == 0)
        return state_loader_finish(v);
    const size_t left = state_loader_left(v, &first);
    if (leads && left == 0)
        log_info("continuing with %s after %s", method, before);
    else if (leads)
        log_info(
            "continuing with %s after %s: %zu value%s in the checkpoint that %s has no use for "
            "%s dropped ('%.200s'%s)",
            method, before, left, left == 1 ? "" : "s", method, left == 1 ? "is" : "are", first,
            left == 1 ? "" : " and others");
    return SOTTO_OK;
}

static void put_option(void *arg, const char *key, const char *old_value, const char *new_value)
{
    FILE *out = arg;
    (void)old_value;
    if (!is_reported_key(key))
        return;
    fprintf(out, " --%s=", key);
    option_put_word(new_value, out);
}

void resume_plainly(const struct run *run, FILE *out)
{
    mpi_print_launcher(run->cluster.mpi, out);
    option_put_word(run->watch.program ? run->watch.program : "sotto", out);
    fputs(" train --resume ", out);
    option_put_word(run_place(run), out);
    if (!run->config.train.check_memory)
        fputs(" --check_memory=false", out);
    if (!run->config.train.check_disk)
        fputs(" --check_disk=false", out);
}

bool resume_command(const struct run *run, double rate, FILE *out)
{
    const char *folder = run_place(run);
    char checkpoint[FILE_PATH_ROOM];
    struct run_config *before = malloc(sizeof *before), *now = malloc(sizeof *now);
    int64_t step = -1;
    bool there = before && now && checkpoint_newest(folder, false, &step, checkpoint) == SOTTO_OK &&
                 step >= 0 && resume_read(before, NULL, checkpoint) == SOTTO_OK;
    if (there) {
        *now = run->config;
        char lr[32];
        snprintf(lr, sizeof lr, "%.6g", now->optim.lr * rate); /* 10, not 10.000000000000002 */
        now->optim.lr = strtod(lr, NULL);
        resume_plainly(run, out);
        there = run->refused || compare_configs(before, now, put_option, out) == SOTTO_OK;
    }
    free(before);
    free(now);
    return there;
}

int resume_trained_length(const char *folder, int positions)
{
    char path[FILE_PATH_ROOM];
    int length = positions;
    struct run_config *config = malloc(sizeof *config);
    if (config && file_join(path, folder, "sotto.ini") == SOTTO_OK && file_exists(path) &&
        resume_read(config, NULL, folder) == SOTTO_OK && config->train.seq > 0 &&
        config->train.seq < positions)
        length = config->train.seq;
    free(config);
    return length;
}

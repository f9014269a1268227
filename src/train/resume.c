#include "train/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/paths.h"

void resume_keep(struct run_config *config)
{
    paths_complete(config);
    config->train.resume = false;
}

enum sotto_status resume_read(struct run_config *out, const char *checkpoint)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, checkpoint, "sotto.ini"));
    return config_load_kept(out, path);
}

enum sotto_status resume_config(struct run_config *out, const char *folder, bool *found)
{
    char checkpoint[FILE_PATH_ROOM];
    int64_t step;
    *found = false;
    if (strlen(folder) >= sizeof out->train.out)
        return fail(SOTTO_EINVAL, "%s is too long a path", folder);
    TRY(checkpoint_newest(folder, false, &step, checkpoint));
    if (step < 0)
        return SOTTO_OK;
    *found = true;
    TRY(resume_read(out, checkpoint));
    strcpy(out->train.out, folder);
    out->train.resume = true;
    return SOTTO_OK;
}

/* Keys that a run cannot change, with the reason. Sizes of the model are compared with what is
 * loaded (run.c), and not listed: they are the same. */
static const struct {
    const char *key, *reason;
} fixed[] = {
    {"train.init", "its parameters come from the checkpoint"},
    {"model.preset", "the model is the checkpoint's"},
    {"data.vocab", "the tokenizer is the checkpoint's"},
    {"data.tokenizer", "the tokenizer is the checkpoint's"},
    {"optim.kind", "the checkpoint holds its state"},
};

struct refusal {
    const struct run *run;
    enum sotto_status st;
};

/* SGD without momentum leaves nothing that another kind could not go on without. */
static bool is_stateless(const struct optim_config *o)
{
    return o->kind == OPTIM_SGD && o->momentum == 0;
}

/* By the key that the user has: a method's, where the optimizer is its own. */
static enum sotto_status refuse_kind(const struct run *run, const char *old_value,
                                     const char *new_value, const char *reason)
{
    char key[OPTION_ROOM], value[OPTION_ROOM];
    const char *folder = run->config.train.out;
    if (!strategy_optim_key(&run->config.strategy, key, value))
        return fail(SOTTO_EINVAL, "optim.kind = %s: the run in %s has '%s' and keeps it, since %s",
                    new_value, folder, old_value, reason);
    if (run->before->optim.kind == OPTIM_ADAMW)
        return fail(SOTTO_EINVAL,
                    "%s = %.200s: the run in %s has the optimizer '%s' and keeps it, since %s; "
                    "%s = decoupled-adamw goes on with it",
                    key, value, folder, old_value, reason, key);
    return fail(SOTTO_EINVAL,
                "%s = %.200s: the run in %s has the optimizer '%s' with momentum and keeps it, "
                "since %s",
                key, value, folder, old_value, reason);
}

static void refuse_one(void *arg, const char *key, const char *old_value, const char *new_value)
{
    struct refusal *r = arg;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && r->st == SOTTO_OK; i++) {
        if (strcmp(fixed[i].key, key) != 0)
            continue;
        if (strncmp(key, "data.", 5) == 0 && !r->run->own_tokenizer)
            continue; /* data that were tokens may become text */
        if (strncmp(key, "model.", 6) == 0 && *r->run->config.train.init && !*old_value)
            continue; /* it was never asked for */
        if (strcmp(key, "optim.kind") == 0) {
            if (!is_stateless(&r->run->before->optim))
                r->st = refuse_kind(r->run, old_value, new_value, fixed[i].reason);
            continue;
        }
        r->st =
            fail(SOTTO_EINVAL, "%s = %.200s: the run in %s has %s'%.200s' and keeps it, since %s",
                 key, new_value, r->run->config.train.out, *old_value ? "" : "the default ",
                 old_value, fixed[i].reason);
    }
}

static bool is_told(const char *key)
{
    return strncmp(key, "model.", 6) != 0 && strcmp(key, "train.out") != 0 &&
           strcmp(key, "train.init") != 0 && strcmp(key, "train.resume") != 0;
}

static void tell_one(void *arg, const char *key, const char *old_value, const char *new_value)
{
    (void)arg;
    if (is_told(key))
        log_info("changed: %s %.200s -> %.200s", key, *old_value ? old_value : "''",
                 *new_value ? new_value : "''");
}

struct used {
    const struct strategy_config *strategy;
    config_difference *each;
    void *arg;
};

static void pass_used(void *arg, const char *key, const char *old_value, const char *new_value)
{
    const struct used *u = arg;
    if (!strategy_unused(u->strategy, key))
        u->each(u->arg, key, old_value, new_value);
}

/* Compares two configurations as checkpoints keep them, without what is set aside now. */
static enum sotto_status compare(const struct run_config *before, const struct run_config *now,
                                 config_difference *each, void *arg)
{
    struct run_config *kept = malloc(sizeof *kept);
    if (!kept)
        return fail(SOTTO_ENOMEM, "no memory for a configuration");
    *kept = *now;
    resume_keep(kept);
    config_differences(before, kept, pass_used, &(struct used){&now->strategy, each, arg});
    free(kept);
    return SOTTO_OK;
}

enum sotto_status resume_refuse(const struct run *run)
{
    struct refusal r = {run, SOTTO_OK};
    TRY(compare(run->before, &run->config, refuse_one, &r));
    return r.st;
}

/* What a method had for its optimizer stays when the method goes. */
static void tell_optimizer(const struct run *run)
{
    const struct run_config *before = run->before, *now = &run->config;
    char key[OPTION_ROOM], value[OPTION_ROOM], other[OPTION_ROOM];
    if (strategy_optim_key(&now->strategy, key, other) ||
        !strategy_optim_key(&before->strategy, key, value))
        return;
    if (before->optim.kind == now->optim.kind)
        log_info("unchanged since %s = %s: optim.kind = %s", key, value,
                 now->optim.kind == OPTIM_ADAMW ? "adamw" : "sgd");
    if (before->optim.weight_decay == now->optim.weight_decay)
        log_info("unchanged since %s = %s: optim.weight_decay = %g", key, value,
                 now->optim.weight_decay);
}

void resume_tell(const struct run *run)
{
    if (compare(run->before, &run->config, tell_one, NULL) != SOTTO_OK)
        log_warn("what has changed is not listed: %s", sotto_error());
    tell_optimizer(run);
}

static void put_option(void *arg, const char *key, const char *old_value, const char *new_value)
{
    FILE *out = arg;
    (void)old_value;
    if (!is_told(key))
        return;
    fprintf(out, " --%s=", key);
    option_put_word(new_value, out);
}

void resume_plainly(const struct run *run, FILE *out)
{
    mpi_put_launcher(run->cluster.mpi, out);
    option_put_word(run->watch.program ? run->watch.program : "sotto", out);
    fputs(" train --resume ", out);
    option_put_word(run->config.train.out, out);
}

bool resume_command(const struct run *run, FILE *out)
{
    const char *folder = run->config.train.out;
    char checkpoint[FILE_PATH_ROOM];
    struct run_config *before = malloc(sizeof *before);
    int64_t step = -1;
    bool there = before && checkpoint_newest(folder, false, &step, checkpoint) == SOTTO_OK &&
                 step >= 0 && resume_read(before, checkpoint) == SOTTO_OK;
    if (there) {
        resume_plainly(run, out);
        there = compare(before, &run->config, put_option, out) == SOTTO_OK;
    }
    free(before);
    return there;
}

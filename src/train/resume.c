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
    {"optim.kind", "the checkpoint holds the state of the other"},
};

struct refusal {
    const struct run *run;
    enum sotto_status st;
};

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

/* Compares two configurations as checkpoints keep them. */
static enum sotto_status compare(const struct run_config *before, const struct run_config *now,
                                 config_difference *each, void *arg)
{
    struct run_config *kept = malloc(sizeof *kept);
    if (!kept)
        return fail(SOTTO_ENOMEM, "no memory for a configuration");
    *kept = *now;
    resume_keep(kept);
    config_differences(before, kept, each, arg);
    free(kept);
    return SOTTO_OK;
}

enum sotto_status resume_refuse(const struct run *run)
{
    struct refusal r = {run, SOTTO_OK};
    TRY(compare(run->before, &run->config, refuse_one, &r));
    return r.st;
}

void resume_tell(const struct run *run)
{
    if (compare(run->before, &run->config, tell_one, NULL) != SOTTO_OK)
        log_warn("what has changed is not listed: %s", sotto_error());
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

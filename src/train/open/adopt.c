#include "train/open/adopt.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

enum sotto_status adopt_begin(struct run *run)
{
    const char *from = run->watch.from, *out = run->config.train.out;
    char newest[FILE_PATH_ROOM], word[FILE_PATH_ROOM];
    int64_t step;
    TRY(checkpoint_latest(out, &step, newest));
    if (step >= 0)
        return fail(SOTTO_EINVAL,
                    "%s already holds a run of %" PRId64
                    " steps, which `sotto train --resume %s` continues: another --out continues "
                    "from %s",
                    out, step, option_word(out, word, sizeof word), from);
    TRY(checkpoint_hold_one(&run->hold, from));
    return SOTTO_OK;
}

/* Copies the other run's best checkpoint up to `step`, unless this run has a later best. */
static enum sotto_status copy_best(struct run *run, const char *other, int64_t step)
{
    char theirs[FILE_PATH_ROOM], ours[FILE_PATH_ROOM], newest[FILE_PATH_ROOM];
    struct checkpoint best = {.step = -1};
    struct rundir dir;
    int64_t own;
    TRY(best_folder(other, theirs));
    TRY(best_folder(run->dir.path, ours));
    TRY(checkpoint_latest(theirs, &best.step, best.folder));
    TRY(checkpoint_latest(ours, &own, newest));
    if (best.step < 0 || best.step > step || best.step <= own)
        return SOTTO_OK;
    TRY(rundir_open(&dir, ours));
    const enum sotto_status st = checkpoint_copy(&best, &dir, 1);
    if (st == SOTTO_OK)
        rundir_close(&dir);
    else
        rundir_discard(&dir);
    return st;
}

/* Copies the metrics and the best checkpoint, without which a run can be resumed, too. */
static void copy_results(struct run *run, const char *other, int64_t step)
{
    if (metrics_copy(other, run->dir.path, step) != SOTTO_OK)
        log_warn("metrics up to step %" PRId64 " are not copied: %s", step, sotto_error());
    if (run->config.train.keep_best && copy_best(run, other, step) != SOTTO_OK)
        log_warn("the best checkpoint is not copied: %s", sotto_error());
}

enum sotto_status adopt_end(struct run *run)
{
    struct checkpoint c = {.run = &run->dir};
    char other[FILE_PATH_ROOM], own[FILE_PATH_ROOM];
    steps_named(run->checkpoint, &c.step, other);
    TRY(steps_folder(run->dir.checkpoints, c.step, own));
    if (strcmp(own, run->checkpoint) == 0) /* after a crash between saving and publishing */
        return rundir_publish(&run->dir, own);
    if (*other && !run->watch.from)
        TRY(rundir_unused(other));
    strcpy(c.folder, run->checkpoint);
    TRY(checkpoint_copy(&c, &run->dir, run->config.train.keep));
    if (*other)
        copy_results(run, other, c.step);
    log_info("%s is copied to %s, and stays as it is", run->checkpoint, own);
    strcpy(run->checkpoint, own);
    return SOTTO_OK;
}

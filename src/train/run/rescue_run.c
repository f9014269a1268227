#include "train/run/rescue_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Closes the other folder, and removes the folder if no checkpoint is in it. */
static void close_elsewhere(struct run *run)
{
    struct rundir *dir = run->elsewhere;
    int n;
    if (!dir)
        return;
    if (checkpoint_count(dir->path, &n) == SOTTO_OK && n == 0 &&
        file_remove_tree(dir->path) != SOTTO_OK)
        log_warn("%s", sotto_error());
    rundir_close(dir);
    free(dir);
    run->elsewhere = NULL;
}

/* Finds the first name of rescue_name that does not exist. */
static enum sotto_status name_elsewhere(const struct run *run, const char *folder,
                                        char out[FILE_PATH_ROOM])
{
    char path[FILE_PATH_ROOM];
    rescue_full(run->dir.path, path);
    for (int i = 1; i < 1000; i++) {
        TRY(rescue_name(path, folder, i, out));
        if (!file_exists(out))
            return SOTTO_OK;
    }
    return fail(SOTTO_EIO, "%s has too many folders for %s", folder, run->dir.path);
}

/* Writes RESCUE_OWNER into the other folder. */
static enum sotto_status write_owner(const struct run *run)
{
    char path[FILE_PATH_ROOM], owner[FILE_PATH_ROOM];
    rescue_full(run->dir.path, owner);
    TRY(file_join(path, run->elsewhere->path, RESCUE_OWNER));
    return file_write(path, owner, strlen(owner));
}

static enum sotto_status open_elsewhere(struct run *run, const char *folder)
{
    char path[FILE_PATH_ROOM];
    TRY(name_elsewhere(run, folder, path));
    run->elsewhere = malloc(sizeof *run->elsewhere);
    if (!run->elsewhere)
        return fail(SOTTO_ENOMEM, "no memory for a folder");
    const enum sotto_status st = rundir_open(run->elsewhere, path);
    if (st == SOTTO_OK)
        return write_owner(run);
    free(run->elsewhere);
    run->elsewhere = NULL;
    return st;
}

static enum sotto_status move_checkpoint(struct checkpoint *c, struct rundir *to)
{
    if (c->open)
        return checkpoint_move(c, to);
    c->run = to;
    return SOTTO_OK;
}

/* Moves the checkpoint to the folder of the last one or, if that fails, to the next of
 * rescue_place.
 */
static bool move_elsewhere(struct run *run, struct checkpoint *c)
{
    struct status_note cause;
    char path[FILE_PATH_ROOM], folder[FILE_PATH_ROOM];
    bool moved = false;
    rescue_full(run->dir.path, path);
    status_save(&cause, SOTTO_EIO);
    if (run->elsewhere && c->run == &run->dir)
        moved = move_checkpoint(c, run->elsewhere) == SOTTO_OK;
    while (!moved && rescue_place(&run->rescue, path, run->checkpoint_bytes, folder)) {
        struct rundir *before = run->elsewhere;
        run->elsewhere = NULL;
        moved = open_elsewhere(run, folder) == SOTTO_OK &&
                move_checkpoint(c, run->elsewhere) == SOTTO_OK;
        struct rundir *now = run->elsewhere;
        run->elsewhere = moved ? before : now; /* the folder that is not used */
        close_elsewhere(run);
        run->elsewhere = moved ? now : before;
    }
    status_raise(&cause);
    return moved;
}

enum sotto_status rescue_try(struct run *run, struct checkpoint *c, rescue_part *part, void *arg)
{
    char what[48];
    snprintf(what, sizeof what, "step %lld", (long long)c->step);
    enum sotto_status st = part(arg, c);
    while (st == SOTTO_EIO && c->run == &run->dir &&
           rescue_wait(&run->rescue, run->watch.stop, what))
        st = part(arg, c);
    while (st == SOTTO_EIO && move_elsewhere(run, c))
        st = part(arg, c);
    return st;
}

static enum sotto_status begin_in_folder(void *arg, struct checkpoint *c)
{
    (void)arg;
    return checkpoint_begin(c, c->run, c->step);
}

enum sotto_status rescue_begin(struct run *run, struct checkpoint *c, int64_t step)
{
    *c = (struct checkpoint){.run = &run->dir, .step = step};
    return rescue_try(run, c, begin_in_folder, NULL);
}

void rescue_done(struct run *run, const struct checkpoint *c)
{
    if (c->run != &run->dir) {
        char word[FILE_PATH_ROOM];
        log_warn("%s cannot be written: step %lld is saved in %s, and `sotto train --resume %s` "
                 "continues from there",
                 run->dir.path, (long long)c->step, c->run->path,
                 option_word(c->run->path, word, sizeof word));
        return;
    }
    run->rescue = (struct rescue){0};
    if (!run->elsewhere)
        return;
    log_info("step %lld is saved in %s again, and %s is removed", (long long)c->step, run->dir.path,
             run->elsewhere->path);
    if (file_remove_tree(run->elsewhere->path) != SOTTO_OK)
        log_warn("%s", sotto_error());
    rundir_close(run->elsewhere);
    free(run->elsewhere);
    run->elsewhere = NULL;
}

#define _GNU_SOURCE /* fstatat, flock */
#include "io/steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "io/checkpoint_check.h"

/* Tries to hold a checkpoint while the run removes one after the other, with a pause of 1 ms after
 * each. */
enum { MOST_LOST = 1000 };

/* Times that a folder is listed while no checkpoint is found. */
enum { MOST_LISTED = 10 };

static const struct timespec hold_pause = {0, 1000000};

enum sotto_status steps_folder(const char *checkpoints, int64_t step, char out[FILE_PATH_ROOM])
{
    char name[64];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    return file_join(out, checkpoints, name);
}

/* Returns the step of "step-00000100", -1 for any other name. */
static int64_t step_from_name(const char *name)
{
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13 || strlen(name) > 23)
        return -1;
    if (strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    return strtoll(name + 5, NULL, 10);
}

/* Returns the beginning of the name before path[*end]; moves `*end` before the slashes after the
 * name. */
static size_t name_begin(const char *path, size_t *end)
{
    while (*end > 0 && path[*end - 1] == '/')
        --*end;
    size_t begin = *end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return begin;
}

bool steps_named(const char *path, int64_t *step, char run[FILE_PATH_ROOM])
{
    static const char folder[] = "checkpoints";
    char name[32] = "";
    size_t end = strlen(path), begin = name_begin(path, &end);
    *run = '\0';
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), path + begin);
    *step = step_from_name(name);
    if (*step < 0)
        return false;
    end = begin;
    begin = name_begin(path, &end);
    if (end - begin != strlen(folder) || memcmp(path + begin, folder, end - begin) != 0)
        return true;
    end = begin;
    name_begin(path, &end);
    if (end < FILE_PATH_ROOM)
        snprintf(run, FILE_PATH_ROOM, "%.*s", (int)end, path);
    if (end == 0)
        strcpy(run, begin > 0 ? "/" : ".");
    return true;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Adds the steps of an open folder. */
static enum sotto_status list_open_folder(DIR *dir, int64_t **steps, int *n)
{
    for (struct dirent *d; (d = readdir(dir));) {
        struct stat info;
        int64_t step = step_from_name(d->d_name);
        if (step < 0 || fstatat(dirfd(dir), d->d_name, &info, 0) != 0 || !S_ISDIR(info.st_mode))
            continue;
        int64_t *more = realloc(*steps, (size_t)(*n + 1) * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory to list checkpoints");
        *steps = more;
        more[(*n)++] = step;
    }
    return SOTTO_OK;
}

/* Lists the steps, again if none is found: a run may rename a checkpoint meanwhile, and the reader
 * miss both names. */
enum sotto_status steps_list(const char *checkpoints, int64_t **steps, int *n)
{
    enum sotto_status st = SOTTO_OK;
    *steps = NULL;
    *n = 0;
    DIR *dir = opendir(checkpoints);
    if (!dir)
        return errno == ENOENT ? SOTTO_OK
                               : fail_errno(SOTTO_EIO, "cannot read folder %s", checkpoints);
    for (int tries = 0; tries < MOST_LISTED && st == SOTTO_OK && *n == 0; tries++) {
        rewinddir(dir);
        st = list_open_folder(dir, steps, n);
    }
    closedir(dir);
    if (st != SOTTO_OK) {
        free(*steps);
        *steps = NULL;
        *n = 0;
    }
    if (*n)
        qsort(*steps, (size_t)*n, sizeof **steps, compare_steps);
    return st;
}

enum sotto_status checkpoint_latest(const char *path, int64_t *step, char folder[FILE_PATH_ROOM])
{
    char checkpoints[FILE_PATH_ROOM];
    int64_t *steps;
    int n;
    *step = -1;
    TRY(file_join(checkpoints, path, "checkpoints"));
    TRY(steps_list(checkpoints, &steps, &n));
    enum sotto_status st = SOTTO_OK;
    if (n) {
        *step = steps[n - 1];
        st = steps_folder(checkpoints, *step, folder);
    }
    free(steps);
    return st;
}

enum sotto_status checkpoint_count(const char *path, int *n)
{
    char folder[FILE_PATH_ROOM];
    int64_t *steps;
    TRY(file_join(folder, path, "checkpoints"));
    TRY(steps_list(folder, &steps, n));
    free(steps);
    return SOTTO_OK;
}

/* Locks the list of files of a checkpoint, for itself alone with LOCK_EX. False: the checkpoint is
 * gone, or locked otherwise. */
static bool lock_list(struct checkpoint_hold *hold, const char *folder, int how)
{
    char path[FILE_PATH_ROOM];
    struct stat ours, there;
    hold->file = -1;
    if (file_join(path, folder, CHECKPOINT_LIST) != SOTTO_OK)
        return true;
    const int mode = how == LOCK_EX ? O_RDWR : O_RDONLY;
    const int fd = open(path, mode | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return file_is_directory(folder);
    bool ok = flock(fd, how | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    ok = ok && fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
    if (ok)
        hold->file = fd;
    else
        close(fd);
    return ok;
}

bool checkpoint_take(struct checkpoint_hold *hold, const char *folder)
{
    return lock_list(hold, folder, LOCK_EX) || !file_is_directory(folder);
}

void checkpoint_release(struct checkpoint_hold *hold)
{
    if (hold->file >= 0)
        close(hold->file);
    hold->file = -1;
}

enum sotto_status checkpoint_hold_one(struct checkpoint_hold *hold, const char *folder)
{
    bool held = lock_list(hold, folder, LOCK_SH);
    for (int tries = 0; !held && tries < MOST_LOST && file_is_directory(folder); tries++) {
        nanosleep(&hold_pause, NULL);
        held = lock_list(hold, folder, LOCK_SH);
    }
    if (!held)
        return fail(SOTTO_EIO, "%s is not there any more", folder);
    const enum sotto_status st = checkpoint_check(folder);
    if (st != SOTTO_OK)
        checkpoint_release(hold);
    return st;
}

/* Makes one pass over the present checkpoints; `*lost`: the run has removed one meanwhile. */
static enum sotto_status hold_listed(struct checkpoint_hold *hold, const char *checkpoints,
                                     bool warn, int64_t *step, char folder[FILE_PATH_ROOM],
                                     bool *lost)
{
    int64_t *steps;
    int n, i;
    TRY(steps_list(checkpoints, &steps, &n));
    enum sotto_status st = SOTTO_OK;
    for (i = n - 1; i >= 0; i--) {
        st = steps_folder(checkpoints, steps[i], folder);
        *lost = st == SOTTO_OK && !lock_list(hold, folder, LOCK_SH);
        if (*lost)
            break;
        if (st == SOTTO_OK)
            st = checkpoint_check(folder);
        if (st == SOTTO_OK || st == SOTTO_ENOMEM) /* the latter is no fault of the checkpoint's */
            break;
        if (warn)
            log_warn("checkpoint %s is passed over: %s", folder, sotto_error());
        checkpoint_release(hold);
    }
    if (i >= 0)
        *step = steps[i];
    else if (n > 0)
        st = fail_in(st, "no checkpoint in %s can be read: ", checkpoints);
    if (st != SOTTO_OK)
        checkpoint_release(hold);
    free(steps);
    return st;
}

enum sotto_status checkpoint_hold_newest(struct checkpoint_hold *hold, const char *path, bool warn,
                                         int64_t *step, char folder[FILE_PATH_ROOM])
{
    char checkpoints[FILE_PATH_ROOM];
    hold->file = -1;
    *step = -1;
    TRY(file_join(checkpoints, path, "checkpoints"));
    for (int tries = 0; tries < MOST_LOST; tries++) {
        bool lost = false;
        TRY(hold_listed(hold, checkpoints, warn, step, folder, &lost));
        if (!lost)
            return SOTTO_OK;
        *step = -1;
        nanosleep(&hold_pause, NULL);
    }
    return fail(SOTTO_EIO, "checkpoints in %s are removed before they can be read", checkpoints);
}

enum sotto_status checkpoint_newest(const char *path, bool warn, int64_t *step,
                                    char folder[FILE_PATH_ROOM])
{
    struct checkpoint_hold hold;
    const enum sotto_status st = checkpoint_hold_newest(&hold, path, warn, step, folder);
    checkpoint_release(&hold);
    return st;
}

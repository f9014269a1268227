/* Locking a run's folder, and checkpoints committed by one rename.
 *
 * Invariant: a folder named step-* is complete. A folder gets such a name when all files are on
 * disk, and loses the name before the first file is removed. */
#define _GNU_SOURCE /* renameat2, flock */
#include "io/rundir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/hf_files.h"

#define PARTIAL ".partial-"

static enum sotto_status locked_elsewhere(const char *path, int fd)
{
    char owner[128];
    ssize_t got = pread(fd, owner, sizeof owner - 1, 0);
    owner[got > 0 ? got : 0] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
    return fail(SOTTO_EINVAL, "run folder %s is being written by %s", path,
                *owner ? owner : "another process");
}

static enum sotto_status lock_file(struct rundir *run, const char *path, int *out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    run->made.lock = fd >= 0;
    if (fd < 0)
        TRY(file_open(&fd, path, O_RDWR | O_CREAT));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            enum sotto_status st = locked_elsewhere(run->path, fd);
            close(fd);
            return st;
        }
        log_warn("%s cannot be locked on this file system: make sure that only one run writes here",
                 run->path);
    }
    *out = fd;
    return SOTTO_OK;
}

/* True if `fd` is still the file at `path`: the lock's last holder may have removed the file after
 * we opened it (rundir_discard). */
static bool is_file_at(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static enum sotto_status rundir_take_lock(struct rundir *run)
{
    char path[FILE_PATH_ROOM], host[64] = "", *owner = run->made.owner;
    int fd;
    TRY(file_join(path, run->path, ".lock"));
    TRY(lock_file(run, path, &fd));
    while (!is_file_at(fd, path)) {
        close(fd);
        TRY(file_make_directories(run->path));
        TRY(lock_file(run, path, &fd));
    }
    gethostname(host, sizeof host - 1);
    int length =
        snprintf(owner, sizeof run->made.owner, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, owner, (size_t)length, 0) != length)
        log_warn("cannot write %s", path); /* the lock holds even without a name in it */
    run->lock = fd;
    return SOTTO_OK;
}

/* Returns the length of the path without its last name, 0 if nothing is left. */
static uint32_t length_above(const char *path, uint32_t length)
{
    while (length > 0 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

/* Returns the length of the part of the path that exists, as a folder or as something else. */
static uint32_t length_there(const char *path)
{
    char part[FILE_PATH_ROOM];
    uint32_t length = (uint32_t)strlen(path);
    strcpy(part, path);
    while (length > 0 && !file_exists(part)) {
        length = length_above(path, length);
        part[length] = '\0';
    }
    return length;
}

enum sotto_status rundir_open(struct rundir *run, const char *path)
{
    *run = (struct rundir){.lock = -1};
    if (strlen(path) >= sizeof run->path)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(path),
                    path);
    strcpy(run->path, path);
    TRY(file_join(run->checkpoints, path, "checkpoints"));
    run->made.kept = length_there(path);
    TRY(file_make_directories(path));
    return rundir_take_lock(run);
}

enum sotto_status rundir_unused(const char *path)
{
    char lock[FILE_PATH_ROOM];
    enum sotto_status st = SOTTO_OK;
    TRY(file_join(lock, path, ".lock"));
    const int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return SOTTO_OK;
    if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        st = locked_elsewhere(path, fd);
    close(fd);
    return st;
}

void rundir_close(struct rundir *run)
{
    if (run->lock >= 0)
        close(run->lock);
    run->lock = -1;
}

/* Returns 0 if the folder cannot be read. */
static int count_entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    for (struct dirent *d; (d = readdir(dir));)
        n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* True if rundir_open made the lock at `path`, in this process or in another. */
static bool is_own_lock(const struct rundir *run, const char *path)
{
    char owner[sizeof run->made.owner];
    const int fd = run->made.lock ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return false;
    const ssize_t got = pread(fd, owner, sizeof owner, 0);
    close(fd);
    return got == (ssize_t)strlen(run->made.owner) &&
           memcmp(owner, run->made.owner, (size_t)got) == 0;
}

void rundir_discard(struct rundir *run)
{
    char path[FILE_PATH_ROOM];
    uint32_t length = (uint32_t)strlen(run->path);
    struct status_note cause; /* why the start was refused */
    status_save(&cause, SOTTO_EIO);
    const bool ours =
        length && file_join(path, run->path, ".lock") == SOTTO_OK && is_own_lock(run, path);
    const bool there = length <= run->made.kept;
    if (ours && (there || count_entries(run->path) == 1) && unlink(path) == 0) {
        strcpy(path, run->path);
        while (length > run->made.kept && rmdir(path) == 0) { /* unless in use again */
            length = length_above(path, length);
            path[length] = '\0';
        }
    }
    rundir_close(run);
    status_raise(&cause);
}

void rundir_follow(struct rundir *run, const char *path, const struct rundir_made *made)
{
    *run = (struct rundir){.lock = -1, .made = *made};
    if (strlen(path) < sizeof run->path)
        strcpy(run->path, path);
}

enum sotto_status rundir_clear(struct rundir *run)
{
    DIR *dir = opendir(run->path);
    if (!dir)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", run->path);
    enum sotto_status st = SOTTO_OK;
    for (struct dirent *d; st == SOTTO_OK && (d = readdir(dir));) {
        char path[FILE_PATH_ROOM];
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            strcmp(d->d_name, ".lock") == 0)
            continue;
        st = file_join(path, run->path, d->d_name);
        if (st == SOTTO_OK)
            st = file_remove_tree(path);
    }
    closedir(dir);
    return st;
}

static enum sotto_status name_partial(const struct rundir *run, int64_t step,
                                      char out[FILE_PATH_ROOM])
{
    char name[64];
    snprintf(name, sizeof name, PARTIAL "%lld", (long long)step);
    return file_join(out, run->checkpoints, name);
}

enum sotto_status checkpoint_begin(struct checkpoint *c, struct rundir *run, int64_t step)
{
    assert(step >= 0);
    *c = (struct checkpoint){.run = run, .step = step};
    TRY(name_partial(run, step, c->folder));
    TRY(file_make_directories(run->checkpoints));
    TRY(file_remove_tree(c->folder));
    if (mkdir(c->folder, 0777) != 0)
        return fail_errno(SOTTO_EIO, "cannot make folder %s", c->folder);
    c->open = true;
    return SOTTO_OK;
}

void checkpoint_abort(struct checkpoint *c)
{
    if (!c->open)
        return;
    c->open = false;
    struct status_note cause; /* cleaning up must not replace the message that explains why */
    status_save(&cause, SOTTO_EIO);
    if (file_remove_tree(c->folder) != SOTTO_OK)
        log_warn("%s", sotto_error());
    status_raise(&cause);
}

static enum sotto_status link_files(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    if (!dir)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", from);
    enum sotto_status st = SOTTO_OK;
    for (struct dirent *d; st == SOTTO_OK && (d = readdir(dir));) {
        char one[FILE_PATH_ROOM], other[FILE_PATH_ROOM];
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        st = file_join(one, from, d->d_name);
        if (st == SOTTO_OK)
            st = file_join(other, to, d->d_name);
        if (st == SOTTO_OK)
            st = file_link(one, other);
    }
    closedir(dir);
    return st;
}

enum sotto_status checkpoint_move(struct checkpoint *c, struct rundir *to)
{
    struct checkpoint there;
    TRY(checkpoint_begin(&there, to, c->step));
    const enum sotto_status st = link_files(c->folder, there.folder);
    checkpoint_abort(st == SOTTO_OK ? c : &there);
    if (st == SOTTO_OK)
        *c = there;
    return st;
}

/* Syncs the files of the folder, and the folder itself. */
static enum sotto_status sync_files(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", folder);
    enum sotto_status st = SOTTO_OK;
    for (struct dirent *d; st == SOTTO_OK && (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        int fd = openat(dirfd(dir), d->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) != 0)
            st = fail_errno(SOTTO_EIO, "cannot sync %s/%s", folder, d->d_name);
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
    return st == SOTTO_OK ? file_sync_directory(folder) : st;
}

/* Gives `partial` the name `complete`. If a checkpoint of the same step exists (of a run that was
 * resumed from an earlier step), the two change names, so that the step is there at every moment.
 */
static enum sotto_status put_in_place(const char *partial, const char *complete)
{
    if (rename(partial, complete) == 0)
        return SOTTO_OK;
    if ((errno == ENOTEMPTY || errno == EEXIST) && file_is_directory(complete)) {
        if (renameat2(AT_FDCWD, partial, AT_FDCWD, complete, RENAME_EXCHANGE) == 0)
            return SOTTO_OK;
        /* This file system cannot exchange names: the step is missing for a moment, other steps are
         * not. */
        char aside[FILE_PATH_ROOM + 8];
        snprintf(aside, sizeof aside, "%s-old", partial);
        if (rename(complete, aside) == 0) {
            if (rename(partial, complete) == 0)
                return SOTTO_OK;
            const int cause = errno;
            (void)rename(aside, complete); /* the older checkpoint of this step stays */
            errno = cause;
        }
    }
    return fail_errno(SOTTO_EIO, "cannot rename %s to %s", partial, complete);
}

/* Takes the name of a complete checkpoint away before its files go. `*dropped`: no reader holds the
 * checkpoint. */
static enum sotto_status drop_checkpoint(const struct rundir *run, int64_t step, bool *dropped)
{
    char complete[FILE_PATH_ROOM], partial[FILE_PATH_ROOM];
    struct checkpoint_hold hold;
    TRY(steps_folder(run->checkpoints, step, complete));
    TRY(name_partial(run, step, partial));
    TRY(file_remove_tree(partial));
    *dropped = checkpoint_take(&hold, complete);
    if (!*dropped)
        return SOTTO_OK;
    const enum sotto_status st =
        rename(complete, partial) == 0
            ? SOTTO_OK
            : fail_errno(SOTTO_EIO, "cannot rename %s to %s", complete, partial);
    checkpoint_release(&hold);
    return st == SOTTO_OK ? file_remove_tree(partial) : st;
}

static enum sotto_status prune_checkpoints(const struct rundir *run, int64_t newest, int keep)
{
    int64_t *steps;
    int n, left;
    TRY(steps_list(run->checkpoints, &steps, &n));
    enum sotto_status st = SOTTO_OK;
    left = n;
    for (int i = 0; i < n && left > keep && st == SOTTO_OK; i++) {
        bool dropped = false;
        if (steps[i] == newest)
            continue;
        st = drop_checkpoint(run, steps[i], &dropped);
        left -= dropped;
    }
    free(steps);
    return st;
}

static enum sotto_status remove_partials(const struct rundir *run)
{
    DIR *dir = opendir(run->checkpoints);
    if (!dir)
        return fail_errno(SOTTO_EIO, "cannot read folder %s", run->checkpoints);
    enum sotto_status st = SOTTO_OK;
    for (struct dirent *d; st == SOTTO_OK && (d = readdir(dir));) {
        char path[FILE_PATH_ROOM];
        if (strncmp(d->d_name, PARTIAL, strlen(PARTIAL)) != 0)
            continue;
        st = file_join(path, run->checkpoints, d->d_name);
        if (st == SOTTO_OK)
            st = file_remove_tree(path);
    }
    closedir(dir);
    return st;
}

enum sotto_status checkpoint_commit(struct checkpoint *c, int keep)
{
    assert(c->open);
    char complete[FILE_PATH_ROOM];
    enum sotto_status st = steps_folder(c->run->checkpoints, c->step, complete);
    if (st == SOTTO_OK)
        st = sync_files(c->folder);
    if (st == SOTTO_OK)
        st = put_in_place(c->folder, complete);
    if (st != SOTTO_OK) {
        checkpoint_abort(c);
        return st;
    }
    c->open = false;
    strcpy(c->folder, complete);
    TRY(file_sync_directory(c->run->checkpoints));
    /* The checkpoint is safe; what cannot be tidied up now is a warning, and is tried again next
     * time. */
    if ((keep > 0 && prune_checkpoints(c->run, c->step, keep) != SOTTO_OK) ||
        remove_partials(c->run) != SOTTO_OK)
        log_warn("%s", sotto_error());
    return SOTTO_OK;
}

static enum sotto_status copy_and_commit(const struct checkpoint *from, struct checkpoint *c,
                                         int keep)
{
    TRY(checkpoint_begin(c, c->run, from->step));
    const enum sotto_status st = link_files(from->folder, c->folder);
    if (st != SOTTO_OK) {
        checkpoint_abort(c);
        return st;
    }
    return checkpoint_commit(c, keep);
}

enum sotto_status checkpoint_copy(const struct checkpoint *from, struct rundir *to, int keep)
{
    struct checkpoint c = {.run = to};
    const bool there = file_exists(to->checkpoints);
    const enum sotto_status st = copy_and_commit(from, &c, keep);
    if (st != SOTTO_OK && !there)
        rmdir(to->checkpoints); /* made by the refused start */
    TRY(st);
    return rundir_publish(to, c.folder);
}

enum sotto_status rundir_publish(struct rundir *run, const char *folder)
{
    static const char *const others[] = {"sotto.ini", "config.json", "model.safetensors"};
    for (int i = 0; i < HF_FILES + 3; i++) {
        char from[FILE_PATH_ROOM], to[FILE_PATH_ROOM];
        const char *name = i < HF_FILES ? hf_files[i].name : others[i - HF_FILES];
        TRY(file_join(from, folder, name));
        TRY(file_join(to, run->path, name));
        if (file_exists(from))
            TRY(file_link(from, to));
        else if (i > HF_FILES)
            return fail(SOTTO_EIO, "cannot publish %s: it has no %s", folder, name);
    }
    return file_sync_directory(run->path);
}

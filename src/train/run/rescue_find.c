#include "train/run/rescue_find.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "train/run/rescue_run.h"

/* Numbers N of "RUN-rescued-N" that may be missing in a row. */
enum { RESCUE_GAP = 3 };

/* A checkpoint, and when it was made. */
struct rescued {
    struct checkpoint_hold hold;
    char folder[FILE_PATH_ROOM];
    int64_t step; /* -1: there is none */
    struct timespec made;
};

static struct timespec time_made(const char *folder)
{
    struct stat info;
    return stat(folder, &info) == 0 ? info.st_mtim : (struct timespec){0};
}

static bool is_earlier(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* True if `other` has RESCUE_OWNER with the name `folder`, a full name. */
static bool is_owned_by(const char *other, const char *folder)
{
    char path[FILE_PATH_ROOM], *owner = NULL;
    const bool read = file_join(path, other, RESCUE_OWNER) == SOTTO_OK && file_exists(path) &&
                      file_read_text(path, FILE_PATH_ROOM, &owner) == SOTTO_OK;
    const bool owned = read && strcmp(owner, folder) == 0;
    free(owner);
    return owned;
}

static void warn_of_passed(const struct rescued *newest, const struct rescued *r, const char *other)
{
    char word[FILE_PATH_ROOM];
    log_warn("step %lld in %s is passed over, since %s was made after it: `sotto train --resume "
             "%s` continues from it",
             (long long)r->step, other, newest->folder, option_word(other, word, sizeof word));
}

/* Replaces *newest by the newest checkpoint in `other`, if that is newer. */
static void compare_rescued(struct rescued *newest, const char *other, bool say)
{
    struct rescued r;
    if (checkpoint_latest(other, &r.step, r.folder) == SOTTO_OK && r.step <= newest->step)
        return;
    if (checkpoint_hold_newest(&r.hold, other, false, &r.step, r.folder) != SOTTO_OK) {
        if (say)
            log_warn("%s is passed over: %s", other, sotto_error());
        return;
    }
    r.made = r.step >= 0 ? time_made(r.folder) : (struct timespec){0};
    const bool more = r.step > newest->step;
    const bool late = newest->step < 0 || !is_earlier(r.made, newest->made);
    if (more && !late && say)
        warn_of_passed(newest, &r, other);
    checkpoint_release(more && late ? &newest->hold : &r.hold);
    if (more && late)
        *newest = r;
}

/* Looks into the folders in which the run of `folder` was saved instead. */
static void look_elsewhere(struct rescued *newest, const char *folder, bool say)
{
    char path[FILE_PATH_ROOM], place[FILE_PATH_ROOM], other[FILE_PATH_ROOM], parent[FILE_PATH_ROOM];
    rescue_full(folder, path);
    rescue_place_at(path, 0, parent);
    for (int p = 0; rescue_place_at(path, p, place); p++) {
        const bool in_parent = strcmp(place, parent) == 0;
        if (!*place || (p > 0 && in_parent))
            continue;
        for (int i = 1, missing = 0; missing < RESCUE_GAP; i++) {
            if (rescue_name(path, place, i, other) != SOTTO_OK)
                break;
            missing = file_is_directory(other) ? 0 : missing + 1;
            if (!missing && (in_parent || is_owned_by(other, path)))
                compare_rescued(newest, other, say);
        }
    }
}

enum sotto_status rescue_newest(struct checkpoint_hold *hold, const char *folder, bool say,
                                int64_t *step, char checkpoint[FILE_PATH_ROOM])
{
    struct rescued newest = {0};
    struct status_note cause;
    enum sotto_status st =
        checkpoint_hold_newest(&newest.hold, folder, say, &newest.step, newest.folder);
    if (st == SOTTO_ENOMEM)
        return st;
    status_save(&cause, st);
    const int64_t own = newest.step;
    if (own >= 0)
        newest.made = time_made(newest.folder);
    look_elsewhere(&newest, folder, say);
    *hold = newest.hold;
    *step = newest.step;
    strcpy(checkpoint, newest.folder);
    if (newest.step < 0 && st != SOTTO_OK)
        return status_raise(&cause);
    if (say && newest.step > own && own >= 0)
        log_info("step %lld was saved in %s when %s could not be written, which has step %lld",
                 (long long)newest.step, newest.folder, folder, (long long)own);
    else if (say && newest.step > own)
        log_info("step %lld was saved in %s when %s could not be written, which has no checkpoint",
                 (long long)newest.step, newest.folder, folder);
    return SOTTO_OK;
}

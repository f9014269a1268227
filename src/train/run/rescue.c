#define _GNU_SOURCE /* realpath */
#include "train/run/rescue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine/available.h"

/* Seconds of tries: enough to free some disk by hand, and no wasted night of a cluster. The first
 * pause between two tries is a tenth of a second, and each later pause twice the last. */
#define RESCUE_SECONDS 300.0
#define RESCUE_FIRST 0.1
#define RESCUE_LAST 15.0

static bool is_stopped(const atomic_int *stop)
{
    return stop && *stop;
}

/* Sleeps in slices, since a signal may arrive in another thread. */
static void sleep_until(double end, const atomic_int *stop)
{
    const struct timespec slice = {.tv_nsec = 20 * 1000 * 1000};
    while (clock_now(&clock_real) < end && !is_stopped(stop))
        nanosleep(&slice, NULL);
}

bool rescue_wait(struct rescue *r, const atomic_int *stop, const char *what)
{
    struct status_note cause;
    const double now = clock_now(&clock_real);
    if (is_stopped(stop) || (r->until > 0 && now >= r->until))
        return false;
    status_save(&cause, SOTTO_EIO);
    if (r->until == 0) {
        r->until = now + RESCUE_SECONDS;
        r->pause = RESCUE_FIRST;
        log_warn("%s cannot be saved: %s; trying again for %g minutes%s, then in another folder",
                 what, sotto_error(), RESCUE_SECONDS / 60, stop ? " or until Ctrl-C" : "");
    }
    sleep_until(fmin(now + r->pause, r->until), stop);
    r->pause = fmin(2 * r->pause, RESCUE_LAST);
    status_raise(&cause);
    return !is_stopped(stop);
}

void rescue_parent(const char *path, char out[FILE_PATH_ROOM])
{
    snprintf(out, FILE_PATH_ROOM, "%s", path);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        slash[slash == out] = '\0';
    else
        strcpy(out, ".");
}

void rescue_full(const char *path, char out[FILE_PATH_ROOM])
{
    char *full = realpath(path, NULL);
    snprintf(out, FILE_PATH_ROOM, "%s", full && strlen(full) < FILE_PATH_ROOM ? full : path);
    free(full);
}

bool rescue_place_at(const char *path, int number, char folder[FILE_PATH_ROOM])
{
    char parent[FILE_PATH_ROOM];
    rescue_parent(path, parent);
    const char *const places[] = {parent,           ".",        getenv("HOME"),
                                  getenv("TMPDIR"), "/var/tmp", "/tmp"};
    if (number >= (int)(sizeof places / sizeof *places))
        return false;
    const char *place = places[number];
    char *full = place && *place ? realpath(place, NULL) : NULL;
    snprintf(folder, FILE_PATH_ROOM, "%s", full && strlen(full) < FILE_PATH_ROOM ? full : "");
    free(full);
    return true;
}

bool rescue_place(struct rescue *r, const char *path, double bytes, char folder[FILE_PATH_ROOM])
{
    while (rescue_place_at(path, r->place, folder)) {
        r->place++;
        if (*folder && access(folder, W_OK | X_OK) == 0 && available_disk(folder).bytes > bytes)
            return true;
    }
    return false;
}

enum sotto_status rescue_name(const char *path, const char *folder, int number,
                              char out[FILE_PATH_ROOM])
{
    char parent[FILE_PATH_ROOM], name[FILE_PATH_ROOM], whole[FILE_PATH_ROOM + 32];
    rescue_parent(path, parent);
    const size_t skip =
        strcmp(parent, ".") == 0 && strncmp(path, "./", 2) != 0 ? 0 : strlen(parent);
    snprintf(name, sizeof name, "%s", path + skip + strspn(path + skip, "/"));
    name[strcspn(name, "/")] = '\0';
    snprintf(whole, sizeof whole, number > 1 ? "%s-rescued-%d" : "%s-rescued", name, number);
    return file_join(out, folder, whole);
}

static const char *path_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Writes the file into the next folder of rescue_place that has no file of this name. */
static enum sotto_status write_elsewhere(struct rescue *r, const char *path, double bytes,
                                         rescue_writer *write, void *arg,
                                         char elsewhere[FILE_PATH_ROOM])
{
    char folder[FILE_PATH_ROOM], to[FILE_PATH_ROOM];
    struct status_note cause;
    enum sotto_status st = SOTTO_EIO;
    status_save(&cause, st);
    while (st == SOTTO_EIO && rescue_place(r, path, bytes, folder)) {
        if (file_join(to, folder, path_last_name(path)) != SOTTO_OK || file_exists(to))
            continue;
        st = write(arg, to);
        if (st == SOTTO_OK)
            strcpy(elsewhere, to);
    }
    return st == SOTTO_EIO ? status_raise(&cause) : st;
}

enum sotto_status rescue_file(struct rescue *r, const char *what, const char *path, double bytes,
                              rescue_writer *write, void *arg, char elsewhere[FILE_PATH_ROOM])
{
    enum sotto_status st = write(arg, path);
    while (st == SOTTO_EIO && available_disk(path).bytes < bytes && rescue_wait(r, NULL, what))
        st = write(arg, path);
    if (st == SOTTO_OK) {
        if (*elsewhere && unlink(elsewhere) != 0)
            log_warn("cannot remove %s", elsewhere);
        *elsewhere = '\0';
        *r = (struct rescue){0};
        return SOTTO_OK;
    }
    if (st == SOTTO_EIO && *elsewhere && write(arg, elsewhere) == SOTTO_OK)
        st = SOTTO_OK;
    else if (st == SOTTO_EIO)
        st = write_elsewhere(r, path, bytes, write, arg, elsewhere);
    if (st == SOTTO_OK)
        log_warn("%s cannot be written: %s is saved in %s", path, what, elsewhere);
    return st;
}

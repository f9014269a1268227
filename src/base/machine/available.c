#include "base/machine/available.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine/control_group.h"

static void lower_limit(struct available *a, double bytes, const char *by)
{
    if (bytes < 0)
        bytes = 0;
    if (bytes < a->bytes)
        *a = (struct available){bytes, by};
}

/* Returns a group's value, or -1 if there is none. */
static double read_group_value(const char *folder, const char *file, const char *key)
{
    double value;
    return control_group_numbers(folder, file, key, 1, &value) ? value : -1;
}

static void limit_memory_by_group(void *arg, const char *folder, int version)
{
    static const struct {
        const char *limit, *usage, *reclaimable, *name;
    } files[2] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
         "the control group's memory.limit_in_bytes"},
        {"memory.max", "memory.current", "inactive_file ", "the control group's memory.max"}};
    const int v = version - 1;
    double most = read_group_value(folder, files[v].limit, ""),
           used = read_group_value(folder, files[v].usage, "");
    double cache = read_group_value(folder, "memory.stat", files[v].reclaimable);
    if (most >= 0 && used >= 0)
        lower_limit(arg, most - used + (cache > 0 ? cache : 0), files[v].name);
}

static void limit_by_address_space(struct available *a, const char *root)
{
    char path[FILE_PATH_ROOM];
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        snprintf(path, sizeof path, "%s/proc/self/statm", root) >= FILE_PATH_ROOM)
        return;
    double pages;
    if (control_file_numbers(path, "", 1, &pages))
        lower_limit(a, (double)most.rlim_cur - pages * (double)sysconf(_SC_PAGESIZE),
                    "the limit on address space (ulimit -v)");
}

struct available available_memory(const char *root)
{
    struct available a = {INFINITY, "nothing"};
    char path[FILE_PATH_ROOM];
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) < FILE_PATH_ROOM) {
        double free_kb;
        if (control_file_numbers(path, "MemAvailable:", 1, &free_kb))
            lower_limit(&a, 1024 * free_kb, "this machine");
    }
    control_group_each(root, "memory", limit_memory_by_group, &a);
    limit_by_address_space(&a, root);
    return a;
}

/* Cuts the last name off a path, down to "/" or ".". */
static void cut_name(char path[FILE_PATH_ROOM])
{
    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = '\0';
}

struct available available_disk(const char *path)
{
    struct available a = {INFINITY, "the disk"};
    struct statvfs fs;
    char at[FILE_PATH_ROOM];
    if (snprintf(at, sizeof at, "%s", path) >= FILE_PATH_ROOM)
        return a;
    while (statvfs(at, &fs) != 0) {
        if (strcmp(at, "/") == 0 || strcmp(at, ".") == 0)
            return a;
        cut_name(at);
    }
    if (fs.f_blocks > 0)
        a.bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    return a;
}

void available_text(double bytes, char out[32])
{
    static const char *const unit[] = {"bytes", "KB", "MB", "GB", "TB", "PB"};
    int k = 0;
    for (; k < 5 && bytes >= 999.5; k++)
        bytes /= 1000;
    snprintf(out, 32, bytes < 99.5 ? "%.3g %s" : "%.0f %s", bytes, unit[k]);
}

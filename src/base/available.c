#include "base/available.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

static void limit(struct available *a, double bytes, const char *by)
{
    if (bytes < 0)
        bytes = 0;
    if (bytes < a->bytes)
        *a = (struct available){bytes, by};
}

/* The number behind `key` in a file of "key number" lines, "" for the first of the file; negative:
 * there is none. */
static double number_in(const char *path, const char *key)
{
    char *text, *end;
    size_t size;
    double value = -1;
    if (file_read(path, 1 << 20, &text, &size) != SOTTO_OK)
        return -1;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        value = strtod(line + strlen(key), &end);
        if (end == line + strlen(key)) /* "max" */
            value = -1;
        break;
    }
    free(text);
    return value;
}

struct group_files {
    const char *mount, *limit, *usage, *reclaimable, *name;
};

static double in_group(const char *folder, const char *file, const char *key)
{
    char path[FILE_PATH_ROOM];
    return file_join(path, folder, file) == SOTTO_OK ? number_in(path, key) : -1;
}

/* A group and those that it is in: each has a limit of its own. */
static void limit_by_group(struct available *a, const char *root, const char *group,
                           const struct group_files *f)
{
    char folder[2 * FILE_PATH_ROOM];
    if (strstr(group, "/..")) /* outside of what this container sees */
        group = "";
    if (snprintf(folder, FILE_PATH_ROOM, "%s%s%s", root, f->mount, group) >= FILE_PATH_ROOM)
        return;
    const size_t top = strlen(root) + strlen(f->mount);
    for (;;) {
        double most = in_group(folder, f->limit, ""), used = in_group(folder, f->usage, "");
        double cache = in_group(folder, "memory.stat", f->reclaimable);
        if (most >= 0 && used >= 0)
            limit(a, most - used + (cache > 0 ? cache : 0), f->name);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top)
            return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:cpu,memory:/path" (version 1). */
static void limit_by_groups(struct available *a, const char *root)
{
    static const struct group_files v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                          "inactive_file ", "the control group's memory.max"};
    static const struct group_files v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                          "memory.usage_in_bytes", "total_inactive_file ",
                                          "the control group's memory.limit_in_bytes"};
    char path[FILE_PATH_ROOM], *text, *rest = NULL;
    size_t size;
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= FILE_PATH_ROOM ||
        file_read(path, 1 << 20, &text, &size) != SOTTO_OK)
        return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (strcmp(group, "/") == 0)
            group = "";
        if (strcmp(line, "0:") == 0)
            limit_by_group(a, root, group, &v2);
        else if (strstr(kinds, "memory"))
            limit_by_group(a, root, group, &v1);
    }
    free(text);
}

static void limit_by_address_space(struct available *a, const char *root)
{
    char path[FILE_PATH_ROOM];
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
        snprintf(path, sizeof path, "%s/proc/self/statm", root) >= FILE_PATH_ROOM)
        return;
    double pages = number_in(path, "");
    if (pages >= 0)
        limit(a, (double)most.rlim_cur - pages * (double)sysconf(_SC_PAGESIZE),
              "the limit on address space (ulimit -v)");
}

struct available available_memory(const char *root)
{
    struct available a = {INFINITY, "nothing"};
    char path[FILE_PATH_ROOM];
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) < FILE_PATH_ROOM) {
        double free_kb = number_in(path, "MemAvailable:");
        if (free_kb >= 0)
            limit(&a, 1024 * free_kb, "this machine");
    }
    limit_by_groups(&a, root);
    limit_by_address_space(&a, root);
    return a;
}

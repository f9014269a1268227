#include "base/machine/control_group.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

int control_file_numbers(const char *path, const char *key, int n, double *out)
{
    char *text, *end;
    size_t size;
    int found = 0;
    if (file_read(path, 1 << 20, &text, &size) != SOTTO_OK)
        return 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        for (line += strlen(key); found < n; line = end, found++) {
            out[found] = strtod(line, &end);
            if (end == line)
                break;
        }
        break;
    }
    free(text);
    return found;
}

int control_group_numbers(const char *folder, const char *file, const char *key, int n, double *out)
{
    char path[FILE_PATH_ROOM];
    return file_join(path, folder, file) == SOTTO_OK ? control_file_numbers(path, key, n, out) : 0;
}

/* Visits `group` below `mount`, then each parent up to the mount. */
static void visit_up(const char *root, const char *mount, const char *group, int version,
                     control_group_visitor *visit, void *arg)
{
    char folder[2 * FILE_PATH_ROOM];
    if (strstr(group, "/..")) /* outside this container's view */
        group = "";
    if (snprintf(folder, FILE_PATH_ROOM, "%s%s%s", root, mount, group) >= FILE_PATH_ROOM)
        return;
    const size_t top = strlen(root) + strlen(mount);
    for (;;) {
        visit(arg, folder, version);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top)
            return;
        *slash = '\0';
    }
}

/* True if the comma-separated list `names` contains `name`: "cpu" is not in "cpuset,cpuacct". */
static bool lists_name(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (; *names; names += strcspn(names, ","), names += *names == ',')
        if (strcspn(names, ",") == length && strncmp(names, name, length) == 0)
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:cpu,memory:/path" (version 1). */
void control_group_each(const char *root, const char *controller, control_group_visitor *visit,
                        void *arg)
{
    char path[FILE_PATH_ROOM], mount[64], *text, *rest = NULL;
    size_t size;
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= FILE_PATH_ROOM ||
        file_read(path, 1 << 20, &text, &size) != SOTTO_OK)
        return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (strcmp(group, "/") == 0)
            group = "";
        if (strcmp(line, "0:") == 0)
            visit_up(root, "/sys/fs/cgroup", group, 2, visit, arg);
        else if (lists_name(names + 1, controller))
            visit_up(root, mount, group, 1, visit, arg);
    }
    free(text);
}

#include "io/append.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

enum sotto_status append_whole(int fd, const char *path, const void *data, size_t bytes)
{
    off_t before = lseek(fd, 0, SEEK_END);
    if (before < 0)
        return fail_errno(SOTTO_EIO, "cannot write %s", path);
    for (const char *p = data, *end = p + bytes; p < end;) {
        ssize_t wrote = write(fd, p, (size_t)(end - p));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            enum sotto_status st = fail_errno(SOTTO_EIO, "cannot write %s", path);
            if (ftruncate(fd, before) != 0)
                return fail_in(st, "half a record is left: ");
            return st;
        }
        p += wrote;
    }
    return SOTTO_OK;
}

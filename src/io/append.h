/* Appending to a log file: all of it or nothing. */
#ifndef SOTTO_IO_APPEND_H
#define SOTTO_IO_APPEND_H

#include <stddef.h>

#include "base/status.h"

/* Writes `bytes` at the end of the file open at `fd` (O_APPEND). Where only a part finds room the
 * file is cut back to what it was. `path` is used in messages. */
enum sotto_status append_whole(int fd, const char *path, const void *data, size_t bytes);

#endif

/* Files: read whole, mapped, or written so that a crash leaves either the old file or the new
 * file. */
#ifndef SOTTO_BASE_FILE_H
#define SOTTO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define FILE_PATH_ROOM 1024

/* Opens a regular file (flags as of open(2); a new file has mode 0666). Refuses folders, pipes and
 * devices: a pipe or device might block the program for ever. */
enum sotto_status file_open(int *fd, const char *path, int flags);

/* A read-only mapping. `data` is NULL when the file is empty. */
struct file_map {
    const uint8_t *data;
    size_t size;
};

enum sotto_status file_map_open(struct file_map *map, const char *path);
void file_map_close(struct file_map *map);

/* Maps `size` bytes of which the first `bytes` are a copy of `head`, in place of a file on another
 * machine. The rest takes no memory and must not be touched. */
enum sotto_status file_map_head(struct file_map *map, const void *head, size_t bytes, size_t size);

/* Reads the whole file and appends a NUL (not counted in `size`); the caller frees `*data`. A file
 * of more than `limit` bytes is an error. `path` "-" is standard input, which may be a pipe. */
enum sotto_status file_read(const char *path, size_t limit, char **data, size_t *size);

/* Reads a text file whole, as file_read does. A NUL inside the file is an error. */
enum sotto_status file_read_text(const char *path, size_t limit, char **text);

/* A file under construction: written under a temporary name in the same folder. file_commit flushes
 * the file to disk and renames it; file_abort removes it and leaves the old file. Symbolic links
 * are followed. A device, pipe or socket is written to directly. */
struct file_draft {
    FILE *stream; /* write here; errors are reported at commit, or by file_put */
    char path[FILE_PATH_ROOM];
    char temporary[FILE_PATH_ROOM + 32];
    bool direct; /* true for a device, pipe or socket: no temporary file */
};

enum sotto_status file_draft_open(struct file_draft *draft, const char *path);
enum sotto_status file_put(struct file_draft *draft, const void *data, size_t bytes);
enum sotto_status file_commit(struct file_draft *draft);
void file_abort(struct file_draft *draft);

/* A small file in one call: open, put, commit. */
enum sotto_status file_write(const char *path, const void *data, size_t bytes);

/* Writes `bytes` at the end of the log file that is open at `fd` (O_APPEND), all of them or none:
 * if the disk has room for a part, the file is cut back to its size before. `path`: for messages.
 */
enum sotto_status file_append(int fd, const char *path, const void *data, size_t bytes);

bool file_exists(const char *path);
bool file_is_directory(const char *path);
bool file_same_name(const char *a, const char *b);         /* ignores slashes at the end */
enum sotto_status file_make_directories(const char *path); /* like mkdir -p              */
enum sotto_status file_sync_directory(const char *path);   /* makes renames durable      */
enum sotto_status file_remove_tree(const char *path);      /* a missing file is no error */

/* Makes `to` a hard link of `from`, or a copy where links are not possible. An existing `to` is
 * replaced in one step. */
enum sotto_status file_link(const char *from, const char *to);

/* Writes "folder/name" to `out`; fails if the path does not fit. */
enum sotto_status file_join(char out[FILE_PATH_ROOM], const char *folder, const char *name);

#endif

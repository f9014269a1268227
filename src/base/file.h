/* Files: read whole, mapped, and written so that a crash leaves either the old one or the new one.
 */
#ifndef SOTTO_BASE_FILE_H
#define SOTTO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define FILE_PATH_ROOM 1024

/* Opens a regular file (flags as of open(2); what is created gets 0666): neither a folder nor a
 * pipe or device, which might keep a program waiting for ever. */
enum sotto_status file_open(int *fd, const char *path, int flags);

/* A read-only mapping. `data` is NULL when the file is empty. */
struct file_map {
    const uint8_t *data;
    size_t size;
};

enum sotto_status file_map_open(struct file_map *map, const char *path);
void file_map_close(struct file_map *map);

/* The same for a file of `size` bytes that is elsewhere: its first `bytes` are a copy of `head`,
 * the others take no memory and cannot be touched. */
enum sotto_status file_map_head(struct file_map *map, const void *head, size_t bytes, size_t size);

/* The whole file with a NUL behind it (not counted in `size`); the caller frees `*data`. A file of
 * more than `limit` bytes is an error. `path` "-" is standard input, which may be a pipe. */
enum sotto_status file_read(const char *path, size_t limit, char **data, size_t *size);

/* The same for text, which ends at the NUL: one inside of it is an error. */
enum sotto_status file_read_text(const char *path, size_t limit, char **text);

/* A file under construction: written under a temporary name in the same folder, flushed to disk and
 * renamed by file_commit; file_abort removes it and leaves what was there before. Symbolic links
 * are followed. A device, pipe or socket is written to as it is. */
struct file_draft {
    FILE *stream; /* write here; errors are found at commit, or earlier with file_put */
    char path[FILE_PATH_ROOM];
    char temporary[FILE_PATH_ROOM + 32];
    bool direct; /* no draft: a device, pipe or socket */
};

enum sotto_status file_draft_open(struct file_draft *draft, const char *path);
enum sotto_status file_put(struct file_draft *draft, const void *data, size_t bytes);
enum sotto_status file_commit(struct file_draft *draft);
void file_abort(struct file_draft *draft);

/* A small file in one call: open, put, commit. */
enum sotto_status file_write(const char *path, const void *data, size_t bytes);

bool file_exists(const char *path);
bool file_is_directory(const char *path);
bool file_same_name(const char *a, const char *b);         /* but for slashes at the end     */
enum sotto_status file_make_directories(const char *path); /* like mkdir -p          */
enum sotto_status file_sync_directory(const char *path);   /* makes renames durable  */
enum sotto_status file_remove_tree(const char *path);      /* fine if it is not there */

/* Makes `to` another name of `from` (a hard link, or a copy where links cannot be made), replacing
 * what was there in one step. */
enum sotto_status file_link(const char *from, const char *to);

/* "folder/name" into `out`; an error if it does not fit. */
enum sotto_status file_join(char out[FILE_PATH_ROOM], const char *folder, const char *name);

#endif

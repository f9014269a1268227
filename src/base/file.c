#define _GNU_SOURCE /* nftw */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *describe_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "directory"
           : S_ISFIFO(mode) ? "pipe"
           : S_ISCHR(mode)  ? "device"
           : S_ISSOCK(mode) ? "socket"
                            : "special file";
}

enum sotto_status file_open(int *fd, const char *path, int flags)
{
    struct stat info;
    *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666); /* returns at once for a pipe */
    if (*fd < 0)
        return fail_errno(SOTTO_EIO, flags & O_CREAT ? "cannot create %s" : "cannot open %s", path);
    enum sotto_status st = SOTTO_OK;
    if (fstat(*fd, &info) != 0)
        st = fail_errno(SOTTO_EIO, "cannot stat %s", path);
    else if (!S_ISREG(info.st_mode))
        st = fail(SOTTO_EIO, "%s is a %s, want a regular file", path, describe_kind(info.st_mode));
    if (st != SOTTO_OK) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

enum sotto_status file_map_open(struct file_map *map, const char *path)
{
    *map = (struct file_map){0};
    struct stat info;
    int fd;
    TRY(file_open(&fd, path, O_RDONLY));
    enum sotto_status st = SOTTO_OK;
    if (fstat(fd, &info) != 0)
        st = fail_errno(SOTTO_EIO, "cannot stat %s", path);
    else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            st = fail_errno(SOTTO_EIO, "cannot map %s", path);
        else
            *map = (struct file_map){data, (size_t)info.st_size};
    }
    close(fd);
    return st;
}

enum sotto_status file_map_head(struct file_map *map, const void *head, size_t bytes, size_t size)
{
    *map = (struct file_map){0};
    if (bytes == 0 || bytes > size)
        return fail(SOTTO_EFORMAT, "a file of %zu bytes begins with %zu bytes", size, bytes);
    void *data = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED || mprotect(data, bytes, PROT_READ | PROT_WRITE) != 0) {
        const enum sotto_status st = fail_errno(SOTTO_ENOMEM, "no room to map %zu bytes", size);
        if (data != MAP_FAILED)
            munmap(data, size);
        return st;
    }
    memcpy(data, head, bytes);
    *map = (struct file_map){data, size};
    return SOTTO_OK;
}

void file_map_close(struct file_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (struct file_map){0};
}

static enum sotto_status open_input(FILE **in, const char *path)
{
    int fd;
    *in = stdin;
    if (strcmp(path, "-") == 0)
        return SOTTO_OK;
    TRY(file_open(&fd, path, O_RDONLY));
    *in = fdopen(fd, "rb");
    if (*in)
        return SOTTO_OK;
    enum sotto_status st = fail_errno(SOTTO_EIO, "cannot open %s", path);
    close(fd);
    return st;
}

enum sotto_status file_read(const char *path, size_t limit, char **data, size_t *size)
{
    *data = NULL;
    *size = 0;
    FILE *in;
    TRY(open_input(&in, path));
    enum sotto_status st = SOTTO_OK;
    size_t room = 0, used = 0;
    char *text = NULL;
    for (;;) {
        if (used + 1 >= room) {
            room = room ? room * 2 : 1 << 16;
            char *more = realloc(text, room);
            if (!more) {
                st = fail(SOTTO_ENOMEM, "%s: no memory for %zu bytes", path, room);
                break;
            }
            text = more;
        }
        size_t got = fread(text + used, 1, room - used - 1, in);
        used += got;
        if (used > limit) {
            st = fail(SOTTO_EFORMAT, "%s is larger than the %zu bytes allowed", path, limit);
            break;
        }
        if (got == 0) {
            if (ferror(in))
                st = fail_errno(SOTTO_EIO, "cannot read %s", path);
            break;
        }
    }
    if (in != stdin)
        fclose(in);
    if (st != SOTTO_OK) {
        free(text);
        return st;
    }
    text[used] = '\0';
    *data = text;
    *size = used;
    return SOTTO_OK;
}

enum sotto_status file_read_text(const char *path, size_t limit, char **text)
{
    size_t size;
    TRY(file_read(path, limit, text, &size));
    const char *zero = memchr(*text, '\0', size);
    if (!zero)
        return SOTTO_OK;
    enum sotto_status st =
        fail(SOTTO_EFORMAT, "%s is not a text file: it contains a zero byte, at %zu", path,
             (size_t)(zero - *text));
    free(*text);
    *text = NULL;
    return st;
}

/* Follows the symbolic links of `path` and stores the target in draft->path. Returns true for a
 * device, pipe or socket: a rename would replace such a target by a file. */
static bool follow_links(struct file_draft *draft, const char *path)
{
    struct stat about;
    char *target = lstat(path, &about) == 0 && S_ISLNK(about.st_mode) ? realpath(path, NULL) : NULL;
    strcpy(draft->path, target && strlen(target) < sizeof draft->path ? target : path);
    free(target);
    return stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

enum sotto_status file_draft_open(struct file_draft *draft, const char *path)
{
    draft->stream = NULL;
    if (strlen(path) >= sizeof draft->path)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(path),
                    path);
    draft->direct = follow_links(draft, path);
    snprintf(draft->temporary, sizeof draft->temporary, "%s.%ld.tmp", draft->path, (long)getpid());
    draft->stream = fopen(draft->direct ? path : draft->temporary, "wb");
    if (!draft->stream)
        return fail_errno(SOTTO_EIO, "cannot create %s", path);
    return SOTTO_OK;
}

enum sotto_status file_put(struct file_draft *draft, const void *data, size_t bytes)
{
    if (bytes && fwrite(data, 1, bytes, draft->stream) != bytes)
        return fail_errno(SOTTO_EIO, "cannot write %s", draft->path);
    return SOTTO_OK;
}

static void find_parent(const char *path, char parent[FILE_PATH_ROOM])
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(parent, ".");
    else
        snprintf(parent, FILE_PATH_ROOM, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

enum sotto_status file_commit(struct file_draft *draft)
{
    enum sotto_status st = SOTTO_OK;
    if (ferror(draft->stream)) /* a caller ignored the result of a write */
        st = fail(SOTTO_EIO, "cannot write %s: an earlier write failed", draft->path);
    else if (fflush(draft->stream) != 0 || (!draft->direct && fsync(fileno(draft->stream)) != 0))
        st = fail_errno(SOTTO_EIO, "cannot write %s", draft->path);
    if (fclose(draft->stream) != 0 && st == SOTTO_OK)
        st = fail_errno(SOTTO_EIO, "cannot write %s", draft->path);
    draft->stream = NULL;
    if (draft->direct)
        return st;
    if (st == SOTTO_OK && rename(draft->temporary, draft->path) != 0)
        st = fail_errno(SOTTO_EIO, "cannot rename %s to %s", draft->temporary, draft->path);
    if (st != SOTTO_OK) {
        unlink(draft->temporary);
        return st;
    }
    char parent[FILE_PATH_ROOM];
    find_parent(draft->path, parent);
    return file_sync_directory(parent);
}

void file_abort(struct file_draft *draft)
{
    if (!draft->stream)
        return;
    fclose(draft->stream);
    if (!draft->direct)
        unlink(draft->temporary);
    draft->stream = NULL;
}

enum sotto_status file_write(const char *path, const void *data, size_t bytes)
{
    struct file_draft draft;
    TRY(file_draft_open(&draft, path));
    enum sotto_status st = file_put(&draft, data, bytes);
    if (st == SOTTO_OK)
        return file_commit(&draft);
    file_abort(&draft);
    return st;
}

enum sotto_status file_append(int fd, const char *path, const void *data, size_t bytes)
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

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns the length of a path without the slashes at its end. */
static size_t length_to_slashes(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

bool file_same_name(const char *a, const char *b)
{
    const size_t length = length_to_slashes(a);
    return length_to_slashes(b) == length && memcmp(a, b, length) == 0;
}

bool file_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum sotto_status file_make_directories(const char *path)
{
    char part[FILE_PATH_ROOM];
    if (strlen(path) >= sizeof part)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(path),
                    path);
    if (*path == '\0')
        return fail(SOTTO_EINVAL, "the name of a folder is empty");
    strcpy(part, path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char kept = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return fail_errno(SOTTO_EIO, "cannot make folder %s", part);
        *p = kept;
        if (kept == '\0')
            break;
    }
    if (!file_is_directory(path))
        return fail(SOTTO_EIO, "%s is not a folder", path);
    return SOTTO_OK;
}

enum sotto_status file_sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(SOTTO_EIO, "cannot open folder %s", path);
    int rc = fsync(fd);
    int cause = errno;
    close(fd);
    errno = cause;
    if (rc != 0 && cause != EINVAL) /* some file systems cannot sync a folder */
        return fail_errno(SOTTO_EIO, "cannot sync folder %s", path);
    return SOTTO_OK;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

enum sotto_status file_remove_tree(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return fail_errno(SOTTO_EIO, "cannot remove %s", path);
    return SOTTO_OK;
}

static enum sotto_status copy_whole(const char *from, const char *to)
{
    struct file_map map;
    TRY(file_map_open(&map, from));
    enum sotto_status st = file_write(to, map.data, map.size);
    file_map_close(&map);
    return st;
}

enum sotto_status file_link(const char *from, const char *to)
{
    char temporary[FILE_PATH_ROOM + 32];
    if (strlen(to) >= FILE_PATH_ROOM)
        return fail(SOTTO_EINVAL, "path of %zu characters is too long: %.80s...", strlen(to), to);
    snprintf(temporary, sizeof temporary, "%s.%ld.link", to, (long)getpid());
    unlink(temporary);
    if (link(from, temporary) != 0)
        return copy_whole(from, to);
    if (rename(temporary, to) != 0) {
        enum sotto_status st = fail_errno(SOTTO_EIO, "cannot replace %s", to);
        unlink(temporary);
        return st;
    }
    unlink(temporary); /* rename does nothing if both names already are the same file */
    return SOTTO_OK;
}

enum sotto_status file_join(char out[FILE_PATH_ROOM], const char *folder, const char *name)
{
    size_t length = strlen(folder);
    const char *slash = length && folder[length - 1] == '/' ? "" : "/";
    if (snprintf(out, FILE_PATH_ROOM, "%s%s%s", folder, slash, name) >= FILE_PATH_ROOM)
        return fail(SOTTO_EINVAL, "path is too long: %.80s.../%.80s", folder, name);
    return SOTTO_OK;
}

#define _GNU_SOURCE /* mkdtemp */
#include "train/run/lend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "comm/lane.h"
#include "io/hf_files.h"

#define TEXT_LIMIT ((size_t)1 << 29) /* as hf_folder.c reads */

/* Elements of a piece, which takes less than a minute on any link that is used for training: longer
 * waits are reported. */
#define VECTOR_PIECE ((size_t)4 << 20)

enum sotto_status lend_text(struct comm *mpi, char **text, size_t *size)
{
    const bool leads = mpi->rank == 0;
    int64_t bytes = leads && *text ? (int64_t)*size : -1;
    TRY(comm_broadcast_bytes(mpi, &bytes, sizeof bytes, 0));
    if (!leads)
        *text = bytes >= 0 ? calloc((size_t)bytes + 1, 1) : NULL;
    if (bytes >= 0 && !*text)
        return fail(SOTTO_ENOMEM, "no memory for %lld bytes from rank 0", (long long)bytes);
    *size = bytes >= 0 ? (size_t)bytes : 0;
    return bytes > 0 ? comm_broadcast_bytes(mpi, *text, *size, 0) : SOTTO_OK;
}

/* Sends a file, if rank 0 has it. */
static enum sotto_status lend_file(struct comm *mpi, const char *from, const char *to,
                                   const char *name)
{
    char path[FILE_PATH_ROOM], *text = NULL;
    size_t size = 0;
    TRY(file_join(path, mpi->rank == 0 ? from : to, name));
    if (mpi->rank == 0 && file_exists(path))
        TRY(file_read(path, TEXT_LIMIT, &text, &size));
    enum sotto_status st = lend_text(mpi, &text, &size);
    if (st == SOTTO_OK && text && mpi->rank > 0)
        st = file_write(path, text, size);
    free(text);
    return st;
}

static enum sotto_status make_temporary(char local[FILE_PATH_ROOM])
{
    const char *folder = getenv("TMPDIR");
    TRY(file_join(local, folder && *folder ? folder : "/tmp", "sotto-XXXXXX"));
    if (mkdtemp(local))
        return SOTTO_OK;
    const enum sotto_status st =
        fail_errno(SOTTO_EIO, "cannot make folder %s for files from rank 0", local);
    *local = '\0';
    return st;
}

enum sotto_status lend_folder(struct comm *mpi, const char *from, char local[FILE_PATH_ROOM])
{
    *local = '\0';
    if (!mpi || mpi->rank == 0) {
        strcpy(local, from);
        if (*from && !file_is_directory(from)) /* before other ranks wait for files */
            return fail(SOTTO_EIO, "%s is not a folder with a model", from);
    } else if (*from) {
        TRY(make_temporary(local));
    }
    if (!mpi || !*from)
        return SOTTO_OK;
    for (int i = 0; i < HF_FILES; i++)
        TRY(lend_file(mpi, from, local, hf_files[i].name));
    return lend_file(mpi, from, local, "config.json");
}

void lend_drop(const struct comm *mpi, char local[FILE_PATH_ROOM])
{
    if (mpi && mpi->rank > 0 && *local)
        (void)file_remove_tree(local);
    *local = '\0';
}

enum sotto_status lend_vector(struct comm *mpi, float *x, size_t count, bool have, int *sent)
{
    struct lent_print {
        uint64_t have, hash;
    } mine = {have, have ? hash_bytes(HASH_START, x, count * sizeof *x) : 0};
    struct lent_print *all = calloc((size_t)mpi->size, sizeof *all);
    *sent = 0;
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory to compare %d ranks", mpi->size);
    enum sotto_status st = comm_gather_bytes(mpi, all, &mine, sizeof mine);
    for (int r = 1; r < mpi->size; r++)
        *sent += memcmp(&all[r], &all[0], sizeof *all) != 0;
    free(all);
    for (size_t at = 0; *sent && at < count && st == SOTTO_OK; at += VECTOR_PIECE)
        st = comm_broadcast(mpi, view_of(x + at, DTYPE_F32),
                            count - at < VECTOR_PIECE ? count - at : VECTOR_PIECE, 0);
    return st;
}

/* A rank's request for bytes of the file; 0 bytes: the last request. */
struct lent_request {
    uint64_t at, bytes;
};

static enum sotto_status request_bytes(void *lent, size_t at, void *to, size_t bytes)
{
    struct lent *l = lent;
    struct lent_request r = {at, bytes};
    TRY(comm_send_bytes(l->comm, &r, sizeof r, 0));
    return bytes ? comm_recv_bytes(l->comm, to, bytes, 0) : SOTTO_OK;
}

/* Answers requests in rank 0's lane: a method may communicate while it loads. */
static enum sotto_status answer_requests(void *lent)
{
    struct lent *l = lent;
    const struct file_map *map = &l->file->set.file[0].map;
    while (l->asking > 0) {
        struct lent_request r;
        int from;
        TRY(comm_recv_any_bytes(l->comm, &r, sizeof r, l->away, INFINITY, &from));
        if (r.bytes == 0) {
            l->away[from] = false;
            l->asking--;
            continue;
        }
        if (r.at > map->size || r.bytes > map->size - r.at)
            return fail(SOTTO_EPEER, "rank %d asks for bytes that the checkpoint does not have",
                        from);
        TRY(comm_send_bytes(l->comm, map->data + r.at, r.bytes, from));
    }
    return SOTTO_OK;
}

struct lent_about {
    uint64_t print, bytes, size;
};

static struct lent_about describe_file(const struct state_file *file)
{
    size_t bytes, size;
    (void)state_file_head(file, &bytes, &size);
    return (struct lent_about){state_file_fingerprint(file), bytes, size};
}

/* True if this rank has the same file as rank 0; the file is open then. */
static bool has_same_file(struct state_file *file, const char *path, const struct lent_about *about)
{
    if (!file_exists(path) || state_file_open(file, path) != SOTTO_OK)
        return false;
    const struct lent_about mine = describe_file(file);
    if (memcmp(&mine, about, sizeof mine) == 0)
        return true;
    state_file_close(file);
    return false;
}

/* Sends the head of the file to the ranks without the file. */
static enum sotto_status lend_head(struct lent *l, struct comm *mpi, struct state_file *file,
                                   const char *path, const struct lent_about *about)
{
    size_t bytes, size;
    const bool away = l->away[mpi->rank];
    void *head =
        mpi->rank == 0 ? (void *)state_file_head(file, &bytes, &size) : calloc(about->bytes, 1);
    if (!head)
        return fail(SOTTO_ENOMEM, "no memory for the header of %s", path);
    enum sotto_status st = comm_broadcast_bytes(mpi, head, about->bytes, 0);
    if (st == SOTTO_OK && away)
        st = state_file_open_head(file, head, about->bytes, about->size, path,
                                  (struct state_source){request_bytes, l});
    if (mpi->rank > 0)
        free(head);
    return st == SOTTO_OK ? comm_duplicate(mpi, &l->comm) : st;
}

enum sotto_status lent_open(struct lent *l, struct comm *mpi, struct state_file *file,
                            const char *path)
{
    struct lent_about about = {0};
    *l = (struct lent){.file = file};
    const enum sotto_status st = mpi && mpi->rank > 0 ? SOTTO_OK : state_file_open(file, path);
    if (!mpi)
        return st;
    if (mpi->rank == 0 && st == SOTTO_OK)
        about = describe_file(file);
    struct status_note cause;
    status_save(&cause, st);
    TRY(comm_broadcast_bytes(mpi, &about, sizeof about, 0));
    TRY(status_raise(&cause));
    if (about.bytes == 0)
        return fail(SOTTO_EIO, "rank 0 cannot read %s", path);
    const bool away = mpi->rank > 0 && !has_same_file(file, path, &about);
    l->away = calloc((size_t)mpi->size, sizeof *l->away);
    if (!l->away)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", mpi->size);
    TRY(comm_gather_bytes(mpi, l->away, &away, sizeof away));
    for (int r = 0; r < mpi->size; r++)
        l->asking += l->away[r];
    return l->asking ? lend_head(l, mpi, file, path, &about) : SOTTO_OK;
}

enum sotto_status lent_begin(struct lent *l)
{
    if (!l->comm || l->comm->rank > 0)
        return SOTTO_OK;
    TRY(lane_open_thread(&l->lane));
    return lane_start(l->lane, answer_requests, l);
}

enum sotto_status lent_end(struct lent *l, enum sotto_status st)
{
    struct status_note cause;
    enum sotto_status end = SOTTO_OK;
    status_save(&cause, st);
    if (l->lane)
        end = lane_wait(l->lane);
    else if (l->comm && l->away[l->comm->rank])
        end = request_bytes(l, 0, NULL, 0);
    TRY(status_raise(&cause));
    return end;
}

void lent_close(struct lent *l)
{
    lane_close(l->lane);
    comm_free(l->comm);
    free(l->away);
    *l = (struct lent){0};
}

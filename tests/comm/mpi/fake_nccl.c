/* A library with the names of NCCL's functions, for tests without GPUs. Ranks are processes of one
 * machine, memory is the host's, and a call is done when it returns, on any stream. Between every
 * two ranks messages pass through a box of shared memory, in pieces. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { MOST = 8, PIECE = 16 << 10, CALLS = 512 };
enum { SUCCESS = 0, SYSTEM = 2, INVALID = 4, USAGE = 5 };

struct id {
    char internal[128];
};

struct box {
    atomic_size_t full; /* bytes in the box; 0: empty */
    char data[PIECE];
};

struct hall {
    atomic_int came;
    struct box box[MOST][MOST]; /* by sender and receiver */
};

struct comm {
    struct hall *hall;
    int rank, size;
};

struct call {
    struct comm *comm;
    char *data;
    size_t left;
    int peer;
    bool send;
};

static _Thread_local struct call calls[CALLS];
static _Thread_local int n_calls, depth;

PUBLIC int ncclGetUniqueId(struct id *id);
PUBLIC int ncclCommInitRank(void **out, int size, struct id id, int rank);
PUBLIC int ncclCommDestroy(void *comm);
PUBLIC int ncclGroupStart(void);
PUBLIC int ncclGroupEnd(void);
PUBLIC int ncclSend(const void *data, size_t count, int type, int peer, void *comm, void *stream);
PUBLIC int ncclRecv(void *data, size_t count, int type, int peer, void *comm, void *stream);
PUBLIC int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                         void *stream);
PUBLIC const char *ncclGetErrorString(int code);

int ncclGetUniqueId(struct id *id)
{
    static atomic_int number;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/sotto-fake-nccl-%ld-%d", (long)getpid(),
             atomic_fetch_add(&number, 1));
    return SUCCESS;
}

int ncclCommInitRank(void **out, int size, struct id id, int rank)
{
    if (size > MOST || rank < 0 || rank >= size)
        return INVALID;
    const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    struct comm *c = calloc(1, sizeof *c);
    if (file < 0 || !c || ftruncate(file, sizeof(struct hall)) != 0)
        return SYSTEM;
    c->hall = mmap(NULL, sizeof(struct hall), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (c->hall == MAP_FAILED)
        return SYSTEM;
    c->rank = rank;
    c->size = size;
    atomic_fetch_add(&c->hall->came, 1);
    while (atomic_load(&c->hall->came) < size)
        sched_yield();
    if (rank == 0)
        shm_unlink(id.internal);
    *out = c;
    return SUCCESS;
}

int ncclCommDestroy(void *comm)
{
    struct comm *c = comm;
    munmap(c->hall, sizeof *c->hall);
    free(c);
    return SUCCESS;
}

/* True if an earlier call of the group is between the same two ranks in the same direction. */
static bool behind(int i)
{
    for (int k = 0; k < i; k++)
        if (calls[k].left && calls[k].comm == calls[i].comm && calls[k].peer == calls[i].peer &&
            calls[k].send == calls[i].send)
            return true;
    return false;
}

/* Moves a piece, if the box has room or data. True if a piece was moved. */
static bool move(struct call *p)
{
    const struct comm *c = p->comm;
    struct box *b = p->send ? &c->hall->box[c->rank][p->peer] : &c->hall->box[p->peer][c->rank];
    const size_t full = atomic_load(&b->full);
    if (p->send == (full > 0))
        return false;
    const size_t n = p->send ? (p->left < PIECE ? p->left : PIECE) : full;
    if (n > p->left)
        abort(); /* sender and receiver disagree on the length */
    if (p->send)
        memcpy(b->data, p->data, n);
    else
        memcpy(p->data, b->data, n);
    atomic_store(&b->full, p->send ? n : 0);
    p->data += n;
    p->left -= n;
    return true;
}

static void run(void)
{
    for (bool left = true; left;) {
        bool moved = false;
        left = false;
        for (int i = 0; i < n_calls; i++) {
            if (calls[i].left && !behind(i))
                moved = move(&calls[i]) || moved;
            left = left || calls[i].left;
        }
        if (left && !moved)
            sched_yield();
    }
    n_calls = 0;
}

int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    if (!depth)
        return USAGE;
    if (--depth == 0)
        run();
    return SUCCESS;
}

static int add(struct comm *c, void *data, size_t bytes, int type, int peer, bool send)
{
    if (type != 0 || peer < 0 || peer >= c->size || n_calls == CALLS)
        return INVALID;
    if (peer == c->rank && c->size > 1) /* possible, but not used by our calls */
        return INVALID;
    calls[n_calls++] = (struct call){c, data, bytes, peer, send};
    if (!depth)
        run();
    return SUCCESS;
}

int ncclSend(const void *data, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add(comm, (void *)data, count, type, peer, true);
}

int ncclRecv(void *data, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add(comm, data, count, type, peer, false);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                  void *stream)
{
    const struct comm *c = comm;
    int code = ncclGroupStart();
    for (int r = 0; r < c->size && c->rank == root && code == SUCCESS; r++)
        if (r != root)
            code = ncclSend(from, count, type, r, comm, stream);
    if (c->rank != root)
        code = ncclRecv(to, count, type, root, comm, stream);
    const int ended = ncclGroupEnd();
    return code ? code : ended;
}

const char *ncclGetErrorString(int code)
{
    return code == SUCCESS ? "no error" : code == SYSTEM ? "unhandled system error" : "invalid";
}

/* Memory of the GPU, and transfers between GPU and host. */
#include <string.h>

#include "tensor/cuda/cuda.h"

void cuda_check(struct device *dev, int error, const char *what)
{
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* clears the error for the next call */
    device_fail(dev, fail(SOTTO_EIO, "the GPU cannot %s: %s", what,
                          cudaGetErrorString((cudaError_t)error)));
}

/* Waits until the memory is zero, since other contexts may use it at once. */
void *cuda_alloc(struct device *dev, size_t bytes)
{
    stream_t s = cuda_stream(dev);
    void *memory = NULL;
    if (cudaMallocFromPoolAsync(&memory, bytes, cuda_of(dev)->pool, s) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    cuda_check(dev, cudaMemsetAsync(memory, 0, bytes, s), "clear memory");
    cuda_check(dev, cudaStreamSynchronize(s), "clear memory");
    return memory;
}

/* Frees in stream order, after the ops that use the memory. */
void cuda_release(struct device *dev, void *memory, size_t bytes)
{
    (void)bytes;
    cuda_check(dev, cudaFreeAsync(memory, cuda_stream(dev)), "free memory");
}

void cuda_left(struct device *dev, size_t *left, size_t *all)
{
    (void)cuda_stream(dev);
    *left = *all = 0;
    uint64_t kept = 0, used = 0; /* by the pool; the difference is free for later allocations */
    const cudaMemPool_t pool = cuda_of(dev)->pool;
    cudaError_t e = cudaMemGetInfo(left, all);
    e = e ? e : cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &kept);
    e = e ? e : cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    cuda_check(dev, e, "report its memory");
    *left += kept - used;
}

void cuda_drop(struct device *dev, struct cuda_room *room)
{
    if (room->data) {
        cuda_release(dev, room->data, room->bytes);
        memory_remove(dev->memory, MEMORY_SCRATCH, room->bytes);
    }
    *room = (struct cuda_room){0};
}

/* Sets the size of a room that is only counted: no data, and never taken out of the account,
 * since a plan reads the account's peak. */
static void count_room(struct device *dev, struct cuda_room *room, size_t bytes)
{
    memory_remove(dev->memory, MEMORY_SCRATCH, room->bytes);
    memory_add(dev->memory, MEMORY_SCRATCH, bytes);
    room->bytes = bytes;
}

void *cuda_grow(struct device *dev, struct cuda_room *room, size_t bytes)
{
    if (bytes <= room->bytes)
        return room->data;
    if (cuda_counts(dev)) {
        count_room(dev, room, bytes);
        return NULL;
    }
    cuda_drop(dev, room);
    *room = (struct cuda_room){cuda_alloc(dev, bytes), bytes};
    if (!room->data) {
        *room = (struct cuda_room){0};
        device_fail(dev,
                    fail(SOTTO_ENOMEM, "the GPU has no memory for %zu bytes of scratch", bytes));
        return NULL;
    }
    memory_add(dev->memory, MEMORY_SCRATCH, bytes);
    return room->data;
}

enum { PINNED_LEAST = 1 << 16, PINNED_MOST = 4 << 20 };

static void free_pinned_pages(struct cuda_pinned_copy *f)
{
    if (!f->pages)
        return;
    for (int i = 0; i < 2; i++)
        (void)cudaEventSynchronize(f->copied[i]);
    (void)cudaFreeHost(f->pages);
    f->pages = NULL;
    f->half = 0;
}

void cuda_pinned_unaccount(struct device *dev)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    memory_remove(dev->memory, MEMORY_SCRATCH, f->paid);
    f->paid = 0;
}

void cuda_pinned_close(struct cuda_pinned_copy *f)
{
    free_pinned_pages(f);
    for (int i = 0; i < 2; i++)
        if (f->copied[i])
            (void)cudaEventDestroy(f->copied[i]);
}

/* Accounts for the pages in use, also for pages kept from an earlier context, so that an account
 * does not depend on earlier runs. */
static void account_pinned(struct device *dev, size_t half)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    if (2 * half <= f->paid)
        return;
    memory_add(dev->memory, MEMORY_SCRATCH, 2 * half - f->paid);
    f->paid = 2 * half;
}

/* Makes halves for `bytes`, up to PINNED_MOST. Returns false, with a kept failure, if there is
 * too little memory. */
static bool make_pinned_room(struct device *dev, size_t bytes)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    size_t half = PINNED_LEAST;
    while (half < bytes && half < PINNED_MOST)
        half *= 2;
    if (half <= f->half) {
        account_pinned(dev, half);
        return true;
    }
    free_pinned_pages(f);
    void *pages = NULL;
    const cudaError_t error = cudaHostAlloc(&pages, 2 * half, cudaHostAllocDefault);
    cuda_check(dev, error, "pin pages of the host");
    if (error != cudaSuccess)
        return false;
    f->pages = pages;
    f->half = half;
    account_pinned(dev, half);
    return true;
}

/* Returns the next half after its last transfer, and its number. */
static char *next_pinned_half(struct device *dev, int *which)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    *which = f->next;
    f->next ^= 1;
    cuda_check(dev, cudaEventSynchronize(f->copied[*which]), "copy data");
    return f->pages + (size_t)*which * f->half;
}

static size_t min_bytes(size_t a, size_t b)
{
    return a < b ? a : b;
}

void cuda_write(struct device *dev, struct view to, const void *host, size_t count)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    const size_t bytes = count * dtype_size(to.type);
    stream_t s = cuda_stream(dev);
    if (!make_pinned_room(dev, bytes))
        return;
    for (size_t at = 0; at < bytes; at += f->half) {
        const size_t n = min_bytes(f->half, bytes - at);
        int which;
        char *pages = next_pinned_half(dev, &which);
        memcpy(pages, (const char *)host + at, n);
        cuda_check(dev, cudaMemcpyAsync((char *)to.data + at, pages, n, cudaMemcpyHostToDevice, s),
                   "write");
        cuda_check(dev, cudaEventRecord(f->copied[which], s), "write");
    }
}

/* Copies one half to the host while the other is filled. */
void cuda_read(struct device *dev, void *host, struct view from, size_t count)
{
    struct cuda_pinned_copy *f = &cuda_of(dev)->pinned;
    const size_t bytes = count * dtype_size(from.type);
    stream_t s = cuda_stream(dev);
    if (!make_pinned_room(dev, bytes))
        return;
    const char *before = NULL; /* half of the previous turn, in flight */
    size_t before_at = 0;
    int before_which = 0;
    for (size_t at = 0; at < bytes || before; at += f->half) {
        const char *pages = NULL;
        int which = 0;
        if (at < bytes) {
            pages = next_pinned_half(dev, &which);
            cuda_check(dev,
                       cudaMemcpyAsync((char *)pages, (const char *)from.data + at,
                                       min_bytes(f->half, bytes - at), cudaMemcpyDeviceToHost, s),
                       "read");
            cuda_check(dev, cudaEventRecord(f->copied[which], s), "read");
        }
        if (before) {
            cuda_check(dev, cudaEventSynchronize(f->copied[before_which]), "read");
            memcpy((char *)host + before_at, before, min_bytes(f->half, bytes - before_at));
        }
        before = pages;
        before_at = at;
        before_which = which;
    }
}

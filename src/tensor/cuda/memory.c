/* Memory of the GPU, and the way between it and the host's. */
#include <string.h>

#include "tensor/cuda/cuda.h"

void cuda_check(struct device *dev, int error, const char *what)
{
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* the next call has its own */
    device_fail(dev, fail(SOTTO_EIO, "the GPU cannot %s: %s", what,
                          cudaGetErrorString((cudaError_t)error)));
}

/* Other contexts may use it at once, so it is there and zero when this returns. */
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

/* Behind what still uses it. */
void cuda_release(struct device *dev, void *memory, size_t bytes)
{
    (void)bytes;
    cuda_check(dev, cudaFreeAsync(memory, cuda_stream(dev)), "free memory");
}

void cuda_left(struct device *dev, size_t *left, size_t *all)
{
    (void)cuda_stream(dev);
    *left = *all = 0;
    uint64_t kept = 0, used = 0; /* by the pool: the difference waits for who asks next */
    const cudaMemPool_t pool = cuda_of(dev)->pool;
    cudaError_t e = cudaMemGetInfo(left, all);
    e = e ? e : cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &kept);
    e = e ? e : cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    cuda_check(dev, e, "say how much memory it has");
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

/* A room that is only counted has a size and no data, and nobody takes it out of the account, whose
 * peak is what who counts looks at. */
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

enum { FERRY_LEAST = 1 << 16, FERRY_MOST = 4 << 20 };

static void drop_pages(struct cuda_ferry *f)
{
    if (!f->pages)
        return;
    for (int i = 0; i < 2; i++)
        (void)cudaEventSynchronize(f->landed[i]);
    (void)cudaFreeHost(f->pages);
    f->pages = NULL;
    f->half = 0;
}

void cuda_ferry_rest(struct device *dev)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    memory_remove(dev->memory, MEMORY_SCRATCH, f->paid);
    f->paid = 0;
}

void cuda_ferry_close(struct cuda_ferry *f)
{
    drop_pages(f);
    for (int i = 0; i < 2; i++)
        if (f->landed[i])
            (void)cudaEventDestroy(f->landed[i]);
}

/* Pages that were there before this context is opened are paid for as they are used, so that an
 * account does not depend on who came before. */
static void pay(struct device *dev, size_t half)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    if (2 * half <= f->paid)
        return;
    memory_add(dev->memory, MEMORY_SCRATCH, 2 * half - f->paid);
    f->paid = 2 * half;
}

/* Halves for `bytes`, or for the most that is carried at once. False: no memory, a kept failure. */
static bool ferry_room(struct device *dev, size_t bytes)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    size_t half = FERRY_LEAST;
    while (half < bytes && half < FERRY_MOST)
        half *= 2;
    if (half <= f->half) {
        pay(dev, half);
        return true;
    }
    drop_pages(f);
    void *pages = NULL;
    const cudaError_t error = cudaHostAlloc(&pages, 2 * half, cudaHostAllocDefault);
    cuda_check(dev, error, "pin pages of the host");
    if (error != cudaSuccess)
        return false;
    f->pages = pages;
    f->half = half;
    pay(dev, half);
    return true;
}

/* The next half, no longer under way. */
static char *ferry_next(struct device *dev, int *which)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    *which = f->next;
    f->next ^= 1;
    cuda_check(dev, cudaEventSynchronize(f->landed[*which]), "carry data");
    return f->pages + (size_t)*which * f->half;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void cuda_write(struct device *dev, struct view to, const void *host, size_t count)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    const size_t bytes = count * dtype_size(to.type);
    stream_t s = cuda_stream(dev);
    if (!ferry_room(dev, bytes))
        return;
    for (size_t at = 0; at < bytes; at += f->half) {
        const size_t n = smaller(f->half, bytes - at);
        int which;
        char *pages = ferry_next(dev, &which);
        memcpy(pages, (const char *)host + at, n);
        cuda_check(dev, cudaMemcpyAsync((char *)to.data + at, pages, n, cudaMemcpyHostToDevice, s),
                   "write");
        cuda_check(dev, cudaEventRecord(f->landed[which], s), "write");
    }
}

/* One half is read out while the other is filled. */
void cuda_read(struct device *dev, void *host, struct view from, size_t count)
{
    struct cuda_ferry *f = &cuda_of(dev)->ferry;
    const size_t bytes = count * dtype_size(from.type);
    stream_t s = cuda_stream(dev);
    if (!ferry_room(dev, bytes))
        return;
    const char *before = NULL; /* what the last turn has asked for */
    size_t before_at = 0;
    int before_which = 0;
    for (size_t at = 0; at < bytes || before; at += f->half) {
        const char *pages = NULL;
        int which = 0;
        if (at < bytes) {
            pages = ferry_next(dev, &which);
            cuda_check(dev,
                       cudaMemcpyAsync((char *)pages, (const char *)from.data + at,
                                       smaller(f->half, bytes - at), cudaMemcpyDeviceToHost, s),
                       "read");
            cuda_check(dev, cudaEventRecord(f->landed[which], s), "read");
        }
        if (before) {
            cuda_check(dev, cudaEventSynchronize(f->landed[before_which]), "read");
            memcpy((char *)host + before_at, before, smaller(f->half, bytes - before_at));
        }
        before = pages;
        before_at = at;
        before_which = which;
    }
}

/* A context on a GPU: its stream, what passes between it and the host, and rooms of its own.
 *
 * Ops are issued to the stream and return; kernels lie in .cu files behind launch.h. All memory,
 * the workspace of products and pinned pages included, is in the account. */
#ifndef SOTTO_TENSOR_CUDA_CUDA_H
#define SOTTO_TENSOR_CUDA_CUDA_H

#include <assert.h>

#include <cuda_runtime_api.h>

#include "tensor/cuda/kernels/launch.h"
#include "tensor/ops.h"

/* Pinned pages that data pass through, one half while the other is on its way. */
struct cuda_ferry {
    char *pages;
    size_t half; /* bytes */
    size_t paid; /* of both, by the account of who has it */
    cudaEvent_t landed[2];
    int next;
};

/* What kernels tell the host, in pinned memory. */
enum { CUDA_SUMS = 256 };
struct cuda_news {
    uint64_t damaged; /* launch_tiles_decode's */
    double sums[CUDA_SUMS];
};

/* Memory of the GPU that grows when it must, as device_scratch does. */
struct cuda_room {
    void *data;
    size_t bytes;
};

/* Sums that products do not need run beside them, on a stream of their own. */
struct cuda_aside {
    cudaStream_t stream;
    cudaEvent_t given, done; /* what they read is there; they are */
    bool under_way;
    const char *begin, *end; /* what they read, and nobody may write yet */
    struct cuda_room parts;
};

enum { CUDA_MARKS = 64, CUDA_NO_GPU = -1 };

struct cuda {
    struct cuda *next; /* parked */
    int gpu;           /* CUDA_NO_GPU: the machine has none, and this context only counts */
    int number; /* which no other GPU has, though processes may be shown them in other orders */
    cudaStream_t stream;
    cudaMemPool_t pool;
    struct cuda_ferry ferry;
    struct cuda_news *news;
    cudaEvent_t marks[CUDA_MARKS]; /* mark n is number n % CUDA_MARKS; a later one waits for more */
    uint64_t marked;
    struct cuda_room windows; /* gathered for a convolution */
    struct cuda_room logits;
    struct cuda_aside aside;
    struct lt *lt; /* products (lt.h), from the first one on */
    char about[320];
};

static inline struct cuda *cuda_of(const struct device *dev)
{
    return (struct cuda *)(void *)(uintptr_t)dev->impl;
}

/* Where to issue what may run beside sums that are under way; CUDA's current device is a thread's
 * own, and any thread may issue. */
static inline stream_t cuda_stream_beside(struct device *dev)
{
    struct cuda *c = cuda_of(dev);
    (void)cudaSetDevice(c->gpu);
    return c->stream;
}

/* Where to issue all else. */
static inline stream_t cuda_stream(struct device *dev)
{
    stream_t s = cuda_stream_beside(dev);
    struct cuda_aside *a = &cuda_of(dev)->aside;
    if (a->under_way)
        (void)cudaStreamWaitEvent(s, a->done, 0);
    a->under_way = false;
    return s;
}

/* Keeps the failure of a call of CUDA's or of a launch. */
void cuda_check(struct device *dev, int error, const char *what);

static inline struct vec cuda_vec(struct view v)
{
    assert(!v.data || v.place == PLACE_DEVICE);
    return (struct vec){v.data, v.type == DTYPE_BF16};
}

/* Whether it only counts what ops take (ops->takes): then they ask for that and launch nothing. */
static inline bool cuda_counts(const struct device *dev)
{
    return !dev->ops->alloc;
}

/* NULL (and a kept failure) without memory; NULL, too, of a device that counts. */
void *cuda_grow(struct device *dev, struct cuda_room *room, size_t bytes);
void cuda_drop(struct device *dev, struct cuda_room *room);

/* context_cache.c: contexts of this process that nobody has open. To make one takes milliseconds,
 * most of which hold up every other context, and every worker and lane of every run opens one. They
 * keep their stream, events, pinned pages and choices of kernels, and no memory of the GPU. */
struct cuda *cuda_unpark(int gpu); /* NULL: none of that GPU */
void cuda_park(struct cuda *c);

/* memory.c */
void *cuda_alloc(struct device *dev, size_t bytes);
void cuda_release(struct device *dev, void *memory, size_t bytes);
void cuda_write(struct device *dev, struct view to, const void *host, size_t count);
void cuda_read(struct device *dev, void *host, struct view from, size_t count);
void cuda_left(struct device *dev, size_t *left, size_t *all);
void cuda_ferry_rest(struct device *dev); /* nothing of it is the account's any more */
void cuda_ferry_close(struct cuda_ferry *f);

/* vectors.c */
void cuda_call(struct device *dev, device_call *call, const struct view *v, int n, const void *arg,
               size_t bytes);
void cuda_sum_ranks(struct device *dev, const struct rank_sum *p, const struct view *out, int n_out,
                    const struct view *x);
double cuda_sum_squares(struct device *dev, const struct vector_pair *p, int n, double *each);
/* products.c */
void cuda_linear_loss(struct device *dev, const struct linear *p, const struct linear_loss *l);

/* The ops of the table: cuda_fill, cuda_copy, ... */
#define OP(op, ...) void cuda_##op(OP_PARAMETERS(__VA_ARGS__));
#include "tensor/op_list.h"

#endif

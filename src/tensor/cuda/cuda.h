/* A context on a GPU: its stream, the transfers between GPU and host, and scratch of its own.
 *
 * Ops are issued to the stream and return; kernels are in .cu files below launch.h. The account has
 * all memory, including the workspace of products and pinned pages. */
#ifndef SOTTO_TENSOR_CUDA_CUDA_H
#define SOTTO_TENSOR_CUDA_CUDA_H

#include <assert.h>

#include <cuda_runtime_api.h>

#include "tensor/cuda/kernels/launch.h"
#include "tensor/ops.h"

/* Pinned host pages for transfers: two halves, one copied by the host while the other is in
 * flight. */
struct cuda_pinned_copy {
    char *pages;
    size_t half; /* bytes */
    size_t paid; /* bytes of both halves that the account of the open context has */
    cudaEvent_t copied[2];
    int next;
};

/* What kernels report to the host, in pinned memory. */
enum { CUDA_SUMS = 256 };
struct cuda_device_flags {
    uint64_t damaged; /* written by launch_tiles_decode; 0: none */
    double sums[CUDA_SUMS];
};

/* GPU memory that grows when needed, as device_scratch does. */
struct cuda_room {
    void *data;
    size_t bytes;
};

/* A second stream for column sums, which run in parallel with the products that do not need
 * them. */
struct cuda_side_stream {
    cudaStream_t stream;
    cudaEvent_t ready, done; /* their inputs are ready; the sums are done */
    bool in_flight;
    const char *begin, *end; /* inputs, not to be written before `done` */
    struct cuda_room parts;
};

enum { CUDA_MARKS = 64, CUDA_NO_GPU = -1 };

struct cuda {
    struct cuda *next; /* of the context cache */
    int gpu;           /* CUDA_NO_GPU: the machine has no GPU, and this context only counts */
    int number;        /* unique on this machine, whatever GPUs a process is shown */
    cudaStream_t stream;
    cudaMemPool_t pool;
    struct cuda_pinned_copy pinned;
    struct cuda_device_flags *flags;
    cudaEvent_t
        marks[CUDA_MARKS]; /* mark n is marks[n % CUDA_MARKS]; a later mark waits for more */
    uint64_t marked;
    struct cuda_room windows; /* windows gathered for a convolution */
    struct cuda_room logits;
    struct cuda_side_stream side;
    struct cublaslt *cublaslt; /* cublaslt.h; NULL before the first product */
    char about[320];
};

static inline struct cuda *cuda_of(const struct device *dev)
{
    return (struct cuda *)(void *)(uintptr_t)dev->impl;
}

/* Returns the stream for an op that may run in parallel with sums in flight. Sets CUDA's current
 * device, which belongs to the thread: any thread may issue. */
static inline stream_t cuda_stream_unordered(struct device *dev)
{
    struct cuda *c = cuda_of(dev);
    (void)cudaSetDevice(c->gpu);
    return c->stream;
}

/* Returns the stream for all other ops, after the sums in flight. */
static inline stream_t cuda_stream(struct device *dev)
{
    stream_t s = cuda_stream_unordered(dev);
    struct cuda_side_stream *a = &cuda_of(dev)->side;
    if (a->in_flight)
        (void)cudaStreamWaitEvent(s, a->done, 0);
    a->in_flight = false;
    return s;
}

/* Keeps the failure of a call of CUDA or of a launch; `what` completes "the GPU cannot". */
void cuda_check(struct device *dev, int error, const char *what);

static inline struct vec cuda_vec(struct view v)
{
    assert(!v.data || v.place == PLACE_DEVICE);
    return (struct vec){v.data, v.type == DTYPE_BF16};
}

/* True if the device only counts (ops->takes): ops then account for scratch and launch nothing. */
static inline bool cuda_counts(const struct device *dev)
{
    return !dev->ops->alloc;
}

/* Returns at least `bytes` of a room; its contents may be lost. NULL, with a kept failure, if
 * there is too little memory; NULL on a device that counts. */
void *cuda_grow(struct device *dev, struct cuda_room *room, size_t bytes);
void cuda_drop(struct device *dev, struct cuda_room *room);

/* context_cache.c: contexts of this process that are not open. Making a context takes
 * milliseconds, most of which stop all other contexts, and each worker and lane of a run opens a
 * context. Cached contexts keep their stream, events, pinned pages and choices of kernels, and
 * no GPU memory. */
struct cuda *context_cache_take(int gpu); /* NULL: no cached context of that GPU */
void context_cache_put(struct cuda *c);

/* memory.c */
void *cuda_alloc(struct device *dev, size_t bytes);
void cuda_release(struct device *dev, void *memory, size_t bytes);
void cuda_write(struct device *dev, struct view to, const void *host, size_t count);
void cuda_read(struct device *dev, void *host, struct view from, size_t count);
void cuda_left(struct device *dev, size_t *left, size_t *all);
void cuda_pinned_unaccount(struct device *dev); /* takes the pages out of the account */
void cuda_pinned_close(struct cuda_pinned_copy *f);

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

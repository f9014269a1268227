/* Shared by the ops of the cpu table: how work is cut into blocks, widened and given to threads.
 *
 * Results do not depend on dev->threads: block sizes follow from the shape alone, one thread
 * computes a block, and partial sums are added in the order of their blocks. */
#ifndef SOTTO_TENSOR_CPU_CPU_H
#define SOTTO_TENSOR_CPU_CPU_H

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tensor/carve.h"
#include "tensor/cpu/simd/kernels.h"
#include "tensor/ops.h"

#define CHUNK 2048 /* elements of a flat block: a few operands stay in the first cache */

static inline const struct kernels *kernels_of(const struct device *dev)
{
    return dev->impl;
}

/* True if the device only counts the scratch of ops (ops->takes) and has no memory. */
static inline bool cpu_counts(const struct device *dev)
{
    return !dev->ops->alloc;
}

/* Returns the kernels of matrix products; `half`: operands may be rounded to bf16. */
static inline const struct gemm_kernels *gemm_of(const struct device *dev, bool half)
{
    return half ? kernels_of(dev)->gemm_half : kernels_of(dev)->gemm;
}

/* Chooses the kernels of one instruction set for an open device; cpu_open chooses the best. */
enum sotto_status cpu_select(struct device *dev, const char *variant);

/* Returns the threads for `work` element operations: all or one, since changing the size of an
 * OpenMP team costs more than a smaller team saves. */
static inline int team_size(const struct device *dev, size_t work)
{
    return work < 32768 ? 1 : dev->threads;
}

/* Returns the number of threads up to which products share packed columns. Writing a cache line
 * waits for all cores that hold the line, so more threads than this pack for themselves. With
 * more than MANY_THREADS, data for other threads are written past the caches (send_floats). */
static inline int few_threads(const struct device *dev)
{
    return kernels_of(dev)->few;
}

static inline int thread_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Returns the number of threads of the current OpenMP team. */
static inline int thread_count(void)
{
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

static inline size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static inline int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

/* Returns how many of `n` chunks a thread takes at once: one turn a thread for one or two
 * threads, 8 turns for more, since some of many threads are slower. */
static inline size_t chunks_per_turn(size_t n, int threads)
{
    const size_t turns = (size_t)threads * (threads > 2 ? 8 : 1);
    return n > turns ? (n + turns - 1) / turns : 1;
}

/* Returns the floats of a packed strip of `width` rows or columns, `k` deep. */
static inline size_t strip_size(const struct gemm_kernels *f, int width, int k)
{
    return (size_t)width * round_up((size_t)k, (size_t)f->depth) * (size_t)f->halves / 2;
}

/* Returns an op's scratch for pieces of floats[i] floats each, taken in any order (cpu_take).
 * Its data are NULL if there is too little memory. */
static inline struct room cpu_room(struct device *dev, const size_t *floats, int pieces)
{
    struct room room = {0};
    for (int i = 0; i < pieces; i++)
        room.size += carve_bytes(floats[i], DTYPE_F32);
    room.data = device_scratch(dev, room.size);
    return room;
}

static inline float *cpu_take(struct room *room, size_t floats)
{
    return carve_piece(room, floats, DTYPE_F32).data;
}

/* True if the view is present and its elements are bf16. */
static inline bool is_half(struct view v)
{
    return v.data && v.type == DTYPE_BF16;
}

/* Returns elements [at, at + n) of x as fp32: in place, or widened into `room`; NULL for an
 * absent view. */
static inline float *load_floats(const struct kernels *k, struct view x, size_t at, size_t n,
                                 float *room)
{
    if (!x.data)
        return NULL;
    if (x.type == DTYPE_F32)
        return (float *)x.data + at;
    k->vector->widen(room, (const uint16_t *)x.data + at, n);
    return room;
}

/* Returns where to compute elements of y from `at` on, without reading them: in place, or
 * `room`. store_floats ends the computation. */
static inline float *place_floats(struct view y, size_t at, float *room)
{
    if (!y.data)
        return NULL;
    return y.type == DTYPE_F32 ? (float *)y.data + at : room;
}

/* Stores `values` from load_floats or place_floats in y: rounded, or copied unless they are in
 * place. */
static inline void store_floats(const struct kernels *k, struct view y, size_t at, size_t n,
                                const float *values)
{
    if (y.data && y.type == DTYPE_BF16)
        k->vector->narrow((uint16_t *)y.data + at, values, n);
    else if (y.data && (float *)y.data + at != values)
        memcpy((float *)y.data + at, values, n * sizeof *values);
}

/* True if data that other threads will read are written past the caches. place_to_send and
 * send_floats then replace place_floats and store_floats, and finish_sending ends a thread's
 * part. */
static inline bool sends_past_caches(const struct kernels *k)
{
    return k->vector->send && thread_count() > MANY_THREADS;
}

static inline float *place_to_send(const struct kernels *k, struct view y, size_t at, float *room)
{
    return sends_past_caches(k) ? room : place_floats(y, at, room);
}

static inline void send_floats(const struct kernels *k, struct view y, size_t at, size_t n,
                               const float *values)
{
    if (y.data && y.type == DTYPE_F32 && (float *)y.data + at != values && sends_past_caches(k))
        k->vector->send((float *)y.data + at, values, n);
    else
        store_floats(k, y, at, n, values);
}

static inline void finish_sending(const struct kernels *k)
{
    if (k->vector->sent)
        k->vector->sent();
}

/* host.c: host memory, for the cpu and the reference table */
void *host_alloc(struct device *dev, size_t bytes);
void host_release(struct device *dev, void *memory, size_t bytes);
void host_write(struct device *dev, struct view to, const void *host, size_t count);
void host_read(struct device *dev, void *host, struct view from, size_t count);

/* The ops of the table: cpu_fill, cpu_copy, ... */
#define OP(op, ...) void cpu_##op(OP_PARAMETERS(__VA_ARGS__));
#include "tensor/op_list.h"
double cpu_sum_squares(struct device *dev, const struct vector_pair *p, int n, double *each);

#endif

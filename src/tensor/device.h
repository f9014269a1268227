/* A device context: the op table that computes, the account that pays for memory, and scratch.
 *
 * A context belongs to one sequence of work (a worker's computation, a lane). Its ops are issued
 * from one thread at a time, run in the order they were issued, and may use up to `threads` cores.
 * Contexts share nothing but the memory account.
 *
 * Ops may return before they are done. Before the host reads their results, the caller waits
 * (device_check; an op that returns numbers to the host waits by itself). Before another context
 * uses their results, that context follows a mark (device_mark, device_follow). */
#ifndef SOTTO_TENSOR_DEVICE_H
#define SOTTO_TENSOR_DEVICE_H

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/memory.h"

struct ops;

struct device {
    const struct ops *ops;
    struct memory *memory; /* not owned */
    int threads;           /* cores that one op may use, >= 1 */
    void *scratch;         /* of device_scratch */
    size_t scratch_bytes;
    void *staging; /* of device_staging */
    size_t staging_bytes;
    void *relay; /* of device_relay */
    size_t relay_bytes;
    void *room; /* of device_room */
    size_t room_bytes;
    struct status_note failure; /* of the first op that failed */
    const void *impl;           /* the table's own state: kernels of this machine, streams, ... */
};

/* Help of an option that names a device. */
#define DEVICE_HELP                                                                                \
    "where to compute: cpu; cpu:v4, cpu:v3, cpu:baseline (aarch64: cpu:bf16): with kernels of a "  \
    "lesser machine, for the same bits on several; cuda: a GPU; auto: a GPU where there is one; "  \
    "reference: slow, in double precision"

/* Opens a context. `name` is an op table: "cpu", "cuda" (a GPU, in builds with CUDA), "auto" (cuda
 * if there is a GPU, else cpu), "reference", "null" (no arithmetic; buffers are accounted and hold
 * nothing), or in builds with tests "apart" (the separate-memory device, tests/device). "cpu:v4" is
 * the cpu with other kernels than it would choose. `threads` 0: all cores of this process. Fails
 * with SOTTO_EINVAL if this build or machine has no such device. */
enum sotto_status device_open(struct device *dev, const char *name, struct memory *memory,
                              int threads);
/* Opens a null device that accounts for the scratch of the ops of `name` that need most
 * (ops->takes). Its views have the place of that device's views. */
enum sotto_status device_open_counting(struct device *dev, const char *name, struct memory *memory,
                                       int threads);
void device_close(struct device *dev);
/* Returns where the memory of a device of that name is, also if this machine lacks the device; the
 * host for an unknown name. */
enum place device_place(const char *name);

/* True if `name` is a GPU, and this build or this machine has none. A run on an absent device can
 * be planned (device_open_counting) but not started. */
bool device_absent(const char *name);
/* Opens an absent device: ops->takes counts scratch, and device_close is the only other call
 * allowed. A build without the device's table counts no scratch. */
enum sotto_status device_open_absent(struct device *dev, const char *name, struct memory *memory);

enum { MANY_THREADS = 8 }; /* with more, a processor waits for memory rather than arithmetic */

/* True if layers on a device of that name, with `threads`, should keep results rather than compute
 * them again: where arithmetic waits for memory, as on a GPU. */
bool device_keeps(const char *name, int threads);

/* Returns the kernels or GPU in use, for reports: "v4" (x86-64-v4 kernels), ... */
const char *device_describe(const struct device *dev);

/* Returns the table of a name such as "auto" or "cpu:v4" ("cpu"); NULL: none in this build. */
const char *device_named(const char *name);

/* Writes the kernels that a device of that name may choose from on this machine, best first: "v4 v3
 * baseline". Writes "" if the name has its kernels, or the device has no choice. */
enum { DEVICE_KERNELS_ROOM = 64 };
void device_kernels(const char *name, char text[DEVICE_KERNELS_ROOM]);

/* Describes the GPUs of this machine in `text`. Returns their number, including GPUs too old to be
 * used; -1 in a build without CUDA. */
int device_gpus(char *text, size_t room);

/* Ops return no status: a context keeps the first failure, so that a layer reads as its formula.
 * device_failed returns the failure so far, without waiting for ops in flight. device_check first
 * waits until all issued ops are done. */
enum sotto_status device_failed(struct device *dev);
enum sotto_status device_check(struct device *dev);
/* Keeps the failure of an op, unless an earlier op has failed. */
void device_fail(struct device *dev, enum sotto_status code);

/* A point after all ops that were issued to `dev` so far. */
struct device_mark {
    struct device *dev; /* NULL: nothing to wait for */
    uint64_t at;
};
struct device_mark device_mark(struct device *dev);
/* Makes all later ops of `dev` run after the mark, also if the mark's context is closed by then.
 * Neither call waits. */
void device_follow(struct device *dev, struct device_mark mark);

/* Returns at least `bytes` of scratch, 64-byte aligned, valid until the next op or device_scratch
 * call. Grows when needed, so never after the first step. Returns NULL, and keeps a failure, if
 * there is too little memory. */
void *device_scratch(struct device *dev, size_t bytes);

/* Makes dev->room at least `bytes`, 64-byte aligned: scratch of a layer that calls several ops,
 * which ops do not use. Layers share the room, as one computes at a time. Called before the first
 * step; the contents may be lost. */
enum sotto_status device_room(struct device *dev, size_t bytes);

/* Returns at least `bytes` of host memory through which data pass between the device and elsewhere,
 * valid until the next call; NULL if there is too little memory. Grows as scratch does; accounted
 * as communication. */
void *device_staging(struct device *dev, size_t bytes);

/* Makes dev->relay at least `bytes`, 64-byte aligned: device memory through which data pass between
 * devices. As device_room, but accounted as communication. */
enum sotto_status device_relay(struct device *dev, size_t bytes);

/* Zeroed memory for ops, accounted under a category. */
struct buffer {
    struct view view; /* on a null device data is NULL */
    size_t count;     /* elements */
    enum memory_category category;
    struct device *dev; /* not owned; NULL: the buffer is empty */
};

enum sotto_status buffer_init(struct buffer *buffer, struct device *dev, enum dtype type,
                              size_t count, enum memory_category category);
void buffer_free(struct buffer *buffer);

#endif

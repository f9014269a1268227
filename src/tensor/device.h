/* A device context: the op table that computes, the account that pays for memory, and scratch.
 *
 * One context belongs to one line of work (a worker's compute, a lane): its ops are issued from one
 * thread at a time, run in the order they were issued and may use up to `threads` cores. Nothing
 * here is shared between contexts but the memory account.
 *
 * Ops may return before they are done. Who reads on the host what they write waits first
 * (device_check; an op that hands something to the host waits itself), and work that another
 * context is to go on with is left behind a mark, which that one follows. */
#ifndef SOTTO_TENSOR_DEVICE_H
#define SOTTO_TENSOR_DEVICE_H

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/memory.h"

struct ops;

struct device {
    const struct ops *ops;
    struct memory *memory; /* not owned */
    int threads;           /* cores one op may use, >= 1 */
    void *scratch;         /* device_scratch */
    size_t scratch_bytes;
    void *staging; /* device_staging */
    size_t staging_bytes;
    void *relay; /* device_relay */
    size_t relay_bytes;
    void *room; /* device_room */
    size_t room_bytes;
    struct status_note failure; /* the first op that failed */
    const void *impl;           /* the table's own: kernels chosen for this machine, streams, ... */
};

/* `name` picks the op table: "cpu", "cuda" (a GPU, in builds with CUDA), "auto" (cuda where there
 * is a GPU, else cpu), "reference", "null" (no arithmetic, and buffers that are accounted but hold
 * nothing) or "apart" (the cpu's arithmetic behind what a GPU asks for). "cpu:v4" is one with other
 * kernels than it would choose. `threads` 0: all cores of this process. DEVICE_HELP is the help of
 * an option that names one. */
#define DEVICE_HELP                                                                                 \
    "cpu; cpu:v4, cpu:v3, cpu:baseline (aarch64: cpu:bf16): with kernels of a lesser machine, for " \
    "the same bits on several; cuda: a GPU; auto: a GPU where there is one; reference: slow, in "   \
    "double precision; "                                                                            \
    "apart: the cpu's bits the way a GPU would compute them, for tests of sotto itself"
enum sotto_status device_open(struct device *dev, const char *name, struct memory *memory,
                              int threads);
/* A null device, of which the scratch is accounted, too, that the largest ops of `name` would take
 * (ops->takes); its views are of the same place as theirs. */
enum sotto_status device_open_counting(struct device *dev, const char *name, struct memory *memory,
                                       int threads);
void device_close(struct device *dev);
/* Returns where the memory of a device of that name is, on this machine or another; the host's for
 * an unknown name. */
enum place device_place(const char *name);

/* True if `name` is a GPU, and this build or this machine has none: such a run can be planned
 * (device_open_counting), not started. */
bool device_absent(const char *name);
/* Opens an absent device: its ops->takes count scratch; nothing else may be called but
 * device_close. A build without the device's table counts no scratch. */
enum sotto_status device_open_absent(struct device *dev, const char *name, struct memory *memory);

enum { MANY_THREADS = 8 }; /* more of a processor wait for memory rather than for arithmetic */

/* Whether a device of that name, with so many threads, better keeps what it could compute again:
 * where arithmetic waits for memory, as on a GPU. */
bool device_keeps(const char *name, int threads);

/* What computes, for people: "v4" (x86-64-v4 kernels), ... */
const char *device_describe(const struct device *dev);

/* The device that a name such as "auto" or "cpu:v4" stands for, "cpu"; NULL: there is none. */
const char *device_named(const char *name);

/* The kernels that this machine has for it to choose from, "v4 v3 baseline", best first; empty
 * where the name says, or there is no choice. */
enum { DEVICE_KERNELS_ROOM = 64 };
void device_kernels(const char *name, char text[DEVICE_KERNELS_ROOM]);

/* The GPUs of this machine, for people: how many, none of which may be good enough; -1: not in this
 * build. */
int device_gpus(char *text, size_t room);

/* Ops do not return a status: a failure is kept and raised later, so that a layer reads as its
 * formula. device_failed does not wait, so what is still under way may fail yet; device_check waits
 * until everything that was issued is done. */
enum sotto_status device_failed(struct device *dev);
enum sotto_status device_check(struct device *dev);
/* Keeps the failure of an op, unless there was one before. */
void device_fail(struct device *dev, enum sotto_status code);

/* All that was issued to a context so far. A context that follows a mark runs nothing that is
 * issued later before all of that is done, also when the other one is closed by then; neither call
 * waits. */
struct device_mark {
    struct device *dev; /* NULL: nothing to wait for */
    uint64_t at;
};
struct device_mark device_mark(struct device *dev);
void device_follow(struct device *dev, struct device_mark mark);

/* At least `bytes` of scratch, 64-byte aligned, valid until the next op or device_scratch call.
 * Grows when needed, which after the first step it never is; NULL (and a kept failure) without
 * memory. */
void *device_scratch(struct device *dev, size_t bytes);

/* Makes sure of `bytes` at dev->room, 64-byte aligned: scratch of whoever computes with several ops
 * (a layer), which ops leave alone. One for all that is computed on this line of work, as it is
 * done one at a time; asked for before the first step. What was there may be lost. */
enum sotto_status device_room(struct device *dev, size_t bytes);

/* At least `bytes` of host memory that data pass through between the device and elsewhere, valid
 * until the next call; it grows as scratch does, and NULL is without memory. It is paid for as
 * communication's. */
void *device_staging(struct device *dev, size_t bytes);

/* Makes sure of `bytes` at dev->relay, 64-byte aligned: the device's own memory that data pass
 * through on their way between devices. As device_room; it is paid for as communication's. */
enum sotto_status device_relay(struct device *dev, size_t bytes);

/* Memory that ops can work on, zeroed, tagged with what it is for. `dev` tells whether there is
 * one; the data of a null device's are NULL. */
struct buffer {
    struct view view;
    size_t count; /* elements */
    enum memory_category category;
    struct device *dev; /* not owned; NULL: empty */
};

enum sotto_status buffer_init(struct buffer *buffer, struct device *dev, enum dtype type,
                              size_t count, enum memory_category category);
void buffer_free(struct buffer *buffer);

#endif

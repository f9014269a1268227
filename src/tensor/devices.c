/* Device contexts: opening one of a table, its failures and marks, scratch and buffers. */
#include "tensor/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cores.h"
#include "tensor/carve.h"
#include "tensor/cuda/gpus.h"
#include "tensor/null/counting.h"
#include "tensor/ops.h"

static const struct ops *const tables[] = {&ops_cpu, &ops_reference, &ops_null, &ops_apart,
#ifdef SOTTO_WITH_CUDA
                                           &ops_cuda
#endif
};

int device_gpus(char *text, size_t room)
{
#ifdef SOTTO_WITH_CUDA
    const int n = gpus_count();
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < n && used < room; i++) {
        char gpu[256];
        if (gpus_describe(i, gpu, sizeof gpu))
            used += (size_t)snprintf(text + used, room - used, "%sGPU %d: %s", used ? "; " : "", i,
                                     gpu);
    }
    return n;
#else
    (void)text, (void)room;
    return -1;
#endif
}

/* A GPU where there is one. */
static const char *best_device(void)
{
#ifdef SOTTO_WITH_CUDA
    if (gpus_usable())
        return "cuda";
#endif
    return "cpu";
}

/* "cpu:v4" begins with "cpu". */
static bool begins(const char *name, const char *device)
{
    return strcspn(name, ":") == strlen(device) && strncmp(name, device, strlen(device)) == 0;
}

static enum sotto_status no_device(const char *name)
{
#ifdef SOTTO_WITH_CUDA
    return fail(SOTTO_EINVAL, "no device '%s': this build has cpu, cuda, auto, reference and apart",
                name);
#else
    if (begins(name, "cuda"))
        return fail(SOTTO_EINVAL, "no device 'cuda' in this build: build it where CUDA's compiler, "
                                  "nvcc, is installed; " GPUS_NONE_HELP);
    return fail(SOTTO_EINVAL, "no device '%s': this build has cpu, auto, reference and apart",
                name);
#endif
}

/* `kernels` NULL: those that it chooses. */
static enum sotto_status open_table(struct device *dev, const char *kernels)
{
    const bool number = kernels && *kernels && !kernels[strspn(kernels, "0123456789")];
    if (number && begins(dev->ops->name, "cuda"))
        return fail(SOTTO_EINVAL,
                    "device '%s:%s': which GPU to compute on is the environment's to say: "
                    "CUDA_VISIBLE_DEVICES=%s sotto ... with --device=%s",
                    dev->ops->name, kernels, kernels, dev->ops->name);
    if (kernels && !dev->ops->select)
        return fail(SOTTO_EINVAL, "device '%s' has no kernels to choose from, got '%s'",
                    dev->ops->name, kernels);
    if (dev->ops->open)
        TRY(dev->ops->open(dev));
    return kernels ? dev->ops->select(dev, kernels) : SOTTO_OK;
}

/* The table that a device's name begins with; NULL: none. */
static const struct ops *table_of(const char *name)
{
    if (begins(name, "auto"))
        name = best_device();
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (begins(name, tables[i]->name))
            return tables[i];
    return NULL;
}

enum place device_place(const char *name)
{
    const struct ops *ops = table_of(name);
    return ops ? ops->place : begins(name, "cuda") ? PLACE_DEVICE : PLACE_HOST;
}

const char *device_named(const char *name)
{
    const struct ops *ops = table_of(name);
    return ops ? ops->name : NULL;
}

void device_kernels(const char *name, char text[DEVICE_KERNELS_ROOM])
{
    const struct ops *ops = table_of(name);
    *text = '\0';
    if (ops && ops->kernels && !strchr(name, ':'))
        ops->kernels(text);
}

bool device_absent(const char *name)
{
    if (strcmp(name, "cuda") != 0)
        return false;
#ifdef SOTTO_WITH_CUDA
    return gpus_count() == 0;
#else
    return true;
#endif
}

bool device_keeps(const char *name, int threads)
{
    const struct ops *ops = table_of(name);
    return device_place(name) == PLACE_DEVICE || (ops && ops->own_caches && threads > MANY_THREADS);
}

enum sotto_status device_open(struct device *dev, const char *name, struct memory *memory,
                              int threads)
{
    const char *colon = strchr(name, ':');
    *dev = (struct device){.memory = memory, .threads = threads, .ops = table_of(name)};
    if (threads <= 0)
        dev->threads = cores_allowed("");
    return dev->ops ? open_table(dev, colon ? colon + 1 : NULL) : no_device(name);
}

enum sotto_status device_open_absent(struct device *dev, const char *name, struct memory *memory)
{
    const struct ops *ops = table_of(name);
    *dev = (struct device){.memory = memory, .threads = 1, .ops = ops ? ops : &ops_null};
    return ops && ops->open_absent ? ops->open_absent(dev) : SOTTO_OK;
}

/* Opens the device whose ops are counted: the device `name`, or the device that computes for it. */
static enum sotto_status open_counted(struct device *like, const char *name, struct memory *memory,
                                      int threads, bool *own_caches)
{
    if (device_absent(name))
        return device_open_absent(like, name, memory);
    TRY(device_open(like, name, memory, threads));
    *own_caches = like->ops->own_caches;
    const char *computed_by = like->ops->computed_by;
    if (!computed_by)
        return SOTTO_OK;
    device_close(like);
    return device_open(like, computed_by, memory, threads);
}

enum sotto_status device_open_counting(struct device *dev, const char *name, struct memory *memory,
                                       int threads)
{
    struct counting *c = calloc(1, sizeof *c);
    if (!c)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    bool own_caches = false;
    const enum sotto_status st = open_counted(&c->like, name, &c->unused, threads, &own_caches);
    if (st != SOTTO_OK) {
        free(c);
        return st;
    }
    const bool absent = device_absent(name);
    counting_open(dev, c, memory, threads, absent ? device_place(name) : c->like.ops->place);
    c->table.own_caches = own_caches;
    return SOTTO_OK;
}

/* False: none left. */
static bool take(struct device *dev, size_t bytes, void **out)
{
    *out = dev->ops->alloc ? dev->ops->alloc(dev, bytes ? bytes : 1) : NULL;
    return *out || !dev->ops->alloc;
}

static void give(struct device *dev, void *memory, size_t bytes)
{
    if (dev->ops->release)
        dev->ops->release(dev, memory, bytes ? bytes : 1);
}

/* What a device with memory of its own has none left for, and who has it. */
static enum sotto_status no_memory(struct device *dev, size_t bytes, const char *what)
{
    char account[400] = "";
    size_t left, all, used = 0;
    if (!dev->ops->left)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of %s", bytes, what);
    dev->ops->left(dev, &left, &all);
    for (int c = 0; c < MEMORY_CATEGORIES && used < sizeof account; c++) {
        const size_t now = atomic_load(&dev->memory->now[c]);
        if (now >= 50000)
            used += (size_t)snprintf(account + used, sizeof account - used, "%s%s %.1f",
                                     used ? ", " : "", memory_category_name(c), (double)now / 1e6);
    }
    return fail(SOTTO_ENOMEM,
                "no memory on '%s' for %.1f MB of %s: %.1f of %.1f MB are free, this worker has "
                "%.1f (%s)",
                dev->ops->name, (double)bytes / 1e6, what, (double)left / 1e6, (double)all / 1e6,
                (double)atomic_load(&dev->memory->total) / 1e6, used ? account : "next to nothing");
}

static void drop(struct device *dev, void **room, size_t *bytes, enum memory_category category)
{
    if (!*bytes)
        return;
    give(dev, *room, *bytes);
    memory_remove(dev->memory, category, *bytes);
    *room = NULL;
    *bytes = 0;
}

static enum sotto_status grow(struct device *dev, void **room, size_t *bytes,
                              enum memory_category category, size_t need)
{
    if (need <= *bytes)
        return SOTTO_OK;
    drop(dev, room, bytes, category);
    if (!take(dev, need, room))
        return no_memory(dev, need, memory_category_name(category));
    *bytes = need;
    memory_add(dev->memory, category, need);
    return SOTTO_OK;
}

void device_close(struct device *dev)
{
    if (dev->scratch_bytes) {
        give(dev, dev->scratch, dev->scratch_bytes);
        memory_remove(dev->memory, MEMORY_SCRATCH, dev->scratch_bytes);
    }
    drop(dev, &dev->room, &dev->room_bytes, MEMORY_SCRATCH);
    drop(dev, &dev->relay, &dev->relay_bytes, MEMORY_COMMUNICATION);
    memory_give(dev->memory, MEMORY_COMMUNICATION, dev->staging, dev->staging_bytes);
    if (dev->ops && dev->ops->close)
        dev->ops->close(dev);
    *dev = (struct device){0};
}

const char *device_describe(const struct device *dev)
{
    return dev->ops->describe ? dev->ops->describe(dev) : dev->ops->name;
}

enum sotto_status device_failed(struct device *dev)
{
    return status_raise(&dev->failure);
}

enum sotto_status device_check(struct device *dev)
{
    if (dev->ops->sync)
        dev->ops->sync(dev);
    return device_failed(dev);
}

struct device_mark device_mark(struct device *dev)
{
    if (!dev || !dev->ops->mark)
        return (struct device_mark){0};
    return (struct device_mark){dev, dev->ops->mark(dev)};
}

void device_follow(struct device *dev, struct device_mark mark)
{
    if (mark.dev && mark.dev != dev)
        dev->ops->follow(dev, mark);
}

void device_fail(struct device *dev, enum sotto_status code)
{
    if (dev->failure.code == SOTTO_OK)
        status_save(&dev->failure, code);
}

void tiles_damaged(struct device *dev, const struct tiles *t, uint32_t index)
{
    device_fail(dev, fail(SOTTO_EFORMAT,
                          "what came names coefficient %u of a tile of %d x %d: another worker's "
                          "message is damaged",
                          index, t->h, t->w));
}

void *device_scratch(struct device *dev, size_t bytes)
{
    if (bytes <= dev->scratch_bytes) {
        carve_limit((struct view){dev->scratch, DTYPE_U8, dev->ops->place}, bytes,
                    dev->scratch_bytes);
        return dev->scratch;
    }
    void *more;
    if (!take(dev, bytes, &more)) {
        device_fail(dev, no_memory(dev, bytes, "scratch"));
        return NULL;
    }
    if (dev->scratch_bytes) {
        give(dev, dev->scratch, dev->scratch_bytes);
        memory_remove(dev->memory, MEMORY_SCRATCH, dev->scratch_bytes);
    }
    memory_add(dev->memory, MEMORY_SCRATCH, bytes);
    dev->scratch = more;
    dev->scratch_bytes = bytes;
    return more;
}

enum sotto_status device_room(struct device *dev, size_t bytes)
{
    return grow(dev, &dev->room, &dev->room_bytes, MEMORY_SCRATCH, bytes);
}

enum sotto_status device_relay(struct device *dev, size_t bytes)
{
    return grow(dev, &dev->relay, &dev->relay_bytes, MEMORY_COMMUNICATION, bytes);
}

void *device_staging(struct device *dev, size_t bytes)
{
    if (bytes <= dev->staging_bytes)
        return dev->staging;
    memory_give(dev->memory, MEMORY_COMMUNICATION, dev->staging, dev->staging_bytes);
    dev->staging = memory_resize(dev->memory, MEMORY_COMMUNICATION, NULL, 0, bytes);
    dev->staging_bytes = dev->staging ? bytes : 0;
    return dev->staging;
}

enum sotto_status buffer_init(struct buffer *buffer, struct device *dev, enum dtype type,
                              size_t count, enum memory_category category)
{
    size_t bytes = count * dtype_size(type);
    *buffer = (struct buffer){
        .view = {.type = type, .place = dev->ops->place}, .count = count, .category = category};
    if (count > SIZE_MAX / 8 || !take(dev, bytes, &buffer->view.data))
        return no_memory(dev, bytes, memory_category_name(category));
    buffer->dev = dev;
    memory_add(dev->memory, category, bytes);
    return SOTTO_OK;
}

void buffer_free(struct buffer *buffer)
{
    if (!buffer->dev)
        return;
    size_t bytes = buffer->count * dtype_size(buffer->view.type);
    give(buffer->dev, buffer->view.data, bytes);
    memory_remove(buffer->dev->memory, buffer->category, bytes);
    *buffer = (struct buffer){0};
}

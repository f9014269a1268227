/* Devices by name: the op tables of this build, and opening a context of one. Open contexts are in
 * context.c. */
#include "tensor/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine/cores.h"
#include "tensor/cuda/gpus.h"
#include "tensor/null/counting.h"
#include "tensor/ops.h"

static const struct ops *const tables[] = {
    &ops_cpu,      &ops_reference, &ops_null,
#ifdef SOTTO_WITH_CUDA
    &ops_cuda,
#endif
#ifdef SOTTO_WITH_SEPARATE
    &ops_separate,
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

/* Returns the device that "auto" stands for. */
static const char *best_device(void)
{
#ifdef SOTTO_WITH_CUDA
    if (gpus_usable())
        return "cuda";
#endif
    return "cpu";
}

/* True if `name` is `device` or `device` with kernels: "cpu:v4" names the device "cpu". */
static bool names_device(const char *name, const char *device)
{
    return strcspn(name, ":") == strlen(device) && strncmp(name, device, strlen(device)) == 0;
}

static enum sotto_status refuse_device(const char *name)
{
    if (names_device(name, "apart"))
        return fail(SOTTO_EINVAL, "no device 'apart' in this build: the separate-memory device is "
                                  "for sotto's own tests, in builds with -DSOTTO_TESTS=ON");
    if (names_device(name, "cuda"))
        return fail(SOTTO_EINVAL, "no device 'cuda' in this build: build it where CUDA's compiler, "
                                  "nvcc, is installed; " GPUS_NONE_HELP);
#ifdef SOTTO_WITH_CUDA
    return fail(SOTTO_EINVAL, "no device '%s': this build has cpu, cuda, auto and reference", name);
#else
    return fail(SOTTO_EINVAL, "no device '%s': this build has cpu, auto and reference", name);
#endif
}

/* Opens dev->ops with the kernels of that name; NULL: with the kernels that the table chooses. */
static enum sotto_status open_ops(struct device *dev, const char *kernels)
{
    const bool number = kernels && *kernels && !kernels[strspn(kernels, "0123456789")];
    if (number && names_device(dev->ops->name, "cuda"))
        return fail(SOTTO_EINVAL,
                    "device '%s:%s': the environment chooses the GPU: "
                    "CUDA_VISIBLE_DEVICES=%s sotto ... with --device=%s",
                    dev->ops->name, kernels, kernels, dev->ops->name);
    if (kernels && !dev->ops->select)
        return fail(SOTTO_EINVAL, "device '%s' has no kernels to choose from, got '%s'",
                    dev->ops->name, kernels);
    if (dev->ops->open)
        TRY(dev->ops->open(dev));
    return kernels ? dev->ops->select(dev, kernels) : SOTTO_OK;
}

/* Returns the table of a device, without regard to the name's kernels; NULL: none in this build. */
static const struct ops *find_table(const char *name)
{
    if (names_device(name, "auto"))
        name = best_device();
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (names_device(name, tables[i]->name))
            return tables[i];
    return NULL;
}

enum place device_place(const char *name)
{
    const struct ops *ops = find_table(name);
    return ops ? ops->place : names_device(name, "cuda") ? PLACE_DEVICE : PLACE_HOST;
}

const char *device_named(const char *name)
{
    const struct ops *ops = find_table(name);
    return ops ? ops->name : NULL;
}

void device_kernels(const char *name, char text[DEVICE_KERNELS_ROOM])
{
    const struct ops *ops = find_table(name);
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
    const struct ops *ops = find_table(name);
    return device_place(name) == PLACE_DEVICE || (ops && ops->own_caches && threads > MANY_THREADS);
}

enum sotto_status device_open(struct device *dev, const char *name, struct memory *memory,
                              int threads)
{
    const char *colon = strchr(name, ':');
    *dev = (struct device){.memory = memory, .threads = threads, .ops = find_table(name)};
    if (threads <= 0)
        dev->threads = cores_allowed("");
    return dev->ops ? open_ops(dev, colon ? colon + 1 : NULL) : refuse_device(name);
}

enum sotto_status device_open_absent(struct device *dev, const char *name, struct memory *memory)
{
    const struct ops *ops = find_table(name);
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

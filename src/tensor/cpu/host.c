/* Host memory for the cpu and the reference table. Large blocks use huge pages: parameters and
 * logits are read end to end, where small pages cost a fifth of the bandwidth. */
#define _DEFAULT_SOURCE /* madvise */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tensor/cpu/cpu.h"

void *host_alloc(struct device *dev, size_t bytes)
{
    (void)dev;
    const size_t huge = (size_t)2 << 20;
    size_t align = bytes >= huge ? huge : 64;
    void *memory;
    if (posix_memalign(&memory, align, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align == huge)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memset(memory, 0, bytes);
}

void host_release(struct device *dev, void *memory, size_t bytes)
{
    (void)dev, (void)bytes;
    free(memory);
}

void host_write(struct device *dev, struct view to, const void *host, size_t count)
{
    (void)dev;
    memcpy(to.data, host, count * dtype_size(to.type));
}

void host_read(struct device *dev, void *host, struct view from, size_t count)
{
    (void)dev;
    memcpy(host, from.data, count * dtype_size(from.type));
}

/* How many micro-batches a worker computed each time it computed beside its lane. With these
 * numbers a run that depends on timing can be replayed to the bit.
 *
 * A file of them is one line a time, with a number for each worker. */
#ifndef SOTTO_STRATEGY_HISTORY_H
#define SOTTO_STRATEGY_HISTORY_H

#include <stdint.h>

#include "base/status.h"

struct history {
    int32_t *count; /* owned */
    int64_t n, room;
};

enum sotto_status history_add(struct history *h, int32_t count);

/* Column `rank` of a file that must have `size` of them. */
enum sotto_status history_read(struct history *h, const char *path, int rank, int size);

/* `all`: size times n numbers, worker after worker. */
enum sotto_status history_write(const char *path, const int32_t *all, int64_t n, int size);
void history_free(struct history *h);

#endif

/* How many micro-batches a worker computed each time it computed beside its lane. With these
 * numbers a run that depends on timing can be replayed to the bit.
 *
 * A file of them is one line a time, with a number for each worker: its n-th in the n-th line, so
 * that of groups without common rounds a line is no moment of time, and a worker that has fewer
 * than others has zeros in the end. */
#ifndef SOTTO_STRATEGY_HISTORY_H
#define SOTTO_STRATEGY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct history {
    int32_t *count; /* owned */
    int64_t n, room;
};

/* Room for so many, 0 where there are none yet. */
enum sotto_status history_reserve(struct history *h, int64_t room);
enum sotto_status history_add(struct history *h, int32_t count);

/* Column `rank` of a file that must have `size` of them; `apart`: workers may have fewer than
 * others. */
enum sotto_status history_read(struct history *h, const char *path, int rank, int size, bool apart);

/* `all`: size times n numbers, worker after worker. */
enum sotto_status history_write(const char *path, const int32_t *all, int64_t n, int size);
void history_free(struct history *h);

#endif

/* Micro-batches of each computation that a worker made while its lane was busy. With these counts a
 * run that depends on timing can be replayed to the bit.
 *
 * A file of counts has one line a computation, with a number for each worker: the n-th computation
 * of each worker is in the n-th line. Asynchronous groups make different numbers of computations;
 * workers with fewer have zeros at the end. */
#ifndef SOTTO_STRATEGY_HISTORY_H
#define SOTTO_STRATEGY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct history {
    int32_t *count; /* owned */
    int64_t n, room;
};

/* Makes room for `room` counts; new counts are 0. */
enum sotto_status history_reserve(struct history *h, int64_t room);
enum sotto_status history_add(struct history *h, int32_t count);

/* Reads column `rank` of a file with `size` columns; `uneven`: workers may have fewer counts than
 * others. */
enum sotto_status history_read(struct history *h, const char *path, int rank, int size,
                               bool uneven);

/* `all`: size times n numbers, worker after worker. */
enum sotto_status history_write(const char *path, const int32_t *all, int64_t n, int size);
void history_free(struct history *h);

#endif

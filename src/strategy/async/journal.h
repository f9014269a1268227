/* The journal of an asynchronous run: for each push the group, its data, and the number of pushes
 * in the x0 that the group had pulled. A run that applies pushes in the same order, and gives out
 * the same data after the same pushes, has the same bits.
 *
 * A journal's file has a line a push: group, steps, data shard, first step in it, version pulled.
 */
#ifndef SOTTO_STRATEGY_ASYNC_JOURNAL_H
#define SOTTO_STRATEGY_ASYNC_JOURNAL_H

#include "io/state.h"
#include "strategy/async/data_shards.h"

struct async_entry {
    int64_t group;
    struct async_span span;
    int64_t version; /* pushes in the x0 that the group had pulled */
};
enum { ASYNC_ENTRY = sizeof(struct async_entry) / sizeof(int64_t) };

struct async_journal {
    struct async_entry *entry; /* owned */
    int64_t n, room;
};

enum sotto_status journal_add(struct async_journal *j, struct async_entry entry);

/* Returns the first entry of a group from number `from` on; NULL if there is none. */
const struct async_entry *journal_next(const struct async_journal *j, int64_t from, int64_t group);

/* Reads the file of a run with `groups` groups. */
enum sotto_status journal_read(struct async_journal *j, const char *path, int groups);
enum sotto_status journal_write(const struct async_journal *j, const char *path);
enum sotto_status journal_visit(struct async_journal *j, struct state_visitor *v, int groups);
void journal_free(struct async_journal *j);

#endif

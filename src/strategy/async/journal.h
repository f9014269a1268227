/* The order of pushes, which is what makes the bits of an asynchronous run: who pushed, what of the
 * data that was, and how many pushes x0 had seen when it was pulled. A run that takes pushes in
 * this order, and gives out the same data behind the same pushes, has the same bits.
 *
 * A file of it is one line a push: group, steps, data shard, its first step, version pulled. */
#ifndef SOTTO_STRATEGY_ASYNC_JOURNAL_H
#define SOTTO_STRATEGY_ASYNC_JOURNAL_H

#include "io/state.h"
#include "strategy/async/data_shards.h"

struct async_entry {
    int64_t group;
    struct async_span span;
    int64_t version;
};
enum { ASYNC_ENTRY = sizeof(struct async_entry) / sizeof(int64_t) };

struct async_journal {
    struct async_entry *entry; /* owned */
    int64_t n, room;
};

enum sotto_status journal_add(struct async_journal *j, struct async_entry entry);

/* The first entry of a group from number `from` on; NULL: there is none. */
const struct async_entry *journal_next(const struct async_journal *j, int64_t from, int64_t group);

/* A file of pushes of so many groups. */
enum sotto_status journal_read(struct async_journal *j, const char *path, int groups);
enum sotto_status journal_write(const struct async_journal *j, const char *path);
enum sotto_status journal_visit(struct async_journal *j, struct state_visitor *v, int groups);
void journal_free(struct async_journal *j);

#endif

/* The state of all workers brought to rank 0, where a saver takes it as if it had been visited
 * there: slices of sharded state, and what is a worker's own. */
#ifndef SOTTO_TRAIN_RUN_GATHER_H
#define SOTTO_TRAIN_RUN_GATHER_H

#include "comm/comm.h"
#include "io/state.h"

typedef enum sotto_status state_owner(void *owner, struct state_visitor *v);

/* What a worker shows to a visitor, in host memory: the worker may go on. */
struct packed {
    char *data;
    size_t bytes, room;
    struct memory *memory; /* that pays for it */
};

/* `first`: this worker is of the first group, whose slices make the whole. Behind a failure it is
 * freed, too. */
enum sotto_status packed_make(struct packed *p, struct memory *memory, int rank, bool first,
                              state_owner *visit, void *owner);
enum sotto_status packed_send(struct comm *comm, const struct packed *p, int to);
enum sotto_status packed_receive(struct comm *comm, struct packed *p, struct memory *memory,
                                 int from);
/* It must live until the saver has written. */
enum sotto_status packed_show(const struct packed *p, struct state_visitor *saver);
void packed_free(struct packed *p);

/* What was received, which must live so long. */
struct gathered {
    struct packed *packed; /* (size), of each rank */
    int size;
};

/* Called by all workers; `saver` and `out` matter on rank 0. `memory`: this worker's account. */
enum sotto_status gather_state(struct comm *world, bool first, state_owner *visit, void *owner,
                               struct memory *memory, struct state_visitor *saver,
                               struct gathered *out);
void gathered_free(struct gathered *g);

/* Which state this worker shows when all workers visit and each thing must be shown once. */
void gather_share(struct state_visitor *v, int rank, bool first);

#endif

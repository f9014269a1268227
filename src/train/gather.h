/* The state of all workers brought to rank 0, where a saver takes it as if it had been visited
 * there: slices of sharded state, and what is a worker's own. */
#ifndef SOTTO_TRAIN_GATHER_H
#define SOTTO_TRAIN_GATHER_H

#include "comm/comm.h"
#include "io/state.h"

typedef enum sotto_status state_owner(void *owner, struct state_visitor *v);

/* What was received; it must live until the saver has written. */
struct gathered {
    char **parcel; /* (size), of each rank */
    size_t *bytes; /* (size)               */
    int size;
    struct memory *memory; /* that pays for them */
};

/* Called by all workers; `saver` and `out` matter on rank 0. `first`: this worker is of the first
 * group, whose slices make the whole. `memory`: this worker's account. */
enum sotto_status gather_state(struct comm *world, bool first, state_owner *visit, void *owner,
                               struct memory *memory, struct state_visitor *saver,
                               struct gathered *out);
void gathered_free(struct gathered *g);

/* Which state this worker shows when all workers visit and each thing must be shown once. */
void gather_share(struct state_visitor *v, int rank, bool first);

#endif

/* The state of all workers, brought to a saver on rank 0: slices of sharded state, and each
 * worker's own state. */
#ifndef SOTTO_TRAIN_RUN_GATHER_H
#define SOTTO_TRAIN_RUN_GATHER_H

#include "comm/comm.h"
#include "io/state.h"

typedef enum sotto_status state_owner(void *owner, struct state_visitor *v);

/* A copy of the state that a worker shows to a visitor, in host memory. */
struct packed {
    char *data;
    size_t bytes, room;
    struct memory *memory; /* account of the copy */
};

/* Packs the state that `visit` shows. `first`: this worker is of the first group, whose slices make
 * the whole. After a failure `p` is freed. */
enum sotto_status packed_make(struct packed *p, struct memory *memory, int rank, bool first,
                              state_owner *visit, void *owner);
enum sotto_status packed_send(struct comm *comm, const struct packed *p, int to);
enum sotto_status packed_receive(struct comm *comm, struct packed *p, struct memory *memory,
                                 int from);
/* Shows the state to a saver; `p` must live until the saver has written. */
enum sotto_status packed_show(const struct packed *p, struct state_visitor *saver);
void packed_free(struct packed *p);

/* The received state, which must live until the saver has written. */
struct gathered {
    struct packed *packed; /* (size), of each rank */
    int size;
};

/* Brings the state of all workers to `saver` on rank 0, which frees `out` after writing; called by
 * all workers. `memory`: this worker's account. */
enum sotto_status gather_state(struct comm *world, bool first, state_owner *visit, void *owner,
                               struct memory *memory, struct state_visitor *saver,
                               struct gathered *out);
void gathered_free(struct gathered *g);

/* Sets the state that a worker skips: all workers together then show each part once. */
void gather_share(struct state_visitor *v, int rank, bool first);

#endif

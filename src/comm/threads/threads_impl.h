/* What the files of the threads backend share. */
#ifndef SOTTO_COMM_THREADS_THREADS_IMPL_H
#define SOTTO_COMM_THREADS_THREADS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/threads/shaped.h"
#include "comm/threads/stall_warning.h"

/* What all communicators of a run share: whether it is still alive. */
struct threads_run {
    atomic_int users; /* groups, and who makes it */
    atomic_bool aborted;
    pthread_mutex_t lock;
    struct status_note note;      /* why it was aborted */
    struct threads_group *groups; /* all that wait for each other, under lock */
    bool spins;                   /* cores enough that a short wait may spin  */
    struct stall_watch stall;
    int *node;             /* (workers) */
    struct shaped *shaped; /* modelled links; NULL: as fast as memory */
};

/* What a rank brings to a call. */
struct threads_offer {
    enum comm_call call;
    struct view x, y;
    size_t count, unit;
    int root;
    double since;   /* when it came */
    bool on_device; /* its views are a device's, and there from `ready` on */
    struct device_mark ready;
};

struct threads_message {
    struct threads_message *next;
    struct threads_message *before, *after; /* in the receiver's inbox */
    int from;
    bool listed; /* there: its last byte has left */
    bool taken;  /* by who receives it, maybe before that */
    bool lent;   /* the data are the sender's own, who waits until they are copied: nothing of it
                  * is touched behind that */
    bool copied;
    int users; /* of its memory: who receives it and, while it leaves, who sent it */
    size_t bytes, room;
    double sent, ready; /* when it set out, when it arrives */
    double since;       /* lent: when its receiver began to wait for it */
    struct shaped_message shaped;
    void *data;
};

/* From one rank to another. */
struct threads_box {
    struct threads_message *first, **last;
};

/* To one rank: messages of all others that have left, by when they arrive and then by rank. Those
 * of one rank are in the order of their box. */
struct threads_inbox {
    struct threads_message *first, *last;
};

struct threads_group {
    struct threads_run *run;
    struct threads_group *next; /* of the world's */
    int size;
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    atomic_uint_least64_t arrivals; /* ranks, to all meetings: `size` more for each */
    atomic_int asleep;              /* ranks that wait for the last one to come     */
    atomic_uint_least64_t *visits;  /* (size) each rank's, to meetings */
    int *world_rank;                /* (size) */
    struct threads_offer *offer;    /* (size) */
    struct device_mark *done;       /* (size): of calls that stay on a device */
    struct threads_box *box;        /* (size, size): from, to */
    struct threads_inbox *inbox;    /* (size) */
    struct threads_message *idle;   /* memory for the next messages */
    bool *ended;                    /* (size): sends no more; under lock */
    int *color;                     /* (size): of the split under way */
    struct threads_group **made;    /* (size): by the lowest rank of each color */
    int *node;                      /* (size) */
    struct route route;             /* with modelled links */
    struct shaped_trip trip;
};

struct threads_member {
    struct comm base;
    struct threads_group *group;
    int world_rank;
    uint64_t trips;     /* that this rank has been on */
    struct view *x, *y; /* (size) scratch of this rank */
};

/* What the world was aborted with; SOTTO_OK: it was not. */
enum sotto_status threads_status(struct threads_run *w);

/* The beginning of a call, which an aborted run never reaches; and its end, to which all come who
 * began it. */
enum sotto_status threads_meet(struct threads_member *m);
void threads_meet_again(struct threads_member *m);

/* Until something moves in the group, whose lock is held; false: nothing has at that time. */
bool threads_sleep(struct threads_group *g, double until);

/* The entries of comm_ops: calls.c, messages.c. */
enum sotto_status threads_on_device(struct comm *c, enum comm_call call, struct view y,
                                    struct view x, size_t count, int root, bool *done);
enum sotto_status threads_allreduce(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status threads_reduce_scatter(struct comm *c, struct view y, struct view x,
                                         size_t count);
enum sotto_status threads_allgather(struct comm *c, void *y, const void *x, size_t count,
                                    size_t unit);
enum sotto_status threads_broadcast(struct comm *c, void *data, size_t bytes, int root);
enum sotto_status threads_barrier(struct comm *c);
enum sotto_status threads_send(struct comm *c, const void *data, size_t bytes, int to);
enum sotto_status threads_post(struct comm *c, const void *data, size_t bytes, int to);
enum sotto_status threads_recv(struct comm *c, void *data, size_t room, int from, size_t *received);
enum sotto_status threads_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                                   size_t room, int from, size_t *received);
enum sotto_status threads_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                   double until, int *from, size_t *received);

#endif

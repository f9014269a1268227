/* Declarations shared by the files of the threads backend. */
#ifndef SOTTO_COMM_THREADS_THREADS_IMPL_H
#define SOTTO_COMM_THREADS_THREADS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/threads/shaped.h"
#include "comm/threads/stall_warning.h"

/* Shared by all communicators of a run. */
struct threads_run {
    atomic_int users; /* groups of the run, and its creator until all are made */
    atomic_bool aborted;
    pthread_mutex_t lock;
    struct status_note note;      /* reason of the abort */
    struct threads_group *groups; /* all groups of the run; guarded by `lock` */
    bool spins;                   /* true if each worker has a core: short waits spin */
    struct stall_watch stall;
    int *node;             /* (workers) node of each worker */
    struct shaped *shaped; /* modelled links; NULL: as fast as memory */
};

/* Arguments of a rank's call. */
struct threads_offer {
    enum comm_call call;
    struct view x, y;
    size_t count, unit;
    int root;
    double since;   /* time of arrival */
    bool on_device; /* true if the views are in device memory, valid from `ready` on */
    struct device_mark ready;
};

struct threads_message {
    struct threads_message *next;
    struct threads_message *before, *after; /* neighbours in the receiver's inbox */
    int from;
    bool listed; /* true once in the inbox: the last byte has left */
    bool taken;  /* true once the receiver has taken the message, perhaps before the last byte has
                    left */
    bool lent;   /* true if the data are the sender's own memory. The sender waits until they are
                    copied; no thread touches the message afterwards */
    bool copied;
    int users; /* references to the message's memory: the receiver, and the sender until the last
                  byte has left */
    size_t bytes, room;
    double sent, ready; /* times of sending and of arrival */
    double since;       /* lent messages: when the receiver began to wait */
    struct shaped_message shaped;
    void *data;
};

/* Messages from one rank to another, in the order of sending. */
struct threads_box {
    struct threads_message *first, **last;
};

/* Messages to one rank whose last byte has left, by arrival and then by sender. Messages of one
 * sender are in the order of their box. */
struct threads_inbox {
    struct threads_message *first, *last;
};

struct threads_group {
    struct threads_run *run;
    struct threads_group *next; /* next group of the run */
    int size;
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    atomic_uint_least64_t arrivals; /* of ranks at all meetings so far: `size` per meeting */
    atomic_int asleep;              /* ranks asleep until the last rank arrives */
    atomic_uint_least64_t *visits;  /* (size) meetings that each rank has arrived at */
    int *world_rank;                /* (size) */
    struct threads_offer *offer;    /* (size) */
    struct device_mark *done;       /* (size) ends of calls on a device */
    struct threads_box *box;        /* (size, size) boxes by sender and receiver */
    struct threads_inbox *inbox;    /* (size) */
    struct threads_message *idle;   /* memory for later messages */
    bool *ended;                    /* (size) true if the rank sends no more; guarded by `lock` */
    int *color;                     /* (size) colors of the current split */
    struct threads_group **made;    /* (size) new groups, each at the lowest rank of its color */
    int *node;                      /* (size) */
    struct route route;             /* route of collectives, with modelled links */
    struct shaped_trip trip;
};

struct threads_member {
    struct comm base;
    struct threads_group *group;
    int world_rank;
    uint64_t trips;     /* collectives so far */
    struct view *x, *y; /* (size) views of all ranks; scratch of this rank */
};

/* Returns the status of an aborted run, with its message; SOTTO_OK if the run was not aborted. */
enum sotto_status threads_status(struct threads_run *w);

/* threads_meet waits at the beginning of a call for all ranks; fails if the run is aborted.
 * threads_meet_again waits at the end of a call, which all ranks reach that began the call. */
enum sotto_status threads_meet(struct threads_member *m);
void threads_meet_again(struct threads_member *m);

/* Sleeps until something moves in the group, whose lock the caller holds; false if nothing has by
 * the time `until`. */
bool threads_sleep(struct threads_group *g, double until);

/* Members of comm_ops, in calls.c and messages.c. */
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

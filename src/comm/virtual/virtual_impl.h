/* Declarations shared by the files of communicators in virtual time. */
#ifndef SOTTO_COMM_VIRTUAL_VIRTUAL_IMPL_H
#define SOTTO_COMM_VIRTUAL_VIRTUAL_IMPL_H

#include "comm/links/route.h"
#include "comm/virtual/sim.h"

enum { CALL_SPLIT = COMM_CALLS, CALL_SUM };

/* Arguments of a rank's collective. */
struct virtual_offer {
    int call;
    size_t count, unit;
    int root;
    int color;         /* split */
    struct comm **out; /* split */
    bool on_device;    /* true if the views are in device memory, valid from `ready` on */
    struct device_mark ready;
};

struct virtual_message {
    struct network_flow flow;
    struct network_use use[2];
    struct virtual_message *next;
    struct payload payload;
    enum place place;   /* place of the sent view; decides on which idle list the message is kept */
    double sent, ready; /* times of sending, and of arrival of the last byte */
    double latency;
    double earliest;                        /* arrival of the message before: no earlier arrival */
    bool has_left;                          /* true once the last byte has left */
    struct virtual_message *before, *after; /* neighbours in the receiver's list, once has_left */
    int from;
    struct virtual_member *to;
    struct virtual_process *sender; /* waits until the last byte has left */
};

/* Messages from one rank to another, in the order of sending. */
struct virtual_box {
    struct virtual_message *first, *last;
};

struct virtual_group {
    struct virtual_sim *sim;
    int size, users;
    int for_any; /* ranks that wait for any message */
    int *node;   /* (size) */
    int *worker; /* (size) world rank of each rank */
    struct route route;
    struct trip trip;            /* collective in flight */
    int arrived;                 /* ranks that have arrived at the next collective */
    double latest;               /* the latest of their clocks */
    double met;                  /* time at which the last rank arrived at the current collective */
    double end;                  /* time of its end */
    bool over;                   /* true once it has ended */
    struct virtual_offer *offer; /* (size) */
    struct view *x, *y;          /* (size) */
    struct virtual_process **process; /* (size) processes in the collective */
    struct virtual_member **member;   /* (size) */
    struct virtual_message *idle[2];  /* memory for later messages: of the host, of devices */
    struct status_note failure;       /* set for good once ranks disagree */
};

struct virtual_member {
    struct comm base;
    struct virtual_group *group;
    struct virtual_box *box;          /* (size) messages from each rank; NULL until the first */
    struct virtual_process *receiver; /* process that waits for a message; NULL: none */
    int from;                         /* sender waited for, or FROM_ANY */
    const bool *among;                /* (size) FROM_ANY: possible senders; NULL: all ranks */
    /* Messages to this rank whose last byte has left, by arrival and then by sender. */
    struct virtual_message *first, *last;
    bool ended; /* true if the rank sends no more */
};

enum { FROM_ANY = -1 };

const char *virtual_call_name(int call);

/* Checks the arguments of all ranks and moves the data of a collective, after the last rank has
 * arrived. */
enum sotto_status virtual_combine(struct virtual_group *g);

/* Makes a group of `size` ranks whose communicators have these ops; NULL: no memory. The caller
 * then sets the workers of all ranks and opens the route. */
struct virtual_group *virtual_make_group(struct virtual_sim *sim, const struct comm_ops *ops,
                                         int size);
void virtual_set_worker(struct virtual_group *g, int rank, int worker, int node);
void virtual_open_route(struct virtual_group *g);
void virtual_free_group(struct virtual_group *g);

/* Makes a new group for each color of a split: all groups or none. */
enum sotto_status virtual_make_split(struct virtual_group *g);

/* Makes a lane's idle process `p` arrive at a collective at the time `at` without running.
 * `collective_over` is called with the times at which the collective was met and ends (perhaps
 * later than now), or with its failure. False if `p` would be the last to arrive, or if something
 * has failed: the process has to run then. */
bool virtual_join_collective(const struct comm_collective *a, struct virtual_process *p, double at,
                             void (*collective_over)(struct virtual_process *, double met,
                                                     double end,
                                                     const struct status_note *failure));

/* Ends the rank's sending, and all waits that only this rank could end. */
void virtual_end_member(struct virtual_member *m);

void virtual_free_messages(struct virtual_message *m);

/* Members of comm_ops, in calls.c and messages.c. */
enum sotto_status virtual_allreduce(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status virtual_reduce_scatter(struct comm *c, struct view y, struct view x,
                                         size_t count);
enum sotto_status virtual_allgather(struct comm *c, void *y, const void *x, size_t count,
                                    size_t unit);
enum sotto_status virtual_broadcast(struct comm *c, void *data, size_t bytes, int root);
enum sotto_status virtual_sum(struct comm *c, double *x, int count);
enum sotto_status virtual_barrier(struct comm *c);
enum sotto_status virtual_split(struct comm *c, int color, struct comm **out);
enum sotto_status virtual_on_device(struct comm *c, enum comm_call call, struct view y,
                                    struct view x, size_t count, int root, bool *done);
enum sotto_status virtual_send(struct comm *c, const void *data, size_t bytes, int to);
enum sotto_status virtual_send_device(struct comm *c, struct view x, size_t count, int to);
enum sotto_status virtual_recv(struct comm *c, void *data, size_t room, int from, size_t *received);
enum sotto_status virtual_recv_device(struct comm *c, struct view x, size_t room, int from,
                                      size_t *received);
enum sotto_status virtual_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                   double until, int *from, size_t *received);
enum sotto_status virtual_recv_any_device(struct comm *c, struct view x, size_t room,
                                          const bool *among, double until, int *from,
                                          size_t *received);

#endif

/* What the files of communicators in virtual time share. */
#ifndef SOTTO_COMM_VIRTUAL_VIRTUAL_IMPL_H
#define SOTTO_COMM_VIRTUAL_VIRTUAL_IMPL_H

#include "comm/links/route.h"
#include "comm/virtual/sim.h"

enum { CALL_SPLIT = COMM_CALLS, CALL_SUM };

/* What a rank brings to a collective. */
struct virtual_offer {
    int call;
    size_t count, unit;
    int root;
    int color;         /* split */
    struct comm **out; /* split */
    bool on_device;    /* its views are a device's, and there from `ready` on */
    struct device_mark ready;
};

struct virtual_message {
    struct network_flow flow;
    struct network_use use[2];
    struct virtual_message *next;
    struct payload payload;
    enum place place;   /* of what was sent, by which messages are kept for the next ones */
    double sent, ready; /* when it set out, when its last byte arrives */
    double latency;
    double earliest;                        /* it arrives: when the one before it does */
    bool gone;                              /* the last byte has left */
    struct virtual_message *before, *after; /* of the receiver's, once it has */
    int from;
    struct virtual_member *to;
    struct virtual_process *sender; /* waits for that */
};

/* From one rank to another. */
struct virtual_box {
    struct virtual_message *first, *last;
};

struct virtual_group {
    struct virtual_sim *sim;
    int size, users;
    int for_any; /* ranks that wait for whoever comes */
    int *node;   /* (size) */
    int *worker; /* (size): its ranks in the world */
    struct route route;
    struct trip trip;                /* the collective that is under way */
    int arrived;                     /* at the collective that is not met yet, ... */
    double latest;                   /* ... and the latest of their clocks         */
    double met;                      /* when the last rank came to the collective before ... */
    double end;                      /* ... when it was over, which it */
    bool over;                       /* ... is */
    struct virtual_offer *offer;     /* (size) */
    struct view *x, *y;              /* (size) */
    struct virtual_process **there;  /* (size): who waits in the collective */
    struct virtual_member **member;  /* (size) */
    struct virtual_message *idle[2]; /* for the next messages of the host, of devices */
    struct status_note failure;      /* once workers disagree, for good */
};

struct virtual_member {
    struct comm base;
    struct virtual_group *group;
    struct virtual_box *box;              /* (size): from each rank; NULL until a message comes */
    struct virtual_process *receiver;     /* waits for a message from rank `from`, or ... */
    int from;                             /* FROM_ANY: ... */
    const bool *among;                    /* ... from one of these (size), NULL: all */
    struct virtual_message *first, *last; /* that have left to it, by arrival and then by rank */
    bool ended;                           /* sends no more */
};

enum { FROM_ANY = -1 };

const char *virtual_call_name(int call);

/* All have come to a collective: moves the data. */
enum sotto_status virtual_combine(struct virtual_group *g);

/* A group of `size` ranks, whose communicators have these ops; NULL without memory. Its workers are
 * still to be set, all of them, and then its way opened. */
struct virtual_group *virtual_make_group(struct virtual_sim *sim, const struct comm_ops *ops,
                                         int size);
void virtual_set_worker(struct virtual_group *g, int rank, int worker, int node);
void virtual_open_route(struct virtual_group *g);
void virtual_free_group(struct virtual_group *g);

/* New groups, one a color. Either all are made or none. */
enum sotto_status virtual_make_split(struct virtual_group *g);

/* A lane's process comes to a collective without running: `left` is told when it was met and when
 * it is over, which may be later than now, or why it failed. False where it would be the last one
 * to come, or something is amiss: then it has to run. */
bool virtual_join_collective(const struct comm_collective *a, struct virtual_process *p, double at,
                             void (*left)(struct virtual_process *, double met, double end,
                                          const struct status_note *failure));

/* The rank sends no more: those that could only wait for it learn so. */
void virtual_end_member(struct virtual_member *m);

void virtual_free_messages(struct virtual_message *m);

/* The entries of comm_ops: calls.c, messages.c. */
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

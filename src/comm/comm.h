/* Communication between workers: blocking, and nothing else, comm_post aside. Overlap is a lane's
 * business (lane.h).
 *
 * The front checks arguments, counts bytes and seconds, and notices workers that call different
 * things; a backend moves the data. A communicator belongs to one line of work: a lane has one of
 * its own (comm_duplicate). Calls on one communicator are made in the same order by all of its
 * ranks.
 *
 * Views are of host memory or of the device of that line of work, behind whose ops a call begins
 * and whose next ops find what it received. Collectives and messages of ranks that share a device
 * are its ops where the backend has them (`on_device`, `send_device`); all else passes through host
 * memory (staging.h), which is all that backends see.
 *
 * Sums have one order whatever the backend, the call and the way it goes (ring.h). Block b of
 * `size` blocks belongs to rank b, at place j of node k (layout.h). Every node sums its ranks'
 * vectors in the order of places j+1, j+2, ..., j; these sums are added in the order of nodes k+1,
 * k+2, ..., k, all counted around. On one node, or with one rank on each, that is x_{b+1} + x_{b+2}
 * + ... + x_b. bf16 is summed in fp32 and rounded where a node's sum is complete, and in the end.
 * So backends agree to the bit (native MPI collectives aside). */
#ifndef SOTTO_COMM_COMM_H
#define SOTTO_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/layout.h"
#include "tensor/device.h"

enum comm_call {
    COMM_SEND,
    COMM_RECV,
    COMM_EXCHANGE,
    COMM_ALLREDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALLGATHER,
    COMM_BROADCAST,
    COMM_BARRIER,
    COMM_CALLS
};

const char *comm_call_name(enum comm_call call);

/* What a rank did, by kind of call. Bytes are those it sends to others, booked where they go.
 * Collectives count as ring.h sends them, whatever the backend (stats.h). */
struct comm_stats { /* read by others while a lane still counts */
    _Atomic int64_t calls;
    _Atomic int64_t inside, between; /* bytes to a rank on the same node, on another node */
    _Atomic double seconds;          /* in the call ...                                   */
    _Atomic double waiting;          /* ... until the last rank that it needs had come too */
};

struct comm;
struct lane;

/* The part of a call in which a rank waited for others to come; the rest of it is the wire's. */
struct comm_wait {
    double from, to;
};

struct comm_ops {
    const char *name;
    /* May return before the message is received, or wait until it is: who sends and receives in a
     * ring takes turns. */
    enum sotto_status (*send)(struct comm *c, const void *data, size_t bytes, int to);
    /* (optional) The same, and never waits for its receiver: see comm_post. Without it: send, for
     * backends whose send does not. */
    enum sotto_status (*post)(struct comm *c, const void *data, size_t bytes, int to);
    /* *received: the bytes of the message, which may be more than `room`; it is dropped then. */
    enum sotto_status (*recv)(struct comm *c, void *data, size_t room, int from, size_t *received);
    /* The same from whoever of `among` is first: see comm_recv_any. *from: -1 where nothing came.
     */
    enum sotto_status (*recv_any)(struct comm *c, void *data, size_t room, const bool *among,
                                  double until, int *from, size_t *received);
    /* (optional, all three) The same for memory of c->dev: begun behind its ops, and done for those
     * that it issues next, without a wait. What one of them sends any of them and of the three
     * above receives, and the other way round. `room` is in elements, *received in bytes. Without
     * them: through the host. */
    enum sotto_status (*send_device)(struct comm *c, struct view x, size_t count, int to);
    enum sotto_status (*recv_device)(struct comm *c, struct view x, size_t room, int from,
                                     size_t *received);
    enum sotto_status (*recv_any_device)(struct comm *c, struct view x, size_t room,
                                         const bool *among, double until, int *from,
                                         size_t *received);
    /* (optional) Both at once. Without it: send, then recv; for backends whose send does not wait.
     */
    enum sotto_status (*exchange)(struct comm *c, const void *out, size_t bytes, int to, void *in,
                                  size_t room, int from, size_t *received);
    /* y = the sum of all ranks' x; y may be x. */
    enum sotto_status (*allreduce)(struct comm *c, struct view y, struct view x, size_t count);
    /* y = block `rank` of the sum; it may be that block of x itself. */
    enum sotto_status (*reduce_scatter)(struct comm *c, struct view y, struct view x, size_t count);
    /* y = all ranks' blocks; x is this rank's block of it, or another place of its length. `unit`
     * bytes an element. */
    enum sotto_status (*allgather)(struct comm *c, void *y, const void *x, size_t count,
                                   size_t unit);
    /* (optional) x = the sum of all ranks' x, added from 0 in the order of ranks, at the cost of an
     * all-gather. Without it: an all-gather. */
    enum sotto_status (*sum)(struct comm *c, double *x, int count);
    enum sotto_status (*broadcast)(struct comm *c, void *data, size_t bytes, int root);
    /* (optional) A collective (a broadcast: of y from `root`) whose vectors are all the device's:
     * begun behind the ops of every rank's c->dev, and done for those that they issue next, without
     * a wait for either. For at most RANKS_MOST ranks. Without it, or where it is not done, which
     * all ranks find: through the host. */
    enum sotto_status (*on_device)(struct comm *c, enum comm_call call, struct view y,
                                   struct view x, size_t count, int root, bool *done);
    enum sotto_status (*barrier)(struct comm *c);
    /* A communicator of the ranks that give the same color, ordered by rank here. */
    enum sotto_status (*split)(struct comm *c, int color, struct comm **out);
    enum sotto_status (*twin)(struct comm *c, struct comm **out); /* see comm_twin */
    /* Ends the waiting of every rank of the world with this note; may be called from any line of
     * work. */
    void (*abort)(struct comm *c, const struct status_note *note);
    /* (optional) A rank's name in messages, which is the world's. Without it: "rank 1". */
    const char *(*rank_name)(const struct comm *c, int rank);
    void (*free)(struct comm *c);
};

struct comm { /* what every call touches comes first, and the tallies of all of them last */
    const struct comm_ops *ops;
    const struct clock *clock;
    int rank, size;
    struct layout layout;  /* of the nodes; the backend's too */
    struct lane *lane;     /* whose line of work this is, so that it learns what it waits for;
                            * NULL: a worker's own */
    bool twinned;          /* it has a twin, or is one: its own rank may send to it */
    struct comm_wait wait; /* of the call under way: empty until the backend says otherwise */
    struct device *dev;    /* of that line of work; NULL: host memory only; not owned */
    struct {               /* stats.h's: ranks on this one's node, how many and between which two */
        int count, begin, end; /* 0: not counted yet */
    } near;
    _Atomic int64_t staged; /* bytes between dev and the host, both ways; read as the tallies are */
    const int *node;        /* (size): the node that each rank runs on; owned by the backend */
    struct comm_stats stats[COMM_CALLS];
};

enum sotto_status comm_send(struct comm *c, struct view x, size_t count, int to);
/* The same for a receiver that may be slow, or come late, while others must not wait: what is sent
 * is a copy, in memory that is kept for the next ones. It is received before c is freed. */
enum sotto_status comm_post(struct comm *c, struct view x, size_t count, int to);
enum sotto_status comm_recv(struct comm *c, struct view x, size_t count, int from);
/* Receives one message of `count` elements from whichever of the ranks of `among` (size), NULL: all
 * others, comes first, and says *from whom; what else that rank sends follows by comm_recv. A
 * rank's own messages come in the order it sent them.
 *
 * Nothing came until `until`, a time of c's clock, INFINITY for ever: *from = -1, without an error.
 * What comes at that very time has come; one that has passed takes what has come by now.
 *
 * First is what has arrived first as a whole, of equals the lowest rank: in virtual time exactly,
 * and of all that is sent by then; between threads as near as they are woken; over MPI, which does
 * not tell, what the library finds. An error when nothing has come and all of them have ended:
 * their communicator is freed or, if it is the world's, their work done. MPI asks them for that
 * once in a patience (mpi/mpi.h). Counted as a recv. */
enum sotto_status comm_recv_any(struct comm *c, struct view x, size_t count, const bool *among,
                                double until, int *from);
/* The same for messages of up to `room` elements; *received: how many there were. */
enum sotto_status comm_recv_some(struct comm *c, struct view x, size_t room, const bool *among,
                                 double until, int *from, size_t *received);
/* Sends `count` elements of out to one rank and receives up to `room` into `in` from another, both
 * at once, so that ranks in a ring need not take turns; *received: how many there were. */
enum sotto_status comm_exchange(struct comm *c, struct view out, size_t count, int to,
                                struct view in, size_t room, int from, size_t *received);
enum sotto_status comm_allreduce(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_reduce_scatter(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_allgather(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_broadcast(struct comm *c, struct view x, size_t count, int root);
enum sotto_status comm_barrier(struct comm *c);
enum sotto_status comm_split(struct comm *c, int color, struct comm **out);
enum sotto_status comm_duplicate(struct comm *c, struct comm **out);
/* Another handle on c, of the same rank, for another line of work: the twin sends, also to its own
 * rank, which costs no time where that is modelled, and c receives; neither does anything else. Not
 * called by all; it is freed before c, which has only one. */
enum sotto_status comm_twin(struct comm *c, struct comm **out);
void comm_free(struct comm *c); /* NULL is fine */

/* Small things that are not vectors: `bytes` from each rank, side by side in `out`; sums of doubles
 * in the order of ranks. */
enum sotto_status comm_gather_bytes(struct comm *c, void *out, const void *in, size_t bytes);
enum sotto_status comm_sum(struct comm *c, double *x, int count);

/* "rank 1", or what the backend calls it. */
enum { COMM_NAME_ROOM = 96 };
void comm_name(const struct comm *c, int rank, char out[COMM_NAME_ROOM]);

/* Whether all ranks hold the same text; otherwise an error that names `what`, a rank that differs,
 * and the first line that does. */
enum sotto_status comm_agree(struct comm *c, const char *what, const char *text);

/* An all-reduce, a reduce-scatter or an all-gather as a lane's job, which is the collective and
 * nothing else: a lane that knows it may need no line of work of its own to wait in. */
struct comm_collective {
    struct comm *comm;
    enum comm_call call;
    struct view y, x;
    size_t count;
};
enum sotto_status comm_collect(void *collective);

/* For backends: a collective of `count` elements lasted from begin to end; c->wait is its wait. */
void comm_count(struct comm *c, enum comm_call call, enum dtype type, size_t count, double begin,
                double end);

/* For backends: the error of a rank that waits for whoever comes, and all have ended. */
enum sotto_status comm_all_ended(const struct comm *c);

/* For backends: the error of a message that has not the length it should have. */
enum sotto_status comm_wrong_length(const struct comm *c, size_t expected, size_t received,
                                    int from);

#endif

/* Communication between workers. All calls block, except comm_post; overlap is made with lanes
 * (lane.h).
 *
 * The front checks arguments and counts bytes and seconds; a backend moves the data and reports
 * ranks that make different calls. A communicator belongs to one owner, a worker or a lane: a lane
 * has a communicator of its own (comm_duplicate). All ranks of a communicator make their calls in
 * the same order.
 *
 * Views are of host memory or of the owner's device. A call begins after the ops that the device
 * has been given, and the device's next ops find the received data. Collectives and messages of
 * ranks that share a device run as ops of the device if the backend can do so (`on_device`,
 * `send_device`). All other calls pass through host memory (staging.h): backends see no more.
 *
 * Sums have one order for all backends, calls and algorithms (ring.h). Block b of `size` blocks
 * belongs to rank b, at place j of node k (layout.h). Every node sums the vectors of its ranks in
 * the order of places j+1, j+2, ..., j; the sums of nodes are added in the order of nodes k+1, k+2,
 * ..., k; both orders wrap around. On one node, or with one rank on each node, the sum is x_{b+1} +
 * x_{b+2} + ... + x_b. bf16 is summed in fp32 and rounded when the sum of a node is complete, and
 * at the end. Backends agree to the bit, except the native collectives of MPI. */
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

/* Counts of a rank, by kind of call. Bytes are those sent to other ranks. Collectives are counted
 * as ring.h sends them, for every backend (stats.h). Atomic: a worker reads the counts of its lane
 * while the lane still counts. */
struct comm_stats {
    _Atomic int64_t calls;
    _Atomic int64_t inside, between; /* bytes sent to ranks of the same node, of other nodes */
    _Atomic double seconds;          /* seconds in calls, `waiting` included                 */
    _Atomic double waiting;          /* seconds until the last rank needed had arrived       */
};

struct comm;
struct lane;

/* Part of a call, as times of the clock, in which a rank waited for other ranks to arrive. The
 * rest of the call is transfer. */
struct comm_wait {
    double from, to;
};

struct comm_ops {
    const char *name;
    /* Sends a message. May return before the message is received, or wait for the receiver: ranks
     * in a ring that both send and receive must take turns. */
    enum sotto_status (*send)(struct comm *c, const void *data, size_t bytes, int to);
    /* (optional) Sends without waiting for the receiver: see comm_post. Default: send, in backends
     * whose send does not wait. */
    enum sotto_status (*post)(struct comm *c, const void *data, size_t bytes, int to);
    /* Receives a message of *received bytes. A message of more than `room` bytes is dropped. */
    enum sotto_status (*recv)(struct comm *c, void *data, size_t room, int from, size_t *received);
    /* Receives the first message of any rank of `among`: see comm_recv_any. *from is the sender,
     * or -1 if no message arrived. */
    enum sotto_status (*recv_any)(struct comm *c, void *data, size_t room, const bool *among,
                                  double until, int *from, size_t *received);
    /* (optional, all three together) send, recv and recv_any for memory of c->dev. The message
     * follows the ops that the device has been given, and the device's next ops follow the message;
     * the caller does not wait for the device. A message sent with one of these six members can be
     * received with any of them. `room` counts elements, *received bytes. Default: through the
     * host. */
    enum sotto_status (*send_device)(struct comm *c, struct view x, size_t count, int to);
    enum sotto_status (*recv_device)(struct comm *c, struct view x, size_t room, int from,
                                     size_t *received);
    enum sotto_status (*recv_any_device)(struct comm *c, struct view x, size_t room,
                                         const bool *among, double until, int *from,
                                         size_t *received);
    /* (optional) Sends and receives at the same time. Default: send, then recv, in backends whose
     * send does not wait. */
    enum sotto_status (*exchange)(struct comm *c, const void *out, size_t bytes, int to, void *in,
                                  size_t room, int from, size_t *received);
    /* y <- the sum of x over all ranks; y may be x. */
    enum sotto_status (*allreduce)(struct comm *c, struct view y, struct view x, size_t count);
    /* y <- block `rank` of the sum of x over all ranks; y may be this block of x itself. */
    enum sotto_status (*reduce_scatter)(struct comm *c, struct view y, struct view x, size_t count);
    /* y <- the blocks of all ranks; x is this rank's block, either inside y or elsewhere. `unit`
     * is the size of an element in bytes. */
    enum sotto_status (*allgather)(struct comm *c, void *y, const void *x, size_t count,
                                   size_t unit);
    /* (optional) x <- the sum of x over all ranks, added from 0 in the order of ranks, at the cost
     * of an all-gather. Default: an all-gather. */
    enum sotto_status (*sum)(struct comm *c, double *x, int count);
    enum sotto_status (*broadcast)(struct comm *c, void *data, size_t bytes, int root);
    /* (optional) Runs a collective whose vectors are all in device memory (a broadcast: of y from
     * `root`). The collective follows the ops that every rank's c->dev has been given, and their
     * next ops follow the collective; no rank waits for its device. At most RANKS_MOST ranks.
     * Default, and if *done is false, on all ranks alike: through the host. */
    enum sotto_status (*on_device)(struct comm *c, enum comm_call call, struct view y,
                                   struct view x, size_t count, int root, bool *done);
    enum sotto_status (*barrier)(struct comm *c);
    /* Makes a communicator of the ranks that give the same color, in the order of their ranks. */
    enum sotto_status (*split)(struct comm *c, int color, struct comm **out);
    enum sotto_status (*twin)(struct comm *c, struct comm **out); /* see comm_twin */
    /* Ends the waits of all ranks of the world with this note. May be called by any thread. */
    void (*abort)(struct comm *c, const struct status_note *note);
    /* (optional) The name of a rank in messages, by its rank in the world. Default: "rank 1". */
    const char *(*rank_name)(const struct comm *c, int rank);
    void (*free)(struct comm *c);
};

struct comm { /* fields of every call first, the large table last */
    const struct comm_ops *ops;
    const struct clock *clock;
    int rank, size;
    struct layout layout;      /* nodes and places of the ranks, set by the backend */
    struct lane *lane;         /* lane of the calls, which counts their waits; NULL: a worker's */
    bool twinned;              /* true if the communicator has a twin or is one: a rank may send to
                                * itself */
    struct comm_wait wait;     /* wait of the current call: empty until the backend sets it */
    struct device *dev;        /* device of the worker or lane, not owned; NULL: host memory only */
    struct {                   /* ranks of this node: number, first and last + 1 (stats.h) */
        int count, begin, end; /* count 0: not counted yet */
    } near;
    _Atomic int64_t staged; /* bytes copied between dev and the host, both ways */
    const int *node;        /* (size) node of each rank; owned by the backend */
    struct comm_stats stats[COMM_CALLS];
};

enum sotto_status comm_send(struct comm *c, struct view x, size_t count, int to);
/* Sends without waiting for the receiver, which may be slow or late: the message is a copy, in
 * memory that is kept for later messages. The receiver must have taken the message before c is
 * freed. */
enum sotto_status comm_post(struct comm *c, struct view x, size_t count, int to);
enum sotto_status comm_recv(struct comm *c, struct view x, size_t count, int from);
/* Receives one message of `count` elements from any of the ranks of `among` (size; NULL: all other
 * ranks), the first to arrive, and sets *from to its sender. Further messages of this sender are
 * received with comm_recv; messages of one rank arrive in the order of sending.
 *
 * Sets *from to -1, without an error, if no message has arrived at the time `until` of c's clock
 * (INFINITY: waits without limit). A message that arrives exactly at `until` counts as arrived; a
 * time in the past returns what has arrived by now.
 *
 * The first message is the first to be complete; of equals, the message of the lowest rank. In
 * virtual time this order is exact, over all messages sent by then. Between threads it is the order
 * of waking; over MPI, which has no arrival times, the order in which the library reports messages.
 *
 * Returns SOTTO_EPEER if no message has arrived and all ranks of `among` have ended: their
 * communicator is freed or, for the world's, their work is done. MPI queries ranks for their end
 * once per patience (mpi/mpi.h). Counted as a recv. */
enum sotto_status comm_recv_any(struct comm *c, struct view x, size_t count, const bool *among,
                                double until, int *from);
/* comm_recv_any for messages of up to `room` elements; sets *received to the number of elements. */
enum sotto_status comm_recv_some(struct comm *c, struct view x, size_t room, const bool *among,
                                 double until, int *from, size_t *received);
/* Sends `count` elements of `out` to one rank and receives up to `room` elements into `in` from
 * another, both at the same time, so that ranks in a ring need not take turns. Sets *received to
 * the number of elements received. */
enum sotto_status comm_exchange(struct comm *c, struct view out, size_t count, int to,
                                struct view in, size_t room, int from, size_t *received);
enum sotto_status comm_allreduce(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_reduce_scatter(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_allgather(struct comm *c, struct view y, struct view x, size_t count);
enum sotto_status comm_broadcast(struct comm *c, struct view x, size_t count, int root);
enum sotto_status comm_barrier(struct comm *c);
enum sotto_status comm_split(struct comm *c, int color, struct comm **out);
enum sotto_status comm_duplicate(struct comm *c, struct comm **out);
/* Makes a twin: another handle on c, of the same rank, for another worker or lane. The twin only
 * sends, also to its own rank (which takes no modelled time), and c only receives. A call of one
 * rank alone. c has at most one twin, which is freed before c. */
enum sotto_status comm_twin(struct comm *c, struct comm **out);
void comm_free(struct comm *c); /* NULL is fine */

/* Messages of a struct in host memory, or of other `bytes` bytes: comm_send and so on, counted
 * alike. */
static inline enum sotto_status comm_send_bytes(struct comm *c, const void *data, size_t bytes,
                                                int to)
{
    return comm_send(c, view_of((void *)data, DTYPE_U8), bytes, to);
}

static inline enum sotto_status comm_post_bytes(struct comm *c, const void *data, size_t bytes,
                                                int to)
{
    return comm_post(c, view_of((void *)data, DTYPE_U8), bytes, to);
}

static inline enum sotto_status comm_recv_bytes(struct comm *c, void *data, size_t bytes, int from)
{
    return comm_recv(c, view_of(data, DTYPE_U8), bytes, from);
}

static inline enum sotto_status comm_recv_any_bytes(struct comm *c, void *data, size_t bytes,
                                                    const bool *among, double until, int *from)
{
    return comm_recv_any(c, view_of(data, DTYPE_U8), bytes, among, until, from);
}

static inline enum sotto_status comm_broadcast_bytes(struct comm *c, void *data, size_t bytes,
                                                     int root)
{
    return comm_broadcast(c, view_of(data, DTYPE_U8), bytes, root);
}

/* For small data that are no vectors: gathers `bytes` bytes from each rank into `out`, in the order
 * of ranks; sums doubles in the order of ranks. */
enum sotto_status comm_gather_bytes(struct comm *c, void *out, const void *in, size_t bytes);
enum sotto_status comm_sum(struct comm *c, double *x, int count);

/* Writes the name of a rank: "rank 1", or the name that the backend gives. */
enum { COMM_NAME_ROOM = 96 };
void comm_name(const struct comm *c, int rank, char out[COMM_NAME_ROOM]);

/* Returns SOTTO_OK if all ranks have the same text; otherwise an error with `what`, the name of a
 * rank that differs, and the first different line. */
enum sotto_status comm_agree(struct comm *c, const char *what, const char *text);

/* Arguments of comm_collect, a lane's job of one all-reduce, reduce-scatter or all-gather and no
 * more. A lane that recognizes the job need not run a process of its own to wait in. */
struct comm_collective {
    struct comm *comm;
    enum comm_call call;
    struct view y, x;
    size_t count;
};
enum sotto_status comm_collect(void *collective);

/* For backends: counts a collective of `count` elements that lasted from `begin` to `end`, with the
 * wait c->wait. */
void comm_count(struct comm *c, enum comm_call call, enum dtype type, size_t count, double begin,
                double end);

/* For backends: fails for a rank that waits for any message when all possible senders have ended.
 */
enum sotto_status comm_all_ended(const struct comm *c);

/* For backends: fails for a message of unexpected length. */
enum sotto_status comm_wrong_length(const struct comm *c, size_t expected, size_t received,
                                    int from);

#endif

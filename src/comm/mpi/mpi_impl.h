/* Declarations shared by the files of the MPI backend. */
#ifndef SOTTO_COMM_MPI_MPI_IMPL_H
#define SOTTO_COMM_MPI_MPI_IMPL_H

#include "comm/comm.h"
#include "comm/mpi/mpi.h"
#include "comm/mpi/nccl.h"
#include "comm/ring.h"

/* Returns the launcher's command, which a rank has read (peers.c); empty: no rank can read it. */
const char *mpi_launch_command(const struct comm *world);

/* Returns the value of an environment variable as a number; 0 if the variable is not set. */
int mpi_env_number(const char *variable);

/* Returns the number of processes started together, this process included; 0 if the launcher does
 * not report the number. */
int mpi_launched_size(void);

/* Returns this process's number among the processes of this host, from 0; 0 if unknown. */
int mpi_launched_place(void);

/* True if the launcher reports ranks on several hosts. */
bool mpi_launched_on_several_hosts(void);

/* Writes the command line of this process's launcher, "mpirun\n-H a:1,b:1 -n 2 "; empty if it
 * cannot be read here. */
enum { MPI_LAUNCH_COMMAND_ROOM = 4096 };
void mpi_read_launch_command(char *out, size_t room);

#ifdef SOTTO_WITH_MPI
#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>
#include <stdatomic.h>

/* This host (host.c). */
struct mpi_host {
    char name[64];
    char addresses[256]; /* "eth0=10.0.0.1/24 docker0=172.17.0.1/16", loopback aside */
    char network[32];    /* network that leads to other hosts, "10.0.0.0/24"; empty: unknown */
    char interface[32];  /* interface of `network` */
    uint32_t launcher; /* this host's address in mpirun's connection to another host; 0: unknown */
};
void mpi_look_at_host(struct mpi_host *out);

/* Writes up to `most` IPv4 addresses of this host, in network byte order. Returns their number. */
int mpi_list_addresses(uint32_t *out, int most);

/* Writes advice for hosts that do not reach each other: two sentences without the final full stop.
 */
void mpi_advise(const struct mpi_host *h, char *out, size_t room);

/* Warns once if a step of MPI takes longer than `limit` seconds (meet.c). */
struct mpi_watch {
    const char *what; /* the step, as in "MPI has not started" */
    double limit;
    bool runs, over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};
void mpi_watch_open(struct mpi_watch *w, const char *what, double limit); /* limit 0: no warning */
void mpi_watch_close(struct mpi_watch *w);

/* State of the search for ranks that do not answer (liveness.c). */
struct mpi_liveness {
    MPI_Comm comm; /* a copy of the world, for liveness messages only */
    int rank, size;
    double patience;     /* seconds of waiting before a rank sends questions */
    _Atomic double next; /* time of the next step */
    atomic_flag taken;   /* set while a thread makes a step; guards the fields below */
    bool *waits;         /* (size) ranks that have answered that they wait */
    _Atomic bool *ended; /* (size) ranks that have answered that they have ended */
    atomic_int endings;  /* number of `ended` */
    bool leaving;        /* true once this rank has ended and waits for all ranks to end */
    bool *named;         /* (size) ranks named by a warning, which happens once */
};

/* Liveness state of one wait. */
struct mpi_liveness_wait {
    int asked;    /* questions sent so far */
    bool for_any; /* waits for any message, perhaps for long: only queries which ranks have ended */
    double asks_from; /* for_any: seconds of waiting after which to ask again */
};

struct mpi_member;

/* Where a rank runs. */
enum { MPI_PEER_ADDRESSES = 8 };
struct mpi_peer {
    char host[64];
    uint64_t space;  /* process number space (inode of the PID namespace); 0: unknown */
    int32_t process; /* process number */
    uint32_t address[MPI_PEER_ADDRESSES]; /* IPv4 addresses, loopback aside; 0: none */
};

/* All ranks of the world, and the means to find a lost rank (peers.c). */
struct mpi_peers {
    struct mpi_peer *each;                                  /* (size)                    */
    char (*rank)[MPI_NAME_ROOM], (*machine)[MPI_NAME_ROOM]; /* (size) names in messages */
    int size;
    bool several_machines; /* true if ranks are on several machines */
    char *launch_command;  /* output of mpi_read_launch_command on the first rank that can read it;
                              empty: no rank can */
    struct mpi_connection {
        int file;
        ino_t number;
        const char *to;
    } * connection; /* (connections) to other machines */
    int connections;
};

enum sotto_status mpi_peers_open(struct mpi_member *all);
void mpi_peers_close(struct mpi_peers *p);
const char *mpi_member_name(const struct comm *c, int rank); /* rank_name of comm_ops */

/* Whether this rank reports a failure. */
enum mpi_turn { MPI_TURN_UNKNOWN, MPI_TURN_REPORTS, MPI_TURN_OVER };

/* Shared by all communicators of this process. */
struct mpi_shared {
    atomic_int users;    /* communicators in use */
    bool ours;           /* true if this library started, and so ends, MPI */
    int rank;            /* this process's rank in the world, in mpi_world's order */
    _Atomic int turn;    /* an enum mpi_turn */
    int *host;           /* (size of the world) machine of each rank */
    struct comm_ops ops; /* ops of all communicators */
    size_t largest;      /* most elements or bytes in one message */
    struct mpi_config config;
    struct nccl nccl;
    MPI_Op add_bf16;
    struct mpi_liveness liveness;
    struct mpi_peers peers;
};

/* Tags of messages on one communicator: a ring never receives the message of a send. */
enum { MPI_TAG_SEND, MPI_TAG_RING, MPI_TAG_HELLO };

/* Arguments of a rank's call. Compared between ranks in the first calls on a communicator and
 * before a split. */
struct mpi_offer {
    int32_t call, root;
    uint64_t count, unit;
    int64_t color;
};

struct mpi_message {
    MPI_Request request;
    size_t bytes; /* expected bytes */
    int from;
};

/* A posted message, and after it has been sent, memory for a later message (post.c). */
struct mpi_posted {
    struct mpi_posted *next;
    MPI_Request *request; /* (n) */
    int n;
    size_t room; /* bytes of `data` */
    char *data;
};

/* How a communicator moves vectors in GPU memory; found in the first call. */
enum mpi_device_way { MPI_DEVICE_UNKNOWN, MPI_DEVICE_HOST, MPI_DEVICE_NCCL };

struct mpi_member {
    struct comm base;
    struct mpi_shared *shared;
    MPI_Comm comm;
    bool twin;               /* true if comm and node belong to another member */
    int *node;               /* (size)                                        */
    struct mpi_offer *offer; /* (size) arguments of all ranks, for comparisons */
    int *counts, *displs;    /* (size) elements or bytes of blocks, and their offsets */
    int checked;             /* calls compared so far */
    struct ring ring;        /* ring over `sending` and `receiving` */
    struct mpi_message sending[RING_SLOTS], receiving[RING_SLOTS];
    struct {
        enum mpi_device_way way;
        void *comm; /* NCCL's communicator; NULL: none */
    } on_device;
    void *scratch;
    size_t room; /* bytes of `scratch` */
    struct mpi_posted *posted, *idle;
    /* Request of the hello that shows when the other ranks have arrived; polled with the call's own
     * requests while `greets` is true. */
    MPI_Request hello;
    bool greets;
    double quickest; /* seconds of the fastest small call so far; 0: none yet */
};

static inline struct mpi_member *mpi_member_of(struct comm *c)
{
    return (struct mpi_member *)c;
}

/* Turns an MPI return code into a status; the message names the rank and `what`. */
enum sotto_status mpi_check(const struct mpi_member *m, int code, const char *what);

/* Waits for a request, which is freed afterwards, also on failure. */
enum sotto_status mpi_await(struct mpi_member *m, MPI_Request *request, MPI_Status *status,
                            const char *what);

/* Exchanges a first message with the other ranks of the world, or with up to 64 of many. If this
 * takes longer than `limit` seconds, names the ranks whose messages did not arrive and ends the
 * job. */
enum sotto_status mpi_meet(struct mpi_member *all, double limit);

/* True if ranks a and b of a world of `size` exchange a first message; no rank exchanges more than
 * 64. */
bool mpi_meets(int size, int a, int b);

/* Waits for this rank's turn to report a failure that all ranks may have found. False if another
 * rank has ended the job by then. */
bool mpi_await_turn(int rank);

/* Ends the processes of all ranks, this process included, after the log output has been read. */
void mpi_end_job(void);

/* Polls `look` until it sets *done or the time `until` has passed. */
typedef enum sotto_status mpi_look(struct mpi_member *m, void *arg, int *done);
enum sotto_status mpi_poll(struct mpi_member *m, mpi_look *look, void *arg, double until,
                           bool for_any);

/* Waits at the end of a call until the other ranks have arrived, and sets base.wait.to to that
 * time. */
enum sotto_status mpi_met(struct mpi_member *m);

enum sotto_status mpi_liveness_open(struct mpi_liveness *liveness, MPI_Comm world, double patience);
void mpi_liveness_close(struct mpi_liveness *liveness);

/* Makes a step of the search if one is due; called regularly in a wait that has lasted `waited`
 * seconds. */
void mpi_liveness_step(struct mpi_member *m, struct mpi_liveness_wait *call, double now,
                       double waited);

/* True if all ranks of `among` (size; NULL: all other ranks) have answered that they have ended. */
bool mpi_liveness_all_ended(const struct mpi_member *m, const bool *among);

/* Starts an MPI call that yields a request, and waits for the request. */
#define MPI_DO(m, what, function, ...)                                                             \
    do {                                                                                           \
        MPI_Request request_;                                                                      \
        TRY(mpi_check(m, function(__VA_ARGS__, &request_), what));                                 \
        TRY(mpi_await(m, &request_, MPI_STATUS_IGNORE, what));                                     \
    } while (0)

/* Gathers the arguments of all ranks into m->offer. Fails if they differ in more than color. */
enum sotto_status mpi_compare(struct mpi_member *m, struct mpi_offer mine);

/* Returns the length of the piece at `at` of `count` elements. */
static inline int mpi_piece(const struct mpi_member *m, size_t count, size_t at)
{
    size_t left = count - at;
    return (int)(left < m->shared->largest ? left : m->shared->largest);
}

enum sotto_status mpi_send(struct comm *c, const void *data, size_t bytes, int to);
enum sotto_status mpi_post(struct comm *c, const void *data, size_t bytes, int to);
void mpi_post_close(struct mpi_member *m); /* waits until all posted messages are sent */
enum sotto_status mpi_recv(struct comm *c, void *data, size_t room, int from, size_t *received);
enum sotto_status mpi_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                               double until, int *from, size_t *received);
enum sotto_status mpi_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                               size_t room, int from, size_t *received);

/* Returns `bytes` bytes of memory for the duration of a call; NULL if memory is exhausted. */
void *mpi_scratch(struct comm *c, size_t bytes);

/* Begins a call; the first calls on a communicator are compared between ranks. */
enum sotto_status mpi_open_call(struct mpi_member *m, enum comm_call call, size_t count,
                                size_t unit, int root);

/* device_collectives.c */
enum sotto_status mpi_collect_on_device(struct comm *c, enum comm_call call, struct view y,
                                        struct view x, size_t count, int root, bool *done);
void mpi_device_close(struct mpi_member *m);

/* All ops but split, twin, rank_name, abort and free, which world.c adds. */
extern const struct comm_ops mpi_native_calls, mpi_ring_calls;
extern const struct ring_ops mpi_ring_transport;

void mpi_add_bf16(void *in, void *inout, int *count, MPI_Datatype *type);
#endif

#endif

/* What the files of the MPI backend share. */
#ifndef SOTTO_COMM_MPI_MPI_IMPL_H
#define SOTTO_COMM_MPI_MPI_IMPL_H

#include "comm/comm.h"
#include "comm/mpi/mpi.h"
#include "comm/mpi/nccl.h"
#include "comm/ring.h"

const char *mpi_started(const struct comm *world);

/* The value of an environment variable; 0 where that is not set. */
int mpi_env_number(const char *variable);

/* How many processes were started together, this one included; 0: by a launcher that does not
 * say. */
int mpi_launched_size(void);

/* Which of this host's it is, from 0; 0 where the launcher does not say. */
int mpi_launched_place(void);

/* True if the launcher says that ranks are on several hosts. */
bool mpi_launched_apart(void);

/* "mpirun\n-H a:1,b:1 -n 2 ", as this process's launcher was started; empty: not known here. */
enum { MPI_STARTED_ROOM = 4096 };
void mpi_started_with(char *out, size_t room);

#ifdef SOTTO_WITH_MPI
#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>
#include <stdatomic.h>

/* This host (host.c). */
struct mpi_host {
    char name[64];
    char addresses[256]; /* "eth0=10.0.0.1/24 docker0=172.17.0.1/16", loopback aside */
    char network[32];    /* that leads to other hosts, "10.0.0.0/24"; empty: unknown */
    char interface[32];  /* to that network */
    uint32_t launcher;   /* address in mpirun's connection to another host; 0: unknown */
};
void mpi_look_at_host(struct mpi_host *out);

/* Its IPv4 addresses, `most` at most, in network order. Returns how many. */
int mpi_list_addresses(uint32_t *out, int most);

/* What a user may do where hosts do not reach each other, two sentences without the last stop. */
void mpi_advise(const struct mpi_host *h, char *out, size_t room);

/* A warning, once, where what MPI does takes longer than `limit` seconds (meet.c). */
struct mpi_watch {
    const char *what; /* "started": what MPI has not by then */
    double limit;
    bool runs, over;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};
void mpi_watch_open(struct mpi_watch *w, const char *what, double limit); /* 0: no warning */
void mpi_watch_close(struct mpi_watch *w);

/* Finding out who does not answer (liveness.c). */
struct mpi_liveness {
    MPI_Comm comm; /* of the world, for nothing else */
    int rank, size;
    double patience;     /* seconds that a rank waits before it asks */
    _Atomic double next; /* time at which to look again              */
    atomic_flag taken;   /* a line of work is at it: what follows is its */
    bool *waits;         /* (size) have answered that they wait      */
    _Atomic bool *ended; /* (size) ... that they have ended          */
    atomic_int endings;  /* how many                                 */
    bool leaving;        /* this rank has ended, and waits for all   */
    bool *named;         /* (size) were told of, which is done once  */
};

/* One wait's part in it. */
struct mpi_liveness_wait {
    int asked;        /* times */
    bool for_any;     /* waits for whoever comes, be it long: only asks who has ended, ... */
    double asks_from; /* ... when it has waited so long */
};

struct mpi_member;

/* Where a rank is. */
enum { MPI_PEER_ADDRESSES = 8 };
struct mpi_peer {
    char host[64];
    uint64_t space;                       /* that its process number is in; 0: not known */
    int32_t process;                      /* its number                                  */
    uint32_t address[MPI_PEER_ADDRESSES]; /* of its machine, loopback aside; 0: none */
};

/* All ranks of the world, and what tells that one is gone (peers.c). */
struct mpi_peers {
    struct mpi_peer *each;                                  /* (size)                    */
    char (*rank)[MPI_NAME_ROOM], (*machine)[MPI_NAME_ROOM]; /* (size) names for messages */
    int size;
    bool apart;    /* on several machines */
    char *started; /* what mpi_started_with says to the first rank that knows; empty: to none */
    struct mpi_connection {
        int file;
        ino_t number;
        const char *to;
    } * connection; /* connections to other machines */
    int connections;
};

enum sotto_status mpi_peers_open(struct mpi_member *all);
void mpi_peers_close(struct mpi_peers *p);
const char *mpi_member_name(const struct comm *c, int rank); /* as comm_ops has it */

/* Whether this rank is the one that says what has failed. */
enum mpi_turn { MPI_TURN_UNKNOWN, MPI_TURN_SAYS, MPI_TURN_OVER };

/* What all communicators of this process share. */
struct mpi_shared {
    atomic_int users;    /* communicators */
    bool ours;           /* we started MPI, so we end it */
    int rank;            /* in the world, which mpi_world orders  */
    _Atomic int turn;    /* enum mpi_turn */
    int *host;           /* (world's size) the machine of each rank */
    struct comm_ops ops; /* of all communicators */
    size_t largest;      /* elements or bytes in one message */
    struct mpi_config config;
    struct nccl nccl;
    MPI_Op add_bf16;
    struct mpi_liveness liveness;
    struct mpi_peers peers;
};

/* Messages of one communicator by tag, so that a ring never takes what a send left. */
enum { MPI_TAG_SEND, MPI_TAG_RING, MPI_TAG_HELLO };

/* What a rank brings to a call; compared before the first calls on a communicator and before a
 * split. */
struct mpi_offer {
    int32_t call, root;
    uint64_t count, unit;
    int64_t color;
};

struct mpi_message {
    MPI_Request request;
    size_t bytes; /* expected */
    int from;
};

/* What was posted, until it has been sent, and then memory for the next one (post.c). */
struct mpi_posted {
    struct mpi_posted *next;
    MPI_Request *request; /* (n) */
    int n;
    size_t room; /* bytes of data */
    char *data;
};

/* The way of a communicator's vectors of GPUs, found out at the first call. */
enum mpi_device_way { MPI_DEVICE_UNKNOWN, MPI_DEVICE_HOST, MPI_DEVICE_NCCL };

struct mpi_member {
    struct comm base;
    struct mpi_shared *shared;
    MPI_Comm comm;
    bool twin;               /* comm and node are another's                   */
    int *node;               /* (size)                                        */
    struct mpi_offer *offer; /* (size) what ranks bring to a call             */
    int *counts, *displs;    /* (size) of blocks                              */
    int checked;             /* calls that were compared among ranks          */
    struct ring ring;        /* its transport is `sending` and `receiving`    */
    struct mpi_message sending[RING_SLOTS], receiving[RING_SLOTS];
    struct {
        enum mpi_device_way way;
        void *comm; /* NCCL's */
    } on_device;
    void *scratch;
    size_t room; /* bytes of scratch */
    struct mpi_posted *posted, *idle;
    /* When the others come is seen beside the call's own requests, as long as `greets`. */
    MPI_Request hello;
    bool greets;
    double quickest; /* seconds that a small call took at best; 0: there was none */
};

static inline struct mpi_member *mpi_member_of(struct comm *c)
{
    return (struct mpi_member *)c;
}

/* Turns what an MPI function returned into a status that says what `what` was. */
enum sotto_status mpi_check(const struct mpi_member *m, int code, const char *what);

/* Waits for the request, which is done and gone afterwards, also in failure. */
enum sotto_status mpi_await(struct mpi_member *m, MPI_Request *request, MPI_Status *status,
                            const char *what);

/* Exchanges a first message with the other ranks of the world, many with some of them. Where that
 * takes longer than `limit` seconds it names the ranks that it missed, and ends the job. */
enum sotto_status mpi_meet(struct mpi_member *all, double limit);

/* True if two ranks of a world of `size` exchange such a message: each with 64 others at most. */
bool mpi_meets(int size, int a, int b);

/* Waits until it is this rank's turn to report what may have failed on all ranks; false: another
 * rank has ended the job meanwhile. */
bool mpi_await_turn(int rank);

/* Ends the processes of all ranks, this one included, when what they logged has been read. */
void mpi_end_job(void);

/* Polls `look` until it is done or that time has come. */
typedef enum sotto_status mpi_look(struct mpi_member *m, void *arg, int *done);
enum sotto_status mpi_poll(struct mpi_member *m, mpi_look *look, void *arg, double until,
                           bool for_any);

/* At the end of a call: who it waited for has come, at the time that base.wait tells. */
enum sotto_status mpi_met(struct mpi_member *m);

enum sotto_status mpi_liveness_open(struct mpi_liveness *liveness, MPI_Comm world, double patience);
void mpi_liveness_close(struct mpi_liveness *liveness);

/* Called now and then in a wait that has lasted `waited` seconds. */
void mpi_liveness_step(struct mpi_member *m, struct mpi_liveness_wait *call, double now,
                       double waited);

/* Whether all of these ranks (size), NULL: all others, have said that they have ended. */
bool mpi_liveness_all_ended(const struct mpi_member *m, const bool *among);

/* Starts a call that gives a request, and waits for it. */
#define MPI_DO(m, what, function, ...)                                                             \
    do {                                                                                           \
        MPI_Request request_;                                                                      \
        TRY(mpi_check(m, function(__VA_ARGS__, &request_), what));                                 \
        TRY(mpi_await(m, &request_, MPI_STATUS_IGNORE, what));                                     \
    } while (0)

/* Gathers what every rank brings into m->offer; an error if they differ in more than color. */
enum sotto_status mpi_compare(struct mpi_member *m, struct mpi_offer mine);

/* The length of the piece at `at` of `count` elements. */
static inline int mpi_piece(const struct mpi_member *m, size_t count, size_t at)
{
    size_t left = count - at;
    return (int)(left < m->shared->largest ? left : m->shared->largest);
}

enum sotto_status mpi_send(struct comm *c, const void *data, size_t bytes, int to);
enum sotto_status mpi_post(struct comm *c, const void *data, size_t bytes, int to);
void mpi_post_close(struct mpi_member *m); /* waits for what was posted */
enum sotto_status mpi_recv(struct comm *c, void *data, size_t room, int from, size_t *received);
enum sotto_status mpi_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                               double until, int *from, size_t *received);
enum sotto_status mpi_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                               size_t room, int from, size_t *received);

/* `bytes` of memory for the duration of a call; NULL: none left. */
void *mpi_scratch(struct comm *c, size_t bytes);

/* The beginning of a call, of which a communicator's first ones are compared. */
enum sotto_status mpi_open_call(struct mpi_member *m, enum comm_call call, size_t count,
                                size_t unit, int root);

/* device_collectives.c */
enum sotto_status mpi_collect_on_device(struct comm *c, enum comm_call call, struct view y,
                                        struct view x, size_t count, int root, bool *done);
void mpi_device_close(struct mpi_member *m);

/* All but what makes and ends communicators, which is world.c's. */
extern const struct comm_ops mpi_native_calls, mpi_ring_calls;
extern const struct ring_ops mpi_ring_transport;

void mpi_add_bf16(void *in, void *inout, int *count, MPI_Datatype *type);
#endif

#endif

/* A worker as a method sees it: who it is, its clock, and where its communicators and lanes come
 * from. An engine runs the same job on all workers of a world, as threads, as MPI ranks, or as
 * processes in virtual time. */
#ifndef SOTTO_COMM_WORKER_H
#define SOTTO_COMM_WORKER_H

#include "comm/comm.h"
#include "comm/lane.h"
#include "comm/links/link.h"

struct worker;

struct worker_ops {
    const char *name; /* "threads", "mpi", "virtual" */
    /* A lane whose clock is the worker's. */
    enum sotto_status (*lane)(struct worker *w, struct lane **out);
    /* Runs `work`, which only computes: no comm, no lanes, no clock. In virtual time it costs
     * `seconds` divided by the worker's speed, with its jitter, and may run beside other workers'
     * work; elsewhere it costs what it costs. */
    enum sotto_status (*compute)(struct worker *w, lane_job *work, void *arg, double seconds);
    /* The same for work that only passes over vectors: in virtual time it costs `bytes`, read and
     * written, over the memory's bandwidth at the worker's speed, without jitter. */
    enum sotto_status (*move)(struct worker *w, lane_job *work, void *arg, double bytes);
    /* (optional) Before a worker looks at what its lanes have done by now. */
    void (*sync_clock)(struct worker *w);
    /* (optional) A pause begins, of which the training's time is to know nothing: until end_pause
     * what this worker sends takes no time, and what its lanes have under way stands still. */
    void (*pause)(struct worker *w);
    /* (optional) Ends a pause, in which all workers have met: they go on together, each as much
     * later than the first as its `seconds`, the time that it has trained, are more, so that a
     * pause changes no lead. The first goes on at the latest worker's time, or at `least` where
     * that is later: a resumed run goes on at the time of the clock at which its checkpoint was
     * made, since sums of times are rounded otherwise at another time. Called by all workers.
     * Without it: they go on as they are. */
    enum sotto_status (*end_pause)(struct worker *w, double seconds, double least);
};

struct worker {
    const struct worker_ops *ops;
    int rank, size;
    struct comm *world; /* owned by the engine */
    const struct clock *clock;
    double memory; /* virtual: bytes a second at speed 1; 0: infinitely fast              */
    /* virtual: how many micro-batches there have been, for whoever numbers them, and the number of
     * the one that `compute` is of: its jitter is a function of that, so whoever resumes sets it.
     */
    int64_t begun, computing;
};

typedef enum sotto_status worker_job(struct worker *w, void *arg);

struct engine_config {
    int workers;                    /* threads, virtual */
    const int *node;                /* (workers), NULL: all on one */
    const struct link_model *links; /* NULL: none      */
    const double *speed;            /* (workers) virtual: relative to 1, NULL: all 1 */
    double memory;                  /* virtual: see struct worker */
    double jitter;   /* virtual: standard deviation of a computation's time, as a share of it */
    uint64_t seed;   /* of the jitter   */
    int cores;       /* virtual: computations that may run at once; 0: all */
    bool issues;     /* virtual: computations only issue to a GPU and return: none needs a thread */
    double patience; /* threads: see threads/threads.h */
};

/* Runs `job` on every worker and returns when all have ended. The first failure, by time, ends the
 * others' waiting; it is returned with "worker R: " in front of its message. */
enum sotto_status engine_threads(const struct engine_config *config, worker_job *job, void *arg);
enum sotto_status engine_virtual(const struct engine_config *config, worker_job *job, void *arg);

/* The same for the one worker that is this process, a rank of `world` (mpi_world), which stays the
 * caller's. A failure ends the processes of all ranks. */
enum sotto_status engine_mpi(struct comm *world, worker_job *job, void *arg);

/* A worker with nobody else, for whoever runs on the calling thread alone; closed by
 * comm_free(w->world). */
enum sotto_status worker_alone(struct worker *w);

#endif

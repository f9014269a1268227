/* A worker as a training method sees it: rank, clock, and the source of communicators and lanes. An
 * engine runs the same job on all workers of a world: as threads, as MPI ranks, or as processes in
 * virtual time. */
#ifndef SOTTO_COMM_WORKER_H
#define SOTTO_COMM_WORKER_H

#include "comm/comm.h"
#include "comm/lane.h"
#include "comm/links/link.h"

struct worker;

struct worker_ops {
    const char *name; /* "threads", "mpi", "virtual" */
    /* Opens a lane that uses the worker's clock. */
    enum sotto_status (*lane)(struct worker *w, struct lane **out);
    /* Runs `work`, which only computes: no communication, no lanes, no clock. In virtual time the
     * work costs `seconds` divided by the worker's speed, with the worker's jitter, and may run in
     * parallel with the work of other workers. Real time ignores `seconds`. */
    enum sotto_status (*compute)(struct worker *w, lane_job *work, void *arg, double seconds);
    /* Runs work that only passes over vectors. In virtual time the work costs `bytes`, read and
     * written, over the memory bandwidth, at the worker's speed and without jitter. */
    enum sotto_status (*move)(struct worker *w, lane_job *work, void *arg, double bytes);
    /* (optional) Lets processes with earlier clocks run first. Called before a worker looks at what
     * its lanes have done by now. */
    void (*sync_clock)(struct worker *w);
    /* (optional) Begins a pause, whose time does not count as training time. Until end_pause,
     * messages of this worker take no time and jobs in flight on its lanes stand still. */
    void (*pause)(struct worker *w);
    /* (optional) Ends a pause in which all workers have met; called by all workers. Leads do not
     * change: a worker continues later than the first by as much as its `seconds` of training
     * exceed the first worker's. The first continues at the latest worker's clock, or at `least` if
     * later: a resumed run continues at the clock of its checkpoint, because sums of times round
     * differently at another time. Default: clocks are left alone. */
    enum sotto_status (*end_pause)(struct worker *w, double seconds, double least);
};

struct worker {
    const struct worker_ops *ops;
    int rank, size;
    struct comm *world; /* communicator of all workers; owned by the engine */
    const struct clock *clock;
    double memory; /* virtual time: memory bandwidth at speed 1, bytes/s; 0: infinite */
    /* Virtual time only. `begun`: micro-batches started so far. `computing`: number of the
     * micro-batch that `compute` runs, which seeds the jitter: a resumed run must restore the
     * number. */
    int64_t begun, computing;
};

typedef enum sotto_status worker_job(struct worker *w, void *arg);

struct engine_config {
    int workers;                    /* for threads and virtual time */
    const int *node;                /* (workers) node of each worker; NULL: all on one node */
    const struct link_model *links; /* NULL: no modelled links */
    const double *speed;            /* (workers) virtual time: speed relative to 1; NULL: all 1 */
    double memory;                  /* virtual time: as in struct worker */
    double jitter;   /* virtual time: standard deviation of a computation's time, as a share of this
                        time */
    uint64_t seed;   /* seed of the jitter */
    int cores;       /* virtual time: most computations at once; 0: one per core */
    bool issues;     /* virtual time: true if computations only issue work to a GPU and return; no
                        threads are made then */
    double patience; /* threads: as in threads/threads.h */
};

/* Runs `job` on every worker and returns when all jobs have ended. The first failure, in time, ends
 * the waits of the other workers and is returned with "worker R: " in front of its message. */
enum sotto_status engine_threads(const struct engine_config *config, worker_job *job, void *arg);
enum sotto_status engine_virtual(const struct engine_config *config, worker_job *job, void *arg);

/* Runs `job` on the one worker of this process, a rank of `world` (mpi_world), which the caller
 * keeps. A failure ends the processes of all ranks. */
enum sotto_status engine_mpi(struct comm *world, worker_job *job, void *arg);

/* Makes the only worker of a world of one, for use on the calling thread; closed by
 * comm_free(w->world). */
enum sotto_status worker_alone(struct worker *w);

#endif

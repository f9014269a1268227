/* The workers of a run: how many, where, how fast, and what runs them. */
#ifndef SOTTO_TRAIN_CLUSTER_CLUSTER_H
#define SOTTO_TRAIN_CLUSTER_CLUSTER_H

#include "comm/worker.h"
#include "tensor/device.h"
#include "train/config/config.h"

struct cluster {
    struct run_config *config; /* not owned */
    struct comm *mpi;   /* this process's place, where MPI started it; NULL: all workers are here */
    int size;           /* workers in all */
    bool leads;         /* rank 0 is here */
    int cores;          /* that this process may run on, as it began */
    int around, before; /* workers that share them; those of ranks below this process's */
    int *node;          /* (size) from 0, in the order of ranks */
    int nodes, *each;   /* (nodes) workers of it */
    double *speed;      /* (size) of modelled workers */
    double *link_speed; /* (nodes) */
    double memory;      /* bytes a second; 0: infinitely fast */
    struct link_model links;
};

/* Checks what the configuration says of workers and links, and sets in it the number of workers and
 * the method's mesh. Under MPI a failure ends the processes of all ranks. */
enum sotto_status cluster_open(struct cluster *c, struct run_config *config);
void cluster_close(struct cluster *c);

/* The cluster in a line: "4 nodes x 2 workers; inside 10GB/s,5us; between 1Gbit/s,100us, 1 adapter
 * a node; speeds 1,1,0.5". What is long is cut. */
enum { CLUSTER_ROOM = SOTTO_CLUSTER_ROOM };
void cluster_describe(const struct cluster *c, char out[CLUSTER_ROOM]);

/* Something failed before the workers ran: under MPI the others may be far ahead, and are ended.
 * Returns the status. */
enum sotto_status cluster_abort(struct cluster *c, enum sotto_status st);

/* Runs `job` on every worker that is here. */
enum sotto_status cluster_run(struct cluster *c, worker_job *job, void *arg);

/* A bit a core. */
enum { CLUSTER_MASK = 16 };
struct cluster_mask {
    uint64_t word[CLUSTER_MASK];
};
/* Sets `around` and `before` for one of n ranks, those of other machines without a core. */
void cluster_count_around(struct cluster *c, const struct cluster_mask *all, int n, int rank);
/* Finds out who shares this process's cores: once, before any worker is pinned. */
enum sotto_status cluster_find_cores(struct cluster *c);
/* Cores for a worker: those of its machine, shared with the other workers there. */
int cluster_threads(const struct cluster *c);
/* Warns where they are too few for the method, or bound so that they are. */
void cluster_warn_cores(const struct cluster *c);
/* How many threads workers have on the cores of this process where these are fewer, *cores of them;
 * 0: there are enough. */
int cluster_crowd(const struct cluster *c, int *cores);
/* That as many threads can be started as workers' teams have. */
enum sotto_status cluster_check_threads(const struct cluster *c);
/* That they suffice for train.pin. */
enum sotto_status cluster_check_pin(const struct cluster *c);
/* With train.pin, keeps the calling thread, which is this worker's, and those that it will start to
 * that many cores of its own: before it has a team or memory, which then are there too. */
enum sotto_status cluster_pin(const struct cluster *c, const struct worker *w, int threads);

/* What a rank computes with, and those that all have: device_named, device_kernels. */
struct cluster_kernels {
    char device[32], has[DEVICE_KERNELS_ROOM];
};
/* The best that all have, n >= 1 of them, into `best`, which may be empty; an error if devices
 * differ. */
enum sotto_status cluster_common_kernels(const struct cluster_kernels *all, int n,
                                         char best[DEVICE_KERNELS_ROOM]);
/* Ranks on machines of several kinds compute with what all have: sets train.device. */
enum sotto_status cluster_settle_device(struct cluster *c);

#endif

/* The workers of a run: number, places, speeds, and the engine that runs them. */
#ifndef SOTTO_TRAIN_CLUSTER_CLUSTER_H
#define SOTTO_TRAIN_CLUSTER_CLUSTER_H

#include "comm/worker.h"
#include "tensor/device.h"
#include "train/config/config.h"

struct cluster {
    struct run_config *config; /* not owned */
    struct comm *mpi;   /* this process's rank under MPI; NULL: all workers are in this process */
    int size;           /* workers in all */
    bool leads;         /* rank 0 is here */
    int cores;          /* cores of this process at its start */
    int around, before; /* workers that share the cores; those of lower ranks */
    int *node;          /* (size) node of each rank, from 0 */
    int nodes, *each;   /* (nodes) number of workers */
    double *speed;      /* (size) of modelled workers */
    double *link_speed; /* (nodes) */
    double memory;      /* bytes a second; 0: infinitely fast */
    struct link_model links;
};

/* Checks the configuration of workers and links, and sets the number of workers and the method's
 * mesh in `config`. Under MPI a failure ends the processes of all ranks. */
enum sotto_status cluster_open(struct cluster *c, struct run_config *config);
void cluster_close(struct cluster *c);

/* Describes the cluster in a line: "4 nodes x 2 workers; inside 10GB/s,5us; between 1Gbit/s,100us,
 * 1 adapter a node; speeds 1,1,0.5". Long lists are cut. */
enum { CLUSTER_ROOM = SOTTO_CLUSTER_ROOM };
void cluster_describe(const struct cluster *c, char out[CLUSTER_ROOM]);

/* Reports a failure before the workers run. Under MPI other ranks may be far ahead: aborts them.
 * Returns the status. */
enum sotto_status cluster_abort(struct cluster *c, enum sotto_status st);

/* Runs `job` on every worker of this process. */
enum sotto_status cluster_run(struct cluster *c, worker_job *job, void *arg);

/* A bit a core. */
enum { CLUSTER_MASK = 16 };
struct cluster_mask {
    uint64_t word[CLUSTER_MASK];
};
/* Sets `around` and `before` of rank `rank` out of n. Ranks on other machines have empty masks. */
void cluster_count_around(struct cluster *c, const struct cluster_mask *all, int n, int rank);
/* Finds the workers that share this process's cores. Called once, before any worker is pinned. */
enum sotto_status cluster_find_cores(struct cluster *c);
/* Returns the cores for a worker: an equal share of its machine's. */
int cluster_threads(const struct cluster *c);
/* Warns if the method needs more cores, or ranks are bound to too few. */
void cluster_warn_cores(const struct cluster *c);
/* If the workers' threads are more than the cores: returns their number, and the number of cores in
 * `cores`. Otherwise 0. */
int cluster_crowd(const struct cluster *c, int *cores);
/* Checks that all threads of the workers' teams can be started. */
enum sotto_status cluster_check_threads(const struct cluster *c);
/* Checks that the cores suffice for train.pin. */
enum sotto_status cluster_check_pin(const struct cluster *c);
/* With train.pin, binds the calling thread, a worker's, to `threads` cores of its own. Called
 * before the worker starts threads or allocates memory, which then belong to the same cores. */
enum sotto_status cluster_pin(const struct cluster *c, const struct worker *w, int threads);

/* The device of a rank, and the kernels that it supports: device_named, device_kernels. */
struct cluster_kernels {
    char device[32], has[DEVICE_KERNELS_ROOM];
};
/* Finds the best kernels that all n ranks support, n >= 1; "" if none. Fails if devices differ. */
enum sotto_status cluster_common_kernels(const struct cluster_kernels *all, int n,
                                         char best[DEVICE_KERNELS_ROOM]);
/* Sets train.device to kernels that all ranks support, if machines are of several kinds. */
enum sotto_status cluster_settle_device(struct cluster *c);

#endif

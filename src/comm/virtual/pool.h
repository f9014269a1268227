/* Threads that compute for a simulated cluster. Jobs start in the order given; a process waits for
 * its job. */
#ifndef SOTTO_COMM_VIRTUAL_POOL_H
#define SOTTO_COMM_VIRTUAL_POOL_H

#include "comm/lane.h"

struct compute_pool;

struct pool_job {
    lane_job *work;
    void *arg;
    bool finished;
    struct status_note note; /* status and message of the work */
    struct pool_job *next;
};

enum sotto_status pool_open(struct compute_pool **out, int threads); /* threads 0: one per core */
void pool_close(struct compute_pool *pool); /* after all jobs; NULL is fine */

/* Starts a job, which belongs to the caller and must not be touched until pool_wait has returned.
 * pool_wait returns the status of the work. */
void pool_start(struct compute_pool *pool, struct pool_job *job);
enum sotto_status pool_wait(struct compute_pool *pool, struct pool_job *job);

#endif

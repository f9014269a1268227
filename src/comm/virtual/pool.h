/* Threads that compute for a simulated cluster: jobs start in the order given, whoever needs one
 * waits for it. */
#ifndef SOTTO_COMM_VIRTUAL_POOL_H
#define SOTTO_COMM_VIRTUAL_POOL_H

#include "comm/lane.h"

struct compute_pool;

struct pool_job {
    lane_job *work;
    void *arg;
    bool finished;
    struct status_note note; /* how it went */
    struct pool_job *next;
};

enum sotto_status pool_open(struct compute_pool **out, int threads); /* 0: one a core */
void pool_close(struct compute_pool *pool); /* all jobs finished; NULL is fine */

/* `job` is the caller's, untouched until pool_wait has returned; its status is the work's. */
void pool_start(struct compute_pool *pool, struct pool_job *job);
enum sotto_status pool_wait(struct compute_pool *pool, struct pool_job *job);

#endif

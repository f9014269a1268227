/* A lane: a second line of work beside a worker's own. Jobs run one after another in the order they
 * were started; they may call blocking comm on a communicator of the lane's own. Overlap, in every
 * method, is a lane.
 *
 *     TRY(lane_start(lane, allreduce_stage, &job[k]));     returns at once
 *     ...                                                  compute goes on
 *     TRY(lane_wait(lane));                                all started jobs are done
 *
 * A job that fails ends the lane: jobs behind it are not run, and lane_wait and lane_done return
 * its status and message, again and again. */
#ifndef SOTTO_COMM_LANE_H
#define SOTTO_COMM_LANE_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/status.h"

typedef enum sotto_status lane_job(void *arg);

struct lane;

struct lane_ops {
    enum sotto_status (*start)(struct lane *lane, lane_job *job, void *arg);
    enum sotto_status (*done)(struct lane *lane, bool *done); /* never blocks */
    enum sotto_status (*wait)(struct lane *lane);
    void (*close)(struct lane *lane); /* waits for the job that runs; those behind it are dropped */
};

struct lane {
    const struct lane_ops *ops;
    const struct clock *clock;
    double busy;    /* seconds that its jobs took          */
    double exposed; /* seconds that lane_wait kept waiting */
};

static inline enum sotto_status lane_start(struct lane *lane, lane_job *job, void *arg)
{
    return lane->ops->start(lane, job, arg);
}

static inline enum sotto_status lane_done(struct lane *lane, bool *done)
{
    return lane->ops->done(lane, done);
}

enum sotto_status lane_wait(struct lane *lane); /* counts what is exposed */
void lane_close(struct lane *lane);             /* NULL is fine           */

/* A lane that is a thread. */
enum sotto_status lane_thread(struct lane **out);

#endif

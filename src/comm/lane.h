/* A lane: a second thread of control next to a worker's own. Jobs run one after another in the
 * order in which they were started; a job may make blocking calls on the lane's own communicator.
 * Every method overlaps communication with computation by lanes.
 *
 *     TRY(lane_start(lane, allreduce_stage, &job[k]));     returns at once
 *     ...                                                  the worker computes
 *     TRY(lane_wait(lane));                                all started jobs are done
 *
 * A lane has a device context of its own. The ops of a job begin when all ops that the starter
 * issued before are done, and the job ends when its ops are done.
 *
 * A job that fails ends the lane: later jobs are not run, and every lane_wait and lane_done returns
 * the status and the message of this job. */
#ifndef SOTTO_COMM_LANE_H
#define SOTTO_COMM_LANE_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/comm.h"

typedef enum sotto_status lane_job(void *arg);

struct lane;

/* A started job and the point of the starter's device queue that the job must follow. */
struct lane_call {
    lane_job *job;
    void *arg;
    uint64_t mark; /* mark of lane->before; 0: none */
};

struct lane_ops {
    enum sotto_status (*start)(struct lane *lane, struct lane_call call);
    enum sotto_status (*done)(struct lane *lane, bool *done); /* does not block */
    /* Waits until at most `left` jobs are unfinished. */
    enum sotto_status (*wait)(struct lane *lane, size_t left);
    void (*close)(struct lane *lane); /* waits for the running job; drops the queued jobs */
    /* (optional, both) For lanes that stand still in a pause. `seconds_left` returns how many
     * seconds of the jobs in flight at the start of the pause remain; `delay` makes a lane of a
     * resumed run busy for the saved seconds. */
    double (*seconds_left)(const struct lane *lane);
    void (*delay)(struct lane *lane, double seconds);
    /* (optional) Makes all messages of the lane's jobs free of modelled time: they are not part of
     * the training. */
    void (*set_untimed)(struct lane *lane);
};

struct lane {
    const struct lane_ops *ops;
    const struct clock *clock;
    struct device *before; /* device of the starter, if its ops may still be pending when a job is
                              started; NULL: they are always done by then */
    struct lane *above;    /* lane that waits for this lane; NULL: a worker does */
    struct device *dev;    /* device of the jobs, not owned; NULL: the jobs use none */
    double busy;           /* seconds that jobs took */
    double exposed;        /* seconds that lane_wait blocked */
    _Atomic double others; /* seconds of `exposed` in calls, waiting for other ranks */
    _Atomic double wire;   /* seconds of `exposed` in transfers */
    _Atomic double work;   /* seconds of `exposed` in work over vectors */
    _Atomic double since;  /* begin of the current lane_wait; INFINITY: none */
};

/* For communicators: counts a call of the lane that lasted from `begin` to `end`, with its wait. */
void lane_count_call(struct lane *lane, double begin, struct comm_wait wait, double end);

/* For work over vectors in a job of the lane, from `begin` to `end`: counts the work. */
void lane_count_work(struct lane *lane, double begin, double end);

/* For backends. */
void lane_init(struct lane *lane, const struct lane_ops *ops, const struct clock *clock);
enum sotto_status lane_run(struct lane *lane, const struct lane_call *call);

/* Sets the device of the lane's jobs, which follow the ops issued to `before`; both may be NULL. */
void lane_bind(struct lane *lane, struct device *dev, struct device *before);

static inline enum sotto_status lane_start(struct lane *lane, lane_job *job, void *arg)
{
    return lane->ops->start(
        lane, (struct lane_call){job, arg, lane->before ? device_mark(lane->before).at : 0});
}

static inline enum sotto_status lane_done(struct lane *lane, bool *done)
{
    return lane->ops->done(lane, done);
}

/* Waits for all jobs, and counts the seconds as exposed. */
enum sotto_status lane_wait(struct lane *lane);
/* Waits for all jobs but the last `left` that were started. */
enum sotto_status lane_wait_but(struct lane *lane, size_t left);
void lane_close(struct lane *lane); /* NULL is fine */

/* Opens a lane that is a thread. */
enum sotto_status lane_open_thread(struct lane **out);

#endif

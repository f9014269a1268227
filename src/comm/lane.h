/* A lane: a second line of work beside a worker's own. Jobs run one after another in the order they
 * were started; they may call blocking comm on a communicator of the lane's own. Overlap, in every
 * method, is a lane.
 *
 *     TRY(lane_start(lane, allreduce_stage, &job[k]));     returns at once
 *     ...                                                  compute goes on
 *     TRY(lane_wait(lane));                                all started jobs are done
 *
 * A lane has a device context of its own. A job's ops begin when all that the starter issued before
 * is done, and a job ends when its ops have.
 *
 * A job that fails ends the lane: jobs behind it are not run, and lane_wait and lane_done return
 * its status and message, again and again. */
#ifndef SOTTO_COMM_LANE_H
#define SOTTO_COMM_LANE_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/comm.h"

typedef enum sotto_status lane_job(void *arg);

struct lane;

/* A job that was started, behind what the starter's device was to do by then. */
struct lane_call {
    lane_job *job;
    void *arg;
    uint64_t mark; /* of lane->before */
};

struct lane_ops {
    enum sotto_status (*start)(struct lane *lane, struct lane_call call);
    enum sotto_status (*done)(struct lane *lane, bool *done); /* never blocks */
    /* Until no more than `left` jobs are undone. */
    enum sotto_status (*wait)(struct lane *lane, size_t left);
    void (*close)(struct lane *lane); /* waits for the job that runs; those behind it are dropped */
    /* (optional, both) Where lanes stand still in a pause: how many seconds of what was
     * under way when it began are still to come behind it; and, for a run that goes on from what
     * was saved there, waits for them. */
    double (*seconds_left)(const struct lane *lane);
    void (*delay)(struct lane *lane, double seconds);
    /* (optional) What its jobs send is no part of the training, and takes no time where that is
     * modelled. */
    void (*set_untimed)(struct lane *lane);
};

struct lane {
    const struct lane_ops *ops;
    const struct clock *clock;
    struct device *before; /* of who starts its jobs, if its ops may be late; NULL: they are
                              done when a job is started                                */
    struct lane *above;    /* that waits for this one; NULL: a worker does              */
    struct device *dev;    /* of its jobs; NULL: they have none; not owned              */
    double busy;           /* seconds that its jobs took                                */
    double exposed;        /* seconds that lane_wait kept waiting, of these in calls ... */
    _Atomic double others; /* ... for ranks that had not come                           */
    _Atomic double wire;   /* ... for the wire                                          */
    _Atomic double work;   /* ... and in work over vectors                              */
    _Atomic double since;  /* when the wait under way began; INFINITY: nobody waits     */
};

/* For communicators: a call of the lane lasted from begin to end and waited for others meanwhile.
 */
void lane_count_call(struct lane *lane, double begin, struct comm_wait wait, double end);

/* For whoever works over vectors in a job of the lane. */
void lane_count_work(struct lane *lane, double begin, double end);

/* For backends. */
void lane_init(struct lane *lane, const struct lane_ops *ops, const struct clock *clock);
enum sotto_status lane_run(struct lane *lane, const struct lane_call *call);

/* Its jobs work on `dev`, behind what was issued to `before`; both may be NULL. */
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

enum sotto_status lane_wait(struct lane *lane); /* counts what is exposed */
/* The same for all jobs but the last `left` that were started. */
enum sotto_status lane_wait_but(struct lane *lane, size_t left);
void lane_close(struct lane *lane); /* NULL is fine */

/* A lane that is a thread. */
enum sotto_status lane_open_thread(struct lane **out);

#endif

#include "comm/virtual/lane.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/virtual/virtual_impl.h"

/* A started job and the time of its start: the starter's clock may be ahead of the lane's. */
struct virtual_job {
    struct lane_call call;
    double at;
};

struct virtual_lane { /* fields of every job first, large fields last */
    struct lane base;
    bool failed, closing;
    bool paused_busy;          /* true if jobs were in flight when the current pause began */
    struct virtual_job *queue; /* a ring of `room` entries, a power of two */
    size_t room, started, finished;
    struct virtual_process *waiter; /* process in lane_wait or lane_close; NULL: none */
    size_t unawaited;               /* last jobs that the waiter does not wait for */
    double paused;                  /* begin of the current pause */
    double began;      /* arrival at the collective that the lane waits in without running */
    double shift;      /* seconds by which pauses delay the jobs in flight */
    double busy_until; /* earliest time at which finished jobs count as done */
    double polled_at;  /* time of the last lane_done */
    int polls;         /* lane_done calls in a row at this time */
    struct virtual_lane *next, **link; /* other open lanes of the worker */
    struct virtual_process process;
    struct status_note failure; /* of the first job that failed */
};

static struct virtual_lane *lane_of(const struct virtual_process *p)
{
    assert(p->is_lane);
    return (struct virtual_lane *)((char *)p - offsetof(struct virtual_lane, process));
}

static bool virtual_lane_idle(const struct virtual_lane *l)
{
    return l->started == l->finished || l->failed;
}

static bool lane_settled(const struct virtual_lane *l, size_t left)
{
    return l->started - l->finished <= left || l->failed;
}

static enum sotto_status failure_of(const struct virtual_lane *l)
{
    return l->failed ? status_raise(&l->failure) : SOTTO_OK;
}

/* Settles the delay of pauses when no job is in flight, at the time `now`. */
static void settle_delay(struct virtual_lane *l, double now)
{
    if (l->shift > 0)
        l->busy_until = now + l->shift;
    l->shift = 0;
}

static void wake_waiter(struct virtual_lane *l)
{
    struct virtual_process *waiter = l->waiter;
    l->waiter = NULL;
    if (waiter)
        virtual_wake(waiter, l->process.time);
}

static const struct virtual_job *next_job(const struct virtual_lane *l)
{
    return &l->queue[l->finished & (l->room - 1)];
}

/* Ends a job that lasted from `begin` to `end`. */
static void end_job(struct virtual_lane *l, double begin, double end)
{
    l->base.busy += end - begin;
    l->finished++;
    if (virtual_lane_idle(l))
        settle_delay(l, end);
}

static void fail_with(struct virtual_lane *l, const struct status_note *why)
{
    l->failure = *why;
    l->failed = true;
}

static bool join_collective(struct virtual_lane *l);

/* Ends the collective that the lane waited in without running. `end` may be in the future: jobs
 * finished by then count as done from then on. */
static void leave_collective(struct virtual_process *p, double met, double end,
                             const struct status_note *failure)
{
    struct virtual_lane *l = lane_of(p);
    const struct comm_collective *a = next_job(l)->call.arg;
    struct comm *c = a->comm;
    p->collective_over = NULL;
    p->state = PROCESS_IDLE;
    p->time = fmax(p->time, end);
    c->wait.to = met;
    if (failure->code == SOTTO_OK)
        comm_count(c, a->call, a->x.type, a->count, l->began, p->time);
    else
        fail_with(l, failure);
    end_job(l, l->began, p->time);
    l->busy_until = fmax(l->busy_until, p->time);
    if (l->closing || (!virtual_lane_idle(l) && !join_collective(l)))
        virtual_wake(p, p->time);
    else if (virtual_lane_idle(l))
        wake_waiter(l);
}

/* Makes an idle lane arrive at a collective without a turn of its process, if that is the next job.
 * Of thousands of lanes that gather and reduce, most only arrive and wait. False if the job needs
 * the process. */
static bool join_collective(struct virtual_lane *l)
{
    const struct virtual_job *job = next_job(l);
    struct virtual_process *p = &l->process;
    if (job->call.job != comm_collect || l->base.before || p->untimed || p->sim->current->untimed)
        return false;
    if (job->at > p->time)
        settle_delay(l, p->time); /* no job is in flight until then */
    const double begin = fmax(fmax(p->time, job->at), l->busy_until);
    l->began = begin;
    return virtual_join_collective(job->call.arg, p, begin, leave_collective);
}

/* Runs the next job in the running process. False, with the time in *begins, if the job begins
 * later. */
static bool run_queued_job(struct virtual_lane *l, double *begins)
{
    struct virtual_sim *sim = l->process.sim;
    const double begin = sim->current->time;
    const struct virtual_job job = *next_job(l);
    if (job.at > begin) { /* no job is in flight until then */
        settle_delay(l, begin);
        *begins = fmax(job.at, l->busy_until);
        return false;
    }
    enum sotto_status st = lane_run(&l->base, &job.call);
    if (sim->current == &l->process)
        virtual_sync_clock(sim); /* the worker sees the end of the job */
    if (st != SOTTO_OK) {
        status_save(&l->failure, st);
        l->failed = true;
    }
    end_job(l, begin, sim->current->time);
    return true;
}

static void virtual_lane_serve(void *arg)
{
    struct virtual_lane *l = arg;
    struct virtual_sim *sim = l->process.sim;
    double begins;
    while (!l->closing) {
        if (l->process.collective_over) { /* the run was stopped in the collective */
            l->process.collective_over = NULL;
            fail_with(l, &sim->stop);
            end_job(l, l->began, l->process.time);
            wake_waiter(l);
        } else if (virtual_lane_idle(l))
            virtual_block_unstoppable(sim, PROCESS_IDLE, "lane");
        else if (!run_queued_job(l, &begins))
            virtual_advance(sim, begins);
        else if (lane_settled(l, l->unawaited))
            wake_waiter(l);
    }
    wake_waiter(l);
}

/* Runs the lane's jobs in the waiting process, if the lane has not begun them: one turn instead of
 * three. The waiter's clock goes back to the begin of the jobs on the lane; the waiter has done
 * nothing visible since. */
static void serve_by_waiter(struct virtual_lane *l)
{
    struct virtual_sim *sim = l->process.sim;
    struct virtual_process *self = sim->current;
    const double time = self->time;
    double begins;
    self->time = l->process.time;
    self->untimed = l->process.untimed;
    while (!virtual_lane_idle(l))
        if (!run_queued_job(l, &begins))
            virtual_advance_alone(sim, begins);
    l->process.time = self->time;
    self->untimed = false;
    virtual_advance_alone(sim, time);
}

static enum sotto_status grow_queue(struct virtual_lane *l)
{
    size_t room = l->room ? 2 * l->room : 16;
    struct virtual_job *queue = malloc(room * sizeof *queue);
    if (!queue)
        return fail(SOTTO_ENOMEM, "no memory for %zu jobs of a lane", room);
    for (size_t i = l->finished; i != l->started; i++)
        queue[i & (room - 1)] = l->queue[i & (l->room - 1)];
    free(l->queue);
    l->queue = queue;
    l->room = room;
    return SOTTO_OK;
}

static enum sotto_status virtual_lane_start(struct lane *lane, struct lane_call call)
{
    struct virtual_lane *l = (struct virtual_lane *)lane;
    TRY(failure_of(l));
    if (l->started - l->finished == l->room)
        TRY(grow_queue(l));
    const double now = l->process.sim->current->time;
    l->queue[l->started++ & (l->room - 1)] = (struct virtual_job){call, now};
    if (l->process.state != PROCESS_IDLE || (l->started - l->finished == 1 && join_collective(l)))
        return SOTTO_OK;
    virtual_wake_later(&l->process, fmax(now, l->busy_until));
    return SOTTO_OK;
}

static enum sotto_status virtual_lane_done(struct lane *lane, bool *is_done)
{
    enum { MOST = 100000 };
    struct virtual_lane *l = (struct virtual_lane *)lane;
    struct virtual_sim *sim = l->process.sim;
    virtual_sync_clock(sim);
    if (!virtual_lane_idle(l))
        virtual_defer(sim, LATE_LAST); /* a job that ends exactly now has ended */
    *is_done = virtual_lane_idle(l) && sim->current->time >= l->busy_until;
    double now = sim->current->time;
    l->polls = !*is_done && now == l->polled_at ? l->polls + 1 : 0;
    l->polled_at = now;
    if (l->polls > MOST)
        return fail(
            SOTTO_EINVAL,
            "virtual time stands still at %g s: %d calls of lane_done, and nothing between them "
            "costs time",
            now, l->polls);
    return failure_of(l);
}

static void block_waiter(struct virtual_lane *l, size_t left, const char *what)
{
    struct virtual_sim *sim = l->process.sim;
    assert(!l->waiter);
    l->waiter = sim->current;
    l->unawaited = left;
    virtual_block_unstoppable(sim, PROCESS_WAITING, what); /* an abort ends the job itself */
}

/* Counts a wait for jobs that pauses have delayed as transfer. */
static void wait_until(struct virtual_lane *l, double from, double until)
{
    if (until > from)
        lane_count_call(&l->base, from, (struct comm_wait){from, from}, until);
}

static enum sotto_status virtual_lane_wait(struct lane *lane, size_t left)
{
    struct virtual_lane *l = (struct virtual_lane *)lane;
    struct virtual_sim *sim = l->process.sim;
    const bool pauses = sim->current->untimed;
    if (l->shift > 0)
        virtual_sync_clock(sim); /* sees if the lane is idle now */
    double now = sim->current->time;
    if (!pauses) { /* jobs started by then begin after the delay */
        wait_until(l, now, l->busy_until);
        now = fmax(now, l->busy_until);
    }
    if (!left && !virtual_lane_idle(l) && !pauses && virtual_cancel_wake(&l->process))
        serve_by_waiter(l);
    else if (!lane_settled(l, left))
        block_waiter(l, left, "lane_wait");
    if (!pauses && left && l->shift > 0) /* jobs in flight are done after the delay */
        virtual_advance_alone(sim, sim->current->time + l->shift);
    if (!pauses) {
        wait_until(l, fmax(now, sim->current->time), l->busy_until);
        virtual_advance_alone(sim, l->busy_until);
    }
    return failure_of(l);
}

void virtual_lanes_pause(struct virtual_lane *all, double now)
{
    for (struct virtual_lane *l = all; l; l = l->next) {
        l->paused_busy = !virtual_lane_idle(l) || l->busy_until > now;
        l->paused = now;
    }
}

/* Returns the seconds that remained of the jobs in flight when the pause began. The lane is idle by
 * now. */
static double seconds_left_over(const struct virtual_lane *l)
{
    return fmax(0, fmax(l->busy_until, l->process.time) - l->paused);
}

/* Ends a pause. Remaining seconds are added as in virtual_lane_delay, so that a resumed run rounds
 * alike. */
void virtual_lanes_end_pause(struct virtual_lane *all, double now)
{
    for (struct virtual_lane *l = all; l; l = l->next) {
        if (!l->paused_busy)
            continue;
        if (virtual_lane_idle(l))
            l->busy_until = now + seconds_left_over(l);
        else
            l->shift += now - l->paused;
        l->paused_busy = false;
    }
}

static double virtual_lane_seconds_left(const struct lane *lane)
{
    const struct virtual_lane *l = (const struct virtual_lane *)lane;
    return l->paused_busy ? seconds_left_over(l)
                          : fmax(0, l->busy_until - l->process.sim->current->time);
}

static void virtual_lane_delay(struct lane *lane, double seconds)
{
    struct virtual_lane *l = (struct virtual_lane *)lane;
    l->busy_until = l->process.sim->current->time + seconds;
}

static void virtual_lane_set_untimed(struct lane *lane)
{
    ((struct virtual_lane *)lane)->process.untimed = true;
}

static void release_lane(struct virtual_lane *l)
{
    if ((*l->link = l->next))
        l->next->link = l->link;
    virtual_process_free(&l->process);
    free(l->queue);
    free(l);
}

static void virtual_lane_close(struct lane *lane)
{
    struct virtual_lane *l = (struct virtual_lane *)lane;
    virtual_sync_clock(l->process.sim);
    l->closing = true;
    if (l->process.state == PROCESS_IDLE)
        virtual_wake(&l->process, l->process.sim->current->time);
    if (l->process.state != PROCESS_ENDED)
        block_waiter(l, 0, "lane_close");
    release_lane(l);
}

static const struct lane_ops virtual_lane_ops = {.start = virtual_lane_start,
                                                 .done = virtual_lane_done,
                                                 .wait = virtual_lane_wait,
                                                 .close = virtual_lane_close,
                                                 .seconds_left = virtual_lane_seconds_left,
                                                 .delay = virtual_lane_delay,
                                                 .set_untimed = virtual_lane_set_untimed};

enum sotto_status virtual_lane_open(struct virtual_sim *sim, int rank, struct virtual_lane **all,
                                    struct lane **out)
{
    *out = NULL;
    virtual_sync_clock(sim);
    struct virtual_lane *l = calloc(1, sizeof *l);
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for a lane");
    lane_init(&l->base, &virtual_lane_ops, &sim->clock);
    enum sotto_status st = virtual_process_init(&l->process, sim, rank, virtual_lane_serve, l);
    if (st != SOTTO_OK) {
        free(l);
        return st;
    }
    l->process.is_lane = true;
    l->link = all;
    if ((l->next = *all))
        l->next->link = &l->next;
    *all = l;
    *out = &l->base;
    return SOTTO_OK;
}

const struct status_note *virtual_lane_failure(const struct virtual_process *p)
{
    return &lane_of(p)->failure;
}

void virtual_lanes_free(struct virtual_lane **all)
{
    while (*all)
        release_lane(*all);
}

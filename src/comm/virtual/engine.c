/* The engine of a simulated cluster: workers are processes in virtual time (sim.h), and the
 * configuration gives the cost of their computations. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "comm/virtual/world.h"
#include "comm/virtual/lane.h"
#include "comm/worker.h"

struct virtual_worker {
    struct worker base;
    struct virtual_cluster *cluster;
    struct virtual_process process;
    double trained;             /* seconds of training, set in end_pause */
    double paused;              /* begin of the current pause */
    struct virtual_lane *lanes; /* list of open lanes */
    worker_job *job;
    void *arg;
};

struct virtual_cluster {
    struct virtual_sim sim;
    const struct engine_config *config;
    struct virtual_worker *worker; /* (workers) */
    int met;                       /* workers that have arrived in end_pause */
    struct compute_pool *pool;     /* NULL until the first computation */
    int *one_node; /* (workers) zeros, if the configuration has no nodes; else NULL */
};

static struct virtual_cluster *cluster_of(struct worker *w)
{
    return ((struct virtual_worker *)w)->cluster;
}

static enum sotto_status virtual_open_lane(struct worker *w, struct lane **out)
{
    struct virtual_worker *v = (struct virtual_worker *)w;
    return virtual_lane_open(&v->cluster->sim, w->rank, &v->lanes, out);
}

/* Runs work that takes `seconds` of virtual time, on another thread unless it only issues to a GPU.
 * The work begins at once; the process continues after all events before the end of the work. Work
 * that takes no time ends after all other events of its time that are no such work, so that the
 * work of many workers runs in parallel. In a lane's job, the lane does the work. */
static enum sotto_status spend_time(struct virtual_cluster *k, lane_job *work, void *arg,
                                    double seconds)
{
    struct virtual_sim *sim = &k->sim;
    struct virtual_process *p = sim->current;
    TRY(status_raise(&sim->stop));
    if (!work) { /* thousands of computing workers need not take turns */
        virtual_advance_alone(sim, p->time + seconds);
        return SOTTO_OK;
    }
    if (k->config->issues) {
        TRY(work(arg));
    } else {
        if (!k->pool)
            TRY(pool_open(&k->pool, k->config->cores));
        p->job.work = work;
        p->job.arg = arg;
        pool_start(k->pool, &p->job);
    }
    if (seconds > 0)
        virtual_advance(sim, p->time + seconds);
    else
        virtual_defer(sim, LATE_WORK);
    return k->config->issues ? SOTTO_OK : pool_wait(k->pool, &p->job);
}

static double at_speed(const struct engine_config *config, const struct worker *w, double seconds)
{
    return config->speed ? seconds / config->speed[w->rank] : seconds;
}

/* Returns the jitter of the current micro-batch, the same for all its parts: a function of the
 * worker and the number of the micro-batch, so that other work, or a resume, changes nothing. */
static double jitter_factor(const struct engine_config *config, const struct worker *w)
{
    float z;
    struct rng rng = rng_make(config->seed, (uint64_t)w->rank);
    rng.block = (uint64_t)w->computing; /* one block gives one number */
    rng_normal(&rng, &z, 1, 0, 1);
    /* Log-normal with mean 1 and the configured standard deviation: very long times may occur, but
     * no time of zero. */
    const double variance = log1p(config->jitter * config->jitter);
    return exp(sqrt(variance) * (double)z - variance / 2);
}

static enum sotto_status virtual_compute(struct worker *w, lane_job *work, void *arg,
                                         double seconds)
{
    struct virtual_cluster *k = cluster_of(w);
    assert(seconds >= 0);
    double cost = at_speed(k->config, w, seconds);
    if (k->config->jitter > 0 && cost > 0)
        cost *= jitter_factor(k->config, w);
    return spend_time(k, work, arg, cost);
}

static enum sotto_status virtual_move(struct worker *w, lane_job *work, void *arg, double bytes)
{
    enum { SMALL = 1 << 18 }; /* bytes of work that ends before another thread would begin */
    struct virtual_cluster *k = cluster_of(w);
    assert(bytes >= 0);
    TRY(status_raise(&k->sim.stop));
    if (work && bytes <= SMALL) {
        TRY(work(arg));
        work = NULL;
    }
    if (!work && w->memory <= 0)
        return SOTTO_OK; /* thousands of workers need no turns */
    return spend_time(k, work, arg, w->memory > 0 ? at_speed(k->config, w, bytes / w->memory) : 0);
}

static void virtual_sync_worker(struct worker *w)
{
    virtual_sync_clock(&cluster_of(w)->sim);
}

static void virtual_pause(struct worker *w)
{
    struct virtual_worker *v = (struct virtual_worker *)w;
    virtual_sync_clock(&v->cluster->sim);
    v->paused = v->process.time;
    v->process.untimed = true;
    virtual_lanes_pause(v->lanes, v->paused);
}

/* Ends the pause of worker `v` at `time`. */
static void end_pause(struct virtual_worker *v, double time)
{
    if (v->process.untimed)
        virtual_lanes_end_pause(v->lanes, time);
    v->process.untimed = false;
}

/* Ends a pause for all workers when the last has arrived, which has the latest clock. */
static enum sotto_status virtual_end_pause(struct worker *w, double seconds, double least)
{
    struct virtual_worker *v = (struct virtual_worker *)w;
    struct virtual_cluster *k = v->cluster;
    virtual_advance(&k->sim, least);
    TRY(status_raise(&k->sim.stop));
    v->trained = seconds;
    if (++k->met < w->size)
        return virtual_block(&k->sim, "end_pause", -1);
    k->met = 0;
    const double last = v->process.time;
    double first = seconds;
    for (int r = 0; r < w->size; r++)
        first = fmin(first, k->worker[r].trained);
    for (int r = 0; r < w->size; r++) {
        const double time = last + (k->worker[r].trained - first);
        end_pause(&k->worker[r], time);
        if (r != w->rank)
            virtual_wake(&k->worker[r].process, time);
    }
    virtual_advance(&k->sim, last + (seconds - first));
    return SOTTO_OK;
}

static const struct worker_ops virtual_worker_ops = {
    "virtual",           virtual_open_lane, virtual_compute,  virtual_move,
    virtual_sync_worker, virtual_pause,     virtual_end_pause};

static void run_worker(void *arg)
{
    struct virtual_worker *v = arg;
    struct virtual_sim *sim = &v->cluster->sim;
    enum sotto_status st = v->job(&v->base, v->arg);
    virtual_sync_clock(sim);
    if (st != SOTTO_OK && sim->stop.code == SOTTO_OK) {
        struct status_note note;
        status_save(&note, fail_in(st, "worker %d: ", v->base.rank));
        virtual_stop_run(sim, &note);
    }
    virtual_world_leave(v->base.world);
}

/* Explains why no process can run while some wait: by a failed job of a lane, whose worker had no
 * chance to notice, or else by the calls in which processes wait. A failed worker that waits for
 * its lane to close is named too. */
static void explain_deadlock(const struct virtual_sim *sim, struct status_note *note)
{
    enum { NAMED = 8 };
    char text[STATUS_ROOM] = "";
    size_t used = 0;
    int waiting = 0;
    for (struct virtual_process *p = sim->first; p; p = p->next) {
        if (p->is_lane && status_raise(virtual_lane_failure(p)) != SOTTO_OK) {
            enum sotto_status st = virtual_lane_failure(p)->code;
            status_save(note, fail_in(st, "worker %d: ", p->rank));
            return;
        }
        if (p->state != PROCESS_WAITING || waiting++ >= NAMED)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%sworker %d%s in %s",
                                 waiting > 1 ? ", " : "", p->rank, p->is_lane ? "'s lane" : "",
                                 p->what);
        if (p->peer >= 0)
            used += (size_t)snprintf(text + used, sizeof text - used, " from rank %d", p->peer);
    }
    if (waiting > NAMED)
        snprintf(text + used, sizeof text - used, " and %d more", waiting - NAMED);
    status_save(note, fail(SOTTO_EPEER, "deadlock, no worker can continue: %s", text));
    for (struct virtual_process *p = sim->first; p; p = p->next)
        if (p->state == PROCESS_WAITING && !p->is_lane && p->has_error &&
            strcmp(p->what, "lane_close") == 0) {
            status_save(note, fail(SOTTO_EPEER, "%s; worker %d had failed: %s", note->text, p->rank,
                                   p->error.text));
            return;
        }
}

static bool all_workers_ended(const struct virtual_cluster *k)
{
    for (int r = 0; r < k->config->workers; r++)
        if (k->worker[r].process.state != PROCESS_ENDED)
            return false;
    return true;
}

/* Runs the simulation until no process can run: all have ended, or they wait for each other; the
 * waits are then ended with an explanation. */
static void run_cluster(struct virtual_cluster *k)
{
    virtual_sim_run(&k->sim);
    if (!all_workers_ended(k) && k->sim.stop.code == SOTTO_OK) {
        struct status_note note;
        explain_deadlock(&k->sim, &note);
        virtual_stop_run(&k->sim, &note);
        virtual_sim_run(&k->sim);
    }
}

static enum sotto_status check_config(const struct engine_config *config)
{
    if (config->workers < 1)
        return fail(SOTTO_EINVAL, "workers %d: want 1 or more", config->workers);
    if (!(config->jitter >= 0) || !isfinite(config->jitter))
        return fail(SOTTO_EINVAL, "jitter %g: want 0 or more", config->jitter);
    if (!(config->memory >= 0) || !isfinite(config->memory))
        return fail(SOTTO_EINVAL, "memory bandwidth %g bytes/s: want 0 for no limit, or more",
                    config->memory);
    if (config->cores < 0)
        return fail(SOTTO_EINVAL, "cores %d: want 0 for all, or more", config->cores);
    for (int r = 0; r < config->workers && config->speed; r++)
        if (!(config->speed[r] > 0) || !isfinite(config->speed[r]))
            return fail(SOTTO_EINVAL, "speed of worker %d is %g: want more than 0", r,
                        config->speed[r]);
    return SOTTO_OK;
}

/* Sets the nodes of the workers, their links, and their communicators. */
static enum sotto_status place_workers(struct virtual_cluster *k, struct comm **world)
{
    const struct engine_config *config = k->config;
    const int *node = config->node;
    if (!node && !(node = k->one_node = calloc((size_t)config->workers, sizeof *k->one_node)))
        return fail(SOTTO_ENOMEM, "no memory for %d simulated workers", config->workers);
    if (config->links)
        TRY(network_open(&k->sim.net, config->links, node, config->workers));
    return virtual_world(&k->sim, node, config->workers, world);
}

static enum sotto_status open_workers(struct virtual_cluster *k, struct comm *const *world,
                                      worker_job *job, void *arg)
{
    for (int r = 0; r < k->config->workers; r++) {
        struct virtual_worker *v = &k->worker[r];
        v->base = (struct worker){.ops = &virtual_worker_ops,
                                  .rank = r,
                                  .size = k->config->workers,
                                  .world = world[r],
                                  .clock = &k->sim.clock,
                                  .memory = k->config->memory};
        v->cluster = k;
        v->job = job;
        v->arg = arg;
        TRY(virtual_process_init(&v->process, &k->sim, r, run_worker, v));
    }
    return SOTTO_OK;
}

static void close_workers(struct virtual_cluster *k, struct comm *const *world)
{
    const int workers = k->config->workers;
    pool_close(k->pool);
    for (int r = 0; r < workers && k->worker; r++) {
        virtual_lanes_free(&k->worker[r].lanes);
        virtual_process_free(&k->worker[r].process);
    }
    virtual_sim_close(&k->sim);
    for (int r = 0; r < workers && world; r++)
        comm_free(world[r]);
    depot_close(&k->sim.depot);
    network_close(k->sim.net);
    free(k->worker);
    free(k->one_node);
}

enum sotto_status engine_virtual(const struct engine_config *config, worker_job *job, void *arg)
{
    TRY(check_config(config));
    enum sotto_status st = SOTTO_OK;
    struct virtual_cluster k = {.config = config};
    virtual_sim_open(&k.sim);
    struct comm **world = calloc((size_t)config->workers, sizeof *world);
    k.worker = calloc((size_t)config->workers, sizeof *k.worker);
    if (!k.worker || !world) {
        st = fail(SOTTO_ENOMEM, "no memory for %d simulated workers", config->workers);
        goto done;
    }
    TRY_DONE(place_workers(&k, world));
    TRY_DONE(open_workers(&k, world, job, arg));
    run_cluster(&k);
    st = status_raise(&k.sim.stop);
done:
    close_workers(&k, world);
    free(world);
    return st;
}

/* The scheduler of virtual.h, and the engine on top of it. */
#include "comm/virtual/virtual.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static struct virtual_turn turn_of(struct virtual_process *p)
{
    return (struct virtual_turn){p->time, (unsigned)p->id | (unsigned)p->late << 30, p};
}

/* Whether a runs before b. */
static bool before(struct virtual_turn a, struct virtual_turn b)
{
    return a.time < b.time || (a.time == b.time && a.order < b.order);
}

static void push(struct virtual_sim *sim, struct virtual_process *p)
{
    struct virtual_turn turn = turn_of(p);
    int i = sim->ready++;
    assert(i < sim->room);
    while (i > 0 && before(turn, sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = turn;
}

/* `turn`, which need not be in the heap, takes the first one's place. */
static void replace_first(struct virtual_sim *sim, struct virtual_turn turn)
{
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= sim->ready)
            break;
        if (child + 1 < sim->ready && before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!before(sim->heap[child], turn))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = turn;
}

static struct virtual_process *pop(struct virtual_sim *sim)
{
    struct virtual_process *first = sim->heap[0].process;
    if (--sim->ready > 0)
        replace_first(sim, sim->heap[sim->ready]);
    return first;
}

/* The error message, one a thread, stays with its process. */
static void keep_message(struct virtual_process *p)
{
    p->said = sotto_error()[0];
    if (p->said)
        status_save(&p->kept, SOTTO_EPEER);
}

static void restore_message(const struct virtual_process *p)
{
    if (p->said)
        status_raise(&p->kept);
    else if (sotto_error()[0])
        fail(SOTTO_OK, "%s", ""); /* another's */
}

/* With thousands of processes a turn is little but waiting for memory, so that of the next turns is
 * asked for during this one: the stack of the first in the heap, and what tells where the stack of
 * the second is. */
static void expect(const struct virtual_sim *sim)
{
    if (sim->ready)
        fiber_expect(&sim->heap[0].process->fiber);
    for (int i = 1; i < sim->ready && i <= 2; i++) {
        __builtin_prefetch(&sim->heap[i].process->time);
        __builtin_prefetch(&sim->heap[i].process->fiber);
    }
}

/* To another process, or home when nothing can run. */
static void switch_to(struct virtual_sim *sim, struct virtual_process *to, bool last)
{
    struct virtual_process *from = sim->current;
    if (from)
        keep_message(from);
    expect(sim);
    sim->current = to;
    fiber_switch(from ? &from->fiber : &sim->home, to ? &to->fiber : &sim->home, last);
    if (from)
        restore_message(from);
}

/* What ends on the links before anything else happens, or at `until`. A stopped run's links stand
 * still: nobody waits for them any more. */
static void end_flows(struct virtual_sim *sim, double until)
{
    while (sim->net && sim->stop.code == SOTTO_OK) {
        const double next = network_next(sim->net);
        if (next == INFINITY || next > until || (sim->ready && next > sim->heap[0].time))
            break;
        network_end_next(sim->net);
    }
}

static void switch_to_next(struct virtual_sim *sim, bool last)
{
    end_flows(sim, INFINITY);
    switch_to(sim, sim->ready ? pop(sim) : NULL, last);
}

/* The running process goes back into the heap, and on when it is the first of it. */
static void requeue(struct virtual_sim *sim)
{
    struct virtual_turn turn = turn_of(sim->current);
    end_flows(sim, turn.time);
    if (sim->ready && before(sim->heap[0], turn)) {
        struct virtual_process *next = sim->heap[0].process;
        replace_first(sim, turn);
        switch_to(sim, next, false);
    }
}

void virtual_advance(struct virtual_sim *sim, double to)
{
    if (to > sim->current->time)
        sim->current->time = to;
    requeue(sim);
}

static void let_pass(struct virtual_sim *sim, enum process_late late)
{
    struct virtual_process *p = sim->current;
    p->late = late;
    requeue(sim);
    p->late = LATE_NOT;
}

void virtual_defer(struct virtual_sim *sim)
{
    let_pass(sim, LATE_LAST);
}

static void block(struct virtual_sim *sim, enum process_state state, bool stoppable,
                  const char *what, int detail)
{
    struct virtual_process *p = sim->current;
    p->state = state;
    p->stoppable = stoppable;
    p->stopped = false;
    p->what = what;
    p->detail = detail;
    switch_to_next(sim, false);
}

enum sotto_status virtual_block(struct virtual_sim *sim, const char *what, int detail)
{
    struct virtual_process *p = sim->current;
    block(sim, PROCESS_WAITING, true, what, detail);
    return p->stopped ? status_raise(&sim->stop) : SOTTO_OK;
}

void virtual_block_unstoppable(struct virtual_sim *sim, enum process_state state, const char *what)
{
    block(sim, state, false, what, -1);
}

static void run_process(void *arg)
{
    struct virtual_process *p = arg;
    restore_message(p);
    p->body(p->arg);
    p->state = PROCESS_ENDED;
    switch_to_next(p->sim, true);
}

void virtual_wake(struct virtual_process *p, double time)
{
    assert(p->state == PROCESS_WAITING || p->state == PROCESS_IDLE);
    p->state = PROCESS_READY;
    if (time > p->time)
        p->time = time;
    push(p->sim, p);
}

void virtual_stop(struct virtual_sim *sim, const struct status_note *note)
{
    if (sim->stop.code != SOTTO_OK)
        return;
    sim->stop = *note;
    double now = sim->current ? sim->current->time : 0;
    for (struct virtual_process *p = sim->first; p; p = p->next) {
        if (p->state == PROCESS_WAITING && p->stoppable) {
            p->stopped = true;
            virtual_wake(p, now);
        }
    }
}

enum sotto_status virtual_process_init(struct virtual_process *p, struct virtual_sim *sim, int rank,
                                       void (*body)(void *), void *arg)
{
    if (sim->processes == sim->room) {
        int room = sim->room ? 2 * sim->room : 64;
        struct virtual_turn *heap = realloc(sim->heap, (size_t)room * sizeof *heap);
        if (!heap)
            return fail(SOTTO_ENOMEM, "no memory for %d simulated processes", room);
        sim->heap = heap;
        sim->room = room;
    }
    TRY(fiber_init(&p->fiber, run_process, p));
    p->body = body;
    p->arg = arg;
    p->sim = sim;
    p->id = sim->next_id++;
    p->rank = rank;
    p->time = sim->current ? sim->current->time : 0;
    p->state = PROCESS_READY;
    sim->processes++;
    p->next = NULL;
    p->link = sim->last;
    *sim->last = p;
    sim->last = &p->next;
    push(sim, p);
    return SOTTO_OK;
}

void virtual_process_free(struct virtual_process *p)
{
    if (!p->sim)
        return; /* never begun */
    fiber_free(&p->fiber);
    p->sim->processes--;
    if ((*p->link = p->next))
        p->next->link = p->link;
    else
        p->sim->last = p->link;
}

static double now(const struct clock *clock)
{
    const struct virtual_sim *sim = (const struct virtual_sim *)clock;
    return sim->current ? sim->current->time : 0;
}

static enum sotto_status open_lane(struct worker *w, struct lane **out)
{
    struct virtual_worker *v = (struct virtual_worker *)w;
    return virtual_lane_open(v->process.sim, w->rank, out);
}

/* Work begins at once on another thread; its process goes on when all that happens before its end
 * has happened: where it takes no time, all else of this time that does not wait like it, so that
 * such work of many workers runs at once. Called from a lane's job, it is the lane that works. */
static enum sotto_status spend(struct virtual_sim *sim, lane_job *work, void *arg, double seconds)
{
    struct virtual_process *p = sim->current;
    TRY(status_raise(&sim->stop));
    if (!work) {
        virtual_advance(sim, p->time + seconds);
        return SOTTO_OK;
    }
    if (!sim->pool)
        TRY(pool_open(&sim->pool, sim->config->cores));
    p->job.work = work;
    p->job.arg = arg;
    pool_start(sim->pool, &p->job);
    if (seconds > 0)
        virtual_advance(sim, p->time + seconds);
    else
        let_pass(sim, LATE_WORK);
    return pool_wait(sim->pool, &p->job);
}

static double at_speed(const struct virtual_sim *sim, const struct worker *w, double seconds)
{
    return sim->config->speed ? seconds / sim->config->speed[w->rank] : seconds;
}

/* A function of the worker and of the number of its computation: what else a run does, or that it
 * was resumed, changes nothing. */
static double jitter(const struct virtual_sim *sim, struct worker *w)
{
    float z;
    struct rng rng = rng_make(sim->config->seed, (uint64_t)w->rank);
    rng.block = (uint64_t)w->computed; /* one is enough for a number */
    rng_normal(&rng, &z, 1, 0, 1);
    return fmax(0.1, 1 + sim->config->jitter * (double)z);
}

static enum sotto_status compute(struct worker *w, lane_job *work, void *arg, double seconds)
{
    struct virtual_sim *sim = ((struct virtual_worker *)w)->process.sim;
    assert(seconds >= 0);
    double cost = at_speed(sim, w, seconds);
    if (sim->config->jitter > 0 && cost > 0)
        cost *= jitter(sim, w);
    w->computed += cost > 0;
    return spend(sim, work, arg, cost);
}

static enum sotto_status move(struct worker *w, lane_job *work, void *arg, double bytes)
{
    enum { SMALL = 1 << 18 }; /* bytes: done before another thread would have begun */
    struct virtual_sim *sim = ((struct virtual_worker *)w)->process.sim;
    assert(bytes >= 0);
    TRY(status_raise(&sim->stop));
    if (work && bytes <= SMALL) {
        TRY(work(arg));
        work = NULL;
    }
    if (!work && w->memory <= 0)
        return SOTTO_OK; /* thousands of workers need not take turns for nothing */
    return spend(sim, work, arg, w->memory > 0 ? at_speed(sim, w, bytes / w->memory) : 0);
}

/* The last one to come has the latest clock. */
static enum sotto_status go_on(struct worker *w, double seconds)
{
    struct virtual_worker *v = (struct virtual_worker *)w;
    struct virtual_sim *sim = v->process.sim;
    TRY(status_raise(&sim->stop));
    v->trained = seconds;
    if (++sim->met < w->size)
        return virtual_block(sim, "go_on", -1);
    sim->met = 0;
    const double last = v->process.time;
    double least = seconds;
    for (int r = 0; r < w->size; r++)
        least = fmin(least, sim->worker[r].trained);
    for (int r = 0; r < w->size; r++)
        if (r != w->rank)
            virtual_wake(&sim->worker[r].process, last + (sim->worker[r].trained - least));
    virtual_advance(sim, last + (seconds - least));
    return SOTTO_OK;
}

static const struct worker_ops virtual_worker_ops = {"virtual", open_lane, compute, move, go_on};

static void run_worker(void *arg)
{
    struct virtual_worker *v = arg;
    struct virtual_sim *sim = v->process.sim;
    enum sotto_status st = v->job(&v->base, v->arg);
    if (st != SOTTO_OK && sim->stop.code == SOTTO_OK) {
        struct status_note note;
        status_save(&note, fail_in(st, "worker %d: ", v->base.rank));
        virtual_stop(sim, &note);
    }
}

/* Nothing can run and some wait. A lane whose job failed is the reason, where there is one: its
 * worker had no chance to notice. A worker that failed but cannot close its lane had none to tell.
 */
static void explain_deadlock(struct virtual_sim *sim, struct status_note *note)
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
        if (p->detail >= 0)
            used += (size_t)snprintf(text + used, sizeof text - used, " from rank %d", p->detail);
    }
    if (waiting > NAMED)
        snprintf(text + used, sizeof text - used, " and %d more", waiting - NAMED);
    status_save(note, fail(SOTTO_EPEER, "the workers wait for what never comes: %s", text));
    for (struct virtual_process *p = sim->first; p; p = p->next)
        if (p->state == PROCESS_WAITING && !p->is_lane && p->said &&
            strcmp(p->what, "lane_close") == 0) {
            status_save(note, fail(SOTTO_EPEER, "%s; worker %d had failed: %s", note->text, p->rank,
                                   p->kept.text));
            return;
        }
}

static bool all_ended(const struct virtual_sim *sim)
{
    for (int r = 0; r < sim->config->workers; r++)
        if (sim->worker[r].process.state != PROCESS_ENDED)
            return false;
    return true;
}

/* Runs until nothing can: all have ended, or they wait for each other; then they are told so, once.
 */
static void run(struct virtual_sim *sim)
{
    switch_to_next(sim, false);
    if (!all_ended(sim) && sim->stop.code == SOTTO_OK) {
        struct status_note note;
        explain_deadlock(sim, &note);
        virtual_stop(sim, &note);
        if (sim->ready)
            switch_to_next(sim, false);
    }
}

static enum sotto_status check_config(const struct engine_config *config)
{
    if (config->workers < 1)
        return fail(SOTTO_EINVAL, "a simulated cluster needs a worker, got %d", config->workers);
    if (!(config->jitter >= 0) || !isfinite(config->jitter))
        return fail(SOTTO_EINVAL, "jitter %g: want 0 or more", config->jitter);
    if (!(config->memory >= 0) || !isfinite(config->memory))
        return fail(SOTTO_EINVAL, "memory of %g bytes a second: want 0 for no limit, or more",
                    config->memory);
    if (config->cores < 0)
        return fail(SOTTO_EINVAL, "cores %d: want 0 for all, or more", config->cores);
    for (int r = 0; r < config->workers && config->speed; r++)
        if (!(config->speed[r] > 0) || !isfinite(config->speed[r]))
            return fail(SOTTO_EINVAL, "speed of worker %d is %g: want more than 0", r,
                        config->speed[r]);
    return SOTTO_OK;
}

/* Where they run, and what links they have. */
static enum sotto_status place_workers(struct virtual_sim *sim)
{
    const struct engine_config *config = sim->config;
    sim->node = config->node;
    if (!config->node &&
        !(sim->node = sim->one_node = calloc((size_t)config->workers, sizeof(int))))
        return fail(SOTTO_ENOMEM, "no memory for %d simulated workers", config->workers);
    return config->links ? network_open(&sim->net, config->links, sim->node, config->workers)
                         : SOTTO_OK;
}

enum sotto_status engine_virtual(const struct engine_config *config, worker_job *job, void *arg)
{
    TRY(check_config(config));
    enum sotto_status st = SOTTO_OK;
    int workers = config->workers;
    struct virtual_sim *sim = calloc(1, sizeof *sim);
    struct comm **world = calloc((size_t)workers, sizeof *world);
    if (!sim || !world) {
        st = fail(SOTTO_ENOMEM, "no memory for %d simulated workers", workers);
        goto done;
    }
    sim->clock.now = now;
    sim->config = config;
    sim->last = &sim->first;
    fiber_adopt(&sim->home);
    sim->worker = calloc((size_t)workers, sizeof *sim->worker);
    if (!sim->worker) {
        st = fail(SOTTO_ENOMEM, "no memory for %d simulated workers", workers);
        goto done;
    }
    TRY_DONE(place_workers(sim));
    TRY_DONE(virtual_world(sim, world));
    for (int r = 0; r < workers; r++) {
        struct virtual_worker *v = &sim->worker[r];
        v->base = (struct worker){.ops = &virtual_worker_ops,
                                  .rank = r,
                                  .size = workers,
                                  .world = world[r],
                                  .clock = &sim->clock,
                                  .memory = config->memory};
        v->job = job;
        v->arg = arg;
        TRY_DONE(virtual_process_init(&v->process, sim, r, run_worker, v));
    }
    run(sim);
    st = status_raise(&sim->stop);
done:
    if (sim) {
        pool_close(sim->pool);
        virtual_lanes_free(sim);
        for (int r = 0; r < workers && sim->worker; r++)
            virtual_process_free(&sim->worker[r].process);
        free(sim->heap);
        free(sim->worker);
    }
    for (int r = 0; r < workers && world; r++)
        comm_free(world[r]);
    if (sim) {
        network_close(sim->net);
        free(sim->one_node);
    }
    free(world);
    free(sim);
    return st;
}

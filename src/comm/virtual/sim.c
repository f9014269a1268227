#include "comm/virtual/sim.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static struct virtual_turn turn_of(struct virtual_process *p)
{
    return (struct virtual_turn){p->time, (unsigned)p->id | (unsigned)p->late << 30, p};
}

/* True if `a` runs before `b`. */
static bool turn_before(struct virtual_turn a, struct virtual_turn b)
{
    return a.time < b.time || (a.time == b.time && a.order < b.order);
}

static void push_ready(struct virtual_sim *sim, struct virtual_process *p)
{
    struct virtual_turn turn = turn_of(p);
    int i = sim->ready++;
    assert(i < sim->room);
    while (i > 0 && turn_before(turn, sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = turn;
}

/* Replaces the first entry of the heap by `turn`, which need not be in the heap. */
static void replace_first(struct virtual_sim *sim, struct virtual_turn turn)
{
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= sim->ready)
            break;
        if (child + 1 < sim->ready && turn_before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!turn_before(sim->heap[child], turn))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = turn;
}

static struct virtual_process *pop_ready(struct virtual_sim *sim)
{
    struct virtual_process *first = sim->heap[0].process;
    if (--sim->ready > 0)
        replace_first(sim, sim->heap[sim->ready]);
    return first;
}

/* Keeps the thread's error message with its process, before another process runs. */
static void keep_message(struct virtual_process *p)
{
    p->has_error = sotto_error()[0];
    if (p->has_error)
        status_save(&p->error, SOTTO_EPEER);
}

static void restore_message(const struct virtual_process *p)
{
    if (p->has_error)
        status_raise(&p->error);
    else if (sotto_error()[0])
        fail(SOTTO_OK, "%s", ""); /* left by another process */
}

/* Prefetches data of the next turns. With thousands of processes, a turn is mostly waiting for
 * memory: this prefetches the stack of the first process in the heap and the addresses needed for
 * the next two stacks. */
static void prefetch_next(const struct virtual_sim *sim)
{
    if (sim->ready)
        fiber_prefetch(&sim->heap[0].process->fiber);
    for (int i = 1; i < sim->ready && i <= 2; i++) {
        __builtin_prefetch(&sim->heap[i].process->time);
        __builtin_prefetch(&sim->heap[i].process->fiber);
    }
}

/* Switches to another process, or home if no process can run. */
static void switch_to(struct virtual_sim *sim, struct virtual_process *to, bool last)
{
    struct virtual_process *from = sim->current;
    if (from)
        keep_message(from);
    prefetch_next(sim);
    sim->current = to;
    fiber_switch(from ? &from->fiber : &sim->home, to ? &to->fiber : &sim->home, last);
    if (from)
        restore_message(from);
}

static void wake_due(struct virtual_sim *sim)
{
    for (int i = 0; i < sim->n_due; i++)
        virtual_wake(sim->due[i], sim->due[i]->time);
    sim->n_due = 0;
}

/* Wakes the process of the first alarm, to run after all other processes of this time. */
static void ring_alarm(struct virtual_sim *sim)
{
    struct alarm *alarm = alarm_take(&sim->alarms);
    struct virtual_process *p =
        (struct virtual_process *)((char *)alarm - offsetof(struct virtual_process, alarm));
    p->late = LATE_LAST;
    virtual_wake(p, alarm->time);
}

/* Ends flows on the links and rings alarms that are due before the next process runs, or up to
 * `until`. In a stopped run, flows and alarms stand still: no process waits for them any more. */
static void end_flows(struct virtual_sim *sim, double until)
{
    while ((sim->net || sim->alarms.count) && sim->stop.code == SOTTO_OK) {
        const double flow = sim->net ? network_next(sim->net) : INFINITY;
        const double alarm = alarm_next(&sim->alarms), next = fmin(flow, alarm);
        if (next == INFINITY || next > until || (sim->ready && next > sim->heap[0].time))
            break;
        if (flow <= alarm)
            network_end_next(sim->net);
        else
            ring_alarm(sim);
    }
}

static void switch_to_next(struct virtual_sim *sim, bool last)
{
    sim->ahead = false;
    wake_due(sim);
    end_flows(sim, INFINITY);
    switch_to(sim, sim->ready ? pop_ready(sim) : NULL, last);
}

/* Puts the running process back into the heap; it continues at once if it is the first. */
static void requeue_current(struct virtual_sim *sim)
{
    struct virtual_turn turn = turn_of(sim->current);
    sim->ahead = false;
    wake_due(sim);
    end_flows(sim, turn.time);
    if (sim->ready && turn_before(sim->heap[0], turn)) {
        struct virtual_process *next = sim->heap[0].process;
        replace_first(sim, turn);
        switch_to(sim, next, false);
    }
}

void virtual_advance(struct virtual_sim *sim, double to)
{
    if (to > sim->current->time)
        sim->current->time = to;
    requeue_current(sim);
}

void virtual_advance_alone(struct virtual_sim *sim, double to)
{
    if (to <= sim->current->time)
        return;
    sim->current->time = to;
    sim->ahead = true;
}

void virtual_sync_clock(struct virtual_sim *sim)
{
    if (sim->ahead || sim->n_due)
        requeue_current(sim);
}

void virtual_defer(struct virtual_sim *sim, enum process_late late)
{
    struct virtual_process *p = sim->current;
    p->late = late;
    requeue_current(sim);
    p->late = LATE_NOT;
}

static void block_current(struct virtual_sim *sim, enum process_state state, bool stoppable,
                          const char *what, int detail)
{
    struct virtual_process *p = sim->current;
    p->state = state;
    p->stoppable = stoppable;
    p->stopped = false;
    p->what = what;
    p->peer = detail;
    switch_to_next(sim, false);
}

void virtual_wait_unrun(struct virtual_process *p, double at, const char *what)
{
    assert(p->state == PROCESS_IDLE);
    p->state = PROCESS_WAITING;
    p->time = fmax(p->time, at);
    p->stoppable = true;
    p->stopped = false;
    p->what = what;
    p->peer = -1;
}

enum sotto_status virtual_block(struct virtual_sim *sim, const char *what, int detail)
{
    struct virtual_process *p = sim->current;
    block_current(sim, PROCESS_WAITING, true, what, detail);
    return p->stopped ? status_raise(&sim->stop) : SOTTO_OK;
}

enum sotto_status virtual_block_until(struct virtual_sim *sim, const char *what, double until)
{
    struct virtual_process *p = sim->current;
    if (until < INFINITY)
        alarm_set(&sim->alarms, &p->alarm, until);
    const enum sotto_status st = virtual_block(sim, what, -1);
    p->late = LATE_NOT;
    return st;
}

void virtual_wake_at(struct virtual_process *p, double time)
{
    if (p->state == PROCESS_WAITING)
        alarm_set(&p->sim->alarms, &p->alarm, time);
}

void virtual_block_unstoppable(struct virtual_sim *sim, enum process_state state, const char *what)
{
    block_current(sim, state, false, what, -1);
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
    push_ready(p->sim, p);
}

/* Returns the place of `p` in `due`; n_due: not found. */
static int find_due(const struct virtual_sim *sim, const struct virtual_process *p)
{
    int i = 0;
    while (i < sim->n_due && sim->due[i] != p)
        i++;
    return i;
}

void virtual_wake_later(struct virtual_process *p, double time)
{
    struct virtual_sim *sim = p->sim;
    if (find_due(sim, p) < sim->n_due)
        return;
    assert(p->state == PROCESS_IDLE);
    if (sim->n_due == VIRTUAL_DUE)
        wake_due(sim);
    p->time = fmax(p->time, time);
    sim->due[sim->n_due++] = p;
}

bool virtual_cancel_wake(struct virtual_process *p)
{
    struct virtual_sim *sim = p->sim;
    const int i = find_due(sim, p);
    if (i == sim->n_due)
        return false;
    sim->due[i] = sim->due[--sim->n_due];
    return true;
}

void virtual_stop_run(struct virtual_sim *sim, const struct status_note *note)
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
        struct alarm **alarms = realloc(sim->alarms.heap, (size_t)room * sizeof(struct alarm *));
        if (!alarms)
            return fail(SOTTO_ENOMEM, "no memory for %d simulated processes", room);
        sim->alarms.heap = alarms;
        sim->room = room;
    }
    TRY(fiber_init(&p->fiber, run_process, p));
    p->body = body;
    p->arg = arg;
    p->sim = sim;
    p->id = p->alarm.id = sim->next_id++;
    p->rank = rank;
    p->time = sim->current ? sim->current->time : 0;
    p->state = PROCESS_READY;
    sim->processes++;
    p->next = NULL;
    p->link = sim->last;
    *sim->last = p;
    sim->last = &p->next;
    push_ready(sim, p);
    return SOTTO_OK;
}

void virtual_process_free(struct virtual_process *p)
{
    if (!p->sim)
        return; /* never initialized */
    fiber_free(&p->fiber);
    p->sim->processes--;
    if ((*p->link = p->next))
        p->next->link = p->link;
    else
        p->sim->last = p->link;
}

static double virtual_now(const struct clock *clock)
{
    const struct virtual_sim *sim = (const struct virtual_sim *)clock;
    return sim->current ? sim->current->time : 0;
}

void virtual_sim_open(struct virtual_sim *sim)
{
    *sim = (struct virtual_sim){.clock.now = virtual_now, .last = &sim->first};
    fiber_adopt(&sim->home);
}

void virtual_sim_run(struct virtual_sim *sim)
{
    if (sim->ready)
        switch_to_next(sim, false);
}

void virtual_sim_close(struct virtual_sim *sim)
{
    free(sim->heap);
    free(sim->alarms.heap);
}

/* Processes in virtual time and the order in which they run: the base of lanes, communicators and
 * the engine of a simulated cluster. A discrete-event simulation.
 *
 * Workers and lanes are processes, each with a clock of its own, run as fibers on the thread that
 * called engine_virtual. The ready process with the smallest clock runs. One invariant makes the
 * order of events the order of time: when the running process looks at other processes, or does
 * something visible to them, its clock is not ahead of any ready process's, because every advance
 * of a clock (virtual_advance) and every wait (virtual_block) lets processes with earlier clocks
 * run first. Work that no other process sees may pass without a turn (virtual_advance_alone), if
 * virtual_sync_clock comes before the next visible step. A process therefore sees of the others
 * what they had done by its own time, and two runs are the same to the bit. Flows that end on the
 * network's links at a time end before processes run at this time.
 *
 * Only the work given to `compute` runs on other threads, between two points of its process's
 * order. */
#ifndef SOTTO_COMM_VIRTUAL_SIM_H
#define SOTTO_COMM_VIRTUAL_SIM_H

#include "base/clock.h"
#include "comm/links/network.h"
#include "comm/virtual/alarm.h"
#include "comm/virtual/fiber.h"
#include "comm/virtual/payload.h"
#include "comm/virtual/pool.h"

enum process_state {
    PROCESS_READY,   /* running, or in the heap */
    PROCESS_WAITING, /* waits for an event: `what` and `peer` */
    PROCESS_IDLE,    /* a lane without jobs */
    PROCESS_ENDED
};

/* Order among processes of equal time. Work that takes no time is done before a process finds out
 * if a lane that does such work is done. */
enum process_late {
    LATE_NOT,
    LATE_WORK, /* waits for work that takes no time */
    LATE_LAST  /* runs after all other processes */
};

/* Thousands of processes take turns: the fields of every turn are first. */
struct virtual_process {
    struct virtual_sim *sim;
    double time;
    int id;   /* breaks ties; below 1 << 30 */
    int rank; /* rank of the worker, or of the lane's worker */
    enum process_state state;
    enum process_late late;
    bool is_lane;
    bool untimed;     /* true if its messages take no time: in a pause */
    bool stoppable;   /* true if an abort ends the wait */
    bool stopped;     /* true if an abort has ended the wait */
    bool has_error;   /* true if `error` has the process's error message */
    int peer;         /* rank waited for; -1: none */
    const char *what; /* call in which the process waits */
    /* Called at the end of a collective for a process that waits in it without running; NULL
     * otherwise. See virtual_join_collective. */
    void (*collective_over)(struct virtual_process *p, double met, double end,
                            const struct status_note *failure);
    struct fiber fiber;
    struct status_note error; /* error message while other processes run */
    struct pool_job job;      /* current computation */
    struct alarm alarm;       /* end of a wait with a time limit */
    void (*body)(void *arg);  /* ends with the process */
    void *arg;
    struct virtual_process *next, **link; /* list of all processes, in the order of id */
};

/* An entry of the heap, with its order. */
struct virtual_turn {
    double time;
    unsigned order; /* order among entries of equal time */
    struct virtual_process *process;
};

enum { VIRTUAL_DUE = 4 };

struct virtual_sim {
    struct clock clock; /* first member; the running process's time */
    struct fiber home;  /* stack of virtual_sim_run */
    struct virtual_process *current;
    bool ahead; /* true if the clock of `current` may be ahead of a ready process */
    /* (n_due) processes to wake, at their own time, when `current` lets others run */
    struct virtual_process *due[VIRTUAL_DUE];
    int n_due;
    struct virtual_turn *heap; /* (ready of room) ready processes, smallest time first */
    int ready, room;
    struct alarms alarms; /* alarms of waits with a time limit; room for all processes */
    struct virtual_process *first, **last;
    int processes, next_id;
    struct network *net;     /* owned by the engine; NULL: messages take no time */
    struct depot depot;      /* closed after all communicators */
    struct status_note stop; /* first failure, which ends all waits and the run */
};

/* Opens a simulation on its own thread. All processes must be freed before virtual_sim_close. */
void virtual_sim_open(struct virtual_sim *sim);
void virtual_sim_run(struct virtual_sim *sim); /* runs until no process can run */
void virtual_sim_close(struct virtual_sim *sim);

/* Adds a process that begins at the running process's time, or at 0. */
enum sotto_status virtual_process_init(struct virtual_process *p, struct virtual_sim *sim, int rank,
                                       void (*body)(void *), void *arg);
void virtual_process_free(struct virtual_process *p);

/* Advances the running process to the time `to`, after all processes with earlier clocks have run.
 */
void virtual_advance(struct virtual_sim *sim, double to);
/* Advances the running process without a turn, for steps that no other process sees. */
void virtual_advance_alone(struct virtual_sim *sim, double to);
/* Lets processes with earlier clocks run first, before a step that other processes see. */
void virtual_sync_clock(struct virtual_sim *sim);
/* Blocks the running process in the call `what` until it is woken. Fails if the run is aborted.
 * `peer` is the rank waited for, -1: none. */
enum sotto_status virtual_block(struct virtual_sim *sim, const char *what, int peer);
/* virtual_block with a limit: continues at the time `until`, as the last process of this time;
 * INFINITY: no limit. virtual_wake_at moves the limit of such a wait to an earlier time. */
enum sotto_status virtual_block_until(struct virtual_sim *sim, const char *what, double until);
void virtual_wake_at(struct virtual_process *p, double time);
/* Blocks the running process in `state`; an abort does not end this wait. */
void virtual_block_unstoppable(struct virtual_sim *sim, enum process_state state, const char *what);
/* Lets the other processes of this time run first, in the order of `late`. */
void virtual_defer(struct virtual_sim *sim, enum process_late late);

/* Makes an idle process wait from the time `at` on, without running; an abort wakes it. */
void virtual_wait_unrun(struct virtual_process *p, double at, const char *what);

/* Wakes a waiting or idle process, which continues at `time`, or at its own time if later. */
void virtual_wake(struct virtual_process *p, double time);

/* virtual_wake_later wakes an idle process when the running process lets others run. Until then the
 * running process may take the wake back with virtual_cancel_wake (true if it did) and do the work
 * itself. */
void virtual_wake_later(struct virtual_process *p, double time);
bool virtual_cancel_wake(struct virtual_process *p);

/* Stops the run: ends all waits for a peer with this note, now and from now on. The first note
 * counts. */
void virtual_stop_run(struct virtual_sim *sim, const struct status_note *note);

#endif

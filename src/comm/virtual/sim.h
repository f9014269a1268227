/* Processes in virtual time and who of them runs next: what lanes, communicators and the engine of
 * a simulated cluster stand on.
 *
 * Workers and lanes are processes, each with a clock of its own, run as fibers on the thread that
 * called engine_virtual. The ready process with the smallest clock runs. One invariant makes the
 * order of events the order of time: where the running process looks at others or does what they
 * see, its clock is not ahead of a ready one's, because whatever advances a clock
 * (virtual_advance) or waits (virtual_block) lets those that are behind run first. What concerns
 * nobody else may pass without a turn (virtual_advance_alone), if virtual_sync_clock comes before
 * what does. So what a process sees of the others is what they had done by its own time, and two
 * runs are the same to the bit. What ends on the network's links at a time comes before what
 * processes do then.
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
    PROCESS_READY,   /* runs, or is in the heap                              */
    PROCESS_WAITING, /* for an event inside the cluster: `what` and `detail` */
    PROCESS_IDLE,    /* a lane without jobs                                  */
    PROCESS_ENDED
};

/* Among processes of one time. Work that takes no time has been done when somebody asks whether a
 * lane that does it is done. */
enum process_late {
    LATE_NOT,
    LATE_WORK, /* waits for work that takes no time */
    LATE_LAST  /* runs after all others             */
};

/* Thousands take turns, so what every turn touches comes first. */
struct virtual_process {
    struct virtual_sim *sim;
    double time;
    int id;   /* breaks ties, below 1 << 30             */
    int rank; /* of the worker that it is or serves     */
    enum process_state state;
    enum process_late late;
    bool is_lane;
    bool free;        /* what it sends takes no time: it is in a pause */
    bool stoppable;   /* an abort ends its wait                        */
    bool stopped;     /* by an abort                                   */
    bool said;        /* its error message is in `kept`                */
    int detail;       /* rank that it waits for, -1: none              */
    const char *what; /* the call that it waits in                    */
    /* It waits in a collective without having been run for it: see virtual_join_collective. */
    void (*left)(struct virtual_process *p, double met, double end,
                 const struct status_note *failure);
    struct fiber fiber;
    struct status_note kept; /* while others run                              */
    struct pool_job job;     /* its computation                               */
    struct alarm alarm;      /* the time that it waits until */
    void (*body)(void *arg); /* its end is the process's */
    void *arg;
    struct virtual_process *next, **link; /* all of the sim, in order of id */
};

/* A place in the heap, with what it is ordered by. */
struct virtual_turn {
    double time;
    unsigned order; /* among those of one time */
    struct virtual_process *process;
};

enum { VIRTUAL_DUE = 4 };

struct virtual_sim {
    struct clock clock; /* first: tells the running process's time */
    struct fiber home;  /* where virtual_sim_run runs */
    struct virtual_process *current;
    bool ahead;                               /* current may be, of a ready one  */
    struct virtual_process *due[VIRTUAL_DUE]; /* wake when current lets others run, at their own
                                                 time */
    int n_due;
    struct virtual_turn *heap; /* of the ready ones, smallest first */
    int ready, room;
    struct alarms alarms; /* of those that wait until a time; room for all processes */
    struct virtual_process *first, **last;
    int processes, next_id;
    struct network *net;     /* the engine's; NULL: nothing takes time on it */
    struct depot depot;      /* closed when all communicators are freed */
    struct status_note stop; /* the first failure: ends the others' waiting, and the run's */
};

/* On the thread that will run it; its processes are freed before it is closed. */
void virtual_sim_open(struct virtual_sim *sim);
void virtual_sim_run(struct virtual_sim *sim); /* until no process can */
void virtual_sim_close(struct virtual_sim *sim);

/* Enters a process that begins at the running one's time, or at 0. */
enum sotto_status virtual_process_init(struct virtual_process *p, struct virtual_sim *sim, int rank,
                                       void (*body)(void *), void *arg);
void virtual_process_free(struct virtual_process *p);

/* The running process: time passes, waits in a call (fails: an abort), lets others of its time run
 * first. */
void virtual_advance(struct virtual_sim *sim, double to);
void virtual_advance_alone(struct virtual_sim *sim, double to); /* only for itself, until it ... */
void virtual_sync_clock(struct virtual_sim *sim);               /* ... meets the others */
enum sotto_status virtual_block(struct virtual_sim *sim, const char *what, int detail);
/* The same until a time, when it goes on as the last of those that run then; INFINITY: until it is
 * expected, which may be at a time before that. */
enum sotto_status virtual_block_until(struct virtual_sim *sim, const char *what, double until);
void virtual_wake_at(struct virtual_process *p, double time);
void virtual_block_unstoppable(struct virtual_sim *sim, enum process_state state, const char *what);
void virtual_defer(struct virtual_sim *sim, enum process_late late);

/* An idle process waits from `at` on, without running; an abort wakes it. */
void virtual_wait_unrun(struct virtual_process *p, double at, const char *what);

/* A waiting or idle process goes on at `time`, or at its own if that is later. */
void virtual_wake(struct virtual_process *p, double time);

/* The same for an idle one, when the running one lets others run; which, until then, may take it
 * back and do its work. */
void virtual_wake_later(struct virtual_process *p, double time);
bool virtual_cancel_wake(struct virtual_process *p);

/* Everything that waits for a peer ends with this note, now and from now on. */
void virtual_stop_run(struct virtual_sim *sim, const struct status_note *note);

#endif

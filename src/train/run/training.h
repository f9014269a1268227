/* One worker's method at work: device, gradient oracle, place in the mesh, strategy and meter, and
 * how far training is. `sotto train` (train/loop) and the public interface (train/api) both train
 * with it; struct training_setup has what differs between the two.
 *
 * All workers call the functions in the same order, but for the rounds of asynchronous groups. */
#ifndef SOTTO_TRAIN_RUN_TRAINING_H
#define SOTTO_TRAIN_RUN_TRAINING_H

#include "strategy/async/async.h"
#include "strategy/strategy.h"
#include "train/cluster/cluster.h"
#include "train/cluster/cost.h"
#include "train/run/gather.h"

struct training;

/* The gradient oracle of a training. */
struct training_source {
    /* Opens the oracle on t->dev, with slots for strategy_slots micro-batches. */
    enum sotto_status (*open)(void *source, struct training *t, struct oracle **out);
    /* Closes the oracle, open or not, before the device is closed. */
    void (*close)(void *source);
    /* (optional) Visits state of this worker's oracle that a checkpoint keeps. */
    enum sotto_status (*visit)(void *source, struct state_visitor *v);
};

struct training_setup {
    const struct cluster *cluster; /* outlives the training, as does its configuration */
    struct worker *worker;
    const struct training_source *ops;
    void *source;
    const struct optim_config *before; /* as in strategy_setup */
    int64_t eval_every;                /* rounds between evaluations; 0: there are none */
    double eval_seconds;               /* of training between evaluations, in addition; 0: none */
    double save_minutes;               /* of real time between checkpoints; 0: none by time */
    const struct snapshot_hook *hook;  /* (optional) of asynchronous groups */
    const atomic_int *stop;            /* (optional) as plan.asked */
    bool counts_between;               /* seconds between rounds are the training's, but for pauses;
                                          false: the seconds of rounds alone */
};

/* What this worker has counted since the beginning. */
struct training_count {
    int64_t tokens, samples;         /* of all workers */
    int64_t own_tokens, own_samples; /* of the own group, that are not in the sums above yet */
};

struct training {
    const struct run_config *config; /* of setup.cluster */
    struct training_setup setup;
    struct worker *worker;
    struct memory memory;
    struct device dev;
    struct oracle *oracle;
    struct mesh mesh;
    struct strategy *strategy;
    struct meter meter;
    struct training_count count;
    int64_t step;             /* rounds done; of asynchronous groups: the run's, as far as known */
    char method[OPTION_ROOM]; /* that saved the state which was loaded */
    struct plan plan;         /* of the last round; lanes may read the plan even after a failure */
    struct round round;       /* the last; lanes may write here even after a failure */
    int64_t eval_times;       /* multiples of eval_seconds passed so far; -1: not known */
    bool eval_due;            /* after the last round, by time */
    double save_at;           /* real time of the next checkpoint by time, on rank 0; or INFINITY */
    double origin; /* of the worker's clock: training would have begun then without pauses */
};

/* Opens all parts; the caller has agreed on the configuration. After a failure training_close is
 * still to be called. */
enum sotto_status training_open(struct training *t, const struct training_setup *setup);
void training_close(struct training *t);

/* Fails unless all processes have the same version of sotto and the same options; `what` names the
 * options in the message. */
enum sotto_status training_agree(struct comm *world, const char *what,
                                 const struct option_section *sections, int n);

/* Sets the parameters, in the table's layout. After the call `flat` may be freed on any worker. */
enum sotto_status training_set_parameters(struct training *t, const float *flat);

/* Copies the parameters to host memory where `wanted` is true; *flat is NULL elsewhere. The caller
 * drops the copy. */
enum sotto_status training_export(struct training *t, bool wanted, float **flat);
void training_drop(struct training *t, float *flat);

/* What the caller wants of a round. */
struct training_wish {
    double lr;      /* negative: the schedule's */
    int64_t rounds; /* of the whole run */
    int64_t length; /* rounds of the schedule of learning rates */
    bool stop;      /* this worker votes that the round be the last */
    double between; /* as plan.between */
};

/* Makes a round: t->plan has what was wanted, t->round what was done, and async_last_round the
 * rest. A round is abandoned (t->round.abandoned) or counts. */
enum sotto_status training_round(struct training *t, const struct training_wish *wish);

/* True if `every` is set and divides `step`. */
static inline bool training_is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* Ends the part of the last round's step that the strategy has left to the next round, in the
 * training's time. */
enum sotto_status training_settle(struct training *t);

/* True on all workers if an evaluation is due after the last round, by rounds or by time; not for
 * asynchronous groups. */
bool training_eval_due(const struct training *t);

/* True on all workers if a checkpoint is due by time after the last round. */
bool training_save_due(const struct training *t);

/* Sets the time of the next checkpoint by time. */
void training_schedule_save(struct training *t);

/* Begins a pause, which is no time of the training, once the device has done the last round. A
 * failure of the device is kept for the next call that checks the device. */
void training_pause(struct training *t);

/* Ends a pause: all workers continue, in virtual time each with its lead over the others. */
enum sotto_status training_continue(struct training *t);

/* Sets t->origin by the worker's clock and the seconds of training so far; training_continue does
 * so. */
void training_set_origin(struct training *t);

/* Begin and end a meeting of asynchronous groups: a pause in which no message of the server is in
 * flight. */
enum sotto_status training_begin_meeting(struct training *t);
enum sotto_status training_end_meeting(struct training *t);

/* Adds the counts of all groups to the sums. */
enum sotto_status training_sum_counts(struct training *t);

/* Visits the method's name. After a load, t->method has the name that the file says. */
enum sotto_status training_visit_method(struct training *t, struct state_visitor *v);

/* Visits this worker's own state but for the parameters: micro-batches begun, the oracle's state
 * and the strategy's. */
enum sotto_status training_visit(struct training *t, struct state_visitor *v);

/* Brings the state of all workers, which `visit` shows, to a saver on rank 0, and calls `write`
 * with the saver there; `arg` is passed to both. */
typedef enum sotto_status training_writer(void *arg, struct state_visitor *saver);
enum sotto_status training_save(struct training *t, state_owner *visit, training_writer *write,
                                void *arg);

/* A worker's account at the end. */
struct worker_report {
    struct cost cost;
    size_t memory[MEMORY_CATEGORIES], memory_total; /* peaks, bytes */
    size_t live; /* bytes: peak of the activations in use, without free ones; set by the caller */
};

/* Fills `all` (size) with the reports of all workers, once all messages are sent. */
enum sotto_status training_report(struct training *t, size_t live, struct worker_report *all);

/* Appends advice to the message if `st` says that training has diverged. Returns `st`. */
enum sotto_status training_advise(const struct training *t, enum sotto_status st);

#endif

/* The public training interface (sotto/train.h): a caller's problem as an oracle, and a caller's
 * trainer over struct training. */
#ifndef SOTTO_TRAIN_API_API_IMPL_H
#define SOTTO_TRAIN_API_API_IMPL_H

#include "train/run/rescue.h"
#include "train/run/training.h"

struct sotto_options {
    struct run_config config;
};

/* The sections of options for programs with a problem of their own, without model and data. */
enum { API_SHARED = 5, API_SECTIONS = API_SHARED + STRATEGY_SECTIONS, API_TRAIN_KEYS = 13 };
struct api_sections {
    struct option train[API_TRAIN_KEYS];
    struct option_section section[API_SECTIONS];
};
void api_sections(struct api_sections *out, struct run_config *config);

/* Copy a caller's struct `theirs`, which begins with its size, to the library's `own` of `size`
 * bytes, and back. `least`: size of the first version. Members that the caller's version lacks are
 * read as 0 and not written; members that the library lacks must be 0. `name` is for messages. */
enum sotto_status api_read_struct(const char *name, void *own, size_t size, size_t least,
                                  const void *theirs);
enum sotto_status api_write_struct(const char *name, void *theirs, const void *own, size_t size,
                                   size_t least);
#define API_READ(type, last, own, theirs)                                                          \
    api_read_struct(#type, own, sizeof(struct type), API_LEAST(type, last), theirs)
#define API_WRITE(type, last, theirs, own)                                                         \
    api_write_struct(#type, theirs, own, sizeof(struct type), API_LEAST(type, last))
#define API_LEAST(type, last)                                                                      \
    (offsetof(struct type, last) + sizeof(((struct type *)0)->last)) /* last of the first version  \
                                                                      */

/* Makes the table of a problem's tensors, with stages padded to a multiple of `pad`. Fails if the
 * problem is not sound. */
enum sotto_status problem_table(const struct sotto_problem *problem, int pad, struct table *out);

/* Copy whole vectors between the caller's layout, without padding, and the table's. */
void problem_pack(const struct table *table, float *padded, const float *flat);
void problem_unpack(const struct table *table, float *flat, const float *padded);

/* A micro-batch in progress. */
struct problem_slot {
    int64_t number; /* worker.begun */
    struct sotto_microbatch batch;
    struct oracle_result result;
    float **edge[2]; /* (n_stage) input of a stage, and its gradient; NULL: no edges; owned */
};

/* A problem as an oracle. Callbacks get fp32: for a method that holds bf16 (precision = mixed), the
 * parameters are widened into a copy, and the gradient is added from a copy. */
struct problem_oracle {
    struct oracle base;
    struct sotto_problem problem;
    struct worker *worker;
    struct device *dev;
    void *user;                    /* argument of the callbacks, from worker_open */
    bool open;                     /* worker_close is to be called */
    double seconds;                /* of a micro-batch, in virtual time */
    double *share;                 /* (n_stage) of `seconds` */
    bool *needs;                   /* (n_stage, n_stage) */
    const float **theta;           /* (tensors) as the callbacks see them */
    float **grad;                  /* (tensors) */
    struct buffer wide[2];         /* mixed: theta and grad in fp32 */
    struct view *wide_at[2];       /* (n_stage) stages of `wide`; NULL: not mixed */
    float *host[2];                /* copies of device memory; NULL: the host reaches the memory */
    struct view *host_at[2];       /* (n_stage) stages of `host` */
    const struct view *seen_at[2]; /* (n_stage) `wide_at` or `host_at`, as the callbacks see */
    struct problem_slot *slot;     /* (slots) */
    struct {                       /* the stage being computed */
        struct problem_slot *slot;
        int k;
        const struct view *theta, *grad;
    } now;
};

struct problem_oracle_setup {
    const struct sotto_problem *problem;
    const struct table *table;
    struct device *dev;
    struct worker *worker;
    int64_t seed;
    double seconds; /* of a micro-batch */
    bool mixed;
    int slots; /* micro-batches in progress at once; 0: one */
};
enum sotto_status problem_oracle_init(struct problem_oracle *o,
                                      const struct problem_oracle_setup *setup);
void problem_oracle_free(struct problem_oracle *o);

/* Parts of problem_oracle_init and _free: the copies, and the slots. */
enum { PROBLEM_THETA, PROBLEM_GRAD };
enum sotto_status problem_memory_init(struct problem_oracle *o, bool mixed, int64_t seed);
void problem_memory_free(struct problem_oracle *o);

/* Measures a micro-batch at parameters `padded`: *seconds of real time on this machine. */
enum sotto_status problem_oracle_measure(struct problem_oracle *o, float *padded, double *seconds);

struct sotto_worker {
    struct worker *worker;
    const struct cluster *cluster;
};

/* True on the first worker of a process, which writes the process's results. */
static inline bool is_first_here(const struct sotto_worker *w)
{
    return w->worker->rank == 0 || w->cluster->mpi;
}

/* Asynchronous groups, as a worker's caller sees them. */
struct api_groups {
    bool begun;               /* a round was made */
    bool trains;              /* the groups make rounds of their own */
    bool met;                 /* all workers have met, in a pause until the next round */
    bool over;                /* there is no next round */
    struct async_round round; /* the last */
    struct sotto_push *push;  /* on rank 0: [first, n) were not taken by the caller; owned */
    size_t first, n, room;
};

struct sotto_trainer {
    struct sotto_worker *worker;
    struct training training;
    struct sotto_problem problem;
    struct table table;
    struct problem_oracle oracle;
    struct optim_config before; /* kind and momentum of the file that is loaded */
    double lr;                  /* negative: the schedule's */
    bool stop;                  /* with the next round */
    struct status_note failure; /* the first; then only sotto_trainer_destroy may follow */
    struct api_groups groups;
    struct {         /* of sotto_train, on rank 0 */
        bool wanted; /* a checkpoint is saved elsewhere if its place fails */
        struct rescue state;
        char elsewhere[FILE_PATH_ROOM]; /* file of the newest checkpoint; "": in its place */
    } rescue;
};

/* sotto_trainer_create for a trainer that is saved every `save_minutes`, too; 0: it is not. */
enum sotto_status trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                 const struct sotto_problem *theirs, const float *parameters,
                                 double save_minutes);

/* True if the groups of workers make rounds of their own. */
static inline bool trainer_is_async(const struct sotto_trainer *t)
{
    return t->training.strategy->async != NULL;
}

/* What the caller wants of the next round. */
struct training_wish trainer_wish(const struct sotto_trainer *t);

/* A round of this worker's group. */
enum sotto_status trainer_group_round(struct sotto_trainer *t);

/* Fails unless the groups are asynchronous. */
enum sotto_status trainer_need_pushes(const struct sotto_trainer *t);

/* Fails for `call` between two meetings of asynchronous groups; `pulled`: unless the group has
 * pulled in the last round. */
enum sotto_status trainer_need_meeting(const struct sotto_trainer *t, const char *call,
                                       bool pulled);

/* Keeps the first failure, with advice in the message; returns `st`. */
enum sotto_status trainer_keep_failure(struct sotto_trainer *t, enum sotto_status st);

/* Begin and end a pause of all workers, unless asynchronous groups train or have met already. The
 * last round's step is ended before, in the training's time. */
enum sotto_status trainer_pause(struct sotto_trainer *t);
enum sotto_status trainer_continue(struct sotto_trainer *t);

/* The public structs, filled from the internal ones. */
struct sotto_cost api_cost(const struct cost *c);
struct sotto_push api_push(const struct sotto_trainer *t, const struct applied_push *p);
struct sotto_round api_round(const struct sotto_trainer *t);
/* The round that sotto_train reports for a push; `last`: the worker's own last round. */
struct sotto_round api_push_round(const struct sotto_trainer *t, const struct sotto_push *push,
                                  const struct sotto_round *last);

#endif

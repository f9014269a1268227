/* What the files of the public training interface (sotto/train.h) share: a problem of the caller's
 * as an oracle, and the workers that a configuration asks for. */
#ifndef SOTTO_TRAIN_API_API_IMPL_H
#define SOTTO_TRAIN_API_API_IMPL_H

#include "comm/worker.h"
#include "strategy/async/async.h"
#include "strategy/strategy.h"
#include "train/cluster/cluster.h"
#include "train/cluster/cost.h"
#include "train/run/rescue.h"

struct sotto_options {
    struct run_config config;
};

/* The sections that make sense without a model and data of the library's own. */
enum { EMBED_SHARED = 5, EMBED_SECTIONS = EMBED_SHARED + STRATEGY_SECTIONS, EMBED_TRAIN_KEYS = 12 };
struct embed_sections {
    struct option train[EMBED_TRAIN_KEYS];
    struct option_section section[EMBED_SECTIONS];
};
void embed_sections(struct embed_sections *out, struct run_config *config);

/* A caller's struct, which begins with its size, over one of the library's `size` bytes; `least`:
 * of the first version. What the caller's lacks is 0; what the library does not know must be. And
 * the other way: as much as the caller has room for. `name` for the message. */
enum sotto_status embed_take(const char *name, void *own, size_t size, size_t least,
                             const void *theirs);
enum sotto_status embed_hand(const char *name, void *theirs, const void *own, size_t size,
                             size_t least);
#define EMBED_TAKE(type, last, own, theirs)                                                        \
    embed_take(#type, own, sizeof(struct type), EMBED_LEAST(type, last), theirs)
#define EMBED_HAND(type, last, theirs, own)                                                        \
    embed_hand(#type, theirs, own, sizeof(struct type), EMBED_LEAST(type, last))
#define EMBED_LEAST(type, last)                                                                    \
    (offsetof(struct type, last) + sizeof(((struct type *)0)->last)) /* its last member then */

/* The table of a problem's tensors, its stages padded to a multiple of `pad`; refuses a problem
 * that is not sound. */
enum sotto_status problem_table(const struct sotto_problem *problem, int pad, struct table *out);

/* Whole vectors, between the caller's layout (without padding) and the table's. */
void problem_pack(const struct table *table, float *padded, const float *flat);
void problem_unpack(const struct table *table, float *flat, const float *padded);

/* A micro-batch under way. */
struct problem_slot {
    int64_t number; /* worker.begun */
    struct sotto_microbatch batch;
    struct oracle_result result;
    float **edge[2]; /* (n_stage) what passes before a stage, and its gradient; NULL: none */
};

/* A problem as a method sees it. Callbacks get fp32: where a method holds bf16 (precision = mixed),
 * parameters are widened into a copy and the gradient is added back from one. */
struct problem_oracle {
    struct oracle base;
    struct sotto_problem problem;
    struct worker *worker;
    struct device *dev;
    void *user;                    /* the problem's `worker` */
    bool open;                     /* and it is to be closed */
    double seconds;                /* of a micro-batch, where time is modelled */
    double *share;                 /* (n_stage) of that time */
    bool *needs;                   /* (n_stage, n_stage) */
    const float **theta;           /* (tensors) as the callbacks see them */
    float **grad;                  /* (tensors) */
    struct buffer wide[2];         /* mixed: theta and grad in fp32 */
    struct view *wide_at[2];       /* (n_stage) their stages; NULL: not mixed */
    float *host[2];                /* what the host sees of memory that it cannot reach */
    struct view *host_at[2];       /* (n_stage) */
    const struct view *seen_at[2]; /* (n_stage) which of the two the callbacks see */
    struct problem_slot *slot;     /* (slots) */
    struct {                       /* the stage being computed, for the line of work that does it */
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
    int slots; /* micro-batches that may be under way at once; 0: one */
};
enum sotto_status problem_oracle_init(struct problem_oracle *o,
                                      const struct problem_oracle_setup *setup);
void problem_oracle_free(struct problem_oracle *o);

/* Part of both: the copies, and the slots. */
enum { PROBLEM_THETA, PROBLEM_GRAD };
enum sotto_status problem_memory_init(struct problem_oracle *o, bool mixed, int64_t seed);
void problem_memory_free(struct problem_oracle *o);

/* How long a micro-batch takes on this machine, in real time, at parameters `padded`. */
enum sotto_status problem_oracle_measure(struct problem_oracle *o, float *padded, double *seconds);

struct sotto_worker {
    struct worker *worker;
    const struct cluster *cluster;
};

/* Rank 0, and under MPI everybody: who writes to what belongs to the process. */
static inline bool embed_first_here(const struct sotto_worker *w)
{
    return w->worker->rank == 0 || w->cluster->mpi;
}

/* Groups that have no rounds in common. */
struct embed_apart {
    bool begun;               /* a round was made                                    */
    bool trains;              /* groups do, each by itself                           */
    bool met;                 /* all have, and wait with training until all go on    */
    bool over;                /* ... which they do not                               */
    struct async_round round; /* the last                                           */
    double origin;            /* of the clock: training began there, but for pauses  */
    struct sotto_push *push;  /* rank 0: that were not told of, [first, n); owned    */
    size_t first, n, room;
};

struct sotto_trainer {
    struct sotto_worker *worker;
    struct memory memory;
    struct device dev;
    struct table table;
    struct problem_oracle oracle;
    struct mesh mesh;
    struct strategy *strategy;
    struct optim_config before; /* of the file that is loaded: kind and momentum */
    char method[OPTION_ROOM];   /* ... and what saved it                         */
    int64_t step;
    double lr;                      /* negative: the schedule's */
    bool stop;                      /* with the next round      */
    bool keeps;                     /* what it saves must not be lost: sotto_train */
    struct rescue rescue;           /* of it, on rank 0 ... */
    char elsewhere[FILE_PATH_ROOM]; /* ... and where it was saved instead; "": in its place */
    double save_minutes;            /* between two saves by time; 0: none is */
    double save_at;             /* real time of the next save, on rank 0; INFINITY: not by time */
    struct status_note failure; /* after which nothing but destroy makes sense */
    struct meter meter;         /* runs in rounds           */
    struct plan plan;   /* of the round under way: after a failure lanes may still read it */
    struct round round; /* and write here */
    struct embed_apart apart;
};

/* sotto_trainer_create for a trainer that is saved by time, too; 0 minutes: it is not. */
enum sotto_status trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                 const struct sotto_problem *theirs, const float *parameters,
                                 double save_minutes);

/* True, on all workers, if a checkpoint is due after the round, by time. */
bool trainer_saves(const struct sotto_trainer *t);

/* Begins to wait for the next save by time. */
void trainer_save_later(struct sotto_trainer *t);

struct sotto_cost embed_cost(const struct cost *c);

/* Keeps the first failure; returns `st`. */
enum sotto_status trainer_failed(struct sotto_trainer *t, enum sotto_status st);

/* The rest of the last round's step, which is training; all workers do it together. */
enum sotto_status trainer_settle(struct sotto_trainer *t);

/* A round of a group that has none in common with others. */
static inline bool trainer_is_apart(const struct sotto_trainer *t)
{
    return t->strategy->async != NULL;
}
enum sotto_status trainer_round_apart(struct sotto_trainer *t);
enum sotto_status trainer_has_pushes(const struct sotto_trainer *t); /* refuses the others */

/* Refuses `call` where workers do not meet, unless a group may do it behind a pull. */
enum sotto_status trainer_meets(const struct sotto_trainer *t, const char *call, bool pulled);

/* Between rounds, around what is not training and all workers do together. */
enum sotto_status trainer_pause(struct sotto_trainer *t);
enum sotto_status trainer_go_on(struct sotto_trainer *t);

/* The parameters in the table's layout, until the caller drops them; NULL unless `wanted`. */
enum sotto_status trainer_export(struct sotto_trainer *t, bool wanted, float **padded);
void trainer_drop(struct sotto_trainer *t, float *padded);

#endif

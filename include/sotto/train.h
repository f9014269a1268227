/* Training with a gradient of your own: every method of the library over threads, MPI ranks or
 * workers in virtual time. docs/embedding.md walks through it, examples/quadratic.c is a whole
 * program.
 *
 *     struct sotto_tensor tensors[] = {{"w", {3, 4}, 0}, {"b", {4}, 0}};
 *     struct sotto_problem problem = {sizeof problem, tensors, 2, my_gradient};
 *     float parameters[16] = {0};
 *     struct sotto_training training = {sizeof training, &problem, options, parameters};
 *     sotto_options_create(&options);
 *     sotto_options_set(options, "strategy", "zero1");
 *     sotto_options_set(options, "workers", "4");
 *     sotto_train(&training, NULL);
 *
 * Numbers of parameters and gradients are fp32 in host memory.
 *
 * Structs that may get more members begin with `struct_size`. Whoever makes one sets it to its
 * sizeof; what the library makes has it set. A program that was compiled with an older header hands
 * over less: the library takes the members that it lacks as 0, and writes no further than it
 * reaches. One that was compiled with a newer header hands over more, which must be 0 as far as the
 * library does not know it. A size that is too small for the first such header, such as 0, is
 * refused. New members come last; the other structs (tensors, costs) do not grow. */
#ifndef SOTTO_TRAIN_H
#define SOTTO_TRAIN_H

#include <sotto/sotto.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is trained: a table of tensors, and callbacks that compute. */
struct sotto_tensor {
    const char *name; /* unique, below 96 printable characters */
    int64_t shape[4]; /* ends with the first 0; none: a scalar */
    int stage;        /* 0, 1, ... in the table's order; 0 unless the problem has forward and
                       * backward */
};

/* Which micro-batch it is, and what came out. It should be a function of these four numbers: then
 * runs can be repeated and resumed, and no two workers see the same data. */
struct sotto_microbatch {
    size_t struct_size;
    int64_t index;   /* of those of `rank`, from 0                                           */
    int rank, size;  /* the worker whose data they are, and the workers                      */
    int64_t seed;    /* train.seed                                                           */
    bool sum;        /* false: the gradient of the mean loss over the targets is wanted;
                      * true (strategy.weight = tokens): of the sum                          */
    double loss;     /* out: summed over the targets                                         */
    int64_t targets; /* out: how many; 1 unless set, which makes `sum` meaningless           */

    /* Methods that pipeline have several micro-batches under way: what a worker keeps of one from
     * forward to backward belongs to its slot. 0 unless the problem has worker_slots. */
    int slot;
    /* With problem.edges, what passes between stages. Forward of a stage reads x and writes y,
     * backward reads x and dy and writes dx; NULL before the first and behind the last stage. */
    const float *x;
    float *y;
    const float *dy;
    float *dx;
};

/* Adds this micro-batch's gradient to grad[] and sets batch->loss. theta[i] and grad[i] are tensor
 * i of the table, row by row; tensors of a stage lie one behind the other, so theta[0] of a problem
 * without stages is the whole vector. Whoever fails says why with sotto_fail. */
typedef enum sotto_status sotto_gradient(void *worker, struct sotto_microbatch *batch,
                                         const float *const *theta, float *const *grad);

/* The same stage by stage, so that communication overlaps the rest of the computation: forward of
 * stages 0 .. n-1, then backward of n-1 .. 0. What passes between stages stays with the worker,
 * unless problem.edges says how much it is. The
 * loss is known behind the last stage's backward. Tensors of other stages are NULL. */
typedef enum sotto_status sotto_forward(void *worker, struct sotto_microbatch *batch, int stage,
                                        const float *const *theta);
typedef enum sotto_status sotto_backward(void *worker, struct sotto_microbatch *batch, int stage,
                                         const float *const *theta, float *const *grad);

/* All that it points to is the caller's and must stay as it is while it is in use. Members left 0
 * are absent. */
struct sotto_problem {
    size_t struct_size;
    const struct sotto_tensor *tensors; /* (count) */
    int count;
    sotto_gradient *gradient; /* this one, ...        */
    sotto_forward *forward;   /* ... or these two     */
    sotto_backward *backward;

    void *user;
    /* (optional) What a worker needs for itself (activations, a place in a file), made before its
     * first micro-batch; its callbacks get it as `worker`. Without it they get `user`.
     *
     * Several workers live in one process. The callbacks of one worker come one at a time, though
     * not always from the same thread; those of different workers come at once. What workers share
     * must only be read, or locked. */
    enum sotto_status (*worker_open)(void *user, int rank, int size, void **worker);
    void (*worker_close)(void *worker); /* (optional) */

    /* (optional) (stages, stages): [k * stages + j] tells that stage k also reads stage j and adds
     * to its gradient (tied weights). */
    const bool *needs;
    /* (optional) (stages): the work of each, for virtual time; NULL: as their parameters. */
    const double *work;

    /* (optional) (stages): how many numbers pass from stage k - 1 to stage k in a micro-batch; [0]
     * is not used. The library then keeps them, as batch->x, y, dy and dx, and may have stages
     * computed by different workers. */
    const size_t *edges;
    /* (optional) Behind worker_open: so many micro-batches may be under way at once, and
     * batch->slot is below that. Without it stages hold one at a time. */
    enum sotto_status (*worker_slots)(void *worker, int slots);
};

/* Elements of all tensors together, the length of a whole vector: the tensors in the table's order.
 * 0: the problem is not sound, sotto_error() tells why. */
SOTTO_API size_t sotto_problem_count(const struct sotto_problem *problem);

/* Sets the message that sotto_error() will return, and returns `status`: for callbacks. */
SOTTO_API enum sotto_status sotto_fail(enum sotto_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* How it is trained: the options of `sotto train`.
 *
 * Sections [optim], [strategy], one for each method that has options (diloco.H), [worker], [link],
 * [comm], and of [train]: steps, seed, workers, nodes, time, threads, device, log_every,
 * eval_every, save_every, save_minutes. A key is "strategy.accumulate", or "accumulate" where only
 * one section has it; "strategy" alone is strategy.preset. A method's keys may go without its name
 * once it is chosen. */
struct sotto_options;

SOTTO_API enum sotto_status sotto_options_create(struct sotto_options **out);
SOTTO_API enum sotto_status sotto_options_copy(struct sotto_options **out,
                                               const struct sotto_options *from);
SOTTO_API void sotto_options_destroy(struct sotto_options *options); /* NULL is fine */

SOTTO_API enum sotto_status sotto_options_set(struct sotto_options *options, const char *key,
                                              const char *value);

/* An INI file. */
SOTTO_API enum sotto_status sotto_options_load(struct sotto_options *options, const char *path);

/* "--key=value" words of a command line, up to a "--"; the others are moved to the front of argv,
 * and *argc is their number. */
SOTTO_API enum sotto_status sotto_options_parse(struct sotto_options *options, int *argc,
                                                char **argv);

/* The value of a key as it would be typed, at most `room` characters with the terminator. */
SOTTO_API enum sotto_status sotto_options_get(const struct sotto_options *options, const char *key,
                                              char *out, size_t room);

/* Methods by their usual names, index 0, 1, ...: values of "strategy". NULL behind the last. */
SOTTO_API const char *sotto_strategy_name(int index);

/* What training has cost a worker, in its own time, which may be virtual. */
struct sotto_cost {
    double seconds;          /* of rounds                                       */
    double compute;          /* in the problem's callbacks                      */
    double wire;             /* communication on its way, wherever it was spent */
    double waited_others;    /* that it waited for workers which had not come   */
    double waited_wire;      /* that it waited for communication on its way     */
    int64_t inside, between; /* bytes sent, inside a node and to other nodes    */
    double update;           /* in steps, averages and copies of vectors        */
};

/* Groups of workers may have no rounds in common (async-diloco): each trains as many rounds as it
 * is asked for, pushes what it has moved, pulls new parameters and goes on, and nobody waits for a
 * slower one. The step of the whole run is then the rounds of all groups over the number of groups,
 * and moves with each push. */
struct sotto_push {
    size_t struct_size;
    int64_t number;       /* pushes before it                                */
    int64_t step;         /* of the run, behind it                           */
    int group;            /* whose it is                                     */
    int64_t rounds;       /* of the group, since it has pulled               */
    int64_t staleness;    /* pushes of others since then                     */
    int64_t microbatches; /* of the whole group                              */
    double loss;          /* mean over their targets                         */
    double seconds;       /* that the rounds took, ...                       */
    double idle;          /* ... and that the group waited before them       */
    double time;          /* of training, when it was applied; rank 0's time */
};

struct sotto_round {
    size_t struct_size;
    int64_t step, steps; /* rounds done, rounds in all                        */
    double loss;         /* mean over the targets of the round                */
    double grad_norm;    /* before clipping; negative: not computed           */
    double lr;
    double seconds; /* of this round                                     */
    int64_t targets, microbatches;
    bool stop;              /* a worker asked that this round be the last        */
    struct sotto_cost cost; /* of this worker, since the beginning               */
    bool over;              /* this round is the last, for all workers           */
    bool evaluate;          /* train.eval_every rounds are done, or all          */
    /* Where groups have no rounds in common, what a round tells is of this worker's group, but for
     * `step`, the run's as far as it knows. `evaluate`: one group is told, that has pulled.
     * Elsewhere all workers meet behind every round. */
    bool meet;   /* all workers do behind this one: train.save_every steps are done, or over */
    bool pulled; /* the group's work was applied, and it has new parameters */
    bool idle;   /* it had nothing to train                                 */
    const struct sotto_push *push; /* sotto_train: which one is told of; NULL: a round is */
};

enum sotto_memory { /* what memory is for */
                    SOTTO_MEMORY_PARAMETERS,
                    SOTTO_MEMORY_GRADIENTS,
                    SOTTO_MEMORY_OPTIMIZER,
                    SOTTO_MEMORY_COMMUNICATION,
                    SOTTO_MEMORY_OUTER,       /* of methods that keep groups in agreement */
                    SOTTO_MEMORY_ACTIVATIONS, /* precision = mixed: fp32 copies for the callbacks */
                    SOTTO_MEMORY_SCRATCH,
                    SOTTO_MEMORY_CHECKPOINT, /* while one is written */
                    SOTTO_MEMORY_CATEGORIES,
                    SOTTO_MEMORY_ROOM = 16 /* of arrays of them: there may be more one day */
};
SOTTO_API const char *sotto_memory_name(enum sotto_memory category);

enum { SOTTO_CLUSTER_ROOM = 320 };

struct sotto_result {
    size_t struct_size;
    int64_t step;           /* rounds done                                    */
    int rank, workers;      /* of the first worker in this process; in all    */
    double loss;            /* of the last round                              */
    struct sotto_cost cost; /* mean over the workers; seconds: the slowest's  */
    size_t memory[SOTTO_MEMORY_ROOM], memory_total; /* peaks of the worst worker, bytes */
    char cluster[SOTTO_CLUSTER_ROOM]; /* "4 nodes x 2 workers; inside 10GB/s,5us; ..." */
};

struct sotto_training {
    size_t struct_size;
    const struct sotto_problem *problem;
    const struct sotto_options *options; /* NULL: the defaults                              */
    float *parameters;                   /* (sotto_problem_count) in: to begin with, the same in
                                          * all processes; out: trained, in all processes   */
    /* (optional) Called by rank 0 after each round, on its thread; not 0: the next round shall be
     * the last, and sotto_train returns SOTTO_ESTOPPED with everything saved. Where groups have no
     * rounds in common: for each push, of any group, in their order. */
    int (*observe)(void *observer, const struct sotto_round *round);
    void *observer;
    /* (optional) A file to go on from if it is there, written each train.save_every rounds, each
     * train.save_minutes (15) and in the end. A crash leaves the old one or the new one. */
    const char *checkpoint;
    /* (optional) Where groups have no rounds in common: the order of pushes is written to this file
     * in the end. A run with it as async-diloco.replay has the same bits. */
    const char *pushes;
};

/* Trains to train.steps rounds, with workers in this process or, started by mpirun or srun, as one
 * of theirs. The first failure ends all workers and is returned with "worker R: " in front, where
 * there are several; the parameters stay as they were. Under MPI it is logged and ends the
 * processes of all ranks. `result` may be NULL. */
SOTTO_API enum sotto_status sotto_train(const struct sotto_training *training,
                                        struct sotto_result *result);

/* Training in a loop of your own.
 *
 * sotto_run calls `job` once for every worker; job makes a trainer and asks it for rounds until one
 * is over. All workers call the functions of their trainers in the same order. In virtual time only
 * the problem's callbacks and the communication take time, and a job has 1 MB of stack.
 *
 * Groups that have no rounds in common are as many as they are fast, so their workers do not make
 * the same calls: each asks for rounds until one is over, and what all workers call together they
 * call before the first round and behind those where all meet (round.meet). */
struct sotto_worker;
struct sotto_trainer;

typedef enum sotto_status sotto_job(struct sotto_worker *worker, void *arg);
SOTTO_API enum sotto_status sotto_run(const struct sotto_options *options, sotto_job *job,
                                      void *arg);

SOTTO_API int sotto_worker_rank(const struct sotto_worker *worker);
SOTTO_API int sotto_worker_size(const struct sotto_worker *worker);
SOTTO_API double sotto_worker_seconds(const struct sotto_worker *worker); /* its clock */

/* Sums `count` numbers over all workers, in the order of ranks; called by all of them. */
SOTTO_API enum sotto_status sotto_worker_sum(struct sotto_worker *worker, double *numbers,
                                             int count);

/* `parameters` is copied. */
SOTTO_API enum sotto_status sotto_trainer_create(struct sotto_trainer **out,
                                                 struct sotto_worker *worker,
                                                 const struct sotto_problem *problem,
                                                 const float *parameters);

/* `status`: SOTTO_OK, or why this worker cannot go on, which ends the others' waiting. Returns it,
 * with its message: a job ends with `return sotto_trainer_destroy(trainer, status)`. NULL is fine.
 */
SOTTO_API enum sotto_status sotto_trainer_destroy(struct sotto_trainer *trainer,
                                                  enum sotto_status status);

/* One update of the parameters. `round` may be NULL. */
SOTTO_API enum sotto_status sotto_trainer_round(struct sotto_trainer *trainer,
                                                struct sotto_round *round);

/* From the next round on this learning rate, the same on all workers, instead of the schedule's;
 * negative: the schedule's again. */
SOTTO_API void sotto_trainer_set_lr(struct sotto_trainer *trainer, double lr);

/* This worker would like the next round to be the last: all will see round.stop behind it, or where
 * groups have no rounds in common behind the one where they meet for it. */
SOTTO_API void sotto_trainer_stop(struct sotto_trainer *trainer);

/* Rounds done, also before it was loaded: round.step. */
SOTTO_API int64_t sotto_trainer_step(const struct sotto_trainer *trainer);

/* The parameters, whole and the same on all workers; `out` NULL where they are not wanted. Where
 * groups have no rounds in common, the workers of a group also call it by themselves, behind a
 * round that has pulled: what they have pulled is what the run has come to. */
SOTTO_API enum sotto_status sotto_trainer_parameters(struct sotto_trainer *trainer, float *out);

/* Where groups have no rounds in common, on rank 0: the next push that was not told of yet; *found
 * false: there is none. They are known behind a round of rank 0. */
SOTTO_API enum sotto_status sotto_trainer_pushed(struct sotto_trainer *trainer,
                                                 struct sotto_push *push, bool *found);

/* Likewise: the order of all pushes, to a file that rank 0 writes: sotto_training.pushes. */
SOTTO_API enum sotto_status sotto_trainer_pushes(struct sotto_trainer *trainer, const char *path);

/* Parameters, optimizer, method and place in the data, to and from one safetensors file, which rank
 * 0 writes and all read; another number of workers may go on from it, and another method, which
 * drops what it has no use for (an optimizer that has state must stay). What follows a load is what
 * would have followed the save, to the bit. Groups that have no rounds in common load before their
 * first one, and go on in the same number. */
SOTTO_API enum sotto_status sotto_trainer_save(struct sotto_trainer *trainer, const char *path);
SOTTO_API enum sotto_status sotto_trainer_load(struct sotto_trainer *trainer, const char *path);

/* Peaks by category into memory[], bytes; returns their peak together. */
SOTTO_API size_t sotto_trainer_memory(const struct sotto_trainer *trainer,
                                      size_t memory[SOTTO_MEMORY_ROOM]);

/* This program's place among those that mpirun or srun started; alone, rank 0 of 1. MPI starts once
 * in a process: a program that trains several times holds this open meanwhile. */
struct sotto_mpi;
SOTTO_API enum sotto_status sotto_mpi_open(struct sotto_mpi **out);
SOTTO_API void sotto_mpi_close(struct sotto_mpi *mpi); /* NULL is fine */
SOTTO_API int sotto_mpi_rank(const struct sotto_mpi *mpi);
SOTTO_API int sotto_mpi_size(const struct sotto_mpi *mpi);

/* Where warnings go, one line at a time and from any thread; without a sink they are dropped. */
typedef void sotto_log_sink(const char *line, void *arg);
SOTTO_API void sotto_log(sotto_log_sink *sink, void *arg);

#ifdef __cplusplus
}
#endif
#endif

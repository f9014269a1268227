/* Training with a gradient of your own: every method of the library over threads, MPI ranks or
 * workers in virtual time. docs/library/embedding.md is a tutorial, examples/quadratic.c a complete
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
 * Parameters and gradients are fp32 in host memory.
 *
 * Structs that may get more members begin with `struct_size`. The caller sets `struct_size` of its
 * own structs to their sizeof; structs made by the library have it set. A program compiled with an
 * older header passes a smaller struct: the library takes the missing members as 0 and writes no
 * member beyond the size. A program compiled with a newer header passes a larger struct: members
 * unknown to the library must be 0. A size below that of the first header with `struct_size`, such
 * as 0, is refused. New members are appended; the other structs (tensors, costs) do not grow.
 *
 * Groups: with strategy async-diloco, groups of workers have no rounds in common. Comments call
 * such groups asynchronous. */
#ifndef SOTTO_TRAIN_H
#define SOTTO_TRAIN_H

#include <sotto/sotto.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The problem to train: a table of tensors, and callbacks that compute. */
struct sotto_tensor {
    const char *name; /* unique, fewer than 96 printable characters */
    int64_t shape[4]; /* the dimensions, up to the first 0; none: a scalar */
    int stage;        /* 0, 1, ... in the table's order; 0 if the problem has no forward and
                         backward */
};

/* A micro-batch and its results. The data should be a function of index, rank, size and seed: then
 * runs can be repeated and resumed, and no two workers see the same data. */
struct sotto_microbatch {
    size_t struct_size;
    int64_t index;   /* index among the micro-batches of `rank`, from 0            */
    int rank, size;  /* the worker that the data belongs to; the number of workers */
    int64_t seed;    /* train.seed                                                 */
    bool sum;        /* false: the callback adds the gradient of the mean loss over the targets;
                        true (strategy.weight = tokens): of the summed loss */
    double loss;     /* out: loss, summed over the targets */
    int64_t targets; /* out: number of targets; 1 if not set, and `sum` has no effect then */

    /* Pipelining methods have several micro-batches in flight: a worker keeps data from forward to
     * backward by slot. 0 if the problem has no worker_slots. */
    int slot;
    /* With problem.edges: the numbers that pass between stages. Forward of a stage reads x and
     * writes y, backward reads x and dy and writes dx; NULL before the first stage and after the
     * last stage. */
    const float *x;
    float *y;
    const float *dy;
    float *dx;
};

/* Adds this micro-batch's gradient to grad[] and sets batch->loss. theta[i] and grad[i] are tensor
 * i of the table, row by row. Tensors of a stage are contiguous, so theta[0] of a problem without
 * stages is the whole vector. A callback that fails sets a message with sotto_fail. */
typedef enum sotto_status sotto_gradient(void *worker, struct sotto_microbatch *batch,
                                         const float *const *theta, float *const *grad);

/* Compute a micro-batch stage by stage, so that communication overlaps computation: forward of
 * stages 0 .. n-1, then backward of n-1 .. 0. Data between stages stays with the worker, unless
 * problem.edges gives its size. The loss is known after backward of the last stage. Tensors of
 * other stages are NULL. */
typedef enum sotto_status sotto_forward(void *worker, struct sotto_microbatch *batch, int stage,
                                        const float *const *theta);
typedef enum sotto_status sotto_backward(void *worker, struct sotto_microbatch *batch, int stage,
                                         const float *const *theta, float *const *grad);

/* A problem. The caller owns all memory that the struct points to and must not change it while the
 * problem is in use. Members left 0 are absent. */
struct sotto_problem {
    size_t struct_size;
    const struct sotto_tensor *tensors; /* (count) */
    int count;
    sotto_gradient *gradient; /* one callback, or two: */
    sotto_forward *forward;   /* forward and backward  */
    sotto_backward *backward;

    void *user;
    /* (optional) Opens a worker's own data (activations, a position in a file) before its first
     * micro-batch; callbacks receive the data as `worker`. Without worker_open they receive `user`.
     *
     * Several workers live in one process. The callbacks of a worker are called one at a time, but
     * not always from the same thread; callbacks of different workers run concurrently. Data shared
     * between workers must be read-only or locked. */
    enum sotto_status (*worker_open)(void *user, int rank, int size, void **worker);
    void (*worker_close)(void *worker); /* (optional) */

    /* (optional) (stages, stages): [k * stages + j] is true if stage k also reads stage j and adds
     * to its gradient (tied weights). */
    const bool *needs;
    /* (optional) (stages): the work of each stage, for virtual time; NULL: in proportion to
     * parameters. */
    const double *work;

    /* (optional) (stages): count of numbers that pass from stage k - 1 to stage k in a micro-batch;
     * [0] is not used. The library then keeps these numbers, as batch->x, y, dy and dx, and may let
     * different workers compute the stages. */
    const size_t *edges;
    /* (optional) Called after worker_open: at most `slots` micro-batches are in flight at once, and
     * batch->slot is below `slots`. Without worker_slots stages hold one micro-batch at a time. */
    enum sotto_status (*worker_slots)(void *worker, int slots);
};

/* Returns the number of elements of all tensors, the length of a whole vector with the tensors in
 * the table's order. 0: the problem is invalid, see sotto_error(). */
SOTTO_API size_t sotto_problem_count(const struct sotto_problem *problem);

/* Sets the message of sotto_error() and returns `status`: for callbacks. */
SOTTO_API enum sotto_status sotto_fail(enum sotto_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The options of training: the options of `sotto train`.
 *
 * Sections are [optim], [strategy], a section for each method with options (diloco.H), [worker],
 * [link], [comm], and of [train]: steps, seed, workers, nodes, time, threads, device, log_every,
 * eval_every, save_every, save_minutes. A key is "strategy.accumulate", or "accumulate" if only one
 * section has the key; "strategy" alone is strategy.preset. Keys of a method work without its name
 * after the method is chosen. */
struct sotto_options;

/* Creates options with all values at their defaults. */
SOTTO_API enum sotto_status sotto_options_create(struct sotto_options **out);

/* Creates options with the values of `from`. */
SOTTO_API enum sotto_status sotto_options_copy(struct sotto_options **out,
                                               const struct sotto_options *from);

/* Destroys options; NULL is allowed. */
SOTTO_API void sotto_options_destroy(struct sotto_options *options);

/* Sets a key to a value as typed on a command line: "lr", "1e-3". */
SOTTO_API enum sotto_status sotto_options_set(struct sotto_options *options, const char *key,
                                              const char *value);

/* Loads an INI file. */
SOTTO_API enum sotto_status sotto_options_load(struct sotto_options *options, const char *path);

/* Parses the "--key=value" words of a command line, up to a "--". Other words are moved to the
 * front of argv, and *argc becomes their number. */
SOTTO_API enum sotto_status sotto_options_parse(struct sotto_options *options, int *argc,
                                                char **argv);

/* Writes the value of a key, as typed, to `out`: at most `room` characters including the
 * terminator. */
SOTTO_API enum sotto_status sotto_options_get(const struct sotto_options *options, const char *key,
                                              char *out, size_t room);

/* Returns the name of method `index`, counted from 0: a value of "strategy". NULL after the last
 * method. */
SOTTO_API const char *sotto_strategy_name(int index);

/* The cost of training of a worker, in its own time, which may be virtual. */
struct sotto_cost {
    double seconds;          /* in rounds                                     */
    double compute;          /* in the problem's callbacks                    */
    double wire;             /* of communication in flight, overlapped or not */
    double waited_others;    /* waiting for slower workers                    */
    double waited_wire;      /* waiting for communication in flight           */
    int64_t inside, between; /* bytes sent inside a node; to other nodes      */
    double update;           /* in steps, averages and copies of vectors      */
};

/* A push of an asynchronous group. Each group trains the number of rounds that its task sets,
 * pushes its change of the parameters, pulls new parameters and continues; no group waits for a
 * slower group. The step of the whole run is the rounds of all groups divided by the number of
 * groups, and grows with each push. */
struct sotto_push {
    size_t struct_size;
    int64_t number;       /* pushes before this push */
    int64_t step;         /* step of the run after this push */
    int group;            /* the group that pushed */
    int64_t rounds;       /* rounds of the group since its pull */
    int64_t staleness;    /* pushes of other groups since its pull */
    int64_t microbatches; /* micro-batches of the whole group */
    double loss;          /* mean loss over their targets */
    double seconds;       /* duration of the rounds */
    double idle;          /* time that the group waited before the rounds */
    double time;          /* training time when the push was applied, by rank 0's clock */
};

/* What a worker knows after a round. */
struct sotto_round {
    size_t struct_size;
    int64_t step, steps; /* rounds done; rounds of the run          */
    double loss;         /* mean over the targets of the round      */
    double grad_norm;    /* before clipping; negative: not computed */
    double lr;
    double seconds; /* duration of this round */
    int64_t targets, microbatches;
    bool stop;              /* a worker requested that this round be the last        */
    struct sotto_cost cost; /* of this worker, since the start                       */
    bool over;              /* this round is the last, for all workers               */
    bool evaluate;          /* true every train.eval_every rounds and after the last */
    /* With asynchronous groups all members describe this worker's group, except `step`, the step of
     * the run as far as the group knows it. `evaluate` is then true for one group, after a pull.
     * Otherwise all workers meet after every round. */
    bool meet;   /* all workers meet after this round: train.save_every steps are done, or `over` */
    bool pulled; /* the group's push was applied, and the group has new parameters */
    bool idle;   /* the group had nothing to train */
    const struct sotto_push *push; /* sotto_train: the push to observe; NULL: a round */
};

/* The use of memory. */
enum sotto_memory {
    SOTTO_MEMORY_PARAMETERS,
    SOTTO_MEMORY_GRADIENTS,
    SOTTO_MEMORY_OPTIMIZER,
    SOTTO_MEMORY_COMMUNICATION,
    SOTTO_MEMORY_OUTER,       /* state of methods that synchronize groups */
    SOTTO_MEMORY_ACTIVATIONS, /* precision = mixed: fp32 copies for the callbacks */
    SOTTO_MEMORY_SCRATCH,
    SOTTO_MEMORY_CHECKPOINT, /* while a checkpoint is written */
    SOTTO_MEMORY_CATEGORIES,
    SOTTO_MEMORY_ROOM = 16 /* length of arrays by category, with spare */
};

/* Returns the name of a category, as in report.json: "optimizer". */
SOTTO_API const char *sotto_memory_name(enum sotto_memory category);

/* Characters of a cluster's description, including the terminator. */
enum { SOTTO_CLUSTER_ROOM = 320 };

/* The result of sotto_train. */
struct sotto_result {
    size_t struct_size;
    int64_t step;           /* rounds done                                             */
    int rank, workers;      /* of the first worker in this process; workers of the run */
    double loss;            /* of the last round                                       */
    struct sotto_cost cost; /* mean over the workers; seconds: of the slowest worker   */
    size_t memory[SOTTO_MEMORY_ROOM], memory_total; /* peaks of the largest worker, bytes */
    char cluster[SOTTO_CLUSTER_ROOM]; /* "4 nodes x 2 workers; inside 10GB/s,5us; ..." */
};

/* The arguments of sotto_train. Members left 0 are absent. */
struct sotto_training {
    size_t struct_size;
    const struct sotto_problem *problem;
    const struct sotto_options *options; /* NULL: the defaults */
    float *parameters;                   /* (sotto_problem_count) in: initial parameters, the same
                                            in all processes; out: trained parameters, in all
                                            processes */
    /* (optional) Called by rank 0 after each round, on its thread. If the result is not 0, the next
     * round is the last, and sotto_train returns SOTTO_ESTOPPED with everything saved. With
     * asynchronous groups: called for each push of any group, in order. */
    int (*observe)(void *observer, const struct sotto_round *round);
    void *observer;
    /* (optional) A checkpoint file: training resumes from the file if it exists, and writes it
     * every train.save_every rounds, every train.save_minutes (15) and at the end. A crash leaves
     * the old file or the new file. */
    const char *checkpoint;
    /* (optional) With asynchronous groups: a file that receives the order of pushes at the end. A
     * run with this file as async-diloco.replay has the same bits. */
    const char *pushes;
};

/* Trains to train.steps rounds, with workers in this process or, started by mpirun or srun, with
 * this process as a rank. The first failure ends all workers and is returned, with "worker R: "
 * before the message if there are several workers; `parameters` is then unchanged. Under MPI the
 * failure is logged and ends the processes of all ranks. `result` may be NULL. */
SOTTO_API enum sotto_status sotto_train(const struct sotto_training *training,
                                        struct sotto_result *result);

/* A worker of sotto_run, valid during the job. */
struct sotto_worker;

/* A method at work on one worker. */
struct sotto_trainer;

/* The body of a worker. The first failure ends all workers and is returned by sotto_run. */
typedef enum sotto_status sotto_job(struct sotto_worker *worker, void *arg);

/* Training in a loop of your own.
 *
 * sotto_run calls `job` once for every worker; the job creates a trainer and runs rounds until a
 * round is `over`. All workers call the functions of their trainers in the same order. In virtual
 * time only the problem's callbacks and the communication take time, and a job has 1 MB of stack.
 *
 * Workers of asynchronous groups do not make the same calls, since a fast group makes more rounds:
 * each worker runs rounds until a round is `over`. Functions that all workers call together are
 * called before the first round, and after rounds in which all workers meet (round.meet). */
SOTTO_API enum sotto_status sotto_run(const struct sotto_options *options, sotto_job *job,
                                      void *arg);

/* Returns the worker's rank, from 0. */
SOTTO_API int sotto_worker_rank(const struct sotto_worker *worker);

/* Returns the number of workers. */
SOTTO_API int sotto_worker_size(const struct sotto_worker *worker);

/* Returns the time of the worker's clock in seconds; the clock may be virtual. */
SOTTO_API double sotto_worker_seconds(const struct sotto_worker *worker);

/* Sums `count` numbers over all workers, in the order of ranks; called by all workers. */
SOTTO_API enum sotto_status sotto_worker_sum(struct sotto_worker *worker, double *numbers,
                                             int count);

/* Creates a trainer; `parameters` is copied. */
SOTTO_API enum sotto_status sotto_trainer_create(struct sotto_trainer **out,
                                                 struct sotto_worker *worker,
                                                 const struct sotto_problem *problem,
                                                 const float *parameters);

/* Destroys a trainer. `status` is SOTTO_OK, or the reason why this worker cannot continue; a
 * failure ends the waiting of other workers. Returns `status` with its message: a job ends with
 * `return sotto_trainer_destroy(trainer, status)`. NULL is allowed. */
SOTTO_API enum sotto_status sotto_trainer_destroy(struct sotto_trainer *trainer,
                                                  enum sotto_status status);

/* Runs a round: one update of the parameters. `round` may be NULL. */
SOTTO_API enum sotto_status sotto_trainer_round(struct sotto_trainer *trainer,
                                                struct sotto_round *round);

/* Sets the learning rate from the next round on, the same on all workers, in place of the schedule;
 * negative: the schedule again. */
SOTTO_API void sotto_trainer_set_lr(struct sotto_trainer *trainer, double lr);

/* Requests that the next round be the last: all workers see round.stop after that round. With
 * asynchronous groups: after the round in which all workers meet for the stop. */
SOTTO_API void sotto_trainer_stop(struct sotto_trainer *trainer);

/* Returns the rounds done, including rounds before a load: round.step. */
SOTTO_API int64_t sotto_trainer_step(const struct sotto_trainer *trainer);

/* Gathers the whole parameters, the same on all workers; `out` is NULL on workers that do not want
 * them. With asynchronous groups, the workers of a group may also call this function by themselves
 * after a round that has pulled: the parameters are those of the run at the pull. */
SOTTO_API enum sotto_status sotto_trainer_parameters(struct sotto_trainer *trainer, float *out);

/* Returns the next push of asynchronous groups, on rank 0, in order; *found is false if there is no
 * new push. Pushes are known after a round of rank 0. */
SOTTO_API enum sotto_status sotto_trainer_pushed(struct sotto_trainer *trainer,
                                                 struct sotto_push *push, bool *found);

/* Writes the order of all pushes of asynchronous groups to a file on rank 0, see
 * sotto_training.pushes; called by all workers. */
SOTTO_API enum sotto_status sotto_trainer_pushes(struct sotto_trainer *trainer, const char *path);

/* Save parameters, optimizer, method and position in the data to a safetensors file, and load it;
 * rank 0 writes, all ranks read. A load may have another number of workers, and another method,
 * which drops data that it does not use (an optimizer with state must stay the same). Training
 * after a load has the same bits as training after the save. Asynchronous groups load before their
 * first round, with the same number of groups. */
SOTTO_API enum sotto_status sotto_trainer_save(struct sotto_trainer *trainer, const char *path);
SOTTO_API enum sotto_status sotto_trainer_load(struct sotto_trainer *trainer, const char *path);

/* Stores the peak of each category in memory[], in bytes; returns the peak of their sum. */
SOTTO_API size_t sotto_trainer_memory(const struct sotto_trainer *trainer,
                                      size_t memory[SOTTO_MEMORY_ROOM]);

/* This program's rank among the programs that mpirun or srun started; rank 0 of 1 otherwise. MPI
 * starts once in a process: a program that trains several times keeps this open meanwhile. */
struct sotto_mpi;

/* Starts MPI, or counts another use if MPI runs. */
SOTTO_API enum sotto_status sotto_mpi_open(struct sotto_mpi **out);

/* Ends a use of MPI; NULL is allowed. */
SOTTO_API void sotto_mpi_close(struct sotto_mpi *mpi);

/* Returns this program's rank, from 0. */
SOTTO_API int sotto_mpi_rank(const struct sotto_mpi *mpi);

/* Returns the number of programs. */
SOTTO_API int sotto_mpi_size(const struct sotto_mpi *mpi);

/* Receives a warning: a line without its end, from any thread. */
typedef void sotto_log_sink(const char *line, void *arg);

/* Sets the sink of warnings, and the argument that the sink receives. Without a sink (NULL)
 * warnings are dropped. */
SOTTO_API void sotto_log(sotto_log_sink *sink, void *arg);

#ifdef __cplusplus
}
#endif
#endif

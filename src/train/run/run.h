/* A training run: configuration, data, model and folder, and the workers that train.
 *
 * struct run has the state that all workers of a process share and only read while they train;
 * struct run_worker (run_worker.h) has one worker's. Nothing here prints: a watcher is called with
 * the progress, and may ask the run to stop. */
#ifndef SOTTO_TRAIN_RUN_RUN_H
#define SOTTO_TRAIN_RUN_RUN_H

#include <stdatomic.h>

#include "data/image/images.h"
#include "hf/class_names.h"
#include "hf/evaluate.h"
#include "hf/hf_folder.h"
#include "io/metrics.h"
#include "io/rundir.h"
#include "io/state.h"
#include "train/oracle/model_oracle.h"
#include "train/run/best.h"
#include "train/run/lend.h"
#include "train/run/rescue.h"
#include "train/run/training.h"

struct run;
struct run_worker;

/* A round, as rank 0 reports it. A round of train.log_every is reported once all workers have done
 * it, with the numbers of all workers; another round at once, with the numbers of rank 0. */
struct run_step {
    int64_t step, steps;             /* rounds done; of the whole run, or BUDGET_UNKNOWN */
    int64_t tokens, samples;         /* of all workers, since the run's beginning */
    int64_t own_tokens, own_samples; /* of the own group, to be added by round_totals */
    struct round round;
    double lr;
    double seconds;      /* of this round: the difference in `slowest` */
    double tokens_per_s; /* of the rounds since the last report */
    struct cost cost;    /* of the rounds since the last report, mean over the workers */
    struct cost own;     /* of rank 0, since the run's beginning */
    double slowest;      /* seconds of the slowest worker, since the run's beginning */
    double eta;          /* seconds left, of real time */
    bool report;         /* a round of train.log_every */
    /* Of asynchronous groups, since the last report. `round` and the counts are of the pushes then,
     * and `cost` is zero. */
    struct {
        int64_t n, all;   /* pushes since the last report, and since the run's beginning */
        double staleness; /* mean over the pushes: pushes of other groups since the pull */
        double idle;      /* share of the time that groups waited */
    } pushes;
    struct {         /* of outer gradients, if the method measures the cosine, since the report */
        int64_t n;   /* exchanges; of asynchronous groups: pushes, each to the push before */
        double mean; /* over the exchanges or pushes */
    } cosine;
    struct run_worker *worker; /* on rank 0 */
};

/* Calls from rank 0, unless noted otherwise; each optional. */
struct run_watch {
    void (*step)(void *arg, const struct run_step *s);
    void (*evaluated)(void *arg, int64_t step, const struct evaluation *e);
    void (*saved)(void *arg, int64_t step, const char *folder);
    /* In each process: all workers have agreed to stop, and the run is saved; the report follows.
     */
    void (*stopped)(void *arg);
    /* Under MPI, on the first rank that fails alone: the failure is about to end the processes of
     * all ranks. */
    void (*failed)(void *arg, const struct run *run, enum sotto_status st);
    void *arg;
    const atomic_int *stop;  /* non-zero: finish this round, save and return */
    const char *program;     /* in commands that resume the run; NULL: "sotto" */
    const char *calibration; /* file of measured times that several runs share; NULL: none */
    const char *from;        /* checkpoint in another folder from which the run in train.out
                                continues, and which stays unchanged; NULL: none */
};

struct run_result {
    bool complete;  /* the budget is spent */
    int64_t steps;  /* of the whole run */
    int64_t rounds; /* made by this process, not before a resume */
    int64_t step, tokens, samples;
    double seconds;               /* of training, the slowest worker's, since the run's beginning */
    double loss;                  /* mean over the last tenth of the reports */
    double cosine;                /* mean over the run, as in run_step; NAN: not measured */
    struct evaluation evaluation; /* the last; targets 0: none */
    struct best best;
    uint64_t hash;                /* of parameters and state */
    struct worker_report *worker; /* (size); owned */
    struct push_totals *group;    /* (groups) of asynchronous groups; else NULL; owned */
};

struct run {
    struct run_config config;            /* resolved */
    struct tokenizer *tokenizer;         /* NULL: the data are token files */
    char tokenizer_from[FILE_PATH_ROOM]; /* file or folder of the tokenizer; "": trained, or none */
    struct hf_folder folder;             /* on rank 0: the files published next to the weights */
    struct loader *train, *valid;        /* valid NULL: no held-out data */
    struct model model;
    struct table declared;     /* train.oracle = null: sizes without a model */
    const struct table *table; /* the model's, or `declared` */
    struct cluster cluster;
    const char *device;        /* name; of train.device = auto the one chosen */
    char kernels[64];          /* of the device: device_describe */
    int sharing;               /* processes on the GPU, with this one */
    double microbatch_seconds; /* of virtual time */
    struct {                   /* the classifier of a model over images */
        int loaded, wanted;    /* classes of the loaded model, and set by the user; 0: none */
        bool fresh;            /* made from the seed, not loaded */
    } head;
    _Atomic int64_t diverged; /* steps before a loss, gradient or parameter was NaN; 0: none was */
    bool keeps_all;           /* layers keep activations that they could compute again */
    float *start;             /* parameters to begin with, until all workers have copied them */
    float *start_state;       /* the model's other state to begin with; NULL: none */
    /* The checkpoint that the run continues from. */
    char checkpoint[FILE_PATH_ROOM];  /* its folder; "": none */
    struct checkpoint_hold hold;      /* of the checkpoint, on rank 0, while the run is opened */
    struct run_config *before;        /* that made the checkpoint; NULL: a new run; owned */
    bool own_tokenizer;               /* the checkpoint's tokenizer replaces data.tokenizer */
    struct state_file state;          /* until all workers have loaded their state */
    struct lent lent;                 /* of `state`, for ranks without the file */
    char lent_folder[FILE_PATH_ROOM]; /* of small files of the model that training starts from; "":
                                         none */
    bool refused;                     /* rank 0: the checkpoint does not fit the configuration */
    bool planned;                     /* opened by run_plan: the disk is checked after the plan */
    struct run_watch watch;
    struct rundir dir; /* on rank 0 */
    double
        checkpoint_bytes; /* on rank 0: disk for a checkpoint, estimated; 0: the run saves none */
    struct rescue rescue; /* of failed writes to `dir` */
    struct rundir *elsewhere; /* of the newest checkpoint; NULL: in `dir`; owned */
    struct metrics metrics;
    bool metrics_open;
    struct run_result result; /* on rank 0 */
};

/* Warns if the groups would first exchange after the last of `rounds` rounds. Returns true if a
 * warning was printed. */
bool run_warn_rare(const struct run *run, int64_t rounds);

/* Warns of options of the method that make little sense for the run's model and optimizer. */
void run_warn_strategy(const struct run *run);

/* The kind of the model's samples: words for messages, and whether tokens are counted. */
static inline const struct sample_kind *run_kind(const struct run *run)
{
    return &sample_kinds[run->model.sample.content];
}

/* Writes the device and its kernels: "cpu (v4)", "cuda (NVIDIA H200)". */
#define RUN_DEVICE_ROOM 128
void run_describe_device(const struct run *run, char text[RUN_DEVICE_ROOM]);

/* True if the run leaves checkpoints and a model; train.oracle = null has no parameters. */
static inline bool run_keeps(const struct run *run)
{
    return run->config.train.oracle != ORACLE_NULL && run->config.train.save;
}

/* The folder with the newest checkpoint of the run. */
static inline const char *run_place(const struct run *run)
{
    return run->elsewhere ? run->elsewhere->path : run->config.train.out;
}

/* Opens all parts that workers share. Locks the folder first, since another run may train there.
 * With train.resume the run continues from the newest checkpoint, if there is one. */
enum sotto_status run_open(struct run *run, const struct run_config *config,
                           const struct run_watch *watch);

/* As run_open, for a folder that the caller has locked. The run takes `dir` over, even if opening
 * fails. `dir` NULL: the folder is not locked yet. */
enum sotto_status run_open_in(struct run *run, const struct run_config *config,
                              const struct run_watch *watch, struct rundir *dir);

/* Opens a run to look at: the folder is neither locked nor made nor written. Only run_close may
 * follow. `from`: as in struct run_watch. */
enum sotto_status run_plan(struct run *run, const struct run_config *config, const char *from);
void run_close(struct run *run);

/* Fails if a run would refuse its configuration, as far as is known before data are opened. A
 * train.init that does not exist yet is not checked. */
enum sotto_status run_check(const struct run_config *config);

/* Under MPI: fails with the first difference if ranks have different configurations. */
enum sotto_status run_agree(const struct run *run, struct comm *mpi);

/* Trains with all workers until the budget is spent. SOTTO_ESTOPPED: the watcher has stopped the
 * run, and everything is saved. */
enum sotto_status run_train(struct run *run);

#endif

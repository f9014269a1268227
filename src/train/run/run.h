/* A training run: configuration, data, model and folder, and the workers that train.
 *
 * What all workers of a process share is here and only read while they run; what belongs to one is
 * a run_worker (run_worker.h). Nothing here prints. What happens is told to a watcher, which may
 * also ask the run to stop. */
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

/* What the watcher is told, by rank 0. A reported round is told when all workers have done it, with
 * everybody's numbers; the others at once, with rank 0's. */
struct run_step {
    int64_t step, steps; /* rounds done, and that the run will take (BUDGET_UNKNOWN: who knows) */
    int64_t tokens, samples;         /* of all workers, since the run's beginning */
    int64_t own_tokens, own_samples; /* of the own group, added to them by round_totals */
    struct round round;
    double lr;
    double seconds;      /* of this round: what it adds to slowest */
    double tokens_per_s; /* of the rounds since the last report */
    struct cost cost;    /* of the same rounds, a worker's mean */
    struct cost own;     /* rank 0's since the run's beginning */
    double slowest;      /* worker's seconds since the run's beginning */
    double eta;          /* seconds left, of real time      */
    bool report;         /* a log_every round               */
    /* Where groups have no rounds in common: the pushes since the last report, whose losses and
     * numbers these are; cost is not known then. */
    struct {
        int64_t n, all;   /* since then, and since the run's beginning         */
        double staleness; /* mean over them: pushes of others since their pull */
        double idle;      /* share of their time that groups waited            */
    } pushes;
    struct { /* of the groups' outer gradients, where that is measured, since the last report */
        int64_t n;   /* exchanges; without common rounds: pushes, each to the one before it */
        double mean; /* over them */
    } cosine;
    struct run_worker *worker;
};

struct run_watch {
    void (*step)(void *arg, const struct run_step *s);
    void (*evaluated)(void *arg, int64_t step, const struct evaluation *e);
    void (*saved)(void *arg, int64_t step, const char *folder);
    /* (optional) In each process: all workers have agreed to stop, and the run is saved; what
     * follows is its report. */
    void (*stopped)(void *arg);
    void *arg;
    const atomic_int *stop; /* (optional) non-zero: finish this round, save and return */
    /* (optional) Under MPI, before a failure ends the processes of all ranks: the last word, of the
     * first rank that fails alone. */
    void (*failed)(void *arg, const struct run *run, enum sotto_status st);
    const char *program;     /* (optional) that goes on with the run; default: "sotto" */
    const char *calibration; /* (optional) file of measured times that several runs share */
    const char *from; /* (optional) checkpoint in another folder that the run in train.out goes on
                         from; it stays as it is */
};

struct run_result {
    bool complete;  /* the budget is spent */
    int64_t steps;  /* that the run takes  */
    int64_t rounds; /* done this time     */
    int64_t step, tokens, samples;
    double seconds; /* of training, the slowest worker's, over all times it was resumed */
    double loss;    /* mean over the last tenth of the reports    */
    double cosine;  /* mean over the run, as in run_step; NAN: it was not measured */
    struct evaluation evaluation; /* the last; targets 0: none                  */
    struct best best;
    uint64_t hash;                /* of parameters and state                    */
    struct worker_report *worker; /* (size)                                     */
    struct push_totals *group;    /* (groups) where they have no rounds in common; else NULL */
};

struct run {
    struct run_config config;            /* resolved                       */
    struct tokenizer *tokenizer;         /* NULL: the data are token files */
    char tokenizer_from[FILE_PATH_ROOM]; /* its file or folder; "": trained, or none */
    struct hf_folder folder;             /* rank 0's: what goes out beside the weights */
    struct loader *train, *valid;        /* valid NULL: nothing held out   */
    struct model model;
    struct table declared;     /* oracle = null: sizes without a model */
    const struct table *table; /* of the one or the other              */
    struct cluster cluster;
    const char *device;        /* what train.device, perhaps auto, has come to */
    char kernels[64];          /* what computes: device_describe */
    int sharing;               /* processes on its GPU, with this one */
    double microbatch_seconds; /* where time is modelled */
    struct {
        int came, asked; /* classes of the model that training starts from, and those that were
                            asked for; 0: none, not said */
        bool anew;       /* it is made from the seed, not loaded */
    } head;              /* the classifier of a model over images */
    _Atomic int64_t
        diverged;       /* steps before a loss, gradient or parameter was no number; 0: none */
    bool keeps_all;     /* layers keep what they could compute again */
    float *start;       /* the parameters to begin with, until all workers have them */
    float *start_state; /* ... and what the model keeps beside them; NULL: nothing   */
    char checkpoint[FILE_PATH_ROOM];  /* to go on from; "": none */
    struct checkpoint_hold hold;      /* rank 0's, of it, while the run is opened */
    struct run_config *before;        /* what that was made with; NULL: a new run */
    bool own_tokenizer;               /* it has one, which is taken whatever data.tokenizer says */
    struct state_file state;          /* of it, for all workers, until they have loaded it */
    struct lent lent;                 /* the same for ranks that do not have it            */
    char lent_folder[FILE_PATH_ROOM]; /* with the small files of the model that training starts
                                       * from; "": there is none */
    bool refused;                     /* rank 0: it could not be gone on from so */
    struct run_watch watch;
    struct rundir dir;        /* rank 0's */
    double checkpoint_bytes;  /* rank 0's: of disk, about; 0: it makes none */
    struct rescue rescue;     /* of writes to `dir` that fail */
    struct rundir *elsewhere; /* where the newest checkpoint is instead; NULL: in `dir`; owned */
    struct metrics metrics;
    bool metrics_open;
    struct run_result result; /* of rank 0 */
};

/* Groups of a run of so many rounds that would exchange for the first time behind its end: it is
 * said what becomes of that. Whether it was. */
bool run_warn_rare(const struct run *run, int64_t rounds);

/* Warns of options of the method that make little sense for the run's model and optimizer. */
void run_warn_strategy(const struct run *run);

/* The kind of the model's samples: its words in messages, and whether tokens are counted. */
static inline const struct sample_kind *run_kind(const struct run *run)
{
    return &sample_kinds[run->model.sample.content];
}

/* What computes: "cpu (v4)", "cuda (NVIDIA H200)". */
#define RUN_DEVICE_ROOM 128
void run_describe_device(const struct run *run, char text[RUN_DEVICE_ROOM]);

/* Whether it leaves checkpoints and a model: the null oracle has none. */
static inline bool run_keeps(const struct run *run)
{
    return run->config.train.oracle != ORACLE_NULL && run->config.train.save;
}

/* The folder with the newest checkpoint of the run. */
static inline const char *run_place(const struct run *run)
{
    return run->elsewhere ? run->elsewhere->path : run->config.train.out;
}

/* Opens everything that workers share, the folder first: what is in it is looked at under its lock,
 * since another run may be at work there. With train.resume the run will go on from the newest
 * checkpoint, if there is one. */
enum sotto_status run_open(struct run *run, const struct run_config *config,
                           const struct run_watch *watch);

/* The same where the caller has locked the folder already, which the run takes over, also in
 * failure. `dir` NULL: it has not. */
enum sotto_status run_open_in(struct run *run, const struct run_config *config,
                              const struct run_watch *watch, struct rundir *dir);

/* The same for a look at what would be done: the folder is neither locked nor made nor written to,
 * and only run_close may follow. `from`: as in struct run_watch. */
enum sotto_status run_plan(struct run *run, const struct run_config *config, const char *from);
void run_close(struct run *run);

/* Whether a run would refuse its configuration: all that can be known before data are opened, and
 * where train.init is there yet. */
enum sotto_status run_check(const struct run_config *config);

/* Under MPI: an error that names the first difference if ranks have other configurations. */
enum sotto_status run_agree(const struct run *run, struct comm *mpi);

/* Trains until the budget is spent, with all workers. SOTTO_ESTOPPED: the watcher asked, and
 * everything is saved. */
enum sotto_status run_train(struct run *run);

#endif

/* A training run: configuration, data, model, method and folder together, and the loop over rounds.
 *
 * Nothing here prints. What happens is told to a watcher, which may also ask the run to stop. */
#ifndef SOTTO_TRAIN_RUN_H
#define SOTTO_TRAIN_RUN_H

#include <signal.h>

#include "base/clock.h"
#include "io/metrics.h"
#include "io/rundir.h"
#include "strategy/strategy.h"
#include "train/evaluate.h"
#include "train/oracle.h"

struct train_config { /* [train] */
    char out[OPTION_ROOM];
    char init[OPTION_ROOM]; /* Hugging Face folder to start from */
    bool resume;
    int64_t steps;
    int batch, seq; /* of a micro-batch; seq 0: the model's positions */
    int64_t seed;
    int64_t log_every, eval_every, save_every; /* rounds; 0: only at the end (eval, save) */
    int64_t eval_batches;                      /* 0: all held-out data */
    int keep;
    int threads;
    int stages;
    bool recompute;
    char device[OPTION_ROOM];
};

struct run_config {
    struct model_config model;
    struct data_config data;
    struct optim_config optim;
    struct strategy_config strategy;
    struct train_config train;
};

enum { RUN_SECTIONS = 5 };
void run_sections(struct run_config *config, struct option_section sections[RUN_SECTIONS]);

/* What the watcher is told. */
struct run_step {
    int64_t step, steps; /* rounds done, rounds in all */
    struct round round;
    double lr;
    double seconds;      /* of this round                   */
    double tokens_per_s; /* of the rounds since the last report */
    double eta;          /* seconds left                    */
    bool report;         /* a log_every round               */
};

struct run_watch {
    void (*step)(void *arg, const struct run_step *s);
    void (*evaluated)(void *arg, int64_t step, const struct evaluation *e);
    void (*saved)(void *arg, int64_t step, const char *folder);
    void *arg;
    const volatile sig_atomic_t *stop; /* (optional) non-zero: finish this round, save and return */
};

struct run {
    struct run_config config;
    struct tokenizer *tokenizer;  /* NULL: the data are token files */
    struct loader *train, *valid; /* valid NULL: nothing held out   */
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct model_oracle oracle;
    struct strategy *strategy;
    struct rundir dir;
    struct metrics metrics;
    int64_t step;   /* rounds done                    */
    int64_t tokens; /* seen                           */
    struct run_watch watch;
    bool metrics_open;
    bool resumed; /* from a checkpoint in the run folder */
};

/* Opens everything; with train.resume goes on from the newest checkpoint in the folder, if there is
 * one. */
enum sotto_status run_open(struct run *run, const struct run_config *config,
                           const struct run_watch *watch);
void run_close(struct run *run);

/* Trains to train.steps. SOTTO_ESTOPPED: the watcher asked, and everything is saved. */
enum sotto_status run_train(struct run *run);

/* Writes a checkpoint of this moment and publishes it in the run folder. */
enum sotto_status run_save(struct run *run);

/* A 64-bit hash of parameters and state, equal for equal bits. */
enum sotto_status run_hash(struct run *run, uint64_t *out);

#endif

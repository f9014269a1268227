/* The whole configuration of a run, as `sotto train --help` prints. */
#ifndef SOTTO_TRAIN_CONFIG_CONFIG_H
#define SOTTO_TRAIN_CONFIG_CONFIG_H

#include "data/loader.h"
#include "nn/config.h"
#include "strategy/strategy.h"

enum train_time { TIME_REAL, TIME_VIRTUAL };
enum train_oracle { ORACLE_MODEL, ORACLE_NULL };
enum train_head { HEAD_AUTO, HEAD_KEEP, HEAD_NEW };

struct train_config { /* [train] */
    char out[OPTION_ROOM];
    char init[OPTION_ROOM]; /* Hugging Face folder to start from */
    bool resume;
    int64_t steps;           /* -1: no limit, once resolved (budget.h) */
    int64_t tokens, samples; /* tokens or samples of all workers to train on; 0: no limit */
    double seconds;          /* seconds of training; 0: no limit */
    int batch, seq;          /* of a micro-batch; seq 0: the model's positions */
    int64_t seed;
    int64_t log_every, eval_every,
        save_every;       /* rounds between two; 0: only at the end (eval, save) */
    double eval_seconds;  /* seconds of training between two evaluations, in addition; 0: none */
    double save_minutes;  /* minutes between two checkpoints, in addition to save_every; 0: never */
    int64_t eval_batches; /* 0: all held-out data */
    bool save;            /* checkpoints and the model */
    int keep;
    bool keep_best;   /* keeps the checkpoint with the lowest held-out loss, too */
    int64_t patience; /* the run ends after `patience` evaluations without a lower loss; 0: never */
    int head;         /* enum train_head, of a model over images  */
    int save_dtype;   /* enum save_dtype, of the published weights */
    int workers;      /* 0: 1, or the ranks that MPI started */
    int nodes;        /* 0: 1, or the hosts of MPI's ranks */
    int time;         /* enum train_time                          */
    int oracle;       /* enum train_oracle                        */
    int threads;      /* cores for all workers on a machine; 0: all */
    bool pin;         /* pins each worker's threads to its own cores */
    int stages;       /* 0: one stage; with several workers one a layer */
    bool recompute;
    int activations;   /* enum dtype: fp32 or bf16         */
    bool trace;        /* see trace.h                      */
    bool check_memory; /* refuse a run without enough memory */
    bool check_disk;   /* refuse a run without enough disk */
    char device[OPTION_ROOM];
};

struct worker_config { /* [worker] */
    char speed[OPTION_LONG_ROOM];
    char step[OPTION_ROOM];   /* "50ms"; empty: measured */
    char memory[OPTION_ROOM]; /* "20GB/s"; "none": infinitely fast; empty: measured with step */
    double jitter;
    int64_t jitter_seed;
};

struct link_config { /* [link] */
    char intra[OPTION_ROOM], inter[OPTION_ROOM];
    int adapters; /* of each node; 0: one a worker */
    char speed[OPTION_LONG_ROOM];
};

struct comm_config { /* [comm] */
    int collectives; /* enum mpi_collectives */
    int nccl;        /* enum mpi_nccl */
    double meet;     /* seconds for MPI hosts to reach each other */
};

struct null_size_config {     /* [null] */
    int64_t parameters;       /* 0: the model's */
    int64_t activation_bytes; /* of a micro-batch */
};

struct run_config {
    struct model_config model;
    struct data_config data;
    struct optim_config optim;
    struct strategy_config strategy;
    struct train_config train;
    struct worker_config worker;
    struct link_config link;
    struct comm_config comm;
    struct null_size_config null;
};

/* The sections of architectures and methods are the last. */
enum {
    RUN_SHARED = 8,
    RUN_MODELS = MODEL_SECTIONS - 1, /* all but [model] */
    RUN_SECTIONS = RUN_SHARED + RUN_MODELS + STRATEGY_SECTIONS
};
void run_sections(struct run_config *config, struct option_section sections[RUN_SECTIONS]);

/* Reads the configuration that a run has saved, over the defaults. */
enum sotto_status config_load_kept(struct run_config *config, const char *path);
enum sotto_status config_parse_kept(struct run_config *config, const char *text, const char *name);

/* Calls `each` for every key whose value differs between the two. */
typedef void config_difference(void *arg, const char *key, const char *old_value,
                               const char *new_value);
void config_differences(const struct run_config *before, const struct run_config *after,
                        config_difference *each, void *arg);

/* Resets options about nodes to their defaults if the run has one node or worker and `base`, a
 * shared configuration, set the same values: they are meant for other runs. */
void config_set_aside_nodes(struct run_config *config, const struct run_config *base);

/* Limits against slips of the keyboard: a day for a micro-batch; a worker 1000 times slower or
 * faster than the others. */
#define CONFIG_SECONDS 1e5
#define CONFIG_SPEED 1e3

/* Parses a time: "50ms", "1.5s", "200us", "3" (seconds). */
enum sotto_status config_seconds(const char *key, const char *text, double *out);

/* Parses speeds of n workers or nodes (`whose`), "1,1,1,0.25", into out (n). The last speed is
 * repeated. */
enum sotto_status config_speeds(const char *key, const char *text, const char *whose, int n,
                                double *out);

#endif

/* The jobs of a comparison, one per run and seed, and the folders of earlier starts.
 *
 *     OUT/NAME/ or OUT/NAME-SEED/     the run's own folder, as sotto train writes it
 *     OUT/NAME/compare.ini            the run's configuration, compared at the next start */
#ifndef SOTTO_TRAIN_COMPARE_JOBS_H
#define SOTTO_TRAIN_COMPARE_JOBS_H

#include "io/rundir.h"
#include "train/compare/spec.h"

enum job_state {
    JOB_NEW,  /* the folder has no checkpoint and no report           */
    JOB_PART, /* a checkpoint of this configuration, to continue from */
    JOB_DONE, /* a report of this configuration                       */
};

struct job {
    int run, seed;               /* indices */
    char label[96];              /* "acco", "acco seed 2" */
    char folder[FILE_PATH_ROOM]; /* of the run */
    enum job_state state;
    bool wanted; /* chosen by --only, or --only is empty */
};

struct jobs {
    const struct spec *spec;
    int64_t seeds[RESULTS_SEEDS];
    int n_seeds; /* 0: one job per run, with the configured seed */
    int workers; /* default of train.workers, MPI's ranks; 0: the default of sotto train */
    struct job *list;
    int n;
};

enum sotto_status jobs_list(struct jobs *jobs, const struct spec *spec);

/* Sets `wanted` by `only` (as --only) and `state` by the folders. Refuses a wanted job whose folder
 * holds a run of another configuration, unless `again`, which is followed by jobs_clear. */
enum sotto_status jobs_find_states(struct jobs *jobs, const char *only, bool again);

/* Removes the earlier runs of wanted jobs, for --again. Called after all checks that may refuse. */
enum sotto_status jobs_clear(struct jobs *jobs);
void jobs_free(struct jobs *jobs);

/* Returns the job's configuration in `out`. Refuses settings that belong to compare. */
enum sotto_status job_config(const struct jobs *jobs, const struct job *job,
                             struct run_config *out);

/* Makes and locks the folder, updates the job's state, since another process may have written to
 * the folder before the lock, and writes compare.ini. The caller owns `dir`. */
enum sotto_status job_begin(const struct jobs *jobs, struct job *job, struct run_config *config,
                            struct rundir *dir);

#endif

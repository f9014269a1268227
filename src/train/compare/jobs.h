/* The runs of a comparison, one a run and seed, and what an earlier start has left of them.
 *
 *     OUT/NAME/ or OUT/NAME-SEED/     the run's own folder, as sotto train writes it
 *     OUT/NAME/compare.ini            its configuration, by which it is known again */
#ifndef SOTTO_TRAIN_COMPARE_JOBS_H
#define SOTTO_TRAIN_COMPARE_JOBS_H

#include "io/rundir.h"
#include "train/compare/spec.h"

enum job_state {
    JOB_NEW,  /* nothing there                                     */
    JOB_PART, /* a checkpoint of this configuration: to go on from */
    JOB_DONE, /* a report of this configuration                    */
};

struct job {
    int run, seed;               /* indices */
    char label[96];              /* "acco", "acco seed 2" */
    char folder[FILE_PATH_ROOM]; /* of the run */
    enum job_state state;
    bool wanted; /* by --only */
};

struct jobs {
    const struct spec *spec;
    int64_t seeds[RESULTS_SEEDS];
    int n_seeds; /* 0: one job a run, its seed as configured */
    int workers; /* where a run does not say; 0: as sotto train takes it */
    struct job *list;
    int n;
};

enum sotto_status jobs_list(struct jobs *jobs, const struct spec *spec);

/* Looks at the folders. Refuses a wanted job whose folder holds another configuration's run, unless
 * `again`: jobs_clear follows. `only` as in --only. */
enum sotto_status jobs_find_states(struct jobs *jobs, const char *only, bool again);

/* Removes what wanted jobs have left, for --again: once nothing is to be refused. */
enum sotto_status jobs_clear(struct jobs *jobs);
void jobs_free(struct jobs *jobs);

/* The job's configuration. */
enum sotto_status job_config(const struct jobs *jobs, const struct job *job,
                             struct run_config *out);

/* Makes and locks the folder, looks at it once more, since others may have been there meanwhile,
 * and leaves compare.ini in it. The caller hands `dir` on or closes it. */
enum sotto_status job_begin(const struct jobs *jobs, struct job *job, struct run_config *config,
                            struct rundir *dir);

#endif

/* One worker of a run: its training, with the library's own oracle, and what reports and
 * checkpoints say of the run. All workers do the same; rank 0 also keeps the folder. */
#ifndef SOTTO_TRAIN_RUN_RUN_WORKER_H
#define SOTTO_TRAIN_RUN_RUN_WORKER_H

#include "train/oracle/null_oracle.h"
#include "train/oracle/running_stats.h"
#include "train/run/run.h"

struct snapshots;

/* A model's gradients, or those of train.oracle = null. */
struct run_oracle {
    struct pool pool;
    struct trace trace;
    struct running_stats running;
    struct model_oracle model; /* training.oracle is the base of `model` or of `null` */
    struct null_oracle null;
};

/* What reports say of the whole run. */
struct run_totals {
    int64_t pushed_tokens, pushed_samples; /* of the pushes that were reported, on rank 0 */
    double tail_loss; /* of the last tenth of the rounds, summed over tail_reports reports */
    int64_t tail_reports;
    double cosine; /* summed over `cosines` exchanges or pushes that have one */
    int64_t cosines;
    struct evaluation evaluation; /* the last; targets 0: none */
    struct best best;             /* the same on all workers */
};

struct run_worker {
    struct run *run; /* shared: written to by rank 0 alone */
    struct training training;
    struct run_oracle oracle;
    struct run_totals totals;
    int64_t rounds;                     /* that the whole run is expected to take */
    struct snapshot_hook snapshot_hook; /* set by snapshots_open */
    struct snapshots *snapshots;
    void (*free_snapshots)(struct snapshots *s);
    bool failed; /* and run_worker_fail was called */
};

/* Called by all workers, as are the functions below. After a failure run_worker_close is still to
 * be called. */
enum sotto_status run_worker_open(struct run_worker *w, struct run *run, struct worker *worker);
void run_worker_close(struct run_worker *w);

/* Ends the waiting of all workers after training has failed on this worker: appends advice to the
 * message, calls watch.failed under MPI, and aborts. Does nothing if `st` is SOTTO_OK, or the
 * second time. Returns `st`. */
enum sotto_status run_worker_fail(struct run_worker *w, enum sotto_status st);

/* Evaluates the held-out data, of which each worker of `among` takes a share; *out is the same on
 * all. `among`: the world, or a group that evaluates by itself (async_round.evaluate). */
enum sotto_status run_worker_evaluate(struct run_worker *w, struct comm *among,
                                      struct evaluation *out);

#endif

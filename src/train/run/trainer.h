/* One worker of a run: its device, oracle, place in the mesh and method, and how far it is. All
 * workers do the same; rank 0 also keeps the folder. */
#ifndef SOTTO_TRAIN_RUN_TRAINER_H
#define SOTTO_TRAIN_RUN_TRAINER_H

#include "train/oracle/null_oracle.h"
#include "train/oracle/running_stats.h"
#include "train/run/run.h"

struct snapshots;

struct trainer {
    struct run *run; /* shared: written to by rank 0 alone */
    struct worker *worker;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct trace trace;
    struct running running;
    struct model_oracle model_oracle; /* one of the two ... */
    struct null_oracle null_oracle;
    struct oracle *oracle; /* ... is this */
    struct mesh mesh;
    struct snapshot_hook snapshot_hook; /* outlives the strategy; set by snapshots_open */
    struct snapshots *snapshots;
    void (*free_snapshots)(struct snapshots *s);
    struct strategy *strategy;
    int64_t step;                          /* rounds done  */
    int64_t tokens;                        /* seen, by all */
    int64_t samples;                       /* sequences    */
    int64_t own_tokens, own_samples;       /* of the own group, not among those yet */
    int64_t pushed_tokens, pushed_samples; /* of them, those of pushes that were told: rank 0's */
    char method[OPTION_ROOM];              /* that the checkpoint was made with */
    int64_t rounds;                        /* that the whole run is expected to take */
    double tail_loss; /* of the last tenth of the rounds, summed over reports */
    int64_t tail_reports;
    double cosine;                /* summed over the run's exchanges or pushes that had one ... */
    int64_t cosines;              /* ... which are so many */
    struct evaluation evaluation; /* the last; targets 0: none */
    struct best best;             /* the same on all workers */
    struct meter meter;
    bool failed; /* and trainer_fail was called */
};

/* Called by all workers, as are the functions below. */
enum sotto_status trainer_open(struct trainer *t, struct run *run, struct worker *w);
void trainer_close(struct trainer *t);

/* What has to be done first where training has failed, which ends the others' waiting: appends
 * advice to the message, and under MPI has the last word said. Does nothing where training has not
 * failed, or the second time. Returns the status. */
enum sotto_status trainer_fail(struct trainer *t, enum sotto_status st);

/* Writes a checkpoint of this moment and publishes it in the run folder. */
enum sotto_status trainer_save(struct trainer *t);

/* Takes over the state in the run's checkpoint, all but the parameters. */
enum sotto_status trainer_load(struct trainer *t);

/* A 64-bit hash of parameters and state, equal for equal bits; on rank 0. */
enum sotto_status trainer_hash(struct trainer *t, uint64_t *out);

/* The loss over the held-out data, each worker of `among` taking its share; the same on all. It is
 * the world or, where a group has what it may evaluate by itself (async_round.evaluate), that. */
enum sotto_status trainer_evaluate(struct trainer *t, struct comm *among, struct evaluation *out);

#endif

/* The code that dpu, acco-wp and acco share: a worker computes gradients while its lane reduces
 * earlier ones, steps the own slices and gathers parameters, and continues to compute until the
 * lane is done. No worker waits: slow workers contribute fewer micro-batches, fast workers more.
 *
 * Three whole vectors take turns in three roles, so that memory is (2 + 2 + 2 + K/N) bytes a
 * parameter in mixed precision (ACCO, table 1): parameters for computing, the sum of gradients, and
 * the lane's vector, in which a gradient turns into parameters. fp32 sums of gradients have a
 * vector of their own, and the lane receives a bf16 copy: 2 + 4 + 2. */
#ifndef SOTTO_STRATEGY_OVERLAP_OVERLAP_H
#define SOTTO_STRATEGY_OVERLAP_OVERLAP_H

#include "strategy/shard/shard.h"

/* First member of the configurations of these methods. */
struct overlap_config {
    char replay[OPTION_ROOM]; /* file of micro-batch counts; "": none */
};
#define OVERLAP_REPLAY                                                                             \
    OPTION_FILE(struct overlap_config, replay, "",                                                 \
                "file of micro-batch counts to repeat (a run's counts.tsv): gives the bits of "    \
                "that run")
extern const struct option overlap_options[1];
void overlap_dry_run(void *own);
enum sotto_status overlap_resolve(void *own,
                                  const struct strategy_config *config); /* checks the file */
bool overlap_timed(const void *own);

struct overlap {
    struct shard shard; /* its counts belong to the gradient sum */
    struct buffer room[3];
    int theta, g, wire; /* the room in each role */
    struct buffer sum;  /* mixed precision, fp32 sums: takes the role of room g */
    struct counts sent; /* counts of the gradient with the lane: own, then of all workers */
    /* copy of the round's plan, and its result: a job of a failed round may outlive the caller's */
    struct plan plan;
    struct round round;
    struct history *history; /* micro-batches of each overlap_compute */
    struct history *replay;  /* counts to repeat; NULL: compute until the lane is done */
};

/* Begins a round. `ahead`: if no gradient is left from the round before, computes one micro-batch
 * at theta. */
enum sotto_status overlap_begin(struct overlap *o, const struct plan *plan, bool ahead);

/* overlap_idle: true if this group computes nothing in the round (the replicate method decides).
 * overlap_sit_out then makes the rest of the round. */
bool overlap_idle(const struct overlap *o);
enum sotto_status overlap_sit_out(struct overlap *o, struct round *out);

/* Hands the gradient and its counts to the lane: as a copy, or by exchanging rooms. */
enum sotto_status overlap_send_copy(struct overlap *o);
enum sotto_status overlap_send(struct overlap *o);

/* Starts `job` (a struct overlap *) in the lane and adds gradients at theta until the job is
 * done. */
enum sotto_status overlap_compute(struct overlap *o, lane_job *job);

/* Makes the lane's result the parameters for computing. */
void overlap_take(struct overlap *o);

/* Ends a round. Gradients that were added after overlap_send are carried into the next round. */
enum sotto_status overlap_end(struct overlap *o, struct round *out);

/* True if the step of this round has replaced the parameters by a server's (async_round.pulled). */
bool overlap_pulled(const struct overlap *o);

/* For jobs in the lane. overlap_reduce sums the own slices of the gradient over the workers;
 * `scale`: the factor that makes the sum the (clipped) average. overlap_gather gathers the
 * parameters. */
enum sotto_status overlap_reduce(struct overlap *o, bool want_norm, double *scale);
enum sotto_status overlap_gather(struct overlap *o);

/* Members of the ops and methods. Each method has its own round, visit and gather. */
enum sotto_status overlap_init(struct strategy *s, const struct strategy_setup *setup);
void overlap_free(struct strategy *s);
enum sotto_status overlap_import(struct strategy *s, const float *flat);
enum sotto_status overlap_visit(struct strategy *s, struct state_visitor *v);
const int32_t *overlap_history(struct strategy *s, int64_t *count);
enum sotto_status overlap_discard(struct strategy *s);
#define OVERLAP_OPS                                                                                \
    .bytes = sizeof(struct overlap), .init = overlap_init, .export = shard_export,                 \
    .import = overlap_import, .history = overlap_history, .discard = overlap_discard,              \
    .free = overlap_free
#define OVERLAP_METHOD                                                                             \
    .axis = METHOD_SHARD, .resolve = overlap_resolve, .dry_run = overlap_dry_run,                  \
    .timed = overlap_timed

#endif

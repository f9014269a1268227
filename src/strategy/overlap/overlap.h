/* What dpu, acco-wp and acco share: a worker computes gradients while its lane reduces earlier
 * ones, steps the own slices and gathers parameters, and goes on computing until the lane is done.
 * Nobody waits: slow workers contribute fewer micro-batches, fast ones more.
 *
 * Three whole vectors take turns in three roles, so that memory is (2 + 2 + 2 + K/N) bytes a
 * parameter in mixed precision (ACCO, table 1): one is computed with, one is added to, and one is
 * with the lane, where it goes in as a gradient and comes out as parameters. Gradients that are
 * added up in fp32 have a vector of their own, which the lane gets a bf16 copy of: 2 + 4 + 2. */
#ifndef SOTTO_STRATEGY_OVERLAP_OVERLAP_H
#define SOTTO_STRATEGY_OVERLAP_OVERLAP_H

#include "strategy/shard/shard.h"

/* What is theirs in a configuration begins with this. */
struct overlap_config {
    char replay[OPTION_ROOM]; /* file of counts */
};
#define OVERLAP_REPLAY                                                                             \
    OPTION_FILE(struct overlap_config, replay, "",                                                 \
                "compute as many micro-batches as this file says (a run's counts.tsv), which "     \
                "gives the bits of that run")
extern const struct option overlap_options[1];
void overlap_trial(void *own);
enum sotto_status overlap_resolve(void *own,
                                  const struct strategy_config *config); /* reads the file */
bool overlap_timed(const void *own);

struct overlap {
    struct shard shard; /* its counts: of the gradient that is added to                  */
    struct buffer room[3];
    int theta, g, wire;      /* which room has which role                               */
    struct buffer sum;       /* mixed, fp32 gradients: has the role of room g           */
    struct counts sent;      /* of the gradient with the lane: own, then everybody's    */
    struct plan plan;        /* of the round under way: a failed one's job may outlive  */
    struct round round;      /* its caller's                                            */
    struct history *history; /* micro-batches of each computation beside the lane       */
    struct history *replay;  /* NULL: until the lane is done                            */
};

/* A round begins. `ahead`: where nothing waits to be reduced yet, one micro-batch at theta makes
 * it.
 */
enum sotto_status overlap_begin(struct overlap *o, const struct plan *plan, bool ahead);

/* A round that has begun and in which this group computes nothing, as the replicate method says:
 * all of it. */
bool overlap_idle(const struct overlap *o);
enum sotto_status overlap_sit_out(struct overlap *o, struct round *out);

/* The gradient (a copy of it) or its room goes to the lane, with its counts. */
enum sotto_status overlap_send_copy(struct overlap *o);
enum sotto_status overlap_send(struct overlap *o);

/* Starts `job` (a struct overlap *) in the lane and adds gradients at theta until it is done. */
enum sotto_status overlap_compute(struct overlap *o, lane_job *job);

/* What came out of the lane is what is computed with from now on. */
void overlap_take(struct overlap *o);

/* A round ends: what was added since overlap_send is carried into the next. */
enum sotto_status overlap_end(struct overlap *o, struct round *out);

/* True if the step of this round has replaced the parameters by a server's (async_round.pulled). */
bool overlap_pulled(const struct overlap *o);

/* For the lane's jobs: the own slices of the gradient, summed over the workers, with the factor
 * that makes them the (clipped) average; and the own slices of parameters gathered. */
enum sotto_status overlap_reduce(struct overlap *o, bool want_norm, double *scale);
enum sotto_status overlap_gather(struct overlap *o);

/* Members' ops and methods have these; a round, a visit, and what is shown of the parameters
 * between rounds are each one's own. */
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
    .axis = METHOD_SHARD, .resolve = overlap_resolve, .trial = overlap_trial, .timed = overlap_timed

#endif

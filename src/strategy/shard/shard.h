/* The part that shard methods share: the micro-batches of a round, with a job in the lane for each
 * stage whose gradient is complete. Members embed struct shard first. */
#ifndef SOTTO_STRATEGY_SHARD_SHARD_H
#define SOTTO_STRATEGY_SHARD_SHARD_H

#include "strategy/replicate/replicate.h"

struct shard;

/* Argument of a lane's job for stage k. */
struct stage_job {
    struct shard *shard;
    int k;
};

/* Counts of a round's micro-batches, and the workers' votes; doubles for a single sum over workers.
 */
struct counts {
    double loss; /* summed over targets */
    double targets, tokens, microbatches;
    struct votes votes;
    double workers;   /* counted */
    double seconds;   /* plan.seconds, summed over the workers */
    double abandoned; /* workers that have not finished their micro-batches */
    double parts;     /* set by counts_sum: micro-batches or targets of the summed gradient; fewer
                         than counted if groups are in step without summing their gradients */
};
enum { COUNTS = offsetof(struct counts, parts) / sizeof(double) }; /* that are summed */
_Static_assert(sizeof(struct counts) == (COUNTS + 1) * sizeof(double), "doubles and nothing else");

/* Owned elements that are contiguous in one stage, with their offsets in the stage and in the own
 * vector. */
struct slice {
    int stage;
    size_t count, in_stage, in_own;
};

struct shard {
    struct strategy base;
    struct strategy_setup is;
    struct work on;              /* the worker's own line of work */
    struct replicate *replicate; /* owned */

    owned_rule *rule;    /* how the group shares the vector */
    struct owned own;    /* this worker's part of the vector */
    struct owned *each;  /* (|S|) each worker's part; NULL for equal slices and for whole vectors */
    struct slice *slice; /* (n_slice) this worker's part, stage by stage */
    int n_slice;

    struct buffer x;                    /* fp32 truth of the own part */
    struct buffer theta;                /* parameters to compute with; not open: x itself */
    struct buffer g;                    /* the round's gradient */
    struct view *theta_stage, *g_stage; /* (n_stage) set by the member */
    struct stage_job *job;              /* (n_stage) */
    struct vector_pair *own_g;          /* (own.n + n_stage) scratch of shard_own_g */
    struct buffer wire;                 /* gradients as sent: shard_wire_open */
    struct buffer whole;                /* real parameters of shard_gather, until the next round */
    struct view *whole_stage;           /* (n_stage) of `whole` */
    struct buffer mean; /* own part of the real parameters, while groups differ; until the next
                           round */

    int64_t next;               /* next micro-batch of this worker */
    int64_t last;               /* micro-batch that the lane is to count */
    struct counts counts;       /* of the round: this worker's, then all workers' */
    struct agreed agreed;       /* of the round, if all workers are in step */
    bool carried;               /* between rounds: g and counts hold gradients not applied yet */
    const struct buffer *empty; /* g, if it holds nothing, not even zeros: the next micro-batch or
                                   shard_clear writes it; else NULL */
    lane_job *complete;         /* of a stage, unless the round is abandoned */
    const atomic_int *asked;    /* plan.asked, if the round can be abandoned; else NULL */

    bool later;     /* set by members that call shard_ready before they use a stage's parameters:
                       the step may end then */
    bool completes; /* set by members: each stage of theta is completed (shard_complete) after its
                       own part is stepped */
    int ready;      /* stages with the parameters of the last step; n_stage: all */
    int *reads;     /* (n_stage) the last stage whose parameters each stage reads */
};

/* Opens a member. `rule`: the parameters that each worker of the group owns. */
enum sotto_status shard_init(struct shard *s, const struct strategy_setup *setup, owned_rule *rule);
void shard_free(struct strategy *s);

/* Opens x for the own part, and theta and g for `count` elements. Whole vectors are divided into
 * theta_stage and g_stage. theta is opened in mixed precision and if `copied`; else x is computed
 * with. */
enum sotto_status shard_vectors(struct shard *s, size_t count, bool copied);

/* Lists the parts that `rule` gives to the workers; a step of shard_init. */
enum sotto_status shard_list_owned(struct shard *s, owned_rule *rule);

/* Returns this worker's part of stage k, for methods with at most one part of every stage. */
struct slice shard_slice(const struct shard *s, int k);

/* Returns the place of a slice: in theta_stage, in g_stage, or in a vector of the member. */
typedef struct view shard_place(struct shard *s, const struct slice *at);
shard_place shard_theta_at, shard_g_at;

/* Opens the replicate method over x. `theta` and `g` return the places of slices; `theta` NULL: x
 * is computed with. `lane`: steps are made in the mesh's lane, with its device; NULL: on the
 * worker's own line, between the computations. */
enum sotto_status shard_replicate(struct shard *s, struct lane *lane, shard_place *theta,
                                  shard_place *g);

/* Gathers the other workers' parts of stage k into `stage`. `within`: the group's communicator for
 * the line of work of the call. */
enum sotto_status shard_complete(struct shard *s, struct comm *within, int k, struct view stage);

/* Completes all of theta_stage, on the worker's own line. */
enum sotto_status shard_complete_theta(struct shard *s);

/* g += the sum of this worker's gradients of a round. `complete` (argument: a struct stage_job)
 * runs in the lane for each stage after the stage's last backward, unless the worker is alone. On
 * return all jobs are done, and s->counts are those of all workers that are in step. */
enum sotto_status shard_accumulate(struct shard *s, lane_job *complete);

/* True if the workers have abandoned the round in shard_accumulate, which `out` reports: the member
 * returns without a step. */
bool shard_abandoned(const struct shard *s, struct round *out);

/* Parts of shard_accumulate, for members that run their micro-batches themselves.
 *
 * shard_gradient: g += the gradient of micro-batch `index`, which is counted. With `complete`, the
 * micro-batch is the round's last. shard_count: counts a micro-batch after its backward was issued;
 * SOTTO_ENUMERIC if the loss is NaN or infinite. shard_count_sum: starts the sum of the counts in
 * the lane. shard_count_last: does both in the lane, after the backward of the last stage of the
 * round's last micro-batch. shard_fill_round: fills `out` from the summed counts, once the lane is
 * done. */
enum sotto_status shard_gradient(struct shard *s, int64_t index, lane_job *complete);
enum sotto_status shard_count(struct shard *s, int slot, int64_t index);
enum sotto_status shard_count_sum(struct shard *s);
enum sotto_status shard_count_last(struct shard *s, int64_t index);
void shard_fill_round(struct shard *s, const struct counts *all, struct round *out);
/* Fills the fields of `out` that are equal on all workers; a step may change them. */
void shard_fill_agreed(struct shard *s, const struct counts *all, struct round *out);

/* Passes a round's counts, summed over the group, to the replicate method, before its step. */
void shard_pass_counts(struct shard *s, const struct counts *c);

/* Returns the rank whose data the next micro-batches are. */
int shard_data_rank(const struct shard *s);

/* Sums counts over the workers that are in step; in the lane. */
enum sotto_status counts_sum(const struct shard *s, struct counts *c);

/* True if this worker exchanges nothing in a round of the shard method. The replicate method may
 * exchange between rounds. */
bool shard_alone(const struct shard *s);

/* In mixed precision gradients are sent as bf16, also if they are summed in fp32. A lane's job
 * calls shard_narrow for up to `most` elements of g, sends *sent, which is rounded once, and calls
 * shard_widen, which writes the result back. If g itself is sent, both do nothing. */
enum sotto_status shard_wire_open(struct shard *s, size_t most);
enum sotto_status shard_narrow(struct shard *s, struct view g, size_t count, struct view *sent);
enum sotto_status shard_widen(struct shard *s, struct view g, struct view sent, size_t count);

/* Returns the elements of the largest stage. */
size_t shard_largest(const struct shard *s);

/* Fills an empty g with zeros. Called before code other than shard_gradient reads g or adds to g.
 */
enum sotto_status shard_clear(struct shard *s);

/* Begins a round with an empty g and zero counts, or with the gradients carried over from the round
 * before or from a checkpoint. */
enum sotto_status shard_begin(struct shard *s, const struct plan *plan, const struct buffer *g);

/* Makes a round's step after its gradient is complete; then theta is gathered. With s->later a part
 * of the step may remain: shard_ready ends the part of all stages that stage k of the oracle reads,
 * shard_settle that of all stages, before parameters or state are read. */
enum sotto_status shard_step(struct shard *s, const struct plan *plan, double scale,
                             struct round *out);
enum sotto_status shard_ready(struct shard *s, int k);
enum sotto_status shard_settle(struct strategy *s);

/* Ends a round: waits for the device. A worker that is alone does not wait, so that the host begins
 * the next round while the last kernels run, unless the round is reported (want_norm). */
enum sotto_status shard_end(const struct shard *s, const struct plan *plan);

/* Returns the factor of a round's summed gradient: 1 / micro-batches, or 1 / target tokens. */
double shard_scale(const struct shard *s, const struct counts *all);

/* Computes the gradient's norm into `out`, and clips. `p`: n pieces of the gradient, which together
 * with the pieces of the other workers of `within` are the whole gradient; `within` NULL: `p` is
 * the whole. *scale: the factor of the average, and on return that of the clipped average. */
enum sotto_status shard_clip(const struct shard *s, const struct work *on,
                             const struct vector_pair *p, int n, struct comm *within,
                             struct round *out, double *scale);

/* Returns the n_slice pieces of the own part of the gradient, at the replicate method's places. */
const struct vector_pair *shard_own_g(struct shard *s);

/* Visits all state but the parameters: the place in the data, and the replicate method's state.
 * Loading may change x. */
enum sotto_status shard_visit(struct shard *s, struct state_visitor *v);

/* Visits gradients that were computed and not applied: for each worker `g` (whole), its counts and
 * its place in the data. Loading takes over the gradients of another method and of another number
 * of workers; no gradient is lost. */
enum sotto_status shard_visit_pending(struct shard *s, struct state_visitor *v, struct view g);

/* Members' ops, if replicate->x is the own part: shard_export writes the whole fp32 vector to host
 * memory, shard_gather returns whole parameters in a buffer of their own. While groups differ, both
 * return the groups' mean. Called by all workers. */
enum sotto_status shard_export(struct strategy *s, float *flat);
enum sotto_status shard_gather(struct strategy *s, const struct view **theta);

/* shard_gather for members whose theta_stage is whole between rounds, and real while groups agree.
 */
enum sotto_status shard_theta(struct strategy *s, const struct view **theta);

/* Sets the own part from the whole vector, and restarts the replicate method there. */
enum sotto_status shard_import(struct strategy *s, const float *flat);

#endif

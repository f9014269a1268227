/* What shard methods share: the micro-batches of a round, with a job in the lane as each stage's
 * gradient is complete. Members embed it first. */
#ifndef SOTTO_STRATEGY_SHARD_SHARD_H
#define SOTTO_STRATEGY_SHARD_SHARD_H

#include "strategy/replicate/replicate.h"

struct shard;

struct stage_job {
    struct shard *shard;
    int k;
};

/* Counts of a round's micro-batches, and the workers' votes; doubles, so that one sum carries them.
 */
struct counts {
    double loss; /* summed over targets */
    double targets, tokens, microbatches;
    struct votes votes;
    double workers, seconds; /* how many were counted, and their plan.seconds */
    double abandoned;        /* workers that have not finished their micro-batches */
    double parts; /* by counts_sum: micro-batches or targets of the gradient that was summed, which
                     are fewer where groups are in step without that sum */
};
enum { COUNTS = offsetof(struct counts, parts) / sizeof(double) }; /* that are summed */
_Static_assert(sizeof(struct counts) == (COUNTS + 1) * sizeof(double), "doubles and nothing else");

/* Owned elements side by side in one stage: where they lie there and in the own vector. */
struct slice {
    int stage;
    size_t count, in_stage, in_own;
};

struct shard {
    struct strategy base;
    struct strategy_setup is;
    owned_rule *rule;    /* how the group shares the vector   */
    struct owned own;    /* what this worker has of it        */
    struct owned *each;  /* (|S|) ... and everybody, where those are neither slices nor all of it */
    struct slice *slice; /* (n_slice) the same, stage by stage */
    int n_slice;
    struct work on;                     /* the worker's own line             */
    struct replicate *replicate;        /* owned                             */
    struct buffer x;                    /* fp32 truth of what is owned       */
    struct buffer theta;                /* what is computed with; not there: x itself */
    struct buffer g;                    /* the round's gradient              */
    struct view *theta_stage, *g_stage; /* (n_stage) set by the member       */
    struct view *asked_stage;           /* (n_stage) of `whole`              */
    struct stage_job *job;              /* (n_stage)                         */
    struct vector_pair *own_g;          /* (n_stage) where a norm is of many parts */
    int64_t next;                       /* micro-batch of this worker        */
    int64_t last;                       /* ... that the lane is to count     */
    struct counts counts;               /* of the round: own, then everybody's */
    struct buffer whole;                /* real parameters, between rounds, for whoever asks */
    struct buffer mean;                 /* ... own slices, while groups differ               */
    struct buffer wire;                 /* gradients on their way: shard_wire_open           */
    struct agreed agreed;               /* of a round, where all workers' gradients are averaged */
    bool later;     /* set by members that call shard_ready before they use a stage's parameters: a
                       step may end then */
    bool completes; /* set by members: a stage of theta is completed (shard_complete) once the own
                       part of it is there */
    int ready;      /* stages whose parameters are as the last step wants them; n_stage: all */
    int *reads;     /* (n_stage) the last of the stages whose parameters each one reads      */
    const struct buffer *empty; /* g, where it holds nothing yet, not even zeros: the next
                                   micro-batch or shard_clear writes it; else NULL */
    bool carried;       /* between rounds: g and counts hold gradients that were not applied yet */
    lane_job *complete; /* of a stage, unless the round is abandoned */
    const atomic_int *asked; /* plan.asked, where a round can be abandoned */
};

/* `rule`: what of the parameters each worker of the group owns. */
enum sotto_status shard_init(struct shard *s, const struct strategy_setup *setup, owned_rule *rule);
void shard_free(struct strategy *s);

/* x of what is owned, theta and g of `count` elements; if that is everything they are cut into
 * theta_stage and g_stage. theta is there in mixed precision, and where `copied` says so: otherwise
 * x itself is computed with. */
enum sotto_status shard_vectors(struct shard *s, size_t count, bool copied);

/* Its own part of shard_init. */
enum sotto_status shard_own(struct shard *s, owned_rule *rule);

/* What this worker owns of stage k, for methods that have one piece of every stage at the most. */
struct slice shard_slice(const struct shard *s, int k);

/* Where a vector has the elements of a slice: in theta_stage, in g_stage, or as the member says. */
typedef struct view shard_place(struct shard *s, const struct slice *at);
shard_place shard_theta_at, shard_g_at;

/* The replicate method over x, of which `theta` and `g` tell the places in the stages; theta NULL:
 * what is computed with is x itself. `lane`: the steps are made in the mesh's lane, with its
 * device; NULL: between the computations, with theirs. */
enum sotto_status shard_replicate(struct shard *s, struct lane *lane, shard_place *theta,
                                  shard_place *g);

/* What the others of the group own of stage k comes into its place beside what this worker owns;
 * `within`: the group, for the line of work that this is. */
enum sotto_status shard_complete(struct shard *s, struct comm *within, int k, struct view stage);

/* The same for all of theta_stage, on the worker's own line. */
enum sotto_status shard_complete_theta(struct shard *s);

/* g += the sum of this worker's gradients of a round; `complete` (a struct stage_job *) runs in the
 * lane for each stage behind its last backward, unless nobody else is there. All of them are done
 * on return, and the counts are of all workers that are in step. */
enum sotto_status shard_accumulate(struct shard *s, lane_job *complete);

/* Whether the workers have abandoned this round behind shard_accumulate: `out` says so, and nothing
 * is to be done. */
bool shard_abandoned(const struct shard *s, struct round *out);

/* Its parts, for methods that run their micro-batches themselves. g += the gradient of a
 * micro-batch, which is counted; with `complete` it is the round's last one. A micro-batch whose
 * backward is done is counted from its slot (a loss that is no number is an error); the sum over
 * the workers is started in the lane, and once the lane is done makes the round's numbers. Of a
 * round's last micro-batch both are the lane's, and are started behind the backward of its last
 * stage. */
enum sotto_status shard_gradient(struct shard *s, int64_t index, lane_job *complete);
enum sotto_status shard_count(struct shard *s, int slot, int64_t index);
enum sotto_status shard_count_sum(struct shard *s);
enum sotto_status shard_count_last(struct shard *s, int64_t index);
void shard_count_end(struct shard *s, const struct counts *all, struct round *out);
/* ... of which this is what all workers know alike, which a step may have moved. */
void shard_agree(struct shard *s, const struct counts *all, struct round *out);

/* Hands a round's counts, summed over the group, to the replicate method, before its step. */
void shard_tell(struct shard *s, const struct counts *c);

/* Whose data the next micro-batches are. */
int shard_data(const struct shard *s);

/* Sums counts over the workers that are in step; in the lane. */
enum sotto_status counts_sum(const struct shard *s, struct counts *c);

/* Whether there is nobody to meet in a round: the replicate method may meet them later. */
bool shard_alone(const struct shard *s);

/* In mixed precision gradients are sent as bf16, also where they are added up in fp32: a job in the
 * lane sends what shard_narrow gives it in place of up to `most` elements of g, rounded once, and
 * shard_widen puts the result back. Where g is what is sent, both do nothing. */
enum sotto_status shard_wire_open(struct shard *s, size_t most);
enum sotto_status shard_narrow(struct shard *s, struct view g, size_t count, struct view *sent);
enum sotto_status shard_widen(struct shard *s, struct view g, struct view sent, size_t count);

/* The largest stage. */
size_t shard_largest(const struct shard *s);

/* An empty g becomes zeros, before anybody but shard_gradient reads it or adds to it. */
enum sotto_status shard_clear(struct shard *s);

/* A round begins with no gradient (g is empty) and nothing counted, unless some are carried over:
 * from a method that works ahead, or by a run that was resumed from one. */
enum sotto_status shard_begin(struct shard *s, const struct plan *plan, const struct buffer *g);

/* A round's step, once its gradient is complete; then theta is to be gathered. With s->later it may
 * be left half-way: shard_ready ends it for all that stage k of an oracle reads, shard_settle for
 * all stages, before anybody looks at parameters or state. */
enum sotto_status shard_ready(struct shard *s, int k);
enum sotto_status shard_settle(struct strategy *s);
enum sotto_status shard_step(struct shard *s, const struct plan *plan, double scale,
                             struct round *out);

/* Ends a round: waits for the device, except that a worker without others leaves its last kernels
 * to run while the host begins the next round, unless this round is reported (want_norm). */
enum sotto_status shard_end(const struct shard *s, const struct plan *plan);

/* What a round's summed gradient is multiplied by: 1 / micro-batches or target tokens. */
double shard_scale(const struct shard *s, const struct counts *all);

/* Clipping, and the norm for whoever wants to see it. `p`: n pieces of the gradient, which are all
 * of it together with those of the other workers of `within`; NULL: they are already. `scale` makes
 * it the average, and is left as what makes it the clipped one. */
enum sotto_status shard_clip(const struct shard *s, const struct work *on,
                             const struct vector_pair *p, int n, struct comm *within,
                             struct round *out, double *scale);

/* The pieces of the own slices, where the replicate method finds the gradient: n_slice of them. */
const struct vector_pair *shard_own_g(struct shard *s);

/* All that must survive but the parameters: the place in the data, and the replicate method's. */
enum sotto_status shard_visit(struct shard *s, struct state_visitor *v); /* x may have changed */

/* What workers have computed and not applied yet: each one's gradient `g` (whole), its counts and
 * its place in the data. Loading carries over what other methods and other numbers of workers left
 * behind; nothing of it is lost. */
enum sotto_status shard_visit_pending(struct shard *s, struct state_visitor *v, struct view g);

/* Members' ops, for those that have what they own in replicate->x: the whole fp32 vector in host
 * memory, and whole parameters to compute with in a buffer of their own. While
 * groups differ, both are the groups' mean. Called by all workers. */
enum sotto_status shard_export(struct strategy *s, float *flat);
enum sotto_status shard_gather(struct strategy *s, const struct view **theta);

/* The same where theta_stage is whole between rounds, and real while groups agree. */
enum sotto_status shard_theta(struct strategy *s, const struct view **theta);

/* What is owned from the whole vector; the replicate method begins there. */
enum sotto_status shard_import(struct strategy *s, const float *flat);

#endif

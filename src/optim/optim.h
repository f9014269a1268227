/* Optimizers over the part of the flat parameters that a worker owns.
 *
 * Two entry points: `step` moves the parameters and the state; `peek` writes the parameters after a
 * step and moves nothing. `x` is the fp32 truth; `theta` is a rounded copy for computing (mixed
 * precision), or view_none if x itself is computed with. */
#ifndef SOTTO_OPTIM_OPTIM_H
#define SOTTO_OPTIM_OPTIM_H

#include "base/option/option.h"
#include "tensor/device.h"
#include "tensor/owned.h"

enum optim_kind { OPTIM_ADAMW, OPTIM_SGD };
enum optim_decay { DECAY_MATRICES, DECAY_ALL };
enum optim_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD,
    SCHEDULE_STEP,
    SCHEDULE_CYCLIC
};

struct optim_config { /* [optim] */
    int kind;         /* enum optim_kind */
    double lr;
    double beta1, beta2, eps; /* adamw */
    double momentum;          /* sgd */
    bool nesterov;            /* sgd */
    double weight_decay;      /* adamw: decoupled; sgd: L2 */
    int decay;                /* enum optim_decay */
    double clip;              /* largest global norm of the averaged gradient; 0: off */

    int schedule;         /* enum optim_schedule */
    int64_t warmup;       /* rounds of linear growth from 0 */
    double final;         /* linear, cosine, wsd: share of lr at the end */
    double wsd_decay;     /* wsd: share of the rounds in which lr falls */
    double step_factor;   /* step: factor of lr at each drop */
    int64_t step_every;   /* step: rounds between drops */
    double cycle_floor;   /* cyclic: lowest lr as a share of lr */
    int64_t cycle_rounds; /* cyclic: rounds up and down again; the peak halves each cycle
                             (triangular2) */
    /* True if the user set the key: methods have defaults of their own for kind, beta2 and
     * weight_decay; fine-tuning at lr's default is warned of. */
    bool kind_said, lr_said, beta2_said, weight_decay_said;
};

struct option_section optim_section(struct optim_config *config);
void optim_defaults(struct optim_config *config);

/* Returns the optimizer's name, a value of optim.kind. */
const char *optim_name(const struct optim_config *config);

/* True if the optimizer has state other than its count of steps. */
bool optim_keeps(const struct optim_config *config);

/* Refuses values that make no sense and keys that the optimizer or the schedule does not use.
 * `chosen_by`: the key that has chosen the kind if the user did not; else NULL. */
enum sotto_status optim_check(struct optim_config *config, const char *chosen_by);

/* Sets keys aside as strategy_set_aside does. */
void optim_set_aside(struct optim_config *config, const struct optim_config *base);

/* Returns the learning rate of round t (from 0) of `rounds` rounds. */
double optim_lr(const struct optim_config *config, int64_t t, int64_t rounds);

/* True if the learning rate depends on the number of rounds. */
bool optim_wants_length(const struct optim_config *config);

/* Elements [begin, end) of a worker's own vector, contiguous in each of the three vectors; the
 * views start at `begin`. */
struct part {
    size_t begin, end;
    struct view x;     /* fp32 truth */
    struct view theta; /* parameters to compute with; view_none: x itself */
    bool copied;       /* theta is another vector than x (views of a null device have no data) */
    struct view g;     /* the gradient */
};

struct optim;
struct stretch;

struct optim_ops {
    const char *name;
    int states; /* flat vectors of the parameters' length */
    const char *state_name[2];
    void (*apply)(struct optim *o, const struct stretch *s, int n, double lr, double grad_scale,
                  bool peek); /* one launch over n stretches */
};

struct optim {
    const struct optim_ops *ops;
    const struct optim_config *config; /* not owned */
    struct device *dev;                /* not owned */
    struct segment *segment;           /* owned; cover the own vector */
    int n_segment;
    size_t count;
    struct buffer state[2]; /* fp32, count each */
    bool lent;              /* state[] belongs to the caller */
    int64_t t;              /* steps made */
};

/* Makes an optimizer over the elements that `owned` selects of the table's vector; memory is
 * counted as `category`. */
enum sotto_status optim_init(struct optim *optim, const struct optim_config *config,
                             struct device *dev, const struct table *table,
                             const struct owned *owned, enum memory_category category);
void optim_free(struct optim *optim);

/* Makes an optimizer over state vectors that the caller owns and may move: set by optim_lend before
 * every step; optim_states of them. */
enum sotto_status optim_init_lent(struct optim *optim, const struct optim_config *config,
                                  struct device *dev, const struct table *table,
                                  const struct owned *owned);
void optim_lend(struct optim *optim, const struct buffer state[2]);
int optim_states(const struct optim_config *config);

/* Makes a step with the gradient g * grad_scale. */
void optim_step(struct optim *optim, struct view x, struct view theta, struct view g, double lr,
                double grad_scale);
/* Writes the parameters after a step that is not made to `out`, which may have another type than x.
 */
void optim_peek(struct optim *optim, struct view x, struct view out, struct view g, double lr,
                double grad_scale);

/* Makes a step over parameters and gradients in several places; each element is in one part. */
void optim_step_parts(struct optim *optim, const struct part *part, int n, double lr,
                      double grad_scale);
void optim_peek_parts(struct optim *optim, const struct part *part, int n, double lr,
                      double grad_scale);

/* Steps some parts after others; optim_next ends the step once all parts were stepped. */
void optim_step_some(struct optim *optim, const struct part *part, int n, double lr,
                     double grad_scale);
void optim_next(struct optim *optim);

/* Returns the bytes that a step or a peek over `count` elements reads and writes, of x, g, the
 * state and theta. `copy`: bytes of an element of theta, 0: none. */
double optim_bytes(const struct optim *optim, size_t count, enum dtype g, size_t copy, bool peek);

/* Returns the factor that brings a gradient with this squared norm (already scaled) down to `clip`;
 * 1 if the norm is smaller or clipping is off. */
double optim_clip(const struct optim_config *config, double squared_norm);

extern const struct optim_ops optim_adamw, optim_sgd;

#endif

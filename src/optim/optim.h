/* Optimizers over what a worker owns of the flat parameters.
 *
 * Two entry points: `step` moves the parameters and the state; `peek` writes where the parameters
 * would go and moves nothing. `x` is the fp32 truth; `theta` is a rounded copy of it for computing
 * (mixed precision), or view_none where x itself is computed with. */
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
    double momentum;          /* sgd   */
    bool nesterov;            /* sgd   */
    double weight_decay;      /* adamw: decoupled; sgd: L2 */
    int decay;                /* enum optim_decay */
    double clip;              /* largest global norm of the averaged gradient; 0: off */

    int schedule;         /* enum optim_schedule                                     */
    int64_t warmup;       /* rounds of linear growth from 0                          */
    double final;         /* linear, cosine, wsd: share of lr that is left at the end */
    double wsd_decay;     /* wsd: share of the rounds in which lr falls              */
    double step_factor;   /* step: lr is multiplied by this ...                      */
    int64_t step_every;   /* ... every so many rounds                                */
    double cycle_floor;   /* cyclic: lowest lr as a share of lr                      */
    int64_t cycle_rounds; /* cyclic: rounds up and down again; the peak halves each cycle
                             (triangular2) */
    /* Whether these were set: methods have defaults of their own for them. */
    bool kind_said, beta2_said, weight_decay_said;
};

struct option_section optim_section(struct optim_config *config);
void optim_defaults(struct optim_config *config);

/* Its name, as optim.kind says it. */
const char *optim_name(const struct optim_config *config);

/* Whether it has any state beside its count of steps. */
bool optim_keeps(const struct optim_config *config);

/* Refuses what makes no sense, and what the optimizer or the schedule has no use for. `chosen_by`:
 * what has chosen the kind, where that is not the user's; else NULL. */
enum sotto_status optim_check(struct optim_config *config, const char *chosen_by);

/* As strategy_set_aside. */
void optim_set_aside(struct optim_config *config, const struct optim_config *base);

/* The learning rate of round t (from 0) of T rounds. */
double optim_lr(const struct optim_config *config, int64_t t, int64_t rounds);

/* Whether it depends on T. */
bool optim_wants_length(const struct optim_config *config);

/* Elements [begin, end) of a worker's own vector, which lie side by side in each of the three
 * vectors; the views are at `begin`. */
struct part {
    size_t begin, end;
    struct view x;     /* fp32 truth                                                          */
    struct view theta; /* what is computed with; view_none: x itself                          */
    bool copied;       /* theta is another vector, though a null device's have no data either */
    struct view g;     /* the gradient                                                        */
};

struct optim;
struct stretch;

struct optim_ops {
    const char *name;
    int states; /* flat vectors of the parameters' length */
    const char *state_name[2];
    void (*apply)(struct optim *o, const struct stretch *s, int n, double lr, double grad_scale,
                  bool peek); /* one launch */
};

struct optim {
    const struct optim_ops *ops;
    const struct optim_config *config; /* not owned */
    struct device *dev;                /* not owned */
    struct segment *segment;           /* owned; cover the own vector */
    int n_segment;
    size_t count;
    struct buffer state[2]; /* fp32, count each */
    bool lent;              /* the state is another's */
    int64_t t;              /* steps made       */
};

/* For what is owned of the table's vector; its state is accounted as `category`. */
enum sotto_status optim_init(struct optim *optim, const struct optim_config *config,
                             struct device *dev, const struct table *table,
                             const struct owned *owned, enum memory_category category);
void optim_free(struct optim *optim);

/* One whose state is the caller's, who may have it elsewhere at times: it is set before a step.
 * There are so many vectors of it. */
enum sotto_status optim_init_lent(struct optim *optim, const struct optim_config *config,
                                  struct device *dev, const struct table *table,
                                  const struct owned *owned);
void optim_lend(struct optim *optim, const struct buffer state[2]);
int optim_states(const struct optim_config *config);

/* The gradient is g * grad_scale. */
void optim_step(struct optim *optim, struct view x, struct view theta, struct view g, double lr,
                double grad_scale);
/* `out` may have another type than x; it receives the parameters after a step that is not made. */
void optim_peek(struct optim *optim, struct view x, struct view out, struct view g, double lr,
                double grad_scale);

/* The same where parameters and gradients do not lie side by side; each element is in one part. */
void optim_step_parts(struct optim *optim, const struct part *part, int n, double lr,
                      double grad_scale);
void optim_peek_parts(struct optim *optim, const struct part *part, int n, double lr,
                      double grad_scale);

/* A step of some parts after others; once all were stepped, the next step begins. */
void optim_step_some(struct optim *optim, const struct part *part, int n, double lr,
                     double grad_scale);
void optim_next(struct optim *optim);

/* What a step or a peek over `count` elements reads and writes, of x, g, the state and theta;
 * `copy`: bytes of an element of theta, 0: there is none. */
double optim_bytes(const struct optim *optim, size_t count, enum dtype g, size_t copy, bool peek);

/* The factor that brings a gradient of this squared norm (already scaled) down to `clip`; 1 when it
 * is below or clipping is off. */
double optim_clip(const struct optim_config *config, double squared_norm);

extern const struct optim_ops optim_adamw, optim_sgd;

#endif

/* The code that methods share which exchange a part of a decoupled momentum in every step (DeMo,
 * Peng et al. 2024; DeToNATION, From et al. 2025). Every group has a momentum m of its own and
 * takes a part of m; all groups step with the average of these parts. Parameters are always equal
 * in all groups, momenta differ.
 *
 *     m <- decay m + g                       decoupled_add
 *     q = a part of m;  m <- m - q           the method's
 *     Q = the average of q over the groups   the method's, in d->q
 *     Q <- sign Q                            the method's
 *     x <- Base(x, Q)
 *
 * All of this can be done stage by stage, and a stage's x is needed at the stage's next forward. So
 * the own vector is cut into sections of consecutive stages with a message of at least `message`
 * bytes. A method's work on one section is in struct section_ops. decoupled_step takes q of all
 * sections and starts the exchange of the first section in the mesh's lane. When a section is
 * needed (decoupled_ready), the exchange of the next section starts, and Q and x are made from the
 * received messages: exchanges run while earlier sections are used for computing. One exchange at a
 * time has the whole link.
 *
 * The base optimizer is an ordinary one that steps with Q: demo-sgd is plain SGD, x <- (1 - lr wd)
 * x - lr Q, and decoupled-adamw is AdamW. Members embed struct decoupled first, and their options
 * begin with struct decoupled_config. */
#ifndef SOTTO_STRATEGY_DECOUPLED_DECOUPLED_H
#define SOTTO_STRATEGY_DECOUPLED_DECOUPLED_H

#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

enum decoupled_sign { SIGN_AFTER, SIGN_BEFORE, SIGN_OFF };
enum decoupled_base { BASE_DEMO_SGD, BASE_DECOUPLED_ADAMW };
enum decoupled_momentum { MOMENTUM_PLAIN, MOMENTUM_SCALED };
extern const char *const decoupled_signs[], *const decoupled_bases[], *const decoupled_momenta[];

/* Options of the exchange and of the step with its result. */
struct update_config {
    int sign;  /* enum decoupled_sign */
    int dtype; /* enum dtype: fp32 or bf16 */
    int base;  /* enum decoupled_base */
    int64_t message;
};
/* For methods that exchange section by section. */
#define MESSAGE_OPTION                                                                             \
    OPTION_LONG(struct update_config, message, "256k", 0, 1e15,                                    \
                "least bytes of a message of a group: stages with less share a message, since "    \
                "every message pays the latency of the links")
#define UPDATE_OPTIONS                                                                             \
    OPTION_ENUM(struct update_config, sign, "after", decoupled_signs,                              \
                "after: step with the sign of the average; before: send signs, two bits each, "    \
                "and step with the average of the signs; off: step with the average"),             \
        OPTION_ENUM(struct update_config, dtype, "fp32", replicate_dtypes,                         \
                    "type of values on the wire"),                                                 \
        OPTION_ENUM(struct update_config, base, "demo-sgd", decoupled_bases,                       \
                    "optimizer that steps: SGD without momentum (default of weight_decay: 0), or " \
                    "AdamW (defaults: weight_decay 0.01, beta2 0.999); the rest is in [optim]")

/* Options of the decoupled momentum and of its exchange. */
struct decoupled_config {
    struct update_config update;
    double decay;
    int momentum; /* enum decoupled_momentum */
};
#define DECOUPLED_OPTIONS                                                                          \
    OPTION_REAL(struct decoupled_config, decay, "0.999", 0, 1, "factor on m in every step"),       \
        OPTION_ENUM(struct decoupled_config, momentum, "plain", decoupled_momenta,                 \
                    "plain: m sums gradients; scaled: gradients times the learning rate"),         \
        UPDATE_OPTIONS
/* dtype has no effect if signs are sent */
extern const struct option_only decoupled_rules[1];

struct decoupled;

/* A method's work on a section. */
struct section_ops {
    /* Takes q of section k out of m, ready to be sent. */
    enum sotto_status (*take)(struct decoupled *d, int k);
    /* (optional) Exchanges q, in a lane or on the worker's own line of work. Without it nothing is
     * sent, and the step ends at once. */
    enum sotto_status (*exchange)(struct decoupled *d, struct comm *across, int k);
    /* d->q <- Q, for all own elements of section k. */
    enum sotto_status (*put)(struct decoupled *d, int k);
};

struct decoupled {
    struct replicate base;
    struct buffer m;   /* decoupled momentum, each group's own                               */
    struct buffer q;   /* Q, the base optimizer's g, for all own elements or for a block     */
    size_t q_begin;    /* own element at the beginning of q                                  */
    struct part *part; /* the parts, with Q for g                                            */
    size_t *ends;      /* (n) end of each section in the own vector                          */
    int *section;      /* (n_stage) section of each stage                                    */
    int n;             /* number of sections                                                 */
    struct {           /* the step in progress                                               */
        const struct section_ops *ops;
        double lr, scale; /* of the round */
        size_t added;     /* elements of m with g added */
        size_t add_to;    /* end of the elements for decoupled_add */
        size_t applied;   /* elements of x with Q applied */
        int next;         /* section that is stepped next                                    */
        int sent;         /* last section whose exchange was started                         */
        bool in_lane;     /* exchanges run in the mesh's lane                                */
    } step;
};

/* Members `resolve` and `optimizer` of struct method. */
enum sotto_status decoupled_resolve(void *own, const struct strategy_config *config);
enum sotto_status decoupled_optimizer(const void *own, const char *key, struct optim_config *optim);

/* Makes the sections; the method makes m and q. `each`: bytes sent for an own element; 0: one
 * section. */
enum sotto_status decoupled_init(struct replicate *r, double each);
void decoupled_free(struct replicate *r); /* frees m and q, too */

/* Visits the optimizer's state and every group's m. */
enum sotto_status decoupled_visit(struct replicate *r, struct state_visitor *v);

/* decoupled_step makes a step up to the first exchange; decoupled_ready, a member `ready`,
 * completes the step of stage k. */
enum sotto_status decoupled_step(struct decoupled *d, const struct section_ops *ops,
                                 const struct plan *plan, double scale);
enum sotto_status decoupled_ready(struct replicate *r, int k);

/* Returns the first own element of section k; its end is d->ends[k]. */
size_t decoupled_begin(const struct decoupled *d, int k);

/* m <- decay m + g for own elements up to `end` that do not have their g yet. */
enum sotto_status decoupled_add(struct decoupled *d, size_t end);

/* For a method's own work, a block at a time while the block is in the caches: the same; and Q <-
 * sign Q if sign = after, x <- Base(x, Q), for elements of a section up to `end`. The rest of the
 * section's Q is applied without sign. The last two return the bytes that this work moves in
 * addition to m and Q. */
void decoupled_add_here(struct decoupled *d, size_t end);
void decoupled_apply_here(struct decoupled *d, size_t end);
double decoupled_gradient_bytes(const struct decoupled *d, size_t end);
double decoupled_apply_bytes(const struct decoupled *d, size_t end);

#endif

/* What the methods share that exchange a part of a decoupled momentum in every step (DeMo, Peng et
 * al. 2024; DeToNATION, From et al. 2025): groups keep a momentum m of their own, take something
 * out of it, and all step with the average of what was taken, so that their parameters never
 * differ though their momenta do.
 *
 *     m <- decay m + g                       decoupled_add
 *     q = a part of m;  m <- m - q           the method's
 *     Q = the average of q over the groups   the method's, whole, in d->q
 *     Q <- sign Q                            decoupled_sign
 *     x <- Base(x, Q)                        decoupled_step
 *
 * The base optimizer is an ordinary one, fed with Q: demo-sgd is plain SGD, x <- (1 - lr wd) x - lr
 * Q, and decoupled-adamw is AdamW. Members embed struct decoupled first, and their options begin
 * with struct decoupled_config. */
#ifndef SOTTO_STRATEGY_REPLICATE_DECOUPLED_H
#define SOTTO_STRATEGY_REPLICATE_DECOUPLED_H

#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

enum decoupled_sign { SIGN_AFTER, SIGN_BEFORE, SIGN_OFF };
enum decoupled_base { BASE_DEMO_SGD, BASE_DECOUPLED_ADAMW };
enum decoupled_momentum { MOMENTUM_PLAIN, MOMENTUM_SCALED };
extern const char *const decoupled_signs[],
    *const decoupled_dtypes[], *const decoupled_bases[], *const decoupled_momenta[];

/* What is done with what is exchanged ... */
struct update_config {
    int sign;  /* enum decoupled_sign */
    int dtype; /* enum dtype: fp32 or bf16 */
    int base;  /* enum decoupled_base */
};
#define UPDATE_OPTIONS                                                                             \
    OPTION_ENUM(struct update_config, sign, "after", decoupled_signs,                              \
                "after: the average's sign is stepped with; before: groups send signs, two bits "  \
                "each, and step with their average; off: the average itself"),                     \
        OPTION_ENUM(struct update_config, dtype, "fp32", decoupled_dtypes,                         \
                    "of values on the wire"),                                                      \
        OPTION_ENUM(                                                                               \
            struct update_config, base, "demo-sgd", decoupled_bases,                               \
            "what steps with it: SGD without a momentum of its own (weight_decay 0 unless said), " \
            "or AdamW (weight_decay 0.01, beta2 0.999 unless said); the rest is in [optim]")

/* ... and where it comes from. */
struct decoupled_config {
    struct update_config update;
    double decay;
    int momentum; /* enum decoupled_momentum */
};
#define DECOUPLED_OPTIONS                                                                          \
    OPTION_REAL(struct decoupled_config, decay, "0.999", 0, 1, "what is left of m after a step"),  \
        OPTION_ENUM(struct decoupled_config, momentum, "plain", decoupled_momenta,                 \
                    "plain: m adds up gradients; scaled: gradients times the learning rate"),      \
        UPDATE_OPTIONS
/* dtype has no use where signs are sent */
extern const struct option_only decoupled_rules[1];

struct decoupled {
    struct replicate base;
    struct buffer m;   /* decoupled momentum, each group's own       */
    struct buffer q;   /* Q: what the base optimizer takes for g     */
    struct part *part; /* the parts, with Q for g                    */
};

/* Members' `resolve` and `optimizer`. */
enum sotto_status decoupled_resolve(void *own, const struct strategy_config *config);
enum sotto_status decoupled_optimizer(const void *own, const char *key, struct optim_config *optim);

/* m is zero, and so is q; for methods without m: q alone. */
enum sotto_status decoupled_init(struct replicate *r);
enum sotto_status decoupled_init_update(struct replicate *r);
void decoupled_free(struct replicate *r);

/* The optimizer's state and every group's m. */
enum sotto_status decoupled_visit(struct replicate *r, struct state_visitor *v);

enum sotto_status decoupled_add(struct decoupled *d, const struct plan *plan, double scale);

/* In place, with sign = after; a method may call it for what Q is made of. */
enum sotto_status decoupled_sign(struct decoupled *d, struct view q, size_t count);

/* With Q as it is; also brings what is computed with up to date. */
enum sotto_status decoupled_step(struct decoupled *d, const struct plan *plan);

#endif

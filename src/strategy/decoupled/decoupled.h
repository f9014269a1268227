/* What the methods share that exchange a part of a decoupled momentum in every step (DeMo, Peng et
 * al. 2024; DeToNATION, From et al. 2025): groups keep a momentum m of their own, take something
 * out of it, and all step with the average of what was taken, so that their parameters never
 * differ though their momenta do.
 *
 *     m <- decay m + g                       decoupled_add
 *     q = a part of m;  m <- m - q           the method's
 *     Q = the average of q over the groups   the method's, in d->q
 *     Q <- sign Q                            the method's
 *     x <- Base(x, Q)
 *
 * All of this can be done stage by stage, and a stage's x is wanted when the next forward comes to
 * it. So the own vector is cut into sections of one or more stages, as many as make a message of
 * `message` bytes; a method says what it does for one section (struct decoupled_sections), and
 * decoupled_step ends with q taken of all of them and the first one's exchange in the mesh's lane.
 * As a section is called for (decoupled_ready), the exchange of the next one sets out, and Q and x
 * are made of what has come of this one: exchanges are under way while sections before them are
 * computed with. One exchange at a time has all of the wire.
 *
 * The base optimizer is an ordinary one, fed with Q: demo-sgd is plain SGD, x <- (1 - lr wd) x - lr
 * Q, and decoupled-adamw is AdamW. Members embed struct decoupled first, and their options begin
 * with struct decoupled_config. */
#ifndef SOTTO_STRATEGY_DECOUPLED_DECOUPLED_H
#define SOTTO_STRATEGY_DECOUPLED_DECOUPLED_H

#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

enum decoupled_sign { SIGN_AFTER, SIGN_BEFORE, SIGN_OFF };
enum decoupled_base { BASE_DEMO_SGD, BASE_DECOUPLED_ADAMW };
enum decoupled_momentum { MOMENTUM_PLAIN, MOMENTUM_SCALED };
extern const char *const decoupled_signs[], *const decoupled_bases[], *const decoupled_momenta[];

/* What is done with what is exchanged ... */
struct update_config {
    int sign;  /* enum decoupled_sign */
    int dtype; /* enum dtype: fp32 or bf16 */
    int base;  /* enum decoupled_base */
    int64_t message;
};
/* For those whose exchange can be cut. */
#define MESSAGE_OPTION                                                                             \
    OPTION_LONG(struct update_config, message, "256k", 0, 1e15,                                    \
                "bytes that a message of a group has at least, or all that it sends in a step: "   \
                "stages with less share one, as each pays the latency of the links")
#define UPDATE_OPTIONS                                                                             \
    OPTION_ENUM(struct update_config, sign, "after", decoupled_signs,                              \
                "after: the average's sign is stepped with; before: groups send signs, two bits "  \
                "each, and step with their average; off: the average itself"),                     \
        OPTION_ENUM(struct update_config, dtype, "fp32", replicate_dtypes,                         \
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

struct decoupled;

/* What a method does for a section. */
struct decoupled_sections {
    /* q of section k is taken out of m, and ready to be sent. */
    enum sotto_status (*take)(struct decoupled *d, int k);
    /* (optional) The exchange alone, on the worker's own line of work or in a lane. Without it
     * nothing is sent, and the step ends at once. */
    enum sotto_status (*exchange)(struct decoupled *d, struct comm *across, int k);
    /* d->q <- Q, of all that is owned of section k. */
    enum sotto_status (*put)(struct decoupled *d, int k);
};

struct decoupled {
    struct replicate base;
    struct buffer m;   /* decoupled momentum, each group's own       */
    struct buffer q;   /* Q: what the base optimizer takes for g, of all elements or some */
    size_t from;       /* ... the one that q begins with             */
    struct part *part; /* the parts, with Q for g                    */
    size_t *ends;      /* (n) of the own vector: what is owned of each section ends there */
    int *section;      /* (n_stage) that the stage is in */
    int n;             /* sections */
    const struct decoupled_sections *does; /* of the step under way:   */
    double lr, scale;                      /* ... the round's          */
    size_t added, add_to;                  /* ... elements of m that have their g, or get it */
    size_t applied;                        /* ... elements of x that have their Q */
    int next;                              /* ... section that is stepped next */
    int sent;    /* ... section whose exchange was the last to set out      */
    bool beside; /* ... which are in the mesh's lane                      */
};

/* Members' `resolve` and `optimizer`. */
enum sotto_status decoupled_resolve(void *own, const struct strategy_config *config);
enum sotto_status decoupled_optimizer(const void *own, const char *key, struct optim_config *optim);

/* The sections; m and q are the members' to make. `each`: bytes that are sent for an own element;
 * 0: all is sent at once. */
enum sotto_status decoupled_init(struct replicate *r, double each);
void decoupled_free(struct replicate *r); /* with m and q */

/* The optimizer's state and every group's m. */
enum sotto_status decoupled_visit(struct replicate *r, struct state_visitor *v);

/* A step, section by section; and what it has left of stage k, for members' `ready`. */
enum sotto_status decoupled_step(struct decoupled *d, const struct decoupled_sections *does,
                                 const struct plan *plan, double scale);
enum sotto_status decoupled_ready(struct replicate *r, int k);

/* What is owned of section k: from which element of the own vector on. Its end is d->ends[k]. */
size_t decoupled_begin(const struct decoupled *d, int k);

/* For sections: m <- decay m + g up to that element of the own vector, where it is not yet. */
enum sotto_status decoupled_add(struct decoupled *d, size_t end);

/* For a section's own work over the memory, a block at a time while it is in the caches: the same,
 * and Q <- sign Q with sign = after, x <- Base(x, Q) up to an element of the section. What is left
 * of a section's Q is applied as it is. Bytes of what they take beside m and Q. */
void decoupled_add_here(struct decoupled *d, size_t end);
void decoupled_apply_here(struct decoupled *d, size_t end);
double decoupled_gradient_bytes(const struct decoupled *d, size_t end);
double decoupled_apply_bytes(const struct decoupled *d, size_t end);

#endif

/* [strategy] and the sections of the methods: which method, on which mesh, with which options. */
#ifndef SOTTO_STRATEGY_CONFIG_H
#define SOTTO_STRATEGY_CONFIG_H

#include <stddef.h>

#include "base/option/option.h"
#include "tensor/dtype.h"

struct method; /* method.h */
struct optim_config;

enum strategy_precision { PRECISION_FP32, PRECISION_MIXED };
enum strategy_grads { GRADS_AUTO, GRADS_FP32, GRADS_BF16 };
enum strategy_weight { WEIGHT_MICROBATCH, WEIGHT_TOKENS };

/* Room for methods, and for what is their own in a configuration. */
enum { METHODS_MOST = 24, METHODS_ROOM = 24 * 1024 };

struct strategy_config { /* [strategy] */
    char preset[OPTION_ROOM];
    char shard[OPTION_ROOM]; /* a method's name, or "auto": the preset's          */
    char replicate[OPTION_ROOM];
    char mesh[OPTION_ROOM]; /* "RxS"                                            */
    int precision;          /* enum strategy_precision                          */
    int grads;              /* enum strategy_grads                              */
    int weight;             /* enum strategy_weight: what a round's average counts */
    int accumulate;         /* micro-batches a worker and round, or half-round  */
    /* By strategy_resolve; no options of their own. */
    const struct method *sharding, *replicating;
    int workers, groups; /* in all; |R| */
    /* Set before that: nodes that the workers lie on, neighbours together and as many on each; 0:
     * one, or the nodes differ. */
    int nodes;

    /* The methods' own configurations (method_config). */
    _Alignas(max_align_t) unsigned char own[METHODS_ROOM];
};

/* Fills in what was left to the preset and to the number of workers; refuses combinations that make
 * no sense. */
enum sotto_status strategy_resolve(struct strategy_config *config, int workers);

/* Gives a method that brings its own optimizer what it steps with. `base` (optional): what runs
 * share, or an earlier one had, of which the kind is for the methods that have none. */
enum sotto_status strategy_optim(const struct strategy_config *config, struct optim_config *optim,
                                 const struct optim_config *base);

/* Which option of the chosen method says what it steps with, such as demo.base, and its value;
 * false: the optimizer is the user's. */
bool strategy_optim_key(const struct strategy_config *config, char key[OPTION_ROOM],
                        char value[OPTION_ROOM]);

/* The value of that option with which the method steps with an optimizer of that kind; false: there
 * is none. */
bool strategy_optim_value(const struct strategy_config *config, int kind, char value[OPTION_ROOM]);

/* Whether a key is of the section of a method that is not chosen. */
bool strategy_unused(const struct strategy_config *config, const char *key);

/* Groups, where the mesh is left open: one, or where the replicate method is meant for slow links
 * as many as nodes, inside which the shard method shares the parameters; as many as workers, where
 * it does not or all are on one node. */
int strategy_groups(const struct strategy_config *config, int workers);

/* What parameters are computed with, and what gradients are added up in. */
enum dtype strategy_type(const struct strategy_config *config);
enum dtype strategy_grad_type(const struct strategy_config *config);

/* The sections: [strategy] and one for each method that has options, in the order of methods.c; the
 * rest of them are empty. */
enum { STRATEGY_SECTIONS = 1 + METHODS_MOST };
void strategy_sections(struct strategy_config *config,
                       struct option_section out[STRATEGY_SECTIONS]);
void strategy_defaults(struct strategy_config *config);

/* Sets options that config's methods have no use for back to their defaults, where `base` has the
 * same value: what runs share, or an earlier one had, is for the methods that use it. Others are
 * strategy_resolve's to refuse. */
void strategy_set_aside(struct strategy_config *config, const struct strategy_config *base);

/* Nothing of the methods' options is said yet: what is set from now on is, by whatever value. */
void strategy_unsay(struct strategy_config *config);

/* What strategy.preset takes, i = 0, 1, ...: methods' names, then presets'; NULL behind the last.
 */
const char *strategy_preset(int i);

/* "zero1", "fsdp x sync": for people. */
void strategy_describe(const struct strategy_config *config, char out[OPTION_ROOM]);

/* Micro-batches that a worker's oracle must be able to hold at once. */
int strategy_slots(const struct strategy_config *config);

/* Whether workers compute different parts of the model, which take them as long as they take. */
bool strategy_unlike(const struct strategy_config *config);

/* Whether the shard method shares the vector among the workers of a group. */
bool strategy_shares(const struct strategy_config *config);

/* Stages that the model must be cut into; 0: any number will do. */
int strategy_stages(const struct strategy_config *config);

/* Whether each worker has whole tensors to step: alone in its group, or by its shard method. */
bool strategy_owns_all(const struct strategy_config *config);

/* Whether a round has as many micro-batches as fit beside communication; whether what is computed
 * depends on that. */
bool strategy_elastic(const struct strategy_config *config);
bool strategy_timed(const struct strategy_config *config);

/* Whether how much workers send depends on what they send, or on timing. */
bool strategy_varies(const struct strategy_config *config);

/* Sets `groups` groups for a dry run of a round or two: see method.dry_run. */
void strategy_dry_run(struct strategy_config *config, int groups);

/* Groups never differ. */
bool strategy_in_step(const struct strategy_config *config);

/* Groups have no rounds in common: each goes its own way, and round.meet says when all meet. */
bool strategy_async(const struct strategy_config *config);

/* Steps between two meetings of groups that train apart, with the key that says so and whether they
 * meet at the end of a run that is shorter; 0: they are in step, or it is not known yet. */
int64_t strategy_every(const struct strategy_config *config, char key[OPTION_ROOM],
                       bool *meets_at_end);

/* Warns of options that make little sense with this optimizer (NULL: nothing is computed), or for a
 * model of so many parameters. */
void strategy_warn(const struct strategy_config *config, const struct optim_config *optim,
                   size_t parameters);

/* How many rounds it may take workers that are asked to stop until all of them can; part of one,
 * where rounds can be abandoned. */
double strategy_rounds_to_stop(const struct strategy_config *config);

#endif

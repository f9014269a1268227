/* The section [strategy] and the sections of the methods: the method, its mesh and its options. */
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

/* The largest number of methods, and bytes of their configurations. */
enum { METHODS_MOST = 24, METHODS_ROOM = 24 * 1024 };

struct strategy_config { /* [strategy] */
    char preset[OPTION_ROOM];
    char shard[OPTION_ROOM]; /* a method's name, or "auto": the preset's          */
    char replicate[OPTION_ROOM];
    char mesh[OPTION_ROOM]; /* "RxS"                                            */
    int precision;          /* enum strategy_precision                          */
    int grads;              /* enum strategy_grads                              */
    int weight;             /* enum strategy_weight: unit of a round's average */
    int accumulate;         /* micro-batches per worker and round, or half-round */
    /* Set by strategy_resolve. */
    const struct method *sharding, *replicating;
    int workers, groups; /* number of workers; |R| */
    /* Nodes, each with the same number of consecutive ranks; 0: one node, or nodes of different
     * sizes. Set before strategy_resolve. */
    int nodes;

    /* Configurations of the methods (method_config). */
    _Alignas(max_align_t) unsigned char own[METHODS_ROOM];
};

/* Sets the fields that depend on the preset and on the number of workers. Refuses combinations of
 * options without a meaning. */
enum sotto_status strategy_resolve(struct strategy_config *config, int workers);

/* Sets `optim` to the optimizer that the chosen method brings, if any. Refuses a kind set by the
 * user, unless `base` (optional: the configuration that runs share, or of an earlier run) has the
 * same kind, which is meant for methods without an optimizer of their own. */
enum sotto_status strategy_optim(const struct strategy_config *config, struct optim_config *optim,
                                 const struct optim_config *base);

/* Returns in `key` and `value` the option of the chosen method that sets the method's optimizer,
 * such as demo.base. False if the optimizer is the user's. */
bool strategy_optim_key(const struct strategy_config *config, char key[OPTION_ROOM],
                        char value[OPTION_ROOM]);

/* Returns the value of the option of strategy_optim_key that chooses an optimizer of `kind`. False
 * if there is none. */
bool strategy_optim_value(const struct strategy_config *config, int kind, char value[OPTION_ROOM]);

/* True if `key` is in the section of a method that is not chosen. */
bool strategy_unused(const struct strategy_config *config, const char *key);

/* Returns the number of groups for an empty `mesh`: 1 if the replicate method sums gradients in
 * every step; else the number of nodes, if the shard method shards and there are several nodes;
 * else the number of workers. */
int strategy_groups(const struct strategy_config *config, int workers);

/* Return the types of the parameters for computing and of a worker's gradient sums. */
enum dtype strategy_type(const struct strategy_config *config);
enum dtype strategy_grad_type(const struct strategy_config *config);

/* Fills `out` with [strategy] and a section for each method with options, in the order of
 * methods.c; the remaining sections are empty. */
enum { STRATEGY_SECTIONS = 1 + METHODS_MOST };
void strategy_sections(struct strategy_config *config,
                       struct option_section out[STRATEGY_SECTIONS]);
void strategy_defaults(struct strategy_config *config);

/* Resets options that the chosen methods do not use to their defaults, if `base` (the configuration
 * that runs share, or of an earlier run) has the same value. strategy_resolve refuses all other
 * unused options. */
void strategy_set_aside(struct strategy_config *config, const struct strategy_config *base);

/* Clears the flags of the methods' options that were set by the user (option.set_flag). */
void strategy_unsay(struct strategy_config *config);

/* Returns value i of strategy.preset: the methods' names, then the presets'; NULL at the end. */
const char *strategy_preset(int i);

/* Writes the chosen methods for messages: "zero1", "fsdp x sync". */
void strategy_describe(const struct strategy_config *config, char out[OPTION_ROOM]);

/* Returns the number of micro-batches that a worker's oracle must hold at once. */
int strategy_slots(const struct strategy_config *config);

/* True if workers compute different parts of the model, in different times. */
bool strategy_unlike(const struct strategy_config *config);

/* True if the shard method shards the vector over the workers of a group. */
bool strategy_shares(const struct strategy_config *config);

/* Returns the number of stages that the model must be divided into; 0: any number. */
int strategy_stages(const struct strategy_config *config);

/* True if each worker steps whole tensors: alone in its group, or by the shard method. */
bool strategy_owns_all(const struct strategy_config *config);

/* True if a round has as many micro-batches as fit into the time of its communication. */
bool strategy_elastic(const struct strategy_config *config);

/* True if a run's results depend on timing. */
bool strategy_timed(const struct strategy_config *config);

/* True if the bytes that workers send depend on the values sent, or on timing. */
bool strategy_varies(const struct strategy_config *config);

/* Sets the number of groups for a dry run of one or two rounds (method.dry_run). */
void strategy_dry_run(struct strategy_config *config, int groups);

/* True if the groups' parameters never differ. */
bool strategy_in_step(const struct strategy_config *config);

/* True if groups have no common rounds (async/async.h). */
bool strategy_async(const struct strategy_config *config);

/* Returns the steps between two exchanges of groups that train on their own, the option for the
 * steps in `key`, and in *meets_at_end whether a shorter run exchanges at its end. 0: the groups
 * are in step, or the number is not known yet. */
int64_t strategy_every(const struct strategy_config *config, char key[OPTION_ROOM],
                       bool *meets_at_end);

/* Warns of options that make little sense with optimizer `optim` (NULL: nothing is computed) or
 * with the number of parameters. */
void strategy_warn(const struct strategy_config *config, const struct optim_config *optim,
                   size_t parameters);

/* Returns the largest number of rounds between a request to stop and the stop of all workers; less
 * than 1 if rounds can be abandoned. */
double strategy_rounds_to_stop(const struct strategy_config *config);

#endif

/* A method is one file and one line: the file ends with a struct method, which says all that the
 * rest of the program knows of it, and methods.c names it. docs/adding-a-method.md goes through it.
 *
 *     struct toy_config { double gain; };
 *     static const struct option options[] = {
 *         OPTION_REAL(struct toy_config, gain, "1", 0, 100, "what gradients are multiplied by"),
 *     };
 *     const struct method method_toy = {
 *         .name = "toy", .axis = METHOD_REPLICATE, .about = "...",
 *         METHOD_OPTIONS(struct toy_config, options), .replicate = &ops };
 *
 * Its options are the section of its name: [toy] gain = 2, --toy.gain=2, or --gain=2 where the
 * method is chosen. */
#ifndef SOTTO_STRATEGY_METHOD_H
#define SOTTO_STRATEGY_METHOD_H

#include "base/option/only.h"

struct optim_config;
struct strategy_config;
struct strategy_ops;
struct replicate_ops;

enum method_axis { METHOD_SHARD, METHOD_REPLICATE };

struct method {
    const char *name;
    enum method_axis axis;
    const char *about; /* a paragraph for --help */

    /* (optional) Its options, with its own defaults. The struct may have more fields, which
     * `resolve` fills in; it is copied with the strategy's configuration. */
    const struct option *options;
    int n_options;
    size_t config_bytes;
    const struct option_only *only; /* (optional) of the enums among them */
    int n_only;

    /* Of these one, by the axis. */
    const struct strategy_ops *shard;
    const struct replicate_ops *replicate;

    /* (optional) Checks its options and refuses what makes no sense; all else in `config` is
     * resolved. */
    enum sotto_status (*resolve)(void *own, const struct strategy_config *config);
    /* (optional) Sets back what `base` says where something else is said now that takes its place.
     */
    void (*set_aside)(void *own, const void *base);
    /* (optional) Makes `optim` the optimizer that the method steps with, and refuses what was said
     * otherwise; the option that says which it is, and that with its section, for messages.
     * Default: it is the user's. */
    enum sotto_status (*optimizer)(const void *own, const char *key, struct optim_config *optim);
    const char *optimizer_key;
    /* (optional) Resets options that name files or depend on the number of groups, for a dry run
     * of a round or two with fewer groups. */
    void (*dry_run)(void *own);
    /* (optional) Whether what it computes depends on timing. Default: no. */
    bool (*timed)(const void *own);
    /* (optional) Whether how much it sends depends on what is sent. Default: no. */
    bool (*varies)(const void *own);
    /* (optional) A shard method's: micro-batches that a worker has under way at once, as slots of
     * its oracle. Default: one. */
    int (*slots)(const void *own, const struct strategy_config *config);
    /* (optional) A shard method's: the stages that it wants the model cut into, which are as many
     * as a round has micro-batches. Default: it takes any. */
    int (*stages)(const void *own, const struct strategy_config *config);
    /* (optional) A shard method's: whether workers compute different parts of the model, so that
     * one that takes longer need not be a slower one. Default: all do the same. */
    bool (*unlike)(const void *own);
    /* (optional) Steps between two meetings of the groups, 0: not known yet; the option that says
     * so; and whether a run that ends before the first one meets in the end. */
    int64_t (*every)(const void *own);
    const char *every_key;
    bool meets_at_end;
    /* (optional) Warns of what makes little sense with this optimizer (NULL: nothing is computed),
     * or where a worker owns so many elements. */
    void (*warn)(const void *own, const struct optim_config *optim, size_t elements);
};

#define METHOD_OPTIONS(S, table)                                                                   \
    .options = (table), .n_options = (int)(sizeof(table) / sizeof *(table)),                       \
    .config_bytes = sizeof(S)
#define METHOD_ONLY(rules) .only = (rules), .n_only = (int)(sizeof(rules) / sizeof *(rules))

/* The i-th method; NULL behind the last. */
const struct method *method_at(int i);

/* By its name; NULL: there is none on that axis. */
const struct method *method_find(enum method_axis axis, const char *name);

/* Pairs of methods with a usual name that is no method's own; NULL behind the last. */
struct method_preset {
    const char *name;
    const struct method *shard, *replicate;
};
const struct method_preset *method_preset(int i);

/* What is trained with where nothing is said, and what one method alone is paired with. */
extern const struct method_preset method_plain;

/* A method's own configuration, where there is one. */
void *method_config(struct strategy_config *config, const struct method *method);
const void *method_own(const struct strategy_config *config, const struct method *method);

#endif

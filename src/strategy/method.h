/* A method is one file and one line: the file ends with a struct method, which describes the method
 * to the rest of the program, and methods.c names it. docs/internals/adding-a-method.md shows an
 * example.
 *
 *     struct toy_config { double gain; };
 *     static const struct option options[] = {
 *         OPTION_REAL(struct toy_config, gain, "1", 0, 100, "factor on gradients"),
 *     };
 *     const struct method method_toy = {
 *         .name = "toy", .axis = METHOD_REPLICATE, .about = "...",
 *         METHOD_OPTIONS(struct toy_config, options), .replicate = &ops };
 *
 * The options are the section of the method's name: [toy] gain = 2, --toy.gain=2, or --gain=2 if
 * the method is chosen. */
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

    /* (optional) The method's options, with their defaults. The struct may have more fields, which
     * `resolve` fills; it is copied with the strategy's configuration. */
    const struct option *options;
    int n_options;
    size_t config_bytes;
    const struct option_only *only; /* (optional) options that need a value of another */
    int n_only;

    /* One of these, by the axis. */
    const struct strategy_ops *shard;
    const struct replicate_ops *replicate;

    /* (optional) Checks the options, refuses what makes no sense. The rest of `config` is
     * resolved. */
    enum sotto_status (*resolve)(void *own, const struct strategy_config *config);
    /* (optional) Resets an option of `base`, a shared configuration, if `own` sets another option
     * in its place. */
    void (*set_aside)(void *own, const void *base);
    /* (optional) Sets `optim` to the optimizer that the method steps with, and refuses
     * contradictions by the user. optimizer_key: the option that chooses; `key`: the same with its
     * section, for messages. Default: the user's optimizer. */
    enum sotto_status (*optimizer)(const void *own, const char *key, struct optim_config *optim);
    const char *optimizer_key;
    /* (optional) Resets options that name files or depend on the number of groups, for a dry run
     * of a round or two with fewer groups. */
    void (*dry_run)(void *own);
    /* (optional) True if results depend on timing. Default: no. */
    bool (*timed)(const void *own);
    /* (optional) True if the bytes sent depend on the values. Default: no. */
    bool (*varies)(const void *own);
    /* (optional) Shard methods: micro-batches that a worker has in flight at once, in slots of its
     * oracle. Default: one. */
    int (*slots)(const void *own, const struct strategy_config *config);
    /* (optional) Shard methods: number of stages that the method needs, one for each micro-batch of
     * a round. Default: any number. */
    int (*stages)(const void *own, const struct strategy_config *config);
    /* (optional) Shard methods: true if workers compute different parts of the model, so that a
     * longer computation does not mean a slower worker. Default: no. */
    bool (*unlike)(const void *own);
    /* (optional) every: steps between two meetings of the groups, 0: not known yet; every_key: the
     * option that sets them; meets_at_end: a run that ends before the first meeting meets at its
     * end. */
    int64_t (*every)(const void *own);
    const char *every_key;
    bool meets_at_end;
    /* (optional) Warns of options that make little sense with this optimizer (NULL: nothing is
     * computed) or for a worker that owns `elements` elements. */
    void (*warn)(const void *own, const struct optim_config *optim, size_t elements);
};

#define METHOD_OPTIONS(S, table)                                                                   \
    .options = (table), .n_options = (int)(sizeof(table) / sizeof *(table)),                       \
    .config_bytes = sizeof(S)
#define METHOD_ONLY(rules) .only = (rules), .n_only = (int)(sizeof(rules) / sizeof *(rules))

/* Returns the i-th method; NULL after the last. */
const struct method *method_at(int i);

/* Finds a method by name; NULL if the axis has no such method. */
const struct method *method_find(enum method_axis axis, const char *name);

/* Named pairs of methods, such as local-sgd; NULL after the last. */
struct method_preset {
    const char *name;
    const struct method *shard, *replicate;
};
const struct method_preset *method_preset(int i);

/* The default pair; a method given alone is paired with the other axis of this one. */
extern const struct method_preset method_plain;

/* Returns the method's own configuration, if any. */
void *method_config(struct strategy_config *config, const struct method *method);
const void *method_own(const struct strategy_config *config, const struct method *method);

#endif

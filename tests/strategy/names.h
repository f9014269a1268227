/* Methods by number, for tests of all methods. */
#ifndef SOTTO_TESTS_STRATEGY_NAMES_H
#define SOTTO_TESTS_STRATEGY_NAMES_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/strategy.h"

enum {
    SHARD_AUTO,
    SHARD_DDP,
    SHARD_ZERO1,
    SHARD_FSDP,
    SHARD_DPU, /* from here on they work ahead */
    SHARD_ACCO_WP,
    SHARD_ACCO,
};
enum {
    REPLICATE_AUTO,
    REPLICATE_SYNC,
    REPLICATE_LOCAL,
    REPLICATE_OVERLAP_LOCAL,
    REPLICATE_SLOWMO,
    REPLICATE_CO2,
    REPLICATE_DILOCO,
};
enum { PENALTY_ELEMENTWISE, PENALTY_NORM, PENALTY_OFF };
enum { OUTER_NESTEROV, OUTER_SGD, OUTER_ADAM };

static inline const char *shard_name(int shard)
{
    static const char *const names[] = {"auto", "ddp", "zero1", "fsdp", "dpu", "acco-wp", "acco"};
    return names[shard];
}

static inline const char *replicate_name(int replicate)
{
    static const char *const names[] = {"auto",   "sync", "local", "overlap-local",
                                        "slowmo", "co2",  "diloco"};
    return names[replicate];
}

static inline void choose(struct strategy_config *c, int shard, int replicate)
{
    snprintf(c->shard, sizeof c->shard, "%s", shard_name(shard));
    snprintf(c->replicate, sizeof c->replicate, "%s", replicate_name(replicate));
}

/* "diloco" "H" "50"; nothing where the method has no such key. */
static inline void set_own(struct strategy_config *c, const char *method, const char *key,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));
static inline void set_own(struct strategy_config *c, const char *method, const char *key,
                           const char *format, ...)
{
    struct option_section all[STRATEGY_SECTIONS];
    char value[OPTION_ROOM], whole[64];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    snprintf(whole, sizeof whole, "%s.%s", method, key);
    strategy_sections(c, all);
    for (int s = 1; s < STRATEGY_SECTIONS; s++)
        for (int i = 0; i < all[s].count && strcmp(all[s].name, method) == 0; i++)
            if (strcmp(all[s].table[i].key, key) == 0 &&
                option_set(&all[s], 1, whole, value) != SOTTO_OK)
                abort();
}

/* "replicate=toy", "toy.gain=2", ... of n, or up to a NULL. */
static inline enum sotto_status set_options(struct strategy_config *c, const char *const *options,
                                            int n)
{
    struct option_section all[STRATEGY_SECTIONS];
    strategy_sections(c, all);
    for (int i = 0; i < n && options[i]; i++) {
        char key[64];
        const char *value = strchr(options[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - options[i]), options[i]);
        TRY(option_set(all, STRATEGY_SECTIONS, key, value + 1));
    }
    return SOTTO_OK;
}

#endif

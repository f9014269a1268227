/* Options of methods once stood together under [strategy], with one default for all: files that
 * runs wrote then are still read. */
#include <string.h>

#include "strategy/config.h"

bool strategy_old_key(const char *key)
{
    static const char *const keys[] = {
        "warmup", "replay",  "tau",       "alpha",          "beta",
        "phi",    "penalty", "H",         "outer",          "outer_lr",
        "prune",  "drop",    "drop_seed", "outer_momentum", "replicas"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

enum sotto_status strategy_set_old(struct strategy_config *c, const char *key, const char *value)
{
    struct option_section methods[STRATEGY_SECTIONS];
    if (*value == '-') /* "the method's own" */
        return SOTTO_OK;
    strategy_sections(c, methods);
    for (int i = 1; i < STRATEGY_SECTIONS; i++)
        if (option_is_used(&methods[i], 1, key))
            TRY(option_set(&methods[i], 1, key, value));
    return SOTTO_OK;
}

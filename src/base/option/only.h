/* Options that only some choices have a use for: set beside another choice they would be ignored
 * silently, so they are refused.
 *
 *     {"momentum", "kind", "sgd"},          optim.momentum is for kind = sgd
 *
 * An option counts as set where it differs from its default. */
#ifndef SOTTO_BASE_OPTION_ONLY_H
#define SOTTO_BASE_OPTION_ONLY_H

#include "base/option/option.h"

struct option_only {
    const char *key;
    const char *by;     /* the enum, of the same section, that decides */
    const char *values; /* which have a use for the key: "linear, cosine" */
};

/* Whether the field has its default, however that is written. */
bool option_is_default(const struct option *option, const void *config);

/* Names the first option of the section that is set without effect, and what it is for. */
enum sotto_status option_only_check(const struct option_section *section,
                                    const struct option_only *only, int n);

/* Sets those without effect back to their defaults where `base` has the same value: they were
 * meant for others that share it. */
void option_only_set_aside(const struct option_section *section, const struct option_only *only,
                           int n, const void *base);

#endif

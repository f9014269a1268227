/* Options with an effect for some choices only: with another choice the option would be ignored
 * silently, so the option is refused.
 *
 *     {"momentum", "kind", "sgd"},          optim.momentum is for kind = sgd
 *
 * An option counts as set if its value differs from its default. */
#ifndef SOTTO_BASE_OPTION_ONLY_H
#define SOTTO_BASE_OPTION_ONLY_H

#include "base/option/option.h"

struct option_only {
    const char *key;
    const char *by;     /* the enum option of the same section that decides */
    const char *values; /* values of `by` with which the key has an effect: "linear, cosine" */
};

/* True if the field has its default value, however the text of the default is written. */
bool option_is_default(const struct option *option, const void *config);

/* Fails with the name of the first option of the section that is set without effect, and of the
 * values with which the option has an effect. */
enum sotto_status option_only_check(const struct option_section *section,
                                    const struct option_only *only, int n);

/* Resets options without effect to their defaults if `base` has the same value: the shared
 * configuration `base` set such an option for another choice. */
void option_only_set_aside(const struct option_section *section, const struct option_only *only,
                           int n, const void *base);

#endif

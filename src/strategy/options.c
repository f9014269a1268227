#include "strategy/strategy.h"

static const char *const precision_names[] = {"fp32", "mixed", NULL};
static const char *const weight_names[] = {"microbatch", "tokens", NULL};

#define S struct strategy_config
const struct option strategy_options[] = {
    OPTION_ENUM(S, precision, "fp32", precision_names,
                "mixed: parameters and gradients bf16, the fp32 truth kept beside them"),
    OPTION_ENUM(S, weight, "microbatch", weight_names,
                "a round's gradient averages micro-batches, or target tokens (padded data)"),
    OPTION_INT(S, accumulate, "1", 1, 1e6, "micro-batches a round"),
};
#undef S
const int strategy_options_count = sizeof strategy_options / sizeof *strategy_options;

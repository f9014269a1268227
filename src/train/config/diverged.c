#include "train/config/diverged.h"

#include <stdio.h>
#include <string.h>

/* Lists the learning rates of the chosen methods: ", diloco.outer_lr (now 0.7)". */
static void list_rates(const struct strategy_config *config, char *out, size_t room)
{
    struct option_section all[STRATEGY_SECTIONS];
    size_t used = 0;
    *out = '\0';
    strategy_sections((struct strategy_config *)config, all); /* not modified */
    for (int s = 0; s < STRATEGY_SECTIONS; s++) {
        for (int i = 0; i < all[s].count && used < room; i++) {
            const struct option *o = &all[s].table[i];
            char value[OPTION_ROOM];
            if (o->type == OPTION_TYPE_REAL && strstr(o->key, "lr") && all[s].used &&
                option_in_use(&all[s]))
                used += (size_t)snprintf(out + used, room - used, ", %s.%s (now %s)", all[s].name,
                                         o->key, option_print(o, all[s].config, value));
        }
    }
}

enum sotto_status diverged_advise(enum sotto_status st, const struct run_config *config,
                                  int64_t steps)
{
    const struct optim_config *o = &config->optim;
    char rates[256], cause[STATUS_ROOM];
    if (st != SOTTO_ENUMERIC)
        return st;
    snprintf(cause, sizeof cause, "%s", sotto_error());
    if (steps == 0)
        return fail(st,
                    "%.500s; no step was done yet, so the cause is in the initial parameters, the "
                    "data or the gradient, not in the learning rate",
                    cause);
    list_rates(&config->strategy, rates, sizeof rates);
    return fail(st,
                "%.500s: training has diverged; try a lower optim.lr (now %g)%s, a longer "
                "optim.warmup (now %lld steps) or optim.clip = %g (now %g%s)",
                cause, o->lr, rates, (long long)o->warmup, o->clip > 0 ? o->clip / 10 : 1.0,
                o->clip, o->clip > 0 ? "" : ", off");
}

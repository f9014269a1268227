#include "train/config/budget.h"

#include <math.h>

enum { DEFAULT_STEPS = 1000 };

void budget_resolve(struct train_config *c)
{
    if (c->steps < 0 && c->tokens == 0 && c->samples == 0 && c->seconds == 0)
        c->steps = DEFAULT_STEPS;
}

/* Returns the rounds until `limit`, if `rounds` rounds have brought `amount`. */
static int64_t rounds_to(double limit, double amount, int64_t rounds)
{
    if (limit <= 0 || amount <= 0 || rounds <= 0) /* a clock may run before the first round */
        return BUDGET_UNKNOWN;
    double n = ceil((double)rounds * limit / amount); /* exact for whole results */
    return n < (double)BUDGET_UNKNOWN ? (int64_t)n : BUDGET_UNKNOWN;
}

static int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t budget_rounds(const struct train_config *c, const struct budget_spent *spent,
                      int64_t samples)
{
    struct budget_spent s = *spent;
    if (s.tokens == 0 ||
        s.samples == 0) { /* before the first round: the expected amounts of one round */
        s.rounds = 1;
        s.samples = samples;
        s.tokens = samples * c->seq;
    }
    int64_t n = c->steps < 0 ? BUDGET_UNKNOWN : c->steps;
    n = smaller_of(n, rounds_to((double)c->tokens, (double)s.tokens, s.rounds));
    n = smaller_of(n, rounds_to((double)c->samples, (double)s.samples, s.rounds));
    return smaller_of(n, rounds_to(c->seconds, s.seconds, s.timed));
}

int64_t budget_compare(int64_t done, int64_t rounds)
{
    const int64_t ahead = smaller_of((rounds - done) * 3 / 4, done * 3);
    return done + (ahead > 1 ? ahead : 1);
}

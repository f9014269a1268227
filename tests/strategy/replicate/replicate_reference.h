/* Reference of the replicate methods' formulas (METHODS: local, overlap-local, slowmo, co2,
 * diloco), group after group, in double precision, on the quadratic. The reference shares no code
 * with the methods but the choice of dropped groups, a pseudo-random function of seed, group and
 * outer round.
 *
 * co2's norm penalty wants the norm of the averaged displacement from scalars alone: it is taken as
 * the root of the mean over the groups of the squared norms. */
#ifndef SOTTO_TESTS_STRATEGY_REPLICATE_REPLICATE_REFERENCE_H
#define SOTTO_TESTS_STRATEGY_REPLICATE_REPLICATE_REFERENCE_H

#include "base/rng.h"
#include "strategy/quadratic.h"

enum { MOST = 8, PHASES = 4, STAGE = COUNT / STAGES };

struct rule {
    int replicate; /* REPLICATE_ */
    int shard;     /* SHARD_     */
    int groups, workers, accumulate;
    double clip;
    int kind; /* optimizer */
    double momentum;
    int tau;            /* H of diloco */
    double alpha, beta; /* negative: the method's own */
    double phi;
    int penalty;
    int outer; /* diloco */
    double outer_lr, outer_momentum;
    double prune, drop;
    int64_t drop_seed;
    struct {
        int groups, steps;
    } phase[PHASES];   /* groups 0: the end */
    double data[MOST]; /* of each worker; 0: equal */
};

struct reference {
    struct rule is;
    double x[MOST][COUNT];                  /* of the groups                    */
    double m[MOST][COUNT], v[MOST][COUNT];  /* of the inner optimizer */
    int t[MOST], seen[MOST];                /* inner steps; micro-batches       */
    double first[MOST][COUNT];              /* co2: displacement of the first step */
    double velocity[MOST][COUNT];           /* overlap-local                    */
    double x0[COUNT], m0[COUNT], v0[COUNT]; /* outer parameters, momentum, second moment */
    double before[COUNT];                   /* co2: x_{t-1,0}                   */
    double sent[COUNT], sent_first[COUNT];  /* averages in flight */
    double sent_square[STAGES];
    int steps, step, round, active, outer_t;
    bool under_way;
    bool agreed;                /* all groups have the same parameters */
    double mean[COUNT];         /* the exported parameters */
    double pruned[MOST][COUNT]; /* diloco: last message of each group */
    double cosine;              /* diloco: mean over pairs of groups that took part and moved */
    int pairs;                  /* number of these pairs; 0 also without an exchange */
};

static inline int rule_slices(const struct rule *rule)
{
    return rule->workers / rule->groups;
}

static inline bool decayed(int i)
{
    return i / STAGE != 1; /* w and u are matrices, b is not */
}

static inline double pick(double value, double otherwise)
{
    return value < 0 ? otherwise : value;
}

static inline int reference_active(const struct rule *rule, int step)
{
    for (int i = 0; i < PHASES && rule->phase[i].groups; i++) {
        if (step < rule->phase[i].steps || i + 1 == PHASES || !rule->phase[i + 1].groups)
            return rule->phase[i].groups;
        step -= rule->phase[i].steps;
    }
    return rule->groups;
}

static inline void reference_start(struct reference *ref, const struct rule *rule,
                                   const float start[COUNT])
{
    *ref = (struct reference){.is = *rule};
    for (int i = 0; i < COUNT; i++) {
        ref->x0[i] = ref->before[i] = start[i];
        for (int r = 0; r < rule->groups; r++)
            ref->x[r][i] = start[i];
    }
    ref->active = reference_active(rule, 0);
}

/* Returns gbar of the group, clipped. */
static inline void reference_gradient(struct reference *ref, int r, double g[COUNT])
{
    const struct rule *rule = &ref->is;
    const int slices = rule_slices(rule);
    double square = 0;
    for (int i = 0; i < COUNT; i++) {
        const double a = 0.5f + 0.05f * (float)i;
        g[i] = 0;
        for (int k = 0; k < slices * rule->accumulate; k++) {
            int index = (ref->seen[r] + k / slices) * rule->workers + r * slices + k % slices;
            g[i] += a * a * (ref->x[r][i] - centre(index % BATCHES, i));
        }
        g[i] /= slices * rule->accumulate;
        square += g[i] * g[i];
    }
    for (int i = 0; i < COUNT && rule->clip > 0 && square > rule->clip * rule->clip; i++)
        g[i] *= rule->clip / sqrt(square);
    ref->seen[r] += rule->accumulate;
}

/* SGD (L2 decay, torch's momentum) or AdamW (decoupled decay). */
static inline void reference_inner(struct reference *ref, int r, double lr)
{
    const struct rule *rule = &ref->is;
    const double decay = 0.1, b1 = 0.9, b2 = 0.95;
    double gbar[COUNT];
    reference_gradient(ref, r, gbar);
    ref->t[r]++;
    for (int i = 0; i < COUNT; i++) {
        double g = gbar[i], *x = &ref->x[r][i], *m = &ref->m[r][i], *v = &ref->v[r][i];
        if (rule->kind == OPTIM_SGD) {
            g += decayed(i) ? decay * *x : 0;
            *m = ref->t[r] == 1 ? g : rule->momentum * *m + g;
            *x -= lr * *m;
            continue;
        }
        *m = b1 * *m + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        double step = *m / (1 - pow(b1, ref->t[r])) / (sqrt(*v / (1 - pow(b2, ref->t[r]))) + 1e-8);
        *x -= lr * (step + (decayed(i) ? decay * *x : 0));
    }
}

static inline double group_mean(const struct reference *ref, const double x[][COUNT], int i)
{
    double sum = 0;
    for (int r = 0; r < ref->is.groups; r++)
        sum += x[r][i];
    return sum / ref->is.groups;
}

static inline void everybody_has(struct reference *ref, const double x[COUNT])
{
    for (int r = 0; r < ref->is.groups; r++)
        memcpy(ref->x[r], x, sizeof ref->x[r]);
    ref->agreed = true;
}

static inline void reference_local(struct reference *ref)
{
    double mean[COUNT];
    for (int i = 0; i < COUNT; i++)
        mean[i] = group_mean(ref, ref->x, i);
    everybody_has(ref, mean);
}

/* For an lr so small that the rule's limit holds: `moved / lr` counts as 0, and lr times a sum with
 * `moved / lr` as `moved` alone. */
static inline double over_rate(double moved, double lr)
{
    return lr < 1e-30 ? 0 : moved / lr;
}

static inline double times_rate(double sum, double moved, double lr)
{
    return lr < 1e-30 ? moved : lr * sum;
}

static inline void reference_slowmo(struct reference *ref, double lr)
{
    const double alpha = pick(ref->is.alpha, 1), beta = pick(ref->is.beta, 0.5);
    for (int i = 0; i < COUNT; i++) {
        const double moved = ref->x0[i] - group_mean(ref, ref->x, i);
        ref->m0[i] = beta * ref->m0[i] + over_rate(moved, lr);
        ref->x0[i] -= alpha * times_rate(ref->m0[i], moved, lr);
    }
    everybody_has(ref, ref->x0);
}

/* x0 is the anchor z. */
static inline void reference_overlap_local(struct reference *ref, double lr)
{
    const double a = pick(ref->is.alpha, 0.6), b = pick(ref->is.beta, 0.7);
    double to[MOST][COUNT];
    if (ref->under_way)
        memcpy(ref->x0, ref->sent, sizeof ref->x0);
    for (int i = 0; i < COUNT; i++) {
        for (int r = 0; r < ref->is.groups; r++) {
            ref->x[r][i] = (1 - a) * ref->x[r][i] + a * ref->x0[i];
            const double moved = ref->x0[i] - ref->x[r][i];
            ref->velocity[r][i] = b * ref->velocity[r][i] + over_rate(moved, lr);
            to[r][i] = ref->x0[i] - times_rate(ref->velocity[r][i], moved, lr);
        }
        ref->sent[i] = group_mean(ref, to, i);
    }
    ref->under_way = true;
}

static inline double reference_penalty(const struct reference *ref, int i)
{
    double moved = 0, first = fabs(ref->sent_first[i]);
    if (ref->is.penalty == PENALTY_OFF)
        return 1;
    if (ref->is.penalty == PENALTY_ELEMENTWISE) {
        moved = fabs(ref->x0[i] - ref->before[i]);
    } else {
        int begin = i / STAGE * STAGE; /* a stage is a tensor */
        for (int j = begin; j < begin + STAGE; j++)
            moved += (ref->x0[j] - ref->before[j]) * (ref->x0[j] - ref->before[j]);
        moved = sqrt(moved);
        first = sqrt(ref->sent_square[i / STAGE]);
    }
    return moved / (ref->is.tau * first + 1e-12) + 1;
}

/* x0 is x_{t,0}. */
static inline void reference_co2(struct reference *ref)
{
    const double alpha = pick(ref->is.alpha, 1), beta = pick(ref->is.beta, 0.5), phi = ref->is.phi;
    double next[COUNT];
    memcpy(next, ref->x0, sizeof next); /* x_{1,0} = x_{0,0} */
    for (int i = 0; i < COUNT && ref->under_way; i++) {
        double m = ref->m0[i] =
            beta * ref->m0[i] + (ref->before[i] - ref->sent[i]) / reference_penalty(ref, i);
        next[i] = ref->x0[i] - alpha * (phi > 0 ? fmax(-phi, fmin(m, phi)) : m);
    }
    memset(ref->sent_square, 0, sizeof ref->sent_square);
    for (int i = 0; i < COUNT; i++) {
        ref->sent[i] = group_mean(ref, ref->x, i);
        ref->sent_first[i] = group_mean(ref, ref->first, i);
        for (int r = 0; r < ref->is.groups; r++)
            ref->sent_square[i / STAGE] += ref->first[r][i] * ref->first[r][i] / ref->is.groups;
    }
    memcpy(ref->before, ref->x0, sizeof next);
    memcpy(ref->x0, next, sizeof next);
    ref->under_way = true;
    everybody_has(ref, ref->x0);
}

static inline bool reference_drops(const struct reference *ref, int r)
{
    uint64_t draw = rng_at((uint64_t)ref->is.drop_seed, (uint64_t)r, (uint64_t)ref->round) >> 11;
    return (double)draw / 9007199254740992.0 < ref->is.drop;
}

/* Zeros all but the ceil((1-p) n) largest of the n elements of a row that a worker owns; on ties
 * the lower index stays. */
static inline void reference_prune(const struct reference *ref, double delta[COUNT])
{
    static const int row_of[STAGES] = {2, 8, 4};
    const int slice = ref->is.shard == SHARD_DDP ? STAGE : STAGE / rule_slices(&ref->is);
    double all[COUNT];
    memcpy(all, delta, sizeof all);
    for (int i = 0; i < COUNT; i++) {
        const int k = i / STAGE;
        int n = 0, larger = 0;
        for (int j = k * STAGE; j < (k + 1) * STAGE; j++) {
            int a = i % STAGE, b = j % STAGE;
            if (a / row_of[k] != b / row_of[k] || a / slice != b / slice)
                continue;
            n++;
            larger += fabs(all[j]) > fabs(all[i]) || (fabs(all[j]) == fabs(all[i]) && j < i);
        }
        if (larger >= (int)ceil((1 - ref->is.prune) * n - 1e-9))
            delta[i] = 0;
    }
}

static inline void reference_cosine(struct reference *ref, const double share[MOST])
{
    double product[MOST][MOST] = {{0}};
    ref->cosine = 0;
    ref->pairs = 0;
    for (int a = 0; a < ref->is.groups; a++)
        for (int b = 0; b < ref->is.groups; b++)
            for (int i = 0; i < COUNT; i++)
                product[a][b] += (ref->x0[i] - ref->x[a][i]) * (ref->x0[i] - ref->x[b][i]);
    for (int a = 0; a < ref->is.groups; a++)
        for (int b = 0; b < a; b++) {
            if (!(share[a] > 0 && share[b] > 0 && product[a][a] > 0 && product[b][b] > 0))
                continue;
            ref->cosine += product[a][b] / sqrt(product[a][a] * product[b][b]);
            ref->pairs++;
        }
    if (ref->pairs)
        ref->cosine /= ref->pairs;
}

static inline void reference_outer(struct reference *ref, const double delta[COUNT])
{
    const struct rule *rule = &ref->is;
    const double mu = rule->outer_momentum, lr = rule->outer_lr, b2 = 0.95;
    ref->outer_t++;
    for (int i = 0; i < COUNT; i++) {
        double step = delta[i];
        if (rule->outer == OUTER_NESTEROV) {
            ref->m0[i] = mu * ref->m0[i] + delta[i];
            step = delta[i] + mu * ref->m0[i];
        } else if (rule->outer == OUTER_ADAM) {
            ref->m0[i] = mu * ref->m0[i] + (1 - mu) * delta[i];
            ref->v0[i] = b2 * ref->v0[i] + (1 - b2) * delta[i] * delta[i];
            step = ref->m0[i] / (1 - pow(mu, ref->outer_t)) /
                   (sqrt(ref->v0[i] / (1 - pow(b2, ref->outer_t))) + 0.1);
        }
        ref->x0[i] -= lr * step;
    }
}

/* Groups that trained in this outer round take part, unless dropped; other groups wait at x0. */
static inline void reference_diloco(struct reference *ref)
{
    const struct rule *rule = &ref->is;
    const int slices = rule_slices(rule);
    double share[MOST] = {0}, all = 0, delta[COUNT] = {0};
    for (int r = 0; r < ref->active; r++) {
        for (int s = 0; s < slices; s++)
            share[r] += rule->data[r * slices + s] > 0 ? rule->data[r * slices + s] : 1;
        if (reference_drops(ref, r))
            share[r] = 0;
        all += share[r];
    }
    reference_cosine(ref, share);
    for (int r = 0; r < rule->groups; r++) {
        for (int i = 0; i < COUNT; i++)
            ref->pruned[r][i] = all > 0 ? share[r] / all * (ref->x0[i] - ref->x[r][i]) : 0;
        reference_prune(ref, ref->pruned[r]);
        for (int i = 0; i < COUNT; i++)
            delta[i] += ref->pruned[r][i];
    }
    if (all > 0)
        reference_outer(ref, delta);
    ref->agreed = true;
    for (int r = 0; r < rule->groups; r++) {
        if (share[r] > 0 || r >= ref->active)
            memcpy(ref->x[r], ref->x0, sizeof ref->x0);
        else
            ref->agreed = false;
    }
    ref->round++;
    ref->active = reference_active(rule, ref->step);
}

/* Makes a step of all groups, and the exchange that is due after it. */
static inline void reference_step(struct reference *ref, double lr)
{
    const int n = ref->active;
    double was[COUNT];
    ref->agreed = ref->is.groups == 1;
    ref->pairs = 0;
    for (int r = 0; r < n; r++) {
        memcpy(was, ref->x[r], sizeof was);
        reference_inner(ref, r, lr);
        for (int i = 0; i < COUNT && ref->steps == 0; i++)
            ref->first[r][i] = ref->x[r][i] - was[i];
    }
    ref->step++;
    if (++ref->steps == ref->is.tau) {
        ref->steps = 0;
        switch (ref->is.replicate) {
        case REPLICATE_LOCAL:
            reference_local(ref);
            break;
        case REPLICATE_OVERLAP_LOCAL:
            reference_overlap_local(ref, lr);
            break;
        case REPLICATE_SLOWMO:
            reference_slowmo(ref, lr);
            break;
        case REPLICATE_CO2:
            reference_co2(ref);
            break;
        case REPLICATE_DILOCO:
            reference_diloco(ref);
            break;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < ref->active; r++)
            sum += ref->x[r][i];
        ref->mean[i] = sum / ref->active;
    }
}

#endif

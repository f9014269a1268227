/* dpu, acco-wp, acco and ddp on the quadratic, one after another in double precision, from their
 * formulas: no lanes, no communication, no slices.
 *
 *   ddp      theta(t+1) = step(theta(t), sum g(t) / sum N(t)),                    g(t) at theta(t)
 *   dpu      theta(t+1) = step(theta(t), sum g(t-1) / sum N(t-1)),                g(t) at theta(t)
 *   acco-wp  the same,    est(t+2) = peek(theta(t+1), the same gradient),         g(t) at est(t+1)
 *   acco     est(t+1)   = peek(theta(t), sum gt / sum Nt),                        g at theta(t)
 *            theta(t+1) = step(theta(t), sum (g + gt) / sum (Nn + Nt)),  the next gt at est(t+1)
 */
#ifndef SOTTO_TESTS_STRATEGY_OVERLAP_OVERLAP_REFERENCE_H
#define SOTTO_TESTS_STRATEGY_OVERLAP_OVERLAP_REFERENCE_H

#include "strategy/overlap/overlap_lab.h"

/* Gradients of some micro-batches of all workers. */
struct sum {
    double g[COUNT], loss, targets, microbatches;
};

struct reference {
    struct lab is; /* its settings */
    double theta[COUNT];
    double at[COUNT]; /* acco-wp: where gradients are computed; `predicted` or theta */
    bool predicted;
    double m[COUNT], v[COUNT];
    int steps;        /* of the optimizer                                          */
    struct sum ahead; /* gradients that were not applied yet, `any` or none        */
    bool any;
    int64_t next[MOST]; /* micro-batch of each worker                                */
    int line;
    int32_t (*count)[MOST];          /* of the replay; NULL: `accumulate` each                  */
    double loss, microbatches, norm; /* of the last round */
};

static inline void reference_init(struct reference *r, const struct lab *lab,
                                  int32_t (*count)[MOST])
{
    *r = (struct reference){.is = *lab, .count = count};
    for (int i = 0; i < COUNT; i++)
        r->theta[i] = lab_start(i);
}

static inline void reference_add(struct reference *r, struct sum *s, const double *at, int worker)
{
    int64_t index = (r->next[worker]++ * r->is.workers + worker) % BATCHES;
    if (r->is.still)
        index = 0;
    double targets = (double)(3 + index % 5);
    for (int i = 0; i < COUNT; i++) {
        double a = 0.5f + 0.05f * (float)i, d = at[i] - centre(index, i);
        s->g[i] += a * a * d * (r->is.weight == WEIGHT_TOKENS ? targets : 1);
        s->loss += 0.5 * a * a * d * d * targets;
    }
    s->targets += targets;
    s->microbatches++;
}

/* Adds `times` micro-batches of every worker; 0: as many as the worker computed during its lane's
 * job. */
static inline void reference_compute(struct reference *r, struct sum *s, const double *at,
                                     int times)
{
    for (int w = 0; w < r->is.workers; w++) {
        int n = times ? times : r->count ? r->count[r->line][w] : r->is.accumulate;
        for (int j = 0; j < n; j++)
            reference_add(r, s, at, w);
    }
    r->line += times == 0;
}

/* The clipped average. */
static inline void reference_average(struct reference *r, const struct sum *s, double g[COUNT])
{
    double parts = r->is.weight == WEIGHT_TOKENS ? s->targets : s->microbatches, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        g[i] = s->g[i] / parts;
        squares += g[i] * g[i];
    }
    r->norm = sqrt(squares);
    for (int i = 0; i < COUNT && r->is.clip > 0 && r->norm > r->is.clip; i++)
        g[i] *= r->is.clip / r->norm;
}

/* Computes a step; its result replaces the parameters unless `out` is another vector. */
static inline void reference_step(struct reference *r, const double *g, double lr, double *out)
{
    const bool peek = out != r->theta;
    const int t = r->steps + 1;
    for (int i = 0; i < COUNT; i++) {
        const double decay = i / 8 == 1 ? 0 : r->is.decay, x = r->theta[i]; /* b is no matrix */
        double m, v = 0;
        if (r->is.kind == OPTIM_SGD) {
            m = r->is.momentum * r->m[i] + g[i] + decay * x;
            out[i] = x - lr * m;
        } else {
            m = 0.9 * r->m[i] + 0.1 * g[i];
            v = 0.95 * r->v[i] + 0.05 * g[i] * g[i];
            out[i] = x - lr * decay * x -
                     lr * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.95, t))) + 1e-8);
        }
        if (!peek) {
            r->m[i] = m;
            r->v[i] = v;
        }
    }
    r->steps += !peek;
}

static inline void reference_apply(struct reference *r, const struct sum *s,
                                   const struct plan *plan)
{
    double g[COUNT];
    reference_average(r, s, g);
    reference_step(r, g, plan->lr, r->theta);
    if (r->is.method == SHARD_ACCO_WP)
        reference_step(r, g, plan->next_lr, r->at);
    r->predicted = r->is.method == SHARD_ACCO_WP;
    r->loss = s->loss / s->targets;
    r->microbatches = s->microbatches;
}

static inline void reference_acco(struct reference *r, const struct plan *plan)
{
    struct sum gt = r->ahead, next = {0};
    double est[COUNT], g[COUNT];
    reference_average(r, &gt, g);
    reference_step(r, g, plan->lr, est);
    reference_compute(r, &gt, r->theta, 0); /* g on top of gt */
    reference_compute(r, &next, est, 0);
    reference_apply(r, &gt, plan);
    r->ahead = next;
}

static inline void reference_round(struct reference *r, const struct plan *plan)
{
    struct sum next = {0};
    const bool undelayed = r->is.method < SHARD_DPU || (!r->any && r->steps < r->is.warmup);
    if (undelayed) {
        reference_compute(r, &r->ahead, r->theta, r->is.accumulate);
        reference_apply(r, &r->ahead, plan);
        r->ahead = next;
        r->any = false;
        return;
    }
    if (!r->any)
        reference_compute(r, &r->ahead, r->theta, 1);
    r->any = true;
    if (r->is.method == SHARD_ACCO) {
        reference_acco(r, plan);
        return;
    }
    reference_compute(r, &next, r->predicted ? r->at : r->theta, 0);
    reference_apply(r, &r->ahead, plan);
    r->ahead = next;
}

/* Parameters of some units are rounded by 1e-7 in each of the rounds, the sums of gradients by a
 * few times as much of them, of which lr a^2 < 0.3 gets through. */
static const double reference_tolerance = 2e-6;

/* Round t of the run is the reference's last. */
static inline void reference_compare(const struct reference *r, const struct lab *lab, int t)
{
    static const char *const names[] = {"auto", "ddp", "zero1", "fsdp", "dpu", "acco-wp", "acco"};
    char who[160];
    snprintf(who, sizeof who,
             "%s, %d workers in %d groups, optimizer %d, momentum %g, weight %d, clip %g, %s, "
             "accumulate %d, warmup %d: round %d",
             names[lab->method], lab->workers, lab->groups, lab->kind, lab->momentum, lab->weight,
             lab->clip, *lab->replay ? "replay" : "free", lab->accumulate, (int)lab->warmup, t);
    const struct round *round = &lab->round[t];
    if (round->microbatches != (int64_t)r->microbatches)
        fail_with("%s: %d micro-batches, want %d", who, (int)round->microbatches,
                  (int)r->microbatches);
    if (!(fabs(round->loss - r->loss) < 1e-5 * r->loss))
        fail_with("%s: loss %.9g, want %.9g", who, round->loss, r->loss);
    if (lab->clip > 0 || lab_plan(t).want_norm)
        if (!(fabs(round->grad_norm - r->norm) < 1e-5 * r->norm))
            fail_with("%s: norm %.9g, want %.9g", who, round->grad_norm, r->norm);
    for (int i = 0; i < COUNT; i++)
        if (!(fabs(lab->x[t][i] - r->theta[i]) < reference_tolerance))
            fail_with("%s: x[%d] is %.9g, want %.9g", who, i, lab->x[t][i], r->theta[i]);
}

#endif

/* Runs of the replicate methods on the quadratic, with every group's parameters after each step. */
#ifndef SOTTO_TESTS_STRATEGY_REPLICATE_REPLICATE_LAB_H
#define SOTTO_TESTS_STRATEGY_REPLICATE_REPLICATE_LAB_H

#include <limits.h>

#include "strategy/replicate/replicate_reference.h"
#include "strategy/shard/shard.h"

enum { STEPS = 20 };

struct lab {
    struct rule rule;
    int precision, steps;
    int first;  /* rounds of the run before */
    bool still; /* the learning rate is 0 */
    int fades;  /* steps between two with the rate `faded`; 0: never */
    double faded;
    bool bare;   /* no weight decay */
    int stopper; /* rank that votes to stop from its second step on; 0: none */
    int64_t nan_at;
    const struct link_model *links;
    const char *const *options; /* more options, up to a NULL; NULL: none */
    bool threads;               /* the engine; else virtual          */
    bool blind;                 /* no export between steps, which would wait for the links */
    bool ahead;                 /* as `blind`, and a step begins before the last step has ended */
    int abandoned;              /* step before which rank 0 abandons a round */

    /* Results. */
    float own[STEPS][MOST][COUNT]; /* fp32 truth of each group */
    float x[STEPS][COUNT];         /* of export; the same on all workers */
    bool stop[MOST][STEPS];        /* round.stop of each worker and step */
    double cosine[MOST][STEPS];    /* agreed.cosine of each worker and step */
    int64_t pairs[MOST][STEPS];
    size_t bytes[MEMORY_CATEGORIES]; /* of the last rank, when opened               */
    int64_t sent[MOST][STEPS];       /* bytes, by each worker in each step            */
    int64_t calls;                   /* sums and gathers between the groups, of rank 0 */
};

static inline struct lab lab_make(int replicate, int shard, int groups, int slices)
{
    return (struct lab){.rule = {.replicate = replicate,
                                 .shard = shard,
                                 .groups = groups,
                                 .workers = groups * slices,
                                 .accumulate = 1,
                                 .kind = OPTIM_SGD,
                                 .tau = 3,
                                 .alpha = -1,
                                 .beta = -1,
                                 .outer_lr = 0.7,
                                 .outer_momentum = 0.9,
                                 .drop_seed = 1},
                        .steps = 14,
                        .nan_at = -1};
}

/* Returns the learning rate of step t, different in each step. */
static inline double lab_lr(int t)
{
    return 0.05 * (1 + 0.5 * cos(2.0 * t));
}

static inline double lab_lr_of(const struct lab *lab, int t)
{
    if (lab->fades && t % lab->fades == lab->fades - 1)
        return lab->faded;
    return lab->still ? 0 : lab_lr(t);
}

static inline void lab_start(float x[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        x[i] = 2 - 0.1f * (float)i;
}

/* Sets the options of the rule's method; negative values are the defaults. */
static inline void lab_set_own(const struct rule *rule, struct strategy_config *config)
{
    static const char *const penalties[] = {"elementwise", "norm", "off"};
    static const char *const outers[] = {"nesterov", "sgd", "adam"};
    const char *name = replicate_name(rule->replicate);
    char replicas[OPTION_ROOM] = "";
    set_own(config, name, "tau", "%d", rule->tau);
    set_own(config, name, "H", "%d", rule->tau);
    if (rule->alpha >= 0)
        set_own(config, name, "alpha", "%.17g", rule->alpha);
    if (rule->beta >= 0)
        set_own(config, name, "beta", "%.17g", rule->beta);
    set_own(config, name, "phi", "%.17g", rule->phi);
    set_own(config, name, "penalty", "%s", penalties[rule->penalty]);
    set_own(config, name, "outer", "%s", outers[rule->outer]);
    set_own(config, name, "outer_lr", "%.17g", rule->outer_lr);
    if (rule->outer != OUTER_SGD)
        set_own(config, name, "outer_momentum", "%.17g", rule->outer_momentum);
    set_own(config, name, "prune", "%.17g", rule->prune);
    set_own(config, name, "drop", "%.17g", rule->drop);
    set_own(config, name, "drop_seed", "%lld", (long long)rule->drop_seed);
    for (int i = 0, at = 0; i < PHASES && rule->phase[i].groups; i++)
        at += snprintf(replicas + at, sizeof replicas - (size_t)at, "%s%dx%d", i ? "," : "",
                       rule->phase[i].groups, rule->phase[i].steps);
    set_own(config, name, "replicas", "%s", replicas);
}

static inline enum sotto_status lab_configure(const struct lab *lab, struct strategy_config *config,
                                              struct optim_config *optim)
{
    const struct rule *rule = &lab->rule;
    strategy_defaults(config);
    optim_defaults(optim);
    choose(config, rule->shard, rule->replicate);
    config->precision = lab->precision;
    config->accumulate = rule->accumulate;
    snprintf(config->mesh, sizeof config->mesh, "%dx%d", rule->groups, rule_slices(rule));
    lab_set_own(rule, config);
    optim->kind = rule->kind;
    optim->momentum = rule->momentum;
    optim->clip = rule->clip;
    if (lab->bare)
        optim->weight_decay = 0;
    if (lab->options)
        TRY(set_options(config, lab->options, INT_MAX));
    return strategy_optim(config, optim, NULL);
}

/* Checks that export is the same on all workers, and gather the same, rounded in mixed precision.
 */
static inline enum sotto_status lab_look(struct worker *w, struct strategy *s, bool mixed,
                                         float x[COUNT])
{
    float all[MOST][COUNT];
    const struct view *stage;
    TRY(s->ops->export(s, x));
    TRY(comm_gather_bytes(w->world, all, x, sizeof all[0]));
    for (int r = 0; r < w->size; r++)
        if (memcmp(all[r], x, sizeof all[0]) != 0)
            return fail(SOTTO_EINVAL, "ranks %d and %d export other parameters", w->rank, r);
    TRY(s->ops->gather(s, &stage));
    float theta[COUNT];
    for (int k = 0; k < STAGES; k++)
        read_floats(((struct shard *)s)->is.dev, stage[k], STAGE, theta + k * STAGE);
    for (int i = 0; i < COUNT; i++) {
        float want = mixed ? bf16_widen(bf16_round(x[i])) : x[i];
        if (theta[i] != want)
            return fail(SOTTO_EINVAL, "rank %d gathers another %d", w->rank, i);
    }
    return SOTTO_OK;
}

/* Returns the group's own parameters, from its workers' parts. */
static inline void lab_note(struct lab *lab, const struct mesh *mesh, const struct strategy *s,
                            int t)
{
    const struct replicate *r = ((const struct shard *)s)->replicate;
    if (r->count == COUNT && mesh->s > 0)
        return;
    float x[COUNT];
    read_floats(r->is.dev, r->x, r->count, x);
    for (struct piece p = {0}; owned_next(r->is.own, (struct range){0, COUNT}, &p);)
        memcpy(&lab->own[t][mesh->r][p.whole], x + p.own, p.count * sizeof *x);
}

static int64_t bytes_sent(const struct mesh *mesh)
{
    return mesh_account_own(mesh).inside + mesh_account_lanes(mesh).inside;
}

/* Makes a round that rank 0 abandons before its first micro-batch, the others after the last. */
static inline enum sotto_status lab_abandon(struct worker *w, struct strategy *s)
{
    static const atomic_int asked = 1;
    struct round round;
    TRY(s->ops->round(s, &(struct plan){.lr = 1, .asked = w->rank ? NULL : &asked}, &round));
    if (!round.abandoned)
        return fail(SOTTO_EINVAL, "rank %d has not abandoned the round", w->rank);
    return SOTTO_OK;
}

static inline int64_t lab_calls(const struct mesh *mesh)
{
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        const struct comm_stats *t = (i ? mesh->lane_replicate : mesh->replicate)->stats;
        n += t[COMM_ALLREDUCE].calls + t[COMM_ALLGATHER].calls;
    }
    return n;
}

static inline enum sotto_status lab_train(struct pupil *p, void *arg)
{
    struct lab *lab = arg;
    struct worker *w = p->worker;
    const struct mesh *mesh = &p->mesh;
    struct strategy *s = p->s;
    float x[COUNT];
    lab_start(x);
    TRY(s->ops->import(s, x));
    for (int i = 0; i < MEMORY_CATEGORIES && w->rank == w->size - 1; i++)
        lab->bytes[i] = p->memory.now[i];
    for (int t = 0; t < lab->steps; t++) {
        struct round round;
        if (lab->abandoned && t == lab->abandoned)
            TRY(lab_abandon(w, s));
        const int64_t before = bytes_sent(mesh);
        struct plan plan = {lab_lr_of(lab, t), lab_lr_of(lab, t + 1), .want_norm = t % 3 == 1,
                            .step = lab->first + t};
        plan.stop = lab->stopper && lab->stopper == w->rank && t > 0;
        TRY(s->ops->round(s, &plan, &round));
        lab->stop[w->rank][t] = round.stop;
        lab->cosine[w->rank][t] = round.agreed ? round.agreed->cosine : 0;
        lab->pairs[w->rank][t] = round.agreed ? round.agreed->pairs : 0;
        if (s->ops->settle && !(lab->ahead && t + 1 < lab->steps))
            TRY(s->ops->settle(s));
        lab->sent[w->rank][t] = bytes_sent(mesh) - before;
        if (lab->blind || (lab->ahead && t + 1 < lab->steps))
            continue;
        if (lab->rule.shard < SHARD_DPU) /* lanes are idle between rounds */
            lab_note(lab, mesh, s, t);
        TRY(lab_look(w, s, lab->precision == PRECISION_MIXED, x));
        if (w->rank == 0)
            memcpy(lab->x[t], x, sizeof x);
    }
    if (w->rank == 0)
        lab->calls = lab_calls(mesh);
    return SOTTO_OK;
}

/* The quadratic with a millisecond of virtual time a micro-batch. */
struct timed {
    struct quadratic q;
    struct worker *worker;
};

static inline enum sotto_status timed_nothing(void *arg)
{
    (void)arg;
    return SOTTO_OK;
}

static inline enum sotto_status timed_begin(struct oracle *o, int slot, int64_t index, int rank,
                                            bool sum)
{
    struct worker *w = ((struct timed *)o)->worker;
    TRY(quadratic_begin(o, slot, index, rank, sum));
    return w->ops->compute(w, timed_nothing, NULL, 1e-3);
}

static const struct oracle_ops timed_ops = {.begin = timed_begin,
                                            .forward = quadratic_forward,
                                            .backward = quadratic_backward,
                                            .result = quadratic_result};

static inline enum sotto_status lab_work(struct worker *w, void *arg)
{
    struct lab *lab = arg;
    struct timed oracle = {.worker = w};
    struct pupil p = {0};
    TRY(lab_configure(lab, &p.config, &p.optim));
    TRY(pupil_open(&p, &oracle.q, w));
    oracle.q.base.ops = &timed_ops;
    oracle.q.base.data = lab->rule.data[w->rank];
    oracle.q.nan_at = lab->nan_at;
    return pupil_train(&p, lab_train, lab);
}

static inline enum sotto_status lab_run(struct lab *lab)
{
    struct engine_config engine = {.workers = lab->rule.workers, .links = lab->links};
    return (lab->threads ? engine_threads : engine_virtual)(&engine, lab_work, lab);
}

static inline void lab_describe(const struct lab *lab, char out[200])
{
    static const char *const replicate[] = {"auto",   "sync", "local", "overlap-local",
                                            "slowmo", "co2",  "diloco"};
    static const char *const shard[] = {"auto", "ddp", "zero1", "fsdp", "dpu", "acco-wp", "acco"};
    const struct rule *r = &lab->rule;
    snprintf(out, 200, "%s x %s, %d groups of %d, %s %g, penalty %d, phi %g, outer %d, prune %g",
             shard[r->shard], replicate[r->replicate], r->groups, rule_slices(r),
             r->kind == OPTIM_SGD ? "sgd" : "adamw", r->momentum, r->penalty, r->phi, r->outer,
             r->prune);
}

/* Checks that every step equals the reference to rounding, and that export shows the bits of groups
 * that agree, and the mean of groups that differ. Returns the largest difference. */
static inline double lab_check(struct lab *lab, double tolerance)
{
    struct reference ref;
    float start[COUNT];
    char what[200];
    double most = 0;
    lab_describe(lab, what);
    lab_start(start);
    enum sotto_status st = lab_run(lab);
    if (st != SOTTO_OK)
        fail_with("%s: %s", what, sotto_error());
    reference_start(&ref, &lab->rule, start);
    for (int t = 0; t < lab->steps; t++) {
        reference_step(&ref, lab_lr_of(lab, t));
        for (int r = 0; r < lab->rule.groups; r++) {
            const float *own = lab->own[t][r];
            for (int i = 0; i < COUNT; i++) {
                most = fmax(most, fabs(own[i] - ref.x[r][i]));
                if (!(fabs(own[i] - ref.x[r][i]) <= tolerance))
                    fail_with("%s, step %d: group %d has x[%d] = %.9g, not %.9g", what, t, r, i,
                              own[i], ref.x[r][i]);
            }
            if (ref.agreed && memcmp(own, lab->x[t], sizeof lab->x[t]) != 0)
                fail_with("%s, step %d: group %d has not the bits that are exported", what, t, r);
        }
        for (int i = 0; i < COUNT; i++)
            if (!(fabs(lab->x[t][i] - ref.mean[i]) <= tolerance))
                fail_with("%s, step %d: x[%d] = %.9g is exported, not %.9g", what, t, i,
                          lab->x[t][i], ref.mean[i]);
    }
    return most;
}

#endif

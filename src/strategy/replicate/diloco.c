/* DiLoCo (Douillard et al. 2024, algorithm 1): H local steps, then a step of an outer optimizer
 * from the parameters at the start of the round, with the groups' mean displacement as gradient.
 *
 * Every worker knows the groups of an exchange without a message: groups beyond the schedule's
 * number sit out, and dropped groups are drawn from a seed. Both enter the collective with weight
 * 0; a dropped group continues from its own parameters, a group that sits out keeps x0.
 *
 * With dtype = bf16 messages are rounded to nearest, ties to even: each group's weighted share of
 * the outer gradient on the way to the sum, and the sum, computed in fp32, on the way back. The
 * rounding errors are not kept for later rounds. A single group rounds its gradient too, so that a
 * step of the outer optimizer does not depend on the groups that take part. */
#include "strategy/method.h"
#include "strategy/replicate/replicate.h"

#include <stdlib.h>

#include "base/rng.h"
#include "strategy/replicate/sparse.h"
#include "strategy/replicate/cosine.h"
#include "strategy/replicate/phases.h"
#include "tensor/ops.h"

enum outer { OUTER_NESTEROV, OUTER_SGD, OUTER_ADAM };
static const char *const outer_names[] = {"nesterov", "sgd", "adam", NULL};

struct diloco_config {
    int64_t H;
    int outer; /* enum outer */
    double outer_lr, outer_momentum;
    double prune, drop;
    int64_t drop_seed;
    int dtype;                  /* enum dtype: fp32 or bf16 */
    char replicas[OPTION_ROOM]; /* "8x1000,4x1000" */
    bool cosine;
    struct phases phases; /* `replicas`, parsed by resolve */
};

#define S struct diloco_config
static const struct option options[] = {
    OPTION_LONG(S, H, "500", 1, 1e15, "steps between exchanges"),
    OPTION_ENUM(S, outer, "nesterov", outer_names, "outer optimizer"),
    OPTION_REAL(S, outer_lr, "0.7", 0, 100, "outer learning rate"),
    OPTION_REAL(S, outer_momentum, "0.9", 0, 1, "outer momentum"),
    OPTION_REAL(S, prune, "0", 0, 1,
                "share of the outer gradient that is not sent: the smallest elements of every row"),
    OPTION_ENUM(S, dtype, "fp32", replicate_dtypes, "type of the outer gradient on the wire"),
    OPTION_REAL(S, drop, "0", 0, 1, "probability that a group misses an exchange"),
    OPTION_LONG(S, drop_seed, "1", 0, 1e15, "seed of the drops"),
    OPTION_TEXT(S, replicas, "",
                "numbers of groups that train and of their rounds, \"8x1000,4x1000\"; empty: all"),
    OPTION_BOOL(S, cosine, "false",
                "measure the cosine between the groups' outer gradients; sends them a second time"),
};
#undef S

static const struct option_only rules[] = {
    {"outer_momentum", "outer", "nesterov, adam"},
};

static const struct diloco_config *diloco_options(const struct replicate *r)
{
    return replicate_options(r);
}

static int64_t every(const void *own)
{
    return ((const struct diloco_config *)own)->H;
}

static enum sotto_status resolve(void *config, const struct strategy_config *strategy)
{
    struct diloco_config *c = config;
    TRY(phases_parse(&c->phases, "diloco.replicas", c->replicas, strategy->groups));
    if (*c->replicas && strategy_elastic(strategy))
        return fail(
            SOTTO_EINVAL,
            "diloco.replicas: groups that sit out need common rounds, which %s does not have",
            strategy->sharding->name);
    if (c->prune >= 1)
        return fail(SOTTO_EINVAL, "diloco.prune = 1 sends nothing");
    return SOTTO_OK;
}

/* True if the bytes of an exchange vary: pruned lists grow in the sum, and drops are drawn. */
static bool varies(const void *config)
{
    const struct diloco_config *c = config;
    return c->prune > 0 || c->drop > 0;
}

static void diloco_dry_run(void *config)
{
    ((struct diloco_config *)config)->phases.n = 0;
}

struct diloco {
    struct replicate base;
    struct buffer x0;    /* theta(t-1), equal in all groups              */
    struct buffer delta; /* the outer gradient                           */
    struct buffer wire;  /* dtype = bf16, prune = 0: delta in bf16       */
    struct optim_config outer_config;
    struct optim outer;
    struct sparse sparse; /* prune > 0 */
    double *share;        /* (groups) weights by the amount of data       */
    int active;           /* groups that train in this outer round        */
    int64_t round;        /* outer rounds done                            */
    int64_t step;         /* inner steps done, for `phases`               */
};

static bool group_is_dropped(const struct diloco *d, int group)
{
    const struct diloco_config *c = diloco_options(&d->base);
    uint64_t draw = rng_at((uint64_t)c->drop_seed, (uint64_t)group, (uint64_t)d->round);
    return (double)(draw >> 11) * 0x1p-53 < c->drop;
}

/* Sets this group's weight and the sum of all weights. The groups of an exchange are those that
 * trained in this outer round, even if a phase ended inside the round, and are not dropped. Returns
 * their number. */
static int choose_participants(struct diloco *d)
{
    struct replicate *r = &d->base;
    int part = 0;
    r->weight = r->weights = 0;
    for (int g = 0; g < d->active; g++) {
        if (group_is_dropped(d, g))
            continue;
        r->weights += d->share[g];
        if (g == r->is.mesh->r)
            r->weight = d->share[g];
        part++;
    }
    return part;
}

static enum sotto_status read_sparse_delta(void *arg)
{
    struct diloco *d = arg;
    struct device *dev = d->base.is.dev;
    if (d->sparse.value)
        dev->ops->read(dev, d->sparse.value, d->delta.view, d->base.count);
    return device_check(dev);
}

static enum sotto_status write_sparse_delta(void *arg)
{
    struct diloco *d = arg;
    struct device *dev = d->base.is.dev;
    if (d->sparse.value)
        dev->ops->write(dev, d->delta.view, d->sparse.value, d->base.count);
    return device_failed(dev);
}

/* delta <- x0 - x */
static enum sotto_status own_gradient(struct diloco *d)
{
    struct replicate *r = &d->base;
    TRY(work_copy(&r->on, d->delta.view, d->x0.view, r->count));
    return work_axpy(&r->on, d->delta.view, -1, r->x, r->count);
}

/* Measures the cosine between the groups' outer gradients, before pruning. Overwrites delta. */
static enum sotto_status measure_cosine(struct diloco *d, struct agreed *out)
{
    struct replicate *r = &d->base;
    if (!diloco_options(r)->cosine || r->is.mesh->n_r == 1)
        return SOTTO_OK;
    TRY(own_gradient(d));
    return cosine_of_groups(r, d->delta.view, r->weight > 0, &out->cosine, &out->pairs);
}

/* delta <- sum over R of the pruned delta */
static enum sotto_status sum_pruned(struct diloco *d)
{
    struct replicate *r = &d->base;
    const double copy = 2. * sizeof(float) * (double)r->count;
    TRY(work_run(&r->on, read_sparse_delta, d, copy));
    TRY(sparse_prune(&d->sparse));
    TRY(sparse_sum(&d->sparse, r->is.across));
    return work_run(&r->on, write_sparse_delta, d, copy);
}

static enum sotto_status sum_rounded(struct diloco *d)
{
    struct replicate *r = &d->base;
    TRY(work_copy(&r->on, d->wire.view, d->delta.view, r->count));
    TRY(comm_allreduce(r->is.across, d->wire.view, d->wire.view, r->count));
    return work_copy(&r->on, d->delta.view, d->wire.view, r->count);
}

/* delta <- mean over R of x0 - x */
static enum sotto_status outer_gradient(struct diloco *d)
{
    struct replicate *r = &d->base;
    TRY(own_gradient(d));
    if (!d->sparse.count && !d->wire.dev)
        return replicate_mean(r, r->is.across, d->delta.view);
    TRY(work_scale(&r->on, d->delta.view, (float)(r->weight / r->weights), r->count));
    return d->sparse.count ? sum_pruned(d) : sum_rounded(d);
}

static enum sotto_status diloco_outer_step(void *arg)
{
    struct diloco *d = arg;
    optim_step(&d->outer, d->x0.view, view_none, d->delta.view, diloco_options(&d->base)->outer_lr,
               1);
    return device_failed(d->base.is.dev);
}

static enum sotto_status exchange_deltas(struct diloco *d)
{
    struct replicate *r = &d->base;
    const int part = choose_participants(d);
    struct agreed alike = {0};
    if (part > 0) { /* 0: all groups are dropped */
        TRY(measure_cosine(d, &alike));
        TRY(outer_gradient(d));
        TRY(work_run(&r->on, diloco_outer_step, d,
                     optim_bytes(&d->outer, r->count, DTYPE_F32, 0, false)));
    }
    if (r->weight > 0 || r->idle)
        TRY(work_copy(&r->on, r->x, d->x0.view, r->count)); /* theta_i <- theta(t) */
    r->diverged = part < d->active && r->is.mesh->n_r > 1;
    d->round++;
    TRY(replicate_publish(r));
    TRY(replicate_agree(r));
    r->outcome.agreed.cosine = alike.cosine;
    r->outcome.agreed.pairs = alike.pairs;
    return SOTTO_OK;
}

/* Sets the groups that train in the current outer round. A mean of the parameters is taken over
 * these groups. */
static void enter_phase(struct diloco *d)
{
    struct replicate *r = &d->base;
    d->active = phases_groups(&diloco_options(r)->phases, d->step - r->steps, r->is.mesh->n_r);
    r->idle = r->is.mesh->r >= d->active;
    r->weight = r->idle ? 0 : 1;
    r->weights = d->active;
}

static enum sotto_status step(struct replicate *r, const struct plan *plan, double scale)
{
    struct diloco *d = (struct diloco *)r;
    if (!r->idle)
        TRY(replicate_local_step(r, plan->lr, scale)); /* InnerOpt              */
    d->step++;
    const bool only = plan->last && d->round == 0; /* a run of fewer than H steps exchanges once */
    if (!replicate_boundary(r, only ? 1 : diloco_options(r)->H))
        return SOTTO_OK;
    TRY(exchange_deltas(d)); /* OuterOpt              */
    enter_phase(d);
    return SOTTO_OK;
}

static void anchor(struct replicate *r)
{
    struct diloco *d = (struct diloco *)r;
    r->is.dev->ops->copy(r->is.dev, d->x0.view, r->x, r->count);
    enter_phase(d);
}

static enum sotto_status visit(struct replicate *r, struct state_visitor *v)
{
    struct diloco *d = (struct diloco *)r;
    TRY(replicate_visit(r, v));
    if (!r->from.same)
        return SOTTO_OK;
    TRY(state_count(v, "outer.round", &d->round, STATE_STEPS));
    TRY(state_count(v, "outer.step", &d->step, STATE_STEPS));
    TRY(state_count(v, "outer.t", &d->outer.t, STATE_STEPS));
    TRY(replicate_visit_vector(r, v, "outer.x0", &d->x0));
    for (int i = 0; i < d->outer.ops->states; i++) {
        char name[32];
        snprintf(name, sizeof name, "outer.%s", d->outer.ops->state_name[i]);
        if (d->outer.state[i].dev)
            TRY(replicate_visit_vector(r, v, name, &d->outer.state[i]));
    }
    enter_phase(d);
    return SOTTO_OK;
}

static void free_diloco(struct replicate *r)
{
    struct diloco *d = (struct diloco *)r;
    buffer_free(&d->x0);
    buffer_free(&d->delta);
    optim_free(&d->outer);
    buffer_free(&d->wire);
    sparse_free(&d->sparse);
    free(d->share);
}

static struct optim_config outer_config(const struct diloco_config *c)
{
    return (struct optim_config){
        .kind = c->outer == OUTER_ADAM ? OPTIM_ADAMW : OPTIM_SGD,
        .momentum = c->outer == OUTER_NESTEROV ? c->outer_momentum : 0,
        .nesterov = c->outer == OUTER_NESTEROV && c->outer_momentum > 0,
        .beta1 = c->outer_momentum,
        .beta2 = 0.95,
        .eps = 0.1, /* outer gradients are tiny: the paper found a smaller eps unstable */
    };
}

/* Gathers the groups' shares of the data, the weights of averages. */
static enum sotto_status gather_shares(struct diloco *d)
{
    struct replicate *r = &d->base;
    const int n = r->is.mesh->n_r;
    double mine = r->is.data > 0 ? r->is.data : 1;
    d->share = calloc((size_t)n, sizeof *d->share);
    if (!d->share)
        return fail(SOTTO_ENOMEM, "no memory for %d groups", n);
    TRY(comm_sum(r->is.within, &mine, 1));
    return comm_gather_bytes(r->is.across, d->share, &mine, sizeof mine);
}

static enum sotto_status init(struct replicate *r)
{
    struct diloco *d = (struct diloco *)r;
    d->outer_config = outer_config(diloco_options(r));
    TRY(replicate_buffer(r, &d->x0, MEMORY_OUTER));
    TRY(replicate_buffer(r, &d->delta, MEMORY_COMMUNICATION));
    TRY(optim_init(&d->outer, &d->outer_config, r->is.dev, r->is.table, r->is.own, MEMORY_OUTER));
    TRY(gather_shares(d));
    const enum dtype type = (enum dtype)diloco_options(r)->dtype;
    if (diloco_options(r)->prune > 0)
        TRY(sparse_init(&d->sparse, &r->on, r->is.table, r->is.own, diloco_options(r)->prune,
                        type));
    else if (type != DTYPE_F32)
        TRY(buffer_init(&d->wire, r->is.dev, type, r->count, MEMORY_COMMUNICATION));
    enter_phase(d);
    return SOTTO_OK;
}

static const struct replicate_ops ops = {
    .bytes = sizeof(struct diloco),
    .init = init,
    .anchor = anchor,
    .step = step,
    .visit = visit,
    .free = free_diloco,
};

const struct method method_diloco = {
    .name = "diloco",
    .axis = METHOD_REPLICATE,
    .about =
        "DiLoCo: H local steps, then an outer optimizer steps with the groups' mean displacement",
    METHOD_OPTIONS(struct diloco_config, options),
    METHOD_ONLY(rules),
    .resolve = resolve,
    .dry_run = diloco_dry_run,
    .varies = varies,
    .every = every,
    .every_key = "H",
    .meets_at_end = true,
    .replicate = &ops,
};

/* What a worker of cyclic data parallelism holds: of the stages that it computes with one version
 * or two, of those that it updates the truth and the optimizer's state.
 *
 * In fp32 the newest version is the truth itself where that is; the one before it is copied aside
 * when a step moves it. In mixed precision both are bf16, and a step writes the one into the
 * other's place. */
#include "strategy/shard/cdp.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor/ops.h"

/* Where checkpoints and evaluation find a stage; it is the same behind every step. */
static enum sotto_status own_homes(struct owned *out, const struct table *table,
                                   enum cdp_placement placement, int index, int of)
{
    const struct cdp_schedule s = {.placement = placement,
                                   .n = placement == CDP_SINGLE ? table->n_stage
                                                                : cdp_stages(placement, of),
                                   .steps = -1,
                                   .keep = true};
    out->sole = true;
    for (int k = 0; k < table->n_stage; k++)
        if (cdp_home(&s, 0, k) == index)
            TRY(owned_add(out, table->stage_start[k], table->stage_start[k + 1]));
    return SOTTO_OK;
}

static enum sotto_status own_single(struct owned *out, const struct table *table, int i, int of)
{
    return own_homes(out, table, CDP_SINGLE, i, of);
}

static enum sotto_status own_dp(struct owned *out, const struct table *table, int i, int of)
{
    return own_homes(out, table, CDP_DP, i, of);
}

static enum sotto_status own_pp(struct owned *out, const struct table *table, int i, int of)
{
    return own_homes(out, table, CDP_PP, i, of);
}

static enum sotto_status own_mp(struct owned *out, const struct table *table, int i, int of)
{
    return own_homes(out, table, CDP_MP, i, of);
}

static enum sotto_status own_zero(struct owned *out, const struct table *table, int i, int of)
{
    return own_homes(out, table, CDP_ZERO, i, of);
}

owned_rule *cdp_rule(enum cdp_placement placement)
{
    static owned_rule *const rules[] = {[CDP_DP] = own_dp,
                                        [CDP_SINGLE] = own_single,
                                        [CDP_PP] = own_pp,
                                        [CDP_MP] = own_mp,
                                        [CDP_ZERO] = own_zero};
    return rules[placement];
}

/* Whether a device computes with a stage, and whether it has two versions of it at times. */
static void look_ahead(const struct cdp *c, int k, struct cdp_stage *st)
{
    const struct cdp_schedule *s = &c->is;
    const int64_t end = cdp_end(s, 2);
    for (int64_t time = 0; time < end; time++) {
        int64_t held[2];
        st->two |= cdp_holds(s, c->device, k, time, held) == 2;
    }
    for (int i = 0; i < s->n; i++)
        for (int64_t t = 0; t < s->n; t++) /* mp's devices take turns */
            st->here |= cdp_device(s, t, i, k) == c->device;
    st->here |= st->owned;
}

static enum sotto_status open_stage(struct cdp *c, int k)
{
    struct shard *s = &c->shard;
    struct device *dev = s->is.dev;
    const struct table *table = s->is.oracle->table;
    const enum dtype type = strategy_type(s->is.config);
    struct cdp_stage *st = &c->stage[k];
    const struct slice own = shard_slice(s, k);
    st->count = table_stage_count(table, k);
    st->owned = own.count > 0;
    for (int j = 0; j < c->is.n; j++)
        st->shared |= j != k && c->needs[j * c->is.n + k];
    look_ahead(c, k, st);
    if (!st->here)
        return SOTTO_OK;
    if (!st->owned || type != DTYPE_F32)
        TRY(buffer_init(&st->cur, dev, type, st->count, MEMORY_PARAMETERS));
    if (st->two)
        TRY(buffer_init(&st->old, dev, type, st->count, MEMORY_PARAMETERS));
    TRY(buffer_init(&st->sum, dev, strategy_grad_type(s->is.config), st->count, MEMORY_GRADIENTS));
    st->theta[0] = st->cur.dev ? st->cur.view : view_at(s->x.view, own.in_own);
    st->theta[1] = st->old.view;
    if (c->is.together && c->is.rule == CDP_V1 && st->owned)
        TRY(buffer_init(&st->wait, dev, st->sum.view.type, st->count, MEMORY_GRADIENTS));
    st->g[0] = st->sum.view;
    st->g[1] = st->wait.dev ? st->wait.view : st->sum.view;
    return SOTTO_OK;
}

static struct view part_theta(struct shard *s, const struct slice *at)
{
    return ((struct cdp *)s)->stage[at->stage].theta[0];
}

static struct view part_g(struct shard *s, const struct slice *at)
{
    return ((struct cdp *)s)->stage[at->stage].g[0];
}

enum sotto_status cdp_store_open(struct cdp *c)
{
    struct shard *s = &c->shard;
    const int n = c->is.n;
    const bool copied = strategy_type(s->is.config) != DTYPE_F32;
    c->stage = calloc((size_t)n, sizeof *c->stage);
    if (!c->stage)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    TRY(buffer_init(&s->x, s->is.dev, DTYPE_F32, s->own.count,
                    copied ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS));
    for (int k = 0; k < n; k++)
        TRY(open_stage(c, k));
    if (c->is.rule == CDP_SYNC || c->is.placement == CDP_MP)
        if (c->devices > 1)
            TRY(buffer_init(&c->room, s->is.dev, strategy_grad_type(s->is.config), shard_largest(s),
                            MEMORY_COMMUNICATION));
    TRY(shard_replicate(s, NULL, copied ? part_theta : NULL, part_g));
    for (int i = 0; i < s->n_slice; i++)
        c->stage[s->slice[i].stage].part = i;
    return SOTTO_OK;
}

void cdp_store_free(struct cdp *c)
{
    for (int k = 0; c->stage && k < c->is.n; k++) {
        struct cdp_stage *st = &c->stage[k];
        buffer_free(&st->cur);
        buffer_free(&st->old);
        buffer_free(&st->sum);
        buffer_free(&st->wait);
    }
    buffer_free(&c->room);
    free(c->stage);
}

struct view cdp_theta(struct cdp *c, int k, int64_t version)
{
    const struct cdp_stage *st = &c->stage[k];
    assert(version == st->version || (st->two && version == st->version - 1));
    return st->theta[version != st->version];
}

/* The newest version that a device holds when a schedule begins with step t. */
static bool begins_with(const struct cdp *c, int device, int k, int64_t version)
{
    int64_t held[2];
    const int n = cdp_holds(&c->is, device, k, 0, held);
    for (int i = 0; i < n; i++)
        if (held[i] == version)
            return true;
    return false;
}

/* A schedule begins with step t. */
static void number(struct cdp *c)
{
    c->is.first = c->t;
    c->time = 0;
    for (int k = 0; k < c->is.n; k++)
        c->stage[k].version =
            c->stage[k].two || begins_with(c, c->device, k, c->t) ? c->t : c->t - 1;
}

/* One version of a stage, from the device that has it to those that begin with it. */
static enum sotto_status spread(struct cdp *c, int k, int64_t version, int from)
{
    struct comm *group = c->shard.is.mesh->shard;
    struct cdp_stage *st = &c->stage[k];
    for (int d = 0; d < c->devices; d++) {
        if (d == from || !begins_with(c, d, k, version))
            continue;
        if (c->device == from)
            TRY(comm_send(group, cdp_theta(c, k, version), st->count, d));
        if (c->device == d)
            TRY(comm_recv(group, cdp_theta(c, k, version), st->count, from));
    }
    return SOTTO_OK;
}

enum sotto_status cdp_spread(struct cdp *c)
{
    number(c);
    if (c->spread)
        return SOTTO_OK;
    for (int k = 0; k < c->is.n; k++) {
        const int keeper = cdp_keeper(&c->is, c->t - 1, k);
        TRY(spread(c, k, c->t, cdp_home(&c->is, c->t - 1, k)));
        if (c->t > 0 && keeper >= 0)
            TRY(spread(c, k, c->t - 1, keeper));
    }
    c->spread = true;
    return SOTTO_OK;
}

/* From the host, rounded where it is computed with rounded. */
static enum sotto_status write_stage(struct cdp *c, int k, const float *from, struct buffer *wide)
{
    struct device *dev = c->shard.is.dev;
    struct cdp_stage *st = &c->stage[k];
    if (!wide->dev)
        TRY(buffer_init(wide, dev, DTYPE_F32, shard_largest(&c->shard), MEMORY_SCRATCH));
    dev->ops->write(dev, wide->view, from, st->count);
    if (st->cur.dev)
        dev->ops->copy(dev, st->theta[0], wide->view, st->count);
    if (st->two)
        dev->ops->copy(dev, st->theta[1], wide->view, st->count); /* theta_{-1} = theta_0 */
    return device_check(dev);
}

enum sotto_status cdp_import(struct strategy *strategy, const float *flat)
{
    struct cdp *c = (struct cdp *)strategy;
    const struct table *table = c->shard.is.oracle->table;
    struct buffer wide = {0};
    enum sotto_status st = cdp_settle(c);
    for (int k = 0; k < c->is.n && st == SOTTO_OK; k++)
        if (c->stage[k].here)
            st = write_stage(c, k, flat + table->stage_start[k], &wide);
    buffer_free(&wide);
    TRY(st);
    c->spread = true;
    return shard_import(strategy, flat);
}

/* theta_{t-1}, by who has it; a checkpoint of another method has none, and theta_t stands for it.
 */
static enum sotto_status visit_previous(struct cdp *c, struct state_visitor *v)
{
    const struct shard *s = &c->shard;
    const struct table *table = s->is.oracle->table;
    const enum dtype type = strategy_type(s->is.config);
    const bool loads = state_loading(v);
    if (loads && !state_has(v, "previous."))
        return SOTTO_OK;
    TRY(state_enter(v, "previous"));
    for (int k = 0; k < c->is.n && c->t > 0; k++) {
        const bool keeps = cdp_keeper(&c->is, c->t - 1, k) == c->device;
        for (int i = 0; i < table->n && keeps; i++) {
            const struct table_entry *e = &table->entry[i];
            const bool fits = !loads || state_stored_type(v, e->name, type) == type;
            if (e->stage == k && fits) /* of another precision: theta_t stands for it, too */
                TRY(state_slice(v, e->name, MEMORY_PARAMETERS, s->is.dev,
                                view_at(cdp_theta(c, k, c->t - 1), e->offset), e->count, 0,
                                e->count));
        }
    }
    state_leave(v);
    return loads ? state_ignore(v, "previous.") : SOTTO_OK;
}

/* The place in the data is a number of micro-batches, as other methods have it; whose share they
 * were is nobody's matter here. */
enum sotto_status cdp_visit(struct strategy *strategy, struct state_visitor *v)
{
    struct cdp *c = (struct cdp *)strategy;
    struct shard *s = &c->shard;
    const bool loads = state_loading(v);
    int64_t all = c->t * c->is.n;
    if (loads)
        TRY(cdp_settle(c));
    TRY(state_count(v, "microbatches", &all, STATE_STEPS * STATE_WORKERS));
    TRY(replicate_show(s->replicate, v));
    if (loads) {
        c->t = (all + c->is.n - 1) / c->is.n;
        number(c);
        c->spread = false;
        TRY(state_ignore(v, "place."));
    }
    TRY(visit_previous(c, v));
    return device_check(s->is.dev);
}

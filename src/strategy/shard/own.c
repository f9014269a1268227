/* The part of the parameters that a worker owns, and the whole of all workers' parts. */
#include "strategy/shard/shard.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor/ops.h"

/* Lists the own part by stages: each slice is within one stage. */
static enum sotto_status list_slices(struct shard *s)
{
    const struct table *table = s->is.oracle->table;
    const size_t most = (size_t)(s->own.n + table->n_stage);
    s->slice = calloc(most, sizeof *s->slice);
    s->own_g = calloc(most, sizeof *s->own_g);
    if (!s->slice || !s->own_g)
        return fail(SOTTO_ENOMEM, "no memory for %zu slices", most);
    for (int k = 0; k < table->n_stage; k++)
        for (struct piece p = {0}; owned_next(&s->own, table_stage_range(table, k), &p);)
            s->slice[s->n_slice++] =
                (struct slice){k, p.count, p.whole - table->stage_start[k], p.own};
    return SOTTO_OK;
}

enum sotto_status shard_list_owned(struct shard *s, owned_rule *rule)
{
    const struct table *table = s->is.oracle->table;
    const int n = s->is.mesh->n_s;
    s->rule = rule;
    assert(s->base.ops->owns_all == (rule == owned_all));
    TRY(rule(&s->own, table, s->is.mesh->s, n));
    TRY(list_slices(s));
    if (rule == owned_slices || rule == owned_all || n == 1)
        return SOTTO_OK;
    s->each = calloc((size_t)n, sizeof *s->each);
    if (!s->each)
        return fail(SOTTO_ENOMEM, "no memory for the parts of %d workers", n);
    for (int i = 0; i < n; i++)
        TRY(rule(&s->each[i], table, i, n));
    return SOTTO_OK;
}

bool shard_alone(const struct shard *s)
{
    const struct mesh *mesh = s->is.mesh;
    return (s->replicate->ops->in_step ? mesh->worker->size : mesh->n_s) == 1;
}

struct slice shard_slice(const struct shard *s, int k)
{
    const struct table *table = s->is.oracle->table;
    if (s->rule == owned_slices) { /* fast path: 1,000 simulated workers search no lists */
        const size_t of = (size_t)s->is.mesh->n_s, count = table_stage_count(table, k) / of;
        return (struct slice){k, count, (size_t)s->is.mesh->s * count, table->stage_start[k] / of};
    }
    struct piece p = {0};
    if (!owned_next(&s->own, table_stage_range(table, k), &p))
        return (struct slice){.stage = k};
    return (struct slice){k, p.count, p.whole - table->stage_start[k], p.own};
}

struct view shard_theta_at(struct shard *s, const struct slice *at)
{
    return view_at(s->theta_stage[at->stage], at->in_stage);
}

struct view shard_g_at(struct shard *s, const struct slice *at)
{
    return view_at(s->g_stage[at->stage], at->in_stage);
}

const struct vector_pair *shard_own_g(struct shard *s)
{
    for (int i = 0; i < s->n_slice; i++)
        s->own_g[i] =
            (struct vector_pair){.x = s->replicate->is.part[i].g, .count = s->slice[i].count};
    return s->own_g;
}

enum sotto_status shard_replicate(struct shard *s, struct lane *lane, shard_place *theta,
                                  shard_place *g)
{
    const struct mesh *mesh = s->is.mesh;
    struct part *part = calloc((size_t)s->n_slice + 1, sizeof *part);
    if (!part)
        return fail(SOTTO_ENOMEM, "no memory for %d parts", s->n_slice);
    for (int i = 0; i < s->n_slice; i++) {
        const struct slice *at = &s->slice[i];
        part[i] = (struct part){.begin = at->in_own,
                                .end = at->in_own + at->count,
                                .x = view_at(s->x.view, at->in_own),
                                .theta = theta ? theta(s, at) : view_none,
                                .copied = theta,
                                .g = g(s, at)};
    }
    struct replicate_setup setup = {
        .config = s->is.config,
        .optim = s->is.optim,
        .before = s->is.before,
        .table = s->is.oracle->table,
        .dev = lane ? lane->dev : s->is.dev,
        .mesh = s->is.mesh,
        .across = lane ? mesh->lane_replicate : mesh->replicate,
        .within = lane ? mesh->lane_shard : mesh->shard,
        .data = s->is.oracle->data,
        .async_setup = s->is.async,
        .async = &s->base.async,
        .part = part,
        .n_part = s->n_slice,
        .own = &s->own,
        .x = s->x.view,
        .later = s->later && mesh->n_r > 1,
    };
    enum sotto_status st = replicate_open(&s->replicate, &setup);
    free(part);
    return st;
}

/* Broadcasts every worker's pieces of stage k, one after the other, as they are no equal slices. */
static enum sotto_status send_pieces(struct shard *s, struct comm *within, int k, struct view stage)
{
    const struct table *table = s->is.oracle->table;
    const struct range all = table_stage_range(table, k);
    for (int i = 0; i < within->size; i++)
        for (struct piece p = {0}; owned_next(&s->each[i], all, &p);)
            TRY(comm_broadcast(within, view_at(stage, p.whole - table->stage_start[k]), p.count,
                               i));
    return SOTTO_OK;
}

enum sotto_status shard_complete(struct shard *s, struct comm *within, int k, struct view stage)
{
    if (s->each)
        return send_pieces(s, within, k, stage);
    if (s->rule != owned_slices)
        return SOTTO_OK;
    return comm_allgather(within, stage, view_at(stage, shard_slice(s, k).in_stage),
                          table_stage_count(s->is.oracle->table, k));
}

enum sotto_status shard_complete_theta(struct shard *s)
{
    for (int k = 0; k < s->is.oracle->table->n_stage; k++)
        TRY(shard_complete(s, s->is.mesh->shard, k, s->theta_stage[k]));
    return SOTTO_OK;
}

/* Ends the last step for stages up to `last`; all workers take the stages in order. */
static enum sotto_status ready_up_to(struct shard *s, int last)
{
    for (int k = s->ready; k <= last; k++) {
        TRY(replicate_ready(s->replicate, k));
        if (s->completes)
            TRY(shard_complete(s, s->is.mesh->shard, k, s->theta_stage[k]));
        s->ready = k + 1;
    }
    return SOTTO_OK;
}

enum sotto_status shard_ready(struct shard *s, int k)
{
    return ready_up_to(s, s->reads[k]);
}

enum sotto_status shard_settle(struct strategy *strategy)
{
    struct shard *s = (struct shard *)strategy;
    return ready_up_to(s, s->is.oracle->table->n_stage - 1);
}

/* Returns the own part of the real parameters: x, or the groups' mean of x. */
static enum sotto_status real_slices(struct shard *s, struct view *out)
{
    struct replicate *r = s->replicate;
    struct device *dev = s->is.dev;
    *out = r->x;
    if (!r->diverged)
        return SOTTO_OK;
    if (!s->mean.dev)
        TRY(buffer_init(&s->mean, dev, DTYPE_F32, r->count, MEMORY_SCRATCH));
    *out = s->mean.view;
    if (r->ops->truth)
        return r->ops->truth(r, s->is.mesh->replicate, *out);
    dev->ops->copy(dev, *out, r->x, r->count);
    return replicate_mean(r, s->is.mesh->replicate, *out);
}

enum sotto_status shard_export(struct strategy *strategy, float *flat)
{
    struct shard *s = (struct shard *)strategy;
    const struct table *table = s->is.oracle->table;
    struct device *dev = s->is.dev;
    struct view x;
    float *scratch = NULL; /* for a stage that other workers export */
    TRY(shard_settle(strategy));
    enum sotto_status st = real_slices(s, &x);
    for (int k = 0, i = 0; k < table->n_stage && st == SOTTO_OK; k++) {
        size_t count = table_stage_count(table, k);
        float *stage =
            flat ? flat + table->stage_start[k] : realloc(scratch, count * sizeof *scratch);
        if (!stage) {
            st = fail(SOTTO_ENOMEM, "no memory for a stage of %zu parameters", count);
            break;
        }
        if (!flat)
            scratch = stage;
        for (; i < s->n_slice && s->slice[i].stage == k; i++)
            dev->ops->read(dev, stage + s->slice[i].in_stage, view_at(x, s->slice[i].in_own),
                           s->slice[i].count);
        st = device_check(dev);
        if (st == SOTTO_OK)
            st = shard_complete(s, s->is.mesh->shard, k, view_of(stage, DTYPE_F32));
    }
    free(scratch);
    return st;
}

enum sotto_status shard_gather(struct strategy *strategy, const struct view **theta)
{
    struct shard *s = (struct shard *)strategy;
    const struct table *table = s->is.oracle->table;
    struct device *dev = s->is.dev;
    const enum dtype type = strategy_type(s->is.config);
    struct view x;
    TRY(shard_settle(strategy));
    TRY(real_slices(s, &x));
    if (!s->whole.dev)
        TRY(buffer_init(&s->whole, dev, type, table_count(table), MEMORY_SCRATCH));
    for (int k = 0, i = 0; k < table->n_stage; k++) {
        struct view stage = view_at(s->whole.view, table->stage_start[k]);
        for (; i < s->n_slice && s->slice[i].stage == k; i++)
            dev->ops->copy(dev, view_at(stage, s->slice[i].in_stage),
                           view_at(x, s->slice[i].in_own), s->slice[i].count);
        TRY(shard_complete(s, s->is.mesh->shard, k, stage));
        s->whole_stage[k] = stage;
    }
    *theta = s->whole_stage;
    return device_check(dev);
}

enum sotto_status shard_theta(struct strategy *strategy, const struct view **theta)
{
    const struct shard *s = (const struct shard *)strategy;
    TRY(shard_settle(strategy));
    if (s->replicate->diverged)
        return shard_gather(strategy, theta);
    *theta = s->theta_stage;
    return SOTTO_OK;
}

enum sotto_status shard_import(struct strategy *strategy, const float *flat)
{
    struct shard *s = (struct shard *)strategy;
    struct device *dev = s->is.dev;
    TRY(shard_settle(strategy)); /* other workers wait for an exchange in flight */
    for (int i = 0; i < s->own.n; i++) {
        const struct owned_range *r = &s->own.range[i];
        dev->ops->write(dev, view_at(s->replicate->x, r->at), flat + r->begin, r->end - r->begin);
    }
    s->carried = false;
    TRY(device_check(dev)); /* the replicate method may have another device */
    replicate_anchor(s->replicate);
    TRY(replicate_publish(s->replicate));
    return device_check(s->replicate->is.dev);
}

#include "strategy/overlap/overlap.h"

#include <assert.h>
#include <stdlib.h>

#include "strategy/async/async.h"
#include "strategy/history.h"
#include "strategy/method.h"
#include "tensor/ops.h"

const struct option overlap_options[] = {OVERLAP_REPLAY};

void overlap_dry_run(void *own)
{
    ((struct overlap_config *)own)->replay[0] = '\0';
}

enum sotto_status overlap_resolve(void *own, const struct strategy_config *config)
{
    const char *path = ((const struct overlap_config *)own)->replay;
    struct history h;
    if (!*path)
        return SOTTO_OK;
    TRY(history_read(&h, path, 0, config->workers, strategy_async(config)));
    history_free(&h);
    return SOTTO_OK;
}

bool overlap_timed(const void *own)
{
    return !*((const struct overlap_config *)own)->replay;
}

/* Returns the vector that gradients are added to. */
static const struct buffer *gradient_sum(const struct overlap *o)
{
    return o->sum.dev ? &o->sum : &o->room[o->g];
}

/* Sets the stages' views of the rooms in their roles, for computing. */
static void assign_rooms(struct overlap *o)
{
    struct shard *s = &o->shard;
    const struct table *table = s->is.oracle->table;
    table_stages(table, o->room[o->theta].view, s->theta_stage);
    table_stages(table, gradient_sum(o)->view, s->g_stage);
}

static struct view wire_stage(const struct overlap *o, int k)
{
    return view_at(o->room[o->wire].view, o->shard.is.oracle->table->stage_start[k]);
}

static struct view wire_at(struct shard *s, const struct slice *at)
{
    return view_at(wire_stage((struct overlap *)s, at->stage), at->in_stage);
}

/* Points the own parts to the lane's room, where gradients turn into parameters. */
static void assign_lane_parts(struct overlap *o)
{
    struct replicate *r = o->shard.replicate;
    for (int i = 0; i < r->is.n_part; i++)
        r->is.part[i].g = r->is.part[i].theta = wire_at(&o->shard, &o->shard.slice[i]);
}

enum sotto_status overlap_begin(struct overlap *o, const struct plan *plan, bool ahead)
{
    struct shard *s = &o->shard;
    const bool carried = s->carried;
    o->plan = *plan;
    o->round = (struct round){.grad_norm = -1};
    assign_rooms(o);
    TRY(shard_begin(s, plan, gradient_sum(o)));
    if (overlap_idle(o))
        s->carried = carried; /* until the group computes again */
    else if (ahead && !carried)
        TRY(shard_gradient(s, s->next++, NULL));
    return SOTTO_OK;
}

bool overlap_idle(const struct overlap *o)
{
    return o->shard.replicate->idle;
}

bool overlap_pulled(const struct overlap *o)
{
    return o->shard.base.async && async_last_round(o->shard.base.async)->pulled;
}

/* Copies the gradient to the lane's room, rounded to bf16 if the sum is fp32. */
static enum sotto_status copy_to_wire(struct overlap *o)
{
    const struct buffer *g = gradient_sum(o);
    assert(!o->shard.empty);
    return work_copy(&o->shard.on, o->room[o->wire].view, g->view, g->count);
}

enum sotto_status overlap_send_copy(struct overlap *o)
{
    TRY(copy_to_wire(o));
    o->sent = o->shard.counts;
    assign_lane_parts(o);
    return SOTTO_OK;
}

/* The room that was with the lane is free: it receives the next gradients, or a copy of the sum. */
enum sotto_status overlap_send(struct overlap *o)
{
    struct shard *s = &o->shard;
    const int idle = o->wire;
    assert(!s->empty);
    if (o->sum.dev) {
        TRY(copy_to_wire(o));
    } else {
        o->wire = o->g;
        o->g = idle;
    }
    o->sent = s->counts;
    s->counts = (struct counts){0};
    s->empty = gradient_sum(o);
    assign_rooms(o);
    assign_lane_parts(o);
    return SOTTO_OK;
}

void overlap_take(struct overlap *o)
{
    int idle = o->theta;
    o->theta = o->wire;
    o->wire = idle;
    assign_rooms(o);
}

static const char *replay_path(const struct shard *s)
{
    const struct overlap_config *own = method_own(s->is.config, s->is.config->sharding);
    return own->replay;
}

enum sotto_status overlap_compute(struct overlap *o, lane_job *job)
{
    struct shard *s = &o->shard;
    struct lane *lane = s->is.mesh->lane;
    int32_t n = 0, least = s->is.config->accumulate;
    bool done = false;
    if (o->replay && o->history->n >= o->replay->n)
        return fail(SOTTO_EINVAL, "%s.replay = %s has no counts for further rounds",
                    s->is.config->sharding->name, replay_path(s));
    if (o->replay)
        least = o->replay->count[o->history->n];
    TRY(device_failed(s->is.dev));
    TRY(lane_start(lane, job, o));
    while (!done) {
        TRY(shard_gradient(s, s->next++, NULL)); /* at least `least`, then until the lane is done */
        if (++n >= least && o->replay)
            done = true;
        else if (n >= least)
            TRY(lane_done(lane, &done));
    }
    TRY(history_add(o->history, n));
    return lane_wait(lane);
}

enum sotto_status overlap_end(struct overlap *o, struct round *out)
{
    o->shard.carried = true;
    shard_fill_round(&o->shard, &o->sent, &o->round);
    *out = o->round;
    return device_check(o->shard.is.dev);
}

enum sotto_status overlap_reduce(struct overlap *o, bool want_norm, double *scale)
{
    struct shard *s = &o->shard;
    const struct table *table = s->is.oracle->table;
    const struct mesh *mesh = s->is.mesh;
    const struct work on = work_in(s->is.mesh, mesh->lane);
    TRY(counts_sum(s, &o->sent)); /* N = sum_i N_i */
    shard_pass_counts(s, &o->sent);
    *scale = shard_scale(s, &o->sent);
    for (int k = 0; k < table->n_stage; k++) {
        const struct slice at = shard_slice(s, k);
        struct view g = wire_stage(o, k), mine = wire_at(s, &at);
        TRY(comm_reduce_scatter(mesh->lane_shard, mine, g, table_stage_count(table, k)));
        TRY(replicate_sum(s->replicate, mesh->lane_replicate, mine, at.count));
    }
    if (s->is.optim->clip <= 0 && !want_norm)
        return SOTTO_OK;
    return shard_clip(s, &on, shard_own_g(s), s->n_slice, mesh->lane_shard, &o->round, scale);
}

/* Steps without a new gradient; the gradient computed before waits. */
static enum sotto_status sit_out_job(void *arg)
{
    struct overlap *o = arg;
    shard_pass_counts(&o->shard, &o->sent);
    TRY(replicate_step(o->shard.replicate, &o->plan, 0));
    return overlap_pulled(o) ? overlap_gather(o) : SOTTO_OK;
}

enum sotto_status overlap_sit_out(struct overlap *o, struct round *out)
{
    struct shard *s = &o->shard;
    struct lane *lane = s->is.mesh->lane;
    o->sent = (struct counts){.workers = 1, .seconds = o->plan.seconds};
    assign_lane_parts(o);
    TRY(device_failed(s->is.dev));
    TRY(lane_start(lane, sit_out_job, o));
    TRY(lane_wait(lane));
    if (overlap_pulled(o))
        overlap_take(o);
    shard_fill_round(s, &o->sent, &o->round);
    *out = o->round;
    return device_check(s->is.dev);
}

static enum sotto_status gather_wire(struct overlap *o, struct comm *within)
{
    for (int k = 0; k < o->shard.is.oracle->table->n_stage; k++)
        TRY(shard_complete(&o->shard, within, k, wire_stage(o, k)));
    return SOTTO_OK;
}

enum sotto_status overlap_gather(struct overlap *o)
{
    return gather_wire(o, o->shard.is.mesh->lane_shard);
}

/* Makes the parameters for computing from the own slices of x. */
static enum sotto_status publish_theta(struct overlap *o)
{
    assign_lane_parts(o);
    TRY(replicate_publish(o->shard.replicate)); /* on the lane's device */
    TRY(device_check(o->shard.replicate->is.dev));
    TRY(gather_wire(o, o->shard.is.mesh->shard));
    overlap_take(o);
    return SOTTO_OK;
}

enum sotto_status overlap_import(struct strategy *s, const float *flat)
{
    struct overlap *o = (struct overlap *)s;
    TRY(shard_import(s, flat));
    return publish_theta(o);
}

/* Returns the number of counts to save, the same on all workers: rounds may differ between groups,
 * and each adds at most two counts. */
static int64_t history_to_save(const struct overlap *o, const struct state_visitor *v)
{
    const struct async *a = o->shard.base.async;
    const int64_t n = o->history->n, most = a ? 2 * async_last_round(a)->most : 0;
    return state_hashing(v) || n > most ? n : most;
}

static enum sotto_status visit_history(struct overlap *o, struct state_visitor *v)
{
    const struct worker *w = o->shard.is.mesh->worker;
    struct history *h = o->history;
    int64_t n = h->n;
    if (state_loading(v) && state_owners(v, "history", "n") != w->size)
        return state_ignore(v, "history."); /* counts of another number of workers are of no use */
    TRY(state_enter_own(v, "history", w->rank, w->size));
    TRY(state_count(v, "n", &n, INT64_MAX / (int64_t)sizeof *h->count));
    const size_t bytes = state_loading(v) ? state_stored(v, "counts")
                                          : (size_t)history_to_save(o, v) * sizeof *h->count;
    if ((size_t)n * sizeof *h->count > bytes || bytes % sizeof *h->count)
        return fail(SOTTO_EFORMAT, "a history of %lld counts in %zu bytes", (long long)n, bytes);
    h->n = state_loading(v) ? 0 : h->n;
    TRY(history_reserve(h, (int64_t)(bytes / sizeof *h->count)));
    TRY(state_bytes(v, "counts", h->count, bytes));
    h->n = n;
    state_leave(v);
    return state_loading(v) ? state_ignore(v, "history.") : SOTTO_OK;
}

enum sotto_status overlap_visit(struct strategy *strategy, struct state_visitor *v)
{
    struct overlap *o = (struct overlap *)strategy;
    TRY(shard_visit(&o->shard, v));
    if (state_loading(v))
        TRY(publish_theta(o));
    TRY(shard_visit_pending(&o->shard, v, gradient_sum(o)->view));
    return visit_history(o, v);
}

const int32_t *overlap_history(struct strategy *s, int64_t *count)
{
    const struct history *h = ((struct overlap *)s)->history;
    *count = h->n;
    return h->count;
}

enum sotto_status overlap_discard(struct strategy *strategy)
{
    struct overlap *o = (struct overlap *)strategy;
    struct shard *s = &o->shard;
    const struct buffer *g = gradient_sum(o);
    s->is.dev->ops->fill(s->is.dev, g->view, g->count, 0);
    s->empty = NULL;
    s->counts = (struct counts){0};
    s->carried = true;
    return device_check(s->is.dev);
}

static enum sotto_status open_history(struct overlap *o)
{
    const struct worker *w = o->shard.is.mesh->worker;
    const char *path = replay_path(&o->shard);
    o->history = calloc(1, sizeof *o->history);
    if (!o->history)
        return fail(SOTTO_ENOMEM, "no memory for the history");
    if (!*path)
        return SOTTO_OK;
    o->replay = calloc(1, sizeof *o->replay);
    if (!o->replay)
        return fail(SOTTO_ENOMEM, "no memory for the history");
    return history_read(o->replay, path, w->rank, w->size, strategy_async(o->shard.is.config));
}

enum sotto_status overlap_init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct overlap *o = (struct overlap *)strategy;
    const struct table *table = setup->oracle->table;
    struct device *dev = setup->dev;
    const enum dtype type = strategy_type(setup->config);
    static const enum memory_category tag[3] = {MEMORY_PARAMETERS, MEMORY_GRADIENTS,
                                                MEMORY_COMMUNICATION};
    TRY(shard_init(&o->shard, setup, owned_slices));
    o->theta = 0;
    o->g = 1;
    o->wire = 2;
    const bool separate = strategy_grad_type(setup->config) != type;
    for (int i = 0; i < 3; i++)
        if (i != o->g || !separate)
            TRY(buffer_init(&o->room[i], dev, type, table_count(table), tag[i]));
    if (separate)
        TRY(buffer_init(&o->sum, dev, DTYPE_F32, table_count(table), MEMORY_GRADIENTS));
    TRY(buffer_init(&o->shard.x, dev, DTYPE_F32, o->shard.own.count, MEMORY_OPTIMIZER));
    assign_rooms(o);
    TRY(open_history(o));
    return shard_replicate(&o->shard, setup->mesh->lane, wire_at, wire_at);
}

void overlap_free(struct strategy *s)
{
    struct overlap *o = (struct overlap *)s;
    if (o->shard.is.mesh)
        lane_wait(o->shard.is.mesh->lane);
    for (int i = 0; i < 3; i++)
        buffer_free(&o->room[i]);
    buffer_free(&o->sum);
    if (o->history)
        history_free(o->history);
    if (o->replay)
        history_free(o->replay);
    free(o->history);
    free(o->replay);
    shard_free(s);
}

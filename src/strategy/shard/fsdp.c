/* Fully sharded data parallelism (ZeRO stage 3, Rajbhandari et al. 2020): parameters, gradients and
 * optimizer live in slices. A stage is gathered while the stage before computes, and dropped after
 * use; its gradient is reduce-scattered while the next stage's backward runs. The part of the last
 * step that remains for a stage (an exchange over the groups) ends before the stage is gathered.
 *
 * A stage whose parameters other stages read, too (a tied embedding), stays gathered for the whole
 * micro-batch. */
#include "strategy/method.h"
#include "strategy/shard/shard.h"

#include <stdlib.h>

#include "tensor/ops.h"

struct fsdp {
    struct shard shard;
    struct lane *gathers, *reduces; /* the mesh's */
    struct comm *gather_comm;
    struct comm_collective *gather, *reduce; /* (n_stage) arguments of the lanes' jobs */
    struct buffer room[2], g_room[2];        /* alternate: one stage computes, one is in flight */
    struct buffer *kept, *g_kept; /* (n_stage) of stages that other stages read; else not open */
    int reducing;                 /* the stage whose reduction is in flight; -1: none */
    bool fresh;                   /* the micro-batch's backward writes gradients */
    struct buffer pending;        /* gradients of a checkpoint, for the next round */
};

static struct view own_theta(const struct fsdp *f, int k)
{
    const struct shard *s = &f->shard;
    return view_at(s->theta.dev ? s->theta.view : s->x.view, shard_slice(s, k).in_own);
}

/* Starts the all-gather of theta_stage[k]. */
static enum sotto_status gather_stage(struct fsdp *f, int k)
{
    const struct shard *s = &f->shard;
    f->gather[k] =
        (struct comm_collective){f->gather_comm, COMM_ALLGATHER, s->theta_stage[k], own_theta(f, k),
                                 table_stage_count(s->is.oracle->table, k)};
    return lane_start(f->gathers, comm_collect, &f->gather[k]);
}

/* Starts the reduce-scatter of g_stage[k] into the own slice of g_stage[k]. */
static enum sotto_status fsdp_reduce_stage(struct fsdp *f, int k)
{
    const struct shard *s = &f->shard;
    const struct view g = s->g_stage[k], mine = view_at(g, shard_slice(s, k).in_stage);
    f->reduce[k] = (struct comm_collective){s->is.mesh->lane_shard, COMM_REDUCE_SCATTER, mine, g,
                                            table_stage_count(s->is.oracle->table, k)};
    f->reducing = k;
    return lane_start(f->reduces, comm_collect, &f->reduce[k]);
}

/* Sums the own slice of the round's gradient over the groups. */
static enum sotto_status fsdp_sum_stage(void *arg)
{
    const struct stage_job *job = arg;
    struct shard *s = job->shard;
    const struct slice at = shard_slice(s, job->k);
    struct view g = view_at(s->g.view, at.in_own), sent;
    TRY(shard_narrow(s, g, at.count, &sent));
    TRY(replicate_sum(s->replicate, s->is.mesh->lane_replicate, sent, at.count));
    return shard_widen(s, g, sent, at.count);
}

/* Returns the stage of a visit: a micro-batch visits 0 .. n-1 forward, then n-1 .. 0 backward. */
static int visited_stage(int visit, int n)
{
    return visit < n ? visit : 2 * n - 1 - visit;
}

/* Starts to gather the parameters of `visit`, unless they are gathered: kept, or used by the last
 * forward. */
static enum sotto_status prefetch_stage(struct fsdp *f, int visit)
{
    struct shard *s = &f->shard;
    const int n = s->is.oracle->table->n_stage, k = visited_stage(visit, n);
    if (visit >= 2 * n || visit == n || f->kept[k].dev)
        return SOTTO_OK;
    TRY(shard_ready(s, k));
    s->theta_stage[k] = f->room[visit < n ? visit % 2 : (visit + 1) % 2]
                            .view; /* the last visit uses the other room */
    return gather_stage(f, k);
}

/* Sets *out = true if the exchange of the visit's stage is in flight, and no later stage starts an
 * exchange. Then the stage before is computed first, although the gather overlaps no computing. */
static enum sotto_status delays_prefetch(struct fsdp *f, int visit, bool *out)
{
    const struct shard *s = &f->shard;
    const struct replicate *r = s->replicate;
    bool done = true;
    if (visit < s->is.oracle->table->n_stage && visit >= s->ready && r->unfinished &&
        visit >= r->last_exchange)
        TRY(lane_done(s->is.mesh->lane, &done));
    *out = !done;
    return SOTTO_OK;
}

/* Waits for the reduction in flight and adds its slice to the round's gradient. With the round's
 * last micro-batch the slice is complete in this group, and its sum over the groups starts. */
static enum sotto_status settle_reduction(struct fsdp *f, bool last)
{
    struct shard *s = &f->shard;
    const int k = f->reducing;
    if (k < 0)
        return SOTTO_OK;
    TRY(lane_wait(f->reduces));
    struct slice at = shard_slice(s, k);
    TRY(work_axpy(&s->on, view_at(s->g.view, at.in_own), 1, view_at(s->g_stage[k], at.in_stage),
                  at.count));
    f->reducing = -1;
    return last ? lane_start(f->reduces, fsdp_sum_stage, &s->job[k]) : SOTTO_OK;
}

/* Fills the gradient with zeros, unless backward writes instead of adding. */
static enum sotto_status clear_stage(struct fsdp *f, int k)
{
    const struct shard *s = &f->shard;
    const size_t count = table_stage_count(s->is.oracle->table, k);
    return f->fresh ? SOTTO_OK : work_fill(&s->on, s->g_stage[k], count, 0);
}

static enum sotto_status backward_stage(struct fsdp *f, int k, bool last)
{
    struct shard *s = &f->shard;
    if (!f->g_kept[k].dev) {
        s->g_stage[k] = f->g_room[k % 2].view;
        TRY(clear_stage(f, k));
    }
    TRY(oracle_backward(s->is.oracle, 0, k, s->theta_stage, s->g_stage)); /* g_k complete */
    TRY(settle_reduction(f, last)); /* overlapped: reduction k+1 */
    return fsdp_reduce_stage(f, k);
}

static enum sotto_status run_microbatch(struct fsdp *f, int64_t index, bool last)
{
    struct shard *s = &f->shard;
    struct oracle *o = s->is.oracle;
    const int n = o->table->n_stage;
    for (int k = 0; k < n; k++) {
        if (!f->kept[k].dev)
            continue;
        TRY(shard_ready(s, k));
        TRY(gather_stage(f, k));
    }
    TRY(oracle_begin(o, 0, index, shard_data_rank(s), s->is.config->weight == WEIGHT_TOKENS));
    f->fresh = oracle_fresh(o, 0);
    for (int k = 0; k < n; k++)
        if (f->kept[k].dev)
            TRY(clear_stage(f, k));
    TRY(prefetch_stage(f, 0));
    for (int visit = 0; visit < 2 * n; visit++) {
        bool late;
        TRY(lane_wait(f->gathers)); /* theta_k whole             */
        TRY(delays_prefetch(f, visit + 1, &late));
        if (!late)
            TRY(prefetch_stage(f, visit + 1)); /* overlaps this stage       */
        if (visit < n)
            TRY(oracle_forward(o, 0, visit, s->theta_stage));
        else
            TRY(backward_stage(f, visited_stage(visit, n), last));
        if (visit == n && last)
            TRY(shard_count_last(s, index));
        if (late)
            TRY(prefetch_stage(f, visit + 1));
    }
    if (!last)
        TRY(shard_count(s, 0, index));
    return settle_reduction(f, last);
}

/* Adds the gradients of a checkpoint (shard_visit_pending). */
static enum sotto_status add_pending(struct fsdp *f)
{
    struct shard *s = &f->shard;
    const struct table *table = s->is.oracle->table;
    TRY(work_fill(&s->on, s->g.view, s->g.count, 0));
    for (int k = 0; k < table->n_stage; k++) {
        s->g_stage[k] = f->g_kept[k].dev ? f->g_kept[k].view : f->g_room[0].view;
        TRY(work_copy(&s->on, s->g_stage[k], view_at(f->pending.view, table->stage_start[k]),
                      table_stage_count(table, k))); /* in the type that is sent */
        TRY(fsdp_reduce_stage(f, k));
        TRY(settle_reduction(f, false));
    }
    buffer_free(&f->pending);
    return SOTTO_OK;
}

static enum sotto_status fsdp_round(struct strategy *strategy, const struct plan *plan,
                                    struct round *out)
{
    struct fsdp *f = (struct fsdp *)strategy;
    struct shard *s = &f->shard;
    const struct vector_pair g = {.x = s->g.view, .count = s->g.count};
    const bool carried = s->carried;
    *out = (struct round){.grad_norm = -1};
    f->reducing = -1;
    TRY(shard_begin(s, plan, &s->g));
    TRY(shard_clear(s)); /* the slices, to which sums are added */
    const int n = s->replicate->idle ? 0 : s->is.config->accumulate; /* shard_begin sets idle */
    if (carried)
        TRY(add_pending(f));
    for (int i = 0; i < n; i++)
        TRY(run_microbatch(f, s->next + i, i == n - 1));
    TRY(lane_wait(f->reduces));
    double scale = shard_scale(s, &s->counts);
    if (s->is.optim->clip > 0 || plan->want_norm)
        TRY(shard_clip(s, &s->on, &g, 1, s->is.mesh->shard, out, &scale));
    TRY(shard_step(s, plan, scale, out));
    return shard_end(s, plan);
}

static enum sotto_status visit(struct strategy *s, struct state_visitor *v)
{
    struct fsdp *f = (struct fsdp *)s;
    TRY(shard_visit(&f->shard, v));
    if (state_loading(v) && state_has(v, "pending") && !f->pending.dev)
        TRY(buffer_init(&f->pending, f->shard.is.dev, f->shard.g.view.type,
                        table_count(f->shard.is.oracle->table), MEMORY_GRADIENTS));
    return shard_visit_pending(&f->shard, v, f->pending.view);
}

static void free_fsdp(struct strategy *s)
{
    struct fsdp *f = (struct fsdp *)s;
    const int n = f->shard.is.oracle ? f->shard.is.oracle->table->n_stage : 0;
    for (int k = 0; k < n && f->kept && f->g_kept; k++) {
        buffer_free(&f->kept[k]);
        buffer_free(&f->g_kept[k]);
    }
    for (int i = 0; i < 2; i++) {
        buffer_free(&f->room[i]);
        buffer_free(&f->g_room[i]);
    }
    buffer_free(&f->pending);
    free(f->kept);
    free(f->g_kept);
    free(f->gather);
    free(f->reduce);
    shard_free(s);
}

/* Opens buffers for the stages that other stages read, and two rooms for the largest other stage.
 */
static enum sotto_status make_fsdp_rooms(struct fsdp *f, enum dtype type)
{
    struct shard *s = &f->shard;
    const struct table *table = s->is.oracle->table;
    const int n = table->n_stage;
    bool *needs = calloc((size_t)n, sizeof *needs);
    f->kept = calloc((size_t)n, sizeof *f->kept);
    f->g_kept = calloc((size_t)n, sizeof *f->g_kept);
    f->gather = calloc((size_t)n, sizeof *f->gather);
    f->reduce = calloc((size_t)n, sizeof *f->reduce);
    enum sotto_status st = SOTTO_OK;
    if (!needs || !f->kept || !f->g_kept || !f->gather || !f->reduce)
        st = fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    for (int k = 0; k < n && st == SOTTO_OK; k++) {
        oracle_needs(s->is.oracle, k, needs);
        for (int j = 0; j < n && st == SOTTO_OK; j++) {
            if (j == k || !needs[j] || f->kept[j].dev)
                continue;
            size_t count = table_stage_count(table, j);
            st = buffer_init(&f->kept[j], s->is.dev, type, count, MEMORY_COMMUNICATION);
            if (st == SOTTO_OK)
                st = buffer_init(&f->g_kept[j], s->is.dev, type, count, MEMORY_COMMUNICATION);
            s->theta_stage[j] = f->kept[j].view;
            s->g_stage[j] = f->g_kept[j].view;
        }
    }
    size_t most = 1;
    for (int k = 0; k < n && st == SOTTO_OK; k++)
        if (!f->kept[k].dev && table_stage_count(table, k) > most)
            most = table_stage_count(table, k);
    for (int i = 0; i < 2 && st == SOTTO_OK; i++) {
        st = buffer_init(&f->room[i], s->is.dev, type, most, MEMORY_COMMUNICATION);
        if (st == SOTTO_OK)
            st = buffer_init(&f->g_room[i], s->is.dev, type, most, MEMORY_COMMUNICATION);
    }
    free(needs);
    return st;
}

static struct view own_theta_at(struct shard *s, const struct slice *at)
{
    return view_at(s->theta.view, at->in_own);
}

static struct view own_g_at(struct shard *s, const struct slice *at)
{
    return view_at(s->g.view, at->in_own);
}

static enum sotto_status init(struct strategy *strategy, const struct strategy_setup *setup)
{
    struct fsdp *f = (struct fsdp *)strategy;
    struct shard *s = &f->shard;
    struct mesh *mesh = setup->mesh;
    f->reduces = mesh->lane;
    s->later = true;
    TRY(shard_init(s, setup, owned_slices));
    TRY(shard_vectors(s, s->own.count, false));
    TRY(shard_replicate(s, NULL, s->theta.dev ? own_theta_at : NULL, own_g_at));
    if (s->replicate->ops->sums_gradient && mesh->n_r > 1)
        TRY(shard_wire_open(s, shard_largest(s) / (size_t)mesh->n_s));
    TRY(make_fsdp_rooms(f, strategy_type(setup->config)));
    TRY(mesh_lane(mesh, mesh->shard, &f->gathers));
    return mesh_duplicate(mesh, mesh->shard, f->gathers, &f->gather_comm);
}

static const struct strategy_ops ops = {
    .bytes = sizeof(struct fsdp),
    .init = init,
    .round = fsdp_round,
    .settle = shard_settle,
    .gather = shard_gather,
    .export = shard_export,
    .import = shard_import,
    .visit = visit,
    .free = free_fsdp,
};

const struct method method_fsdp = {
    .name = "fsdp",
    .axis = METHOD_SHARD,
    .about =
        "fully sharded: parameters, gradients and state are all in slices, and a layer's parameters "
        "are gathered just before the layer is computed",
    .shard = &ops,
};

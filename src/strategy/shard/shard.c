#include "strategy/shard/shard.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/ops.h"

/* Sets reads[k]: the last stage whose parameters stage k reads. */
static enum sotto_status list_reads(struct shard *s)
{
    struct oracle *o = s->is.oracle;
    const int n = o->table->n_stage;
    bool *needs = calloc((size_t)n, sizeof *needs);
    s->reads = calloc((size_t)n, sizeof *s->reads);
    if (!needs || !s->reads) {
        free(needs);
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    }
    for (int k = 0; k < n; k++) {
        oracle_needs(o, k, needs);
        s->reads[k] = k;
        for (int j = k + 1; j < n; j++)
            if (needs[j])
                s->reads[k] = j;
    }
    free(needs);
    return SOTTO_OK;
}

enum sotto_status shard_init(struct shard *s, const struct strategy_setup *setup, owned_rule *rule)
{
    const int n = setup->oracle->table->n_stage;
    s->is = *setup;
    s->on = (struct work){setup->mesh, NULL, setup->dev};
    s->theta_stage = calloc((size_t)n, sizeof *s->theta_stage);
    s->g_stage = calloc((size_t)n, sizeof *s->g_stage);
    s->whole_stage = calloc((size_t)n, sizeof *s->whole_stage);
    s->job = calloc((size_t)n, sizeof *s->job);
    if (!s->theta_stage || !s->g_stage || !s->whole_stage || !s->job)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", n);
    for (int k = 0; k < n; k++)
        s->job[k] = (struct stage_job){s, k};
    s->ready = n;
    TRY(list_reads(s));
    return shard_list_owned(s, rule);
}

enum sotto_status shard_vectors(struct shard *s, size_t count, bool copied)
{
    const struct table *table = s->is.oracle->table;
    struct device *dev = s->is.dev;
    const enum dtype type = strategy_type(s->is.config);
    copied |= type != DTYPE_F32;
    TRY(buffer_init(&s->x, dev, DTYPE_F32, s->own.count,
                    copied ? MEMORY_OPTIMIZER : MEMORY_PARAMETERS));
    if (copied)
        TRY(buffer_init(&s->theta, dev, type, count, MEMORY_PARAMETERS));
    TRY(buffer_init(&s->g, dev, strategy_grad_type(s->is.config), count, MEMORY_GRADIENTS));
    if (count == table_count(table)) {
        table_stages(table, copied ? s->theta.view : s->x.view, s->theta_stage);
        table_stages(table, s->g.view, s->g_stage);
    }
    return SOTTO_OK;
}

void shard_free(struct strategy *strategy)
{
    struct shard *s = (struct shard *)strategy;
    if (s->replicate)
        replicate_close(s->replicate);
    buffer_free(&s->x);
    buffer_free(&s->theta);
    buffer_free(&s->g);
    buffer_free(&s->whole);
    buffer_free(&s->mean);
    buffer_free(&s->wire);
    free(s->theta_stage);
    free(s->g_stage);
    free(s->whole_stage);
    free(s->job);
    free(s->reads);
    free(s->own_g);
    free(s->slice);
    owned_free(&s->own);
    for (int i = 0; s->each && i < s->is.mesh->n_s; i++)
        owned_free(&s->each[i]);
    free(s->each);
    free(s);
}

enum sotto_status shard_clear(struct shard *s)
{
    const struct buffer *g = s->empty;
    s->empty = NULL;
    return g ? work_fill(&s->on, g->view, g->count, 0) : SOTTO_OK;
}

enum sotto_status shard_begin(struct shard *s, const struct plan *plan, const struct buffer *g)
{
    struct replicate *r = s->replicate;
    bool meet = false;
    buffer_free(&s->whole);
    buffer_free(&s->mean);
    if (r->ops->begin) {
        TRY(r->ops->begin(r, plan, &meet));
        s->next = r->data.own ? s->next : r->data.microbatch;
    }
    /* Not abandoned: a round with gradients of a checkpoint, which cannot be computed again, and a
     * round without an exchange between the groups. */
    s->asked = !s->carried && r->ops->in_step ? plan->asked : NULL;
    if (!s->carried) {
        s->empty = g;
        s->counts = (struct counts){0};
    }
    s->counts.votes = (struct votes){.stop = plan->stop, .save = plan->save, .meet = meet};
    s->counts.workers = 1;
    s->counts.seconds = plan->seconds;
    s->carried = false;
    return SOTTO_OK;
}

enum sotto_status shard_step(struct shard *s, const struct plan *plan, double scale,
                             struct round *out)
{
    shard_pass_counts(s, &s->counts);
    if (!s->replicate->idle)
        s->next += s->is.config->accumulate;
    shard_fill_round(s, &s->counts, out); /* with the groups of this round */
    s->ready = 0;
    TRY(replicate_step(s->replicate, plan, scale));
    shard_fill_agreed(s, &s->counts, out); /* the step may change it */
    return s->replicate->unfinished ? SOTTO_OK : shard_settle(&s->base);
}

enum sotto_status shard_end(const struct shard *s, const struct plan *plan)
{
    return shard_alone(s) && !plan->want_norm ? device_failed(s->is.dev) : device_check(s->is.dev);
}

/* The counts are summed before: all workers know here if a worker has abandoned the round. */
static enum sotto_status complete_unless_abandoned(void *arg)
{
    const struct stage_job *job = arg;
    return job->shard->counts.abandoned > 0 ? SOTTO_OK : job->shard->complete(arg);
}

static enum sotto_status start_stage(struct shard *s, int k)
{
    return lane_start(s->is.mesh->lane, complete_unless_abandoned, &s->job[k]);
}

/* g += grad f_i (= for the first micro-batch of an empty g). In the last micro-batch each stage's
 * gradient is complete after its backward, and the sum over the workers starts. The loss is known
 * after the first backward, so the sum of the counts starts before the sums of stages. */
enum sotto_status shard_gradient(struct shard *s, int64_t index, lane_job *complete)
{
    struct oracle *o = s->is.oracle;
    const int n = o->table->n_stage;
    TRY(oracle_begin(o, 0, index, shard_data_rank(s), s->is.config->weight == WEIGHT_TOKENS));
    if (s->empty && oracle_fresh(o, 0))
        s->empty = NULL;
    TRY(shard_clear(s));
    for (int k = 0; k < n; k++) {
        TRY(shard_ready(s, k)); /* end the last step here */
        TRY(oracle_forward(o, 0, k, s->theta_stage));
    }
    for (int k = n - 1; k >= 0; k--) {
        TRY(oracle_backward(o, 0, k, s->theta_stage, s->g_stage)); /* g_k complete on this worker */
        if (complete && k == n - 1) {
            s->complete = complete;
            TRY(shard_count_last(s, index));
        }
        if (complete)
            TRY(start_stage(s, k)); /* overlaps backward k-1 */
    }
    return complete ? SOTTO_OK : shard_count(s, 0, index);
}

/* Abandons the round: runs the sums for which the other workers wait. The counts report the end, so
 * the sums of stages do nothing. */
static enum sotto_status abandon_round(struct shard *s, bool alone)
{
    s->counts.votes = (struct votes){.stop = 1};
    s->counts.abandoned = 1;
    TRY(shard_settle(&s->base)); /* other workers may be at this point */
    if (alone)
        return SOTTO_OK;
    TRY(shard_count_sum(s));
    for (int k = s->is.oracle->table->n_stage - 1; k >= 0; k--)
        TRY(start_stage(s, k));
    return lane_wait(s->is.mesh->lane);
}

bool shard_abandoned(const struct shard *s, struct round *out)
{
    out->abandoned = s->counts.abandoned > 0;
    out->stop |= out->abandoned;
    return out->abandoned;
}

enum sotto_status shard_accumulate(struct shard *s, lane_job *complete)
{
    const int n = s->replicate->idle ? 0 : s->is.config->accumulate;
    const bool alone = shard_alone(s);
    if (n == 0)
        TRY(shard_clear(s)); /* the step reads g */
    for (int i = 0; i < n; i++) {
        if (n > 1 && s->asked && *s->asked)
            return abandon_round(s, alone);
        TRY(shard_gradient(s, s->next + i, i == n - 1 && !alone ? complete : NULL));
    }
    if (!alone)
        TRY(lane_wait(s->is.mesh->lane)); /* g = sum_i g_i */
    return SOTTO_OK;
}

int shard_data_rank(const struct shard *s)
{
    const struct replicate *r = s->replicate;
    return r->ops->begin && !r->data.own ? r->data.rank : s->is.oracle->rank;
}

enum sotto_status shard_clip(const struct shard *s, const struct work *on,
                             const struct vector_pair *p, int n, struct comm *within,
                             struct round *out, double *scale)
{
    double squared;
    TRY(work_sum_squares(on, p, n, &squared));
    if (within)
        TRY(comm_sum(within, &squared, 1));
    squared = squared * *scale * *scale;
    out->grad_norm = sqrt(squared);
    if (!isfinite(out->grad_norm))
        return fail(SOTTO_ENUMERIC, "the gradient's norm is %f", out->grad_norm);
    *scale *= optim_clip(s->is.optim, squared);
    return SOTTO_OK;
}

/* Visits the place in the data: of each worker, as a group that sits out is at another place, and
 * for another number of workers the place of worker 0, the furthest, times the workers. */
static enum sotto_status visit_next_microbatch(struct shard *s, struct state_visitor *v)
{
    const struct worker *w = s->is.mesh->worker;
    int64_t all = s->next * w->size;
    TRY(state_count(v, "microbatches", &all, STATE_STEPS * STATE_WORKERS));
    if (state_loading(v))
        s->replicate->from.microbatch = (all + w->size - 1) / w->size;
    if (state_loading(v) && state_owners(v, "place", "next") != w->size) {
        s->next = s->replicate->from.microbatch;
        return state_ignore(v, "place.");
    }
    TRY(state_enter_own(v, "place", w->rank, w->size));
    TRY(state_count(v, "next", &s->next, STATE_STEPS));
    state_leave(v);
    return SOTTO_OK;
}

enum sotto_status shard_visit(struct shard *s, struct state_visitor *v)
{
    TRY(shard_settle(&s->base));
    TRY(visit_next_microbatch(s, v));
    TRY(replicate_show(s->replicate, v));
    if (state_loading(v))
        TRY(replicate_publish(s->replicate));
    TRY(device_check(s->replicate->is.dev));
    return device_check(s->is.dev);
}

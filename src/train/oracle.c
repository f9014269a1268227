#include "train/oracle.h"

static enum sotto_status begin(struct oracle *oracle, int64_t index, bool sum)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->place.index = index;
    TRY(loader_fill(o->is.loader, o->place, o->is.rows, o->is.t, &o->batch));
    double scale = sum ? 1 : o->batch.n_targets ? 1 / (double)o->batch.n_targets : 0;
    return tape_begin(&o->tape, &o->batch, TAPE_TRAIN, (float)scale);
}

static enum sotto_status forward_now(void *arg)
{
    struct model_oracle *o = arg;
    return tape_forward(&o->tape, o->now.k, o->now.theta);
}

static enum sotto_status backward_now(void *arg)
{
    struct model_oracle *o = arg;
    return tape_backward(&o->tape, o->now.k, o->now.theta, o->now.grad);
}

/* A micro-batch is three parts: the forward pass, and a backward pass of twice its work. One that
 * is not whole, the last or of short sequences, takes its share of the time. */
static enum sotto_status compute(struct model_oracle *o, lane_job *work, int parts)
{
    struct worker *w = o->is.worker;
    const struct extent e = {o->is.rows, o->is.t, DTYPE_F32};
    double share = model_stage_flops(o->is.model, o->now.k, e) / model_flops(o->is.model, e);
    share *= ((double)o->batch.rows * o->batch.t) / ((double)o->is.rows * o->is.t);
    double start = clock_now(w->clock);
    TRY(w->ops->compute(w, work, o, o->is.seconds * share * parts));
    o->base.seconds += clock_now(w->clock) - start;
    return SOTTO_OK;
}

static enum sotto_status forward(struct oracle *oracle, int k, const struct view *theta)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->now.k = k;
    o->now.theta = theta;
    return compute(o, forward_now, 1);
}

static enum sotto_status backward(struct oracle *oracle, int k, const struct view *theta,
                                  const struct view *grad)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->now.k = k;
    o->now.theta = theta;
    o->now.grad = grad;
    return compute(o, backward_now, 2);
}

static struct oracle_result result(struct oracle *oracle)
{
    const struct model_oracle *o = (const struct model_oracle *)oracle;
    struct tape_result r = tape_result(&o->tape);
    return (struct oracle_result){r.loss, r.targets, (int64_t)o->batch.rows * o->batch.t};
}

static void needs(struct oracle *oracle, int k, bool *out)
{
    model_stage_needs(((struct model_oracle *)oracle)->is.model, k, out);
}

static const struct oracle_ops model_oracle_ops = {
    .begin = begin, .forward = forward, .backward = backward, .needs = needs, .result = result};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model_oracle_setup *setup)
{
    const struct worker *w = setup->worker;
    *o = (struct model_oracle){.base = {.ops = &model_oracle_ops,
                                        .table = &setup->model->table,
                                        .data = loader_share(setup->loader, w->rank, w->size)},
                               .is = *setup,
                               .place = {setup->seed, 0, w->rank, w->size}};
    TRY(batch_init(&o->batch, setup->rows, setup->t));
    enum sotto_status st =
        tape_init(&o->tape, setup->model, setup->dev, setup->pool,
                  (struct extent){setup->rows, setup->t, DTYPE_F32}, setup->recompute);
    if (st != SOTTO_OK)
        batch_free(&o->batch);
    return st;
}

void model_oracle_free(struct model_oracle *o)
{
    if (o->tape.model)
        tape_free(&o->tape);
    batch_free(&o->batch);
}

#include "train/oracle.h"

static enum sotto_status begin(struct oracle *oracle, int64_t index, bool sum)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->place.index = index;
    TRY(loader_fill(o->loader, o->place, o->tape.most.rows, o->t, &o->batch));
    double scale = sum ? 1 : o->batch.n_targets ? 1 / (double)o->batch.n_targets : 0;
    return tape_begin(&o->tape, &o->batch, TAPE_TRAIN, (float)scale);
}

static enum sotto_status forward(struct oracle *oracle, int k, const struct view *theta)
{
    return tape_forward(&((struct model_oracle *)oracle)->tape, k, theta);
}

static enum sotto_status backward(struct oracle *oracle, int k, const struct view *theta,
                                  const struct view *grad)
{
    return tape_backward(&((struct model_oracle *)oracle)->tape, k, theta, grad);
}

static struct oracle_result result(struct oracle *oracle)
{
    const struct model_oracle *o = (const struct model_oracle *)oracle;
    struct tape_result r = tape_result(&o->tape);
    return (struct oracle_result){r.loss, r.targets, (int64_t)o->batch.rows * o->batch.t};
}

static void needs(struct oracle *oracle, int k, bool *out)
{
    model_stage_needs(((struct model_oracle *)oracle)->tape.model, k, out);
}

static const struct oracle_ops model_oracle_ops = {
    .begin = begin, .forward = forward, .backward = backward, .needs = needs, .result = result};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model *model,
                                    struct device *dev, struct pool *pool,
                                    const struct loader *loader, struct loader_place place,
                                    int rows, int t, bool recompute)
{
    *o = (struct model_oracle){
        .base = {&model_oracle_ops, &model->table}, .loader = loader, .place = place, .t = t};
    TRY(batch_init(&o->batch, rows, t));
    enum sotto_status st =
        tape_init(&o->tape, model, dev, pool, (struct extent){rows, t, DTYPE_F32}, recompute);
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

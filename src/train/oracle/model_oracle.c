#include "train/oracle/model_oracle.h"

#include <stdlib.h>

#include "tensor/ops.h"

static enum sotto_status model_oracle_begin(struct oracle *oracle, int slot, int64_t index,
                                            int rank, bool sum)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    struct model_slot *s = &o->slot[slot];
    s->number = o->is.worker->begun++;
    const struct loader_place place = {o->is.seed, index, rank, o->is.worker->size};
    s->place = index * place.size + rank;
    TRY(loader_fill(o->is.loader, place, o->is.rows, o->is.t, &s->batch));
    /* Without targets the gradient is zero with any scale. Scale 0 would mean no gradient at
     * all. */
    const double scale = sum || !s->batch.n_targets ? 1 : 1 / (double)s->batch.n_targets;
    return tape_begin(&s->tape, &s->batch, TAPE_TRAIN, (float)scale);
}

static void model_fresh(struct oracle *oracle, int slot)
{
    tape_fresh(&((struct model_oracle *)oracle)->slot[slot].tape);
}

static enum sotto_status forward_job(void *arg)
{
    struct model_oracle *o = arg;
    return tape_forward(&o->now.slot->tape, o->now.k, o->now.theta);
}

static enum sotto_status backward_job(void *arg)
{
    struct model_oracle *o = arg;
    return tape_backward(&o->now.slot->tape, o->now.k, o->now.theta, o->now.grad);
}

/* Computes a stage in the worker's time. A micro-batch has three parts: a forward pass, and a
 * backward pass of twice its work. A smaller micro-batch, the last or of short sequences, takes a
 * share of the time. */
static enum sotto_status model_compute(struct model_oracle *o, lane_job *work, int parts)
{
    struct worker *w = o->is.worker;
    const struct batch *batch = &o->now.slot->batch;
    const struct extent e = model_extent(o->is.model, o->is.rows, o->is.t, DTYPE_F32);
    double share = model_stage_flops(o->is.model, o->now.k, e) / model_flops(o->is.model, e);
    const int targets = sample_targets(&o->is.model->sample, o->is.t);
    share *= ((double)batch->rows * batch->t) / ((double)o->is.rows * targets);
    double start = clock_now(w->clock);
    w->computing = o->now.slot->number;
    o->is.pool->high = o->is.pool->live;
    TRY(w->ops->compute(w, work, o, o->is.seconds * share * parts));
    const double end = clock_now(w->clock);
    o->base.seconds += end - start;
    if (o->is.trace)
        trace_put(o->is.trace,
                  &(struct trace_row){end, o->now.slot->place, o->now.k, work == backward_job,
                                      o->is.pool->live, o->is.pool->high});
    return SOTTO_OK;
}

static enum sotto_status model_forward(struct oracle *oracle, int slot, int k,
                                       const struct view *theta)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->now.slot = &o->slot[slot];
    o->now.k = k;
    o->now.theta = theta;
    return model_compute(o, forward_job, 1);
}

static enum sotto_status model_backward(struct oracle *oracle, int slot, int k,
                                        const struct view *theta, const struct view *grad)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    o->now.slot = &o->slot[slot];
    o->now.k = k;
    o->now.theta = theta;
    o->now.grad = grad;
    return model_compute(o, backward_job, 2);
}

static enum sotto_status model_edge(struct oracle *oracle, int slot, int k, bool gradient,
                                    struct view *out, size_t *count)
{
    struct tape *tape = &((struct model_oracle *)oracle)->slot[slot].tape;
    *count = tape_edge_count(tape, k);
    return gradient ? tape_edge_gradient(tape, k, out) : tape_edge(tape, k, out);
}

static void model_drop(struct oracle *oracle, int slot, int k)
{
    tape_edge_drop(&((struct model_oracle *)oracle)->slot[slot].tape, k);
}

static enum sotto_status model_result(struct oracle *oracle, int slot, struct device *dev,
                                      struct oracle_result *out)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    struct model_slot *s = &o->slot[slot];
    const struct clock *clock = o->is.worker->clock;
    const double start = clock_now(clock);
    const bool own = !dev;
    if (own)
        dev = o->reader.ops ? &o->reader : o->is.dev;
    struct tape_result r = tape_result(&s->tape, dev);
    *out = (struct oracle_result){r.loss, r.targets, (int64_t)s->batch.rows * s->batch.t};
    const enum sotto_status st = device_check(dev);
    if (own) /* includes waiting for kernels issued before */
        o->base.seconds += clock_now(clock) - start;
    return st;
}

static void model_needs(struct oracle *oracle, int k, bool *out)
{
    model_stage_needs(((struct model_oracle *)oracle)->is.model, k, out);
}

static enum sotto_status open_notes(struct model_oracle *o, size_t count)
{
    const size_t slots = (size_t)o->base.slots;
    TRY(buffer_init(&o->found, o->is.dev, DTYPE_F32, slots * count, MEMORY_PARAMETERS));
    for (int i = 0; i < 2; i++)
        TRY(buffer_init(&o->sum[i], o->is.dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    for (size_t i = 0; i < slots; i++)
        o->slot[i].tape.state = view_at(o->found.view, i * count);
    return SOTTO_OK;
}

/* Every slot's state is zero before a forward and afterwards the forward's change alone. */
static enum sotto_status model_notes(struct oracle *oracle)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    const struct ops *ops = o->is.dev->ops;
    if (!o->is.state.data)
        return SOTTO_OK;
    if (!o->found.dev)
        TRY(open_notes(o, table_count(&o->is.model->state)));
    ops->fill(o->is.dev, o->found.view, o->found.count, 0);
    for (int i = 0; i < 2; i++)
        ops->fill(o->is.dev, o->sum[i].view, o->sum[i].count, 0);
    return device_failed(o->is.dev);
}

static enum sotto_status model_note(struct oracle *oracle, int slot, int sum)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    const struct ops *ops = o->is.dev->ops;
    const struct view found = o->slot[slot].tape.state;
    if (!o->found.dev)
        return SOTTO_OK;
    ops->axpy(o->is.dev, o->sum[sum].view, 1, found, o->sum[sum].count);
    ops->fill(o->is.dev, found, o->sum[sum].count, 0);
    return device_failed(o->is.dev);
}

static enum sotto_status model_keep(struct oracle *oracle, int sum, double share)
{
    struct model_oracle *o = (struct model_oracle *)oracle;
    const struct ops *ops = o->is.dev->ops;
    const struct buffer *add = &o->sum[sum];
    if (!o->found.dev)
        return SOTTO_OK;
    model_state_fade(o->is.model, o->is.dev, o->is.state);
    ops->axpy(o->is.dev, o->is.state, (float)share, add->view, add->count);
    ops->fill(o->is.dev, add->view, add->count, 0);
    return device_failed(o->is.dev);
}

static const struct oracle_ops model_oracle_ops = {.begin = model_oracle_begin,
                                                   .fresh = model_fresh,
                                                   .forward = model_forward,
                                                   .backward = model_backward,
                                                   .needs = model_needs,
                                                   .edge = model_edge,
                                                   .drop = model_drop,
                                                   .result = model_result,
                                                   .notes = model_notes,
                                                   .note = model_note,
                                                   .keep = model_keep};

enum sotto_status model_oracle_init(struct model_oracle *o, const struct model_oracle_setup *setup)
{
    const struct worker *w = setup->worker;
    const int slots = setup->slots ? setup->slots : 1;
    const struct extent most = {setup->rows, setup->t, setup->activations, setup->all};
    *o = (struct model_oracle){.base = {.ops = &model_oracle_ops,
                                        .table = &setup->model->table,
                                        .slots = slots,
                                        .rank = w->rank,
                                        .data = loader_share(setup->loader, w->rank, w->size)},
                               .is = *setup};
    enum sotto_status st = SOTTO_OK;
    if (!(o->slot = calloc((size_t)slots, sizeof *o->slot)))
        return fail(SOTTO_ENOMEM, "no memory for %d micro-batches", slots);
    for (int i = 0; i < slots && st == SOTTO_OK; i++) {
        st = batch_init_of(&o->slot[i].batch, &setup->model->sample, setup->rows, setup->t);
        if (st == SOTTO_OK)
            st = tape_init(&o->slot[i].tape, setup->model, setup->dev, setup->pool, most,
                           setup->recompute);
        o->slot[i].tape.state = setup->state;
    }
    if (st == SOTTO_OK && setup->dev->ops->mark)
        st = device_open(&o->reader, setup->dev->ops->name, setup->dev->memory, 1);
    if (st != SOTTO_OK)
        model_oracle_free(o);
    return st;
}

void model_oracle_free(struct model_oracle *o)
{
    for (int i = 0; i < o->base.slots && o->slot; i++) {
        if (o->slot[i].tape.model)
            tape_free(&o->slot[i].tape);
        batch_free(&o->slot[i].batch);
    }
    free(o->slot);
    if (o->reader.ops)
        device_close(&o->reader);
    buffer_free(&o->found);
    buffer_free(&o->sum[0]);
    buffer_free(&o->sum[1]);
    *o = (struct model_oracle){0};
}

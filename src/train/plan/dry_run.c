#include "train/plan/dry_run.h"

#include "train/oracle/null_oracle.h"

/* The null oracle with the model's stages: the parameters that a stage reads, the edges between
 * stages. */
struct dry_oracle {
    struct null_oracle null;
    struct oracle_ops ops;
    const struct oracle_ops *own; /* the null oracle's */
    const struct run *run;
    struct call_log calls;
    bool notes;
    struct memory memory; /* of the tape that counts an edge's elements, opened at the first edge;
                             no part of the estimate */
    struct device dev;
    struct pool pool;
    struct batch batch;
    struct tape tape;
};

static void dry_needs(struct oracle *oracle, int k, bool *out)
{
    model_stage_needs(&((struct dry_oracle *)oracle)->run->model, k, out);
}

static enum sotto_status dry_begin(struct oracle *oracle, int slot, int64_t index, int rank,
                                   bool sum)
{
    struct dry_oracle *o = (struct dry_oracle *)oracle;
    TRY(call_log_add(&o->calls, LOGGED_BEGIN, slot, 0));
    return o->own->begin(oracle, slot, index, rank, sum);
}

static enum sotto_status dry_forward(struct oracle *oracle, int slot, int k,
                                     const struct view *theta)
{
    struct dry_oracle *o = (struct dry_oracle *)oracle;
    TRY(call_log_add(&o->calls, LOGGED_FORWARD, slot, k));
    return o->own->forward(oracle, slot, k, theta);
}

static enum sotto_status dry_backward(struct oracle *oracle, int slot, int k,
                                      const struct view *theta, const struct view *grad)
{
    struct dry_oracle *o = (struct dry_oracle *)oracle;
    TRY(call_log_add(&o->calls, LOGGED_BACKWARD, slot, k));
    return o->own->backward(oracle, slot, k, theta, grad);
}

static void dry_drop(struct oracle *oracle, int slot, int k)
{
    /* If memory for the log runs out the edge stays: the estimate is then too large. */
    (void)call_log_add(&((struct dry_oracle *)oracle)->calls, LOGGED_DROP, slot, k);
}

static enum sotto_status dry_notes(struct oracle *oracle)
{
    ((struct dry_oracle *)oracle)->notes = true;
    return SOTTO_OK;
}

static enum sotto_status begin_tape(struct dry_oracle *o)
{
    const struct train_config *c = &o->run->config.train;
    const struct model *model = &o->run->model;
    const struct extent e = model_extent(model, c->batch, c->seq, (enum dtype)c->activations);
    TRY(device_open(&o->dev, "null", &o->memory, 1));
    pool_init(&o->pool, &o->dev, MEMORY_ACTIVATIONS);
    TRY(batch_init_of(&o->batch, &model->sample, e.rows, e.t));
    TRY(tape_init(&o->tape, model, &o->dev, &o->pool, e, c->recompute));
    return tape_begin(&o->tape, &o->batch, TAPE_TRAIN, 1);
}

static enum sotto_status dry_edge(struct oracle *oracle, int slot, int k, bool gradient,
                                  struct view *out, size_t *count)
{
    struct dry_oracle *o = (struct dry_oracle *)oracle;
    TRY(call_log_add(&o->calls, gradient ? LOGGED_EDGE_GRADIENT : LOGGED_EDGE, slot, k));
    if (!o->tape.model)
        TRY(begin_tape(o));
    *out = view_none;
    out->type = (enum dtype)o->run->config.train.activations;
    *count = tape_edge_count(&o->tape, k);
    return SOTTO_OK;
}

static enum sotto_status dry_oracle_open(struct dry_oracle *o, const struct dry_run *t,
                                         struct worker *w, struct device *dev)
{
    const struct null_config null = {
        .seconds = 1, .tokens = 1, .slots = strategy_slots(&t->strategy)};
    o->run = t->run;
    TRY(null_oracle_init(&o->null, t->run->table, w, dev, &null));
    if (t->run->config.train.oracle == ORACLE_NULL) /* without a model */
        return SOTTO_OK;
    o->own = o->null.base.ops;
    o->ops = *o->own;
    o->ops.begin = dry_begin;
    o->ops.forward = dry_forward;
    o->ops.backward = dry_backward;
    o->ops.needs = dry_needs;
    o->ops.edge = dry_edge;
    o->ops.drop = dry_drop;
    o->ops.notes = dry_notes;
    o->null.base.ops = &o->ops;
    return SOTTO_OK;
}

static void dry_oracle_close(struct dry_oracle *o)
{
    if (o->tape.model)
        tape_free(&o->tape);
    batch_free(&o->batch);
    call_log_free(&o->calls);
    pool_free(&o->pool);
    if (o->dev.ops)
        device_close(&o->dev);
    null_oracle_free(&o->null);
}

struct dry_run_job {
    const struct dry_run *dry;
    struct status_note refusal; /* rank 0's message */
};

static enum sotto_status run_dry_worker(struct worker *w, void *arg)
{
    struct dry_run_job *job = arg;
    const struct dry_run *t = job->dry;
    struct memory memory = {0};
    struct device dev = {0};
    struct dry_oracle oracle = {0};
    struct mesh mesh = {0};
    struct dry_worker worker = {
        .mesh = &mesh, .memory = &memory, .calls = &oracle.calls, .notes = &oracle.notes};
    enum sotto_status st;
    TRY_DONE(device_open(&dev, "null", &memory, 1));
    TRY_DONE(dry_oracle_open(&oracle, t, w, &dev));
    TRY_DONE(mesh_open(&mesh, w, t->strategy.groups, &dev));
    const struct strategy_setup setup = {.config = &t->strategy,
                                         .optim = &t->run->config.optim,
                                         .oracle = &oracle.null.base,
                                         .dev = &dev,
                                         .mesh = &mesh};
    st = strategy_open(&worker.s, &setup);
    if (st == SOTTO_EINVAL && w->rank == 0)
        status_save(&job->refusal, st);
    TRY_DONE(st);
    st = t->body(&worker, t->arg);
    if (st != SOTTO_OK)
        mesh_abort(&mesh, st);
done:
    if (worker.s)
        worker.s->ops->free(worker.s);
    if (mesh.worker)
        mesh_close(&mesh);
    dry_oracle_close(&oracle);
    if (dev.ops)
        device_close(&dev);
    return st;
}

enum sotto_status dry_run_workers(const struct dry_run *t)
{
    const struct link_model links = {0};
    const struct engine_config engine = {
        .workers = t->strategy.workers, .node = t->node, .links = &links};
    struct dry_run_job job = {.dry = t};
    const enum sotto_status st = engine_virtual(&engine, run_dry_worker, &job);
    TRY(status_raise(&job.refusal));
    return fail_in(st, "%s", t->about);
}

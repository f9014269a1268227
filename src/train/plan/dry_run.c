#include "train/plan/dry_run.h"

#include "train/oracle/null_oracle.h"

/* The null oracle with the model's stages: what they need of each other, and what passes between
 * them. */
struct trial_oracle {
    struct null_oracle null;
    struct oracle_ops ops;
    const struct oracle_ops *own; /* the null oracle's */
    const struct run *run;
    struct asked asked;
    bool notes;
    struct memory aside; /* for the edges, which nobody has asked for while the tape has no model */
    struct device dev;
    struct pool pool;
    struct batch batch;
    struct tape tape;
};

static void needs(struct oracle *oracle, int k, bool *out)
{
    model_stage_needs(&((struct trial_oracle *)oracle)->run->model, k, out);
}

static enum sotto_status begin(struct oracle *oracle, int slot, int64_t index, int rank, bool sum)
{
    struct trial_oracle *o = (struct trial_oracle *)oracle;
    TRY(asked_add(&o->asked, ASKED_BEGIN, slot, 0));
    return o->own->begin(oracle, slot, index, rank, sum);
}

static enum sotto_status forward(struct oracle *oracle, int slot, int k, const struct view *theta)
{
    struct trial_oracle *o = (struct trial_oracle *)oracle;
    TRY(asked_add(&o->asked, ASKED_FORWARD, slot, k));
    return o->own->forward(oracle, slot, k, theta);
}

static enum sotto_status backward(struct oracle *oracle, int slot, int k, const struct view *theta,
                                  const struct view *grad)
{
    struct trial_oracle *o = (struct trial_oracle *)oracle;
    TRY(asked_add(&o->asked, ASKED_BACKWARD, slot, k));
    return o->own->backward(oracle, slot, k, theta, grad);
}

static void drop(struct oracle *oracle, int slot, int k)
{
    /* Without memory for it the edge stays: more is estimated than is taken. */
    (void)asked_add(&((struct trial_oracle *)oracle)->asked, ASKED_DROP, slot, k);
}

static enum sotto_status notes(struct oracle *oracle)
{
    ((struct trial_oracle *)oracle)->notes = true;
    return SOTTO_OK;
}

static enum sotto_status begin_tape(struct trial_oracle *o)
{
    const struct train_config *c = &o->run->config.train;
    const struct model *model = &o->run->model;
    const struct extent e = model_extent(model, c->batch, c->seq, (enum dtype)c->activations);
    TRY(device_open(&o->dev, "null", &o->aside, 1));
    pool_init(&o->pool, &o->dev, MEMORY_ACTIVATIONS);
    TRY(batch_init_of(&o->batch, &model->sample, e.rows, e.t));
    TRY(tape_init(&o->tape, model, &o->dev, &o->pool, e, c->recompute));
    return tape_begin(&o->tape, &o->batch, TAPE_TRAIN, 1);
}

static enum sotto_status edge(struct oracle *oracle, int slot, int k, bool gradient,
                              struct view *out, size_t *count)
{
    struct trial_oracle *o = (struct trial_oracle *)oracle;
    TRY(asked_add(&o->asked, gradient ? ASKED_EDGE_GRADIENT : ASKED_EDGE, slot, k));
    if (!o->tape.model)
        TRY(begin_tape(o));
    *out = view_none;
    out->type = (enum dtype)o->run->config.train.activations;
    *count = tape_edge_count(&o->tape, k);
    return SOTTO_OK;
}

static enum sotto_status oracle_open(struct trial_oracle *o, const struct trial *t,
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
    o->ops.begin = begin;
    o->ops.forward = forward;
    o->ops.backward = backward;
    o->ops.needs = needs;
    o->ops.edge = edge;
    o->ops.drop = drop;
    o->ops.notes = notes;
    o->null.base.ops = &o->ops;
    return SOTTO_OK;
}

static void oracle_close(struct trial_oracle *o)
{
    if (o->tape.model)
        tape_free(&o->tape);
    batch_free(&o->batch);
    asked_free(&o->asked);
    pool_free(&o->pool);
    if (o->dev.ops)
        device_close(&o->dev);
    null_oracle_free(&o->null);
}

struct trying {
    const struct trial *trial;
    struct status_note refusal; /* as rank 0 put it */
};

static enum sotto_status try_worker(struct worker *w, void *arg)
{
    struct trying *trying = arg;
    const struct trial *t = trying->trial;
    struct memory memory = {0};
    struct device dev = {0};
    struct trial_oracle oracle = {0};
    struct mesh mesh = {0};
    struct trial_seat seat = {
        .mesh = &mesh, .memory = &memory, .asked = &oracle.asked, .notes = &oracle.notes};
    enum sotto_status st;
    TRY_DONE(device_open(&dev, "null", &memory, 1));
    TRY_DONE(oracle_open(&oracle, t, w, &dev));
    TRY_DONE(mesh_open(&mesh, w, t->strategy.groups, &dev));
    const struct strategy_setup setup = {.config = &t->strategy,
                                         .optim = &t->run->config.optim,
                                         .oracle = &oracle.null.base,
                                         .dev = &dev,
                                         .mesh = &mesh};
    st = strategy_open(&seat.s, &setup);
    if (st == SOTTO_EINVAL && w->rank == 0)
        status_save(&trying->refusal, st);
    TRY_DONE(st);
    st = t->body(&seat, t->arg);
    if (st != SOTTO_OK)
        mesh_abort(&mesh, st);
done:
    if (seat.s)
        seat.s->ops->free(seat.s);
    if (mesh.worker)
        mesh_close(&mesh);
    oracle_close(&oracle);
    if (dev.ops)
        device_close(&dev);
    return st;
}

enum sotto_status trial_run(const struct trial *t)
{
    const struct link_model links = {0};
    const struct engine_config engine = {
        .workers = t->strategy.workers, .node = t->node, .links = &links};
    struct trying trying = {.trial = t};
    const enum sotto_status st = engine_virtual(&engine, try_worker, &trying);
    TRY(status_raise(&trying.refusal));
    return fail_in(st, "%s", t->about);
}

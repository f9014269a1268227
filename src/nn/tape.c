#include "nn/tape.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static struct edge edge_before(const struct tape *tape, int layer, struct extent e)
{
    const struct layer *l = tape->model->layer[layer - 1];
    return layer_output(l, e);
}

static struct edge edge_of_stage(const struct tape *tape, int k, struct extent e)
{
    return edge_before(tape, tape->model->first[k], e);
}

/* Returns the bytes that a layer keeps, rounded up to the alignment of the pieces. */
static size_t saved_room(const struct layer *l, struct extent e)
{
    return (layer_saved(l, e) + 63) / 64 * 64;
}

/* Returns the bytes that stage k keeps: the memory of the layers and the edges between layers. */
static size_t saved_bytes(const struct tape *tape, int k)
{
    const struct model *m = tape->model;
    size_t bytes = 0;
    for (int i = m->first[k]; i < m->first[k + 1]; i++) {
        bytes += saved_room(m->layer[i], tape->most);
        if (i > m->first[k]) {
            struct edge edge = edge_before(tape, i, tape->most);
            bytes += carve_bytes(edge_count(&edge), tape->most.type);
        }
    }
    return bytes;
}

size_t tape_bytes(const struct model *model, struct extent e, bool recompute)
{
    const struct tape tape = {.model = model, .most = e};
    size_t edges = 0, saved = 0, most = 0;
    for (int k = 0; k < model->n_stage; k++) {
        size_t bytes = saved_bytes(&tape, k);
        saved += bytes;
        most = bytes > most ? bytes : most;
        if (k > 0) {
            struct edge edge = edge_of_stage(&tape, k, e);
            edges += edge_count(&edge) * dtype_size(e.type);
        }
    }
    return edges + (recompute ? most : saved);
}

static size_t scratch_bytes(const struct model *m, struct extent e)
{
    size_t most = 64;
    for (int i = 0; i < m->n_layer; i++) {
        for (int backward = 0; backward < 2; backward++) {
            size_t bytes = layer_scratch(m->layer[i], e, backward);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

enum sotto_status tape_init(struct tape *tape, const struct model *model, struct device *dev,
                            struct pool *pool, struct extent most, bool recompute)
{
    *tape = (struct tape){
        .model = model, .dev = dev, .pool = pool, .most = most, .recompute = recompute};
    const struct sample *sample = &model->sample;
    if (sample->content != SAMPLE_TOKENS) /* the model cuts a sample into positions */
        tape->most.t = sample->positions;
    const size_t input = (size_t)most.rows * sample_count(sample, most.t);
    const size_t targets = (size_t)most.rows * (size_t)sample_targets(sample, most.t);
    tape->stage = calloc((size_t)model->n_stage + 1, sizeof *tape->stage);
    tape->flow = calloc((size_t)model->n_layer, sizeof *tape->flow);
    tape->host_losses = calloc(targets, sizeof *tape->host_losses);
    tape->host_places = calloc(targets, sizeof *tape->host_places);
    enum sotto_status st = SOTTO_OK;
    if (!tape->stage || !tape->flow || !tape->host_losses || !tape->host_places)
        st = fail(SOTTO_ENOMEM, "no memory for a tape of %d samples", most.rows);
    if (st == SOTTO_OK)
        st = device_room(dev, scratch_bytes(model, tape->most));
    if (st == SOTTO_OK)
        st = buffer_init(&tape->input, dev, sample_type(sample), input, MEMORY_SCRATCH);
    if (st == SOTTO_OK)
        st = buffer_init(&tape->targets, dev, DTYPE_I32, targets, MEMORY_SCRATCH);
    if (st == SOTTO_OK)
        st = buffer_init(&tape->losses, dev, DTYPE_F32, targets, MEMORY_SCRATCH);
    if (st == SOTTO_OK)
        st = buffer_init(&tape->places, dev, DTYPE_U8, targets, MEMORY_SCRATCH);
    if (st != SOTTO_OK)
        tape_free(tape);
    return st;
}

static void drop_block(struct tape *tape, struct pool_block **block)
{
    pool_give(tape->pool, *block);
    *block = NULL;
}

static void drop_blocks(struct tape *tape)
{
    for (int k = 0; k <= tape->model->n_stage; k++) {
        drop_block(tape, &tape->stage[k].edge);
        drop_block(tape, &tape->stage[k].dedge);
        drop_block(tape, &tape->stage[k].saved);
    }
}

void tape_free(struct tape *tape)
{
    if (tape->stage)
        drop_blocks(tape);
    free(tape->stage);
    free(tape->flow);
    free(tape->host_losses);
    free(tape->host_places);
    buffer_free(&tape->input);
    buffer_free(&tape->targets);
    buffer_free(&tape->losses);
    buffer_free(&tape->places);
    *tape = (struct tape){0};
}

static enum sotto_status check_tokens(const struct tape *tape, const struct batch *batch)
{
    const int positions = tape->model->config.positions;
    if (batch->rows > tape->most.rows || batch->t > tape->most.t || batch->rows < 1 || batch->t < 1)
        return fail(SOTTO_EINVAL, "a batch of %d x %d tokens does not fit a tape of %d x %d",
                    batch->rows, batch->t, tape->most.rows, tape->most.t);
    if (batch->t > positions)
        return fail(SOTTO_EINVAL, "a sequence of %d tokens is longer than the model's %d positions",
                    batch->t, positions);
    return SOTTO_OK;
}

static enum sotto_status check_batch(const struct tape *tape, const struct batch *batch)
{
    const struct sample *want = &tape->model->sample, *have = &batch->sample;
    if (have->content != want->content)
        return fail(SOTTO_EINVAL, "the model is computed from %s, the batch has %s",
                    want->content == SAMPLE_TOKENS ? "tokens" : "numbers",
                    have->content == SAMPLE_TOKENS ? "tokens" : "numbers");
    if (want->content == SAMPLE_TOKENS)
        return check_tokens(tape, batch);
    for (int d = 0; d < SAMPLE_DIMS; d++)
        if (have->dims[d] != want->dims[d])
            return fail(SOTTO_EINVAL, "a sample's dimension %d is %d, the model wants %d", d,
                        have->dims[d], want->dims[d]);
    if (batch->t != want->targets || batch->rows < 1 || batch->rows > tape->most.rows)
        return fail(SOTTO_EINVAL,
                    "a batch of %d samples with %d targets does not fit a tape of %d with %d",
                    batch->rows, batch->t, tape->most.rows, want->targets);
    return SOTTO_OK;
}

enum sotto_status tape_begin(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                             float scale)
{
    const bool tokens = tape->model->sample.content == SAMPLE_TOKENS;
    assert(mode != TAPE_TRAIN || scale != 0);
    TRY(check_batch(tape, batch));
    drop_blocks(tape);
    tape->scored = false;
    tape->scored_at = (struct device_mark){0};
    tape->batch = batch;
    tape->pass = (struct pass){
        .dev = tape->dev,
        .table = &tape->model->table,
        .extent = {batch->rows, tokens ? batch->t : tape->most.t, tape->most.type, tape->most.all},
        .input = tape->input.view,
        .targets = tape->targets.view,
        .state = tape->state,
        .state_table = &tape->model->state,
        .training = mode == TAPE_TRAIN,
        .loss_scale = scale,
        .losses = tape->losses.view,
        .places = tape->want_hits ? tape->places.view : view_none,
    };
    const struct ops *ops = tape->dev->ops;
    const size_t rows = (size_t)batch->rows;
    ops->write(tape->dev, tape->input.view, batch_input(batch),
               rows * sample_count(&batch->sample, batch->t));
    ops->write(tape->dev, tape->targets.view, batch->targets, rows * (size_t)batch->t);
    return device_failed(tape->dev);
}

void tape_fresh(struct tape *tape)
{
    assert(tape->pass.training && !tape->scored);
    tape->pass.fresh = true;
}

static struct room buffer_room(const struct buffer *b)
{
    return (struct room){b->view.data, 0, b->count * dtype_size(b->view.type), b->view.place};
}

/* Lets code touch only this micro-batch's part of an edge, which has memory for the largest
 * micro-batch. */
static void limit_edge(const struct tape *tape, int layer, struct view y)
{
    struct edge now = edge_before(tape, layer, tape->pass.extent);
    struct edge most = edge_before(tape, layer, tape->most);
    const size_t size = dtype_size(y.type);
    carve_limit(y, edge_count(&now) * size, edge_count(&most) * size);
}

/* Returns the memory of layer i of stage k and, unless the layer is the stage's last, its output.
 * To be called for the layers in order; `rest` starts as the stage's saved memory. */
static struct layer_flow place_layer(const struct tape *tape, int k, int i, struct room *rest)
{
    const struct layer *l = tape->model->layer[i];
    const size_t keeps = saved_room(l, tape->most);
    struct layer_flow flow = {
        .scratch = {tape->dev->room, 0, tape->dev->room_bytes, tape->dev->ops->place},
        .saved = {rest->data ? rest->data + rest->used : NULL, 0, keeps, rest->place}};
    rest->used += keeps;
    if (i + 1 < tape->model->first[k + 1]) {
        struct edge edge = edge_before(tape, i + 1, tape->most);
        flow.y = carve_piece(rest, edge_count(&edge), tape->most.type);
        limit_edge(tape, i + 1, flow.y);
    }
    return flow;
}

/* Runs the layers of stage k forward and keeps the saved memory; the last layer writes into the
 * next edge. */
static enum sotto_status run_forward(struct tape *tape, int k, const struct view *theta)
{
    const struct model *m = tape->model;
    struct tape_stage *s = &tape->stage[k];
    struct view next = view_none;
    if (k + 1 < m->n_stage)
        TRY(tape_edge(tape, k + 1, &next));
    if (!s->saved)
        TRY(pool_take(tape->pool, DTYPE_F32, saved_bytes(tape, k) / 4, &s->saved));
    tape->pass.half = theta[k].type == DTYPE_BF16;
    struct room rest = buffer_room(&s->saved->buffer);
    struct view x = s->edge ? s->edge->buffer.view : view_none;
    for (int i = m->first[k]; i < m->first[k + 1]; i++) {
        struct layer_flow flow = place_layer(tape, k, i, &rest);
        flow.x = x;
        if (i + 1 == m->first[k + 1])
            flow.y = next;
        m->layer[i]->ops->forward(m->layer[i], &tape->pass, theta, flow);
        x = flow.y;
    }
    return device_failed(tape->dev);
}

enum sotto_status tape_forward(struct tape *tape, int k, const struct view *theta)
{
    assert(k == 0 || tape->stage[k].edge);
    if (tape->recompute && tape->pass.training && k + 1 == tape->model->n_stage)
        return SOTTO_OK; /* the output has no reader; backward runs this stage */
    tape->pass.again = false;
    TRY(run_forward(tape, k, theta));
    struct tape_stage *s = &tape->stage[k];
    if (tape->recompute || !tape->pass.training)
        drop_block(tape, &s->saved);
    if (!tape->pass.training) {
        drop_block(tape, &s->edge);
        tape->scored |= k + 1 == tape->model->n_stage;
    }
    return SOTTO_OK;
}

/* Fills tape->flow with the edges and saved memory of the layers of stage k, where forward placed
 * them. */
static void place_stage(struct tape *tape, int k)
{
    const int *first = tape->model->first + k;
    const struct tape_stage *s = &tape->stage[k];
    struct layer_flow *flow = tape->flow;
    struct room rest = buffer_room(&s->saved->buffer);
    for (int i = 0; i < first[1] - first[0]; i++) {
        flow[i] = place_layer(tape, k, first[0] + i, &rest);
        flow[i].x = i ? flow[i - 1].y : s->edge ? s->edge->buffer.view : view_none;
    }
}

/* True if gradients are summed into other memory. Threads of a large processor wait for each
 * other's caches when they add to a gradient that all of them have just read: norms took 2.7 times
 * longer than with a sum elsewhere. Needs memory, as keeping all results does (device_keeps). */
static bool adds_elsewhere(const struct tape *tape)
{
    return tape->most.all && tape->dev->ops->own_caches;
}

/* Sets `dx`, the block for the gradient of layer i's input: `dy` itself if the layer only adds to
 * the gradient and may add in place, NULL for the first layer. */
static enum sotto_status take_gradient(struct tape *tape, int i, struct pool_block *dy,
                                       struct pool_block **dx)
{
    const bool passes_on = tape->model->layer[i]->ops->passes_on;
    const bool in_place = passes_on && !adds_elsewhere(tape);
    *dx = in_place ? dy : NULL;
    if (in_place || i == 0)
        return SOTTO_OK;
    const struct edge edge = edge_before(tape, i, tape->most);
    TRY((passes_on ? pool_take_rested : pool_take)(tape->pool, tape->most.type, edge_count(&edge),
                                                   dx));
    limit_edge(tape, i, (*dx)->buffer.view);
    return SOTTO_OK;
}

/* Writes zeros where layers of a fresh stage add to the gradient: between the tensors that layers
 * write, and after the last tensor, the padding. The last stage writes a table of the first stage
 * if the table is tied. */
static void clear_between(struct tape *tape, int k, struct view grad)
{
    const struct table *table = &tape->model->table;
    struct range gap = {0};
    for (int i = 0; i <= table->n; i++) {
        const struct table_entry *e = i < table->n ? &table->entry[i] : NULL;
        if (e && (e->stage != k || !e->written))
            continue;
        gap.end = e ? e->offset : table_stage_count(table, k);
        if (gap.end > gap.begin)
            tape->dev->ops->fill(tape->dev, view_at(grad, gap.begin), gap.end - gap.begin, 0);
        gap.begin = e ? e->offset + e->count : gap.end;
    }
}

enum sotto_status tape_backward(struct tape *tape, int k, const struct view *theta,
                                const struct view *grad)
{
    const struct model *m = tape->model;
    struct tape_stage *s = &tape->stage[k];
    assert(tape->pass.training);
    assert(k + 1 == m->n_stage || tape->stage[k + 1].dedge);
    if (!s->saved) {
        tape->pass.again = k + 1 < m->n_stage; /* the last stage's forward was put off until now */
        TRY(run_forward(tape, k, theta));
    }
    tape->pass.half = theta[k].type == DTYPE_BF16;
    if (tape->pass.fresh)
        clear_between(tape, k, grad[k]);
    place_stage(tape, k);
    struct pool_block *dy = tape->stage[k + 1].dedge, *dx; /* passed on by layers */
    tape->stage[k + 1].dedge = NULL;
    for (int i = m->first[k + 1] - 1; i >= m->first[k]; i--, dy = dx) {
        struct layer_flow *flow = &tape->flow[i - m->first[k]];
        const enum sotto_status st = take_gradient(tape, i, dy, &dx);
        if (st != SOTTO_OK) {
            pool_give(tape->pool, dy);
            return st;
        }
        flow->dy = dy ? dy->buffer.view : view_none;
        flow->dx = dx ? dx->buffer.view : view_none;
        m->layer[i]->ops->backward(m->layer[i], &tape->pass, theta, grad, *flow);
        if (i + 1 == m->n_layer)
            tape->scored_at = device_mark(tape->dev);
        if (dx != dy)
            pool_give(tape->pool, dy);
    }
    s->dedge = dy;
    drop_block(tape, &s->saved);
    drop_block(tape, &s->edge);
    if (k + 1 < m->n_stage)
        drop_block(tape, &tape->stage[k + 1].edge);
    else
        tape->scored = true;
    return device_failed(tape->dev);
}

enum sotto_status tape_run(struct tape *tape, const struct batch *batch, enum tape_mode mode,
                           float scale, const struct view *theta, const struct view *grad)
{
    const int n = tape->model->n_stage;
    TRY(tape_begin(tape, batch, mode, scale));
    for (int k = 0; k < n; k++)
        TRY(tape_forward(tape, k, theta));
    for (int k = n - 1; k >= 0 && mode == TAPE_TRAIN; k--)
        TRY(tape_backward(tape, k, theta, grad));
    return SOTTO_OK;
}

struct tape_result tape_result(struct tape *tape, struct device *dev)
{
    struct tape_result r = {0};
    const size_t targets = (size_t)tape->batch->rows * (size_t)tape->batch->t;
    device_follow(dev, tape->scored_at);
    if (tape->scored)
        dev->ops->read(dev, tape->host_losses, tape->losses.view, targets);
    if (tape->scored && tape->want_hits)
        dev->ops->read(dev, tape->host_places, tape->places.view, targets);
    for (size_t i = 0; i < targets; i++) {
        if (tape->batch->targets[i] < 0)
            continue;
        r.targets++;
        if (!tape->scored)
            continue;
        r.loss += tape->host_losses[i];
        r.hits += tape->want_hits && tape->host_places[i] == 1;
        r.near += tape->want_hits && tape->host_places[i] <= TAPE_NEAR;
    }
    return r;
}

size_t tape_edge_count(const struct tape *tape, int k)
{
    struct edge edge = edge_of_stage(tape, k, tape->pass.extent);
    return edge_count(&edge);
}

static enum sotto_status edge_block(struct tape *tape, int k, struct pool_block **block,
                                    struct view *out)
{
    assert(k >= 1 && k < tape->model->n_stage);
    struct edge edge = edge_of_stage(tape, k, tape->most);
    if (!*block)
        TRY(pool_take(tape->pool, tape->most.type, edge_count(&edge), block));
    *out = (*block)->buffer.view;
    limit_edge(tape, tape->model->first[k], *out);
    return SOTTO_OK;
}

enum sotto_status tape_edge(struct tape *tape, int k, struct view *out)
{
    return edge_block(tape, k, &tape->stage[k].edge, out);
}

enum sotto_status tape_edge_gradient(struct tape *tape, int k, struct view *out)
{
    return edge_block(tape, k, &tape->stage[k].dedge, out);
}

void tape_edge_drop(struct tape *tape, int k)
{
    drop_block(tape, &tape->stage[k].edge);
    drop_block(tape, &tape->stage[k].dedge);
}

#include "train/plan/estimate.h"

#include <stdlib.h>

#include "tensor/ops.h"

/* Largest micro-batch, in tokens or pixels, that is tried as a whole; the memory of more rows is
 * extrapolated. */
enum { TOKENS_TRIED = 1 << 16, PIXELS_TRIED = 1 << 22 };

/* Views of all stages, without data. */
struct empty_views {
    struct view *theta, *grad; /* (n_stage) */
};

/* Fills all slots: the most micro-batches that may be in flight. */
static enum sotto_status try_all(struct tape *tape, int slots, const struct batch *batch,
                                 const struct empty_views *none)
{
    const int n = tape->model->n_stage;
    for (int i = 0; i < slots; i++) {
        TRY(tape_begin(&tape[i], batch, TAPE_TRAIN, 1));
        for (int k = 0; k < n; k++)
            TRY(tape_forward(&tape[i], k, none->theta));
    }
    for (int i = 0; i < slots; i++)
        for (int k = n - 1; k >= 0; k--)
            TRY(tape_backward(&tape[i], k, none->theta, none->grad));
    return SOTTO_OK;
}

/* Evaluates as between rounds, with a separate tape. */
static enum sotto_status try_evaluation(const struct model *model, struct pool *pool,
                                        const struct estimate_what *what, const struct batch *batch,
                                        const struct view *none)
{
    struct tape tape;
    if (!what->evaluates)
        return SOTTO_OK;
    struct extent e = what->e;
    e.all = false;
    TRY(tape_init(&tape, model, pool->dev, pool, e, false));
    const enum sotto_status st = tape_run(&tape, batch, TAPE_EVALUATE, 0, none, NULL);
    tape_free(&tape);
    return st;
}

/* Tries two rounds. If no micro-batch is in flight between rounds, the second round repeats the
 * first. */
static enum sotto_status try_tape_rounds(const struct model *model, struct pool *pool,
                                         const struct estimate_what *what, struct tape *tape,
                                         const struct batch *batch, const struct empty_views *none)
{
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        if (!what->calls) {
            if (what->slots)
                TRY(try_all(tape, what->slots, batch, none));
            continue;
        }
        at = at == what->calls->n ? 0 : at;
        TRY(call_log_replay(what->calls, &at, tape, batch, none->theta, none->grad));
        if (at < what->calls->n)
            TRY(try_evaluation(model, pool, what, batch, none->theta));
    }
    return try_evaluation(model, pool, what, batch, none->theta);
}

static enum sotto_status try_tapes(const struct model *model, struct pool *pool,
                                   const struct estimate_what *what)
{
    const int slots = what->slots;
    struct batch batch = {0};
    struct tape *tape = calloc((size_t)slots + 1, sizeof *tape);
    struct view *views = calloc(2 * (size_t)model->n_stage, sizeof *views);
    const struct empty_views none = {views, views + model->n_stage};
    enum sotto_status st = batch_init_of(&batch, &model->sample, what->e.rows, what->e.t);
    if (st == SOTTO_OK && (!views || !tape))
        st = fail(SOTTO_ENOMEM, "no memory for %d stages", model->n_stage);
    for (int k = 0; k < model->n_stage && st == SOTTO_OK; k++) {
        none.theta[k] = (struct view){NULL, what->theta, pool->dev->ops->place};
        none.grad[k] = (struct view){NULL, what->grad, pool->dev->ops->place};
    }
    for (int i = 0; i < slots && st == SOTTO_OK; i++)
        st = tape_init(&tape[i], model, pool->dev, pool, what->e, what->recompute);
    if (st == SOTTO_OK)
        st = try_tape_rounds(model, pool, what, tape, &batch, &none);
    for (int i = 0; i < slots && tape; i++)
        if (tape[i].model)
            tape_free(&tape[i]);
    batch_free(&batch);
    free(tape);
    free(views);
    return st;
}

static enum sotto_status try_model(const struct model *model, const struct estimate_what *what,
                                   struct estimate_model *out)
{
    struct memory memory = {0};
    struct device dev;
    struct pool pool;
    TRY(what->device ? device_open_counting(&dev, what->device, &memory, what->threads)
                     : device_open(&dev, "null", &memory, 1));
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    enum sotto_status st = try_tapes(model, &pool, what);
    *out = (struct estimate_model){(double)memory.peak[MEMORY_ACTIVATIONS],
                                   (double)memory.peak[MEMORY_SCRATCH]};
    pool_free(&pool);
    device_close(&dev);
    return st;
}

static double extrapolate_rows(double at_half, double at_most, double rows, double most)
{
    return at_most + (at_most - at_half) / (most - most / 2) * (rows - most);
}

enum sotto_status estimate_model(const struct model *model, struct estimate_what what,
                                 struct estimate_model *out)
{
    const int rows = what.e.rows;
    const int each = (int)sample_count(&model->sample, what.e.t);
    const int tried = model->sample.content == SAMPLE_TOKENS ? TOKENS_TRIED : PIXELS_TRIED;
    const int most = tried / each > 2 ? tried / each / 2 * 2 : 2;
    if (rows <= most)
        return try_model(model, &what, out);
    struct estimate_model a, b;
    what.e.rows = most / 2;
    TRY(try_model(model, &what, &a));
    what.e.rows = most;
    TRY(try_model(model, &what, &b));
    out->activations = extrapolate_rows(a.activations, b.activations, rows, most);
    out->scratch = extrapolate_rows(a.scratch, b.scratch, rows, most);
    return SOTTO_OK;
}

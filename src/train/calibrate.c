#include "train/calibrate.h"

#include <stdlib.h>

enum { TRIES = 3 };

static enum sotto_status measure(struct run *run, struct worker *w, struct device *dev,
                                 struct pool *pool, struct buffer *g, struct view *stages,
                                 double *seconds)
{
    const struct train_config *c = &run->config.train;
    const struct table *table = &run->model.table;
    struct view *theta = stages, *grad = stages + table->n_stage;
    table_stages(table, (struct view){run->start, DTYPE_F32}, theta);
    table_stages(table, g->view, grad);
    struct model_oracle_setup setup = {
        .model = &run->model,
        .dev = dev,
        .pool = pool,
        .loader = run->train,
        .seed = (uint64_t)c->seed,
        .rows = c->batch,
        .t = c->seq,
        .recompute = c->recompute,
        .worker = w,
    };
    struct model_oracle o;
    struct oracle_result r;
    TRY(model_oracle_init(&o, &setup));
    enum sotto_status st = SOTTO_OK;
    for (int i = 0; i < TRIES && st == SOTTO_OK; i++) {
        double before = clock_now(w->clock);
        st = oracle_gradient(&o.base, i, false, theta, grad, &r);
        double took = clock_now(w->clock) - before;
        if (i == 0 || took < *seconds) /* the least disturbed */
            *seconds = took;
    }
    model_oracle_free(&o);
    return st;
}

static enum sotto_status measure_here(struct run *run, double *seconds)
{
    struct worker w;
    struct memory memory = {0};
    struct device dev = {0};
    struct pool pool = {0};
    struct buffer g = {0};
    struct view *stages = calloc(2 * (size_t)run->model.table.n_stage, sizeof *stages);
    if (!stages)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", run->model.table.n_stage);
    enum sotto_status st = worker_alone(&w);
    if (st == SOTTO_OK)
        st = device_open(&dev, run->config.train.device, &memory, 1);
    if (st == SOTTO_OK)
        st = buffer_init(&g, &dev, DTYPE_F32, table_count(&run->model.table), MEMORY_GRADIENTS);
    if (st == SOTTO_OK) {
        pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
        st = measure(run, &w, &dev, &pool, &g, stages, seconds);
        pool_free(&pool);
    }
    buffer_free(&g);
    if (dev.ops)
        device_close(&dev);
    comm_free(w.world);
    free(stages);
    return st;
}

enum sotto_status run_calibrate(struct run *run)
{
    char *step = run->config.worker.step;
    if (run->config.train.time != TIME_VIRTUAL)
        return SOTTO_OK;
    if (!*step && run->before) /* so that times stay comparable */
        snprintf(step, OPTION_ROOM, "%s", run->before->worker.step);
    if (!*step) {
        double seconds = 0;
        TRY(measure_here(run, &seconds));
        snprintf(step, OPTION_ROOM, "%.4gs", seconds);
    }
    return config_seconds("worker.step", step, &run->microbatch_seconds);
}

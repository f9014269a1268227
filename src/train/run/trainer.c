#include "train/run/trainer.h"

#include <stdlib.h>

#include "comm/mpi/mpi.h"
#include "train/config/diverged.h"

enum sotto_status run_agree(const struct run *run, struct comm *mpi)
{
    struct option_section sections[RUN_SECTIONS];
    run_sections((struct run_config *)&run->config, sections); /* only read */
    char *text = option_dump(sections, RUN_SECTIONS);
    if (!text)
        return fail(SOTTO_ENOMEM, "no memory for the configuration");
    enum sotto_status st = comm_agree(mpi, "the configuration", text);
    free(text);
    return st;
}

/* Processes read data of their own: the same names must have held the same. */
static enum sotto_status agree_start(struct run *run, struct worker *w)
{
    char text[128];
    if (!run->cluster.mpi)
        return SOTTO_OK;
    TRY(run_agree(run, w->world));
    snprintf(text, sizeof text, "%lld training %s", (long long)loader_tokens(run->train),
             run_kind(run)->unit);
    return comm_agree(w->world, "what training begins with", text);
}

static enum sotto_status open_oracle(struct trainer *t)
{
    struct run *run = t->run;
    const struct train_config *c = &run->config.train;
    const int slots = strategy_slots(&run->config.strategy);
    pool_init(&t->pool, &t->dev, MEMORY_ACTIVATIONS);
    if (c->trace)
        TRY(trace_open(&t->trace, c->out, t->worker->rank, clock_now(t->worker->clock)));
    struct trace *trace = c->trace ? &t->trace : NULL;
    if (c->oracle == ORACLE_NULL) {
        const struct null_config null = {.seconds = run->microbatch_seconds,
                                         .tokens = (int64_t)c->batch * c->seq,
                                         .activations = (size_t)run->config.null.activation_bytes,
                                         .slots = slots,
                                         .trace = trace};
        TRY(null_oracle_init(&t->null_oracle, run->table, t->worker, &t->dev, &null));
        t->oracle = &t->null_oracle.base;
        return SOTTO_OK;
    }
    TRY(running_init(&t->running, &run->model, &t->dev, run->start_state));
    struct model_oracle_setup setup = {
        .model = &run->model,
        .dev = &t->dev,
        .pool = &t->pool,
        .loader = run->train,
        .seed = (uint64_t)c->seed,
        .rows = c->batch,
        .t = c->seq,
        .slots = slots,
        .all = run->keeps_all,
        .recompute = c->recompute,
        .activations = (enum dtype)c->activations,
        .state = t->running.own.view,
        .worker = t->worker,
        .seconds = run->microbatch_seconds,
        .trace = trace,
    };
    TRY(model_oracle_init(&t->model_oracle, &setup));
    t->oracle = &t->model_oracle.base;
    return SOTTO_OK;
}

static enum sotto_status open_metrics(struct trainer *t)
{
    struct run *run = t->run;
    TRY(metrics_open(&run->metrics, run->config.train.out, *run->checkpoint ? t->step : -1));
    run->metrics_open = true;
    return SOTTO_OK;
}

/* All workers have their parameters when everybody has come to the barrier. */
static enum sotto_status set_parameters(struct trainer *t)
{
    struct run *run = t->run;
    if (!run->start)
        return SOTTO_OK; /* the null oracle has none */
    TRY(t->strategy->ops->import(t->strategy, run->start));
    TRY(comm_barrier(t->worker->world));
    if (t->worker->rank == 0 || run->cluster.mpi) {
        free(run->start);
        free(run->start_state);
        run->start = run->start_state = NULL;
    }
    return SOTTO_OK;
}

enum sotto_status trainer_open(struct trainer *t, struct run *run, struct worker *w)
{
    *t = (struct trainer){.run = run, .worker = w};
    const struct run_config *c = &run->config;
    enum sotto_status st;
    if (w->ops->pause)
        w->ops->pause(w); /* until training begins */
    TRY_DONE(agree_start(run, w));
    const int threads = cluster_threads(&run->cluster);
    if (w->rank == 0)
        cluster_warn_cores(&run->cluster);
    TRY_DONE(cluster_pin(&run->cluster, w, threads));
    TRY_DONE(device_open(&t->dev, c->train.device, &t->memory, threads));
    TRY_DONE(open_oracle(t));
    TRY_DONE(mesh_open(&t->mesh, w, c->strategy.groups, &t->dev));
    const struct async_setup async = {
        .eval_every = run->valid ? c->train.eval_every : 0,
        .save_every = c->train.save_every,
        .save_seconds = run_keeps(run) && !w->ops->end_pause ? 60 * c->train.save_minutes : 0,
        .hook = &t->snapshot_hook,
    };
    struct strategy_setup setup = {
        .config = &c->strategy,
        .optim = &c->optim,
        .oracle = t->oracle,
        .dev = &t->dev,
        .mesh = &t->mesh,
        .before = run->before ? &run->before->optim : NULL,
        .async = &async,
    };
    TRY_DONE(strategy_open(&t->strategy, &setup));
    TRY_DONE(meter_init(&t->meter, w, t->oracle, &t->mesh));
    TRY_DONE(set_parameters(t));
    if (*run->checkpoint)
        TRY_DONE(trainer_load(t));
    if (w->rank == 0)
        TRY_DONE(open_metrics(t));
done:
    if (st != SOTTO_OK)
        trainer_close(t);
    return st;
}

enum sotto_status trainer_fail(struct trainer *t, enum sotto_status st)
{
    struct run *run = t->run;
    struct status_note note;
    if (st == SOTTO_OK || t->failed)
        return st;
    t->failed = true;
    const struct async *async = t->strategy->async; /* t->step is no step of its group's */
    st = diverged_advise(st, &run->config, async ? async_next_step(async, t->step) : t->step);
    if (st == SOTTO_ENUMERIC)
        run->diverged = t->step;
    status_save(&note, st);
    if (run->cluster.mpi && run->watch.failed && mpi_reports_failure(run->cluster.mpi))
        run->watch.failed(run->watch.arg, run, st);
    status_raise(&note);
    return mesh_abort(&t->mesh, st);
}

void trainer_close(struct trainer *t)
{
    meter_free(&t->meter);
    if (t->strategy)
        t->strategy->ops->free(t->strategy);
    if (t->snapshots)
        t->free_snapshots(t->snapshots);
    if (t->mesh.worker)
        mesh_close(&t->mesh);
    if (t->oracle == &t->model_oracle.base)
        model_oracle_free(&t->model_oracle);
    if (t->oracle == &t->null_oracle.base)
        null_oracle_free(&t->null_oracle);
    trace_close(&t->trace);
    running_free(&t->running);
    if (t->pool.dev)
        pool_free(&t->pool);
    if (t->dev.ops)
        device_close(&t->dev);
    *t = (struct trainer){0};
}

struct evaluating {
    struct trainer *t;
    const struct comm *among;
    const struct view *theta;
    struct evaluation e;
};

static enum sotto_status evaluate_share(void *arg)
{
    struct evaluating *job = arg;
    struct trainer *t = job->t;
    const struct train_config *c = &t->run->config.train;
    struct evaluation_range range = {.rows = c->batch,
                                     .t = c->seq,
                                     .activations = (enum dtype)c->activations,
                                     .state = t->running.mean.view,
                                     .batches = c->eval_batches,
                                     .part = job->among->rank,
                                     .parts = job->among->size};
    const size_t peak = t->pool.peak; /* of training, in whose middle this is */
    const enum sotto_status st =
        evaluate(&t->run->model, &t->dev, &t->pool, job->theta, t->run->valid, range, &job->e);
    t->pool.peak = peak;
    return st;
}

enum sotto_status trainer_evaluate(struct trainer *t, struct comm *among, struct evaluation *out)
{
    struct worker *w = t->worker;
    struct evaluating job = {.t = t, .among = among};
    TRY(t->strategy->ops->gather(t->strategy, &job.theta));
    TRY(running_average(&t->running, among));
    TRY(w->ops->compute(w, evaluate_share, &job, 0));
    double all[] = {job.e.loss * (double)job.e.targets, (double)job.e.targets, (double)job.e.hits,
                    (double)job.e.near};
    TRY(comm_sum(among, all, 4));
    *out = (struct evaluation){all[1] > 0 ? all[0] / all[1] : 0, (int64_t)all[1], (int64_t)all[2],
                               (int64_t)all[3], t->run->model.sample.content};
    return evaluation_check(out);
}

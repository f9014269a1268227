#include "train/run/run_worker.h"

#include <stdlib.h>

#include "comm/mpi/mpi.h"

enum sotto_status run_agree(const struct run *run, struct comm *mpi)
{
    struct option_section sections[RUN_SECTIONS];
    run_sections((struct run_config *)&run->config, sections); /* only read */
    return training_agree(mpi, "the configuration", sections, RUN_SECTIONS);
}

/* Fails unless all processes have the same configuration and amount of data, which each has read.
 */
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

static enum sotto_status open_null_oracle(struct run_worker *w, struct trace *trace)
{
    const struct run *run = w->run;
    const struct train_config *c = &run->config.train;
    const struct null_config null = {.seconds = run->microbatch_seconds,
                                     .tokens = (int64_t)c->batch * c->seq,
                                     .activations = (size_t)run->config.null.activation_bytes,
                                     .slots = strategy_slots(&run->config.strategy),
                                     .trace = trace};
    return null_oracle_init(&w->oracle.null, run->table, w->training.worker, &w->training.dev,
                            &null);
}

static enum sotto_status open_model_oracle(struct run_worker *w, struct trace *trace)
{
    const struct run *run = w->run;
    const struct train_config *c = &run->config.train;
    struct run_oracle *o = &w->oracle;
    struct device *dev = &w->training.dev;
    TRY(running_stats_init(&o->running, &run->model, dev, run->start_state));
    const struct model_oracle_setup setup = {
        .model = &run->model,
        .dev = dev,
        .pool = &o->pool,
        .loader = run->train,
        .seed = (uint64_t)c->seed,
        .rows = c->batch,
        .t = c->seq,
        .slots = strategy_slots(&run->config.strategy),
        .all = run->keeps_all,
        .recompute = c->recompute,
        .activations = (enum dtype)c->activations,
        .state = o->running.own.view,
        .worker = w->training.worker,
        .seconds = run->microbatch_seconds,
        .trace = trace,
    };
    return model_oracle_init(&o->model, &setup);
}

static enum sotto_status open_run_oracle(void *source, struct training *t, struct oracle **out)
{
    struct run_worker *w = source;
    struct run_oracle *o = &w->oracle;
    const struct train_config *c = &w->run->config.train;
    struct trace *trace = c->trace ? &o->trace : NULL;
    pool_init(&o->pool, &t->dev, MEMORY_ACTIVATIONS);
    if (trace)
        TRY(trace_open(trace, c->out, t->worker->rank, clock_now(t->worker->clock)));
    if (c->oracle == ORACLE_NULL) {
        TRY(open_null_oracle(w, trace));
        *out = &o->null.base;
        return SOTTO_OK;
    }
    TRY(open_model_oracle(w, trace));
    *out = &o->model.base;
    return SOTTO_OK;
}

static void close_run_oracle(void *source)
{
    struct run_worker *w = source;
    struct run_oracle *o = &w->oracle;
    if (w->snapshots) /* after the strategy, which called the snapshot hook, is closed */
        w->free_snapshots(w->snapshots);
    if (w->training.oracle == &o->model.base)
        model_oracle_free(&o->model);
    if (w->training.oracle == &o->null.base)
        null_oracle_free(&o->null);
    trace_close(&o->trace);
    running_stats_free(&o->running);
    if (o->pool.dev)
        pool_free(&o->pool);
}

static enum sotto_status visit_run_oracle(void *source, struct state_visitor *v)
{
    struct run_worker *w = source;
    return running_stats_visit(&w->oracle.running, v, w->training.worker);
}

static const struct training_source run_source = {
    .open = open_run_oracle, .close = close_run_oracle, .visit = visit_run_oracle};

/* Sets the parameters to begin with, and frees them once all workers have copied them. */
static enum sotto_status set_run_start(struct run_worker *w)
{
    struct run *run = w->run;
    if (!run->start)
        return SOTTO_OK; /* the null oracle has none */
    TRY(training_set_parameters(&w->training, run->start));
    if (w->training.worker->rank == 0 || run->cluster.mpi) {
        free(run->start);
        free(run->start_state);
        run->start = run->start_state = NULL;
    }
    return SOTTO_OK;
}

enum sotto_status run_worker_open(struct run_worker *w, struct run *run, struct worker *worker)
{
    const struct train_config *c = &run->config.train;
    *w = (struct run_worker){.run = run};
    if (worker->ops->pause)
        worker->ops->pause(worker); /* until training begins */
    TRY(agree_start(run, worker));
    const struct training_setup setup = {
        .cluster = &run->cluster,
        .worker = worker,
        .ops = &run_source,
        .source = w,
        .before = run->before ? &run->before->optim : NULL,
        .eval_every = run->valid ? c->eval_every : 0,
        .eval_seconds = run->valid ? c->eval_seconds : 0,
        .save_minutes = run_keeps(run) ? c->save_minutes : 0,
        .hook = &w->snapshot_hook,
        .stop = run->watch.stop,
        .counts_between = true,
    };
    TRY(training_open(&w->training, &setup));
    return set_run_start(w);
}

enum sotto_status run_worker_fail(struct run_worker *w, enum sotto_status st)
{
    struct run *run = w->run;
    struct status_note note;
    if (st == SOTTO_OK || w->failed)
        return st;
    w->failed = true;
    st = training_advise(&w->training, st);
    if (st == SOTTO_ENUMERIC)
        run->diverged = w->training.step;
    status_save(&note, st);
    if (run->cluster.mpi && run->watch.failed && mpi_reports_failure(run->cluster.mpi))
        run->watch.failed(run->watch.arg, run, st);
    status_raise(&note);
    return mesh_abort(&w->training.mesh, st);
}

void run_worker_close(struct run_worker *w)
{
    training_close(&w->training);
    *w = (struct run_worker){0};
}

struct run_evaluation {
    struct run_worker *w;
    const struct comm *among;
    const struct view *theta;
    struct evaluation e;
};

static enum sotto_status evaluate_share(void *arg)
{
    struct run_evaluation *job = arg;
    struct run_oracle *o = &job->w->oracle;
    const struct run *run = job->w->run;
    const struct train_config *c = &run->config.train;
    struct evaluation_range range = {.rows = c->batch,
                                     .t = c->seq,
                                     .activations = (enum dtype)c->activations,
                                     .state = o->running.mean.view,
                                     .batches = c->eval_batches,
                                     .part = job->among->rank,
                                     .parts = job->among->size};
    const size_t peak = o->pool.peak; /* of training, which an evaluation interrupts */
    const enum sotto_status st = evaluate(&run->model, &job->w->training.dev, &o->pool, job->theta,
                                          run->valid, range, &job->e);
    o->pool.peak = peak;
    return st;
}

enum sotto_status run_worker_evaluate(struct run_worker *w, struct comm *among,
                                      struct evaluation *out)
{
    struct worker *worker = w->training.worker;
    struct strategy *s = w->training.strategy;
    struct run_evaluation job = {.w = w, .among = among};
    TRY(s->ops->gather(s, &job.theta));
    TRY(running_stats_average(&w->oracle.running, among));
    TRY(worker->ops->compute(worker, evaluate_share, &job, 0));
    double all[] = {job.e.loss * (double)job.e.targets, (double)job.e.targets, (double)job.e.hits,
                    (double)job.e.near};
    TRY(comm_sum(among, all, 4));
    *out = (struct evaluation){all[1] > 0 ? all[0] / all[1] : 0, (int64_t)all[1], (int64_t)all[2],
                               (int64_t)all[3], w->run->model.sample.content};
    return evaluation_check(out);
}

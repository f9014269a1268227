/* Runs the workers of a run, from opening to the report. */
#include "train/checkpoint/save.h"
#include "train/config/budget.h"
#include "train/loop/loop.h"
#include "train/report/report.h"

/* Opens a worker as the run's checkpoint has left it or, without one, at the beginning. */
static enum sotto_status open_worker(struct run_worker *w, struct run *run, struct worker *worker)
{
    const bool resumed = *run->checkpoint;
    TRY(run_worker_open(w, run, worker));
    if (resumed)
        TRY(checkpoint_load(w));
    if (worker->rank > 0)
        return SOTTO_OK;
    TRY(metrics_open(&run->metrics, run->config.train.out, resumed ? w->training.step : -1));
    run->metrics_open = true;
    return SOTTO_OK;
}

static enum sotto_status run_loop(struct run_worker *w)
{
    struct loop l;
    bool stop = false;
    enum sotto_status st = loop_open(&l, w);
    if (st == SOTTO_OK)
        st = loop_begin(&l, &stop);
    if (st == SOTTO_OK)
        st = l.t->strategy->async ? loop_async_rounds(&l, stop) : loop_rounds(&l, stop);
    if (st == SOTTO_OK)
        st = loop_end(&l);
    st = run_worker_fail(w, st); /* before lanes are closed, which may wait for other workers */
    loop_close(&l);
    return st;
}

static enum sotto_status train_worker(struct worker *worker, void *arg)
{
    struct run_worker w;
    struct run *run = arg;
    enum sotto_status st = open_worker(&w, run, worker);
    const bool open = st == SOTTO_OK;
    if (open)
        st = run_loop(&w);
    run_worker_close(&w);
    if (!open && run->cluster.mpi) /* before the failure ends the processes of all ranks */
        rundir_discard(&run->dir);
    return st;
}

enum sotto_status run_train(struct run *run)
{
    const enum sotto_status st = cluster_run(&run->cluster, train_worker, run);
    if (st != SOTTO_OK && !run->metrics_open)
        rundir_discard(&run->dir);
    TRY(st);
    if (!run->cluster.leads)
        return SOTTO_OK;
    const char *place = run_place(run);
    TRY(report_write(run));
    if (run->result.complete && run->elsewhere)
        return fail(SOTTO_EIO,
                    "the run is at its end, step %lld, and %s cannot be written: "
                    "everything is saved in %s",
                    (long long)run->result.step, run->config.train.out, place);
    if (run->result.complete)
        return SOTTO_OK;
    if (!run_keeps(run))
        return fail(SOTTO_ESTOPPED,
                    "stopped at step %lld; nothing is saved; metrics and the report are in %s",
                    (long long)run->result.step, place);
    if (run->result.steps >= BUDGET_UNKNOWN)
        return fail(SOTTO_ESTOPPED, "stopped at step %lld; everything is saved in %s",
                    (long long)run->result.step, place);
    return fail(SOTTO_ESTOPPED, "stopped at step %lld of %lld; everything is saved in %s",
                (long long)run->result.step, (long long)run->result.steps, place);
}

/* The workers of a run, from their opening to its report. */
#include "train/config/budget.h"
#include "train/loop/loop.h"
#include "train/report/report.h"

static enum sotto_status run_loop(struct trainer *t)
{
    struct loop l;
    bool stop = false;
    enum sotto_status st = loop_open(&l, t);
    if (st == SOTTO_OK)
        st = loop_begin(&l, &stop);
    if (st == SOTTO_OK)
        st = t->strategy->async ? loop_async_rounds(&l, stop) : loop_rounds(&l, stop);
    if (st == SOTTO_OK)
        st = loop_end(&l);
    st = trainer_fail(t, st); /* before lanes are closed, which may wait for other workers */
    loop_close(&l);
    return st;
}

static enum sotto_status train_worker(struct worker *w, void *arg)
{
    struct trainer t;
    struct run *run = arg;
    enum sotto_status st = trainer_open(&t, run, w);
    if (st != SOTTO_OK && run->cluster.mpi) /* before it ends the processes of all ranks */
        rundir_discard(&run->dir);
    TRY(st);
    st = run_loop(&t);
    trainer_close(&t);
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

/* Runs a job on workers that are threads and talk by letters (mail.h). */
#include "comm/mail.h"

struct mail_worker {
    struct worker worker;
    pthread_t thread;
    worker_job *job;
    void *arg;
};

static enum sotto_status open_lane(struct worker *w, struct lane **out)
{
    (void)w;
    return lane_open_thread(out);
}

/* Real time needs no model of the `cost`. */
static enum sotto_status run_work(struct worker *w, lane_job *work, void *arg, double cost)
{
    (void)w, (void)cost;
    return work ? work(arg) : SOTTO_OK;
}

static const struct worker_ops worker_ops = {
    .name = "mail", .lane = open_lane, .compute = run_work, .move = run_work};

static void *run_worker(void *arg)
{
    struct mail_worker *w = arg;
    const enum sotto_status st = w->job(&w->worker, w->arg);
    struct status_note note;
    status_save(&note, st);
    if (st == SOTTO_OK)
        mail_end(w->worker.world);
    else
        w->worker.world->ops->abort(w->worker.world, &note);
    return NULL;
}

enum sotto_status engine_mail(const struct engine_config *config, worker_job *job, void *arg)
{
    const int n = config->workers, none[MAIL_MOST] = {0};
    const int *node = config->node ? config->node : none;
    struct mail_worker w[MAIL_MOST];
    struct office o;
    if (n > MAIL_MOST)
        return fail(SOTTO_EINVAL, "%d workers: this engine has room for %d", n, MAIL_MOST);
    office_open(&o);
    const uint64_t box = office_number(&o, 1);
    enum sotto_status st = SOTTO_OK;
    int made = 0, started = 0;
    while (made < n && st == SOTTO_OK) {
        w[made] = (struct mail_worker){
            .worker = {.ops = &worker_ops, .rank = made, .size = n, .clock = &clock_real},
            .job = job,
            .arg = arg};
        st = mail_open(&o, box, made, n, node, &w[made].worker.world);
        made += st == SOTTO_OK;
    }
    while (started < n && st == SOTTO_OK) {
        if (pthread_create(&w[started].thread, NULL, run_worker, &w[started]))
            st = fail(SOTTO_ENOMEM, "cannot start thread %d of %d", started, n);
        started += st == SOTTO_OK;
    }
    struct status_note note;
    status_save(&note, st);
    if (st != SOTTO_OK)
        office_abort(&o, &note);
    for (int r = 0; r < started; r++)
        pthread_join(w[r].thread, NULL);
    for (int r = 0; r < made; r++)
        comm_free(w[r].worker.world);
    note = o.note;
    office_close(&o);
    return status_raise(&note);
}

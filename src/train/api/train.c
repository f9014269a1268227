/* sotto_run, which runs a job on all workers, and sotto_train, the loop for most programs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/api/api_impl.h"

struct api_run {
    struct cluster cluster;
    struct run_config config;
    sotto_job *job;
    void *arg;
};

static enum sotto_status run_job(struct worker *w, void *arg)
{
    const struct api_run *r = arg;
    struct sotto_worker worker = {w, &r->cluster};
    return r->job(&worker, r->arg);
}

/* Refuses a device that computes nothing: callbacks need parameters. */
static enum sotto_status check_embed_device(const char *name)
{
    if (strcmp(name, "null") != 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "train.device = %s: callbacks need cpu or reference", name);
}

enum sotto_status sotto_run(const struct sotto_options *options, sotto_job *job, void *arg)
{
    struct sotto_options *defaults = NULL;
    struct api_run *r = calloc(1, sizeof *r); /* too long for a stack */
    enum sotto_status st = SOTTO_OK;
    if (!r)
        st = fail(SOTTO_ENOMEM, "no memory for a configuration");
    if (st == SOTTO_OK && !options)
        st = sotto_options_create(&defaults);
    if (st == SOTTO_OK) {
        r->config = options ? options->config : defaults->config;
        r->job = job;
        r->arg = arg;
        st = cluster_open(&r->cluster, &r->config);
    }
    if (st == SOTTO_OK) {
        st = check_embed_device(r->config.train.device);
        st = st == SOTTO_OK ? cluster_run(&r->cluster, run_job, r) : cluster_abort(&r->cluster, st);
        cluster_close(&r->cluster);
    }
    sotto_options_destroy(defaults);
    free(r);
    return st;
}

struct api_loop {
    struct sotto_training is;
    struct sotto_result result; /* of the first worker of this process */
    bool stopped;
};

static struct sotto_result train_result(const struct sotto_trainer *t, double loss,
                                        const struct worker_report *all)
{
    const struct worker *w = t->training.worker;
    struct cost_joint joint = {0};
    struct sotto_result r = {.struct_size = sizeof r,
                             .step = t->training.step,
                             .rank = w->rank,
                             .workers = w->size,
                             .loss = loss};
    for (int i = 0; i < r.workers; i++) {
        const struct worker_report *a = &all[i];
        cost_join(&joint, &a->cost);
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
            r.memory[c] = a->memory[c] > r.memory[c] ? a->memory[c] : r.memory[c];
        r.memory_total = a->memory_total > r.memory_total ? a->memory_total : r.memory_total;
    }
    const struct cost cost = cost_mean(&joint);
    r.cost = api_cost(&cost);
    r.cost.seconds = joint.slowest;
    cluster_describe(t->worker->cluster, r.cluster);
    return r;
}

static enum sotto_status conclude_training(struct api_loop *l, struct sotto_trainer *t, double loss)
{
    const int size = t->training.worker->size;
    const bool first = is_first_here(t->worker);
    struct worker_report *all = calloc((size_t)size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", size);
    enum sotto_status st = training_report(&t->training, 0, all);
    if (st == SOTTO_OK)
        st = sotto_trainer_parameters(t, first ? l->is.parameters : NULL);
    if (st == SOTTO_OK && first)
        l->result = train_result(t, loss, all);
    free(all);
    return st;
}

/* Fails if the checkpoint's folder cannot be written: before training. */
static enum sotto_status check_place(const char *path)
{
    char folder[FILE_PATH_ROOM];
    rescue_parent(path, folder);
    return access(folder, W_OK | X_OK) == 0
               ? SOTTO_OK
               : fail_errno(SOTTO_EIO, "the checkpoint %s: cannot write in %s", path, folder);
}

/* Fails if the checkpoint of the end is in another place than wanted. */
static enum sotto_status check_saved(const struct api_loop *l, const struct sotto_trainer *t)
{
    if (!*t->rescue.elsewhere)
        return SOTTO_OK;
    return fail(SOTTO_EIO,
                "%s cannot be written: step %lld, with which training ends, is saved in "
                "%s; with that file as its checkpoint training continues from there",
                l->is.checkpoint, (long long)t->training.step, t->rescue.elsewhere);
}

/* Loads the checkpoint if rank 0, which alone looks, finds the file. */
static enum sotto_status load_if_there(const struct api_loop *l, struct sotto_trainer *t)
{
    struct worker *w = t->training.worker;
    const char *path = l->is.checkpoint;
    t->rescue.wanted = path != NULL;
    if (path && w->rank == 0)
        TRY(check_place(path));
    double found = path && w->rank == 0 && file_exists(path);
    TRY(comm_sum(w->world, &found, 1));
    return found > 0 ? sotto_trainer_load(t, path) : SOTTO_OK;
}

static void observe_round(const struct api_loop *l, struct sotto_trainer *t,
                          const struct sotto_round *r)
{
    if (l->is.observe && l->is.observe(l->is.observer, r))
        sotto_trainer_stop(t);
}

/* Rank 0 reports a round or, of asynchronous groups, the pushes since the last look. *loss: of the
 * last. */
static enum sotto_status observe_progress(const struct api_loop *l, struct sotto_trainer *t,
                                          const struct sotto_round *r, double *loss)
{
    const bool leads = t->training.worker->rank == 0;
    struct sotto_push push = {.struct_size = sizeof push};
    if (!r->idle)
        *loss = r->loss;
    if (!trainer_is_async(t) && leads)
        observe_round(l, t, r);
    for (bool found = leads && trainer_is_async(t); found;) {
        TRY(sotto_trainer_pushed(t, &push, &found));
        if (!found)
            break;
        const struct sotto_round of_push = api_push_round(t, &push, r);
        *loss = push.loss;
        observe_round(l, t, &of_push);
    }
    return SOTTO_OK;
}

/* True on all workers if a checkpoint is due after a round after which all meet. */
static bool train_save_is_due(const struct sotto_trainer *t, const struct sotto_round *r)
{
    if (r->over || trainer_is_async(t)) /* asynchronous groups meet to save or to end */
        return true;
    return training_is_due(r->step, t->training.config->train.save_every) ||
           training_save_due(&t->training);
}

static enum sotto_status make_rounds(struct api_loop *l, struct sotto_trainer *t)
{
    const struct sotto_training *is = &l->is;
    const int64_t *step = &t->training.step, steps = t->training.config->train.steps;
    struct sotto_round r = {.struct_size = sizeof r};
    double loss = 0;
    if (is->pushes)
        TRY(trainer_need_pushes(t));
    TRY(load_if_there(l, t));
    for (r.over = *step >= steps; !r.over;) {
        TRY(sotto_trainer_round(t, &r));
        TRY(observe_progress(l, t, &r, &loss));
        if (!is->checkpoint || !r.meet || !train_save_is_due(t, &r))
            continue;
        TRY(fail_in(sotto_trainer_save(t, is->checkpoint), "step %lld: ", (long long)*step));
        training_schedule_save(&t->training);
    }
    TRY(check_saved(l, t));
    if (is_first_here(t->worker))
        l->stopped = r.stop && *step < steps;
    if (is->pushes)
        TRY(sotto_trainer_pushes(t, is->pushes));
    return conclude_training(l, t, loss);
}

static enum sotto_status train_problem(struct sotto_worker *worker, void *arg)
{
    struct api_loop *l = arg;
    struct sotto_trainer *t;
    TRY(trainer_create(&t, worker, l->is.problem, l->is.parameters,
                       l->is.checkpoint ? worker->cluster->config->train.save_minutes : 0));
    return sotto_trainer_destroy(t, make_rounds(l, t));
}

enum sotto_status sotto_train(const struct sotto_training *training, struct sotto_result *result)
{
    struct api_loop l = {.stopped = false};
    struct sotto_result none = {.struct_size = sizeof none};
    TRY(API_READ(sotto_training, checkpoint, &l.is, training));
    if (!result)
        result = &none;
    TRY(API_WRITE(sotto_result, cluster, result, &none)); /* refused before training */
    TRY(sotto_run(l.is.options, train_problem, &l));
    TRY(API_WRITE(sotto_result, cluster, result, &l.result));
    return l.stopped ? fail(SOTTO_ESTOPPED, "stopped at step %lld", (long long)l.result.step)
                     : SOTTO_OK;
}

/* A trainer in one file: the parameters by name, and the state of all workers. */
#include <stdlib.h>

#include "train/api/api_impl.h"
#include "train/open/resume.h"
#include "train/run/lend.h"

struct trainer_saving {
    struct sotto_trainer *t;
    float *padded; /* the parameters, on rank 0 */
    const char *path;
};

static enum sotto_status visit_parameters(struct sotto_trainer *t, struct state_visitor *v,
                                          float *padded)
{
    TRY(state_enter(v, "parameters"));
    TRY(state_table(v, &t->table, NULL, MEMORY_PARAMETERS, NULL, view_of(padded, DTYPE_F32)));
    state_leave(v);
    return SOTTO_OK;
}

/* Visits the method and the optimizer that the state is of. */
static enum sotto_status visit_methods(struct sotto_trainer *t, struct state_visitor *v)
{
    const struct run_config *c = t->training.config;
    int64_t kind = c->optim.kind;
    t->before = (struct optim_config){.kind = c->optim.kind, .momentum = c->optim.momentum};
    TRY(training_visit_method(&t->training, v));
    TRY(state_count(v, "optim.kind", &kind, OPTIM_SGD));
    TRY(state_within(v, "optim.momentum", &t->before.momentum, 0, 1));
    t->before.kind = (int)kind;
    if (!state_loading(v))
        return SOTTO_OK;
    return resume_check_optim(&c->strategy, &t->before, &c->optim, "the trainer that was saved");
}

/* Visits all but the parameters. */
static enum sotto_status visit_state(struct sotto_trainer *t, struct state_visitor *v)
{
    struct training *tr = &t->training;
    TRY(visit_methods(t, v));
    TRY(state_count(v, "step", &tr->step, STATE_STEPS));
    TRY(state_within(v, "microbatch_seconds", &t->oracle.seconds, 0, 1e9));
    TRY(state_within(v, "memory_bandwidth", &tr->worker->memory, 0, 1e15));
    TRY(meter_visit_costs(&tr->meter, v));
    return training_visit(tr, v);
}

static enum sotto_status visit_trainer(void *trainer_saving, struct state_visitor *v)
{
    struct trainer_saving *s = trainer_saving;
    if (s->padded)
        TRY(visit_parameters(s->t, v, s->padded));
    return visit_state(s->t, v);
}

static enum sotto_status write_saver(void *saver, const char *path)
{
    return state_saver_write(saver, path);
}

static enum sotto_status write_trainer(void *trainer_saving, struct state_visitor *saver)
{
    const struct trainer_saving *s = trainer_saving;
    struct sotto_trainer *t = s->t;
    char what[48];
    if (!t->rescue.wanted)
        return state_saver_write(saver, s->path);
    snprintf(what, sizeof what, "step %lld", (long long)t->training.step);
    return rescue_file(&t->rescue.state, what, s->path, (double)state_saver_bytes(saver),
                       write_saver, saver, t->rescue.elsewhere);
}

enum sotto_status sotto_trainer_save(struct sotto_trainer *t, const char *path)
{
    struct training *tr = &t->training;
    struct trainer_saving s = {.t = t, .path = path};
    TRY(trainer_need_meeting(t, "save", false));
    TRY(trainer_keep_failure(t, trainer_pause(t)));
    TRY(trainer_keep_failure(t, training_export(tr, tr->worker->rank == 0, &s.padded)));
    enum sotto_status st = training_save(tr, visit_trainer, write_trainer, &s);
    training_drop(tr, s.padded);
    if (st == SOTTO_OK) /* no worker reads the file before */
        st = comm_barrier(tr->worker->world);
    if (st == SOTTO_OK)
        st = trainer_continue(t);
    return trainer_keep_failure(t, st);
}

/* Loads the parameters first: a method may make part of its state from the parameters, which the
 * file then replaces. */
static enum sotto_status load_state(struct sotto_trainer *t, struct state_visitor *v)
{
    struct training *tr = &t->training;
    const struct worker_config *c = &tr->config->worker;
    const double given = *c->step ? t->oracle.seconds : -1;
    const double memory = *c->memory || *c->step ? tr->worker->memory : -1;
    float *padded = calloc(table_count(&t->table), sizeof *padded);
    if (!padded)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", table_count(&t->table));
    enum sotto_status st = visit_parameters(t, v, padded);
    if (st == SOTTO_OK)
        st = tr->strategy->ops->import(tr->strategy, padded);
    if (st == SOTTO_OK)
        st = visit_state(t, v);
    if (given >= 0)
        t->oracle.seconds = given;
    if (memory >= 0)
        tr->worker->memory = memory;
    free(padded);
    TRY(st);
    return resume_finish(v, tr->method, &tr->config->strategy, tr->worker->rank == 0);
}

enum sotto_status sotto_trainer_load(struct sotto_trainer *t, const char *path)
{
    struct comm *mpi = t->worker->cluster->mpi;
    struct state_visitor v;
    struct state_file file;
    struct lent lent;
    if (t->groups.begun)
        return fail(SOTTO_EINVAL, "asynchronous groups load before their first round");
    TRY(trainer_keep_failure(t, trainer_pause(t)));
    TRY(trainer_keep_failure(t, lent_open(&lent, mpi, &file, path)));
    state_loader_init(&v, &file);
    enum sotto_status st = lent_begin(&lent);
    if (st == SOTTO_OK)
        st = lent_end(&lent, fail_in(load_state(t, &v), "%s: ", path));
    state_free(&v);
    if (st == SOTTO_OK) /* no worker replaces the file while others read */
        st = comm_barrier(t->worker->worker->world);
    if (st == SOTTO_OK || !mpi)
        lent_close(&lent);
    state_file_close(&file);
    if (st == SOTTO_OK)
        st = trainer_continue(t);
    return trainer_keep_failure(t, st);
}

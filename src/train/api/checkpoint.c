/* A trainer in one file: the parameters by name, and the state of all workers. */
#include <stdlib.h>

#include "train/api/api_impl.h"
#include "train/open/resume.h"
#include "train/run/gather.h"
#include "train/run/lend.h"

struct saving {
    struct sotto_trainer *t;
    float *padded; /* the parameters, on rank 0 */
};

static enum sotto_status visit_parameters(struct sotto_trainer *t, struct state_visitor *v,
                                          float *padded)
{
    TRY(state_enter(v, "parameters"));
    TRY(state_table(v, &t->table, NULL, MEMORY_PARAMETERS, NULL, view_of(padded, DTYPE_F32)));
    state_leave(v);
    return SOTTO_OK;
}

/* What it was trained with. */
static enum sotto_status visit_about(struct sotto_trainer *t, struct state_visitor *v)
{
    const struct run_config *c = t->worker->cluster->config;
    int64_t kind = c->optim.kind;
    t->before = (struct optim_config){.kind = c->optim.kind, .momentum = c->optim.momentum};
    strategy_describe(&c->strategy, t->method);
    TRY(state_text(v, "method", t->method, sizeof t->method));
    TRY(state_count(v, "optim.kind", &kind, OPTIM_SGD));
    TRY(state_within(v, "optim.momentum", &t->before.momentum, 0, 1));
    t->before.kind = (int)kind;
    if (!state_loading(v))
        return SOTTO_OK;
    return resume_check_optim(&c->strategy, &t->before, &c->optim, "the trainer that was saved");
}

static enum sotto_status visit_rest(struct sotto_trainer *t, struct state_visitor *v)
{
    TRY(visit_about(t, v));
    TRY(state_count(v, "step", &t->step, STATE_STEPS));
    TRY(state_within(v, "microbatch_seconds", &t->oracle.seconds, 0, 1e9));
    TRY(state_within(v, "memory_bandwidth", &t->worker->worker->memory, 0, 1e15));
    TRY(meter_visit(&t->meter, v));
    return t->strategy->ops->visit(t->strategy, v);
}

static enum sotto_status visit_all(void *arg, struct state_visitor *v)
{
    struct saving *s = arg;
    if (s->padded)
        TRY(visit_parameters(s->t, v, s->padded));
    return visit_rest(s->t, v);
}

static enum sotto_status write_saver(void *saver, const char *path)
{
    return state_saver_write(saver, path);
}

static enum sotto_status write_or_rescue(struct sotto_trainer *t, struct state_visitor *v,
                                         const char *path)
{
    char what[48];
    if (!t->keeps)
        return state_saver_write(v, path);
    snprintf(what, sizeof what, "step %lld", (long long)t->step);
    return rescue_file(&t->rescue, what, path, (double)state_saver_bytes(v), write_saver, v,
                       t->elsewhere);
}

static enum sotto_status save(struct saving *s, const char *path)
{
    struct sotto_trainer *t = s->t;
    struct state_visitor v = {0};
    struct gathered parcels = {0};
    const bool leads = t->worker->worker->rank == 0;
    if (leads)
        TRY(state_saver_init(&v));
    enum sotto_status st = gather_state(t->worker->worker->world, t->mesh.r == 0, visit_all, s,
                                        &t->memory, &v, &parcels);
    if (leads) {
        if (st == SOTTO_OK)
            st = write_or_rescue(t, &v, path);
        state_free(&v);
        gathered_free(&parcels);
    }
    return st;
}

enum sotto_status sotto_trainer_save(struct sotto_trainer *t, const char *path)
{
    struct saving s = {.t = t};
    TRY(trainer_meets(t, "save", false));
    TRY(trainer_failed(t, trainer_pause(t)));
    TRY(trainer_failed(t, trainer_export(t, t->worker->worker->rank == 0, &s.padded)));
    enum sotto_status st = meter_gather(&t->meter);
    if (st == SOTTO_OK)
        st = save(&s, path);
    trainer_drop(t, s.padded);
    if (st == SOTTO_OK) /* nobody reads it before it is there */
        st = comm_barrier(t->worker->worker->world);
    if (st == SOTTO_OK)
        st = trainer_go_on(t);
    return trainer_failed(t, st);
}

/* Parameters first: a method may make part of its state from them, which the file then replaces. */
static enum sotto_status load(struct sotto_trainer *t, struct state_visitor *v)
{
    const struct worker_config *c = &t->worker->cluster->config->worker;
    const double given = *c->step ? t->oracle.seconds : -1;
    const double memory = *c->memory || *c->step ? t->worker->worker->memory : -1;
    float *padded = calloc(table_count(&t->table), sizeof *padded);
    if (!padded)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", table_count(&t->table));
    enum sotto_status st = visit_parameters(t, v, padded);
    if (st == SOTTO_OK)
        st = t->strategy->ops->import(t->strategy, padded);
    if (st == SOTTO_OK)
        st = visit_rest(t, v);
    if (given >= 0)
        t->oracle.seconds = given;
    if (memory >= 0)
        t->worker->worker->memory = memory;
    free(padded);
    TRY(st);
    return resume_finish(v, t->method, &t->worker->cluster->config->strategy,
                         t->worker->worker->rank == 0);
}

enum sotto_status sotto_trainer_load(struct sotto_trainer *t, const char *path)
{
    struct comm *mpi = t->worker->cluster->mpi;
    struct state_visitor v;
    struct state_file file;
    struct lent lent;
    if (t->apart.begun)
        return fail(SOTTO_EINVAL,
                    "groups that have no rounds in common load before their first one");
    TRY(trainer_failed(t, trainer_pause(t)));
    TRY(trainer_failed(t, lent_open(&lent, mpi, &file, path)));
    state_loader_init(&v, &file);
    enum sotto_status st = lent_begin(&lent);
    if (st == SOTTO_OK)
        st = lent_end(&lent, fail_in(load(t, &v), "%s: ", path));
    state_free(&v);
    if (st == SOTTO_OK) /* nobody replaces it while others read */
        st = comm_barrier(t->worker->worker->world);
    if (st == SOTTO_OK || !mpi)
        lent_close(&lent);
    state_file_close(&file);
    if (st == SOTTO_OK)
        st = trainer_go_on(t);
    return trainer_failed(t, st);
}

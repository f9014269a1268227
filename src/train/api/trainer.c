/* A program's trainer: struct training with the program's problem as the oracle. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "strategy/method.h"
#include "train/api/api_impl.h"
#include "train/plan/calibrate.h"

/* Fails unless all processes have the same options, tensors and parameters. */
static enum sotto_status agree_on_problem(const struct sotto_trainer *t, const float *parameters)
{
    const struct cluster *cluster = t->worker->cluster;
    struct comm *world = t->worker->worker->world;
    struct api_sections s;
    char text[128];
    uint64_t hash = HASH_START;
    if (!cluster->mpi)
        return SOTTO_OK;
    api_sections(&s, cluster->config);
    TRY(training_agree(world, "the options", s.section, API_SECTIONS));
    for (int i = 0; i < t->table.n; i++) {
        const struct table_entry *e = &t->table.entry[i];
        hash = hash_bytes(hash, e->name, sizeof e->name);
        hash = hash_bytes(hash, e->shape, sizeof e->shape);
        hash = hash_bytes(hash, &e->stage, sizeof e->stage);
    }
    hash = hash_bytes(hash, parameters, t->table.parameters * sizeof *parameters);
    snprintf(text, sizeof text, "%zu parameters in %d tensors, of hash %016" PRIx64,
             t->table.parameters, t->table.n, hash);
    return comm_agree(world, "what training begins with", text);
}

/* Sets the seconds of a micro-batch in virtual time: worker.step, or rank 0's real time on this
 * machine. The bandwidth of memory is set alike. */
static enum sotto_status set_seconds(struct sotto_trainer *t, float *padded)
{
    const struct run_config *c = t->worker->cluster->config;
    struct worker *w = t->worker->worker;
    double seconds = 0, memory = 0;
    if (c->train.time != TIME_VIRTUAL)
        return SOTTO_OK;
    if (*c->worker.step)
        return config_seconds("worker.step", c->worker.step, &t->oracle.seconds);
    if (w->rank == 0)
        TRY(problem_oracle_measure(&t->oracle, padded, &seconds));
    if (w->rank == 0 && !*c->worker.memory)
        TRY(calibrate_memory(c->train.device, t->table.parameters,
                             c->strategy.precision == PRECISION_MIXED, &memory));
    TRY(comm_sum(w->world, &seconds, 1));
    TRY(comm_sum(w->world, &memory, 1));
    t->oracle.seconds = seconds;
    if (!*c->worker.memory)
        w->memory = memory;
    return SOTTO_OK;
}

static enum sotto_status set_first_parameters(struct sotto_trainer *t, const float *parameters)
{
    const size_t count = table_count(&t->table);
    float *padded = calloc(count, sizeof *padded);
    if (!padded)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    problem_pack(&t->table, padded, parameters);
    enum sotto_status st = set_seconds(t, padded);
    if (st == SOTTO_OK) /* and then the caller may write to `parameters` */
        st = training_set_parameters(&t->training, padded);
    free(padded);
    return st;
}

static enum sotto_status open_problem(void *source, struct training *training, struct oracle **out)
{
    struct sotto_trainer *t = source;
    const struct run_config *c = training->config;
    const struct problem_oracle_setup setup = {
        .problem = &t->problem,
        .table = &t->table,
        .dev = &training->dev,
        .worker = training->worker,
        .seed = c->train.seed,
        .slots = strategy_slots(&c->strategy),
        .mixed = c->strategy.precision == PRECISION_MIXED,
    };
    TRY(problem_oracle_init(&t->oracle, &setup));
    *out = &t->oracle.base;
    return SOTTO_OK;
}

static void close_problem(void *source)
{
    struct sotto_trainer *t = source;
    if (t->oracle.base.ops)
        problem_oracle_free(&t->oracle);
}

static const struct training_source problem_source = {.open = open_problem, .close = close_problem};

static void free_trainer(struct sotto_trainer *t)
{
    training_close(&t->training);
    table_free(&t->table);
    free(t->groups.push);
    free(t);
}

static enum sotto_status open_trainer(struct sotto_trainer *t, const struct sotto_problem *theirs,
                                      const float *parameters, double save_minutes)
{
    const struct cluster *cluster = t->worker->cluster;
    const struct run_config *c = cluster->config;
    struct worker *w = t->worker->worker;
    const struct training_setup setup = {.cluster = cluster,
                                         .worker = w,
                                         .ops = &problem_source,
                                         .source = t,
                                         .before = &t->before,
                                         .eval_every = c->train.eval_every,
                                         .eval_seconds = c->train.eval_seconds,
                                         .save_minutes = save_minutes};
    TRY(API_READ(sotto_problem, work, &t->problem, theirs));
    TRY(problem_table(&t->problem, w->size / c->strategy.groups, &t->table));
    if (!parameters)
        return fail(SOTTO_EINVAL, "there are no parameters to begin with");
    TRY(agree_on_problem(t, parameters));
    TRY(training_open(&t->training, &setup));
    TRY(set_first_parameters(t, parameters));
    if (w->rank == 0)
        strategy_warn(&c->strategy, &c->optim, table_count(&t->table));
    return SOTTO_OK;
}

enum sotto_status trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                 const struct sotto_problem *theirs, const float *parameters,
                                 double save_minutes)
{
    struct sotto_trainer *t = *out = calloc(1, sizeof *t);
    if (!t)
        return fail(SOTTO_ENOMEM, "no memory for a trainer");
    t->worker = worker;
    t->lr = -1;
    t->before = (struct optim_config){.kind = OPTIM_SGD}; /* until a file is loaded */
    enum sotto_status st = open_trainer(t, theirs, parameters, save_minutes);
    if (st == SOTTO_OK)
        return SOTTO_OK;
    if (t->training.mesh.worker)
        mesh_abort(&t->training.mesh, st);
    free_trainer(t);
    *out = NULL;
    return st;
}

enum sotto_status sotto_trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                       const struct sotto_problem *problem, const float *parameters)
{
    return trainer_create(out, worker, problem, parameters, 0);
}

enum sotto_status trainer_keep_failure(struct sotto_trainer *t, enum sotto_status st)
{
    if (st == SOTTO_OK || t->failure.code != SOTTO_OK)
        return st;
    training_advise(&t->training, st);
    status_save(&t->failure, st);
    return st;
}

enum sotto_status sotto_trainer_destroy(struct sotto_trainer *t, enum sotto_status status)
{
    if (!t)
        return status;
    if (status == SOTTO_OK)
        status = status_raise(&t->failure);
    if (status == SOTTO_OK) /* other groups would wait for this group */
        status = trainer_need_meeting(t, "destroy", false);
    if (status == SOTTO_OK)
        status = mesh_rest(&t->training.mesh);
    if (status == SOTTO_OK) {
        free_trainer(t);
        return SOTTO_OK;
    }
    struct status_note why;
    status_save(&why, status);
    mesh_abort(&t->training.mesh, status); /* before lanes are closed, which may wait for others */
    free_trainer(t);
    return status_raise(&why);
}

struct training_wish trainer_wish(const struct sotto_trainer *t)
{
    const int64_t steps = t->training.config->train.steps;
    return (struct training_wish){.lr = t->lr, .rounds = steps, .length = steps, .stop = t->stop};
}

/* A round that all workers make. */
static enum sotto_status make_common_round(struct sotto_trainer *t)
{
    const struct training_wish wish = trainer_wish(t);
    TRY(training_round(&t->training, &wish));
    return t->training.plan.last ? training_settle(&t->training) : SOTTO_OK;
}

enum sotto_status sotto_trainer_round(struct sotto_trainer *t, struct sotto_round *out)
{
    const bool async = trainer_is_async(t);
    TRY(trainer_keep_failure(t, async ? trainer_group_round(t) : make_common_round(t)));
    if (!out)
        return SOTTO_OK;
    const struct sotto_round r = api_round(t);
    return trainer_keep_failure(t, API_WRITE(sotto_round, cost, out, &r));
}

void sotto_trainer_set_lr(struct sotto_trainer *t, double lr)
{
    t->lr = lr;
}

void sotto_trainer_stop(struct sotto_trainer *t)
{
    t->stop = true;
}

int64_t sotto_trainer_step(const struct sotto_trainer *t)
{
    return t->training.step;
}

enum sotto_status trainer_pause(struct sotto_trainer *t)
{
    TRY(training_settle(&t->training));
    if (!t->groups.met && !t->groups.trains)
        training_pause(&t->training);
    return SOTTO_OK;
}

enum sotto_status trainer_continue(struct sotto_trainer *t)
{
    return t->groups.met || t->groups.trains ? SOTTO_OK : training_continue(&t->training);
}

enum sotto_status sotto_trainer_parameters(struct sotto_trainer *t, float *out)
{
    float *padded;
    TRY(trainer_need_meeting(t, "parameters", true));
    TRY(trainer_keep_failure(t, trainer_pause(t)));
    TRY(trainer_keep_failure(t, training_export(&t->training, out != NULL, &padded)));
    if (out)
        problem_unpack(&t->table, out, padded);
    training_drop(&t->training, padded);
    return trainer_keep_failure(t, trainer_continue(t));
}

size_t sotto_trainer_memory(const struct sotto_trainer *t, size_t memory[SOTTO_MEMORY_ROOM])
{
    const struct memory *m = &t->training.memory;
    for (int i = 0; i < MEMORY_CATEGORIES; i++)
        memory[i] = m->peak[i];
    return m->total_peak;
}

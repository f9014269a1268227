/* One worker's training, round by round: the problem's oracle, a place in the mesh, a method. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "strategy/method.h"
#include "train/api/api_impl.h"
#include "train/config/diverged.h"
#include "train/plan/calibrate.h"

/* Processes bring options, tensors and parameters of their own: they must be the same. */
static enum sotto_status agree(const struct sotto_trainer *t, const float *parameters)
{
    struct embed_sections s;
    char text[128];
    uint64_t hash = HASH_START;
    struct comm *world = t->worker->worker->world;
    if (!t->worker->cluster->mpi)
        return SOTTO_OK;
    embed_sections(&s, t->worker->cluster->config);
    char *dump = option_dump(s.section, EMBED_SECTIONS);
    if (!dump)
        return fail(SOTTO_ENOMEM, "no memory for the options");
    enum sotto_status st = comm_agree(world, "the options", dump);
    free(dump);
    TRY(st);
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

/* Where time is modelled: as long as worker.step says, else as rank 0's micro-batches take here,
 * with memory as fast as here. */
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

static enum sotto_status set_parameters(struct sotto_trainer *t, const float *parameters)
{
    size_t count = table_count(&t->table);
    float *padded = calloc(count, sizeof *padded);
    if (!padded)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    problem_pack(&t->table, padded, parameters);
    enum sotto_status st = set_seconds(t, padded);
    if (st == SOTTO_OK)
        st = t->strategy->ops->import(t->strategy, padded);
    if (st == SOTTO_OK) /* behind it the caller may write to `parameters` */
        st = comm_barrier(t->worker->worker->world);
    free(padded);
    return st;
}

static enum sotto_status open_oracle(struct sotto_trainer *t, const struct sotto_problem *problem)
{
    const struct run_config *c = t->worker->cluster->config;
    const struct problem_oracle_setup setup = {
        .problem = problem,
        .table = &t->table,
        .dev = &t->dev,
        .worker = t->worker->worker,
        .seed = c->train.seed,
        .slots = strategy_slots(&c->strategy),
        .mixed = c->strategy.precision == PRECISION_MIXED,
    };
    return problem_oracle_init(&t->oracle, &setup);
}

static void close_trainer(struct sotto_trainer *t)
{
    meter_free(&t->meter);
    if (t->strategy)
        t->strategy->ops->free(t->strategy);
    if (t->mesh.worker)
        mesh_close(&t->mesh);
    if (t->oracle.base.ops)
        problem_oracle_free(&t->oracle);
    table_free(&t->table);
    if (t->dev.ops)
        device_close(&t->dev);
    free(t->apart.push);
    free(t);
}

enum sotto_status trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                 const struct sotto_problem *theirs, const float *parameters,
                                 double save_minutes)
{
    struct sotto_problem problem;
    const struct run_config *c = worker->cluster->config;
    struct worker *w = worker->worker;
    *out = NULL;
    struct sotto_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return fail(SOTTO_ENOMEM, "no memory for a trainer");
    t->worker = worker;
    t->lr = -1;
    t->save_minutes = save_minutes;
    trainer_save_later(t);
    enum sotto_status st;
    TRY_DONE(EMBED_TAKE(sotto_problem, work, &problem, theirs));
    TRY_DONE(problem_table(&problem, w->size / c->strategy.groups, &t->table));
    if (!parameters)
        TRY_DONE(fail(SOTTO_EINVAL, "there are no parameters to begin with"));
    TRY_DONE(agree(t, parameters));
    const int threads = cluster_threads(worker->cluster);
    if (w->rank == 0)
        cluster_warn_cores(worker->cluster);
    TRY_DONE(cluster_pin(worker->cluster, w, threads));
    TRY_DONE(device_open(&t->dev, c->train.device, &t->memory, threads));
    TRY_DONE(open_oracle(t, &problem));
    TRY_DONE(mesh_open(&t->mesh, w, c->strategy.groups, &t->dev));
    t->before = (struct optim_config){.kind = OPTIM_SGD}; /* nobody knows yet */
    const struct async_setup async = {.eval_every = c->train.eval_every,
                                      .save_every = c->train.save_every,
                                      .save_seconds = w->ops->end_pause ? 0 : 60 * save_minutes};
    struct strategy_setup setup = {.config = &c->strategy,
                                   .optim = &c->optim,
                                   .oracle = &t->oracle.base,
                                   .dev = &t->dev,
                                   .mesh = &t->mesh,
                                   .before = &t->before,
                                   .async = &async};
    TRY_DONE(strategy_open(&t->strategy, &setup));
    TRY_DONE(meter_init(&t->meter, w, &t->oracle.base, &t->mesh));
    TRY_DONE(set_parameters(t, parameters));
    if (w->rank == 0)
        strategy_warn(&c->strategy, &c->optim, table_count(&t->table));
    *out = t;
done:
    if (st != SOTTO_OK && t->mesh.worker)
        mesh_abort(&t->mesh, st);
    if (st != SOTTO_OK)
        close_trainer(t);
    return st;
}

enum sotto_status sotto_trainer_create(struct sotto_trainer **out, struct sotto_worker *worker,
                                       const struct sotto_problem *problem, const float *parameters)
{
    return trainer_create(out, worker, problem, parameters, 0);
}

void trainer_save_later(struct sotto_trainer *t)
{
    const bool ever = t->save_minutes > 0 && t->worker->worker->rank == 0;
    t->save_at = ever ? clock_now(&clock_real) + 60 * t->save_minutes : INFINITY;
}

bool trainer_saves(const struct sotto_trainer *t)
{
    if (trainer_is_apart(t)) /* what they meet for by rounds, too */
        return t->save_minutes > 0;
    return t->round.save || (t->worker->worker->size == 1 && t->plan.save);
}

enum sotto_status trainer_failed(struct sotto_trainer *t, enum sotto_status st)
{
    if (st == SOTTO_OK || t->failure.code != SOTTO_OK)
        return st;
    diverged_advise(st, t->worker->cluster->config, t->step);
    status_save(&t->failure, st);
    return st;
}

enum sotto_status sotto_trainer_destroy(struct sotto_trainer *t, enum sotto_status status)
{
    if (!t)
        return status;
    if (status == SOTTO_OK)
        status = status_raise(&t->failure);
    if (status == SOTTO_OK) /* others would wait for this group */
        status = trainer_meets(t, "destroy", false);
    if (status == SOTTO_OK)
        status = mesh_rest(&t->mesh);
    if (status == SOTTO_OK) {
        close_trainer(t);
        return SOTTO_OK;
    }
    struct status_note why;
    status_save(&why, status);
    mesh_abort(&t->mesh, status); /* before its lanes are closed: they may wait for others */
    close_trainer(t);
    return status_raise(&why);
}

struct sotto_cost embed_cost(const struct cost *c)
{
    return (struct sotto_cost){.seconds = c->seconds,
                               .compute = c->compute,
                               .wire = c->wire,
                               .waited_others = c->waited_others,
                               .waited_wire = c->waited_wire,
                               .inside = c->inside,
                               .between = c->between,
                               .update = c->update};
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static struct sotto_round round_of(const struct sotto_trainer *t)
{
    const struct round *r = &t->round;
    const struct async_round *own = &t->apart.round; /* zeros where rounds are common */
    const struct train_config *c = &t->worker->cluster->config->train;
    const struct cost cost = meter_read(&t->meter);
    const bool apart = trainer_is_apart(t), done = t->step >= c->steps;
    return (struct sotto_round){.struct_size = sizeof(struct sotto_round),
                                .step = t->step,
                                .steps = c->steps,
                                .loss = r->loss,
                                .grad_norm = r->grad_norm,
                                .lr = t->plan.lr,
                                .seconds = cost.seconds - t->plan.seconds,
                                .targets = r->targets,
                                .microbatches = r->microbatches,
                                .stop = r->stop && !(apart && done),
                                .cost = embed_cost(&cost),
                                .over = r->stop || (!apart && done),
                                .evaluate = apart ? own->evaluate || r->stop
                                                  : done || due(t->step, c->eval_every),
                                .meet = own->meet || !apart,
                                .pulled = own->pulled,
                                .idle = r->idle};
}

/* One that all workers make. */
static enum sotto_status round_in_common(struct sotto_trainer *t)
{
    const struct run_config *c = t->worker->cluster->config;
    const int64_t steps = c->train.steps, step = t->step + 1;
    struct plan *plan = &t->plan;
    *plan = (struct plan){.lr = t->lr, .next_lr = t->lr, .step = t->step, .stop = t->stop};
    if (t->lr < 0) {
        plan->lr = optim_lr(&c->optim, t->step, steps);
        plan->next_lr = optim_lr(&c->optim, t->step + 1, steps);
    }
    plan->last = step == steps;
    plan->save = clock_now(&clock_real) >= t->save_at;
    plan->seconds = meter_read(&t->meter).seconds;
    plan->want_norm = step % c->train.log_every == 0 || step == steps;
    meter_start(&t->meter);
    TRY(fail_in(t->strategy->ops->round(t->strategy, plan, &t->round),
                "step %lld: ", (long long)step));
    meter_stop(&t->meter);
    if (plan->last)
        TRY(trainer_settle(t));
    t->step = step;
    return SOTTO_OK;
}

enum sotto_status sotto_trainer_round(struct sotto_trainer *t, struct sotto_round *out)
{
    TRY(trainer_failed(t, trainer_is_apart(t) ? trainer_round_apart(t) : round_in_common(t)));
    if (!out)
        return SOTTO_OK;
    const struct sotto_round r = round_of(t);
    return trainer_failed(t, EMBED_HAND(sotto_round, cost, out, &r));
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
    return t->step;
}

enum sotto_status trainer_export(struct sotto_trainer *t, bool wanted, float **padded)
{
    const size_t count = table_count(&t->table);
    *padded = NULL;
    if (wanted)
        *padded = memory_resize(&t->memory, MEMORY_CHECKPOINT, NULL, 0, count * sizeof **padded);
    if (wanted && !*padded)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    enum sotto_status st = t->strategy->ops->export(t->strategy, *padded);
    if (st != SOTTO_OK)
        trainer_drop(t, *padded);
    return st;
}

void trainer_drop(struct sotto_trainer *t, float *padded)
{
    memory_give(&t->memory, MEMORY_CHECKPOINT, padded, table_count(&t->table) * sizeof *padded);
}

enum sotto_status trainer_settle(struct sotto_trainer *t)
{
    if (!t->strategy->ops->settle)
        return SOTTO_OK;
    meter_start(&t->meter);
    const enum sotto_status st = t->strategy->ops->settle(t->strategy);
    meter_stop(&t->meter);
    return st;
}

enum sotto_status trainer_pause(struct sotto_trainer *t)
{
    struct worker *w = t->worker->worker;
    TRY(trainer_settle(t));
    if (w->ops->pause && !t->apart.met && !t->apart.trains)
        w->ops->pause(w);
    return SOTTO_OK;
}

enum sotto_status trainer_go_on(struct sotto_trainer *t)
{
    return t->apart.met || t->apart.trains ? SOTTO_OK : meter_go_on(&t->meter);
}

enum sotto_status sotto_trainer_parameters(struct sotto_trainer *t, float *out)
{
    float *padded;
    TRY(trainer_meets(t, "parameters", true));
    TRY(trainer_failed(t, trainer_pause(t)));
    TRY(trainer_failed(t, trainer_export(t, out != NULL, &padded)));
    if (out)
        problem_unpack(&t->table, out, padded);
    trainer_drop(t, padded);
    return trainer_failed(t, trainer_go_on(t));
}

size_t sotto_trainer_memory(const struct sotto_trainer *t, size_t memory[SOTTO_MEMORY_ROOM])
{
    for (int i = 0; i < MEMORY_CATEGORIES; i++)
        memory[i] = t->memory.peak[i];
    return t->memory.total_peak;
}

#include "train/run/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/config/diverged.h"

enum sotto_status training_agree(struct comm *world, const char *what,
                                 const struct option_section *sections, int n)
{
    char *options = option_dump(sections, n);
    const size_t room = options ? strlen(options) + 64 : 0;
    char *text = options ? malloc(room) : NULL;
    enum sotto_status st = SOTTO_OK;
    if (text)
        snprintf(text, room, "version = %.40s\n%s", sotto_version(), options);
    else
        st = fail(SOTTO_ENOMEM, "no memory for %s", what);
    if (st == SOTTO_OK)
        st = comm_agree(world, what, text);
    free(text);
    free(options);
    return st;
}

static enum sotto_status open_strategy(struct training *t)
{
    const struct training_setup *s = &t->setup;
    const struct run_config *c = t->config;
    const struct async_setup async = {
        .eval_every = s->eval_every,
        .eval_seconds = s->eval_seconds,
        .save_every = c->train.save_every,
        .save_seconds = t->worker->ops->end_pause ? 0 : 60 * s->save_minutes, /* virtual: none */
        .hook = s->hook,
    };
    const struct strategy_setup setup = {
        .config = &c->strategy,
        .optim = &c->optim,
        .oracle = t->oracle,
        .dev = &t->dev,
        .mesh = &t->mesh,
        .before = s->before,
        .async = &async,
    };
    return strategy_open(&t->strategy, &setup);
}

enum sotto_status training_open(struct training *t, const struct training_setup *setup)
{
    struct worker *w = setup->worker;
    const struct cluster *cluster = setup->cluster;
    *t = (struct training){.config = cluster->config, .setup = *setup, .worker = w};
    const int threads = cluster_threads(cluster);
    training_schedule_save(t);
    if (w->rank == 0)
        cluster_warn_cores(cluster);
    TRY(cluster_pin(cluster, w, threads));
    TRY(device_open(&t->dev, t->config->train.device, &t->memory, threads));
    TRY(setup->ops->open(setup->source, t, &t->oracle));
    TRY(mesh_open(&t->mesh, w, t->config->strategy.groups, &t->dev));
    TRY(open_strategy(t));
    return meter_init(&t->meter, w, t->oracle, &t->mesh);
}

void training_close(struct training *t)
{
    meter_free(&t->meter);
    if (t->strategy)
        t->strategy->ops->free(t->strategy);
    if (t->mesh.worker)
        mesh_close(&t->mesh);
    if (t->setup.ops)
        t->setup.ops->close(t->setup.source);
    if (t->dev.ops)
        device_close(&t->dev);
    *t = (struct training){0};
}

enum sotto_status training_set_parameters(struct training *t, const float *flat)
{
    TRY(t->strategy->ops->import(t->strategy, flat));
    return comm_barrier(t->worker->world);
}

enum sotto_status training_export(struct training *t, bool wanted, float **flat)
{
    const size_t count = table_count(t->oracle->table);
    *flat = NULL;
    if (wanted)
        *flat = memory_resize(&t->memory, MEMORY_CHECKPOINT, NULL, 0, count * sizeof **flat);
    if (wanted && !*flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    const enum sotto_status st = t->strategy->ops->export(t->strategy, *flat);
    if (st != SOTTO_OK)
        training_drop(t, *flat);
    return st;
}

void training_drop(struct training *t, float *flat)
{
    memory_give(&t->memory, MEMORY_CHECKPOINT, flat, table_count(t->oracle->table) * sizeof *flat);
}

/* Sets t->plan. `at`: the step of the schedule of learning rates. */
static void make_plan(struct training *t, const struct training_wish *wish, int64_t at)
{
    const struct run_config *c = t->config;
    const int64_t step = t->step + 1;
    const bool given = wish->lr >= 0, async = t->strategy->async;
    const bool last = !async && step == wish->rounds;
    t->plan = (struct plan){
        .lr = given ? wish->lr : optim_lr(&c->optim, at, wish->length),
        .next_lr = given ? wish->lr : optim_lr(&c->optim, at + 1, wish->length),
        .want_norm = !async && (training_is_due(step, c->train.log_every) || last),
        .step = t->step,
        .rounds = wish->rounds,
        .stop = wish->stop,
        .save = !async && clock_now(&clock_real) >= t->save_at,
        .last = last,
        .seconds = meter_read(&t->meter).seconds,
        .between = wish->between,
        .asked = t->setup.stop,
    };
}

static enum sotto_status call_round(struct training *t, int64_t at)
{
    struct strategy *s = t->strategy;
    const enum sotto_status st = s->ops->round(s, &t->plan, &t->round);
    if (st == SOTTO_OK)
        return SOTTO_OK;
    if (!s->async)
        return fail_in(st, "step %lld: ", (long long)at + 1);
    (void)fail_in(st, "group %d, step %lld: ", t->mesh.r, (long long)at + 1);
    if (!async_drop_group(s, st))
        return st;
    t->round = (struct round){.idle = true};
    return SOTTO_OK;
}

static void count_round(struct training *t)
{
    const struct round *r = &t->round;
    struct training_count *c = &t->count;
    const int batch = t->config->train.batch;
    c->tokens += r->whole ? r->tokens : 0;
    c->samples += r->whole ? r->microbatches * batch : 0;
    c->own_tokens += r->whole ? 0 : r->own_tokens;
    c->own_samples += r->whole ? 0 : r->own_microbatches * batch;
}

/* True if training has passed a multiple of eval_seconds. All workers know the seconds of a round,
 * or of the rounds between two exchanges, alike (struct agreed). */
static bool passes_eval_time(struct training *t)
{
    const struct agreed *a = t->round.agreed;
    const double every = t->setup.eval_seconds;
    if (!(every > 0) || !a)
        return false;
    const int64_t times = (int64_t)fmin(a->seconds / every, (double)STATE_STEPS);
    const bool passes = t->eval_times >= 0 && times > t->eval_times;
    t->eval_times = times;
    return passes;
}

/* Begin and end seconds of training, unless these run from pause to pause. */
static void begin_seconds(struct training *t)
{
    if (!t->setup.counts_between)
        meter_start(&t->meter);
}

static void end_seconds(struct training *t)
{
    if (!t->setup.counts_between)
        meter_stop(&t->meter);
}

enum sotto_status training_round(struct training *t, const struct training_wish *wish)
{
    const struct async *async = t->strategy->async;
    const int64_t at = async ? async_next_step(async, t->step) : t->step;
    make_plan(t, wish, at);
    t->round = (struct round){0};
    begin_seconds(t);
    TRY(call_round(t, at));
    end_seconds(t);
    if (t->round.abandoned)
        return SOTTO_OK;
    count_round(t);
    t->eval_due = !async && passes_eval_time(t);
    if (!async)
        t->step++;
    else if (async_last_round(async)->meet || async_last_round(async)->step > t->step)
        t->step = async_last_round(async)->step; /* groups meet at the same step */
    return SOTTO_OK;
}

enum sotto_status training_settle(struct training *t)
{
    if (!t->strategy->ops->settle)
        return SOTTO_OK;
    begin_seconds(t);
    const enum sotto_status st = t->strategy->ops->settle(t->strategy);
    end_seconds(t);
    return st;
}

bool training_eval_due(const struct training *t)
{
    return t->eval_due || training_is_due(t->step, t->config->train.eval_every);
}

bool training_save_due(const struct training *t)
{
    return t->round.save || (t->worker->size == 1 && t->plan.save);
}

void training_schedule_save(struct training *t)
{
    const double minutes = t->worker->rank == 0 ? t->setup.save_minutes : 0;
    t->save_at = minutes > 0 ? clock_now(&clock_real) + 60 * minutes : INFINITY;
}

void training_pause(struct training *t)
{
    (void)device_check(&t->dev);
    meter_stop(&t->meter);
    if (t->worker->ops->pause)
        t->worker->ops->pause(t->worker);
}

enum sotto_status training_continue(struct training *t)
{
    TRY(meter_resume(&t->meter));
    if (t->setup.counts_between)
        meter_start(&t->meter);
    training_set_origin(t);
    return SOTTO_OK;
}

void training_set_origin(struct training *t)
{
    t->origin = clock_now(t->worker->clock) - meter_read(&t->meter).seconds;
}

enum sotto_status training_begin_meeting(struct training *t)
{
    training_pause(t);
    return async_wait_idle(t->strategy->async);
}

enum sotto_status training_end_meeting(struct training *t)
{
    TRY(comm_barrier(t->worker->world)); /* the server trains as soon as one group does */
    return training_continue(t);
}

enum sotto_status training_sum_counts(struct training *t)
{
    struct training_count *c = &t->count;
    const bool speaks = t->mesh.s == 0; /* for its group */
    double own[2] = {speaks ? (double)c->own_tokens : 0, speaks ? (double)c->own_samples : 0};
    TRY(comm_sum(t->worker->world, own, 2));
    c->tokens += (int64_t)own[0];
    c->samples += (int64_t)own[1];
    c->own_tokens = c->own_samples = 0;
    return SOTTO_OK;
}

enum sotto_status training_visit_method(struct training *t, struct state_visitor *v)
{
    strategy_describe(&t->config->strategy, t->method);
    return state_text(v, "method", t->method, sizeof t->method);
}

/* Visits the multiples of eval_seconds. The server of asynchronous groups has its own. */
static enum sotto_status visit_eval_times(struct training *t, struct state_visitor *v)
{
    const bool loads = state_loading(v);
    const bool saves = t->setup.eval_seconds > 0 && !t->strategy->async && !state_hashing(v);
    if (loads)
        t->eval_times = -1;
    if (loads ? !state_has(v, "eval_times") : !saves)
        return SOTTO_OK;
    return state_count(v, "eval_times", &t->eval_times, STATE_STEPS);
}

enum sotto_status training_visit(struct training *t, struct state_visitor *v)
{
    TRY(visit_eval_times(t, v));
    TRY(meter_visit_jitter(&t->meter, v));
    if (t->setup.ops->visit)
        TRY(t->setup.ops->visit(t->setup.source, v));
    return t->strategy->ops->visit(t->strategy, v);
}

enum sotto_status training_save(struct training *t, state_owner *visit, training_writer *write,
                                void *arg)
{
    struct state_visitor v = {0};
    struct gathered parcels = {0};
    const bool leads = t->worker->rank == 0;
    TRY(meter_gather(&t->meter));
    if (leads)
        TRY(state_saver_init(&v));
    enum sotto_status st =
        gather_state(t->worker->world, t->mesh.r == 0, visit, arg, &t->memory, &v, &parcels);
    if (!leads)
        return st;
    if (st == SOTTO_OK)
        st = write(arg, &v);
    state_free(&v);
    gathered_free(&parcels);
    return st;
}

enum sotto_status training_report(struct training *t, size_t live, struct worker_report *all)
{
    TRY(mesh_rest(&t->mesh)); /* messages in flight count, too */
    struct worker_report mine = {
        .cost = meter_read(&t->meter), .memory_total = t->memory.total_peak, .live = live};
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        mine.memory[c] = t->memory.peak[c];
    return comm_gather_bytes(t->worker->world, all, &mine, sizeof mine);
}

enum sotto_status training_advise(const struct training *t, enum sotto_status st)
{
    const struct async *async = t->strategy ? t->strategy->async : NULL;
    return diverged_advise(st, t->config, async ? async_next_step(async, t->step) : t->step);
}

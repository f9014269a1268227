#include "train/plan/estimate.h"

#include <math.h>
#include <stdlib.h>

#include "comm/mpi/mpi.h"
#include "strategy/async/async.h"
#include "tensor/ops.h"
#include "train/plan/dry_run.h"
#include "train/run/gather.h"

/* Memory of a worker's method, calls of the method to the model, bytes of its state. */
struct worker_account {
    size_t memory[MEMORY_CATEGORIES];
    size_t parcel;
    struct call_log calls;
    bool notes;
    struct estimate_model model;
};

struct worker_accounts {
    const struct run *run;
    struct worker_account *account; /* (workers) */
    int workers;
};

static enum sotto_status count_state(struct strategy *s, const struct mesh *mesh, size_t *bytes)
{
    struct state_visitor v;
    state_counter_init(&v);
    gather_share(&v, mesh->worker->rank, mesh->r == 0);
    enum sotto_status st = s->ops->visit(s, &v);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        *bytes += v.bytes[c];
    state_free(&v);
    return st;
}

/* Asynchronous groups evaluate the parameters, and save, where all meet: makes rounds up to
 * there. */
static enum sotto_status try_meeting(struct strategy *s, struct plan plan)
{
    struct round round;
    const struct view *theta;
    plan.stop = true;
    while (!async_last_round(s->async)->meet)
        TRY(s->ops->round(s, &plan, &round));
    return s->ops->gather(s, &theta);
}

static enum sotto_status try_method(const struct dry_worker *worker, void *arg)
{
    const struct worker_accounts *all = arg;
    struct worker_account *account = &all->account[worker->mesh->worker->rank];
    struct strategy *s = worker->s;
    struct round round;
    const struct view *theta;
    const struct plan plan = {.lr = 1, .next_lr = 1, .want_norm = true};
    TRY(s->ops->round(s, &plan, &round));
    TRY(s->ops->gather(s, &theta)); /* as an evaluation does */
    double in_flight =
        call_log_in_flight(worker->calls); /* then the next round differs from the first */
    TRY(comm_sum(worker->mesh->worker->world, &in_flight, 1));
    if (in_flight > 0) {
        TRY(call_log_add(worker->calls, LOGGED_PAUSE, 0, 0));
        TRY(s->ops->round(s, &plan, &round));
    }
    account->calls = *worker->calls;
    *worker->calls = (struct call_log){0};
    account->notes = *worker->notes;
    if (s->async)
        TRY(try_meeting(s, plan));
    TRY(count_state(s, worker->mesh, &account->parcel));
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        account->memory[c] = worker->memory->peak[c];
    return SOTTO_OK;
}

/* Runs a worker of each kind: all groups but the first are alike, so two groups stand for any
 * number. */
static enum sotto_status try_workers(struct worker_accounts *a)
{
    struct dry_run t = {.run = a->run,
                        .strategy = a->run->config.strategy,
                        .body = try_method,
                        .arg = a,
                        .about = "estimating the memory: "};
    strategy_dry_run(&t.strategy, t.strategy.groups > 2 ? 2 : t.strategy.groups);
    a->workers = t.strategy.workers;
    a->account = calloc((size_t)a->workers, sizeof *a->account);
    if (!a->account)
        return fail(SOTTO_ENOMEM, "no memory to account for %d workers", a->workers);
    return dry_run_workers(&t);
}

static const struct worker_account *account_of_rank(const struct worker_accounts *t, int rank)
{
    return &t->account[rank < t->workers ? rank : t->workers / 2 + rank % (t->workers / 2)];
}

/* Returns the host memory of rank's part in a checkpoint. Rank 0 has the parameters, then all other
 * workers' states; other ranks have their own state. With asynchronous groups rank 0 copies its own
 * state, too. */
static double checkpoint_bytes_of(const struct worker_accounts *t, int rank)
{
    double parcels = 0, whole = 4.0 * (double)table_count(t->run->table);
    if (!run_keeps(t->run))
        return 0;
    if (rank > 0)
        return (double)account_of_rank(t, rank)->parcel;
    for (int r = strategy_async(&t->run->config.strategy) ? 0 : 1; r < t->run->cluster.size; r++)
        parcels += (double)account_of_rank(t, r)->parcel;
    return parcels > whole ? parcels : whole;
}

/* Estimates each worker's model. Workers with the same calls need the same memory; most have the
 * same calls as the worker before. */
static enum sotto_status try_models(struct worker_accounts *t, struct estimate_what what)
{
    for (int i = 0; i < t->workers; i++) {
        struct worker_account *a = &t->account[i];
        int like = i - 1;
        while (like >= 0 && !call_log_same(&t->account[like].calls, &a->calls))
            like--;
        what.calls = &a->calls;
        if (like >= 0)
            a->model = t->account[like].model;
        else
            TRY(estimate_model(&t->run->model, what, &a->model));
    }
    return SOTTO_OK;
}

static void add_worker(const struct worker_accounts *t, int rank, int slots, struct estimate *out)
{
    const struct worker_account *a = account_of_rank(t, rank);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        out->bytes[c] += (double)a->memory[c];
    /* Running statistics: the worker's own and the mean (running_stats.h); notes (model_oracle.h).
     */
    const int states = 2 + (a->notes ? slots + 2 : 0);
    if (t->run->model.state.n)
        out->bytes[MEMORY_PARAMETERS] += states * 4.0 * (double)table_count(&t->run->model.state);
    out->bytes[MEMORY_ACTIVATIONS] += a->model.activations;
    out->bytes[MEMORY_SCRATCH] += a->model.scratch;
    out->bytes[MEMORY_CHECKPOINT] += checkpoint_bytes_of(t, rank);
    out->workers++;
}

/* Returns the bytes of all workers' state in a checkpoint, with the mean of the model's running
 * statistics. */
static double state_bytes_of(const struct worker_accounts *t)
{
    const int size = t->run->cluster.size;
    double bytes = 0;
    for (int r = 0; r < size; r++)
        bytes += (double)account_of_rank(t, r)->parcel;
    if (t->run->model.state.n)
        bytes += 4.0 * (size + 1) * (double)table_count(&t->run->model.state);
    return bytes;
}

/* Estimates the run with `threads` threads of each worker. */
static enum sotto_status estimate_with(const struct run *run, int threads, struct estimate *out)
{
    const struct cluster *cluster = &run->cluster;
    const struct train_config *c = &run->config.train;
    struct worker_accounts t = {.run = run};
    *out = (struct estimate){0};
    const int slots = strategy_slots(&run->config.strategy);
    const struct estimate_what what = {
        .e = {c->batch, c->seq, (enum dtype)c->activations, run->keeps_all},
        .slots = slots,
        .recompute = c->recompute,
        .evaluates = run->valid != NULL,
        .device = c->device,
        .threads = threads,
        .theta = strategy_type(&run->config.strategy),
        .grad = strategy_grad_type(&run->config.strategy),
    };
    enum sotto_status st = try_workers(&t);
    if (st == SOTTO_OK)
        st = try_models(&t, what);
    for (int r = 0; r < cluster->size && st == SOTTO_OK; r++)
        if (!cluster->mpi || mpi_same_machine(cluster->mpi, r))
            add_worker(&t, r, slots, out);
    for (int k = 0; k < MEMORY_CATEGORIES; k++)
        out->total += out->bytes[k];
    if (st == SOTTO_OK)
        out->state = state_bytes_of(&t);
    for (int i = 0; i < t.workers && t.account; i++)
        call_log_free(&t.account[i].calls);
    free(t.account);
    return st;
}

enum sotto_status estimate_run(const struct run *run, struct estimate *out)
{
    return estimate_with(run, cluster_threads(&run->cluster), out);
}

/* Prints "activations 4.2 GB, optimizer 1.0 GB, ...", the largest first. */
static void list_largest(const struct estimate *e, char *out, size_t room)
{
    bool said[MEMORY_CATEGORIES] = {0};
    size_t used = 0;
    out[0] = '\0';
    for (int n = 0; n < MEMORY_CATEGORIES && used < room; n++) {
        int best = -1;
        for (int c = 0; c < MEMORY_CATEGORIES; c++)
            if (!said[c] && e->bytes[c] > 0 && (best < 0 || e->bytes[c] > e->bytes[best]))
                best = c;
        if (best < 0)
            return;
        said[best] = true;
        char bytes[32];
        available_text(e->bytes[best], bytes);
        used += (size_t)snprintf(out + used, room - used, "%s%s %s", n ? ", " : "",
                                 memory_category_name((enum memory_category)best), bytes);
    }
}

enum sotto_status estimate_left(const char *device, struct available *out)
{
    struct memory memory = {0};
    struct device dev;
    size_t left, all;
    *out = available_memory("");
    if (device_place(device) == PLACE_HOST)
        return SOTTO_OK;
    if (device_absent(device)) {
        *out = (struct available){INFINITY, ""};
        return SOTTO_OK;
    }
    TRY(device_open(&dev, device, &memory, 1));
    if (dev.ops->left) {
        dev.ops->left(&dev, &left, &all);
        *out = (struct available){(double)left, "the device"};
    }
    const enum sotto_status st = device_check(&dev);
    device_close(&dev);
    return st;
}

/* Ranks of MPI are one worker each, all about alike, on a device of their own or a shared one;
 * checkpoints are in the host's memory. */
void estimate_keep_ours(const struct run *run, struct estimate *e)
{
    if (device_place(run->config.train.device) == PLACE_HOST)
        return;
    const int processes = run->cluster.mpi ? e->workers : 1;
    e->bytes[MEMORY_CHECKPOINT] = e->total = 0;
    e->workers = e->workers / processes * run->sharing;
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        e->total += e->bytes[c] *= (double)run->sharing / processes;
}

/* True if threads after the first take most of activations and scratch. */
static bool mostly_threads(const struct run *run, const struct estimate *e)
{
    struct estimate one;
    if (cluster_threads(&run->cluster) == 1 || estimate_with(run, 1, &one) != SOTTO_OK)
        return false;
    estimate_keep_ours(run, &one);
    return 2 * (e->total - one.total) > e->bytes[MEMORY_ACTIVATIONS] + e->bytes[MEMORY_SCRATCH];
}

/* Returns what would make a run smaller: activations and scratch, or vectors of the parameters'
 * size. */
static const char *suggest_smaller(const struct run *run, const struct estimate *e)
{
    if (2 * (e->bytes[MEMORY_ACTIVATIONS] + e->bytes[MEMORY_SCRATCH]) < e->total)
        return e->workers > 1
                   ? "A smaller model, fewer workers, or a shard method that gives each a part "
                     "(zero1, fsdp)"
                   : "A smaller model, or MPI ranks on several machines with strategy = fsdp";
    if (mostly_threads(run, e))
        return "A smaller train.threads, each of which has scratch of its own";
    return run_kind(run)->sequences
               ? "A smaller train.batch or train.seq, or train.recompute with more train.stages"
               : "A smaller train.batch, or train.recompute with more train.stages";
}

void estimate_choose(struct run *run, const struct available *a)
{
    const double share = 0.75; /* the estimate has no stacks and no other programs */
    const struct train_config *c = &run->config.train;
    struct estimate e;
    run->keeps_all = !c->recompute && device_keeps(c->device, cluster_threads(&run->cluster));
    if (run->keeps_all && device_place(c->device) == PLACE_HOST)
        run->keeps_all = estimate_run(run, &e) == SOTTO_OK && e.total <= share * a->bytes;
}

enum sotto_status estimate_check(const struct run *run)
{
    struct estimate e;
    char parts[512], workers[48] = "", needs[32], left[32];
    struct available a;
    TRY(estimate_left(run->config.train.device, &a));
    TRY(estimate_run(run, &e));
    estimate_keep_ours(run, &e);
    if (e.total <= a.bytes)
        return SOTTO_OK;
    list_largest(&e, parts, sizeof parts);
    available_text(e.total, needs);
    available_text(a.bytes, left);
    if (e.workers > 1)
        snprintf(workers, sizeof workers, " on %d workers", e.workers);
    return fail(SOTTO_ENOMEM,
                "this run needs about %s of memory, and %s has %s left: %s%s. %s, takes less; "
                "--check_memory=false starts the run all the same",
                needs, a.by, left, parts, workers, suggest_smaller(run, &e));
}

enum sotto_status estimate_check_evaluation(const struct model *model, const char *device,
                                            int threads, struct extent e)
{
    const struct estimate_what what = {
        .e = e, .evaluates = true, .device = device, .threads = threads, .theta = DTYPE_F32};
    struct estimate_model m;
    struct available a;
    char needs[32], left[32];
    TRY(estimate_left(device, &a));
    TRY(estimate_model(model, what, &m));
    if (m.activations + m.scratch <= a.bytes)
        return SOTTO_OK;
    available_text(m.activations + m.scratch, needs);
    available_text(a.bytes, left);
    return fail(SOTTO_ENOMEM,
                "evaluating %d x %d at once needs about %s of memory, and %s has %s left: a "
                "smaller batch takes less",
                e.rows, e.t, needs, a.by, left);
}

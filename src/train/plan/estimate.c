#include "train/plan/estimate.h"

#include <math.h>
#include <stdlib.h>

#include "comm/mpi/mpi.h"
#include "strategy/async/async.h"
#include "tensor/ops.h"
#include "train/plan/dry_run.h"
#include "train/run/gather.h"

/* Numbers of a micro-batch (tokens, pixels) up to which it is tried as it is; what more rows take
 * is extrapolated. */
enum { TOKENS_TRIED = 1 << 16, PIXELS_TRIED = 1 << 22 };

/* Views of all stages that hold nothing. */
struct nothing {
    struct view *theta, *grad; /* (n_stage) */
};

/* The most that may be under way. */
static enum sotto_status try_all(struct tape *tape, int slots, const struct batch *batch,
                                 const struct nothing *none)
{
    const int n = tape->model->n_stage;
    for (int i = 0; i < slots; i++) {
        TRY(tape_begin(&tape[i], batch, TAPE_TRAIN, 1));
        for (int k = 0; k < n; k++)
            TRY(tape_forward(&tape[i], k, none->theta));
    }
    for (int i = 0; i < slots; i++)
        for (int k = n - 1; k >= 0; k--)
            TRY(tape_backward(&tape[i], k, none->theta, none->grad));
    return SOTTO_OK;
}

/* As evaluations between rounds do, with a tape of their own. */
static enum sotto_status try_evaluation(const struct model *model, struct pool *pool,
                                        const struct estimate_what *what, const struct batch *batch,
                                        const struct view *none)
{
    struct tape tape;
    if (!what->evaluates)
        return SOTTO_OK;
    struct extent e = what->e;
    e.all = false;
    TRY(tape_init(&tape, model, pool->dev, pool, e, false));
    const enum sotto_status st = tape_run(&tape, batch, TAPE_EVALUATE, 0, none, NULL);
    tape_free(&tape);
    return st;
}

/* A round that leaves nothing under way is tried twice, the second time in the rhythm of all
 * others.
 */
static enum sotto_status try_rounds(const struct model *model, struct pool *pool,
                                    const struct estimate_what *what, struct tape *tape,
                                    const struct batch *batch, const struct nothing *none)
{
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        if (!what->asked) {
            if (what->slots)
                TRY(try_all(tape, what->slots, batch, none));
            continue;
        }
        at = at == what->asked->n ? 0 : at;
        TRY(asked_run(what->asked, &at, tape, batch, none->theta, none->grad));
        if (at < what->asked->n)
            TRY(try_evaluation(model, pool, what, batch, none->theta));
    }
    return try_evaluation(model, pool, what, batch, none->theta);
}

static enum sotto_status try_tapes(const struct model *model, struct pool *pool,
                                   const struct estimate_what *what)
{
    const int slots = what->slots;
    struct batch batch = {0};
    struct tape *tape = calloc((size_t)slots + 1, sizeof *tape);
    struct view *views = calloc(2 * (size_t)model->n_stage, sizeof *views);
    const struct nothing none = {views, views + model->n_stage};
    enum sotto_status st = batch_init_of(&batch, &model->sample, what->e.rows, what->e.t);
    if (st == SOTTO_OK && (!views || !tape))
        st = fail(SOTTO_ENOMEM, "no memory for %d stages", model->n_stage);
    for (int k = 0; k < model->n_stage && st == SOTTO_OK; k++) {
        none.theta[k] = (struct view){NULL, what->theta, pool->dev->ops->place};
        none.grad[k] = (struct view){NULL, what->grad, pool->dev->ops->place};
    }
    for (int i = 0; i < slots && st == SOTTO_OK; i++)
        st = tape_init(&tape[i], model, pool->dev, pool, what->e, what->recompute);
    if (st == SOTTO_OK)
        st = try_rounds(model, pool, what, tape, &batch, &none);
    for (int i = 0; i < slots && tape; i++)
        if (tape[i].model)
            tape_free(&tape[i]);
    batch_free(&batch);
    free(tape);
    free(views);
    return st;
}

static enum sotto_status try_model(const struct model *model, const struct estimate_what *what,
                                   struct estimate_model *out)
{
    struct memory memory = {0};
    struct device dev;
    struct pool pool;
    TRY(what->device ? device_open_counting(&dev, what->device, &memory, what->threads)
                     : device_open(&dev, "null", &memory, 1));
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    enum sotto_status st = try_tapes(model, &pool, what);
    *out = (struct estimate_model){(double)memory.peak[MEMORY_ACTIVATIONS],
                                   (double)memory.peak[MEMORY_SCRATCH]};
    pool_free(&pool);
    device_close(&dev);
    return st;
}

static double on_the_line(double at_half, double at_most, double rows, double most)
{
    return at_most + (at_most - at_half) / (most - most / 2) * (rows - most);
}

enum sotto_status estimate_model(const struct model *model, struct estimate_what what,
                                 struct estimate_model *out)
{
    const int rows = what.e.rows;
    const int each = (int)sample_count(&model->sample, what.e.t);
    const int tried = model->sample.content == SAMPLE_TOKENS ? TOKENS_TRIED : PIXELS_TRIED;
    const int most = tried / each > 2 ? tried / each / 2 * 2 : 2;
    if (rows <= most)
        return try_model(model, &what, out);
    struct estimate_model a, b;
    what.e.rows = most / 2;
    TRY(try_model(model, &what, &a));
    what.e.rows = most;
    TRY(try_model(model, &what, &b));
    out->activations = on_the_line(a.activations, b.activations, rows, most);
    out->scratch = on_the_line(a.scratch, b.scratch, rows, most);
    return SOTTO_OK;
}

/* What a worker's method asked of the allocator and of the model, and what it would send to be
 * saved. */
struct account {
    size_t memory[MEMORY_CATEGORIES];
    size_t parcel;
    struct asked asked;
    bool notes;
    struct estimate_model model;
};

struct accounts {
    const struct run *run;
    struct account *account; /* (workers) */
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

/* Groups without common rounds evaluate the real parameters, and save, where all meet. */
static enum sotto_status try_meeting(struct strategy *s, struct plan plan)
{
    struct round round;
    const struct view *theta;
    plan.stop = true;
    while (!async_last_round(s->async)->meet)
        TRY(s->ops->round(s, &plan, &round));
    return s->ops->gather(s, &theta);
}

static enum sotto_status try_method(const struct trial_seat *seat, void *arg)
{
    const struct accounts *all = arg;
    struct account *account = &all->account[seat->mesh->worker->rank];
    struct strategy *s = seat->s;
    struct round round;
    const struct view *theta;
    const struct plan plan = {.lr = 1, .next_lr = 1, .want_norm = true};
    TRY(s->ops->round(s, &plan, &round));
    TRY(s->ops->gather(s, &theta));              /* as an evaluation does */
    double goes_on = asked_goes_on(seat->asked); /* then the next round is another than the first */
    TRY(comm_sum(seat->mesh->worker->world, &goes_on, 1));
    if (goes_on > 0) {
        TRY(asked_add(seat->asked, ASKED_PAUSE, 0, 0));
        TRY(s->ops->round(s, &plan, &round));
    }
    account->asked = *seat->asked;
    *seat->asked = (struct asked){0};
    account->notes = *seat->notes;
    if (s->async)
        TRY(try_meeting(s, plan));
    TRY(count_state(s, seat->mesh, &account->parcel));
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        account->memory[c] = seat->memory->peak[c];
    return SOTTO_OK;
}

/* All groups but the first are alike, so two stand for any number. */
static enum sotto_status try_workers(struct accounts *a)
{
    struct trial t = {.run = a->run,
                      .strategy = a->run->config.strategy,
                      .body = try_method,
                      .arg = a,
                      .about = "estimating the memory: "};
    strategy_trial(&t.strategy, t.strategy.groups > 2 ? 2 : t.strategy.groups);
    a->workers = t.strategy.workers;
    a->account = calloc((size_t)a->workers, sizeof *a->account);
    if (!a->account)
        return fail(SOTTO_ENOMEM, "no memory to account for %d workers", a->workers);
    return trial_run(&t);
}

static const struct account *of_rank(const struct accounts *t, int rank)
{
    return &t->account[rank < t->workers ? rank : t->workers / 2 + rank % (t->workers / 2)];
}

/* Rank 0 has the parameters in host memory, then what the others send; the others what they send.
 * Where groups have no rounds in common it has a copy of its own, too. */
static double of_checkpoint(const struct accounts *t, int rank)
{
    double parcels = 0, whole = 4.0 * (double)table_count(t->run->table);
    if (!run_keeps(t->run))
        return 0;
    if (rank > 0)
        return (double)of_rank(t, rank)->parcel;
    for (int r = strategy_async(&t->run->config.strategy) ? 0 : 1; r < t->run->cluster.size; r++)
        parcels += (double)of_rank(t, r)->parcel;
    return parcels > whole ? parcels : whole;
}

/* Workers that do the same need the same; most do what the one before does. */
static enum sotto_status try_models(struct accounts *t, struct estimate_what what)
{
    for (int i = 0; i < t->workers; i++) {
        struct account *a = &t->account[i];
        int like = i - 1;
        while (like >= 0 && !asked_same(&t->account[like].asked, &a->asked))
            like--;
        what.asked = &a->asked;
        if (like >= 0)
            a->model = t->account[like].model;
        else
            TRY(estimate_model(&t->run->model, what, &a->model));
    }
    return SOTTO_OK;
}

static void add_worker(const struct accounts *t, int rank, int slots, struct estimate *out)
{
    const struct account *a = of_rank(t, rank);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        out->bytes[c] += (double)a->memory[c];
    if (t->run->model.state
            .n) { /* a worker's own, and the mean (running_stats.h); notes (model_oracle.h) */
        const int states = 2 + (a->notes ? slots + 2 : 0);
        out->bytes[MEMORY_PARAMETERS] += states * 4.0 * (double)table_count(&t->run->model.state);
    }
    out->bytes[MEMORY_ACTIVATIONS] += a->model.activations;
    out->bytes[MEMORY_SCRATCH] += a->model.scratch;
    out->bytes[MEMORY_CHECKPOINT] += of_checkpoint(t, rank);
    out->workers++;
}

/* The state of all workers as a checkpoint has it, with the mean of what the model keeps next to
 * its parameters. */
static double state_bytes_of(const struct accounts *t)
{
    const int size = t->run->cluster.size;
    double bytes = 0;
    for (int r = 0; r < size; r++)
        bytes += (double)of_rank(t, r)->parcel;
    if (t->run->model.state.n)
        bytes += 4.0 * (size + 1) * (double)table_count(&t->run->model.state);
    return bytes;
}

/* With so many threads of each worker. */
static enum sotto_status estimate_with(const struct run *run, int threads, struct estimate *out)
{
    const struct cluster *cluster = &run->cluster;
    const struct train_config *c = &run->config.train;
    struct accounts t = {.run = run};
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
        asked_free(&t.account[i].asked);
    free(t.account);
    return st;
}

enum sotto_status estimate_run(const struct run *run, struct estimate *out)
{
    return estimate_with(run, cluster_threads(&run->cluster), out);
}

/* "activations 4.2 GB, optimizer 1.0 GB, ...", the largest first. */
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

/* Ranks of MPI are a worker each, all about alike, and have a device each, or share one;
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

/* Whether most of activations and scratch is what threads have beside a single one's. */
static bool mostly_threads(const struct run *run, const struct estimate *e)
{
    struct estimate one;
    if (cluster_threads(&run->cluster) == 1 || estimate_with(run, 1, &one) != SOTTO_OK)
        return false;
    estimate_keep_ours(run, &one);
    return 2 * (e->total - one.total) > e->bytes[MEMORY_ACTIVATIONS] + e->bytes[MEMORY_SCRATCH];
}

/* What would make a run smaller: of activations and scratch, or of what belongs to parameters. */
static const char *what_helps(const struct run *run, const struct estimate *e)
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
    const double share = 0.75; /* an estimate lacks stacks and what others will take */
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
                "--check_memory=false tries all the same",
                needs, a.by, left, parts, workers, what_helps(run, &e));
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

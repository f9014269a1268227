/* Jobs on all workers, and the loop for those who need none of their own. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/api/api_impl.h"

struct running {
    struct cluster cluster;
    struct run_config config;
    sotto_job *job;
    void *arg;
};

static enum sotto_status run_job(struct worker *w, void *arg)
{
    const struct running *r = arg;
    struct sotto_worker worker = {w, &r->cluster};
    return r->job(&worker, r->arg);
}

/* Callbacks want numbers. */
static enum sotto_status check_embed_device(const char *name)
{
    if (strcmp(name, "null") != 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "train.device = %s: callbacks need cpu or reference", name);
}

enum sotto_status sotto_run(const struct sotto_options *options, sotto_job *job, void *arg)
{
    struct sotto_options *defaults = NULL;
    struct running *r = calloc(1, sizeof *r); /* its texts are long */
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

struct loop {
    struct sotto_training is;
    struct sotto_result result; /* of the first worker here */
    bool stopped;
};

/* What a worker tells the others in the end. */
struct account {
    struct cost cost;
    size_t memory[SOTTO_MEMORY_ROOM], memory_total;
};

static void sum_up(struct sotto_result *r, const struct account *all)
{
    struct cost_joint joint = {0};
    for (int i = 0; i < r->workers; i++) {
        const struct account *a = &all[i];
        cost_join(&joint, &a->cost);
        for (int c = 0; c < SOTTO_MEMORY_CATEGORIES; c++)
            r->memory[c] = a->memory[c] > r->memory[c] ? a->memory[c] : r->memory[c];
        r->memory_total = a->memory_total > r->memory_total ? a->memory_total : r->memory_total;
    }
    const struct cost cost = cost_mean(&joint);
    r->cost = embed_cost(&cost);
    r->cost.seconds = joint.slowest;
}

static enum sotto_status conclude_training(struct loop *l, struct sotto_trainer *t, double loss)
{
    struct worker *w = t->worker->worker;
    const bool first = embed_first_here(t->worker);
    TRY(mesh_rest(&t->mesh)); /* what was sent is counted, also where nobody waited for it */
    struct account mine = {.cost = meter_read(&t->meter)};
    mine.memory_total = sotto_trainer_memory(t, mine.memory);
    TRY(sotto_trainer_parameters(t, first ? l->is.parameters : NULL));
    struct account *all = calloc((size_t)w->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the costs of %d workers", w->size);
    enum sotto_status st = comm_gather_bytes(w->world, all, &mine, sizeof mine);
    if (st == SOTTO_OK && first) {
        l->result = (struct sotto_result){.struct_size = sizeof l->result,
                                          .step = t->step,
                                          .rank = w->rank,
                                          .workers = w->size,
                                          .loss = loss};
        sum_up(&l->result, all);
        cluster_describe(t->worker->cluster, l->result.cluster);
    }
    free(all);
    return st;
}

/* Before anything is trained that it is to hold. */
static enum sotto_status check_place(const char *path)
{
    char folder[FILE_PATH_ROOM];
    rescue_parent(path, folder);
    return access(folder, W_OK | X_OK) == 0
               ? SOTTO_OK
               : fail_errno(SOTTO_EIO, "the checkpoint %s: cannot write in %s", path, folder);
}

/* The run is at its end, and its checkpoint in another place. */
static enum sotto_status check_saved(const struct loop *l, const struct sotto_trainer *t)
{
    if (!*t->elsewhere)
        return SOTTO_OK;
    return fail(SOTTO_EIO,
                "%s cannot be written: step %lld, with which training ends, is saved in "
                "%s; with that as its checkpoint it goes on from there",
                l->is.checkpoint, (long long)t->step, t->elsewhere);
}

/* Rank 0 alone looks for the file: it is there for everybody or for nobody. */
static enum sotto_status go_on(const struct loop *l, struct sotto_trainer *t)
{
    struct worker *w = t->worker->worker;
    const char *path = l->is.checkpoint;
    t->keeps = path != NULL;
    if (path && w->rank == 0)
        TRY(check_place(path));
    double found = path && w->rank == 0 && file_exists(path);
    TRY(comm_sum(w->world, &found, 1));
    return found > 0 ? sotto_trainer_load(t, path) : SOTTO_OK;
}

/* Rank 0 tells of a round, or of the pushes that there were; *loss: of the last one. */
static enum sotto_status tell(const struct loop *l, struct sotto_trainer *t,
                              const struct sotto_round *r, double *loss)
{
    const struct sotto_training *is = &l->is;
    const bool leads = t->worker->worker->rank == 0;
    const struct run_config *c = t->worker->cluster->config;
    struct sotto_push p = {.struct_size = sizeof p};
    if (!r->idle)
        *loss = r->loss;
    if (!trainer_is_apart(t)) {
        if (leads && is->observe && is->observe(is->observer, r))
            sotto_trainer_stop(t);
        return SOTTO_OK;
    }
    for (bool found = leads; found;) {
        TRY(sotto_trainer_pushed(t, &p, &found));
        if (!found)
            break;
        struct sotto_round one = {.struct_size = sizeof one,
                                  .step = p.step,
                                  .steps = r->steps,
                                  .loss = *loss = p.loss,
                                  .grad_norm = -1,
                                  .lr = t->lr < 0 ? optim_lr(&c->optim, p.step, r->steps) : t->lr,
                                  .seconds = p.seconds,
                                  .microbatches = p.microbatches,
                                  .cost = r->cost,
                                  .push = &p};
        if (is->observe && is->observe(is->observer, &one))
            sotto_trainer_stop(t);
    }
    return SOTTO_OK;
}

static enum sotto_status rounds(struct loop *l, struct sotto_trainer *t)
{
    const struct sotto_training *is = &l->is;
    const struct train_config *c = &t->worker->cluster->config->train;
    struct sotto_round r = {.struct_size = sizeof r};
    double loss = 0;
    if (is->pushes)
        TRY(trainer_has_pushes(t));
    TRY(go_on(l, t));
    for (r.over = t->step >= c->steps; !r.over;) {
        TRY(sotto_trainer_round(t, &r));
        TRY(tell(l, t, &r, &loss));
        const bool due = c->save_every && (trainer_is_apart(t) || t->step % c->save_every == 0);
        if (!is->checkpoint || !r.meet || !(r.over || due || trainer_saves(t)))
            continue;
        TRY(fail_in(sotto_trainer_save(t, is->checkpoint), "step %lld: ", (long long)t->step));
        trainer_save_later(t);
    }
    TRY(check_saved(l, t));
    if (embed_first_here(t->worker))
        l->stopped = r.stop && t->step < c->steps;
    if (is->pushes)
        TRY(sotto_trainer_pushes(t, is->pushes));
    return conclude_training(l, t, loss);
}

static enum sotto_status train(struct sotto_worker *worker, void *arg)
{
    struct loop *l = arg;
    struct sotto_trainer *t;
    TRY(trainer_create(&t, worker, l->is.problem, l->is.parameters,
                       l->is.checkpoint ? worker->cluster->config->train.save_minutes : 0));
    return sotto_trainer_destroy(t, rounds(l, t));
}

enum sotto_status sotto_train(const struct sotto_training *training, struct sotto_result *result)
{
    struct loop l = {.stopped = false};
    struct sotto_result none = {.struct_size = sizeof none};
    TRY(EMBED_TAKE(sotto_training, checkpoint, &l.is, training));
    if (!result)
        result = &none;
    TRY(EMBED_HAND(sotto_result, cluster, result, &none)); /* refused before, not behind training */
    TRY(sotto_run(l.is.options, train, &l));
    TRY(EMBED_HAND(sotto_result, cluster, result, &l.result));
    return l.stopped ? fail(SOTTO_ESTOPPED, "stopped at step %lld", (long long)l.result.step)
                     : SOTTO_OK;
}

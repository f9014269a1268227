/* Checkpoints and hashes of what all workers hold together. */
#include "train/run/trainer.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hf/weights.h"
#include "strategy/history.h"
#include "train/checkpoint/save.h"
#include "train/open/resume.h"
#include "train/run/gather.h"

static enum sotto_status visit_counts(struct trainer *t, struct state_visitor *v)
{
    TRY(state_count(v, "step", &t->step, STATE_STEPS));
    TRY(state_count(v, "tokens", &t->tokens, STATE_TOTAL));
    return state_count(v, "samples", &t->samples, STATE_TOTAL);
}

/* All that must survive but the parameters. */
static enum sotto_status visit(struct trainer *t, struct state_visitor *v)
{
    TRY(visit_counts(t, v));
    TRY(running_visit(&t->running, v, t->worker));
    return t->strategy->ops->visit(t->strategy, v);
}

/* A run goes on exactly only with the data that it had; how many tokens they are tells most changes
 * without reading them. */
static enum sotto_status visit_data(struct trainer *t, struct state_visitor *v)
{
    const int64_t now = loader_tokens(t->run->train);
    int64_t tokens = now;
    TRY(state_count(v, "data.tokens", &tokens, STATE_TOTAL));
    if (tokens != now && t->worker->rank == 0)
        log_warn("the training data have %lld %s, and had %lld when the checkpoint was made: "
                 "what follows is not what would have followed then",
                 (long long)now, run_kind(t->run)->unit, (long long)tokens);
    return SOTTO_OK;
}

/* What computes, which the configuration does not say where it is auto. */
static enum sotto_status visit_device(struct trainer *t, struct state_visitor *v)
{
    char now[RUN_DEVICE_ROOM], before[RUN_DEVICE_ROOM];
    run_describe_device(t->run, now);
    strcpy(before, now);
    TRY(state_text(v, "device", before, sizeof before));
    if (strcmp(before, now) != 0 && t->worker->rank == 0)
        log_info("changed: computing on %s, after %s: from here on results may differ by rounding",
                 now, before);
    return SOTTO_OK;
}

/* What was told of pushes, which is less than what groups have trained on since they pulled. */
static enum sotto_status visit_pushed(struct trainer *t, struct state_visitor *v)
{
    t->pushed_tokens = state_loading(v) ? t->tokens : t->pushed_tokens;
    t->pushed_samples = state_loading(v) ? t->samples : t->pushed_samples;
    if (state_loading(v) ? !state_has(v, "pushed.tokens")
                         : !strategy_async(&t->run->config.strategy))
        return SOTTO_OK;
    TRY(state_count(v, "pushed.tokens", &t->pushed_tokens, STATE_TOTAL));
    return state_count(v, "pushed.samples", &t->pushed_samples, STATE_TOTAL);
}

/* Only where it is measured. */
static enum sotto_status visit_cosine(struct trainer *t, struct state_visitor *v)
{
    if (state_loading(v) ? !state_has(v, "report.cosines") : t->cosines == 0)
        return SOTTO_OK;
    TRY(state_within(v, "report.cosine", &t->cosine, -STATE_STEPS, STATE_STEPS));
    return state_count(v, "report.cosines", &t->cosines, STATE_STEPS);
}

/* What is reported in the end, and what the run has cost, which differs from run to run. */
static enum sotto_status visit_report(struct trainer *t, struct state_visitor *v)
{
    strategy_describe(&t->run->config.strategy, t->method);
    TRY(state_text(v, "method", t->method, sizeof t->method));
    TRY(state_within(v, "report.loss", &t->tail_loss, -DBL_MAX, DBL_MAX));
    TRY(state_count(v, "report.losses", &t->tail_reports, STATE_STEPS));
    TRY(state_real(v, "report.eval_loss", &t->evaluation.loss)); /* of any value */
    TRY(state_count(v, "report.eval_targets", &t->evaluation.targets, STATE_TOTAL));
    TRY(state_count(v, "report.eval_hits", &t->evaluation.hits, STATE_TOTAL));
    TRY(state_count(v, "report.eval_near", &t->evaluation.near, STATE_TOTAL));
    TRY(visit_cosine(t, v));
    TRY(visit_data(t, v));
    TRY(visit_device(t, v));
    return meter_visit_costs(&t->meter, v);
}

enum sotto_status save_visit_common(struct trainer *t, struct state_visitor *v)
{
    TRY(visit_report(t, v));
    TRY(visit_counts(t, v));
    TRY(best_visit(&t->best, v, best_wanted(&t->run->config.train)));
    return visit_pushed(t, v);
}

enum sotto_status save_visit_own(void *trainer, struct state_visitor *v)
{
    struct trainer *t = trainer;
    TRY(meter_visit_begun(&t->meter, v));
    TRY(running_visit(&t->running, v, t->worker));
    return t->strategy->ops->visit(t->strategy, v);
}

static enum sotto_status visit_all(void *trainer, struct state_visitor *v)
{
    TRY(save_visit_common(trainer, v));
    return save_visit_own(trainer, v);
}

static bool leads(const struct trainer *t)
{
    return t->worker->rank == 0;
}

enum sotto_status trainer_load(struct trainer *t)
{
    struct run *run = t->run;
    struct state_visitor v;
    TRY(lent_begin(&run->lent));
    state_loader_init(&v, &run->state);
    enum sotto_status st = visit_all(t, &v);
    if (st == SOTTO_OK)
        st = resume_finish(&v, t->method, &run->config.strategy, leads(t));
    state_free(&v);
    if (leads(t) || run->cluster.mpi)
        run->refused = st != SOTTO_OK && st != SOTTO_EPEER;
    TRY(lent_end(&run->lent, fail_in(st, "%s: ", run->state.set.file[0].path)));
    TRY(comm_barrier(t->worker->world)); /* everybody has read */
    if (leads(t) || run->cluster.mpi) {
        lent_close(&run->lent);
        state_file_close(&run->state);
    }
    return SOTTO_OK;
}

enum sotto_status save_put_state(void *saver, struct checkpoint *c)
{
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, c->folder, "state.safetensors"));
    return state_saver_write(saver, path);
}

static enum sotto_status save_state(struct trainer *t, struct checkpoint *c)
{
    struct state_visitor v = {0};
    struct gathered parcels = {0};
    TRY(meter_gather(&t->meter));
    if (leads(t))
        TRY(state_saver_init(&v));
    enum sotto_status st =
        gather_state(t->worker->world, t->mesh.r == 0, visit_all, t, &t->memory, &v, &parcels);
    if (leads(t)) {
        if (st == SOTTO_OK)
            st = rescue_try(t->run, c, save_put_state, &v);
        state_free(&v);
        gathered_free(&parcels);
    }
    return st;
}

static void drop_parameters(struct trainer *t, float *flat)
{
    memory_give(&t->memory, MEMORY_CHECKPOINT, flat, table_count(t->run->table) * sizeof *flat);
}

/* The parameters in host memory on rank 0, which drops them; NULL on the others. */
static enum sotto_status copy_parameters(struct trainer *t, float **flat)
{
    const size_t count = table_count(t->run->table);
    *flat = NULL;
    if (leads(t))
        *flat = memory_resize(&t->memory, MEMORY_CHECKPOINT, NULL, 0, count * sizeof **flat);
    if (leads(t) && !*flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    enum sotto_status st = t->strategy->ops->export(t->strategy, *flat);
    if (st != SOTTO_OK)
        drop_parameters(t, *flat);
    return st;
}

enum sotto_status save_put_model(void *save_model, struct checkpoint *c)
{
    const struct save_model *m = save_model;
    const struct run *run = m->run;
    char path[FILE_PATH_ROOM];
    TRY(hf_folder_write(&run->folder, &run->model, run->tokenizer, c->folder));
    TRY(file_join(path, c->folder, "model.safetensors"));
    TRY(weights_save(&run->model, path, m->flat, m->state, run->folder.types));
    if (hf_folder_exact(&run->folder, &run->model))
        return SOTTO_OK;
    TRY(file_join(path, c->folder, CHECKPOINT_PARAMETERS));
    return weights_save(&run->model, path, m->flat, m->state, NULL);
}

static enum sotto_status save_model(struct trainer *t, struct checkpoint *c)
{
    float *flat, *state = NULL;
    const size_t count = t->running.mean.count;
    TRY(running_average(&t->running, t->worker->world));
    TRY(copy_parameters(t, &flat));
    enum sotto_status st = SOTTO_OK;
    if (leads(t) && count && !(state = calloc(count, sizeof *state)))
        st = fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model's state", count);
    if (state)
        t->dev.ops->read(&t->dev, state, t->running.mean.view, count);
    if (leads(t) && st == SOTTO_OK)
        st = rescue_try(t->run, c, save_put_model, &(struct save_model){t->run, flat, state});
    free(state);
    drop_parameters(t, flat);
    return st;
}

enum sotto_status save_put_config(void *arg, struct checkpoint *c)
{
    const struct run *run = arg;
    char path[FILE_PATH_ROOM];
    struct option_section sections[RUN_SECTIONS];
    TRY(file_join(path, c->folder, "sotto.ini"));
    struct run_config *config = malloc(sizeof *config); /* too large for a worker's stack */
    char *text = NULL;
    if (config) {
        *config = run->config;
        resume_keep(config);
        run_sections(config, sections);
        text = option_dump(sections, RUN_SECTIONS);
    }
    enum sotto_status st =
        text ? file_write(path, text, strlen(text)) : fail(SOTTO_ENOMEM, "no memory for %s", path);
    free(config);
    free(text);
    return st;
}

/* Groups without common rounds have computed at other times. */
static enum sotto_status most_counts(struct comm *world, int64_t n, int64_t *most)
{
    int64_t *all = calloc((size_t)world->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the counts of %d workers", world->size);
    const enum sotto_status st = comm_gather_bytes(world, all, &n, sizeof n);
    *most = n;
    for (int i = 0; i < world->size; i++)
        *most = all[i] > *most ? all[i] : *most;
    free(all);
    return st;
}

void save_warn(const char *path, enum sotto_status st)
{
    if (st != SOTTO_OK)
        log_warn("%s is not written: %s", path, sotto_error());
}

/* counts.tsv, where the method depends on timing: what a method's `replay` takes. */
enum sotto_status save_write_counts(struct trainer *t)
{
    struct comm *world = t->worker->world;
    const struct strategy_ops *ops = t->strategy->ops;
    if (!ops->history)
        return SOTTO_OK;
    char path[FILE_PATH_ROOM];
    int64_t n, most = 0;
    const int32_t *mine = ops->history(t->strategy, &n);
    TRY(most_counts(world, n, &most));
    int32_t *all = calloc((size_t)most * ((size_t)world->size + 1) + 1, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the counts of %d workers", world->size);
    int32_t *own = all + most * world->size;
    if (n > 0)
        memcpy(own, mine, (size_t)n * sizeof *mine);
    enum sotto_status st = comm_gather_bytes(world, all, own, (size_t)most * sizeof *own);
    if (st == SOTTO_OK && leads(t))
        st = file_join(path, t->run->config.train.out, "counts.tsv");
    if (st == SOTTO_OK && leads(t))
        save_warn(path, history_write(path, all, most, world->size));
    free(all);
    return st;
}

/* pushes.tsv, likewise. */
static enum sotto_status save_pushes(struct trainer *t)
{
    char path[FILE_PATH_ROOM];
    if (!t->strategy->async || !leads(t))
        return SOTTO_OK;
    TRY(file_join(path, t->run->config.train.out, "pushes.tsv"));
    save_warn(path, async_write_journal(t->strategy->async, path));
    return SOTTO_OK;
}

/* `c` is rank 0's. */
static enum sotto_status save_files(struct trainer *t, struct checkpoint *c)
{
    TRY(save_model(t, c));
    TRY(save_state(t, c));
    TRY(save_write_counts(t));
    TRY(save_pushes(t));
    if (!leads(t))
        return SOTTO_OK;
    return rescue_try(t->run, c, save_put_config, t->run);
}

/* What could not be gone on from must not take the place of what can. */
static enum sotto_status complete_files(void *arg, struct checkpoint *c)
{
    (void)arg;
    TRY(checkpoint_list(c->folder));
    return checkpoint_check(c->folder);
}

enum sotto_status save_commit(struct run *run, struct checkpoint *c, enum sotto_status st)
{
    if (st == SOTTO_OK)
        st = rescue_try(run, c, complete_files, NULL);
    if (st != SOTTO_OK) {
        checkpoint_abort(c);
        return st;
    }
    TRY(checkpoint_commit(c, c->run == &run->dir ? run->config.train.keep : 1));
    st = rundir_publish(c->run, c->folder);
    while (st == SOTTO_EIO && rescue_wait(&run->rescue, run->watch.stop, "the model"))
        st = rundir_publish(c->run, c->folder);
    TRY(st);
    rescue_done(run, c);
    return SOTTO_OK;
}

/* Where the step is the best so far. The checkpoint is there in any case. */
static void keep_best(struct trainer *t, const struct checkpoint *c)
{
    struct run *run = t->run;
    char folder[FILE_PATH_ROOM];
    if (!run->config.train.keep_best || t->best.step != t->step)
        return;
    if (best_keep(c) != SOTTO_OK || best_folder(c->run->path, folder) != SOTTO_OK)
        log_warn("the best checkpoint is not kept: %s", sotto_error());
    else if (run->watch.saved)
        run->watch.saved(run->watch.arg, t->step, folder);
}

enum sotto_status trainer_save(struct trainer *t)
{
    struct run *run = t->run;
    struct checkpoint c;
    if (!run_keeps(run))
        return SOTTO_OK;
    if (!leads(t))
        return save_files(t, NULL);
    TRY(rescue_begin(run, &c, t->step));
    TRY(save_commit(run, &c, save_files(t, &c)));
    if (run->watch.saved)
        run->watch.saved(run->watch.arg, t->step, c.folder);
    keep_best(t, &c);
    return SOTTO_OK;
}

enum sotto_status trainer_hash(struct trainer *t, uint64_t *out)
{
    struct state_visitor v;
    struct comm *world = t->worker->world;
    float *flat;
    *out = 0;
    if (t->run->config.train.oracle == ORACLE_NULL)
        return SOTTO_OK;
    TRY(running_average(&t->running, world));
    TRY(copy_parameters(t, &flat));
    uint64_t *all = calloc((size_t)world->size, sizeof *all);
    state_hasher_init(&v);
    gather_share(&v, world->rank, t->mesh.r == 0);
    enum sotto_status st = all ? visit(t, &v) : fail(SOTTO_ENOMEM, "no memory for hashes");
    if (st == SOTTO_OK && leads(t))
        st =
            state_table(&v, t->run->table, NULL, MEMORY_PARAMETERS, NULL, view_of(flat, DTYPE_F32));
    if (st == SOTTO_OK)
        st = comm_gather_bytes(world, all, &v.hash, sizeof v.hash);
    for (int r = 0; r < world->size && st == SOTTO_OK; r++)
        *out += all[r];
    state_free(&v);
    free(all);
    drop_parameters(t, flat);
    return st;
}

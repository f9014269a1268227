/* Checkpoints and hashes of the state that all workers hold together. */
#include "train/checkpoint/save.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hf/weights.h"
#include "strategy/history.h"
#include "train/open/resume.h"

static bool leads_run(const struct run_worker *w)
{
    return w->training.worker->rank == 0;
}

static enum sotto_status visit_counts(struct training *t, struct state_visitor *v)
{
    TRY(state_count(v, "step", &t->step, STATE_STEPS));
    TRY(state_count(v, "tokens", &t->count.tokens, STATE_TOTAL));
    return state_count(v, "samples", &t->count.samples, STATE_TOTAL);
}

/* Visits the number of the training data's tokens or images. A run is continued exactly with the
 * same data only, and another number shows most changes without reading them. */
static enum sotto_status visit_data(struct run_worker *w, struct state_visitor *v)
{
    const int64_t now = loader_tokens(w->run->train);
    int64_t tokens = now;
    TRY(state_count(v, "data.tokens", &tokens, STATE_TOTAL));
    if (tokens != now && leads_run(w))
        log_warn("the training data have %lld %s, and had %lld when the checkpoint was made: "
                 "what follows is not what would have followed then",
                 (long long)now, run_kind(w->run)->unit, (long long)tokens);
    return SOTTO_OK;
}

/* Visits the name of the device, which train.device = auto does not say. */
static enum sotto_status visit_device(struct run_worker *w, struct state_visitor *v)
{
    char now[RUN_DEVICE_ROOM], before[RUN_DEVICE_ROOM];
    run_describe_device(w->run, now);
    strcpy(before, now);
    TRY(state_text(v, "device", before, sizeof before));
    if (strcmp(before, now) != 0 && leads_run(w))
        log_info("changed: computing on %s, after %s: from here on results may differ by rounding",
                 now, before);
    return SOTTO_OK;
}

/* Visits the counts of the pushes that were reported. Groups have trained on more since they
 * pulled. */
static enum sotto_status visit_pushed(struct run_worker *w, struct state_visitor *v)
{
    const struct training_count *c = &w->training.count;
    struct run_totals *s = &w->totals;
    s->pushed_tokens = state_loading(v) ? c->tokens : s->pushed_tokens;
    s->pushed_samples = state_loading(v) ? c->samples : s->pushed_samples;
    if (state_loading(v) ? !state_has(v, "pushed.tokens")
                         : !strategy_async(&w->run->config.strategy))
        return SOTTO_OK;
    TRY(state_count(v, "pushed.tokens", &s->pushed_tokens, STATE_TOTAL));
    return state_count(v, "pushed.samples", &s->pushed_samples, STATE_TOTAL);
}

/* Visits the cosines, of a run that measures them. */
static enum sotto_status visit_cosine(struct run_totals *s, struct state_visitor *v)
{
    if (state_loading(v) ? !state_has(v, "report.cosines") : s->cosines == 0)
        return SOTTO_OK;
    TRY(state_within(v, "report.cosine", &s->cosine, -STATE_STEPS, STATE_STEPS));
    return state_count(v, "report.cosines", &s->cosines, STATE_STEPS);
}

/* Visits the numbers of the final report, and the run's costs, which differ from run to run. */
static enum sotto_status visit_report(struct run_worker *w, struct state_visitor *v)
{
    struct run_totals *s = &w->totals;
    struct evaluation *e = &s->evaluation;
    TRY(training_visit_method(&w->training, v));
    TRY(state_within(v, "report.loss", &s->tail_loss, -DBL_MAX, DBL_MAX));
    TRY(state_count(v, "report.losses", &s->tail_reports, STATE_STEPS));
    TRY(state_real(v, "report.eval_loss", &e->loss)); /* of any value */
    TRY(state_count(v, "report.eval_targets", &e->targets, STATE_TOTAL));
    TRY(state_count(v, "report.eval_hits", &e->hits, STATE_TOTAL));
    TRY(state_count(v, "report.eval_near", &e->near, STATE_TOTAL));
    TRY(visit_cosine(s, v));
    TRY(visit_data(w, v));
    TRY(visit_device(w, v));
    return meter_visit_costs(&w->training.meter, v);
}

enum sotto_status save_visit_common(struct run_worker *w, struct state_visitor *v)
{
    TRY(visit_report(w, v));
    TRY(visit_counts(&w->training, v));
    TRY(best_visit(&w->totals.best, v, best_wanted(&w->run->config.train)));
    return visit_pushed(w, v);
}

enum sotto_status save_visit_own(void *run_worker, struct state_visitor *v)
{
    struct run_worker *w = run_worker;
    return training_visit(&w->training, v);
}

enum sotto_status checkpoint_load(struct run_worker *w)
{
    struct run *run = w->run;
    const bool first = leads_run(w) || run->cluster.mpi; /* of this process */
    struct state_visitor v;
    TRY(lent_begin(&run->lent));
    state_loader_init(&v, &run->state);
    enum sotto_status st = save_visit_common(w, &v);
    if (st == SOTTO_OK)
        st = save_visit_own(w, &v);
    if (st == SOTTO_OK)
        st = resume_finish(&v, w->training.method, &run->config.strategy, leads_run(w));
    state_free(&v);
    if (first)
        run->refused = st != SOTTO_OK && st != SOTTO_EPEER;
    TRY(lent_end(&run->lent, fail_in(st, "%s: ", run->state.set.file[0].path)));
    TRY(comm_barrier(w->training.worker->world)); /* all workers have read the file */
    if (first) {
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

struct saving {
    struct run_worker *w;
    struct checkpoint *c; /* rank 0's */
};

static enum sotto_status save_visit_all(void *saving, struct state_visitor *v)
{
    struct run_worker *w = ((struct saving *)saving)->w;
    TRY(save_visit_common(w, v));
    return save_visit_own(w, v);
}

static enum sotto_status save_write_state(void *saving, struct state_visitor *saver)
{
    struct saving *s = saving;
    return rescue_try(s->w->run, s->c, save_put_state, saver);
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

static enum sotto_status save_model(struct run_worker *w, struct checkpoint *c)
{
    struct training *t = &w->training;
    struct running_stats *running = &w->oracle.running;
    const bool leads = leads_run(w);
    float *flat, *state = NULL;
    const size_t count = running->mean.count;
    TRY(running_stats_average(running, t->worker->world));
    TRY(training_export(t, leads, &flat));
    enum sotto_status st = SOTTO_OK;
    if (leads && count && !(state = calloc(count, sizeof *state)))
        st = fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model's state", count);
    if (state)
        t->dev.ops->read(&t->dev, state, running->mean.view, count);
    if (leads && st == SOTTO_OK)
        st = rescue_try(w->run, c, save_put_model, &(struct save_model){w->run, flat, state});
    free(state);
    training_drop(t, flat);
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

/* Finds the largest n of all workers: asynchronous groups differ in their numbers of counts. */
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

enum sotto_status save_write_counts(struct run_worker *w)
{
    struct comm *world = w->training.worker->world;
    struct strategy *s = w->training.strategy;
    if (!s->ops->history)
        return SOTTO_OK;
    char path[FILE_PATH_ROOM];
    int64_t n, most = 0;
    const int32_t *mine = s->ops->history(s, &n);
    TRY(most_counts(world, n, &most));
    int32_t *all = calloc((size_t)most * ((size_t)world->size + 1) + 1, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for the counts of %d workers", world->size);
    int32_t *own = all + most * world->size;
    if (n > 0)
        memcpy(own, mine, (size_t)n * sizeof *mine);
    enum sotto_status st = comm_gather_bytes(world, all, own, (size_t)most * sizeof *own);
    if (st == SOTTO_OK && leads_run(w))
        st = file_join(path, w->run->config.train.out, "counts.tsv");
    if (st == SOTTO_OK && leads_run(w))
        save_warn(path, history_write(path, all, most, world->size));
    free(all);
    return st;
}

/* Writes pushes.tsv, of asynchronous groups: their option `replay` takes the file. */
static enum sotto_status save_pushes(struct run_worker *w)
{
    char path[FILE_PATH_ROOM];
    struct async *async = w->training.strategy->async;
    if (!async || !leads_run(w))
        return SOTTO_OK;
    TRY(file_join(path, w->run->config.train.out, "pushes.tsv"));
    save_warn(path, async_write_journal(async, path));
    return SOTTO_OK;
}

static enum sotto_status save_files(struct run_worker *w, struct checkpoint *c)
{
    struct saving saving = {w, c};
    TRY(save_model(w, c));
    TRY(training_save(&w->training, save_visit_all, save_write_state, &saving));
    TRY(save_write_counts(w));
    TRY(save_pushes(w));
    if (!leads_run(w))
        return SOTTO_OK;
    return rescue_try(w->run, c, save_put_config, w->run);
}

/* Checks that the checkpoint can be resumed, before it replaces an older one. */
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

/* Keeps the checkpoint if its step has the lowest loss so far. A failure is a warning: the
 * checkpoint is saved already. */
static void keep_best(struct run_worker *w, const struct checkpoint *c)
{
    struct run *run = w->run;
    char folder[FILE_PATH_ROOM];
    if (!run->config.train.keep_best || w->totals.best.step != w->training.step)
        return;
    if (best_keep(c) != SOTTO_OK || best_folder(c->run->path, folder) != SOTTO_OK)
        log_warn("the best checkpoint is not kept: %s", sotto_error());
    else if (run->watch.saved)
        run->watch.saved(run->watch.arg, w->training.step, folder);
}

enum sotto_status checkpoint_save(struct run_worker *w)
{
    struct run *run = w->run;
    struct checkpoint c;
    if (!run_keeps(run))
        return SOTTO_OK;
    if (!leads_run(w))
        return save_files(w, NULL);
    TRY(rescue_begin(run, &c, w->training.step));
    TRY(save_commit(run, &c, save_files(w, &c)));
    if (run->watch.saved)
        run->watch.saved(run->watch.arg, w->training.step, c.folder);
    keep_best(w, &c);
    return SOTTO_OK;
}

/* Visits the hashed state but for the parameters. Costs, which differ from run to run, are not
 * hashed.
 */
static enum sotto_status visit_hashed(struct run_worker *w, struct state_visitor *v)
{
    struct training *t = &w->training;
    TRY(visit_counts(t, v));
    TRY(running_stats_visit(&w->oracle.running, v, t->worker));
    return t->strategy->ops->visit(t->strategy, v);
}

enum sotto_status checkpoint_hash(struct run_worker *w, uint64_t *out)
{
    struct training *t = &w->training;
    struct comm *world = t->worker->world;
    struct state_visitor v;
    float *flat;
    *out = 0;
    if (w->run->config.train.oracle == ORACLE_NULL)
        return SOTTO_OK;
    TRY(running_stats_average(&w->oracle.running, world));
    TRY(training_export(t, leads_run(w), &flat));
    uint64_t *all = calloc((size_t)world->size, sizeof *all);
    state_hasher_init(&v);
    gather_share(&v, world->rank, t->mesh.r == 0);
    enum sotto_status st = all ? visit_hashed(w, &v) : fail(SOTTO_ENOMEM, "no memory for hashes");
    if (st == SOTTO_OK && leads_run(w))
        st =
            state_table(&v, w->run->table, NULL, MEMORY_PARAMETERS, NULL, view_of(flat, DTYPE_F32));
    if (st == SOTTO_OK)
        st = comm_gather_bytes(world, all, &v.hash, sizeof v.hash);
    for (int r = 0; r < world->size && st == SOTTO_OK; r++)
        *out += all[r];
    state_free(&v);
    free(all);
    training_drop(t, flat);
    return st;
}

/* Opening a run: the folder and its checkpoint, data, model, and the parameters to begin with. */
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/option/only.h"
#include "comm/mpi/mpi.h"
#include "hf/weights.h"
#include "strategy/method.h"
#include "train/open/adopt.h"
#include "train/open/resume.h"
#include "train/open/vacant.h"
#include "train/oracle/null_oracle.h"
#include "train/plan/calibrate.h"
#include "train/plan/disk.h"
#include "train/plan/estimate.h"
#include "train/report/report.h"

static enum sotto_status agree_in(const struct option_section *asked, const void *loaded,
                                  const char *from)
{
    for (int i = 0; i < asked->count; i++) {
        const struct option *o = &asked->table[i];
        char room[2][OPTION_ROOM];
        const char *want = option_print(o, asked->config, room[0]);
        const char *have = option_print(o, loaded, room[1]);
        if (strcmp(o->key, "preset") == 0 || strcmp(want, o->preset) == 0 ||
            strcmp(want, have) == 0)
            continue;
        return fail(SOTTO_EINVAL, "%s.%s = %s, but the model in %s has %s", asked->name, o->key,
                    want, from, have);
    }
    return SOTTO_OK;
}

/* Sizes that the user gave must be those of the model that is loaded. */
static enum sotto_status agree(struct model_config *asked, const struct model_config *loaded,
                               const char *from)
{
    struct option_section sections[MODEL_SECTIONS];
    model_sections(asked, sections);
    TRY(agree_in(&sections[0], loaded, from));
    const struct arch *arch = archs[loaded->arch];
    if (!arch->n_options)
        return SOTTO_OK;
    const struct option_section own = arch_section(asked, arch);
    return agree_in(&own, arch_own(loaded, arch), from);
}

/* The default is as good as none. */
static bool names_preset(const struct model_config *m)
{
    for (int i = 0; i < model_options_count; i++)
        if (strcmp(model_options[i].key, "preset") == 0)
            return *m->preset && !option_is_default(&model_options[i], m);
    return false;
}

/* A preset that the user named means sizes, too. What weights begin with is the loaded model's, and
 * classes are the data's to say. */
static enum sotto_status agree_preset(struct model_config asked, const struct model_config *loaded,
                                      const char *from)
{
    if (!names_preset(&asked))
        return SOTTO_OK;
    TRY(model_config_resolve(&asked));
    asked.init_std = 0;
    if (model_config_image(&asked))
        model_config_image(&asked)->classes = 0;
    return fail_in(agree(&asked, loaded, from), "model.preset = %s, which has ", asked.preset);
}

/* Before the data: which of them suit, and what a folder without a model lacks, is the model's to
 * say. */
static enum sotto_status open_config(struct run *run, const char *from, bool resumed)
{
    if (!*from)
        return model_config_resolve(&run->config.model);
    struct model_config asked = run->config.model;
    TRY(weights_config(&run->config.model, from));
    if (!resumed)
        run_ask_classes(run, &asked);
    if (resumed && !*run->config.train.init) { /* else only what was said can differ */
        strcpy(run->config.model.preset, asked.preset);
        TRY(model_config_resolve(&asked));
    }
    TRY(agree(&asked, &run->config.model, from));
    return resumed ? SOTTO_OK : agree_preset(asked, &run->config.model, from);
}

/* One a layer where workers may overlap; of images, where layers are of many kinds, one for each
 * two of the chain. */
static enum sotto_status choose_stages(const struct run *run, int *stages)
{
    const struct model_config *m = &run->config.model;
    struct model chain;
    *stages = run->cluster.size > 1 ? m->layers : 1;
    if (model_config_kind(m)->sequences || run->cluster.size == 1)
        return SOTTO_OK;
    TRY(model_init(&chain, m, 1, 1));
    *stages = (chain.n_layer + 1) / 2;
    model_free(&chain);
    return SOTTO_OK;
}

/* Stages that the method wants, or for the overlap of several workers, each padded so that a group
 * can share it evenly. */
static enum sotto_status open_table(struct run *run)
{
    const struct run_config *c = &run->config;
    const int slices = run->cluster.size / c->strategy.groups;
    const int wanted = strategy_stages(&c->strategy);
    int stages = c->train.stages ? c->train.stages : wanted;
    if (wanted && stages != wanted)
        return fail(SOTTO_EINVAL, "train.stages = %d: %s has %d here, as many as micro-batches",
                    stages, c->strategy.sharding->name, wanted);
    run->table = &run->model.table;
    if (!stages)
        TRY(choose_stages(run, &stages));
    if (c->train.oracle == ORACLE_MODEL || c->null.parameters == 0)
        return model_init(&run->model, &c->model, stages, slices);
    run->table = &run->declared;
    return null_table(&run->declared, (size_t)c->null.parameters,
                      c->train.stages || wanted ? stages : 8, slices);
}

/* No data, no parameters: sizes and times only. */
static enum sotto_status open_null(struct run *run)
{
    struct run_config *c = &run->config;
    if (c->train.time != TIME_VIRTUAL)
        return fail(SOTTO_EINVAL, "train.oracle = null needs train.time = virtual");
    if (!*c->worker.step)
        return fail(SOTTO_EINVAL, "train.oracle = null needs worker.step, the time of a "
                                  "micro-batch");
    if (c->null.parameters == 0) {
        TRY(model_config_resolve(&c->model));
        if (model_config_is_open(&c->model))
            return fail(SOTTO_EINVAL,
                        "train.oracle = null needs null.parameters, or a model with %s",
                        model_config_kind(&c->model)->sequences ? "model.vocab"
                                                                : "the sizes of its images");
        TRY(model_config_check(&c->model));
    }
    if (!c->train.seq)
        c->train.seq = c->model.positions ? c->model.positions : 1;
    strcpy(c->train.device, "null");
    TRY(open_table(run));
    return run_calibrate(run);
}

static enum sotto_status check_computes(const struct train_config *t)
{
    if (strcmp(t->device, "null") == 0)
        return fail(SOTTO_EINVAL, "train.device = null computes nothing: it comes with "
                                  "train.oracle = null, which needs no data");
    return SOTTO_OK;
}

/* Refuses a length that samples have not got, or that is longer than the model's positions. */
static enum sotto_status check_length(const struct train_config *t, const struct model_config *m)
{
    const struct sample_kind *kind = model_config_kind(m);
    if (!kind->sequences && t->seq > 1)
        return fail(SOTTO_EINVAL, "train.seq = %d has no effect: the model reads %s", t->seq,
                    kind->noun);
    if (!kind->sequences && t->tokens)
        return fail(SOTTO_EINVAL,
                    "train.tokens = %lld: the model reads %s, which train.samples counts",
                    (long long)t->tokens, kind->noun);
    if (kind->sequences && t->seq > m->positions)
        return fail(SOTTO_EINVAL, "train.seq = %d is longer than the model's %d positions", t->seq,
                    m->positions);
    return SOTTO_OK;
}

/* Targets of the data are among those that the model knows. */
static enum sotto_status check_vocab(struct run *run)
{
    struct run_config *c = &run->config;
    int64_t vocab = run->tokenizer ? tokenizer_vocab_size(run->tokenizer) : 0;
    if (run->train->vocab > vocab)
        vocab = run->train->vocab;
    if (run->valid && run->valid->vocab > vocab)
        vocab = run->valid->vocab;
    if (!c->model.vocab)
        c->model.vocab = (int)vocab;
    if (vocab > c->model.vocab)
        return fail(
            SOTTO_EINVAL,
            "the data use a vocabulary of %lld tokens, the model has %d: raise model.vocab or "
            "choose another data.tokenizer",
            (long long)vocab, c->model.vocab);
    return SOTTO_OK;
}

static enum sotto_status open_model(struct run *run)
{
    struct run_config *c = &run->config;
    TRY(check_vocab(run));
    TRY(model_config_check(&c->model));
    if (!c->train.seq)
        c->train.seq = model_config_kind(&c->model)->sequences ? c->model.positions : 1;
    TRY(check_length(&c->train, &c->model));
    TRY(loader_check(run->train, run->cluster.size, c->train.seq));
    if (run->cluster.leads) {
        loader_warn_cuts(run->train, c->train.seq, c->model.positions);
        loader_warn_turn(run->train, run->tokenizer);
    }
    if (run->valid && loader_check(run->valid, 1, c->train.seq) != SOTTO_OK) {
        if (*c->data.valid)
            return fail_in(SOTTO_EINVAL, "data.valid: ");
        log_warn("no evaluation: of the held-out data, %s", sotto_error());
        loader_close(run->valid);
        run->valid = NULL;
    }
    return open_table(run);
}

/* From the files at `from`, "": as a new model has them. */
static enum sotto_status read_start(struct run *run, const char *from)
{
    if (run->start_state && *from)
        TRY(weights_load_state(&run->model, from, run->start_state));
    else if (run->start_state)
        model_state_start(&run->model, run->start_state);
    if (*from && !run->head.anew)
        return weights_load(&run->model, from, run->start);
    model_randomize(&run->model, (uint64_t)run->config.train.seed, run->start);
    return *from ? weights_load_body(&run->model, from, run->start) : SOTTO_OK;
}

/* On all ranks of MPI, of which rank 0 alone needs the files: another that fails gets what rank 0
 * has read. */
static enum sotto_status share_start(struct run *run, const char *from)
{
    struct comm *mpi = run->cluster.mpi;
    const size_t count = table_count(&run->model.table);
    int sent = 0, sent_state = 0;
    const enum sotto_status st = read_start(run, from);
    if (!mpi || mpi->rank == 0)
        TRY(st);
    if (!mpi)
        return SOTTO_OK;
    TRY(lend_vector(mpi, run->start, count, st == SOTTO_OK, &sent));
    if (run->start_state)
        TRY(lend_vector(mpi, run->start_state, table_count(&run->model.state), st == SOTTO_OK,
                        &sent_state));
    if (sent && run->cluster.leads)
        log_info("rank 0 has sent its parameters (%.1f MB) to %d of %d ranks",
                 (double)(count * sizeof *run->start) / 1e6, sent, mpi->size);
    return SOTTO_OK;
}

/* How much checkpoints take, which the disk should have. */
static enum sotto_status open_disk(struct run *run)
{
    struct disk_needs needs;
    TRY(disk_needs(run, &needs));
    run->checkpoint_bytes = needs.checkpoint;
    return run->config.train.check_disk ? disk_check(run, &needs) : SOTTO_OK;
}

/* The parameters that all workers begin with. */
static enum sotto_status open_start(struct run *run, const char *from)
{
    size_t count = table_count(&run->model.table);
    char exact[FILE_PATH_ROOM] = ""; /* what is published may have been rounded */
    if (*run->checkpoint)
        TRY(file_join(exact, run->checkpoint, CHECKPOINT_PARAMETERS));
    const char *parameters = *exact && file_exists(exact) ? exact : from;
    TRY(run_choose_head(run, from));
    if (*from && run->cluster.leads)
        TRY(weights_check(&run->model, parameters, run->head.anew));
    const struct available left = available_memory("");
    estimate_choose(run, &left);
    if (run->config.train.check_memory)
        TRY(estimate_check(run));
    run->start = calloc(count, sizeof *run->start);
    if (run->model.state.n)
        run->start_state = calloc(table_count(&run->model.state), sizeof *run->start_state);
    if (!run->start || (run->model.state.n && !run->start_state))
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    if (run->cluster.leads)
        TRY(hf_folder_open(&run->folder, &run->model, from, run->tokenizer, run->tokenizer_from,
                           run->head.anew, (enum save_dtype)run->config.train.save_dtype));
    if (run->cluster.leads && run->tokenizer && run->train->instructs)
        TRY(hf_folder_add_end(&run->folder, tokenizer_turn_end(run->tokenizer)));
    if (run->cluster.leads && !run_kind(run)->sequences) {
        TRY(run_describe_images(run, from));
        TRY(run_describe_classes(run));
    }
    if (run->cluster.leads && run_keeps(run))
        TRY(open_disk(run));
    return share_start(run, *from ? parameters : "");
}

/* Parsed once for all workers of this process. */
static enum sotto_status open_state(struct run *run)
{
    char path[FILE_PATH_ROOM];
    if (!*run->checkpoint)
        return SOTTO_OK;
    TRY(file_join(path, run->checkpoint, "state.safetensors"));
    return lent_open(&run->lent, run->cluster.mpi, &run->state, path);
}

/* A run that is not gone on with must not be there yet. */
static enum sotto_status refuse_run(const struct train_config *t)
{
    char checkpoint[FILE_PATH_ROOM];
    int64_t step;
    TRY(checkpoint_latest(t->out, &step, checkpoint));
    if (step < 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%s already holds a run of %lld steps: --resume goes on with it, another --out "
                "starts a new one",
                t->out, (long long)step);
}

/* Going on from a checkpoint in another folder wants one without a run, as a new run does. */
static enum sotto_status begin_elsewhere(struct run *run)
{
    TRY(take_begin(run));
    return vacant_check(&run->config);
}

/* Finds the checkpoint to go on from and what it was made with, in the folder that rank 0 alone
 * need have. */
static enum sotto_status find_checkpoint(struct run *run)
{
    const struct train_config *t = &run->config.train;
    struct comm *mpi = run->cluster.mpi;
    const bool leads = run->cluster.leads;
    int64_t step = -1;
    if (run->watch.from) {
        char folder[FILE_PATH_ROOM];
        steps_named(run->watch.from, &step, folder);
        snprintf(run->checkpoint, sizeof run->checkpoint, "%s", run->watch.from);
        for (size_t n = strlen(run->checkpoint); n > 1 && run->checkpoint[n - 1] == '/'; n--)
            run->checkpoint[n - 1] = '\0';
        if (leads)
            TRY(begin_elsewhere(run));
    } else if (t->resume) {
        TRY(resume_find(mpi, t->out, leads, &step, run->checkpoint, &run->hold));
    } else if (leads) {
        TRY(refuse_run(t));
    }
    if (step < 0) {
        *run->checkpoint = '\0';
        return leads ? vacant_check(&run->config) : SOTTO_OK;
    }
    run->before = calloc(1, sizeof *run->before);
    if (!run->before)
        return fail(SOTTO_ENOMEM, "no memory for a configuration");
    TRY(resume_read(run->before, mpi, run->checkpoint));
    run->own_tokenizer = tokenizer_in(run->checkpoint);
    return leads ? resume_refuse(run) : SOTTO_OK;
}

/* Under MPI rank 0 has the lock for all ranks, and nobody looks before it has. Any of them may
 * refuse the start, and then removes what rank 0 has made for it. */
static enum sotto_status open_folder(struct run *run)
{
    const char *out = run->config.train.out;
    struct comm *mpi = run->cluster.mpi;
    if (run->cluster.leads && run->dir.lock < 0)
        TRY(rundir_open(&run->dir, out));
    if (!mpi)
        return SOTTO_OK;
    struct rundir_made made = run->dir.made;
    TRY(comm_broadcast(mpi, view_of(&made, DTYPE_U8), sizeof made, 0));
    if (!run->cluster.leads)
        rundir_follow(&run->dir, out, &made);
    return SOTTO_OK;
}

/* Ranks of MPI that have this one's GPU: a launcher may show each rank one of its own, or all. */
static enum sotto_status count_sharing(struct run *run, const struct device *dev)
{
    struct comm *mpi = run->cluster.mpi;
    const int mine = dev->ops->number ? dev->ops->number(dev) : -1;
    run->sharing = 1;
    if (!mpi)
        return SOTTO_OK;
    int *all = calloc((size_t)mpi->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", mpi->size);
    const enum sotto_status st = comm_gather_bytes(mpi, all, &mine, sizeof mine);
    for (int r = 0; r < mpi->size && mine >= 0; r++)
        run->sharing += r != mpi->rank && mpi_same_machine(mpi, r) && all[r] == mine;
    free(all);
    return st;
}

/* Before anything is read: workers open theirs when it all has been. A run can be planned without
 * its GPU. */
static enum sotto_status check_run_device(struct run *run, bool plan)
{
    struct memory memory = {0};
    struct device dev;
    if (plan && device_absent(run->config.train.device)) {
        run->device = run->config.train.device;
        run->sharing = 1;
        snprintf(run->kernels, sizeof run->kernels, "%s",
                 "there is none on this machine: planned only");
        return SOTTO_OK;
    }
    TRY(device_open(&dev, run->config.train.device, &memory, 1));
    run->device = dev.ops->name;
    snprintf(run->kernels, sizeof run->kernels, "%s", device_describe(&dev));
    const enum sotto_status st = count_sharing(run, &dev);
    device_close(&dev);
    return st;
}

void run_describe_device(const struct run *run, char text[RUN_DEVICE_ROOM])
{
    if (strcmp(run->device, run->kernels) == 0)
        snprintf(text, RUN_DEVICE_ROOM, "%s", run->device);
    else
        snprintf(text, RUN_DEVICE_ROOM, "%s (%s)", run->device, run->kernels);
}

/* `touch`: the folder is locked, and brought up to date. */
static enum sotto_status open_all(struct run *run, bool touch)
{
    struct train_config *t = &run->config.train;
    enum sotto_status st;
    TRY_DONE(cluster_open(&run->cluster, &run->config));
    TRY_DONE(check_run_device(run, !touch));
    if (run->cluster.mpi) /* before its ranks go different ways */
        TRY_DONE(run_agree(run, run->cluster.mpi));
    if (!*t->out)
        TRY_DONE(fail(SOTTO_EINVAL, "train.out is empty, and names the folder of the run"));
    if (touch)
        TRY_DONE(open_folder(run));
    TRY_DONE(find_checkpoint(run));
    const char *from = *run->checkpoint ? run->checkpoint : t->init;
    if (t->oracle == ORACLE_NULL) {
        TRY_DONE(open_null(run));
    } else {
        TRY_DONE(lend_folder(run->cluster.mpi, from, run->lent_folder));
        if (*run->checkpoint)
            run->own_tokenizer = tokenizer_in(run->lent_folder);
        TRY_DONE(open_config(run, run->lent_folder, *run->checkpoint != '\0'));
        TRY_DONE(check_computes(t));
        TRY_DONE(run_open_data(run, run->lent_folder));
        lend_drop(run->cluster.mpi, run->lent_folder);
        TRY_DONE(open_model(run));
        TRY_DONE(open_start(run, from));
        TRY_DONE(open_state(run));
        TRY_DONE(run_calibrate(run));
    }
    TRY_DONE(best_check(&run->config, run->valid != NULL));
    if (run->cluster.leads && run->before)
        resume_tell(run);
    if (touch && run->cluster.leads && *run->checkpoint)
        TRY_DONE(take_end(run));
done:
    checkpoint_release(&run->hold);
    if (st != SOTTO_OK) {
        rundir_discard(&run->dir);
        cluster_abort(&run->cluster, st);
        run_close(run);
    }
    return st;
}

/* Not by a literal, which would lie on the stack, and is half a megabyte. */
static void begin(struct run *run, const struct run_config *config)
{
    memset(run, 0, sizeof *run);
    run->config = *config;
    run->dir.lock = run->hold.file = -1;
}

enum sotto_status run_open(struct run *run, const struct run_config *config,
                           const struct run_watch *watch)
{
    return run_open_in(run, config, watch, NULL);
}

enum sotto_status run_open_in(struct run *run, const struct run_config *config,
                              const struct run_watch *watch, struct rundir *dir)
{
    begin(run, config);
    if (dir) {
        run->dir = *dir;
        dir->lock = -1;
    }
    if (watch)
        run->watch = *watch;
    return open_all(run, true);
}

enum sotto_status run_plan(struct run *run, const struct run_config *config, const char *from)
{
    begin(run, config);
    run->watch.from = from;
    return open_all(run, false);
}

enum sotto_status run_check(const struct run_config *config)
{
    struct run run = {.config = *config, .dir.lock = -1, .hold.file = -1};
    const struct train_config *t = &run.config.train;
    struct model_config *m = &run.config.model;
    enum sotto_status st;
    TRY_DONE(cluster_open(&run.cluster, &run.config));
    TRY_DONE(check_run_device(&run, false));
    if (t->oracle == ORACLE_NULL) {
        st = open_null(&run);
    } else {
        TRY_DONE(check_computes(t));
        if (*t->init && !file_exists(t->init)) /* an earlier run may be going to make it */
            goto done;
        TRY_DONE(open_config(&run, t->init, false));
        if (!model_config_is_open(m)) /* else the data's to say */
            TRY_DONE(model_config_check(m));
        st = check_length(t, m);
    }
done:
    run_close(&run);
    return st;
}

void run_close(struct run *run)
{
    if (run->metrics_open)
        metrics_close(&run->metrics);
    rundir_close(&run->dir);
    if (run->elsewhere)
        rundir_close(run->elsewhere);
    free(run->elsewhere);
    free(run->result.worker);
    free(run->result.group);
    free(run->start);
    free(run->start_state);
    free(run->before);
    lent_close(&run->lent);
    lend_drop(run->cluster.mpi, run->lent_folder);
    state_file_close(&run->state);
    hf_folder_close(&run->folder);
    model_free(&run->model);
    table_free(&run->declared);
    if (run->valid)
        loader_close(run->valid);
    if (run->train)
        loader_close(run->train);
    if (run->tokenizer)
        tokenizer_close(run->tokenizer);
    cluster_close(&run->cluster);
    *run = (struct run){.dir.lock = -1, .hold.file = -1};
}

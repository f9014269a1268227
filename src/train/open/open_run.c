/* Opening a run, in this order: workers, device, folder, checkpoint, data, model, parameters. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/open/adopt.h"
#include "train/open/open.h"
#include "train/open/resume.h"
#include "train/open/vacant.h"
#include "train/plan/calibrate.h"

/* Opens the checkpoint's state, once for all workers of this process. */
static enum sotto_status open_state(struct run *run)
{
    char path[FILE_PATH_ROOM];
    if (!*run->checkpoint)
        return SOTTO_OK;
    TRY(file_join(path, run->checkpoint, "state.safetensors"));
    return lent_open(&run->lent, run->cluster.mpi, &run->state, path);
}

/* Takes over a checkpoint in another folder; the run's own folder must not hold a run. */
static enum sotto_status adopt_checkpoint(struct run *run)
{
    TRY(adopt_begin(run));
    return vacant_check(&run->config);
}

/* Finds the checkpoint to continue from, and the configuration that made the checkpoint. Only rank
 * 0 needs the folder. */
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
            TRY(adopt_checkpoint(run));
    } else if (t->resume) {
        TRY(resume_find(mpi, t->out, leads, &step, run->checkpoint, &run->hold));
    } else if (leads) {
        TRY(check_new_folder(t));
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

/* Locks the run's folder on rank 0, before any rank looks into the folder. A rank that refuses the
 * start then removes the folders that rank 0 has made. */
static enum sotto_status lock_run_folder(struct run *run)
{
    const char *out = run->config.train.out;
    struct comm *mpi = run->cluster.mpi;
    if (run->cluster.leads && run->dir.lock < 0)
        TRY(rundir_open(&run->dir, out));
    if (!mpi)
        return SOTTO_OK;
    struct rundir_made made = run->dir.made;
    TRY(comm_broadcast_bytes(mpi, &made, sizeof made, 0));
    if (!run->cluster.leads)
        rundir_follow(&run->dir, out, &made);
    return SOTTO_OK;
}

/* Counts the ranks of MPI on this rank's GPU: a launcher may show each rank one GPU, or all. */
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

/* Opens the device for a moment, before data are read: workers open theirs after all data are. A
 * run can be planned (`plan`) without its GPU. */
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

/* Warns of fine-tuning a language model at a learning rate that is meant for training from scratch
 * and that the user did not choose. */
static void warn_of_rate(struct run *run)
{
    const struct optim_config *o = &run->config.optim;
    const bool tunes = *run->config.train.init && !*run->checkpoint;
    if (run->cluster.leads && tunes && !o->lr_said && !model_config_image(&run->config.model))
        log_warn("train.init with the default learning rate %g, which suits training from scratch: "
                 "1e-5 to 5e-5 are usual for fine-tuning, such as --lr=2e-5",
                 o->lr);
}

/* Warns of a language model that a GPU would train many times faster with bf16. */
static void warn_of_fp32(struct run *run)
{
    const bool gpu = strncmp(run->config.train.device, "cuda", 4) == 0;
    if (run->cluster.leads && gpu && run->config.strategy.precision == PRECISION_FP32 &&
        !model_config_image(&run->config.model))
        log_warn("strategy.precision = fp32 took 20 times as long as --precision=mixed "
                 "--train.activations=bf16 on an H200");
}

/* Opens all parts of a run. `touch`: locks the folder, and takes over a checkpoint from another. */
static enum sotto_status open_parts(struct run *run, bool touch)
{
    struct train_config *t = &run->config.train;
    enum sotto_status st;
    TRY_DONE(cluster_open(&run->cluster, &run->config));
    TRY_DONE(check_run_device(run, !touch));
    if (run->cluster.mpi) /* before ranks make different calls */
        TRY_DONE(run_agree(run, run->cluster.mpi));
    if (!*t->out)
        TRY_DONE(fail(SOTTO_EINVAL, "train.out is empty, and names the folder of the run"));
    if (touch)
        TRY_DONE(lock_run_folder(run));
    TRY_DONE(find_checkpoint(run));
    const char *from = *run->checkpoint ? run->checkpoint : t->init;
    if (t->oracle == ORACLE_NULL) {
        TRY_DONE(open_null_run(run));
    } else {
        TRY_DONE(lend_folder(run->cluster.mpi, from, run->lent_folder));
        if (*run->checkpoint)
            run->own_tokenizer = tokenizer_in(run->lent_folder);
        TRY_DONE(open_model_config(run, run->lent_folder, *run->checkpoint != '\0'));
        TRY_DONE(check_computes(t));
        TRY_DONE(run_open_data(run, run->lent_folder));
        lend_drop(run->cluster.mpi, run->lent_folder);
        TRY_DONE(open_run_model(run));
        TRY_DONE(open_run_start(run, from));
        warn_of_rate(run);
        warn_of_fp32(run);
        TRY_DONE(open_state(run));
        TRY_DONE(run_calibrate(run));
    }
    TRY_DONE(best_check(&run->config, run->valid != NULL));
    if (run->cluster.leads && run->before)
        resume_report(run);
    if (touch && run->cluster.leads && *run->checkpoint)
        TRY_DONE(adopt_end(run));
done:
    checkpoint_release(&run->hold);
    if (st != SOTTO_OK) {
        rundir_discard(&run->dir);
        cluster_abort(&run->cluster, st);
        run_close(run);
    }
    return st;
}

/* Clears the run in place: a literal of half a megabyte would be on the stack. */
static void clear_run(struct run *run, const struct run_config *config)
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
    clear_run(run, config);
    if (dir) {
        run->dir = *dir;
        dir->lock = -1;
    }
    if (watch)
        run->watch = *watch;
    return open_parts(run, true);
}

enum sotto_status run_plan(struct run *run, const struct run_config *config, const char *from)
{
    clear_run(run, config);
    run->watch.from = from;
    run->planned = true;
    return open_parts(run, false);
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
        st = open_null_run(&run);
    } else {
        TRY_DONE(check_computes(t));
        if (*t->init && !file_exists(t->init)) /* an earlier run may be going to make it */
            goto done;
        TRY_DONE(open_model_config(&run, t->init, false));
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

/* Opening a run's model: configuration, stages, parameters to begin with, and the folder in which
 * the model is published. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hf/weights.h"
#include "strategy/method.h"
#include "train/open/open.h"
#include "train/oracle/null_oracle.h"
#include "train/plan/calibrate.h"
#include "train/plan/disk.h"
#include "train/plan/estimate.h"

enum sotto_status open_model_config(struct run *run, const char *from, bool resumed)
{
    if (!*from)
        return model_config_resolve(&run->config.model);
    struct model_config asked = run->config.model;
    TRY(weights_config(&run->config.model, from));
    if (!resumed)
        run_ask_classes(run, &asked);
    if (resumed && !*run->config.train.init) { /* the checkpoint has the preset's sizes */
        strcpy(run->config.model.preset, asked.preset);
        TRY(model_config_resolve(&asked));
    }
    TRY(check_model_sizes(&asked, &run->config.model, from));
    return resumed ? SOTTO_OK : check_model_preset(asked, &run->config.model, from);
}

/* Chooses one stage a layer if workers may overlap; of models over images, whose layers are of many
 * kinds, one stage for each two layers of the chain. */
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

/* Lays the parameters out in the method's stages, or in stages that let several workers overlap.
 * Each stage is padded, so that a group can share the stage evenly. */
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

enum sotto_status open_null_run(struct run *run)
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

/* Closes held-out data that are too few for an evaluation, with a warning. */
static enum sotto_status drop_short_valid(struct run *run)
{
    if (!run->valid || loader_check(run->valid, 1, run->config.train.seq) == SOTTO_OK)
        return SOTTO_OK;
    if (*run->config.data.valid)
        return fail_in(SOTTO_EINVAL, "data.valid: ");
    log_warn("no evaluation: of the held-out data, %s", sotto_error());
    loader_close(run->valid);
    run->valid = NULL;
    return SOTTO_OK;
}

enum sotto_status open_run_model(struct run *run)
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
    TRY(drop_short_valid(run));
    return open_table(run);
}

/* Reads the parameters from the files at `from`; "": makes the parameters of a new model. */
static enum sotto_status read_start(struct run *run, const char *from)
{
    if (run->start_state && *from)
        TRY(weights_load_state(&run->model, from, run->start_state));
    else if (run->start_state)
        model_state_start(&run->model, run->start_state);
    if (*from && !run->head.fresh)
        return weights_load(&run->model, from, run->start);
    model_randomize(&run->model, (uint64_t)run->config.train.seed, run->start);
    return *from ? weights_load_body(&run->model, from, run->start) : SOTTO_OK;
}

/* Reads the parameters on all ranks of MPI. Only rank 0 needs the files: it sends the parameters to
 * ranks without the files. */
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

/* Finds how much disk the checkpoints take, and fails if the disk has less (train.check_disk). */
static enum sotto_status check_run_disk(struct run *run)
{
    struct disk_needs needs;
    TRY(disk_needs(run, &needs));
    run->checkpoint_bytes = needs.checkpoint;
    const bool checks = run->config.train.check_disk && !run->planned;
    return checks ? disk_check(run, &needs) : SOTTO_OK;
}

static enum sotto_status allocate_start(struct run *run)
{
    const struct table *state = &run->model.state;
    const size_t count = table_count(&run->model.table);
    run->start = calloc(count, sizeof *run->start);
    if (state->n)
        run->start_state = calloc(table_count(state), sizeof *run->start_state);
    if (!run->start || (state->n && !run->start_state))
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    return SOTTO_OK;
}

/* Opens the folder in which rank 0 publishes the model. */
static enum sotto_status open_published(struct run *run, const char *from)
{
    TRY(hf_folder_open(&run->folder, &run->model, from, run->tokenizer, run->tokenizer_from,
                       run->head.fresh, (enum save_dtype)run->config.train.save_dtype));
    if (run->tokenizer && run->train->instructs)
        TRY(hf_folder_add_end(&run->folder, tokenizer_turn_end(run->tokenizer)));
    if (!run_kind(run)->sequences) {
        TRY(run_describe_images(run, from));
        TRY(run_describe_classes(run));
    }
    return run_keeps(run) ? check_run_disk(run) : SOTTO_OK;
}

enum sotto_status open_run_start(struct run *run, const char *from)
{
    char exact[FILE_PATH_ROOM] = ""; /* the published parameters may be rounded */
    if (*run->checkpoint)
        TRY(file_join(exact, run->checkpoint, CHECKPOINT_PARAMETERS));
    const char *parameters = *exact && file_exists(exact) ? exact : from;
    TRY(run_choose_head(run, from));
    if (*from && run->cluster.leads)
        TRY(weights_check(&run->model, parameters, run->head.fresh));
    const struct available left = available_memory("");
    estimate_choose(run, &left);
    if (run->config.train.check_memory)
        TRY(estimate_check(run));
    TRY(allocate_start(run));
    if (run->cluster.leads)
        TRY(open_published(run, from));
    return share_start(run, *from ? parameters : "");
}

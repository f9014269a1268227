#include "train/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tensor/ops.h"
#include "train/weights.h"

#define S struct train_config
static const struct option train_options[] = {
    OPTION_TEXT(S, out, "run", "folder of the run: checkpoints, metrics, the model"),
    OPTION_TEXT(S, init, "", "Hugging Face model folder to start from instead of new weights"),
    OPTION_BOOL(S, resume, "false", "go on from the newest checkpoint in `out`, if there is one"),
    OPTION_LONG(S, steps, "1000", 0, 1e15, "rounds (updates of the parameters)"),
    OPTION_INT(S, batch, "8", 1, 1 << 20, "sequences of a micro-batch"),
    OPTION_INT(S, seq, "0", 0, 1 << 22,
               "tokens of a sequence; 0: as many as the model has positions"),
    OPTION_LONG(S, seed, "1", 0, 1e15, "of new weights and of the order of the data"),
    OPTION_LONG(S, log_every, "10", 1, 1e15, "rounds between metrics"),
    OPTION_LONG(S, eval_every, "0", 0, 1e15, "rounds between evaluations; 0: at the end only"),
    OPTION_LONG(S, eval_batches, "50", 0, 1e15, "micro-batches of an evaluation; 0: all"),
    OPTION_LONG(S, save_every, "0", 0, 1e15, "rounds between checkpoints; 0: at the end only"),
    OPTION_INT(S, keep, "3", 0, 1 << 20, "checkpoints that are kept; 0: all"),
    OPTION_INT(S, threads, "0", 0, 1024, "cores to use; 0: all"),
    OPTION_INT(S, stages, "1", 1, 4096, "stages that the model is cut into"),
    OPTION_BOOL(S, recompute, "false", "keep only the stages' inputs and compute the rest again"),
    OPTION_TEXT(S, device, "cpu", "cpu, or reference (slow, double precision)"),
};
#undef S

void run_sections(struct run_config *c, struct option_section s[RUN_SECTIONS])
{
    s[0] = (struct option_section)OPTION_SECTION("train", "the run", train_options, &c->train);
    s[1] = (struct option_section){"model", "what is trained", model_options, model_options_count,
                                   &c->model};
    s[2] = (struct option_section){"data", "what it is trained on", data_options,
                                   data_options_count, &c->data};
    s[3] = (struct option_section){"optim", "optimizer and learning rate", optim_options,
                                   optim_options_count, &c->optim};
    s[4] = (struct option_section){"strategy", "the training method", strategy_options,
                                   strategy_options_count, &c->strategy};
}

static enum sotto_status open_data(struct run *run)
{
    const struct data_config *c = &run->config.data;
    TRY(loader_tokenizer(&run->tokenizer, c));
    TRY(loader_open(&run->train, c, DATA_TRAIN, run->tokenizer));
    if (*c->valid || c->holdout > 0)
        TRY(loader_open(&run->valid, c, DATA_VALID, run->tokenizer));
    return SOTTO_OK;
}

/* A tokenizer named nowhere comes with the model that training starts from. */
static void inherit_tokenizer(struct run_config *c, const char *folder)
{
    char path[FILE_PATH_ROOM];
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    for (int i = 0; i < 2 && !*c->data.tokenizer; i++)
        if (file_join(path, folder, names[i]) == SOTTO_OK && file_exists(path) &&
            strlen(folder) < sizeof c->data.tokenizer)
            strcpy(c->data.tokenizer, folder);
}

/* Sizes that the user gave must be those of the model that is loaded. */
static enum sotto_status agree(const struct model_config *asked, const struct model_config *loaded,
                               const char *from)
{
    for (int i = 0; i < model_options_count; i++) {
        const struct option *o = &model_options[i];
        char want[OPTION_ROOM], have[OPTION_ROOM];
        option_print(o, asked, want);
        option_print(o, loaded, have);
        if (strcmp(o->key, "preset") == 0 || strcmp(want, o->preset) == 0 ||
            strcmp(want, have) == 0)
            continue;
        return fail(SOTTO_EINVAL, "model.%s = %s, but the model in %s has %s", o->key, want, from,
                    have);
    }
    return SOTTO_OK;
}

static enum sotto_status load_config(struct run *run, const char *from, bool resumed)
{
    struct model_config asked = run->config.model;
    TRY(weights_config(&run->config.model, from));
    if (resumed)
        TRY(model_config_resolve(&asked)); /* the whole of it, not only what was said */
    return agree(&asked, &run->config.model, from);
}

static enum sotto_status open_model(struct run *run, const char *from, bool resumed)
{
    struct run_config *c = &run->config;
    if (*from)
        TRY(load_config(run, from, resumed));
    else
        TRY(model_config_resolve(&c->model));
    int64_t vocab = run->tokenizer ? tokenizer_vocab_size(run->tokenizer) : 0;
    if (loader_vocab(run->train) > vocab)
        vocab = loader_vocab(run->train);
    if (run->valid && loader_vocab(run->valid) > vocab)
        vocab = loader_vocab(run->valid);
    if (!c->model.vocab)
        c->model.vocab = (int)vocab;
    if (vocab > c->model.vocab)
        return fail(
            SOTTO_EINVAL,
            "the data use a vocabulary of %lld tokens, the model has %d: raise model.vocab or "
            "choose another data.tokenizer",
            (long long)vocab, c->model.vocab);
    TRY(model_config_check(&c->model));
    if (!c->train.seq)
        c->train.seq = c->model.positions;
    if (c->train.seq > c->model.positions)
        return fail(SOTTO_EINVAL, "train.seq = %d is longer than the model's %d positions",
                    c->train.seq, c->model.positions);
    TRY(loader_check(run->train, 1, c->train.seq));
    if (run->valid && loader_check(run->valid, 1, c->train.seq) != SOTTO_OK) {
        if (*c->data.valid)
            return fail_in(SOTTO_EINVAL, "data.valid: ");
        log_warn("no evaluation: of the held-out data, %s", sotto_error());
        loader_close(run->valid);
        run->valid = NULL;
    }
    return model_init(&run->model, &c->model, c->train.stages, 1);
}

static enum sotto_status open_method(struct run *run)
{
    const struct train_config *t = &run->config.train;
    TRY(device_open(&run->dev, t->device, &run->memory, t->threads));
    pool_init(&run->pool, &run->dev, MEMORY_ACTIVATIONS);
    struct loader_place place = {(uint64_t)t->seed, 0, 0, 1};
    TRY(model_oracle_init(&run->oracle, &run->model, &run->dev, &run->pool, run->train, place,
                          t->batch, t->seq, t->recompute));
    TRY(strategy_ddp(&run->strategy, &run->config.strategy, &run->config.optim, &run->oracle.base,
                     &run->dev, NULL));
    return SOTTO_OK;
}

/* The parameters through host memory, since they may live on a device. */
static enum sotto_status set_parameters(struct run *run, const char *from)
{
    size_t count = table_count(&run->model.table);
    float *flat = malloc(count * sizeof *flat);
    if (!flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    enum sotto_status st = SOTTO_OK;
    if (*from)
        st = weights_load(&run->model, from, flat);
    else
        model_randomize(&run->model, (uint64_t)run->config.train.seed, flat);
    if (st == SOTTO_OK)
        st = run->strategy->ops->import(run->strategy, flat);
    free(flat);
    return st;
}

static enum sotto_status visit(struct run *run, struct state_visitor *v)
{
    TRY(state_int(v, "step", &run->step));
    TRY(state_int(v, "tokens", &run->tokens));
    return run->strategy->ops->visit(run->strategy, v);
}

static enum sotto_status load_state(struct run *run, const char *folder)
{
    char path[FILE_PATH_ROOM];
    struct state_visitor v;
    TRY(file_join(path, folder, "state.safetensors"));
    TRY(state_loader_open(&v, path));
    enum sotto_status st = visit(run, &v);
    if (st == SOTTO_OK)
        st = state_loader_finish(&v);
    state_free(&v);
    return fail_in(st, "%s: ", path);
}

static enum sotto_status refuse_used(const struct run *run, int64_t step)
{
    return fail(SOTTO_EINVAL,
                "%s already holds a run of %lld steps: --resume goes on with it, another --out "
                "starts a new one",
                run->config.train.out, (long long)step);
}

enum sotto_status run_open(struct run *run, const struct run_config *config,
                           const struct run_watch *watch)
{
    *run = (struct run){.config = *config, .dir.lock = -1};
    if (watch)
        run->watch = *watch;
    struct train_config *t = &run->config.train;
    char folder[FILE_PATH_ROOM] = "";
    int64_t found;
    TRY(checkpoint_latest(t->out, &found, folder));
    if (found >= 0 && !t->resume)
        return refuse_used(run, found);
    const char *from = found >= 0 ? folder : t->init;
    if (*from)
        inherit_tokenizer(&run->config, from);
    enum sotto_status st;
    TRY_DONE(open_data(run));
    TRY_DONE(open_model(run, from, found >= 0));
    TRY_DONE(open_method(run));
    TRY_DONE(set_parameters(run, from));
    run->resumed = found >= 0;
    if (run->resumed)
        TRY_DONE(load_state(run, folder));
    TRY_DONE(rundir_open(&run->dir, t->out));
    TRY_DONE(metrics_open(&run->metrics, t->out, found >= 0 ? run->step : -1));
    run->metrics_open = true;
done:
    if (st != SOTTO_OK)
        run_close(run);
    return st;
}

void run_close(struct run *run)
{
    if (run->metrics_open)
        metrics_close(&run->metrics);
    rundir_close(&run->dir);
    if (run->strategy)
        run->strategy->ops->free(run->strategy);
    model_oracle_free(&run->oracle);
    if (run->pool.dev)
        pool_free(&run->pool);
    if (run->dev.ops)
        device_close(&run->dev);
    model_free(&run->model);
    if (run->valid)
        loader_close(run->valid);
    if (run->train)
        loader_close(run->train);
    if (run->tokenizer)
        tokenizer_close(run->tokenizer);
    *run = (struct run){.dir.lock = -1};
}

static enum sotto_status save_state(struct run *run, const char *folder)
{
    char path[FILE_PATH_ROOM];
    struct state_visitor v;
    TRY(file_join(path, folder, "state.safetensors"));
    TRY(state_saver_init(&v));
    enum sotto_status st = visit(run, &v);
    if (st == SOTTO_OK)
        st = state_saver_write(&v, path);
    state_free(&v);
    return st;
}

/* The parameters in host memory, which the caller frees. */
static enum sotto_status copy_parameters(struct run *run, float **flat)
{
    size_t count = table_count(&run->model.table);
    *flat = malloc(count * sizeof **flat);
    if (!*flat)
        return fail(SOTTO_ENOMEM, "no memory for %zu parameters", count);
    enum sotto_status st = run->strategy->ops->export(run->strategy, *flat);
    if (st != SOTTO_OK)
        free(*flat);
    return st;
}

static enum sotto_status save_model(struct run *run, const char *folder)
{
    float *flat;
    TRY(copy_parameters(run, &flat));
    enum sotto_status st = weights_save(&run->model, folder, flat,
                                        run->tokenizer ? tokenizer_end(run->tokenizer) : -1);
    free(flat);
    return st;
}

static enum sotto_status save_config(struct run *run, const char *folder)
{
    char path[FILE_PATH_ROOM];
    struct option_section sections[RUN_SECTIONS];
    TRY(file_join(path, folder, "sotto.ini"));
    run_sections(&run->config, sections);
    char *text = option_dump(sections, RUN_SECTIONS);
    if (!text)
        return fail(SOTTO_ENOMEM, "no memory for %s", path);
    enum sotto_status st = file_write(path, text, strlen(text));
    free(text);
    return st;
}

static enum sotto_status save_files(struct run *run, const char *folder)
{
    TRY(save_model(run, folder));
    TRY(save_state(run, folder));
    TRY(save_config(run, folder));
    if (!run->tokenizer)
        return SOTTO_OK;
    char path[FILE_PATH_ROOM];
    TRY(file_join(path, folder, "tokenizer.json"));
    return tokenizer_save(run->tokenizer, path);
}

enum sotto_status run_save(struct run *run)
{
    struct checkpoint c;
    TRY(checkpoint_begin(&c, &run->dir, run->step));
    enum sotto_status st = save_files(run, c.folder);
    if (st != SOTTO_OK) {
        checkpoint_abort(&c);
        return st;
    }
    TRY(checkpoint_commit(&c, run->config.train.keep));
    TRY(rundir_publish(&run->dir, c.folder));
    if (run->watch.saved)
        run->watch.saved(run->watch.arg, run->step, c.folder);
    return SOTTO_OK;
}

enum sotto_status run_hash(struct run *run, uint64_t *out)
{
    struct state_visitor v;
    float *flat;
    TRY(copy_parameters(run, &flat));
    state_hasher_init(&v);
    enum sotto_status st = visit(run, &v);
    if (st == SOTTO_OK)
        st = state_table(&v, &run->model.table, 0, 1, MEMORY_PARAMETERS, NULL,
                         (struct view){flat, DTYPE_F32});
    *out = v.hash;
    state_free(&v);
    free(flat);
    return st;
}

/* sotto eval */
#include "cli/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/progress.h"
#include "data/image/images.h"
#include "hf/class_names.h"
#include "hf/evaluate.h"
#include "hf/loaded_model.h"
#include "io/safetensors.h"
#include "train/open/resume.h"
#include "train/plan/estimate.h"

struct eval_config {
    char model[OPTION_ROOM], last_words[OPTION_ROOM], logits[OPTION_ROOM], device[OPTION_ROOM];
    int batch, seq, threads;
    int activations; /* enum dtype */
    int64_t batches;
};

/* Options of sotto eval. The data section is the training's own, so a run's held-out part has the
 * same names. */
struct eval_options {
    struct eval_config eval;
    struct data_config data;
};

static const char *const activation_names[] = {"fp32", "bf16", NULL}; /* as enum dtype */

#define S struct eval_config
static const struct option table[] = {
    OPTION_TEXT(S, model, "run", "folder of a run or of any Hugging Face model"),
    OPTION_TEXT(S, last_words, "", "JSONL of texts, to predict the last word of each (LAMBADA)"),
    OPTION_INT(S, batch, "8", 1, 1 << 20, "sequences or images computed at once"),
    OPTION_INT(S, seq, "0", 0, 1 << 22,
               "tokens of a sequence; 0: as the model was trained, or as it has positions"),
    OPTION_LONG(S, batches, "0", 0, 1e15, "micro-batches, spread over the data; 0: all"),
    OPTION_TEXT(S, logits, "",
                "safetensors file that receives tokens (or images and labels) and logits of the "
                "first batch"),
    OPTION_ENUM(S, activations, "fp32", activation_names, "type of the data between layers"),
    OPTION_INT(S, threads, "0", 0, 1024, "cores to use; 0: all"),
    OPTION_TEXT(S, device, "cpu", DEVICE_HELP),
};
#undef S

static int eval_sections(void *config, struct option_section *out)
{
    struct eval_options *o = config;
    out[0] = (struct option_section)OPTION_SECTION("", "options", table, &o->eval);
    out[1] = data_section(&o->data);
    out[1].about = "evaluation data";
    return 2;
}

static enum sotto_status write_image_logits(struct safetensors_writer *w, const char *path,
                                            const struct batch *b, const float *logits, int classes)
{
    const int *dims = b->sample.dims;
    const int64_t shape[4] = {b->rows, dims[0], dims[1], dims[2]}, out[2] = {b->rows, classes};
    const size_t rows = (size_t)b->rows;
    TRY(safetensors_writer_declare(w, "images", SAFETENSORS_F32, 4, shape));
    TRY(safetensors_writer_declare(w, "labels", SAFETENSORS_I32, 1, shape));
    TRY(safetensors_writer_declare(w, "logits", SAFETENSORS_F32, 2, out));
    TRY(safetensors_writer_start(w, path));
    TRY(safetensors_writer_put(w, b->floats,
                               rows * sample_count(&b->sample, 1) * sizeof *b->floats));
    TRY(safetensors_writer_put(w, b->targets, rows * sizeof *b->targets));
    TRY(safetensors_writer_put(w, logits, rows * (size_t)classes * sizeof *logits));
    return safetensors_writer_finish(w);
}

static enum sotto_status write_token_logits(struct safetensors_writer *w, const char *path,
                                            const struct batch *b, const float *logits, int vocab)
{
    const int64_t shape[3] = {b->rows, b->t, vocab};
    const size_t tokens = (size_t)b->rows * (size_t)b->t;
    TRY(safetensors_writer_declare(w, "tokens", SAFETENSORS_I32, 2, shape));
    TRY(safetensors_writer_declare(w, "logits", SAFETENSORS_F32, 3, shape));
    TRY(safetensors_writer_start(w, path));
    TRY(safetensors_writer_put(w, b->tokens, tokens * sizeof *b->tokens));
    TRY(safetensors_writer_put(w, logits, tokens * (size_t)vocab * sizeof *logits));
    return safetensors_writer_finish(w);
}

static enum sotto_status write_logits(struct loaded_model *l, const struct loader *loader,
                                      const struct eval_config *c, int t, int vocab)
{
    struct tape tape = {0};
    struct batch batch;
    struct safetensors_writer w;
    TRY(safetensors_writer_init(&w));
    enum sotto_status st = batch_init_of(&batch, &l->model.sample, c->batch, t);
    float *logits = malloc((size_t)c->batch * (size_t)t * (size_t)vocab * sizeof *logits);
    if (st == SOTTO_OK && !logits)
        st = fail(SOTTO_ENOMEM, "no memory for %d x %d x %d logits", c->batch, t, vocab);
    if (st == SOTTO_OK)
        st = loader_fill_in_order(loader, 0, c->batch, t, &batch);
    if (st == SOTTO_OK)
        st = tape_init(&tape, &l->model, &l->dev, &l->pool,
                       (struct extent){c->batch, t, (enum dtype)c->activations, false}, false);
    tape.state = l->state.view;
    if (st == SOTTO_OK)
        st = tape_begin(&tape, &batch, TAPE_EVALUATE, 0);
    tape.pass.logits = logits;
    for (int k = 0; k < l->model.n_stage && st == SOTTO_OK; k++)
        st = tape_forward(&tape, k, l->theta);
    if (st == SOTTO_OK)
        st = (l->model.sample.content == SAMPLE_TOKENS ? write_token_logits : write_image_logits)(
            &w, c->logits, &batch, logits, vocab);
    if (tape.model)
        tape_free(&tape);
    free(logits);
    batch_free(&batch);
    safetensors_writer_free(&w);
    return st;
}

/* Progress of an evaluation; a short evaluation prints none. */
struct eval_progress {
    struct progress base;
    double begin, told;
};

static struct eval_progress begin_eval_progress(void)
{
    struct eval_progress p = {.begin = clock_now(&clock_real)};
    p.told = p.begin;
    progress_init(&p.base, stderr);
    return p;
}

static void tell_evaluated(void *arg, int64_t done, int64_t of, double loss)
{
    struct eval_progress *p = arg;
    const double now = clock_now(&clock_real), every = p->base.terminal ? 0.5 : 10;
    if (now - p->told < every || done == of)
        return;
    p->told = now;
    progress_line(&p->base, (now - p->begin) / (double)done * (double)(of - done),
                  "eval %.0f%%  loss %.4f", 100.0 * (double)done / (double)of, loss);
}

static enum sotto_status measure_loss(struct loaded_model *l, struct loader *loader,
                                      const struct eval_config *c, int t, struct evaluation *out)
{
    const struct extent e = {c->batch, t, (enum dtype)c->activations, false};
    TRY(estimate_check_evaluation(&l->model, c->device, c->threads, e));
    struct eval_progress p = begin_eval_progress();
    const struct evaluation_watch watch = {tell_evaluated, &p};
    const struct evaluation_range range = {
        c->batch, t, (enum dtype)c->activations, l->state.view, c->batches, 0, 1, &watch};
    const enum sotto_status st =
        evaluate(&l->model, &l->dev, &l->pool, l->theta, loader, range, out);
    progress_end(&p.base);
    return st == SOTTO_OK ? evaluation_check(out) : st;
}

/* Chooses the length: the user's, else the length of training, or less if the data are one short
 * text. */
static enum sotto_status choose_length(const struct loaded_model *l, const struct loader *loader,
                                       const char *model, int asked, int *t)
{
    if (asked > l->model.config.positions)
        return fail(SOTTO_EINVAL, "seq = %d is longer than the model's %d positions", asked,
                    l->model.config.positions);
    *t = asked ? asked : resume_trained_length(model, l->model.config.positions);
    if (!asked && !loader->instructs && loader_tokens(loader) <= *t)
        *t = loader_tokens(loader) > 1 ? (int)loader_tokens(loader) - 1 : 1;
    return loader_check(loader, 1, *t);
}

static enum sotto_status evaluate_text(struct loaded_model *l, const struct eval_options *o,
                                       const char *model)
{
    const struct eval_config *c = &o->eval;
    int t = 0;
    struct loader *loader;
    /* the part that training with these options would hold out; without a holdout, all data */
    const bool held_out = *o->data.valid || o->data.holdout > 0;
    TRY(loader_open(&loader, &o->data, held_out ? DATA_VALID : DATA_TRAIN, l->tokenizer));
    enum sotto_status st = SOTTO_OK;
    if (loader->vocab > l->model.config.vocab)
        st = fail(SOTTO_EINVAL, "the data use a vocabulary of %lld tokens, the model has %d",
                  (long long)loader->vocab, l->model.config.vocab);
    if (st == SOTTO_OK)
        st = choose_length(l, loader, model, c->seq, &t);
    struct evaluation e;
    if (st == SOTTO_OK) {
        loader_warn_cuts(loader, t, l->model.config.positions);
        st = measure_loss(l, loader, c, t, &e);
    }
    if (st == SOTTO_OK)
        printf("loss %.6f  perplexity %.4f  accuracy %.2f%%  tokens %lld  seq %d\n", e.loss,
               exp(e.loss), 100.0 * (double)e.hits / (double)e.targets, (long long)e.targets, t);
    if (st == SOTTO_OK && *c->logits)
        st = write_logits(l, loader, c, t, l->model.config.vocab);
    loader_close(loader);
    return st;
}

static enum sotto_status refuse_image_changes(const struct data_config *d)
{
    if (d->crop || d->flip)
        return fail(SOTTO_EINVAL, "data.%s has no effect: evaluations see images as they are",
                    d->crop ? "crop" : "flip");
    return SOTTO_OK;
}

static enum sotto_status refuse_text_options(const struct eval_config *c)
{
    if (c->seq > 1 || *c->last_words)
        return fail(SOTTO_EINVAL, "%s has no effect: the model reads images",
                    *c->last_words ? "last_words" : "seq");
    return SOTTO_OK;
}

static int model_classes(const struct loaded_model *l)
{
    struct model_config config = l->model.config;
    return model_config_image(&config)->classes;
}

/* Checks the number of classes; without names in the model, classes go by number. */
static enum sotto_status check_classes(const struct image_set *set, int classes)
{
    if (set->classes > classes)
        return fail(SOTTO_EINVAL, "the data have %d classes, the model has %d", set->classes,
                    classes);
    if (set->names && set->classes < classes)
        log_warn("the data have %d classes, the model has %d and no names: classes are matched by "
                 "number",
                 set->classes, classes);
    return SOTTO_OK;
}

static enum sotto_status open_eval_images(const struct loaded_model *l,
                                          const struct data_config *data, const char *model,
                                          struct loader **loader)
{
    const int *dims = l->model.sample.dims;
    struct class_names names;
    TRY(class_names_open(&names, model, model_classes(l)));
    const struct images_setup setup = {
        dims[0],    dims[1], dims[2], &l->processor, names.n ? NAMING_ONLY : NAMING_OWN,
        names.name, names.n};
    const enum sotto_status st = images_open(loader, data, DATA_VALID, &setup);
    class_names_close(&names);
    return st;
}

static enum sotto_status evaluate_images(struct loaded_model *l, const struct eval_options *o,
                                         const char *model)
{
    const struct eval_config *c = &o->eval;
    struct loader *loader;
    struct evaluation e;
    TRY(refuse_text_options(c));
    TRY(refuse_image_changes(&o->data));
    TRY(open_eval_images(l, &o->data, model, &loader));
    enum sotto_status st = check_classes(images_set(loader), model_classes(l));
    if (st == SOTTO_OK)
        st = measure_loss(l, loader, c, 1, &e);
    if (st == SOTTO_OK)
        printf("loss %.6f  top-1 %.2f%%  top-5 %.2f%%  images %lld\n", e.loss,
               100.0 * (double)e.hits / (double)e.targets,
               100.0 * (double)e.near / (double)e.targets, (long long)e.targets);
    if (st == SOTTO_OK && *c->logits)
        st = write_logits(l, loader, c, 1, model_classes(l));
    loader_close(loader);
    return st;
}

static enum sotto_status run_last_words(struct loaded_model *l, const struct eval_options *o)
{
    struct last_word r;
    struct eval_progress p = begin_eval_progress();
    const struct evaluation_watch watch = {tell_evaluated, &p};
    if (!l->tokenizer)
        return fail(SOTTO_EINVAL, "the model has no tokenizer.json: set --data.tokenizer=FILE");
    const struct last_word_setup setup = {.model = &l->model,
                                          .dev = &l->dev,
                                          .pool = &l->pool,
                                          .theta = l->theta,
                                          .tokenizer = l->tokenizer,
                                          .activations = (enum dtype)o->eval.activations,
                                          .path = o->eval.last_words,
                                          .key = o->data.text_key,
                                          .watch = &watch};
    const enum sotto_status st = evaluate_last_words(&setup, &r);
    progress_end(&p.base);
    TRY(st);
    printf("last words: loss %.6f  perplexity %.4f  accuracy %.2f%%  texts %lld\n", r.loss,
           exp(r.loss), 100.0 * (double)r.right / (double)r.words, (long long)r.words);
    return SOTTO_OK;
}

static enum sotto_status run_eval(void *config, const char *const *words, int n_words)
{
    struct eval_options *o = config;
    if (n_words > 1)
        return fail(SOTTO_EINVAL, "one model at most, got '%s' and '%s'", words[0], words[1]);
    const bool data = *o->data.train || *o->data.valid || o->data.format == DATA_STORIES;
    if (!data && !*o->eval.last_words)
        return fail(SOTTO_EINVAL,
                    "nothing to evaluate on: set --data.valid=FILE or --last_words=FILE");
    if (o->data.vocab)
        return fail(SOTTO_EINVAL,
                    "data.vocab = %d has no effect: a model is evaluated with the "
                    "tokenizer that it has, or data.tokenizer",
                    o->data.vocab);
    struct loaded_model l;
    const char *model = n_words ? words[0] : o->eval.model;
    TRY(loaded_model_open(&l, model, o->data.tokenizer, o->data.image_size, o->eval.device,
                          o->eval.threads));
    const struct sample_kind *kind = model_config_kind(&l.model.config);
    enum sotto_status st = data_refuse(&o->data, kind);
    if (st == SOTTO_OK && !kind->sequences)
        st = evaluate_images(&l, o, model);
    else if (st == SOTTO_OK && data)
        st = evaluate_text(&l, o, model);
    if (st == SOTTO_OK && *o->eval.last_words)
        st = run_last_words(&l, o);
    loaded_model_close(&l);
    return st;
}

const struct command command_eval = {
    .name = "eval",
    .summary = "loss and accuracy of a model on text or images",
    .usage = "[MODEL] --data.valid=FILE|--last_words=FILE [--key=value ...]",
    .example = "  sotto eval my-run --data.valid=held-out.txt\n"
               "  sotto eval gpt2-folder --last_words=lambada.jsonl\n"
               "  sotto eval my-resnet --data.valid=cifar-10-batches-bin",
    .sections = eval_sections,
    .run = run_eval,
};

/* Opening a run's data, and what goes with them and with the model: the tokenizer, or how images
 * are made. */
#include <string.h>

#include "base/log.h"
#include "data/image/images.h"
#include "hf/loaded_model.h"
#include "train/open/open.h"

/* A tokenizer named nowhere comes with the model that training starts from. A checkpoint's is the
 * one that the run began with, whatever has become of the file that was named then. */
static enum sotto_status find_tokenizer(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    const bool comes_along = run->own_tokenizer || (*from && !*c->tokenizer && tokenizer_in(from));
    if (c->vocab && (*c->tokenizer || (comes_along && !run->own_tokenizer)))
        return fail(SOTTO_EINVAL,
                    "data.vocab = %d has no effect beside the tokenizer in %s: it is for one that "
                    "is trained on the data",
                    c->vocab, *c->tokenizer ? c->tokenizer : from);
    strcpy(run->tokenizer_from, comes_along ? from : c->tokenizer);
    return SOTTO_OK;
}

/* Where training starts from a model, a new tokenizer would give ids that mean nothing to it. */
static enum sotto_status open_tokenizer(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    if (!*run->tokenizer_from)
        return *from ? SOTTO_OK : loader_tokenizer(&run->tokenizer, c);
    TRY(tokenizer_open(&run->tokenizer, run->tokenizer_from));
    if (!*from || strcmp(run->tokenizer_from, from) == 0)
        return SOTTO_OK;
    return loaded_model_check_tokenizer(run->tokenizer, run->tokenizer_from, from);
}

/* Data that are tokens already do not need the tokenizer that came with the model, should it be of
 * a kind that is not known here; its files go out again all the same. */
static enum sotto_status open_train(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    struct status_note cause;
    enum sotto_status unknown = open_tokenizer(run, from);
    if (unknown != SOTTO_OK && (!*from || strcmp(run->tokenizer_from, from) != 0))
        return unknown;
    status_save(&cause, unknown);
    enum sotto_status st = loader_open(&run->train, c, DATA_TRAIN, run->tokenizer);
    if (unknown == SOTTO_OK)
        return st;
    status_raise(&cause);
    if (st != SOTTO_OK)
        return unknown;
    if (run->cluster.leads)
        log_warn("training goes without the model's tokenizer, since the data are tokens: %s",
                 sotto_error());
    return SOTTO_OK;
}

/* A model of text may be given images, which would be read as tokens or as no text. */
static enum sotto_status refuse_images(const struct data_config *c)
{
    TRY(data_refuse(c, &sample_kinds[SAMPLE_TOKENS]));
    if (images_recognise(c) == DATA_AUTO)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%.200s holds images, and the model reads text: choose another with "
                "--model, such as resnet18-cifar",
                c->train);
}

static enum sotto_status open_text(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    TRY(refuse_images(c));
    TRY(find_tokenizer(run, from));
    TRY(open_train(run, from));
    if (*c->valid)
        return loader_open(&run->valid, c, DATA_VALID, run->tokenizer);
    return c->holdout > 0 ? loader_open_rest(&run->valid, run->train) : SOTTO_OK;
}

/* The model says what it wants of them, and they what it leaves open. */
static enum sotto_status open_images(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    const struct image_sizes *wants = model_config_image(&run->config.model);
    struct image_processor processor;
    struct class_names names = {0};
    TRY(data_refuse(c, &sample_kinds[SAMPLE_FLOATS]));
    TRY(processor_read(&processor, from));
    if (*from)
        TRY(class_names_open(&names, from, wants->classes));
    const struct images_setup setup = {
        wants->height,           wants->width, wants->channels, &processor,
        run_naming(run, &names), names.name,   names.n};
    enum sotto_status st = images_open(&run->train, c, DATA_TRAIN, &setup);
    if (st == SOTTO_OK)
        st = run_fit_classes(run, &names);
    class_names_close(&names);
    TRY(st);
    TRY(images_open_valid(&run->valid, run->train, c));
    const struct image_set *set = images_set(run->train);
    run->config.data.resize = set->resize; /* so that it is kept with them */
    return model_config_fit(&run->config.model, &(struct image_sizes){set->height, set->width,
                                                                      set->channels, set->classes});
}

enum sotto_status run_open_data(struct run *run, const char *from)
{
    const struct train_config *t = &run->config.train;
    if (t->head != HEAD_AUTO && !*run->checkpoint && !run->head.came)
        return fail(SOTTO_EINVAL, "train.head has no effect: training starts from no model over "
                                  "images");
    TRY((model_config_image(&run->config.model) ? open_images : open_text)(run, from));
    const int sources = run->train->sources, workers = run->cluster.size;
    if (run->config.data.sharding == DATA_BY_SOURCE && sources < workers && run->cluster.leads)
        log_warn("data.sharding = source: %d workers share %d source%s, so some read the same",
                 workers, sources, sources == 1 ? "" : "s");
    return SOTTO_OK;
}

enum sotto_status run_describe_images(struct run *run, const char *from)
{
    const struct image_processor now = images_processor(run->train);
    struct image_processor came;
    TRY(processor_read(&came, from));
    came.norm = norm_spread(came.norm, now.norm.channels);
    const bool same = came.height == now.height && came.width == now.width &&
                      came.resize == now.resize && came.keep == now.keep &&
                      came.filter == now.filter &&
                      memcmp(&came.norm, &now.norm, sizeof now.norm) == 0;
    if (same)
        return SOTTO_OK;
    json_t *json = processor_to_json(&now);
    if (!json)
        return fail(SOTTO_ENOMEM, "no memory for " PROCESSOR_FILE);
    hf_folder_set_processor(&run->folder, json);
    return SOTTO_OK;
}

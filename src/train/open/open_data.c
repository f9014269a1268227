/* Opening a run's data, with the tokenizer of text, or the size and processing of images. */
#include <string.h>

#include "base/log.h"
#include "data/image/images.h"
#include "hf/loaded_model.h"
#include "train/open/open.h"

/* Finds the tokenizer's file: the one in data.tokenizer, or the model's in `from`. A checkpoint has
 * a copy of the tokenizer that the run began with, which is taken in any case. */
static enum sotto_status find_tokenizer(struct run *run, const char *from)
{
    const struct data_config *c = &run->config.data;
    const bool in_model = run->own_tokenizer || (*from && !*c->tokenizer && tokenizer_in(from));
    if (c->vocab && (*c->tokenizer || (in_model && !run->own_tokenizer)))
        return fail(SOTTO_EINVAL,
                    "data.vocab = %d has no effect with the tokenizer in %s: it is for a tokenizer "
                    "that is trained on the data",
                    c->vocab, *c->tokenizer ? c->tokenizer : from);
    strcpy(run->tokenizer_from, in_model ? from : c->tokenizer);
    return SOTTO_OK;
}

/* Opens the tokenizer. A run that starts from a model in `from` needs one with the model's ids. */
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

/* Opens the training data. Token files do not need the model's tokenizer, which may be of an
 * unknown kind; its files are published all the same. */
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
        log_warn("training without the model's tokenizer, since the data are tokens: %s",
                 sotto_error());
    return SOTTO_OK;
}

/* Refuses images for a model of text, which would be read as tokens or as text. */
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

/* Opens the images in the size that the model's configuration sets; a size that the model leaves
 * open is taken from the data. */
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
    run->config.data.resize = set->resize; /* so that a checkpoint keeps the value */
    return model_config_fit(&run->config.model, &(struct image_sizes){set->height, set->width,
                                                                      set->channels, set->classes});
}

enum sotto_status run_open_data(struct run *run, const char *from)
{
    const struct train_config *t = &run->config.train;
    if (t->head != HEAD_AUTO && !*run->checkpoint && !run->head.loaded)
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
    struct image_processor before;
    TRY(processor_read(&before, from));
    before.norm = norm_spread(before.norm, now.norm.channels);
    const bool same = before.height == now.height && before.width == now.width &&
                      before.resize == now.resize && before.keep == now.keep &&
                      before.filter == now.filter &&
                      memcmp(&before.norm, &now.norm, sizeof now.norm) == 0;
    if (same)
        return SOTTO_OK;
    json_t *json = processor_to_json(&now);
    if (!json)
        return fail(SOTTO_ENOMEM, "no memory for " PROCESSOR_FILE);
    hf_folder_set_processor(&run->folder, json);
    return SOTTO_OK;
}

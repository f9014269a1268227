#include "hf/loaded_model.h"

#include <stdlib.h>
#include <string.h>

#include "hf/weights.h"
#include "tensor/ops.h"

enum sotto_status loaded_model_check_tokenizer(const struct tokenizer *tokenizer, const char *name,
                                               const char *folder)
{
    struct tokenizer *own;
    if (!tokenizer_in(folder) || tokenizer_open(&own, folder) != SOTTO_OK)
        return SOTTO_OK; /* no tokenizer, or none to compare with */
    const bool same = tokenizer_same(tokenizer, own);
    const int has = tokenizer_vocab_size(own);
    tokenizer_close(own);
    if (same)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "the tokenizer %s (%d tokens) is not that of the model in %s (%d tokens): its ids "
                "mean other texts",
                name, tokenizer_vocab_size(tokenizer), folder, has);
}

static enum sotto_status loaded_model_open_tokenizer(struct loaded_model *l, const char *folder,
                                                     const char *named)
{
    if (!*named)
        return tokenizer_in(folder) ? tokenizer_open(&l->tokenizer, folder) : SOTTO_OK;
    TRY(tokenizer_open(&l->tokenizer, named));
    if (tokenizer_vocab_size(l->tokenizer) > l->model.config.vocab)
        return fail(SOTTO_EINVAL, "the tokenizer %s has %d tokens, the model in %s %d", named,
                    tokenizer_vocab_size(l->tokenizer), folder, l->model.config.vocab);
    return loaded_model_check_tokenizer(l->tokenizer, named, folder);
}

typedef enum sotto_status load_table(const struct model *model, const char *path, float *to);

/* Loads a whole vector from the folder's files: straight into memory that the host can write, or
 * through a copy in host memory. */
static enum sotto_status load_vector(struct loaded_model *l, struct buffer *b,
                                     const struct table *table, load_table *load,
                                     const char *folder)
{
    const size_t count = table_count(table);
    TRY(buffer_init(b, &l->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
    if (b->view.place == PLACE_HOST)
        return load(&l->model, folder, view_host(b->view));
    float *host = malloc(count * sizeof *host);
    if (!host)
        return fail(SOTTO_ENOMEM, "no memory for %zu numbers of the model in %s", count, folder);
    enum sotto_status st = load(&l->model, folder, host);
    if (st == SOTTO_OK) {
        l->dev.ops->write(&l->dev, b->view, host, count);
        st = device_failed(&l->dev);
    }
    free(host);
    return st;
}

/* Sets open sizes of images: a model over images of any size was trained on images of the size that
 * the processor gives. */
static enum sotto_status fit_images(const struct loaded_model *l, struct model_config *config,
                                    const char *folder, int image_size)
{
    struct image_sizes *s = model_config_image(config);
    const int height = image_size ? image_size : l->processor.height;
    const int width = image_size ? image_size : l->processor.width;
    s->height = s->height ? s->height : height;
    s->width = s->width ? s->width : width;
    if (s->height && s->width)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "%s has no size of its images: set data.image_size", folder);
}

enum sotto_status loaded_model_open(struct loaded_model *l, const char *folder,
                                    const char *tokenizer, int image_size, const char *device,
                                    int threads)
{
    *l = (struct loaded_model){0};
    struct model_config config;
    enum sotto_status st;
    if (strcmp(device, "null") == 0)
        return fail(SOTTO_EINVAL, "device = null computes nothing");
    TRY(weights_config(&config, folder));
    TRY(processor_read(&l->processor, folder));
    if (model_config_image(&config))
        TRY(fit_images(l, &config, folder, image_size));
    TRY(model_init(&l->model, &config, 1, 1));
    TRY_DONE(weights_check(&l->model, folder, false));
    TRY_DONE(loaded_model_open_tokenizer(l, folder, tokenizer));
    if (l->tokenizer)
        TRY_DONE(end_tokens_read(&l->ends, folder, l->tokenizer));
    TRY_DONE(device_open(&l->dev, device, &l->memory, threads));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    TRY_DONE(load_vector(l, &l->parameters, &l->model.table, weights_load, folder));
    if (l->model.state.n)
        TRY_DONE(load_vector(l, &l->state, &l->model.state, weights_load_state, folder));
    l->theta = calloc((size_t)l->model.n_stage, sizeof *l->theta);
    if (!l->theta) {
        st = fail(SOTTO_ENOMEM, "no memory for the model in %s", folder);
        goto done;
    }
    table_stages(&l->model.table, l->parameters.view, l->theta);
done:
    if (st != SOTTO_OK)
        loaded_model_close(l);
    return st;
}

void loaded_model_close(struct loaded_model *l)
{
    free(l->theta);
    buffer_free(&l->parameters);
    buffer_free(&l->state);
    if (l->pool.dev)
        pool_free(&l->pool);
    if (l->dev.ops)
        device_close(&l->dev);
    if (l->tokenizer)
        tokenizer_close(l->tokenizer);
    model_free(&l->model);
    *l = (struct loaded_model){0};
}

#include "train/loaded.h"

#include <stdlib.h>

#include "base/file.h"
#include "train/weights.h"

static enum sotto_status open_tokenizer(struct loaded *l, const char *folder, const char *named)
{
    static const char *const files[] = {"tokenizer.json", "vocab.json"};
    if (*named)
        return tokenizer_open(&l->tokenizer, named);
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_ROOM];
        TRY(file_join(path, folder, files[i]));
        if (file_exists(path))
            return tokenizer_open(&l->tokenizer, folder);
    }
    return SOTTO_OK;
}

enum sotto_status loaded_open(struct loaded *l, const char *folder, const char *tokenizer,
                              int threads)
{
    *l = (struct loaded){0};
    struct model_config config;
    enum sotto_status st;
    TRY(weights_config(&config, folder));
    TRY(model_init(&l->model, &config, 1, 1));
    TRY_DONE(weights_types(&l->model, folder, NULL));
    TRY_DONE(open_tokenizer(l, folder, tokenizer));
    TRY_DONE(device_open(&l->dev, "cpu", &l->memory, threads));
    pool_init(&l->pool, &l->dev, MEMORY_ACTIVATIONS);
    TRY_DONE(buffer_init(&l->parameters, &l->dev, DTYPE_F32, table_count(&l->model.table),
                         MEMORY_PARAMETERS));
    TRY_DONE(weights_load(&l->model, folder, l->parameters.view.data));
    l->theta = calloc((size_t)l->model.n_stage, sizeof *l->theta);
    if (!l->theta) {
        st = fail(SOTTO_ENOMEM, "no memory for the model in %s", folder);
        goto done;
    }
    table_stages(&l->model.table, l->parameters.view, l->theta);
done:
    if (st != SOTTO_OK)
        loaded_close(l);
    return st;
}

void loaded_close(struct loaded *l)
{
    free(l->theta);
    buffer_free(&l->parameters);
    if (l->pool.dev)
        pool_free(&l->pool);
    if (l->dev.ops)
        device_close(&l->dev);
    if (l->tokenizer)
        tokenizer_close(l->tokenizer);
    model_free(&l->model);
    *l = (struct loaded){0};
}

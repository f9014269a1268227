/* A model read from a Hugging Face folder, ready to compute with. */
#ifndef SOTTO_HF_LOADED_MODEL_H
#define SOTTO_HF_LOADED_MODEL_H

#include "data/image/processor.h"
#include "data/tokenizer/tokenizer.h"
#include "hf/end_tokens.h"
#include "nn/model.h"
#include "tensor/pool.h"

struct loaded_model {
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct buffer parameters;
    struct buffer state;              /* untrained state of the model */
    struct view *theta;               /* (n_stage) */
    struct tokenizer *tokenizer;      /* NULL: the folder has none */
    struct end_tokens ends;           /* of texts; needs a tokenizer */
    struct image_processor processor; /* of a model over images */
};

/* Loads a model; `device` and `threads` as for device_open. `tokenizer`: a file or folder, "" for
 * the model's own. `image_size`: rows and columns of images for a model over any size; 0: the size
 * in the folder. */
enum sotto_status loaded_model_open(struct loaded_model *l, const char *folder,
                                    const char *tokenizer, int image_size, const char *device,
                                    int threads);
void loaded_model_close(struct loaded_model *l);

/* Fails if the model in `folder` has a tokenizer with other ids than `tokenizer`; `name` names the
 * latter in messages. */
enum sotto_status loaded_model_check_tokenizer(const struct tokenizer *tokenizer, const char *name,
                                               const char *folder);

#endif

/* A model read from a Hugging Face folder, ready to compute with. */
#ifndef SOTTO_HF_LOADED_MODEL_H
#define SOTTO_HF_LOADED_MODEL_H

#include "data/image/processor.h"
#include "data/tokenizer/tokenizer.h"
#include "hf/end_tokens.h"
#include "nn/model.h"
#include "tensor/pool.h"

struct loaded {
    struct model model;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct buffer parameters;
    struct buffer state;              /* of the model that is not trained */
    struct view *theta;               /* (n_stage) */
    struct tokenizer *tokenizer;      /* NULL: the folder has none */
    struct ends ends;                 /* of its texts; with a tokenizer */
    struct image_processor processor; /* of a model over images */
};

/* `device` and `threads` as for device_open. `tokenizer`: a file or folder, "" for the model's own.
 * `image_size`: of the images, where the model takes any; 0: as its folder says. */
enum sotto_status loaded_open(struct loaded *l, const char *folder, const char *tokenizer,
                              int image_size, const char *device, int threads);
void loaded_close(struct loaded *l);

/* A fault if the model in `folder` has a tokenizer of its own that gives other ids than this one,
 * which `name` names. */
enum sotto_status loaded_check_tokenizer(const struct tokenizer *tokenizer, const char *name,
                                         const char *folder);

#endif

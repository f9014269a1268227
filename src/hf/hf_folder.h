/* A Hugging Face model folder around the weights: the files of a run's starting model go out again
 * with the trained model.
 *
 * These are the configuration with all members, also those without a use in sotto, the files of
 * tokenizer and generation byte for byte, and the types of the tensors. A new model gets the files
 * that AutoTokenizer and generate() need. A checkpoint is such a folder, too, so a resumed run
 * passes on the files of the first run. */
#ifndef SOTTO_HF_HF_FOLDER_H
#define SOTTO_HF_HF_FOLDER_H

#include "data/tokenizer/tokenizer.h"
#include "hf/end_tokens.h"
#include "io/hf_files.h"
#include "io/safetensors.h"
#include "nn/model.h"

enum save_dtype { SAVE_AUTO, SAVE_FP32, SAVE_BF16, SAVE_FP16 };

struct hf_folder {
    json_t *config;    /* config.json as read; NULL: a new model */
    char *config_text; /* the same, byte for byte */
    size_t config_size;
    const char *dtype;            /* "torch_dtype" to write; NULL: unchanged */
    enum safetensors_type *types; /* (tensors of the model) */
    struct {
        char *data; /* NULL: no such file */
        size_t size;
    } file[HF_FILES];
    int begin, end;     /* tokens at the beginning and end of a text; -1: none */
    json_t *generation; /* changed generation_config.json; NULL: unchanged */
    json_t *processor;  /* changed preprocessor_config.json; NULL: unchanged */
    json_t *classes;    /* changed members of config.json; NULL: unchanged */
};

/* Opens a folder. `from`: the folder of the starting model, "" for a new model. `tokenizer`
 * (optional) with its file or folder, "" for a trained tokenizer. `new_head`: the model has another
 * classifier than the folder. */
enum sotto_status hf_folder_open(struct hf_folder *f, const struct model *model, const char *from,
                                 const struct tokenizer *tokenizer, const char *tokenizer_from,
                                 bool new_head, enum save_dtype dtype);
void hf_folder_close(struct hf_folder *f);

/* For instructions: adds `id`, the token at the end of learned responses, to the ends in
 * generation_config.json, for generate() to stop there. */
enum sotto_status hf_folder_add_end(struct hf_folder *f, int id);

/* For images: sets the preprocessing, if the starting model's folder has another. Takes over the
 * reference. */
void hf_folder_set_processor(struct hf_folder *f, json_t *processor);

/* Sets the names of the classes; `names` (optional). */
enum sotto_status hf_folder_set_classes(struct hf_folder *f, const struct model *model,
                                        char *const *names, int classes);

/* Writes all but the weights into `folder`. `tokenizer` (optional): NULL for none. */
enum sotto_status hf_folder_write(const struct hf_folder *f, const struct model *model,
                                  const struct tokenizer *tokenizer, const char *folder);

/* True if all tensors are written as fp32: the weights then equal the parameters bit by bit. */
bool hf_folder_exact(const struct hf_folder *f, const struct model *model);

#endif

/* A Hugging Face model folder around its weights: what came with the model that a run started from
 * goes out again with the model that it makes.
 *
 * That is the configuration with all members that sotto has no use for, the numbers of special
 * tokens among them, the files of tokenizer and generation byte for byte, and the tensors' types. A
 * model that came from nowhere gets what AutoTokenizer and generate() ask for. A checkpoint is such
 * a folder too, so a resumed run hands on what the first one was given. */
#ifndef SOTTO_HF_HF_FOLDER_H
#define SOTTO_HF_HF_FOLDER_H

#include "data/tokenizer/tokenizer.h"
#include "hf/end_tokens.h"
#include "io/hf_files.h"
#include "io/safetensors.h"
#include "nn/model.h"

enum save_dtype { SAVE_AUTO, SAVE_FP32, SAVE_BF16, SAVE_FP16 };

struct hf_folder {
    json_t *config;    /* config.json as it came; NULL: the model is new */
    char *config_text; /* the same, byte for byte                        */
    size_t config_size;
    const char *dtype;            /* its "torch_dtype"; NULL: as it came            */
    enum safetensors_type *types; /* (tensors of the model)                         */
    struct {
        char *data; /* NULL: there was none */
        size_t size;
    } file[HF_FILES];
    int begin, end;    /* the tokens that a text begins and ends with; -1: none */
    json_t *generation; /* generation_config.json where it is not as it came; NULL: it is */
    json_t *processor; /* preprocessor_config.json where it is not as it came; NULL: it is */
    json_t *classes;   /* members of config.json, the same */
};

/* `from`: the folder that the model came from, "": it is new. `tokenizer` (optional), with the file
 * or folder that it came from, "": it was trained. `new_head`: the folder's classifier is not the
 * model's. */
enum sotto_status hf_folder_open(struct hf_folder *f, const struct model *model, const char *from,
                                 const struct tokenizer *tokenizer, const char *tokenizer_from,
                                 bool new_head, enum save_dtype dtype);
void hf_folder_close(struct hf_folder *f);

/* Of instructions: `id` ends what the model learns to say, so those who read the folder are to stop
 * there: it is added to the ends that generation_config.json has. */
enum sotto_status hf_folder_add_end(struct hf_folder *f, int id);

/* Of images: how they are made, where the folder that the model came from does not say so. Takes
 * over the reference. */
void hf_folder_set_processor(struct hf_folder *f, json_t *processor);

/* ... and what classes are called, `names` (optional). */
enum sotto_status hf_folder_set_classes(struct hf_folder *f, const struct model *model,
                                        char *const *names, int classes);

/* Writes all but the weights into `folder`. `tokenizer` (optional): NULL for none. */
enum sotto_status hf_folder_write(const struct hf_folder *f, const struct model *model,
                                  const struct tokenizer *tokenizer, const char *folder);

/* Whether all tensors go out as fp32: then the weights are the parameters to the bit. */
bool hf_folder_exact(const struct hf_folder *f, const struct model *model);

#endif

#include <string.h>

#include "data/tokenizer/model/model.h"

static const struct model_kind *const kinds[] = {&model_bpe, &model_unigram, &model_wordpiece};

enum sotto_status model_kind_find(const struct model_kind **out, const json_t *json)
{
    const json_t *type = json_object_get(json, "type");
    char shown[48];
    *out = &model_bpe;
    if (!type)
        return SOTTO_OK;
    if (!json_is_string(type))
        return fail(SOTTO_EFORMAT, "the type of the model must be a string, got %s",
                    json_kind(type));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(json_string_value(type), kinds[i]->type) == 0) {
            *out = kinds[i];
            return SOTTO_OK;
        }
    return fail(SOTTO_EFORMAT,
                "a model of type \"%s\" is not supported, only BPE, Unigram, WordPiece",
                bpe_show(shown, json_string_value(type), json_string_length(type)));
}

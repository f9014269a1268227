/* libFuzzer: any text as a chat template, beside a tokenizer with a few special tokens. What is
 * found in it is a token, and the same when it is read again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/tokenizer/template.h"
#include "data/tokenizer/tokenizer_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tokenizer *make_tokenizer(void)
{
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<|im_end|>\", \"special\": true}, {\"id\": 2, "
        "\"content\": \"</s>\", \"special\": true}, {\"id\": 3, \"content\": \"<_>\"}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": "
        "{\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}";
    struct tokenizer *made;
    if (tokenizer_parse(&made, json, sizeof json - 1, "fuzz") != SOTTO_OK)
        abort();
    return made;
}

/* Marks lie in the text, or are of its own. */
static void check_marks(const char *text, size_t size)
{
    struct mark_list list;
    if (template_read(&list, text, size) != SOTTO_OK)
        return;
    for (size_t i = 0; i < list.count; i++) {
        const struct span s = list.mark[i].span;
        if (s.size && s.at >= text && s.at < text + size)
            assert(s.at + s.size <= text + size);
        else
            assert(s.size == 0);
    }
    template_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer;
    if (!tokenizer)
        tokenizer = make_tokenizer();
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    check_marks(text, size);
    json_t *config = json_pack("{s:s, s:o}", "eos_token", "</s>", "chat_template",
                               json_stringn_nocheck(text, size));
    free(text);
    int found = -1;
    for (int again = 0; again < 2; again++) {
        tokenizer->turn_end = BPE_NONE;
        if (tokenizer_read_turn(tokenizer, "/dev/null", config) != SOTTO_OK)
            abort();
        const int id = tokenizer_turn_end(tokenizer);
        assert(id >= 1 && id <= 3 && (again == 0 || id == found));
        found = id;
    }
    json_decref(config);
    return 0;
}

/* Any bytes as a text for tokenizers of several kinds; the first byte chooses the kind. Ids are in
 * the vocabulary, and decode. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MARK "\\u2581"
#define ADDED                                                                                      \
    ", \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}, {\"id\": 9, "      \
    "\"content\": \"a" MARK "b\", \"lstrip\": true, \"normalized\": true}]"
#define SPLIT(behavior)                                                                            \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"b*|\\\\s+\"}, \"behavior\": \"" behavior     \
    "\", \"invert\": false}"

static const char *const documents[] = {
    /* Llama 2 */
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
    "\"prepend\": \"" MARK "\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
    "\"content\": \"" MARK "\"}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
    "\"Replace\", \"pattern\": {\"String\": \"" MARK "\"}, \"content\": \" \"}, {\"type\": "
    "\"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": "
    "1, \"stop\": 0}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", "
    "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"" MARK "\": 2, \"a\": 3, "
    "\"b\": 4, \"ab\": 5, \"" MARK "a\": 6, \"<0x41>\": 7, \"<0xC3>\": 8}, \"merges\": [\"a b\", "
    "\"" MARK " a\"]}" ADDED "}",
    /* Mistral */
    "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" MARK "\", "
    "\"prepend_scheme\": \"first\", \"split\": false}, \"model\": {\"type\": \"BPE\", "
    "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"a\": 3, "
    "\"b\": 4, \"ab\": 5}, \"merges\": [\"a b\"]}" ADDED "}",
    /* T5 */
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": "
    "\"Strip\"}, {\"type\": \"Nmt\"}]}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
    "\"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, {\"type\": \"Metaspace\", "
    "\"replacement\": \"" MARK "\"}]}, \"decoder\": {\"type\": \"Metaspace\", \"replacement\": "
    "\"" MARK "\"}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], "
    "[\"<s>\", 0], [\"" MARK "\", -1.5], [\"a\", -2], [\"" MARK "a\", -3], [\"ab\", -2.5], "
    "[\"\\u00e9\", -4]]}" ADDED "}",
    /* BERT */
    "{\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": "
    "\"BertPreTokenizer\"}, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": "
    "true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"<unk>\", "
    "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 20, \"vocab\": "
    "{\"<unk>\": 0, \"<s>\": 1, \"a\": 2, \"##b\": 3, \"ab\": 4, \"##ab\": 5, \".\": 6}}" ADDED "}",
    /* every behavior */
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
    "\"StripAccents\"}, {\"type\": \"Lowercase\"}, {\"type\": \"Replace\", \"pattern\": "
    "{\"Regex\": \"x*\"}, \"content\": \"b\"}]}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
    "\"pretokenizers\": [{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}, {\"type\": "
    "\"Whitespace\"}, " SPLIT("MergedWithPrevious") ", " SPLIT(
        "MergedWithNext") ", {\"type\": "
                          "\"Digits\"}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"b\", \"vocab\": {\"a\": 0, "
                          "\"b\": 4, \"ab\": 5}, \"merges\": [\"a b\"]}}",
    /* Falcon */
    "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
    "{\"type\": \"Digits\"}, " SPLIT(
        "Contiguous") "]}, \"model\": {\"type\": \"BPE\", "
                      "\"unk_token\": \"b\", \"vocab\": {\"a\": 0, \"b\": 4, \"ab\": 5, \"\\u00c3\": 7}, \"merges\": "
                      "[\"a b\"]}}"};

enum { KINDS = sizeof documents / sizeof *documents };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *made[KINDS];
    struct token_list ids = {0};
    char *back;
    size_t n;
    if (size == 0)
        return 0;
    struct tokenizer **t = &made[data[0] % KINDS];
    const char *document = documents[data[0] % KINDS];
    if (!*t && tokenizer_parse(t, document, strlen(document), "kind") != SOTTO_OK)
        abort();
    char *text = malloc(size > 1 ? size - 1 : 1); /* so that a read after the text is found */
    if (!text)
        return 0;
    if (size > 1)
        memcpy(text, data + 1, size - 1);
    if (tokenizer_encode_special(*t, text, size - 1, &ids) != SOTTO_OK)
        abort();
    for (size_t i = 0; i < ids.count; i++)
        if (ids.data[i] < 0 || ids.data[i] >= tokenizer_vocab_size(*t))
            abort();
    if (tokenizer_decode(*t, ids.data, ids.count, &back, &n) != SOTTO_OK)
        abort();
    free(back);
    free(ids.data);
    free(text);
    return 0;
}

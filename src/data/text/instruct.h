/* Instruction data: examples with a prompt that is read and a response that is learned.
 *
 * A record has one of three shapes:
 *     {"instruction": ..., "input": ... (optional), "output": ...}
 *     {"prompt": ..., "completion": ...}
 *     {"messages": [{"role": "system" | "user" | "assistant", "content": ...}, ...]}
 *
 * Prompts of the second shape are taken unchanged. The first shape becomes (in the wording of
 * Stanford Alpaca)
 *
 *     Below is an instruction that describes a task. Write a response that appropriately
 *     completes the request.
 *
 *     ### Instruction:
 *     {instruction}
 *
 *     ### Input:               with an input, and another first line
 *     {input}
 *
 *     ### Response:
 *     {output}<end>
 *
 * and the third shape the same, with one instruction and response for each turn; a system message
 * replaces the first line. Texts of the assistant, each with the token that ends a turn, are
 * learned; all other text is masked, and messages of the assistant with "weight": 0, too. The token
 * is not added to a text that ends with it already. */
#ifndef SOTTO_DATA_TEXT_INSTRUCT_H
#define SOTTO_DATA_TEXT_INSTRUCT_H

#include "base/json.h"
#include "data/string_buffer.h"
#include "data/tokenizer/tokenizer.h"

#define INSTRUCT_MASKED (-100) /* target of a masked position */

struct instruct_part {
    size_t size; /* bytes of the example's text */
    bool learned;
    bool ends; /* followed by the token that ends a turn */
};

struct instruct_example {
    struct text text;
    struct instruct_part *parts; /* masked and learned parts, in the order of `text` */
    int count, room;
    size_t parted; /* bytes of the text in parts */
};

/* True if the record looks like an example rather than a document. */
bool instruct_recognise(const json_t *record);
/* Extends the present message for a record with a known shape of another program: by the shape's
 * name and the command that converts it. Returns true if the shape is known. */
bool instruct_explain(enum sotto_status st, const json_t *record);
/* Does the same for a record of another kind than its file: an example among texts (with member
 * `text_key`), or a text among examples. */
bool instruct_explain_mixed(enum sotto_status st, const json_t *record, const char *text_key);
/* The supported shapes, for messages. */
#define INSTRUCT_SHAPES                                                                                       \
    "{\"messages\": [{\"role\", \"content\"}, ...]}, {\"instruction\", \"input\" (optional), \"output\"} or " \
    "{\"prompt\", \"completion\"}"
/* Replaces `example` (start from {0}) by the record's example. */
enum sotto_status instruct_read(struct instruct_example *example, const json_t *record);
void instruct_free(struct instruct_example *example);

/* Appends the prompt of an instruction (input may be NULL), as for examples of the first shape. */
void instruct_prompt(struct text *out, const char *instruction, const char *input);

struct instruct_set {
    int32_t *ids;   /* all examples; a masked id is stored as its complement, ~id */
    int64_t *start; /* (count + 1) */
    int64_t count;
};

/* Reads and tokenizes all examples of a JSON array or JSONL text. */
enum sotto_status instruct_open(struct instruct_set *set, const char *text, size_t size,
                                const char *name, const struct tokenizer *tokenizer);
void instruct_close(struct instruct_set *set);

/* Writes example `i` as a sequence of at most `t` positions and returns their number. A longer
 * example loses the end of the response; if the prompt leaves less than half of `t` for the
 * response, the prompt loses its beginning. */
int instruct_row(const struct instruct_set *set, int64_t i, int t, int32_t *tokens,
                 int32_t *targets);
/* Parts that example `i` loses at length `t`: the end of the response, the beginning of the prompt.
 */
struct instruct_cut {
    bool response, prompt;
};
struct instruct_cut instruct_cut(const struct instruct_set *set, int64_t i, int t);
/* Returns the number of positions that instruct_row writes. */
int instruct_length(const struct instruct_set *set, int64_t i, int t);

#endif

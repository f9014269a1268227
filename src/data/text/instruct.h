/* Instruction data: examples with a prompt that is read and a response that is learned.
 *
 * A record is one of
 *     {"instruction": ..., "input": ... (optional), "output": ...}
 *     {"prompt": ..., "completion": ...}
 *     {"messages": [{"role": "system" | "user" | "assistant", "content": ...}, ...]}
 *
 * Prompts of the second kind are taken as they are. The first becomes (the wording of Stanford
 * Alpaca)
 *
 *     Below is an instruction that describes a task. Write a response that appropriately completes
 * the request.
 *
 *     ### Instruction:
 *     {instruction}
 *
 *     ### Input:               with an input, and a first line that mentions it
 *     {input}
 *
 *     ### Response:
 *     {output}<end>
 *
 * and the third the same, one instruction and response a turn; a system message replaces the first
 * line. What the assistant says, each time with the token that ends a turn, is learned; everything
 * else is masked, as is a message of the assistant with "weight": 0. Where that token ends the text
 * already, it is not added. */
#ifndef SOTTO_DATA_TEXT_INSTRUCT_H
#define SOTTO_DATA_TEXT_INSTRUCT_H

#include "base/json.h"
#include "data/string_buffer.h"
#include "data/tokenizer/tokenizer.h"

#define INSTRUCT_MASKED (-100) /* target of a position that is not learned */

struct instruct_part {
    size_t size; /* bytes of the example's text */
    bool learned;
    bool ends; /* the token that ends a turn follows */
};

struct instruct_example {
    struct text text;
    struct instruct_part *parts; /* masked and learned, one behind the other in `text` */
    int count, room;
    size_t parted; /* bytes of the text that the parts cover */
};

/* Whether the record looks like an example rather than a document. */
bool instruct_recognise(const json_t *record);
/* Adds to the message that is set what shape the record has, if it is a known one of others, and
 * the command that makes one of it that is read. Returns whether it is. */
bool instruct_explain(enum sotto_status st, const json_t *record);
/* The same of a record of the other kind than its file's: an example among texts (which are
 * `text_key`'s), or a text among examples. */
bool instruct_explain_mixed(enum sotto_status st, const json_t *record, const char *text_key);
/* The shapes that are read, for messages. */
#define INSTRUCT_SHAPES                                                                                       \
    "{\"messages\": [{\"role\", \"content\"}, ...]}, {\"instruction\", \"input\" (optional), \"output\"} or " \
    "{\"prompt\", \"completion\"}"
/* Replaces `example` (start from {0}) by the record's. */
enum sotto_status instruct_read(struct instruct_example *example, const json_t *record);
void instruct_free(struct instruct_example *example);

/* Appends the prompt of an instruction (input may be NULL), as examples of the first kind have it.
 */
void instruct_prompt(struct text *out, const char *instruction, const char *input);

struct instruct_set {
    int32_t *ids;   /* all examples; an id that is not learned is stored as its complement, ~id */
    int64_t *start; /* (count + 1) */
    int64_t count;
};

/* Reads and tokenizes all examples of a JSON array or JSONL text. */
enum sotto_status instruct_open(struct instruct_set *set, const char *text, size_t size,
                                const char *name, const struct tokenizer *tokenizer);
void instruct_close(struct instruct_set *set);

/* Writes example `i` as a sequence of at most `t` positions and returns how many. What is too long
 * loses the end of its response; where the prompt leaves less than half of `t` for the response, it
 * loses its beginning. */
int instruct_row(const struct instruct_set *set, int64_t i, int t, int32_t *tokens,
                 int32_t *targets);
/* Whether it loses the end of its response, the beginning of its prompt, or both. */
struct instruct_cut {
    bool response, prompt;
};
struct instruct_cut instruct_cut(const struct instruct_set *set, int64_t i, int t);
/* How many positions that will be. */
int instruct_length(const struct instruct_set *set, int64_t i, int t);

#endif

#include "data/text/instruct.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/text/records.h"

static const char task[] = "Below is an instruction that describes a task. ";
static const char task_with_input[] =
    "Below is an instruction that describes a task, paired with an input that provides further context. ";
static const char request[] = "Write a response that appropriately completes the request.\n\n";

bool instruct_recognise(const json_t *record)
{
    return json_object_get(record, "instruction") || json_object_get(record, "prompt") ||
           json_object_get(record, "messages");
}

/* Shapes of other programs, each with the jq program that converts a record. */
static const struct dialect {
    const char *name, *has[3], *without;
    json_type type; /* JSON type of has[0] */
    const char *program;
} dialects[] = {
    {"ShareGPT's shape",
     {"conversations"},
     "messages",
     JSON_ARRAY,
     "{messages: [.conversations[] | {role: ({human: \"user\", gpt: \"assistant\"}[.from] // .from), "
     "content: .value}]}"},
    {"Dolly's shape",
     {"response", "instruction"},
     "output",
     JSON_STRING,
     "{instruction, input: .context, output: .response}"},
    {"TRL's shape",
     {"prompt", "completion"},
     "messages",
     JSON_ARRAY,
     "{messages: (.prompt + .completion)}"},
    {"preference data",
     {"chosen", "rejected", "prompt"},
     "completion",
     JSON_STRING,
     "{prompt, completion: .chosen}"},
    {"preference data",
     {"chosen", "rejected"},
     "messages",
     JSON_ARRAY,
     "{messages: ((.prompt | arrays // []) + .chosen)}"},
    {"the shape question, answer",
     {"question", "answer"},
     "messages",
     JSON_STRING,
     "{instruction: .question, output: .answer}"},
};

static bool has_dialect_shape(const json_t *record, const struct dialect *d)
{
    const json_t *first = json_object_get(record, d->has[0]);
    return first && json_typeof(first) == d->type && !json_object_get(record, d->without) &&
           (!d->has[1] || json_object_get(record, d->has[1])) &&
           (!d->has[2] || json_object_get(record, d->has[2]));
}

bool instruct_explain_mixed(enum sotto_status st, const json_t *record, const char *text_key)
{
    const bool is_text = json_is_string(json_object_get(record, text_key));
    const bool is_example =
        json_object_get(record, "messages") ||
        (json_object_get(record, "instruction") && json_object_get(record, "output")) ||
        (json_object_get(record, "prompt") && json_object_get(record, "completion"));
    if (is_text == is_example)
        return false;
    fail(st,
         "%s; this record is %s (data.format=%s), and a file has records of one kind: jq -c "
         "'(arrays[] // .) | if has(\"%s\") then {prompt: \"\", completion: .[\"%s\"]} else . end' "
         "OLD >NEW.jsonl makes instructions of both, texts with an empty prompt",
         sotto_error(), is_text ? "a text" : "one of instructions", is_text ? "jsonl" : "instruct",
         text_key, text_key);
    return true;
}

bool instruct_explain(enum sotto_status st, const json_t *record)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++) {
        const struct dialect *d = &dialects[i];
        if (!has_dialect_shape(record, d))
            continue;
        fail(st,
             "%s; this is %s, which is not read: jq -c '(arrays[] // .) | %s' OLD >NEW.jsonl makes "
             "of it what is read: " INSTRUCT_SHAPES,
             sotto_error(), d->name, d->program);
        return true;
    }
    return false;
}

void instruct_free(struct instruct_example *example)
{
    text_free(&example->text);
    free(example->parts);
    *example = (struct instruct_example){0};
}

enum part_kind { PROMPT, ANSWER, ANSWER_MASKED };

/* Ends a part at the present end of the text. Neighbouring parts of the prompt become one part and
 * are tokenized as one text. */
static enum sotto_status end_part(struct instruct_example *e, enum part_kind part)
{
    const size_t size = e->text.size - e->parted;
    e->parted = e->text.size;
    if (part == PROMPT && size == 0)
        return SOTTO_OK;
    if (part == PROMPT && e->count > 0 && !e->parts[e->count - 1].ends) {
        e->parts[e->count - 1].size += size;
        return SOTTO_OK;
    }
    if (e->count == e->room) {
        int room = 2 * e->room + 4;
        struct instruct_part *more = realloc(e->parts, (size_t)room * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %d parts of an example", room);
        e->parts = more;
        e->room = room;
    }
    e->parts[e->count++] = (struct instruct_part){size, part == ANSWER, part != PROMPT};
    return SOTTO_OK;
}

static enum sotto_status add_member(struct text *out, const json_t *object, const char *key)
{
    const char *ignored;
    TRY(json_get_text(object, key, &ignored));
    const json_t *value = json_object_get(object, key);
    text_put(out, json_string_value(value), json_string_length(value));
    return SOTTO_OK;
}

static void add_prompt(struct text *out, const char *instruction, size_t instruction_size,
                       const char *input, size_t input_size)
{
    text_add(out, input_size ? task_with_input : task);
    text_add(out, request);
    text_add(out, "### Instruction:\n");
    text_put(out, instruction, instruction_size);
    if (input_size) {
        text_add(out, "\n\n### Input:\n");
        text_put(out, input, input_size);
    }
    text_add(out, "\n\n### Response:\n");
}

void instruct_prompt(struct text *out, const char *instruction, const char *input)
{
    add_prompt(out, instruction, strlen(instruction), input, input ? strlen(input) : 0);
}

static enum sotto_status read_alpaca(struct instruct_example *e, const json_t *record)
{
    const char *instruction, *input = NULL;
    TRY(json_get_text(record, "instruction", &instruction));
    if (json_object_get(record, "input") && !json_is_null(json_object_get(record, "input")))
        TRY(json_get_text(record, "input", &input));
    add_prompt(&e->text, instruction, json_string_length(json_object_get(record, "instruction")),
               input, input ? json_string_length(json_object_get(record, "input")) : 0);
    TRY(end_part(e, PROMPT));
    TRY(add_member(&e->text, record, "output"));
    return end_part(e, ANSWER);
}

/* Reads "weight" of a message of the assistant: 0 masks the message. */
static enum sotto_status weigh_message(const json_t *message, enum part_kind *part)
{
    const json_t *weight = json_object_get(message, "weight");
    *part = ANSWER;
    if (!weight || json_is_null(weight))
        return SOTTO_OK;
    const double w = json_is_number(weight) ? json_number_value(weight) : -1;
    if (w != 0 && w != 1)
        return json_is_number(weight)
                   ? fail(SOTTO_EFORMAT,
                          "\"weight\" must be 0 (not learned) or 1 (learned), got %g", w)
                   : fail(SOTTO_EFORMAT,
                          "\"weight\" must be 0 (not learned) or 1 (learned), got %s",
                          json_kind(weight));
    *part = w == 0 ? ANSWER_MASKED : ANSWER;
    return SOTTO_OK;
}

/* Adds a message's content; refuses a list of parts, such as pictures. */
static enum sotto_status add_content(struct text *out, const json_t *message)
{
    if (json_is_array(json_object_get(message, "content")))
        return fail(
            SOTTO_EFORMAT,
            "\"content\" must be a string, got a list of parts, of which jq -c '(arrays[] // "
            ".) | .messages[].content |= if type == \"array\" then map(.text // \"\") | add "
            "else . end' OLD >NEW.jsonl makes one text");
    return add_member(out, message, "content");
}

static enum sotto_status read_message(struct instruct_example *e, const json_t *message, size_t i)
{
    const char *role;
    TRY(json_get_text(message, "role", &role));
    if (strcmp(role, "system") == 0) {
        TRY(add_content(&e->text, message));
        text_add(&e->text, "\n\n");
    } else if (strcmp(role, "user") == 0) {
        if (i == 0) {
            text_add(&e->text, task);
            text_add(&e->text, request);
        }
        text_add(&e->text, "### Instruction:\n");
        TRY(add_content(&e->text, message));
        text_add(&e->text, "\n\n");
    } else if (strcmp(role, "assistant") == 0) {
        enum part_kind part;
        TRY(weigh_message(message, &part));
        text_add(&e->text, "### Response:\n");
        TRY(end_part(e, PROMPT));
        TRY(add_content(&e->text, message));
        return end_part(e, part);
    } else {
        return fail(SOTTO_EFORMAT, "\"role\" is \"%.40s\", want system, user or assistant", role);
    }
    return end_part(e, PROMPT);
}

static enum sotto_status read_messages(struct instruct_example *e, const json_t *record)
{
    json_t *messages, *message;
    size_t i;
    bool answered = false;
    TRY(json_get_array(record, "messages", &messages));
    json_array_foreach(messages, i, message)
    {
        enum sotto_status st = read_message(e, message, i);
        TRY(fail_in(st, "\"messages\"[%zu]: ", i));
    }
    for (int k = 0; k < e->count; k++)
        answered |= e->parts[k].ends;
    if (!answered)
        return fail(SOTTO_EFORMAT, "\"messages\" has none of role \"assistant\"");
    return SOTTO_OK;
}

static enum sotto_status read_completion(struct instruct_example *e, const json_t *record)
{
    TRY(add_member(&e->text, record, "prompt"));
    TRY(end_part(e, PROMPT));
    TRY(add_member(&e->text, record, "completion"));
    return end_part(e, ANSWER);
}

enum sotto_status instruct_read(struct instruct_example *example, const json_t *record)
{
    enum sotto_status st;
    text_clear(&example->text);
    example->count = 0;
    example->parted = 0;
    if (!json_is_object(record))
        return fail(SOTTO_EFORMAT, "want an object, got %s", json_kind(record));
    if (json_object_get(record, "messages"))
        st = read_messages(example, record);
    else if (json_object_get(record, "instruction"))
        st = read_alpaca(example, record);
    else if (json_object_get(record, "prompt"))
        st = read_completion(example, record);
    else
        st = fail(SOTTO_EFORMAT, "want a member \"instruction\", \"prompt\" or \"messages\"");
    if (st != SOTTO_OK && !instruct_explain(st, record) && !instruct_recognise(record))
        instruct_explain_mixed(st, record, "text");
    return st == SOTTO_OK ? text_status(&example->text) : st;
}

/* Adds the token that ends a turn, unless the part's text ends with that token already, perhaps
 * with a line break after it, as a text made by a chat template does. */
static enum sotto_status add_turn_end(const struct tokenizer *tokenizer, const char *text,
                                      size_t size, struct token_list *ids)
{
    const int end = tokenizer_turn_end(tokenizer);
    char *token;
    size_t length;
    if (end < 0)
        return SOTTO_OK;
    TRY(tokenizer_decode(tokenizer, &end, 1, &token, &length));
    while (size > 0 && memchr(" \t\r\n", text[size - 1], 4))
        size--;
    const bool there = size >= length && memcmp(text + size - length, token, length) == 0;
    free(token);
    return there ? SOTTO_OK : token_list_add(ids, end);
}

/* Appends the example's ids, masked ids as complements; appends nothing if no id would be a target.
 */
static enum sotto_status encode_example(const struct instruct_example *e,
                                        const struct tokenizer *tokenizer, struct token_list *ids)
{
    const size_t first = ids->count;
    const char *text = e->text.data;
    bool learns = false;
    for (int i = 0; i < e->count; i++) {
        size_t from = ids->count;
        if (i == 0) /* the beginning of a text belongs to the prompt */
            TRY(tokenizer_encode_prompt(tokenizer, "", 0, ids));
        for (; from < ids->count; from++)
            ids->data[from] = ~ids->data[from];
        TRY(tokenizer_encode(tokenizer, text, e->parts[i].size, ids));
        if (e->parts[i].ends)
            TRY(add_turn_end(tokenizer, text, e->parts[i].size, ids));
        text += e->parts[i].size;
        for (size_t k = from; k < ids->count; k++) {
            if (!e->parts[i].learned)
                ids->data[k] = ~ids->data[k];
            else
                learns |= k > first;
        }
    }
    if (!learns)
        ids->count = first;
    return SOTTO_OK;
}

static enum sotto_status add_example_start(struct instruct_set *set, int64_t *room, size_t at)
{
    if (set->count == *room) {
        *room = 2 * *room + 256;
        int64_t *more = realloc(set->start, (size_t)(*room + 1) * sizeof *more);
        if (!more)
            return fail(SOTTO_ENOMEM, "no memory for %lld examples", (long long)*room);
        set->start = more;
    }
    set->start[set->count++] = (int64_t)at;
    return SOTTO_OK;
}

enum sotto_status instruct_open(struct instruct_set *set, const char *text, size_t size,
                                const char *name, const struct tokenizer *tokenizer)
{
    *set = (struct instruct_set){0};
    struct instruct_example example = {0};
    struct token_list ids = {0};
    struct records records;
    json_t *record = NULL;
    int64_t room = 0, empty = 0;
    enum sotto_status st;
    records_begin(&records, text, size, name);
    for (;;) {
        TRY_DONE(records_next(&records, &record));
        if (!record)
            break;
        st = instruct_read(&example, record);
        TRY_DONE(fail_in(st, "%s:%lld: ", name, (long long)records.begins));
        json_decref(record);
        record = NULL;
        size_t from = ids.count;
        TRY_DONE(encode_example(&example, tokenizer, &ids));
        if (ids.count == from)
            empty++;
        else
            TRY_DONE(add_example_start(set, &room, from));
    }
    if (set->count == 0) {
        st = empty ? fail(SOTTO_EFORMAT, "%s: none of %lld examples has anything to learn", name,
                          (long long)empty)
                   : fail(SOTTO_EFORMAT, "%s has no examples", name);
        goto done;
    }
    if (empty)
        log_warn("%s: %lld of %lld examples have nothing to learn (no response, or \"weight\": 0) "
                 "and are left out",
                 name, (long long)empty, (long long)(empty + set->count));
    set->start[set->count] = (int64_t)ids.count;
    set->ids = ids.data;
    ids.data = NULL;
done:
    json_decref(record);
    instruct_free(&example);
    free(ids.data);
    if (st != SOTTO_OK)
        instruct_close(set);
    return st;
}

void instruct_close(struct instruct_set *set)
{
    free(set->ids);
    free(set->start);
    *set = (struct instruct_set){0};
}

int instruct_length(const struct instruct_set *set, int64_t i, int t)
{
    int64_t positions = set->start[i + 1] - set->start[i] - 1;
    return positions < t ? (int)positions : t;
}

/* Returns the number of tokens that are cut off the prompt. */
static int64_t skipped_prompt(const struct instruct_set *set, int64_t i, int t)
{
    const int32_t *ids = set->ids + set->start[i];
    int64_t count = set->start[i + 1] - set->start[i], prompt = 0, keep = t / 2 > 1 ? t / 2 : 1;
    if (count <= t + 1)
        return 0;
    while (prompt < count && ids[prompt] < 0)
        prompt++;
    if (keep > count - prompt)
        keep = count - prompt;
    return prompt + keep > t + 1 ? prompt + keep - (t + 1) : 0;
}

struct instruct_cut instruct_cut(const struct instruct_set *set, int64_t i, int t)
{
    const int64_t count = set->start[i + 1] - set->start[i], skip = skipped_prompt(set, i, t);
    return (struct instruct_cut){count - skip > t + 1, skip > 0};
}

int instruct_row(const struct instruct_set *set, int64_t i, int t, int32_t *tokens,
                 int32_t *targets)
{
    assert(i >= 0 && i < set->count && t > 0);
    const int32_t *ids = set->ids + set->start[i];
    const int64_t skip = skipped_prompt(set, i, t);
    int length = instruct_length(set, i, t);
    for (int k = 0; k < length; k++) {
        int32_t now = ids[skip + k], next = ids[skip + k + 1];
        tokens[k] = now < 0 ? ~now : now;
        targets[k] = next < 0 ? INSTRUCT_MASKED : next;
    }
    return length;
}

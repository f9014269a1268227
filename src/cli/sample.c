/* sotto sample */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/text/instruct.h"
#include "hf/generate.h"
#include "hf/loaded_model.h"

struct sample_config {
    char model[OPTION_ROOM], tokenizer[OPTION_ROOM], device[OPTION_ROOM];
    char prompt[OPTION_LONG_ROOM], instruction[OPTION_LONG_ROOM];
    int tokens, count, top_k, threads;
    double temperature, top_p;
    int64_t seed;
    bool stop_at_end;
    int activations; /* enum dtype */
};

static const char *const activation_names[] = {"fp32", "bf16", NULL}; /* as enum dtype */

#define S struct sample_config
static const struct option table[] = {
    OPTION_TEXT(S, model, "run", "folder of a run or of any Hugging Face model"),
    OPTION_TEXT(S, tokenizer, "", "file or folder; empty: the model's own"),
    OPTION_TEXT(
        S, prompt, "",
        "text to continue; @FILE: the contents of a file; -: standard input; empty: the beginning "
        "of a document"),
    OPTION_TEXT(S, instruction, "",
                "instruction to answer, in the template of instruction data: for models that were "
                "trained on such data; @FILE and - as for prompt; only the answer is printed"),
    OPTION_INT(S, tokens, "200", 1, 1e9, "tokens to draw"),
    OPTION_INT(S, count, "1", 1, 1e6, "samples"),
    OPTION_REAL(S, temperature, "0.8", 0, 100, "0: always the most likely token"),
    OPTION_INT(S, top_k, "0", 0, 1e9, "draw from the k most likely tokens; 0: all"),
    OPTION_REAL(S, top_p, "0.95", 0.000001, 1, "draw from the smallest set with this probability"),
    OPTION_LONG(S, seed, "1", 0, 1e15, "sample i uses seed + i"),
    OPTION_BOOL(S, stop_at_end, "true",
                "stop at a token that ends a text: eos_token_id of generation_config.json, else of "
                "config.json, else the tokenizer's"),
    OPTION_ENUM(S, activations, "fp32", activation_names, "type of the data between layers"),
    OPTION_INT(S, threads, "0", 0, 1024, "cores to use; 0: all"),
    OPTION_TEXT(S, device, "cpu", DEVICE_HELP),
};
#undef S

static int sample_sections(void *config, struct option_section *out)
{
    out[0] = (struct option_section)OPTION_SECTION("", "options", table, config);
    return 1;
}

/* Prints what a token adds to the text of the token `before` (-1: none) at once; the terminal
 * assembles characters from bytes. */
static enum sotto_status print_token(const struct tokenizer *tokenizer, int32_t before,
                                     int32_t token)
{
    const int32_t both[] = {before, token};
    char *text, *context = NULL;
    size_t size, known = 0;
    if (before >= 0)
        TRY(tokenizer_decode(tokenizer, both, 1, &context, &known));
    free(context);
    TRY(tokenizer_decode(tokenizer, before < 0 ? both + 1 : both, before < 0 ? 1 : 2, &text,
                         &size));
    if (size > known)
        fwrite(text + known, 1, size - known, stdout);
    fflush(stdout);
    free(text);
    return SOTTO_OK;
}

/* Reads a text that the caller frees, of the option `name`: the value, or the contents of a file
 * without its last line break. */
static enum sotto_status read_given_text(const char *name, const char *value, char **out)
{
    const size_t limit = (size_t)1 << 30;
    const bool file = value[0] == '@' && value[1] != '@';
    if (!file && strcmp(value, "-") != 0) {
        value += *value == '@'; /* "@@" is for a text that begins with '@' */
        *out = strdup(value);
        return *out ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for the %s", name);
    }
    TRY(fail_in(file_read_text(file ? value + 1 : "-", limit, out), "%s: ", name));
    size_t size = strlen(*out);
    size -= size && (*out)[size - 1] == '\n';
    size -= size && (*out)[size - 1] == '\r';
    (*out)[size] = '\0';
    return SOTTO_OK;
}

/* Reads the text to continue, which the caller frees: the prompt, or the template with the
 * instruction. */
static enum sotto_status read_prompt(const struct sample_config *c, char **out)
{
    char *instruction;
    struct text text = {0};
    if (!*c->instruction)
        return read_given_text("prompt", c->prompt, out);
    if (*c->prompt)
        return fail(SOTTO_EINVAL, "prompt and instruction: one of them is answered, not both");
    TRY(read_given_text("instruction", c->instruction, &instruction));
    instruct_prompt(&text, instruction, NULL);
    free(instruction);
    *out = text.data;
    const enum sotto_status st = text_status(&text);
    if (st != SOTTO_OK)
        text_free(&text);
    return st;
}

static enum sotto_status one_sample(struct loaded_model *l, const struct sample_config *c,
                                    const char *text, int i)
{
    struct token_list prompt = {0};
    struct generator g;
    struct generate_config how = {c->temperature, c->top_k, c->top_p,
                                  (uint64_t)c->seed + (uint64_t)i, (enum dtype)c->activations};
    const int end = tokenizer_end(l->tokenizer);
    TRY(tokenizer_encode_prompt(l->tokenizer, text, strlen(text), &prompt));
    int32_t token = end, before = prompt.count ? prompt.data[prompt.count - 1] : -1;
    if (prompt.count == 0 && end < 0) {
        free(prompt.data);
        return fail(SOTTO_EINVAL,
                    "this tokenizer has no end-of-text token to start from: give a --prompt");
    }
    enum sotto_status st = generator_init(&g, &l->model, &l->dev, l->theta, &how);
    if (st == SOTTO_OK) {
        fputs(*c->instruction ? "" : text, stdout);
        if (prompt.count)
            st = generator_next(&g, prompt.data, prompt.count, &token);
        else
            st = generator_next(&g, &token, 1, &token);
        for (int n = 1; st == SOTTO_OK && !(c->stop_at_end && end_tokens_have(&l->ends, token));
             n++) {
            st = print_token(l->tokenizer, before, token);
            before = token;
            if (st != SOTTO_OK || n == c->tokens)
                break;
            st = generator_next(&g, &token, 1, &token);
        }
        fputc('\n', stdout);
        generator_free(&g);
    }
    free(prompt.data);
    return st;
}

static enum sotto_status run_sample(void *config, const char *const *words, int n_words)
{
    struct sample_config *c = config;
    if (n_words > 1)
        return fail(SOTTO_EINVAL, "one model at most, got '%s' and '%s'", words[0], words[1]);
    struct loaded_model l = {0};
    char *prompt;
    TRY(read_prompt(c, &prompt));
    enum sotto_status st = loaded_model_open(&l, n_words ? words[0] : c->model, c->tokenizer, 0,
                                             c->device, c->threads);
    const bool open = st == SOTTO_OK;
    if (open && !model_config_kind(&l.model.config)->sequences)
        st = fail(SOTTO_EINVAL, "%s holds a model of images: there is no text to draw from it",
                  n_words ? words[0] : c->model);
    else if (open && !l.tokenizer)
        st = fail(SOTTO_EINVAL, "the model has no tokenizer.json: set --tokenizer=FILE");
    for (int i = 0; i < c->count && st == SOTTO_OK; i++) {
        if (i)
            puts("---");
        st = one_sample(&l, c, prompt, i);
    }
    if (open)
        loaded_model_close(&l);
    free(prompt);
    return st;
}

const struct command command_sample = {
    .name = "sample",
    .summary = "draw text from a model",
    .usage = "[MODEL] [--key=value ...]",
    .example =
        "  sotto sample my-run --prompt=\"Once upon a time\" --temperature=0.8 --top_p=0.95\n"
        "  sotto sample my-run --prompt=@chapter.txt --tokens=400\n"
        "  head -c 2000 book.txt | sotto sample my-run --prompt=-",
    .sections = sample_sections,
    .run = run_sample,
};

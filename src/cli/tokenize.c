/* sotto tokenize train|encode|decode */
#include "cli/command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/text/token_files.h"
#include "data/tokenizer/tokenizer.h"

struct tokenize_config {
    char tokenizer[OPTION_ROOM], input[OPTION_LONG_ROOM], out[OPTION_ROOM], ids[OPTION_ROOM],
        end[OPTION_ROOM];
    int vocab, min_frequency;
    bool special;
};

#define S struct tokenize_config
static const struct option table[] = {
    OPTION_TEXT(S, tokenizer, "", "encode, decode: tokenizer.json, or a folder with a tokenizer"),
    OPTION_TEXT(S, input, "-", "file to read; train: files, comma separated; -: standard input"),
    OPTION_TEXT(S, out, "", "train: tokenizer.json to write; encode: token file to write"),
    OPTION_TEXT(S, ids, "", "encode: text file of ids to write; -: standard output"),
    OPTION_INT(S, vocab, "8192", 257, 1 << 22, "train: size of the vocabulary"),
    OPTION_INT(S, min_frequency, "2", 1, 1 << 30, "train: a pair seen less often is not merged"),
    OPTION_BOOL(S, special, "true",
                "encode: with the tokens that the tokenizer's post-processor puts around a text, "
                "such as <s>"),
    OPTION_TEXT(S, end, "<|endoftext|>", "train: the token that ends a document; empty: none"),
};
#undef S

static int tokenize_sections(void *config, struct option_section *out)
{
    out[0] = (struct option_section)OPTION_SECTION("", "options", table, config);
    return 1;
}

static const size_t file_limit = (size_t)1 << 36;

struct texts {
    char **text; /* owned texts */
    size_t *size, n;
};

static void close_texts(struct texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->text[i]);
    free(t->text);
    free(t->size);
}

/* Reads the files of a list with commas. */
static enum sotto_status read_texts(struct texts *t, const char *names)
{
    size_t room = 1;
    for (const char *p = names; *p; p++)
        room += *p == ',';
    t->text = calloc(room, sizeof *t->text);
    t->size = calloc(room, sizeof *t->size);
    char *list = strdup(names), *rest = NULL;
    enum sotto_status st = SOTTO_OK;
    if (!t->text || !t->size || !list)
        st = fail(SOTTO_ENOMEM, "no memory for the names of %zu files", room);
    for (char *path = list ? strtok_r(list, ",", &rest) : NULL; path && st == SOTTO_OK;
         path = strtok_r(NULL, ",", &rest)) {
        st = file_read(path, file_limit, &t->text[t->n], &t->size[t->n]);
        t->n += st == SOTTO_OK;
    }
    free(list);
    return st;
}

static enum sotto_status run_tokenizer_training(const struct tokenize_config *c)
{
    struct texts t = {0};
    struct tokenizer *tokenizer = NULL;
    enum sotto_status st = SOTTO_OK;
    if (!*c->out)
        return fail(SOTTO_EINVAL,
                    "tokenize train: set the file to write with --out=tokenizer.json");
    TRY_DONE(read_texts(&t, c->input));
    struct tokenizer_training how = {c->vocab, c->min_frequency, *c->end ? c->end : NULL};
    double begin = clock_now(&clock_real);
    TRY_DONE(tokenizer_train(&tokenizer, &how, (const char *const *)t.text, t.size, t.n));
    TRY_DONE(tokenizer_save(tokenizer, c->out));
    printf("train: %d tokens in %.2f s, written to %s\n", tokenizer_vocab_size(tokenizer),
           clock_now(&clock_real) - begin, c->out);
done:
    if (tokenizer)
        tokenizer_close(tokenizer);
    close_texts(&t);
    return st;
}

static enum sotto_status write_ids(const struct token_list *ids, FILE *out)
{
    for (size_t i = 0; i < ids->count; i++)
        fprintf(out, "%d%c", ids->data[i], (i + 1) % 32 && i + 1 < ids->count ? ' ' : '\n');
    return ferror(out) ? fail_errno(SOTTO_EIO, "cannot write the ids") : SOTTO_OK;
}

static enum sotto_status save_ids(const struct token_list *ids, const char *path)
{
    if (strcmp(path, "-") == 0)
        return write_ids(ids, stdout);
    struct file_draft draft;
    TRY(file_draft_open(&draft, path));
    enum sotto_status st = write_ids(ids, draft.stream);
    if (st == SOTTO_OK)
        return file_commit(&draft);
    file_abort(&draft);
    return st;
}

static enum sotto_status encode_input(const struct tokenize_config *c,
                                      const struct tokenizer *tokenizer)
{
    char *text;
    size_t size;
    struct token_list ids = {0};
    TRY(file_read(c->input, file_limit, &text, &size));
    double begin = clock_now(&clock_real);
    enum sotto_status st = c->special ? tokenizer_encode_special(tokenizer, text, size, &ids)
                                      : tokenizer_encode(tokenizer, text, size, &ids);
    double seconds = clock_now(&clock_real) - begin;
    const bool alone = !*c->out && !*c->ids; /* only the ids are printed */
    const char *ids_to = alone ? "-" : c->ids;
    FILE *summary = strcmp(ids_to, "-") == 0 ? stderr : stdout; /* no line among ids */
    if (st == SOTTO_OK && *ids_to)
        st = save_ids(&ids, ids_to);
    if (st == SOTTO_OK && *c->out)
        st = tokens_save(c->out, ids.data, (int64_t)ids.count, tokenizer_vocab_size(tokenizer));
    if (st == SOTTO_OK && !alone)
        fprintf(summary, "encode: %zu tokens in %.4f s (%.2f MB/s)\n", ids.count, seconds,
                seconds > 0 ? (double)size / 1e6 / seconds : 0);
    free(ids.data);
    free(text);
    return st;
}

static enum sotto_status parse_ids(const char *text, const char *path, struct token_list *ids)
{
    for (;;) {
        while (*text && strchr(" \t\r\n,", *text))
            text++;
        if (!*text)
            return SOTTO_OK;
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id > INT_MAX)
            return fail(SOTTO_EFORMAT, "%s: '%.20s' is not a token id", path, text);
        if (ids->count == ids->room) {
            size_t room = ids->room ? 2 * ids->room : 4096;
            int32_t *more = realloc(ids->data, room * sizeof *more);
            if (!more)
                return fail(SOTTO_ENOMEM, "no memory for %zu ids", room);
            ids->data = more;
            ids->room = room;
        }
        ids->data[ids->count++] = (int32_t)id;
        text = end;
    }
}

/* Reads ids as text, or from a token file (*.bin). */
static enum sotto_status read_ids(const char *path, struct token_list *ids)
{
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".bin") == 0) {
        struct tokens tokens;
        TRY(tokens_open(&tokens, path, false));
        ids->data = malloc((size_t)(tokens.count + 1) * sizeof *ids->data);
        ids->count = (size_t)tokens.count;
        enum sotto_status st = ids->data ? tokens_copy(&tokens, 0, tokens.count, ids->data)
                                         : fail(SOTTO_ENOMEM, "no memory for the ids of %s", path);
        tokens_close(&tokens);
        return st;
    }
    char *text;
    TRY(file_read_text(path, file_limit, &text));
    enum sotto_status st = parse_ids(text, path, ids);
    free(text);
    return st;
}

static enum sotto_status decode_input(const struct tokenize_config *c,
                                      const struct tokenizer *tokenizer)
{
    struct token_list ids = {0};
    char *text = NULL;
    size_t size = 0;
    enum sotto_status st = read_ids(c->input, &ids);
    if (st == SOTTO_OK)
        st = tokenizer_decode(tokenizer, ids.data, ids.count, &text, &size);
    if (st == SOTTO_OK && *c->out)
        st = file_write(c->out, text, size);
    else if (st == SOTTO_OK && fwrite(text, 1, size, stdout) != size)
        st = fail_errno(SOTTO_EIO, "cannot write the text");
    free(text);
    free(ids.data);
    return st;
}

static enum sotto_status run_tokenize(void *config, const char *const *words, int n_words)
{
    const struct tokenize_config *c = config;
    static const char *const verbs = "want one of: sotto tokenize train, encode, decode";
    const char *verb = n_words ? words[0] : "";
    if (!*verb)
        return fail(SOTTO_EINVAL, "%s", verbs);
    if (strcmp(verb, "train") != 0 && strcmp(verb, "encode") != 0 && strcmp(verb, "decode") != 0)
        return fail(SOTTO_EINVAL, "tokenize: unknown '%s': %s", verb, verbs);
    if (n_words > 1)
        return fail(SOTTO_EINVAL,
                    "tokenize %s: '%s' is a word too many: a file is named with --input=%s", verb,
                    words[1], words[1]);
    if (strcmp(verb, "train") == 0)
        return run_tokenizer_training(c);
    if (!*c->tokenizer)
        return fail(SOTTO_EINVAL, "tokenize %s: set --tokenizer=FILE or FOLDER", verb);
    struct tokenizer *tokenizer;
    TRY(tokenizer_open(&tokenizer, c->tokenizer));
    enum sotto_status st =
        strcmp(verb, "encode") == 0 ? encode_input(c, tokenizer) : decode_input(c, tokenizer);
    tokenizer_close(tokenizer);
    return st;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "train a tokenizer; turn text into tokens and back",
    .usage = "train|encode|decode [--key=value ...]",
    .example = "  sotto tokenize train --input=book.txt --vocab=8192 --out=tokenizer.json\n"
               "  sotto tokenize encode --tokenizer=tokenizer.json --input=book.txt \\\n"
               "      --out=book.bin\n"
               "  echo 15496 995 | sotto tokenize decode --tokenizer=gpt2-folder",
    .sections = tokenize_sections,
    .run = run_tokenize,
};

/* Instruction data: the prompt is masked, the response and the end token are learned, rows are cut
 * and padded. */
#include "base/log.h"
#include "data/text/instruct.h"
#include "data/fixture.h"

#define TASK                                                                                       \
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
#define TASK_INPUT                                                                                        \
    "Below is an instruction that describes a task, paired with an input that provides further context. " \
    "Write a response that appropriately completes the request.\n\n"

/* The example as text in which what is learned stands in braces and the end token is '~'. */
static void marked(const struct instruct_set *set, int64_t i, const struct tokenizer *tokenizer,
                   char *out)
{
    bool open = false;
    for (int64_t k = set->start[i]; k < set->start[i + 1]; k++) {
        int32_t id = set->ids[k];
        bool learned = id >= 0;
        char *text;
        size_t size;
        if (learned != open)
            *out++ = learned ? '{' : '}';
        open = learned;
        id = learned ? id : ~id;
        if (id == tokenizer_end(tokenizer)) {
            *out++ = '~';
            continue;
        }
        assert_int_equal(tokenizer_decode(tokenizer, &id, 1, &text, &size), SOTTO_OK);
        assert_int_equal(size, 1);
        *out++ = text[0];
        free(text);
    }
    if (open)
        *out++ = '}';
    *out = '\0';
}

static void examples_read_as_documented(void **state)
{
    (void)state;
    const struct {
        const char *json, *want;
    } cases[] = {
        {"{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}",
         TASK_INPUT "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n{3~}"},
        {"{\"instruction\": \"Hi\", \"input\": \"\", \"output\": \"Ho\"}",
         TASK "### Instruction:\nHi\n\n### Response:\n{Ho~}"},
        {"{\"instruction\": \"Hi\", \"input\": null, \"output\": \"\"}",
         TASK "### Instruction:\nHi\n\n### Response:\n{~}"},
        {"{\"prompt\": \"2+2=\", \"completion\": \"4\"}", "2+2={4~}"},
        {"{\"prompt\": \"\", \"completion\": \"abc\"}", "{abc~}"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
         "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}",
         TASK
         "### Instruction:\na\n\n### Response:\n{b~}### Instruction:\nc\n\n### Response:\n{d~}"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"Be nice.\"}, {\"role\": \"user\", \"content\": \"a\"},"
         "{\"role\": \"assistant\", \"content\": \"b\"}]}",
         "Be nice.\n\n### Instruction:\na\n\n### Response:\n{b~}"},
        /* what is not to be learned is read all the same, with its end */
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\","
         "\"weight\": 0}, {\"role\": \"user\", \"content\": \"c\", \"weight\": 0}, {\"role\": \"assistant\","
         "\"content\": \"d\", \"weight\": 1.0}]}",
         TASK "### Instruction:\na\n\n### Response:\nb~### Instruction:\nc\n\n### Response:\n{d~}"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}, {\"role\": \"assistant\", "
         "\"content\": \"d\", \"weight\": null}]}",
         "### Response:\nb~### Response:\n{d~}"},
        /* nor is an end doubled that the text has */
        {"{\"prompt\": \"a\", \"completion\": \"b<|endoftext|>\"}", "a{b~}"},
        {"{\"prompt\": \"a\", \"completion\": \"b<|endoftext|> \\n\"}", "a{b~ \n}"},
        {"{\"prompt\": \"a\", \"completion\": \"<|endoftext|>b\"}", "a{~b~}"},
    };
    struct tokenizer *tokenizer = byte_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct instruct_set set;
        char got[1024];
        if (instruct_open(&set, cases[i].json, strlen(cases[i].json), "x.json", tokenizer) !=
            SOTTO_OK)
            fail_with("%s", sotto_error());
        assert_int_equal(set.count, 1);
        marked(&set, 0, tokenizer, got);
        assert_string_equal(got, cases[i].want);
        instruct_close(&set);
    }
    struct text prompt = {0};
    instruct_prompt(&prompt, "Add.", "1 2");
    assert_memory_equal(prompt.data, cases[0].want, prompt.size);
    assert_int_equal(cases[0].want[prompt.size], '{');
    text_free(&prompt);
    tokenizer_close(tokenizer);
}

/* By hand: prompt p tokens 100, 101, ... masked, response 200, 201, ... learned. */
static struct instruct_set make_set(int prompt, int response)
{
    struct instruct_set set = {malloc(64 * sizeof(int32_t)), malloc(2 * sizeof(int64_t)), 1};
    assert_true(set.ids && set.start && prompt + response <= 64);
    for (int i = 0; i < prompt; i++)
        set.ids[i] = ~(100 + i);
    for (int i = 0; i < response; i++)
        set.ids[prompt + i] = 200 + i;
    set.start[0] = 0;
    set.start[1] = prompt + response;
    return set;
}

static void rows_are_cut(void **state)
{
    (void)state;
    const struct {
        int prompt, response, t;
        int length, first_token, last_token, first_target, n_targets;
        struct instruct_cut cut;
    } cases[] = {
        {3, 4, 16, 6, 100, 202, -100, 4, {0, 0}}, /* fits                                  */
        {3, 4, 6, 6, 100, 202, -100, 4, {0, 0}},  /* just                                  */
        {3, 8, 6, 6, 100, 202, -100, 4, {1, 0}},  /* the end of the response goes          */
        {10, 8, 6, 6, 106, 201, -100, 3, {1, 1}}, /* and of the prompt, half of t stays    */
        {10, 2, 6, 6, 105, 200, -100, 2, {0, 1}}, /* a short response stays whole          */
        {9, 1, 4, 4, 105, 108, -100, 1, {0, 1}},  {10, 8, 1, 1, 109, 109, 200, 1, {1, 1}},
        {0, 5, 16, 4, 200, 203, 201, 4, {0, 0}}, /* nothing predicts the first token */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t tokens[64], targets[64];
        struct instruct_set set = make_set(cases[i].prompt, cases[i].response);
        int length = instruct_row(&set, 0, cases[i].t, tokens, targets), n = 0;
        assert_int_equal(length, cases[i].length);
        assert_int_equal(length, instruct_length(&set, 0, cases[i].t));
        assert_int_equal(tokens[0], cases[i].first_token);
        assert_int_equal(tokens[length - 1], cases[i].last_token);
        assert_int_equal(targets[0], cases[i].first_target);
        for (int k = 0; k < length; k++) {
            n += targets[k] >= 0;
            assert_true(targets[k] >= 200 || targets[k] == -100);
            if (k + 1 < length && targets[k] >= 0)
                assert_int_equal(targets[k], tokens[k + 1]);
        }
        assert_int_equal(n, cases[i].n_targets);
        assert_int_equal(instruct_cut(&set, 0, cases[i].t).response, cases[i].cut.response);
        assert_int_equal(instruct_cut(&set, 0, cases[i].t).prompt, cases[i].cut.prompt);
        instruct_close(&set);
    }
}

static void batches_are_padded_to_their_longest(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = byte_tokenizer();
    struct data_config config = config_for(make_text(
        "pad.jsonl",
        "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"prompt\": \"d\", \"completion\": \"efghi\"}\n"));
    config.holdout = 0;
    struct loader *loader = open_loader(&config, DATA_TRAIN, tokenizer);
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "abcdefghi", 9, &ids), SOTTO_OK);
    const int32_t *b = ids.data, e = tokenizer_end(tokenizer), no = -100;
    const int32_t tokens[] = {b[0], b[1], b[2], e, e, e, b[3], b[4], b[5], b[6], b[7], b[8]};
    const int32_t targets[] = {no, b[2], e, no, no, no, b[4], b[5], b[6], b[7], b[8], e};
    struct batch batch;
    assert_int_equal(batch_init(&batch, 2, 32), SOTTO_OK);
    assert_int_equal(loader_batches(loader, 2, 32), 1);
    assert_int_equal(loader_fill_in_order(loader, 0, 2, 32, &batch), SOTTO_OK);
    assert_int_equal(batch.rows, 2);
    assert_int_equal(batch.t, 6);
    assert_int_equal(batch.n_targets, 8);
    assert_memory_equal(batch.tokens, tokens, sizeof tokens);
    assert_memory_equal(batch.targets, targets, sizeof targets);
    assert_int_equal(loader_tokens(loader), 4 + 7);
    assert_int_equal(loader->vocab, 257);
    batch_free(&batch);
    free(ids.data);
    loader_close(loader);
    tokenizer_close(tokenizer);
}

/* Example i is prompt "p", completion of i + 1 letters: its length says which it is. */
static struct data_config numbered(int count)
{
    struct text text = {0};
    text_add(&text, "[");
    for (int i = 0; i < count; i++) {
        text_add(&text, i ? ",\n {\"prompt\": \"p\", \"completion\": \""
                          : "\n {\"prompt\": \"p\", \"completion\": \"");
        for (int k = 0; k <= i; k++)
            text_char(&text, 'x');
        text_add(&text, "\"}");
    }
    text_add(&text, "\n]\n");
    struct data_config config = config_for(make_file("numbered.json", text.data, text.size));
    text_free(&text);
    return config;
}

static int which(const struct batch *batch, int row)
{
    int n = 0;
    for (int k = 0; k < batch->t; k++)
        n += batch->targets[row * batch->t + k] >= 0;
    return n - 2; /* its letters and the end token */
}

static void each_example_once_an_epoch(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = byte_tokenizer();
    struct data_config config = numbered(20);
    config.holdout = 0.25;
    struct loader *train = open_loader(&config, DATA_TRAIN, tokenizer);
    struct loader *valid;
    assert_int_equal(loader_open_rest(&valid, train), SOTTO_OK);
    struct batch batch;
    int seen[20] = {0};
    assert_int_equal(batch_init(&batch, 5, 64), SOTTO_OK);
    for (int64_t index = 0; index < 3; index++)
        for (int rank = 0; rank < 3; rank++) { /* 3 * 3 * 5 rows: three epochs of 15 */
            assert_int_equal(
                loader_fill(train, (struct loader_place){1, index, rank, 3}, 5, 64, &batch),
                SOTTO_OK);
            for (int row = 0; row < 5; row++)
                seen[which(&batch, row)]++;
        }
    for (int i = 0; i < 20; i++)
        assert_int_equal(seen[i], i < 15 ? 3 : 0);
    assert_int_equal(loader_batches(valid, 2, 64), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(loader_fill_in_order(valid, i, 2, 64, &batch), SOTTO_OK);
        assert_int_equal(batch.rows, i < 2 ? 2 : 1);
        assert_int_equal(which(&batch, 0), 15 + 2 * i);
    }
    batch_free(&batch);
    loader_close(valid);
    loader_close(train);
    tokenizer_close(tokenizer);
}

static void keep_line(enum log_level level, const char *line, void *arg)
{
    if (level == LOG_WARN)
        snprintf(arg, 512, "%s", line);
}

/* What is cut is counted over the split, and said. */
static void cuts_are_counted(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = byte_tokenizer();
    struct data_config config = numbered(20); /* a prompt, i + 1 letters and the end token */
    char line[512] = "";
    config.holdout = 0.25;
    struct loader *loader = open_loader(&config, DATA_TRAIN, tokenizer);
    struct loader_cuts all = loader_cuts(loader, 64);
    assert_int_equal(all.examples, 15);
    assert_int_equal(all.longer, 0);
    log_set(keep_line, line);
    loader_warn_cuts(loader, 64, 64);
    assert_string_equal(line, "");
    int64_t before = 0;
    for (int t = 20; t > 1; t--) {
        struct loader_cuts c = loader_cuts(loader, t);
        int64_t longer = 0;
        for (int i = 0; i < 15; i++) { /* as the rows are, without a limit */
            struct batch batch;
            assert_int_equal(batch_init(&batch, 1, 64), SOTTO_OK);
            assert_int_equal(loader_fill_in_order(loader, i, 1, 64, &batch), SOTTO_OK);
            longer += batch.t > t;
            batch_free(&batch);
        }
        assert_int_equal(c.longer, longer);
        assert_true(c.longer >= before && c.response + c.prompt >= c.longer);
        before = c.longer;
    }
    assert_true(before > 0);
    loader_warn_cuts(loader, 2, 16);
    log_set(NULL, NULL);
    assert_non_null(strstr(line, "of 15 examples are longer than 2 tokens"));
    assert_non_null(strstr(line, "; seq = 16 would hold all of them whole (the model has 16 pos"));
    for (int t = 15; t < 17; t++)
        assert_int_equal(loader_cuts(loader, t).longer, 16 - t);
    loader_close(loader);
    config = numbered(40);
    config.holdout = 0;
    loader = open_loader(&config, DATA_TRAIN, tokenizer);
    log_set(keep_line, line);
    loader_warn_cuts(loader, 2, 128);
    log_set(NULL, NULL);
    assert_int_equal(loader_cuts(loader, 39).longer, 2);
    assert_non_null(strstr(line, "; seq = 39 would hold 95 % of the examples whole, seq = 41 all"));
    loader_close(loader);
    tokenizer_close(tokenizer);
}

static void errors_say_where(void **state)
{
    (void)state;
    const struct {
        const char *json, *message;
    } cases[] = {
        {"{\"instruction\": \"a\"}", "x.json:1: \"output\" must be a string, got nothing"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"},\n\n{\"prompt\": \"a\", \"completion\": 3}]",
         "x.json:3: \"completion\" must be a string, got integer"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"instruction\": [], \"output\": \"\"}\n",
         "x.json:2: \"instruction\" must be a string, got array"},
        {"{\"instruction\": \"a\", \"input\": 1, \"output\": \"\"}",
         "x.json:1: \"input\" must be a string"},
        {"{\"messages\": 3}", "x.json:1: \"messages\" must be an array, got integer"},
        {"{\"messages\": []}", "x.json:1: \"messages\" has none of role \"assistant\""},
        {"{\"messages\": [3]}",
         "x.json:1: \"messages\"[0]: want an object with \"role\", got integer"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"robot\"}]}",
         "\"messages\"[1]: \"role\" is \"robot\""},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null}]}",
         "\"messages\"[0]: \"content\" must be a string, got null"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}",
         "\"messages\"[0]: \"weight\" must be 0 (not learned) or 1 (learned), got 0.5"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": false}]}",
         "\"weight\" must be 0 (not learned) or 1 (learned), got boolean"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}",
         "x.json: none of 1 examples has anything to learn"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]}",
         "\"messages\"[0]: \"content\" must be a string, got a list of parts, of which jq -c"},
        {"{\"instruction\": \"a\", \"context\": \"\", \"response\": \"b\"}",
         "x.json:1: \"output\" must be a string, got nothing; this is Dolly's shape, which is not read"},
        {"{\"prompt\": [{\"role\": \"user\"}], \"completion\": []}",
         "\"prompt\" must be a string, got array; this is TRL's shape"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
         "got nothing; this is preference data, which "
         "is not read: jq -c '(arrays[] // .) | {prompt, completion: .chosen}' OLD >NEW.jsonl"},
        {"{\"prompt\": [], \"chosen\": [], \"rejected\": []}",
         "jq -c '(arrays[] // .) | {messages: ((.prompt | arrays // []) + .chosen)}' OLD"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"text\": \"a\"}",
         "x.json:2: want a member \"instruction\", \"prompt\" or \"messages\"; this record is a text "
         "(data.format=jsonl), and a file has records of one kind: jq -c '"},
        {"{\"text\": 3}", "x.json:1: want a member \"instruction\", \"prompt\" or \"messages\""},
        {"\n\n 17", "x.json:3: want an object, got integer"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a",
         "x.json:2: not valid JSON"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"}\n",
         "x.json:2: not valid JSON: the array does not end"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"} 3]", "not valid JSON: ',' or ']' expected"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"},\n]",
         "x.json:2: not valid JSON: a value is missing"},
        {"[{\"prompt\": \"a\", \"completion\": \"b\"}]\n\n[",
         "x.json:3: not valid JSON: something follows"},
        {"{\n\"prompt\": \"a\",\n\"completion\" \"b\"}", "x.json:3: not valid JSON"},
        {"{\"prompt\": \"\xff\", \"completion\": \"\"}", "x.json:1: not valid JSON"},
        {"[]", "x.json has no examples"},
        {"  \n", "x.json has no examples"},
    };
    struct tokenizer *tokenizer = byte_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct instruct_set set;
        assert_error(instruct_open(&set, cases[i].json, strlen(cases[i].json), "x.json", tokenizer),
                     SOTTO_EFORMAT, cases[i].message);
        assert_null(set.ids);
    }
    tokenizer_close(tokenizer);
}

/* A conversation of many messages takes as long as its text: each part begins where the last one
 * ended. */
static void long_conversations(void **state)
{
    (void)state;
    enum { N = 400000 };
    struct instruct_example example = {0};
    json_t *ask = json_pack("{s:s, s:s}", "role", "user", "content", "a");
    json_t *answer = json_pack("{s:s, s:s}", "role", "assistant", "content", "bc");
    json_t *messages = json_array();
    for (int i = 0; i < N; i++)
        json_array_append(messages, i % 2 ? answer : ask);
    json_t *record = json_pack("{s:o}", "messages", messages);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(instruct_read(&example, record), SOTTO_OK);
        assert_int_equal(example.count, N);
        size_t sum = 0;
        for (int i = 0; i < N; i++) {
            assert_int_equal(example.parts[i].learned, i % 2);
            assert_true(i % 2 == 0 || example.parts[i].size == 2);
            sum += example.parts[i].size;
        }
        assert_int_equal(sum, example.text.size);
    }
    instruct_free(&example);
    json_decref(record);
    json_decref(ask);
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_read_as_documented),
        cmocka_unit_test(rows_are_cut),
        cmocka_unit_test(batches_are_padded_to_their_longest),
        cmocka_unit_test(each_example_once_an_epoch),
        cmocka_unit_test(cuts_are_counted),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(long_conversations),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

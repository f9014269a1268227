/* What a tokenizer's post-processor puts around prompts, documents and examples. */
#include "data/fixture.h"

#include "base/log.h"
#include "data/text/instruct.h"

#define SPECIAL(name, ids) "\"" name "\": {\"id\": \"" name "\", \"ids\": " ids ", \"tokens\": []}"
#define TOKEN(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define A "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define TEMPLATE(single)                                                                           \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single "], \"pair\": [],"                   \
    "\"special_tokens\": {" SPECIAL("<s>", "[257]") "," SPECIAL("two", "[258, 33]") "," SPECIAL(   \
        "<|endoftext|>", "[256]") "," SPECIAL("far", "[1000]") "}}"
#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false}"

/* The tokenizer of bytes, two more special tokens, and this post-processor. */
static enum sotto_status with(struct tokenizer **out, const char *post_processor)
{
    static const char *const names[] = {"<|endoftext|>", "<s>", "</s>"};
    char path[FILE_PATH_ROOM];
    struct tokenizer *bytes = byte_tokenizer();
    json_t *root, *post;
    assert_int_equal(file_join(path, scratch, "bytes.json"), SOTTO_OK);
    assert_int_equal(tokenizer_save(bytes, path), SOTTO_OK);
    tokenizer_close(bytes);
    assert_int_equal(json_open(&root, path, 1 << 20), SOTTO_OK);
    assert_int_equal(json_parse(&post, post_processor, strlen(post_processor), "post"), SOTTO_OK);
    json_object_set_new(root, "post_processor", post);
    json_t *added = json_array();
    for (int i = 0; i < 3; i++)
        json_array_append_new(
            added, json_pack("{s:i, s:s, s:b}", "id", 256 + i, "content", names[i], "special", 1));
    json_object_set_new(root, "added_tokens", added);
    char *text = json_dumps(root, 0);
    enum sotto_status st = tokenizer_parse(out, text, strlen(text), "around");
    free(text);
    json_decref(root);
    return st;
}

typedef enum sotto_status encoder(const struct tokenizer *, const char *, size_t,
                                  struct token_list *);

/* Ids of bytes as themselves, <|endoftext|> as '~', <s> as '<', </s> as '>'. */
static void expect(const struct tokenizer *t, encoder *encode, const char *text, const char *want)
{
    struct token_list ids = {0};
    char got[64] = "";
    assert_int_equal(encode(t, text, strlen(text), &ids), SOTTO_OK);
    for (size_t i = 0; i < ids.count; i++) {
        char *bytes;
        size_t size;
        assert_int_equal(tokenizer_decode(t, &ids.data[i], 1, &bytes, &size), SOTTO_OK);
        got[i] = ids.data[i] < 256 ? *bytes : "~<>"[ids.data[i] - 256];
        free(bytes);
    }
    assert_string_equal(got, want);
    free(ids.data);
}

static void templates(void **state)
{
    (void)state;
    static const struct {
        const char *post, *prompt, *special, *document;
        int begin;
    } cases[] = {
        {"null", "ab", "ab", "ab~", -1},
        {BYTES, "ab", "ab", "ab~", -1},
        {TEMPLATE(A), "ab", "ab", "ab~", -1},
        {TEMPLATE(TOKEN("<s>") "," A), "<ab", "<ab", "<ab~", 257},
        {TEMPLATE(A "," TOKEN("<|endoftext|>")), "ab", "ab~", "ab~", -1},
        {TEMPLATE(TOKEN("<s>") "," A "," TOKEN("two")), "<ab", "<ab>B", "<ab>B~", 257},
        {"{\"type\": \"Sequence\", \"processors\": [" BYTES "," TEMPLATE(TOKEN("<s>") "," A) "]}",
         "<ab", "<ab", "<ab~", 257},
        {"{\"type\": \"RobertaProcessing\", \"cls\": [\"<s>\", 257], \"sep\": [\"<s>\", 257]}",
         "<ab", "<ab<", "<ab<~", 257},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        if (with(&t, cases[i].post) != SOTTO_OK)
            fail_with("case %zu: %s", i, sotto_error());
        expect(t, tokenizer_encode, "ab", "ab");
        expect(t, tokenizer_encode_prompt, "ab", cases[i].prompt);
        expect(t, tokenizer_encode_special, "ab", cases[i].special);
        expect(t, tokenizer_encode_document, "ab", cases[i].document);
        assert_int_equal(tokenizer_begin(t), cases[i].begin);
        /* it goes out as it came */
        struct tokenizer *again;
        char path[FILE_PATH_ROOM];
        assert_int_equal(file_join(path, scratch, "again.json"), SOTTO_OK);
        assert_int_equal(tokenizer_save(t, path), SOTTO_OK);
        assert_int_equal(tokenizer_open(&again, path), SOTTO_OK);
        expect(again, tokenizer_encode_document, "ab", cases[i].document);
        assert_true(tokenizer_same(t, again));
        tokenizer_close(again);
        tokenizer_close(t);
    }
}

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *post, *message;
    } cases[] = {
        {TEMPLATE(TOKEN("<s>")), "must have the sequence A once"},
        {TEMPLATE(A "," A), "must have the sequence A once"},
        {TEMPLATE("{\"Sequence\": {\"id\": \"B\"}}"), "must have the sequence A once"},
        {TEMPLATE(TOKEN("<pad>") "," A), "the template has \"<pad>\", special_tokens has not"},
        {TEMPLATE(TOKEN("far") "," A), "id 1000 is beyond the vocabulary of 259"},
        {TEMPLATE("3"), "want an object with \"id\""},
        {"{\"type\": \"TemplateProcessing\"}", "\"single\" must be an array"},
        {"{\"type\": \"TemplateProcessing\", \"single\": [" TOKEN("x") "], \"special_tokens\":"
                                                                       "{\"x\": {\"ids\": [-1]}}}",
         "\"x\" must have ids from 0"},
        {"{\"type\": \"TemplateProcessing\", \"single\": [" TOKEN(
             "x") "], \"special_tokens\":"
                  "{\"x\": {\"ids\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}}",
         "more than 16 tokens"},
        {"{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(TOKEN("<s>") "," A) "," TEMPLATE(
             A "," TOKEN("<s>")) "]}",
         "two templates around one another"},
        {"{\"type\": \"BertProcessing\"}", "\"cls\" must be [\"text\", id]"},
        {"{\"type\": \"Other\"}", "\"Other\" is not supported, only ByteLevel, TemplateProcessing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t;
        assert_error(with(&t, cases[i].post), SOTTO_EFORMAT, cases[i].message);
        assert_null(t);
    }
}

/* Documents of a text file each begin so; the cache knows one tokenizer from the other. */
static void documents_of_a_source(void **state)
{
    (void)state;
    static const int32_t want[] = {257, 64, 256, 257, 65, 256}; /* <s> a end <s> b end */
    struct data_config config = config_for(make_text("d.txt", "a\n<|endoftext|>\nb"));
    config.holdout = 0;
    snprintf(config.cache, sizeof config.cache, "%s/cache", scratch);
    for (int k = 0; k < 2; k++) {
        struct tokenizer *t;
        struct batch batch;
        assert_int_equal(with(&t, k ? TEMPLATE(TOKEN("<s>") "," A) : "null"), SOTTO_OK);
        struct loader *loader = open_loader(&config, DATA_TRAIN, t);
        assert_int_equal(loader_tokens(loader), k ? 6 : 4);
        if (k) {
            assert_int_equal(batch_init(&batch, 1, 5), SOTTO_OK);
            assert_int_equal(loader_fill_in_order(loader, 0, 1, 5, &batch), SOTTO_OK);
            assert_memory_equal(batch.tokens, want, 5 * sizeof *want);
            assert_memory_equal(batch.targets, want + 1, 5 * sizeof *want);
            batch_free(&batch);
        }
        loader_close(loader);
        tokenizer_close(t);
    }
}

/* An example begins so once, and what begins it is not learned. */
static void examples(void **state)
{
    (void)state;
    static const char *const json[] = {"{\"prompt\": \"a\", \"completion\": \"b\"}",
                                       "{\"prompt\": \"\", \"completion\": \"ab\"}"};
    static const int32_t tokens[] = {257, 64, 65}; /* <s> a b */
    static const int32_t targets[2][3] = {{INSTRUCT_MASKED, 65, 256}, {64, 65, 256}};
    for (int k = 0; k < 2; k++) {
        struct tokenizer *t;
        struct instruct_set set;
        int32_t x[8], y[8];
        assert_int_equal(with(&t, TEMPLATE(TOKEN("<s>") "," A)), SOTTO_OK);
        assert_int_equal(instruct_open(&set, json[k], strlen(json[k]), "x.json", t), SOTTO_OK);
        assert_int_equal(instruct_row(&set, 0, 8, x, y), 3);
        assert_memory_equal(x, tokens, sizeof tokens);
        assert_memory_equal(y, targets[k], sizeof targets[k]);
        instruct_close(&set);
        tokenizer_close(t);
    }
}

static void other_tokenizers_are_told_apart(void **state)
{
    (void)state;
    const struct tokenizer_training how[] = {{270, 1, "<|endoftext|>"}, {270, 1, "</s>"}};
    const char *texts[] = {"abab cdcd efef", "xyxy cdcd zwzw"};
    struct tokenizer *t[3], *none;
    for (int i = 0; i < 3; i++) { /* other merges, another special token */
        const char *text = texts[i % 2];
        size_t size = strlen(text);
        assert_int_equal(tokenizer_train(&t[i], &how[i / 2], &text, &size, 1), SOTTO_OK);
    }
    assert_int_equal(with(&none, "null"), SOTTO_OK);
    for (int i = 0; i < 3; i++) {
        assert_false(tokenizer_same(t[i], none));
        for (int k = 0; k < 3; k++)
            assert_int_equal(tokenizer_same(t[i], t[k]), i == k);
    }
    for (int i = 0; i < 3; i++)
        tokenizer_close(t[i]);
    tokenizer_close(none);
}

static void count_warnings(enum log_level level, const char *line, void *arg)
{
    *(int *)arg += level == LOG_WARN && strstr(line, "nothing parts the 2 documents");
}

/* Of several special tokens with unusual names, tokenizer_config.json says which one ends a text.
 */
static void the_end_named_beside(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int end;
    } cases[] = {
        {NULL, -1},
        {"{\"eos_token\": \"<fin>\", \"model_max_length\": 1000000000000000019884624838656}", 257},
        {"{\"eos_token\": {\"content\": \"<debut>\", \"lstrip\": false}}", 256},
        {"{\"eos_token\": \"<other>\"}", -1},
        {"{\"eos_token\": null}", -1},
        {"no JSON", -1},
    };
    char place[FILE_PATH_ROOM], path[FILE_PATH_ROOM];
    struct tokenizer *bytes = byte_tokenizer(), *t;
    json_t *root;
    struct data_config config = config_for(make_text("two.txt", "a\n<|endoftext|>\nb"));
    config.holdout = 0;
    snprintf(config.cache, sizeof config.cache, "%s/cache-ends", scratch);
    assert_int_equal(file_join(place, scratch, "named"), SOTTO_OK);
    assert_int_equal(file_make_directories(place), SOTTO_OK);
    assert_int_equal(file_join(path, place, "tokenizer.json"), SOTTO_OK);
    assert_int_equal(tokenizer_save(bytes, path), SOTTO_OK);
    tokenizer_close(bytes);
    assert_int_equal(json_open(&root, path, 1 << 20), SOTTO_OK);
    json_object_set_new(root, "added_tokens",
                        json_pack("[{s:i, s:s, s:b}, {s:i, s:s, s:b}]", "id", 256, "content",
                                  "<debut>", "special", 1, "id", 257, "content", "<fin>", "special",
                                  1));
    assert_int_equal(json_save(root, path, 0), SOTTO_OK);
    json_decref(root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char beside[FILE_PATH_ROOM];
        int warnings = 0;
        assert_int_equal(file_join(beside, place, "tokenizer_config.json"), SOTTO_OK);
        if (cases[i].config)
            assert_int_equal(file_write(beside, cases[i].config, strlen(cases[i].config)),
                             SOTTO_OK);
        for (int k = 0; k < 2; k++) { /* by the scratch, by the file */
            assert_int_equal(tokenizer_open(&t, k ? path : place), SOTTO_OK);
            assert_int_equal(tokenizer_end(t), cases[i].end);
            if (k == 0)
                tokenizer_close(t);
        }
        log_set(count_warnings, &warnings);
        struct loader *loader = open_loader(&config, DATA_TRAIN, t);
        log_set(NULL, NULL);
        assert_int_equal(loader_tokens(loader), cases[i].end < 0 ? 2 : 4);
        assert_int_equal(warnings, i == 0); /* later ones are in the cache */
        loader_close(loader);
        tokenizer_close(t);
    }
}

/* A tokenizer of bytes with these special tokens from 256 on, in a folder of its own. */
static void make_special(const char *place, const char *const *tokens)
{
    char path[FILE_PATH_ROOM];
    struct tokenizer *bytes = byte_tokenizer();
    json_t *root, *added = json_array();
    assert_int_equal(file_make_directories(place), SOTTO_OK);
    assert_int_equal(file_join(path, place, "tokenizer.json"), SOTTO_OK);
    assert_int_equal(tokenizer_save(bytes, path), SOTTO_OK);
    tokenizer_close(bytes);
    assert_int_equal(json_open(&root, path, 1 << 20), SOTTO_OK);
    for (int i = 0; tokens[i]; i++)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", 256 + i, "content",
                                               tokens[i], "special", tokens[i][1] != '_'));
    json_object_set_new(root, "added_tokens", added);
    assert_int_equal(json_save(root, path, 0), SOTTO_OK);
    json_decref(root);
}

static void write_in(const char *place, const char *name, const char *text)
{
    char path[FILE_PATH_ROOM];
    assert_int_equal(file_join(path, place, name), SOTTO_OK);
    if (text)
        assert_int_equal(file_write(path, text, strlen(text)), SOTTO_OK);
    else
        remove(path);
}

static void assert_turn(const char *place, const char *want, bool guessed)
{
    struct tokenizer *t;
    char *text;
    size_t size;
    assert_int_equal(tokenizer_open(&t, place), SOTTO_OK);
    const int id = tokenizer_turn_end(t);
    assert_int_equal(tokenizer_decode(t, &id, 1, &text, &size), SOTTO_OK);
    assert_string_equal(text, want);
    assert_int_equal(tokenizer_turn_guessed(t), guessed);
    free(text);
    tokenizer_close(t);
}

#define LOOP "{% for message in messages %}"
#define ROLE(name) "message['role'] == '" name "'"
static const struct {
    const char *text, *end;
    bool guessed;
} chats[] = {
    {"", "</s>", true},
    {"{{ messages }}", "</s>", true},
    /* ChatML, in one expression, in a branch with other roles, behind calls of tools */
    {LOOP "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
     "<|im_end|>", false},
    {"{%- if messages[0]['role'] == 'system' -%}{{- messages[0]['content'] + '<|eot|>' }}{%- endif %}"
     "{%- for message in messages %}{%- if (message.role == \"user\") or (message.role == \"assistant\" "
     "and not message.tool_calls) %}{{- '<|im_start|>' + message.role + '\\n' + message.content + "
     "'<|im_end|>' + '\\n' }}{%- elif message.role == \"assistant\" %}{{- '<|im_start|>' }}{%- if "
     "message.content %}{{- '\\n' + message.content }}{%- endif %}{%- for call in message.tool_calls "
     "%}{{- '<_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- elif message.role == \"tool\" %}{{- "
     "message.content + '<|eot|>' }}{%- endif %}{%- endfor %}",
     "<|im_end|>", false},
    /* Llama 3: put together in a variable; Gemma: after a filter, of a role of another name */
    {"{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|h|>' + "
     "message['role'] + '<|/h|>\n\n'+ message['content'] | trim + '<|eot|>' %}{% if loop.index0 == 0 "
     "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if "
     "add_generation_prompt %}{{ '<|h|>assistant<|/h|>\n\n' }}{% endif %}",
     "<|eot|>", false},
    {"{{ bos_token }}" LOOP "{% if (" ROLE(
         "user") ") != (loop.index0 % 2 == 0) %}{{ raise_exception("
                 "'Conversation <|eot|> must') }}{% endif %}{% if (" ROLE(
                     "assistant") ") %}{% set role = 'model' "
                                  "%}{% else %}{% set role = message['role'] %}{% endif %}{{ '<|h|>' + role + '\n' + "
                                  "message['content'] | trim + '<|/h|>\n' }}{% endfor %}",
     "<|/h|>", false},
    /* the tokenizer's end by its name; in a role's branch; in the last message or not */
    {LOOP
     "{% if " ROLE("user") " %}{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}{% elif " ROLE(
         "assistant") " %}{{ message['content'] + eos_token}}{% endif %}{% endfor %}",
     "</s>", false},
    {LOOP
     "{% if " ROLE("system") " %}{{ '<|h|>\n' + message['content'] + '<|eot|>' }}{% elif " ROLE("user") " %}{{ '<|/h|>\n' + message['content'] + '<|eot|>' }}{% elif " ROLE(
         "assistant") " %}{% if not loop.last %}{{ message['content'] + eos_token + '\n' }}{% else %}{{ "
                      "message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and "
                      "add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}{% endfor %}",
     "</s>", false},
    {LOOP "{{ message.content }}{% if not loop.last %}{{ '<|im_end|>' }}{% endif %}{% endfor %}",
     "<|im_end|>", false},
    /* content that goes through a variable, a loop over its parts, a macro, .get() */
    {LOOP "{% if " ROLE(
         "user") " %}{% set content = '<|eot|>' + message['content'] %}{% else %}{% set "
                 "content = message['content'] %}{% endif %}{% if " ROLE(
                     "user") " %}{{ '[INST] ' + content + "
                             "'<|h|>' }}{% elif " ROLE(
                                 "assistant") " %}{{ ' '  + content.strip() + ' ' + eos_token }}{% "
                                              "endif %}{% endfor %}",
     "</s>", false},
    {LOOP
     "{{ '<|h|>' }}{% if message['content'] is string %}{{ message['content'] | trim }}{% elif "
     "message['content'] is iterable %}{% for item in message['content'] %}{% if item['type'] == "
     "'image' %}{{ '<|eot|>' }}{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% else %}{{ "
     "raise_exception('no') }}{% endif %}{{ '<|/h|>\n' }}{% endfor %}",
     "<|/h|>", false},
    {"{% macro show(m) %}{% if m.content is string %}{{ m.content }}{% endif %}{% endmacro %}" LOOP
     "<|h|>{{ message.role }}{{ show(message) }}<|im_end|>{% endfor %}",
     "<|im_end|>", false},
    {"{# a note with {{ eos_token }} #}{% set stop = '<|im_end|>' %}" LOOP
     "{% generation %}{{ message.get('content', '') + stop }}{% endgeneration %}{% endfor %}",
     "<|im_end|>", false},
    {"{% set ns = namespace(content='') %}" LOOP
     "{% set ns.content = '<|h|>' + ns.role + '<|/h|>' + "
     "message['content'] %}{% set ns.content = ns.content + '<|eot|>' %}{{ ns.content }}{% endfor %}",
     "<|eot|>", false},
    /* nothing that ends a turn; a token that is not special; templates that are none */
    {LOOP "### {{ message.role }}:\n{{ message.content }}\n\n{% endfor %}{{ '<|eot|>' }}", "</s>",
     true},
    {LOOP "{{ message.content + '<_call>' }}{% endfor %}", "<_call>", false},
    {LOOP "{{ message.content + ", "</s>", true},
    {"{% if %}{% for %}{% set %}{% endfor %}{{ (((([[[ message['content' }}{% else %}{% endmacro %}{",
     "</s>", true},
};

/* The token behind an assistant's text in templates as models have them; the same from each file
 * that may hold one. */
static void turns_of_templates(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<|endoftext|>", "</s>",   "<|im_start|>", "<|im_end|>",
                                         "<|h|>",         "<|/h|>", "<|eot|>",      "<_call>",
                                         "<s>",           NULL};
    static const char config[] = "{\"eos_token\": {\"content\": \"</s>\"}, \"bos_token\": \"<s>\"}";
    char place[FILE_PATH_ROOM], room[4096];
    assert_int_equal(file_join(place, scratch, "chat"), SOTTO_OK);
    make_special(place, tokens);
    write_in(place, "tokenizer_config.json", config);
    assert_turn(place, "<|endoftext|>", false); /* there is no template */
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) {
        write_in(place, "chat_template.jinja", chats[i].text);
        assert_turn(place, chats[i].end, chats[i].guessed);
    }
    json_t *text = json_string(chats[2].text), *other = json_string(chats[6].text);
    char *a = json_dumps(text, JSON_ENCODE_ANY), *b = json_dumps(other, JSON_ENCODE_ANY);
    write_in(place, "chat_template.jinja", NULL);
    snprintf(room, sizeof room, "{\"chat_template\": %s}", a);
    write_in(place, "chat_template.json", room);
    assert_turn(place, "<|im_end|>", false);
    snprintf(room, sizeof room, "{\"chat_template\": %s, \"eos_token\": \"</s>\"}", b);
    write_in(place, "tokenizer_config.json", room);
    assert_turn(place, "</s>", false);
    snprintf(
        room, sizeof room,
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": %s}, {\"name\": \"default\", "
        "\"template\": %s}]}",
        b, a);
    write_in(place, "tokenizer_config.json", room);
    assert_turn(place, "<|im_end|>", false);
    write_in(place, "chat_template.jinja", chats[4].text);
    assert_turn(place, "<|eot|>", false);
    free(a);
    free(b);
    json_decref(text);
    json_decref(other);
}

/* Instruction data learn that token; a guess is told. */
static void keep_warning(enum log_level level, const char *line, void *arg)
{
    if (level == LOG_WARN)
        snprintf(arg, 512, "%s", line);
}

static void turns_are_learned(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<|endoftext|>", "<|im_end|>", NULL};
    char place[FILE_PATH_ROOM], line[512] = "";
    struct tokenizer *t;
    struct data_config config =
        config_for(make_text("turn.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"));
    config.holdout = 0;
    assert_int_equal(file_join(place, scratch, "turns"), SOTTO_OK);
    make_special(place, tokens);
    for (int guessed = 0; guessed < 2; guessed++) {
        struct batch batch;
        write_in(place, "chat_template.jinja",
                 guessed ? "{{ messages }}" : LOOP "{{ message.content }}<|im_end|>{% endfor %}");
        assert_int_equal(tokenizer_open(&t, place), SOTTO_OK);
        struct loader *loader = open_loader(&config, DATA_TRAIN, t);
        assert_int_equal(batch_init(&batch, 1, 8), SOTTO_OK);
        assert_int_equal(loader_fill_in_order(loader, 0, 1, 8, &batch), SOTTO_OK);
        assert_int_equal(batch.targets[batch.t - 1], guessed ? 256 : 257);
        log_set(keep_warning, line);
        loader_warn_turn(loader, t);
        log_set(NULL, NULL);
        if (guessed)
            assert_non_null(strstr(
                line, "at the end of a response: <|endoftext|> is learned there; \"eos_token\""));
        else
            assert_string_equal(line, "");
        batch_free(&batch);
        loader_close(loader);
        tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates),
        cmocka_unit_test(faults),
        cmocka_unit_test(documents_of_a_source),
        cmocka_unit_test(examples),
        cmocka_unit_test(other_tokenizers_are_told_apart),
        cmocka_unit_test(the_end_named_beside),
        cmocka_unit_test(turns_of_templates),
        cmocka_unit_test(turns_are_learned),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* What a model came with goes out again, and a new one gets what others ask for. */
#include "train/fixture.h"

#include "data/tokenizer/tokenizer.h"
#include "hf/weights.h"
#include "io/half.h"
#include "train/run/run.h"
#include "train/run/run_worker.h"

static struct run_config *configure(const char *out, const char *const *options)
{
    static const char *const basic[] = {"train.steps=4", "train.batch=2",  "train.threads=1",
                                        "optim.lr=0.01", "data.holdout=0", "train.seq=8",
                                        "train.keep=0"};
    struct run_config *c = malloc(sizeof *c);
    assert_non_null(c);
    *c = configure_run(out);
    strcpy(c->data.train, at("text.txt"));
    set_all(c, basic, sizeof basic / sizeof *basic);
    set_all(c, options, SIZE_MAX);
    return c;
}

/* Trains and says what parameters and state hash to. */
static uint64_t train(struct run_config *c)
{
    struct run *run = malloc(sizeof *run);
    assert_ok(run_open(run, c, NULL));
    assert_ok(run_train(run));
    const uint64_t hash = run->result.hash;
    run_close(run);
    free(run);
    return hash;
}

static const char *in(const char *folder, const char *name)
{
    static char path[4][FILE_PATH_ROOM];
    static int turn;
    char *out = path[turn++ % 4];
    assert_ok(file_join(out, at(folder), name));
    return out;
}

static json_t *read_json(const char *folder, const char *name)
{
    json_t *json;
    assert_ok(json_open(&json, in(folder, name), 1 << 24));
    return json;
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char *x = slurp(in(a, name)), *y = slurp(in(b, name));
    if (strcmp(x, y) != 0)
        fail_with("%s differs: %s", name, y);
    free(x);
    free(y);
}

/* Files with bytes that no program of ours would write just so. */
static const struct {
    const char *name, *text;
} companions[] = {
    {"generation_config.json", "{ \"eos_token_id\": [5, 9],\n\t\"temperature\": 0.60 }"},
    {"tokenizer_config.json",
     "{\"tokenizer_class\": \"GPT2Tokenizer\" , \"model_max_length\": 1000000000000000019884624838656}"},
    {"special_tokens_map.json", "{\"pad_token\":   \"<|endoftext|>\"}"},
    {"added_tokens.json", "{ }"},
    {"chat_template.jinja", "{% for m in messages %}{{ m }}{% endfor %}\n"},
};
enum { COMPANIONS = sizeof companions / sizeof *companions };

/* A model with a tokenizer: trained from scratch, then dressed up as somebody else's. */
static int make_models(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    FILE *file = fopen(at("text.txt"), "w");
    for (int i = 0; i < 300; i++)
        fprintf(file, "The %s cat number %d saw a dog near the %s house.\n",
                i % 3 ? "old" : "young", i, i % 5 ? "red" : "blue");
    fclose(file);
    static const char *const sizes[] = {"model.layers=1",    "model.width=16", "model.heads=2",
                                        "model.positions=8", "data.vocab=300", NULL};
    struct run_config *c = configure("scratch", sizes);
    train(c);
    free(c);
    return 0;
}

static void copy(const char *from, const char *to, const char *name)
{
    char *text = slurp(in(from, name));
    assert_ok(file_write(in(to, name), text, strlen(text)));
    free(text);
}

/* `name`: the model of "scratch" in type `type`, norms in fp32. */
static void make_foreign(const char *name, enum safetensors_type type, const char *dtype)
{
    struct model_config config;
    struct model model;
    enum safetensors_type types[64];
    assert_ok(file_make_directories(at(name)));
    assert_ok(weights_config(&config, at("scratch")));
    assert_ok(model_init(&model, &config, 1, 1));
    assert_true(model.table.n <= 64);
    float *flat = malloc(table_count(&model.table) * sizeof *flat);
    assert_ok(weights_load(&model, at("scratch"), flat));
    for (int i = 0; i < model.table.n; i++)
        types[i] = model.table.entry[i].ndim < 2 ? SAFETENSORS_F32 : type;
    assert_ok(weights_save(&model, in(name, "model.safetensors"), flat, NULL, types));
    free(flat);
    model_free(&model);
    json_t *json = read_json("scratch", "config.json");
    json_object_set_new(json, "torch_dtype", json_string(dtype));
    json_object_set_new(json, "bos_token_id", json_integer(3));
    json_object_set_new(json, "eos_token_id", json_pack("[i, i]", 5, 9));
    json_object_set_new(json, "pad_token_id", json_integer(7));
    json_object_set_new(json, "their_own", json_pack("{s:[f, n]}", "nested", 1.5));
    assert_ok(json_save(json, in(name, "config.json"), 4));
    json_decref(json);
    for (int i = 0; i < COMPANIONS; i++)
        assert_ok(file_write(in(name, companions[i].name), companions[i].text,
                             strlen(companions[i].text)));
    copy("scratch", name, "tokenizer.json");
}

/* Types and files of `out` are those of `from`. */
static void assert_as_it_came(const char *from, const char *out)
{
    struct model_config config;
    struct model model;
    enum safetensors_type want[64], have[64];
    assert_same_file(from, out, "config.json");
    for (int i = 0; i < COMPANIONS; i++)
        assert_same_file(from, out, companions[i].name);
    assert_same_file(from, out, "tokenizer.json");
    assert_ok(weights_config(&config, at(out)));
    assert_ok(model_init(&model, &config, 1, 1));
    assert_ok(weights_types(&model, at(from), false, want));
    assert_ok(weights_types(&model, at(out), false, have));
    assert_memory_equal(want, have, (size_t)model.table.n * sizeof *want);
    model_free(&model);
}

/* Tuned at once and in two parts, the folder is as it came and the parameters have the same bits,
 * whatever was rounded on the way out; the folder that it came from is gone by the second part. */
static void tuning_keeps_the_folder(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        enum safetensors_type type;
    } cases[] = {
        {"bfloat16", SAFETENSORS_BF16}, {"float16", SAFETENSORS_F16}, {"float32", SAFETENSORS_F32}};
    for (int k = 0; k < 3; k++) {
        char name[32], whole[32], part[32], init[FILE_PATH_ROOM];
        snprintf(name, sizeof name, "foreign%d", k);
        snprintf(whole, sizeof whole, "whole%d", k);
        snprintf(part, sizeof part, "part%d", k);
        make_foreign(name, cases[k].type, cases[k].dtype);
        snprintf(init, sizeof init, "train.init=%s", at(name));
        const char *const options[] = {init, "optim.schedule=constant", NULL};
        struct run_config *c = configure(whole, options);
        const uint64_t want = train(c);
        free(c);
        assert_as_it_came(name, whole);

        c = configure(part, options);
        c->train.steps = 2;
        train(c);
        assert_as_it_came(name, part);
        char kept[32];
        snprintf(kept, sizeof kept, "kept%d", k);
        assert_int_equal(rename(at(name), at(kept)), 0);
        c->train.steps = 4;
        c->train.resume = true;
        if (train(c) != want)
            fail_with("%s: resumed, the run ends elsewhere", cases[k].dtype);
        free(c);
        assert_as_it_came(kept, part);
        assert_same_file(whole, part, "config.json");
        assert_int_equal(file_exists(in(part, "checkpoints/step-00000004/" CHECKPOINT_PARAMETERS)),
                         k < 2);
        assert_false(file_exists(in(part, CHECKPOINT_PARAMETERS)));
    }
}

/* A checkpoint that has lost the parameters behind its rounded weights is passed over: going on
 * from the weights would be another run. */
static void rounded_weights_are_not_enough(void **state)
{
    (void)state;
    static const char *const options[] = {
        "train.save_every=2", "train.save_dtype=bf16", "model.layers=1", "model.width=16",
        "model.heads=2",      "model.positions=8",     "data.vocab=300", NULL};
    struct run_config *c = configure("rounded", options);
    const uint64_t want = train(c);
    c->train.resume = true;
    assert_true(train(c) == want);
    assert_int_equal(remove(in("rounded", "checkpoints/step-00000004/" CHECKPOINT_PARAMETERS)), 0);
    struct run *run = malloc(sizeof *run);
    assert_ok(run_open(run, c, NULL));
    assert_non_null(strstr(run->checkpoint, "step-00000002"));
    assert_ok(run_train(run));
    assert_true(run->result.hash == want);
    run_close(run);
    free(run);
    free(c);
}

/* train.save_dtype has the last word, in the files and in what config.json says of them. */
static void a_type_that_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *option, *dtype;
        enum safetensors_type type;
    } cases[] = {{"train.save_dtype=fp32", "float32", SAFETENSORS_F32},
                 {"train.save_dtype=bf16", "bfloat16", SAFETENSORS_BF16},
                 {"train.save_dtype=fp16", "float16", SAFETENSORS_F16}};
    char init[FILE_PATH_ROOM];
    make_foreign("asked", SAFETENSORS_BF16, "bfloat16");
    json_t *json = read_json("asked", "config.json"); /* as newer versions have it */
    json_object_del(json, "torch_dtype");
    json_object_set_new(json, "dtype", json_string("bfloat16"));
    assert_ok(json_save(json, in("asked", "config.json"), 0));
    json_decref(json);
    snprintf(init, sizeof init, "train.init=%s", at("asked"));
    for (int k = 0; k < 3; k++) {
        char out[32];
        struct safetensors set;
        const char *const options[] = {init, cases[k].option, NULL};
        snprintf(out, sizeof out, "typed%d", k);
        struct run_config *c = configure(out, options);
        train(c);
        free(c);
        json = read_json(out, "config.json");
        assert_string_equal(json_string_value(json_object_get(json, "dtype")), cases[k].dtype);
        assert_null(json_object_get(json, "torch_dtype"));
        json_decref(json);
        assert_ok(safetensors_open(&set, at(out)));
        for (size_t i = 0; i < set.count; i++)
            assert_int_equal(set.entry[i].type, cases[k].type);
        safetensors_close(&set);
    }
}

static int64_t id_in(const char *folder, const char *name, const char *key)
{
    int64_t id;
    json_t *json = read_json(folder, name);
    assert_ok(json_get_int(json, key, &id));
    json_decref(json);
    return id;
}

/* A model from nowhere has the files that AutoTokenizer and generate() read, of one mind; the run
 * goes on with them. */
static void a_new_model_is_complete(void **state)
{
    (void)state;
    static const char *const texts[] = {"tokenizer_config.json", "special_tokens_map.json"};
    struct tokenizer *tokenizer;
    assert_ok(tokenizer_open(&tokenizer, at("scratch")));
    const int end = tokenizer_end(tokenizer);
    tokenizer_close(tokenizer);
    assert_true(end >= 0);
    assert_int_equal(id_in("scratch", "config.json", "eos_token_id"), end);
    assert_int_equal(id_in("scratch", "config.json", "bos_token_id"), end);
    assert_int_equal(id_in("scratch", "generation_config.json", "eos_token_id"), end);
    assert_int_equal(id_in("scratch", "generation_config.json", "bos_token_id"), end);
    for (int i = 0; i < 2; i++) {
        json_t *json = read_json("scratch", texts[i]);
        const char *eos;
        assert_ok(json_get_text(json, "eos_token", &eos));
        assert_string_equal(eos, "<|endoftext|>");
        const json_t *class = json_object_get(json, "tokenizer_class");
        assert_true(i == 1 || strcmp(json_string_value(class), "PreTrainedTokenizerFast") == 0);
        json_decref(json);
    }
}

/* A tokenizer that was named brings its files, and says what begins and ends a text. */
static void a_named_tokenizer(void **state)
{
    (void)state;
    static const char *const sizes[] = {"model.layers=1", "model.width=16", "model.heads=2",
                                        "model.positions=8", NULL};
    assert_ok(file_make_directories(at("tok")));
    copy("scratch", "tok", "tokenizer.json");
    const char *text = "{\"eos_token\": {\"content\": \"e\"}, \"bos_token\": \"<|endoftext|>\","
                       " \"model_max_length\": 1000000000000000019884624838656}";
    assert_ok(file_write(in("tok", "tokenizer_config.json"), text, strlen(text)));
    for (int k = 0; k < 2; k++) { /* the folder, and the file in it */
        const char *out = k ? "named.file" : "named.folder";
        struct tokenizer *tokenizer;
        struct token_list ids = {0};
        struct run_config *c = configure(out, sizes);
        strcpy(c->data.tokenizer, k ? in("tok", "tokenizer.json") : at("tok"));
        train(c);
        free(c);
        assert_same_file("tok", out, "tokenizer_config.json");
        assert_same_file("tok", out, "tokenizer.json");
        assert_ok(tokenizer_open(&tokenizer, at("tok")));
        assert_ok(tokenizer_encode(tokenizer, "e<|endoftext|>", 14, &ids));
        assert_int_equal(ids.count, 2);
        assert_int_equal(ids.data[1], 0); /* a number like others */
        assert_int_equal(id_in(out, "config.json", "eos_token_id"), ids.data[0]);
        assert_int_equal(id_in(out, "config.json", "bos_token_id"), ids.data[1]);
        assert_int_equal(id_in(out, "generation_config.json", "bos_token_id"), ids.data[1]);
        free(ids.data);
        tokenizer_close(tokenizer);
    }
}

static void assert_ends(const char *folder, const char *want)
{
    struct end_tokens ends;
    struct tokenizer *tokenizer;
    assert_ok(tokenizer_open(&tokenizer, at(folder)));
    assert_ok(end_tokens_read(&ends, at(folder), tokenizer));
    tokenizer_close(tokenizer);
    json_t *json = end_tokens_to_json(&ends);
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
    assert_string_equal(text, want);
    assert_true(end_tokens_have(&ends, ends.id[ends.count - 1]) && !end_tokens_have(&ends, 8));
    free(text);
    json_decref(json);
}

/* Tuned on instructions, a model stops where its answers have learned to end, and where it did; no
 * other member of generation_config.json changes. */
static void answers_end_as_learned(void **state)
{
    (void)state;
    static const char examples[] = "{\"prompt\": \"a cat\", \"completion\": \"a dog\"}\n";
    char init[FILE_PATH_ROOM];
    make_foreign("chatty", SAFETENSORS_F32, "float32");
    copy("scratch", "chatty", "tokenizer.json");
    assert_ok(file_write(at("examples.jsonl"), examples, sizeof examples - 1));
    snprintf(init, sizeof init, "train.init=%s", at("chatty"));
    const char *const options[] = {init, NULL};
    assert_ends("chatty", "[5,9]");
    struct run_config *c = configure("tuned", options);
    strcpy(c->data.train, at("examples.jsonl"));
    c->train.steps = 2;
    for (int again = 0; again < 2; again++) { /* going on adds nothing */
        train(c);
        c->train.steps = 4;
        c->train.resume = true;
        assert_ends("tuned", "[5,9,0]");
        json_t *json = read_json("tuned", "generation_config.json");
        assert_int_equal(json_object_size(json), 2);
        assert_true(json_number_value(json_object_get(json, "temperature")) == 0.6);
        json_decref(json);
    }
    free(c);
    assert_as_it_came("chatty", "whole2"); /* tuned on text */
    assert_int_equal(remove(in("tuned", "generation_config.json")), 0);
    assert_ends("tuned", "[5,9]");
    json_t *json = read_json("tuned", "config.json");
    json_object_set_new(json, "eos_token_id", json_integer(7));
    assert_ok(json_save(json, in("tuned", "config.json"), 0));
    assert_ends("tuned", "7");
    json_object_set_new(json, "eos_token_id", json_null());
    assert_ok(json_save(json, in("tuned", "config.json"), 0));
    assert_ends("tuned", "0");
    json_object_set_new(json, "eos_token_id", json_string("e"));
    assert_ok(json_save(json, in("tuned", "config.json"), 0));
    struct end_tokens ends;
    assert_fails(end_tokens_read(&ends, at("tuned"), NULL), SOTTO_EFORMAT,
                 "config.json: \"eos_token_id\" must be a token's number");
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuning_keeps_the_folder),
        cmocka_unit_test(a_type_that_was_asked_for),
        cmocka_unit_test(rounded_weights_are_not_enough),
        cmocka_unit_test(a_new_model_is_complete),
        cmocka_unit_test(a_named_tokenizer),
        cmocka_unit_test(answers_end_as_learned),
    };
    return cmocka_run_group_tests(tests, make_models, scratch_remove);
}

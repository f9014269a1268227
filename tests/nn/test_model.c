/* Models: presets, config.json, the cut into stages, and new parameters. */
#include "nn/tiny.h"

/* A preset by name, its vocabulary filled in as a tokenizer would. */
static struct model_config preset(const char *name)
{
    struct model_config c = {0};
    strcpy(c.preset, name);
    assert_ok(model_config_resolve(&c));
    if (model_config_image(&c))
        assert_ok(model_config_fit(&c, &(struct image_sizes){48, 32, 3, 10}));
    else if (!c.vocab)
        c.vocab = 1000;
    return c;
}

static void every_preset_builds(void **state)
{
    (void)state;
    for (int i = 0; i < model_presets_count; i++) {
        struct model_config c = preset(model_presets[i].config.preset);
        struct model m;
        assert_ok(model_config_check(&c));
        assert_ok(model_init(&m, &c, 1, 1));
        if (!model_config_image(&c)) {
            assert_int_equal(m.n_layer, 2 + 2 * c.layers);
            assert_int_equal(m.n_attention, c.layers);
        }
        assert_int_equal(table_count(&m.table), m.table.parameters);
        model_free(&m);
    }
}

/* As many parameters as the published models have. */
static void published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t parameters;
    } published[] = {
        {"gpt2", 124439808},         {"gpt2-medium", 354823168},   {"gpt2-large", 774030080},
        {"gpt-neo-125m", 125198592}, {"gpt-neo-2.7b", 2651307520}, {"olmo2-1b", 1484916736},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct model_config c = preset(published[i].name);
        struct model m;
        assert_ok(model_init(&m, &c, 1, 1));
        if (m.table.parameters != published[i].parameters)
            fail_with("%s has %zu parameters, want %zu", published[i].name, m.table.parameters,
                      published[i].parameters);
        model_free(&m);
    }
}

/* What the user says beats the preset; sizes that follow from others follow. */
static void overrides(void **state)
{
    (void)state;
    struct model_config c = {.preset = "gpt2", .layers = 3, .width = 64, .heads = 4};
    assert_ok(model_config_resolve(&c));
    assert_int_equal(c.layers, 3);
    assert_int_equal(c.head_width, 16);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.mlp_width, 256);
    assert_int_equal(c.vocab, 50257);
    assert_int_equal(preset("diloco-60m").head_width, 64); /* not width / heads, which is 56 */
    c = (struct model_config){.preset = "diloco-60m", .heads = 8};
    assert_ok(model_config_resolve(&c));
    assert_int_equal(c.head_width, 112); /* not the preset's 64, which went with 16 heads */
    assert_int_equal(c.mlp_width, 2368);
    c = (struct model_config){.preset = "nano", .arch = ARCH_GPT2};
    assert_ok(model_config_resolve(&c));
    assert_string_equal(c.activation, "gelu_new");
    assert_int_equal(c.vocab, 0); /* the tokenizer's to say */
}

static json_t *parse(const char *text)
{
    json_t *json;
    assert_ok(json_parse(&json, text, strlen(text), "config"));
    return json;
}

static void assert_same_config(const struct model_config *a, const struct model_config *b)
{
    for (int i = 0; i < model_options_count; i++) {
        char room[2][OPTION_ROOM];
        const char *x = option_print(&model_options[i], a, room[0]);
        const char *y = option_print(&model_options[i], b, room[1]);
        if (strcmp(model_options[i].key, "preset") == 0) /* config.json has no such member */
            continue;
        if (strcmp(x, y) != 0)
            fail_with("arch %d: %s was %s, came back as %s", a->arch, model_options[i].key, x, y);
    }
    assert_int_equal(a->arch, b->arch);
    assert_memory_equal(arch_own(a, archs[a->arch]), arch_own(b, archs[b->arch]),
                        archs[a->arch]->config_bytes);
    assert_true(a->norm_eps == b->norm_eps && a->rope_theta == b->rope_theta &&
                a->init_std == b->init_std);
    const struct rope_scaling *r = &a->rope, *s = &b->rope;
    assert_true(r->kind == s->kind && r->factor == s->factor && r->low == s->low &&
                r->high == s->high && r->original == s->original);
}

static void round_trip(struct model_config c)
{
    json_t *json;
    struct model_config back;
    assert_ok(model_config_to_json(&c, &json));
    char *text = json_dumps(json, 0);
    json_decref(json);
    json = parse(text);
    free(text);
    assert_ok(model_config_from_json(&back, json));
    json_decref(json);
    assert_same_config(&c, &back);
}

/* to_json then from_json gives every field back, for presets and for unusual sizes. */
static void config_json_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < model_presets_count; i++)
        round_trip(preset(model_presets[i].config.preset));
    for (int i = 0; i < TINY; i++) {
        for (int tied = TIED_YES; tied <= TIED_NO; tied++) {
            struct model_config c = tiny_configs[i];
            c.tied = tied;
            c.norm_eps = 1.0 / 3e5;
            c.init_std = 0.1234567890123;
            assert_ok(model_config_resolve(&c));
            round_trip(c);
        }
    }
    static const char *const patterns[] = {"g", "l", "gl", "lg", "ggl", "gllgl"};
    for (int layers = 1; layers <= 6; layers++) {
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            struct model_config c = tiny_configs[1];
            c.layers = layers;
            strcpy(c.pattern, patterns[p]);
            strcpy(c.activation, "gelu");
            assert_ok(model_config_resolve(&c));
            for (int i = 0; i < layers; i++) /* said once, meant for every layer */
                assert_int_equal(model_config_local(&c, i),
                                 patterns[p][(size_t)i % strlen(patterns[p])] == 'l');
            round_trip(c);
        }
    }
}

#define GPT2 "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":16,\"n_head\":2,"
#define GPT2_REST "\"n_positions\":8,\"vocab_size\":9"
#define NEO                                                                                        \
    "\"model_type\":\"gpt_neo\",\"num_layers\":2,\"hidden_size\":16,\"num_heads\":2,"              \
    "\"max_position_embeddings\":8,\"vocab_size\":9"
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":16,"                         \
    "\"num_attention_heads\":4,\"intermediate_size\":8,\"max_position_embeddings\":8,"             \
    "\"vocab_size\":9"

#define OLMO2                                                                                      \
    "\"model_type\":\"olmo2\",\"num_hidden_layers\":2,\"hidden_size\":16,"                         \
    "\"num_attention_heads\":4,\"intermediate_size\":8,\"max_position_embeddings\":8,"             \
    "\"vocab_size\":9"

#define MISTRAL                                                                                    \
    "\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"hidden_size\":16,"                       \
    "\"num_attention_heads\":8,\"intermediate_size\":8,\"max_position_embeddings\":8,"             \
    "\"vocab_size\":9"

#define QWEN2                                                                                      \
    "\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"hidden_size\":64,"                         \
    "\"num_attention_heads\":32,\"intermediate_size\":8,\"max_position_embeddings\":8,"            \
    "\"vocab_size\":9"

#define QWEN3                                                                                      \
    "\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"hidden_size\":4096,"                       \
    "\"num_attention_heads\":32,\"intermediate_size\":8,\"max_position_embeddings\":8,"            \
    "\"vocab_size\":9"

/* Files as others write them: members in either spelling, null where transformers writes null. */
static void config_json_of_others(void **state)
{
    (void)state;
    struct model_config c;
    json_t *json = parse("{" GPT2 GPT2_REST ",\"n_inner\":null,\"activation_function\":\"gelu\"}");
    assert_ok(model_config_from_json(&c, json));
    assert_int_equal(c.mlp_width, 64);
    assert_int_equal(c.tied, TIED_YES);
    assert_string_equal(c.activation, "gelu");
    json_decref(json);
    json = parse("{" NEO ",\"attention_types\":[[[\"global\",\"local\"],1]],\"window_size\":5}");
    assert_ok(model_config_from_json(&c, json));
    assert_false(model_config_local(&c, 0));
    assert_true(model_config_local(&c, 1));
    assert_int_equal(c.window, 5);
    json_decref(json);
    json = parse("{" LLAMA ",\"rope_theta\":500,\"rope_scaling\":null,\"head_dim\":null}");
    assert_ok(model_config_from_json(&c, json));
    assert_true(c.rope_theta == 500);
    assert_int_equal(c.head_width, 4);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.tied, TIED_NO);
    json_decref(json);
    json = parse("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.5}}");
    assert_ok(model_config_from_json(&c, json));
    assert_true(c.rope_theta == 7.5);
    json_decref(json);
    /* Llama 3.1's, and the same as transformers 5 writes it; a missing length is the longest. */
    json = parse("{" LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\","
                 "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4.5}}");
    assert_ok(model_config_from_json(&c, json));
    assert_true(c.rope_theta == 5e5 && c.rope.kind == ROPE_LLAMA3 && c.rope.factor == 8);
    assert_true(c.rope.low == 1 && c.rope.high == 4.5 && c.rope.original == 8);
    json_decref(json);
    round_trip(c);
    json = parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    assert_ok(model_config_from_json(&c, json));
    assert_true(c.rope_theta == 10000 && c.rope.kind == ROPE_LINEAR && c.rope.factor == 2);
    json_decref(json);
    round_trip(c);
}

/* What a config.json does not say is what transformers' classes of configurations take there. */
static void config_json_of_required_members(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct model_config want;
    } cases[] = {
        {GPT2 GPT2_REST,
         {.mlp_width = 64, .activation = "gelu_new", .norm_eps = 1e-5, .tied = TIED_YES}},
        {NEO,
         {.mlp_width = 64,
          .activation = "gelu_new",
          .norm_eps = 1e-5,
          .tied = TIED_YES,
          .pattern = "gl",
          .window = 256}},
        {LLAMA,
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {OLMO2,
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-5,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {OLMO2 ",\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_theta\":null",
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-5,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {MISTRAL,
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO,
          .pattern = "l",
          .window = 4096}},
        {MISTRAL ",\"sliding_window\":null",
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {QWEN3,
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {QWEN2,
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO}},
        {QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":1",
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO,
          .pattern = "gl",
          .window = 4096}},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":1",
         {.mlp_width = 8,
          .activation = "silu",
          .norm_eps = 1e-6,
          .rope_theta = 10000,
          .tied = TIED_NO}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct model_config *want = &cases[i].want;
        struct model_config c;
        char text[512];
        snprintf(text, sizeof text, "{%s}", cases[i].text);
        json_t *json = parse(text);
        assert_ok(model_config_from_json(&c, json));
        json_decref(json);
        assert_true(c.kv_heads == c.heads && c.head_width * c.heads == c.width);
        assert_int_equal(c.mlp_width, want->mlp_width);
        assert_string_equal(c.activation, want->activation);
        assert_string_equal(c.pattern, want->pattern);
        assert_int_equal(c.window, want->window);
        assert_int_equal(c.tied, want->tied);
        assert_true(c.norm_eps == want->norm_eps && c.rope_theta == want->rope_theta &&
                    c.init_std == 0.02);
    }
}

static void check_images(const char *text, const char *want)
{
    struct model_config c;
    json_t *json = parse(text), *full = parse(want), *a, *b;
    struct model_config other;
    assert_ok(model_config_from_json(&c, json));
    assert_ok(model_config_from_json(&other, full));
    assert_ok(model_config_to_json(&c, &a));
    assert_ok(model_config_to_json(&other, &b));
    assert_true(json_equal(a, b));
    json_decref(json);
    json_decref(full);
    json_decref(a);
    json_decref(b);
}

/* The same of models over images, which require none. */
static void config_json_of_images(void **state)
{
    (void)state;
    check_images("{\"model_type\":\"vit\"}",
                 "{\"model_type\":\"vit\",\"hidden_size\":768,\"num_hidden_layers\":12,"
                 "\"num_attention_heads\":12,\"intermediate_size\":3072,\"hidden_act\":\"gelu\","
                 "\"initializer_range\":0.02,\"layer_norm_eps\":1e-12,\"image_size\":224,"
                 "\"patch_size\":16,\"num_channels\":3,\"qkv_bias\":true,\"num_labels\":2}");
    check_images("{\"model_type\":\"resnet\",\"image_size\":32}",
                 "{\"model_type\":\"resnet\",\"image_size\":32,\"num_channels\":3,"
                 "\"embedding_size\":64,\"hidden_sizes\":[256,512,1024,2048],\"depths\":[3,4,6,3],"
                 "\"layer_type\":\"bottleneck\",\"hidden_act\":\"relu\","
                 "\"downsample_in_first_stage\":false,\"downsample_in_bottleneck\":false,"
                 "\"num_labels\":2}");
}

/* Each fault of a config.json is a format or size error that names the member. */
static void config_json_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
        enum sotto_status code;
    } bad[] = {
        {"{}", "model_type", SOTTO_EFORMAT},
        {"[]", "", SOTTO_EFORMAT},
        {"{\"model_type\":3}", "model_type", SOTTO_EFORMAT},
        {"{\"model_type\":\"bert\"}",
         "'bert' is not supported: want gpt2, gpt_neo, llama, olmo2, mistral, qwen2, qwen3, mlp, resnet or vit",
         SOTTO_EFORMAT},
        {"{\"model_type\":\"preset\"}", "'preset' is not supported", SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":8}", "\"vocab_size\" is missing", SOTTO_EFORMAT},
        {"{" GPT2 "\"vocab_size\":9}", "\"n_positions\" is missing", SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":null,\"vocab_size\":9}", "\"n_positions\" is missing",
         SOTTO_EFORMAT},
        {"{\"model_type\":\"gpt2\"}", "\"n_layer\" is missing", SOTTO_EFORMAT},
        {"{\"model_type\":\"llama\"}", "\"num_hidden_layers\" is missing", SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":\"8\",\"vocab_size\":9}", "must be an integer, got string",
         SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":8.5,\"vocab_size\":9}", "\"n_positions\" must be an integer",
         SOTTO_EFORMAT},
        {"{" GPT2 GPT2_REST ",\"layer_norm_epsilon\":\"x\"}",
         "\"layer_norm_epsilon\" must be a number", SOTTO_EFORMAT},
        {"{" GPT2 GPT2_REST ",\"layer_norm_epsilon\":-1}", "norm_eps", SOTTO_EINVAL},
        {"{" GPT2 GPT2_REST ",\"initializer_range\":-0.1}", "init_std", SOTTO_EINVAL},
        {"{" GPT2 GPT2_REST ",\"tie_word_embeddings\":\"yes\"}", "\"tie_word_embeddings\"",
         SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":-8,\"vocab_size\":9}", "\"n_positions\" = -8 is out of range",
         SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":99999999999,\"vocab_size\":9}", "out of range", SOTTO_EFORMAT},
        {"{" GPT2 "\"n_positions\":16000000,\"vocab_size\":9}", "out of range", SOTTO_EINVAL},
        {"{" GPT2 "\"n_positions\":8,\"vocab_size\":0}", "at least 1", SOTTO_EINVAL},
        {"{" GPT2 GPT2_REST ",\"activation_function\":\"relu\"}",
         "\"activation_function\" = \"relu\" is not supported", SOTTO_EFORMAT},
        {"{" GPT2 GPT2_REST ",\"activation_function\":7}", "must be a string", SOTTO_EFORMAT},
        {"{" GPT2 GPT2_REST ",\"scale_attn_by_inverse_layer_idx\":true}",
         "\"scale_attn_by_inverse_layer_idx\" = true is not supported", SOTTO_EFORMAT},
        {"{" GPT2 GPT2_REST ",\"n_head\":3}", "heads = 3 do not divide width = 16", SOTTO_EINVAL},
        {"{" NEO ",\"attention_layers\":[\"global\",\"near\"]}",
         "attention kind 1 must be \"global\" or \"local\"", SOTTO_EFORMAT},
        {"{" NEO ",\"attention_types\":[[\"global\",2]]}", "\"attention_types\"", SOTTO_EFORMAT},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}",
         "\"rope_type\" = \"yarn\" is not supported: want default, linear or llama3",
         SOTTO_EFORMAT},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}",
         "\"factor\" of a rope of type linear must be a number, got none", SOTTO_EFORMAT},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}",
         "factor = 0 must be in (0, 1e6]", SOTTO_EINVAL},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,"
         "\"low_freq_factor\":4,\"high_freq_factor\":1}}",
         "low_freq_factor < high_freq_factor", SOTTO_EINVAL},
        {"{" LLAMA ",\"rope_scaling\":[1]}", "\"rope_scaling\" must be an object, got array",
         SOTTO_EFORMAT},
        {"{" LLAMA ",\"rope_theta\":-5}", "rope_theta", SOTTO_EINVAL},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "\"hidden_act\" = \"gelu\"", SOTTO_EFORMAT},
        {"{" LLAMA ",\"attention_bias\":true}", "\"attention_bias\" = true is not supported",
         SOTTO_EFORMAT},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "heads = 4 is not a multiple of kv_heads = 3",
         SOTTO_EINVAL},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"x\"]}",
         "\"layer_types\" must have", SOTTO_EFORMAT},
        {"{" QWEN2 ",\"num_key_value_heads\":3}", "not a multiple of kv_heads = 3", SOTTO_EINVAL},
        {"{" LLAMA ",\"head_dim\":5}", "head_width = 5 must be even", SOTTO_EINVAL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        json_t *json = parse(bad[i].text);
        enum sotto_status st = model_config_from_json(&c, json);
        json_decref(json);
        if (st != bad[i].code || !strstr(sotto_error(), bad[i].part))
            fail_with("%s: want %s with '%s', got %s: %s", bad[i].text,
                      sotto_status_name(bad[i].code), bad[i].part, sotto_status_name(st),
                      st ? sotto_error() : "");
    }
}

static enum sotto_status resolve(struct model_config c)
{
    return model_config_resolve(&c);
}

/* Options that make no sense together. */
static void option_errors(void **state)
{
    (void)state;
    typedef struct model_config C;
    assert_fails(resolve((C){.preset = "gpt3"}), SOTTO_EINVAL, "did you mean 'gpt2'?");
    assert_fails(resolve((C){.preset = "gpt2-medim"}), SOTTO_EINVAL, "did you mean 'gpt2-medium'?");
    assert_fails(resolve((C){.preset = "somethingelse"}), SOTTO_EINVAL,
                 "unknown preset 'somethingelse'");
    assert_null(strstr(sotto_error(), "did you mean"));
    assert_fails(resolve((C){.layers = 1}), SOTTO_EINVAL, "model.arch is needed");
    assert_fails(resolve((C){.arch = ARCH_GPT2, .vocab = 5}), SOTTO_EINVAL, "at least 1");
    assert_fails(resolve((C){.preset = "gpt2", .layers = -1}), SOTTO_EINVAL, "at least 1");
    assert_fails(resolve((C){.preset = "gpt2", .layers = 1025}), SOTTO_EINVAL, "out of range");
    assert_fails(resolve((C){.preset = "gpt2", .vocab = 1 << 30}), SOTTO_EINVAL, "out of range");
    assert_fails(resolve((C){.preset = "gpt2", .heads = 7}), SOTTO_EINVAL,
                 "heads = 7 do not divide width = 768");
    assert_fails(resolve((C){.preset = "olmo2-1b", .heads = 3}), SOTTO_EINVAL,
                 "heads = 3 do not divide width = 2048");
    assert_fails(resolve((C){.preset = "diloco-60m", .heads = 5}), SOTTO_EINVAL,
                 "heads = 5 do not divide width = 896");
    assert_fails(resolve((C){.preset = "diloco-60m", .width = 100, .heads = 128}), SOTTO_EINVAL,
                 "heads = 128 do not divide width = 100");
    assert_ok(resolve((C){.preset = "diloco-60m", .heads = 5, .head_width = 64}));
    assert_fails(resolve((C){.preset = "gpt2", .kv_heads = 4}), SOTTO_EINVAL, "kv_heads = 4");
    assert_fails(resolve((C){.preset = "gpt2", .head_width = 32}), SOTTO_EINVAL,
                 "width = 768 must be heads (12) times head_width (32)");
    assert_fails(resolve((C){.preset = "olmo2-1b", .kv_heads = 3}), SOTTO_EINVAL, "kv_heads = 3");
    assert_fails(resolve((C){.preset = "olmo2-1b", .head_width = 64}), SOTTO_EINVAL, "head_width");
    C gpt2 = preset("gpt2");
    gpt2.head_width = 32; /* divides, but is not what the heads share */
    assert_fails(model_config_check(&gpt2), SOTTO_EINVAL, "must be heads (12) times head_width");
    assert_fails(resolve((C){.preset = "gpt2", .activation = "silu"}), SOTTO_EINVAL,
                 "activation 'silu'");
    assert_fails(resolve((C){.preset = "diloco-60m", .activation = "gelu"}), SOTTO_EINVAL,
                 "activation 'gelu'");
    assert_fails(resolve((C){.preset = "gpt-neo-125m", .pattern = "gx"}), SOTTO_EINVAL, "'gx'");
    assert_fails(resolve((C){.preset = "gpt-neo-125m", .layers = 1024}), SOTTO_EINVAL, "at most");
    /* What an architecture has not got is refused, since it would be silently ignored. */
    assert_fails(resolve((C){.preset = "gpt2", .window = 5}), SOTTO_EINVAL, "window = 5");
    assert_fails(resolve((C){.preset = "olmo2-1b", .pattern = "l"}), SOTTO_EINVAL, "pattern = 'l'");
    assert_fails(
        resolve(
            (C){.preset = "nano", .arch = ARCH_MISTRAL, .vocab = 9, .pattern = "gl", .window = 2}),
        SOTTO_EINVAL, "pattern 'gl': mistral has a window in all layers or in none");
    assert_fails(resolve((C){.preset = "nano", .arch = ARCH_QWEN2, .vocab = 9, .pattern = "gl"}),
                 SOTTO_EINVAL, "local layers need model.window");
    assert_fails(resolve((C){.preset = "gpt2", .rope_theta = 5}), SOTTO_EINVAL, "rope_theta = 5");
    struct model_config c = preset("nano");
    c.vocab = 0;
    struct model m;
    assert_fails(model_init(&m, &c, 1, 1), SOTTO_EINVAL, "vocab");
}

/* The weight of the heaviest stage of the best cut of layers [from, n) into `stages`, by trying
 * all. */
static double lightest(const double *flops, int from, int n, int stages)
{
    double sum = 0, best = INFINITY;
    if (stages == 1) {
        for (int i = from; i < n; i++)
            sum += flops[i];
        return sum;
    }
    for (int end = from + 1; end <= n - (stages - 1); end++) {
        sum += flops[end - 1];
        double rest = lightest(flops, end, n, stages - 1);
        best = fmin(best, fmax(sum, rest));
    }
    return best;
}

/* Every cut covers the layers in order without gaps, no stage is empty, tensors are in the stage of
 * their layer, and no other cut has a lighter heaviest stage. */
static void cut_is_balanced(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        for (int layers = 1; layers <= 4; layers++) {
            struct model_config c = tiny_configs[which];
            c.layers = layers;
            c.vocab = layers % 2 ? 29 : 5000; /* a light head, and one that outweighs the rest */
            assert_ok(model_config_resolve(&c));
            const struct extent nominal = {1, c.positions, DTYPE_F32, false};
            struct model whole;
            assert_ok(model_init(&whole, &c, 1, 1));
            double flops[64];
            for (int i = 0; i < whole.n_layer; i++)
                flops[i] = whole.layer[i]->ops->flops(whole.layer[i], nominal);
            for (int n = 1; n <= whole.n_layer; n++) {
                struct model m;
                assert_ok(model_init(&m, &c, n, 4));
                double heaviest = 0, total = 0;
                assert_int_equal(m.first[0], 0);
                assert_int_equal(m.first[n], m.n_layer);
                for (int k = 0; k < n; k++) {
                    assert_true(m.first[k] < m.first[k + 1]);
                    for (int i = m.first[k]; i < m.first[k + 1]; i++)
                        assert_int_equal(m.layer[i]->stage, k);
                    heaviest = fmax(heaviest, model_stage_flops(&m, k, nominal));
                    total += model_stage_flops(&m, k, nominal);
                    assert_int_equal(table_stage_count(&m.table, k) % 4, 0);
                    assert_true(table_stage_count(&m.table, k) > 0);
                }
                double want = lightest(flops, 0, m.n_layer, n);
                if (fabs(heaviest - want) > 1e-9 * want)
                    fail_with("%d stages of %d layers: heaviest %g, possible %g", n, m.n_layer,
                              heaviest, want);
                assert_true(fabs(model_flops(&m, nominal) - 3 * total) < 1e-9 * total);
                assert_int_equal(m.table.parameters, whole.table.parameters);
                model_free(&m);
            }
            model_free(&whole);
        }
    }
}

static void stage_limits(void **state)
{
    (void)state;
    struct model_config c = tiny_configs[0];
    assert_ok(model_config_resolve(&c));
    struct model m;
    assert_fails(model_init(&m, &c, 7, 1), SOTTO_EINVAL, "can be cut into 1 to 6");
    assert_fails(model_init(&m, &c, 0, 1), SOTTO_EINVAL, "0 stages");
    assert_fails(model_init(&m, &c, -1, 1), SOTTO_EINVAL, "-1 stages");
    assert_null(m.layer);
}

/* A stage needs itself; the last one also the token table's when the head is tied. */
static void stage_needs(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        for (int n = 1; n <= 6; n++) {
            struct model m;
            tiny_model(&m, which, n, 1);
            for (int k = 0; k < n; k++) {
                bool needs[6];
                model_stage_needs(&m, k, needs);
                for (int j = 0; j < n; j++)
                    assert_int_equal(needs[j],
                                     j == k || (j == 0 && k == n - 1 && m.config.tied == TIED_YES));
            }
            model_free(&m);
        }
    }
}

/* The same numbers in every tensor for any cut and padding; padding is 0; another seed gives
 * others. */
static void randomize_depends_on_names_alone(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct model whole;
        tiny_model(&whole, which, 1, 1);
        float *want = malloc(table_count(&whole.table) * sizeof *want);
        float *other = malloc(table_count(&whole.table) * sizeof *want);
        model_randomize(&whole, 7, want);
        model_randomize(&whole, 8, other);
        assert_true(memcmp(want, other, table_count(&whole.table) * sizeof *want) != 0);
        for (int n = 1; n <= 6; n++) {
            struct model m;
            tiny_model(&m, which, n, 8);
            size_t count = table_count(&m.table);
            float *flat = malloc(count * sizeof *flat);
            memset(flat, 0xff, count * sizeof *flat);
            model_randomize(&m, 7, flat);
            for (int i = 0; i < m.table.n; i++) {
                const struct table_entry *e = &m.table.entry[i];
                float *x = flat + m.table.stage_start[e->stage] + e->offset;
                const struct table_entry *w = &whole.table.entry[table_find(&whole.table, e->name)];
                assert_memory_equal(x, want + w->offset, e->count * sizeof *x);
                memset(x, 0, e->count * sizeof *x);
            }
            for (size_t i = 0; i < count; i++)
                assert_true(flat[i] == 0);
            free(flat);
            model_free(&m);
        }
        free(want);
        free(other);
        model_free(&whole);
    }
}

/* Gains 1, biases 0, weights of mean 0 and the declared deviation: the sample's is within 5 of its
 * own standard errors, std / sqrt(2 n). */
static void randomize_as_declared(void **state)
{
    (void)state;
    struct model_config c = {
        .arch = ARCH_GPT2, .layers = 8, .width = 64, .heads = 2, .vocab = 300, .positions = 50};
    c.init_std = 0.3;
    assert_ok(model_config_resolve(&c));
    struct model m;
    assert_ok(model_init(&m, &c, 1, 1));
    float *flat = malloc(table_count(&m.table) * sizeof *flat);
    model_randomize(&m, 1, flat);
    for (int i = 0; i < m.table.n; i++) {
        const struct table_entry *e = &m.table.entry[i];
        const float *x = flat + e->offset;
        if (e->init != TABLE_NORMAL) {
            bool gain = strstr(e->name, "weight") != NULL;
            for (size_t j = 0; j < e->count; j++)
                assert_true(x[j] == (gain ? 1 : 0));
            continue;
        }
        double sum = 0, squares = 0, n = (double)e->count;
        for (size_t j = 0; j < e->count; j++) {
            sum += x[j];
            squares += (double)x[j] * x[j];
        }
        /* GPT-2 divides what is added to the residual stream by sqrt(2 layers) = 4. */
        double std = strstr(e->name, "c_proj") ? 0.3 / 4 : 0.3;
        assert_true(fabs((double)e->std - std) < 1e-7);
        if (!(fabs(sum / n) < 5 * std / sqrt(n) &&
              fabs(sqrt(squares / n) - std) < 5 * std / sqrt(2 * n)))
            fail_with("%s: mean %g, deviation %g, declared %g", e->name, sum / n, sqrt(squares / n),
                      std);
    }
    free(flat);
    model_free(&m);
}

/* Of two models, by hand: two a multiplication with a weight, and four a query and key that meet.
 */
static void flops_are_counted(void **state)
{
    (void)state;
    struct model model;
    tiny_model(&model, 2, 1, 1); /* llama: 24 columns of queries, 12 of keys and of values */
    double attention = 10 * (2 * 16 * (24 + 12 + 12 + 24) + 4 * 24 * 3), mlp = 10 * 2 * 16 * 20 * 3;
    double all = 10 * 16 + 2 * (attention + mlp) + 10 * 2 * 16 * 29;
    assert_true(model_flops(&model, (struct extent){2, 5, DTYPE_F32, false}) == 3 * all);
    model_free(&model);
    tiny_model(&model, 1, 1, 1); /* gpt_neo: a global layer and one that sees 3 positions */
    attention = 14 * (2 * 16 * 4 * 16 + 4 * 16 * 4) + 14 * (2 * 16 * 4 * 16 + 4 * 16 * 3);
    all = 14 * 16 + attention + 2 * 14 * 2 * 16 * 64 * 2 + 14 * 2 * 16 * 29;
    assert_true(model_flops(&model, (struct extent){2, 7, DTYPE_F32, false}) == 3 * all);
    model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_are_counted),
        cmocka_unit_test(every_preset_builds),
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(overrides),
        cmocka_unit_test(config_json_round_trip),
        cmocka_unit_test(config_json_of_others),
        cmocka_unit_test(config_json_of_required_members),
        cmocka_unit_test(config_json_of_images),
        cmocka_unit_test(config_json_errors),
        cmocka_unit_test(option_errors),
        cmocka_unit_test(cut_is_balanced),
        cmocka_unit_test(stage_limits),
        cmocka_unit_test(stage_needs),
        cmocka_unit_test(randomize_depends_on_names_alone),
        cmocka_unit_test(randomize_as_declared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

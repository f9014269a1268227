/* Parameters to and from Hugging Face folders. */
#include "nn/tiny.h"

#include "base/log.h"
#include "hf/weights.h"
#include "io/half.h"
#include "io/safetensors.h"

/* Which tensors of a model go into one file, and under what names. */
struct selection {
    int from, to;   /* tensors [from, to)                         */
    bool bare;      /* without "transformer." or "model."         */
    int missing;    /* this one is left out; -1: none             */
    int transposed; /* this one has its dimensions the other way  */
    bool extra;     /* buffers that a model has not got           */
    enum safetensors_type type;
};

static const char *bare_name(const char *name)
{
    return strncmp(name, "transformer.", 12) == 0 ? name + 12
           : strncmp(name, "model.", 6) == 0      ? name + 6
                                                  : name;
}

static void write_file(const struct model *m, const float *flat, const char *path,
                       struct selection s)
{
    struct safetensors_writer w;
    const int64_t one[] = {1};
    const float zero = 0;
    assert_ok(safetensors_writer_init(&w));
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            assert_ok(safetensors_writer_start(&w, path));
        for (int i = s.from; i < s.to; i++) {
            const struct table_entry *e = &m->table.entry[i];
            const float *x = flat + m->table.stage_start[e->stage] + e->offset;
            if (i == s.missing)
                continue;
            if (pass && s.type == SAFETENSORS_F32) {
                assert_ok(safetensors_writer_put(&w, x, e->count * sizeof *x));
            } else if (pass) {
                for (size_t j = 0; j < e->count; j++) {
                    uint16_t half = bf16_round(x[j]);
                    assert_ok(safetensors_writer_put(&w, &half, sizeof half));
                }
            } else {
                int64_t shape[] = {e->shape[0], e->shape[1]};
                if (i == s.transposed) {
                    shape[0] = e->shape[1];
                    shape[1] = e->shape[0];
                }
                assert_ok(safetensors_writer_declare(&w, s.bare ? bare_name(e->name) : e->name,
                                                     s.type, e->ndim, shape));
            }
        }
        if (s.extra && !pass)
            assert_ok(safetensors_writer_declare(&w, "h.0.attn.bias", s.type, 1, one));
        if (s.extra && pass)
            assert_ok(safetensors_writer_put(&w, &zero, safetensors_type_size(s.type)));
    }
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);
}

struct setup {
    struct model model;
    size_t count;
    float *flat, *back;
    char folder[FILE_PATH_ROOM];
};

static void open_setup(struct setup *s, int which, int stages, int pad)
{
    static int number;
    char name[32];
    tiny_model(&s->model, which, stages, pad);
    s->count = table_count(&s->model.table);
    s->flat = malloc(s->count * sizeof *s->flat);
    s->back = malloc(s->count * sizeof *s->back);
    memset(s->back, 0xff, s->count * sizeof *s->back);
    tiny_parameters(&s->model, 5, s->flat);
    snprintf(name, sizeof name, "m%d", number++);
    assert_ok(file_join(s->folder, scratch, name));
    assert_ok(file_make_directories(s->folder));
}

static void close_setup(struct setup *s)
{
    free(s->flat);
    free(s->back);
    model_free(&s->model);
}

static const char *in(const struct setup *s, const char *name)
{
    static char path[4][FILE_PATH_ROOM];
    static int turn;
    char *out = path[turn++ % 4];
    assert_ok(file_join(out, s->folder, name));
    return out;
}

static struct selection all_of(const struct setup *s)
{
    return (struct selection){
        .to = s->model.table.n, .missing = -1, .transposed = -1, .type = SAFETENSORS_F32};
}

/* Saved and loaded, also into another cut with other padding, every bit is there and the padding is
 * 0. */
static void same_bits(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct setup s, other;
        open_setup(&s, which, 3, 8);
        open_setup(&other, which, 2, 4);
        s.flat[0] = -0.0f; /* bits, not values */
        s.flat[1] = 1e-42f;
        assert_ok(weights_save(&s.model, in(&s, "model.safetensors"), s.flat, NULL, NULL));
        assert_ok(weights_load(&s.model, s.folder, s.back));
        assert_memory_equal(s.back, s.flat, s.count * sizeof *s.flat);
        assert_ok(weights_load(&other.model, s.folder, other.back));
        for (int i = 0; i < other.model.table.n; i++) {
            const struct table_entry *a = &s.model.table.entry[i], *b = &other.model.table.entry[i];
            assert_memory_equal(s.flat + s.model.table.stage_start[a->stage] + a->offset,
                                other.back + other.model.table.stage_start[b->stage] + b->offset,
                                a->count * sizeof *s.flat);
        }
        close_setup(&s);
        close_setup(&other);
    }
}

/* Shards with an index, names with and without the outer module's, buffers that are no parameters,
 * and bf16 files. */
static void files_of_others(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct setup s;
        open_setup(&s, which, 1, 1);
        struct selection how = all_of(&s);
        how.bare = true;
        how.extra = true;
        write_file(&s.model, s.flat, in(&s, "model.safetensors"), how);
        assert_ok(weights_load(&s.model, s.folder, s.back));
        assert_memory_equal(s.back, s.flat, s.count * sizeof *s.flat);
        close_setup(&s);

        open_setup(&s, which, 2, 8);
        struct selection first = all_of(&s), second = first;
        first.to = second.from = s.model.table.n / 2;
        write_file(&s.model, s.flat, in(&s, "model-00001-of-00002.safetensors"), first);
        write_file(&s.model, s.flat, in(&s, "model-00002-of-00002.safetensors"), second);
        json_t *map = json_object(), *index = json_object();
        for (int i = 0; i < s.model.table.n; i++)
            json_object_set_new(map, s.model.table.entry[i].name,
                                json_string(i < first.to ? "model-00001-of-00002.safetensors"
                                                         : "model-00002-of-00002.safetensors"));
        json_object_set_new(index, "weight_map", map);
        assert_ok(json_save(index, in(&s, "model.safetensors.index.json"), 2));
        json_decref(index);
        assert_ok(weights_load(&s.model, s.folder, s.back));
        assert_memory_equal(s.back, s.flat, s.count * sizeof *s.flat);
        close_setup(&s);

        open_setup(&s, which, 1, 1);
        how = all_of(&s);
        how.type = SAFETENSORS_BF16;
        write_file(&s.model, s.flat, in(&s, "model.safetensors"), how);
        assert_ok(weights_load(&s.model, s.folder, s.back));
        for (size_t i = 0; i < s.count; i++)
            assert_true(s.back[i] == bf16_widen(bf16_round(s.flat[i])));
        close_setup(&s);
    }
}

static float rounded(enum safetensors_type type, float x)
{
    return type == SAFETENSORS_F32    ? x
           : type == SAFETENSORS_BF16 ? bf16_widen(bf16_round(x))
                                      : f16_widen(f16_round(x));
}

static void count_warnings(enum log_level level, const char *line, void *arg)
{
    (void)line;
    *(int *)arg += level == LOG_WARN;
}

static void check_types(struct setup *s, const enum safetensors_type *asked,
                        const enum safetensors_type *want, int want_warnings)
{
    const struct table *table = &s->model.table;
    enum safetensors_type found[64];
    int warnings = 0;
    log_set(count_warnings, &warnings);
    assert_ok(weights_save(&s->model, in(s, "model.safetensors"), s->flat, NULL, asked));
    log_set(NULL, NULL);
    assert_int_equal(warnings, want_warnings);
    assert_ok(weights_types(&s->model, s->folder, false, found));
    assert_ok(weights_load(&s->model, s->folder, s->back));
    for (int i = 0; i < table->n; i++) {
        const struct table_entry *e = &table->entry[i];
        const size_t at = table->stage_start[e->stage] + e->offset;
        assert_int_equal(found[i], want[i]);
        for (size_t j = 0; j < e->count; j++)
            assert_true(s->back[at + j] == rounded(want[i], s->flat[at + j]));
    }
}

/* Each tensor in a type of its own, found again in the file; a number that a type cannot hold makes
 * its tensor fp32, with a warning. */
static void types_of_tensors(void **state)
{
    (void)state;
    static const enum safetensors_type all[] = {SAFETENSORS_F32, SAFETENSORS_BF16, SAFETENSORS_F16};
    for (int mix = 0; mix < 4; mix++) { /* all of one type, and one after the other */
        struct setup s;
        enum safetensors_type asked[64], want[64];
        int warnings = 0;
        open_setup(&s, 0, 2, 8);
        const struct table *table = &s.model.table;
        assert_true(table->n <= 64);
        for (int i = 0; i < table->n; i++)
            asked[i] = want[i] = all[mix < 3 ? mix : i % 3];
        check_types(&s, asked, want, 0);
        for (int i = 0; i < table->n; i++) {
            const struct table_entry *e = &table->entry[i];
            const bool huge = i % 2 == 0; /* for bf16 too */
            s.flat[table->stage_start[e->stage] + e->offset] = huge ? -3.4e38f : 65505;
            if (asked[i] == SAFETENSORS_F16 || (asked[i] == SAFETENSORS_BF16 && huge)) {
                want[i] = SAFETENSORS_F32;
                warnings++;
            }
        }
        check_types(&s, asked, want, warnings);
        close_setup(&s);
    }
}

/* Each fault is named: the folder, the tensor, what it should be. */
static void faults(void **state)
{
    (void)state;
    for (int which = 0; which < TINY; which++) {
        struct setup s;
        open_setup(&s, which, 2, 1);
        int square = -1; /* a matrix that is not square */
        for (int i = 0; i < s.model.table.n; i++)
            if (s.model.table.entry[i].ndim == 2 &&
                s.model.table.entry[i].shape[0] != s.model.table.entry[i].shape[1])
                square = i;
        assert_true(square >= 0);
        assert_fails(weights_load(&s.model, s.folder, s.back), SOTTO_EIO, s.folder);
        for (int i = 0; i < s.model.table.n; i++) {
            char part[128];
            struct selection how = all_of(&s);
            how.missing = i;
            write_file(&s.model, s.flat, in(&s, "model.safetensors"), how);
            snprintf(part, sizeof part, "'%s' is missing", s.model.table.entry[i].name);
            assert_fails(weights_load(&s.model, s.folder, s.back), SOTTO_EFORMAT, part);
        }
        struct selection how = all_of(&s);
        how.transposed = square;
        write_file(&s.model, s.flat, in(&s, "model.safetensors"), how);
        assert_fails(weights_load(&s.model, s.folder, s.back), SOTTO_EFORMAT,
                     s.model.table.entry[square].name);
        assert_ok(file_write(in(&s, "model.safetensors"), "junk", 4));
        assert_fails(weights_load(&s.model, s.folder, s.back), SOTTO_EFORMAT, "model.safetensors");
        close_setup(&s);
    }
}

/* A parameter that is no number is never saved over one that is, wherever it sits. */
static void no_numbers(void **state)
{
    (void)state;
    struct setup s;
    open_setup(&s, 0, 2, 8);
    assert_ok(weights_save(&s.model, in(&s, "model.safetensors"), s.flat, NULL, NULL));
    for (int i = 0; i < s.model.table.n; i++) {
        const struct table_entry *e = &s.model.table.entry[i];
        float *x = s.flat + s.model.table.stage_start[e->stage] + e->offset + e->count - 1;
        const float good = *x, bad[] = {NAN, INFINITY, -INFINITY};
        *x = bad[i % 3];
        assert_fails(weights_save(&s.model, in(&s, "model.safetensors"), s.flat, NULL, NULL),
                     SOTTO_ENUMERIC, e->name);
        *x = good;
    }
    assert_ok(weights_load(&s.model, s.folder, s.back)); /* the old file is as it was */
    assert_memory_equal(s.back, s.flat, s.count * sizeof *s.flat);
    for (size_t i = 0; i < s.count; i++)
        s.flat[i] = 3e38f; /* large, but numbers: their sum must not be taken for an overflow */
    assert_ok(weights_save(&s.model, in(&s, "model.safetensors"), s.flat, NULL, NULL));
    close_setup(&s);
}

/* A tensor of others beside a model's own. */
struct other_tensor {
    const char *name;
    enum safetensors_type type;
};

/* All tensors of a model with `others` of one number each, and with an output projection if `head`
 * is not NULL. */
static void write_with(const struct setup *s, const struct other_tensor *others, int n,
                       const float *head)
{
    const struct table_entry *embedding = &s->model.table.entry[0];
    const int64_t one[] = {1};
    const double zero = 0;
    struct safetensors_writer w;
    assert_ok(safetensors_writer_init(&w));
    for (int write = 0; write < 2; write++) {
        if (write)
            assert_ok(safetensors_writer_start(&w, in(s, "model.safetensors")));
        for (int i = 0; i < s->model.table.n; i++) {
            const struct table_entry *e = &s->model.table.entry[i];
            const float *x = s->flat + s->model.table.stage_start[e->stage] + e->offset;
            assert_ok(write ? safetensors_writer_put(&w, x, e->count * sizeof *x)
                            : safetensors_writer_declare(&w, e->name, SAFETENSORS_F32, e->ndim,
                                                         e->shape));
        }
        if (head)
            assert_ok(write ? safetensors_writer_put(&w, head, embedding->count * sizeof *head)
                            : safetensors_writer_declare(&w, "lm_head.weight", SAFETENSORS_F32, 2,
                                                         embedding->shape));
        for (int i = 0; i < n; i++)
            assert_ok(write
                          ? safetensors_writer_put(&w, &zero, safetensors_type_size(others[i].type))
                          : safetensors_writer_declare(&w, others[i].name, others[i].type, 1, one));
    }
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);
}

/* What a model does not read is a fault that names it, but for what older versions of transformers
 * left in files, and an output projection that equals the embedding it is tied to. */
static void tensors_of_others(void **state)
{
    (void)state;
    static const struct other_tensor leftovers[] = {
        {"h.0.attn.bias", SAFETENSORS_F32},
        {"transformer.h.1.attn.masked_bias", SAFETENSORS_F32},
        {"transformer.h.1.attn.attention.masked_bias", SAFETENSORS_F32},
        {"model.layers.1.self_attn.rotary_emb.inv_freq", SAFETENSORS_F32},
        {"transformer.h.0.attn.attention.bias", SAFETENSORS_BOOL},
        {"transformer.h.1.attn.attention.bias", SAFETENSORS_U8},
    };
    static const struct other_tensor biases[] = {
        {"model.layers.1.mlp.up_proj.bias", SAFETENSORS_F32},
        {"model.layers.0.mlp.up_proj.bias", SAFETENSORS_F32},
        {"model.layers.0.mlp.gate_proj.bias", SAFETENSORS_F32},
        {"model.layers.0.mlp.down_proj.bias", SAFETENSORS_F32},
    };
    static const struct other_tensor floats[] = {{"h.0.attn.attention.bias", SAFETENSORS_F32}};
    for (int which = 0; which < TINY; which++) {
        struct setup s;
        open_setup(&s, which, 2, 8);
        const bool tied = s.model.config.tied == TIED_YES;
        write_with(&s, leftovers, sizeof leftovers / sizeof *leftovers, NULL);
        assert_ok(weights_check(&s.model, s.folder, false));
        write_with(&s, biases, 4, NULL);
        assert_fails(weights_check(&s.model, s.folder, false), SOTTO_EFORMAT,
                     "4 tensors are not in the model");
        assert_non_null(strstr(sotto_error(), archs[s.model.config.arch]->name));
        assert_non_null(strstr(sotto_error(), ": 'model.layers.0.mlp.down_proj.bias', "
                                              "'model.layers.0.mlp.gate_proj.bias', "
                                              "'model.layers.0.mlp.up_proj.bias', ..."));
        write_with(&s, floats, 1, NULL);
        assert_fails(weights_check(&s.model, s.folder, false), SOTTO_EFORMAT,
                     "1 tensor is not in the model");
        if (tied) {
            write_with(&s, NULL, 0, s.flat);
            assert_ok(weights_check(&s.model, s.folder, false));
            write_with(&s, NULL, 0, s.flat + 1);
            assert_fails(weights_check(&s.model, s.folder, false), SOTTO_EFORMAT,
                         "'lm_head.weight' differs from the embedding, '");
            assert_non_null(
                strstr(sotto_error(), "with \"tie_word_embeddings\": false in config.json"));
        }
        close_setup(&s);
    }
}

static void config_faults(void **state)
{
    (void)state;
    struct setup s;
    struct model_config config;
    open_setup(&s, 0, 1, 1);
    assert_fails(weights_config(&config, at("nowhere")), SOTTO_EIO, "nowhere is not a folder");
    assert_fails(weights_config(&config, s.folder), SOTTO_EIO, "config.json");
    static const struct {
        const char *text, *part;
    } bad[] = {{"{", "config.json"},
               {"[1, 2]", "config.json"},
               {"{\"model_type\": \"t5\"}", "'t5' is not supported"},
               {"{\"model_type\": 5}", "model_type"},
               {"{\"model_type\": \"gpt2\", \"n_layer\": \"two\"}", "\"n_layer\" must be"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_ok(file_write(in(&s, "config.json"), bad[i].text, strlen(bad[i].text)));
        assert_fails(weights_config(&config, s.folder), SOTTO_EFORMAT, bad[i].part);
        assert_non_null(strstr(sotto_error(), "config.json"));
    }
    assert_fails(weights_save(&s.model, at("nowhere/m"), s.flat, NULL, NULL), SOTTO_EIO, "nowhere");
    close_setup(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),         cmocka_unit_test(files_of_others),
        cmocka_unit_test(types_of_tensors),  cmocka_unit_test(faults),
        cmocka_unit_test(no_numbers),        cmocka_unit_test(config_faults),
        cmocka_unit_test(tensors_of_others),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* Models over images that came from elsewhere, tuned on images of our own: what of their folder is
 * kept, and what the data's classes change. */
#include "data/pictures.h"
#include "train/fixture.h"

#include "hf/weights.h"
#include "train/run/run_worker.h"

static const char *in(const char *folder, const char *name)
{
    char both[128];
    snprintf(both, sizeof both, "%s/%s", folder, name);
    return at(both);
}

/* Of a vector file, what a model's own file has; `bare`: without its classifier, and names begin
 * after the first point. `extra` (optional): tensors of one number, up to a NULL. */
static void write_tensors(const char *from, const char *folder, bool bare, const char *const *extra)
{
    struct safetensors set;
    struct safetensors_writer w;
    const int64_t one[] = {1};
    const float zero = 0;
    assert_ok(safetensors_open(&set, from));
    assert_ok(safetensors_writer_init(&w));
    for (int write = 0; write < 2; write++) {
        if (write)
            assert_ok(safetensors_writer_start(&w, at("tensors")));
        for (size_t k = 0; k < 2 * set.count; k++) { /* wider types first */
            const struct safetensors_entry *e = &set.entry[k % set.count];
            const char *point = strchr(e->name, '.');
            if ((e->type == SAFETENSORS_I64) != (k < set.count))
                continue;
            if (!point || (bare && strncmp(e->name, "classifier.", 11) == 0))
                continue;
            assert_ok(write ? safetensors_writer_put(&w, e->data, e->bytes)
                            : safetensors_writer_declare(&w, bare ? point + 1 : e->name, e->type,
                                                         e->ndim, e->shape));
        }
        for (int i = 0; extra && extra[i]; i++)
            assert_ok(write ? safetensors_writer_put(&w, &zero, sizeof zero)
                            : safetensors_writer_declare(&w, extra[i], SAFETENSORS_F32, 1, one));
    }
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);
    safetensors_close(&set);
    assert_int_equal(rename(at("tensors"), in(folder, "model.safetensors")), 0);
}

/* The model of tests/vectors in a folder as transformers leaves one, with a member that nobody here
 * knows. */
static void make_theirs(const char *name, const char *folder)
{
    char path[FILE_PATH_ROOM];
    struct safetensors set;
    json_t *json;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/%s.safetensors", TEST_VECTORS, name);
    assert_ok(safetensors_open(&set, path));
    const char *text = safetensors_metadata(&set, "config");
    assert_ok(json_parse(&json, text, strlen(text), "config"));
    safetensors_close(&set);
    json_object_set_new(json, "their_own", json_pack("[f, n]", 1.5));
    write_tensors(path, folder, false, NULL);
    assert_ok(json_save(json, in(folder, "config.json"), 2));
    json_decref(json);
}

static void assert_same_text(const char *a, const char *b, const char *name)
{
    char *x = slurp(in(a, name)), *y = slurp(in(b, name));
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void make_colours(void)
{
    for (int i = 0; i < 8; i++) {
        char name[64];
        snprintf(name, sizeof name, "colours/%s", i % 2 ? "red" : "blue");
        make_folder(name);
        snprintf(name, sizeof name, "colours/%s/%d.ppm", i % 2 ? "red" : "blue", i);
        make_ppm(name, 16, 16, i % 2 ? 200 + i : 9, 20, i % 2 ? 9 : 200 + i);
    }
}

/* From the model in `init` on colours, with up to 4 options of its own. */
static struct run_config *configure_tuning(const char *out, const char *init,
                                           const char *const *options)
{
    static struct run_config c;
    c = configure_run(out);
    strcpy(c.train.init, at(init));
    strcpy(c.data.train, at("colours"));
    set_all(&c, (const char *[]){"train.steps=2", "train.batch=4", "data.holdout=0", NULL}, 4);
    set_all(&c, options, 4);
    return &c;
}

static struct run_result tune(const char *out, const char *init, const char *const *options)
{
    struct run *run = malloc(sizeof *run);
    assert_ok(run_open(run, configure_tuning(out, init, options), NULL));
    assert_ok(run_train(run));
    const struct run_result result = run->result;
    run_close(run);
    free(run);
    return result;
}

/* Tuned on colours, the folder has their config.json to the byte and all tensors under their names,
 * in their shapes and types; batch norms have counted on. */
static void tuning_keeps_the_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"resnet", "resnet_bottleneck", "vit"};
    make_colours();
    for (int m = 0; m < 3; m++) {
        struct safetensors theirs, ours;
        size_t tensors = 0;
        make_theirs(names[m], "theirs");
        tune("tuned", "theirs", (const char *[]){"train.head=keep", NULL});
        assert_same_text("theirs", "tuned", "config.json");
        assert_ok(safetensors_open(&theirs, at("theirs")));
        assert_ok(safetensors_open(&ours, at("tuned")));
        for (size_t i = 0; i < ours.count; i++) {
            const struct safetensors_entry *have = &ours.entry[i];
            const struct safetensors_entry *want = safetensors_find(&theirs, have->name);
            int64_t seen;
            assert_non_null(want);
            assert_true(want->type == have->type && want->ndim == have->ndim);
            assert_memory_equal(want->shape, have->shape, (size_t)have->ndim * sizeof *have->shape);
            tensors++;
            if (have->type != SAFETENSORS_I64)
                continue;
            assert_ok(safetensors_read_i64(have, &seen));
            assert_int_equal(seen, 7 + 2);
        }
        assert_int_equal(tensors, theirs.count);
        safetensors_close(&theirs);
        safetensors_close(&ours);
        assert_ok(file_remove_tree(at("theirs")));
        assert_ok(file_remove_tree(at("tuned")));
    }
}

/* Their model without its classifier, as a bare model is saved: nothing is said of classes, which
 * means two. */
static void make_bare(const char *folder)
{
    char from[FILE_PATH_ROOM];
    strcpy(from, in(folder, "model.safetensors"));
    write_tensors(from, folder, true, NULL);
    json_t *config;
    assert_ok(json_open(&config, in(folder, "config.json"), 1 << 20));
    json_object_del(config, "id2label");
    json_object_del(config, "label2id");
    json_object_set_new(config, "architectures", json_pack("[s]", "BareModel"));
    assert_ok(json_save(config, in(folder, "config.json"), 2));
    json_decref(config);
}

/* All tensors are theirs to the bit; `anew`: but for the classifier, which is of two classes. What
 * batch norms have seen goes on. */
static void check_tensors(const char *theirs, const char *ours, bool anew)
{
    struct safetensors a, b;
    int new_ones = 0;
    assert_ok(safetensors_open(&a, at(theirs)));
    assert_ok(safetensors_open(&b, at(ours)));
    for (size_t i = 0; i < b.count; i++) {
        const struct safetensors_entry *have = &b.entry[i];
        const struct safetensors_entry *want = safetensors_find(&a, have->name);
        if (!want)
            want = safetensors_find(&a, strchr(have->name, '.') + 1);
        if (anew && strncmp(have->name, "classifier.", 11) == 0)
            new_ones += have->shape[0] == 2;
        else if (!strstr(have->name, "running") && !strstr(have->name, "tracked"))
            assert_memory_equal(have->data, want->data, have->bytes);
    }
    assert_int_equal(new_ones, anew ? 2 : 0);
    safetensors_close(&a);
    safetensors_close(&b);
}

static void check_config(const char *theirs, const char *ours, const char *class)
{
    json_t *a, *b;
    json_t *want = json_pack("{s:{s:s, s:s}, s:{s:i, s:i}, s:[s]}", "id2label", "0", "blue", "1",
                             "red", "label2id", "blue", 0, "red", 1, "architectures", class);
    assert_ok(json_open(&a, in(theirs, "config.json"), 1 << 20));
    assert_ok(json_open(&b, in(ours, "config.json"), 1 << 20));
    json_object_update(a, want);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    json_decref(want);
}

/* Data of another number of classes get a classifier of their own under their names, all else is
 * theirs; so do models that have none. What was tuned is gone on from, and tuned again with the
 * classifier that it has. */
static void classifier_is_made_anew(void **state)
{
    (void)state;
    static const char *const names[] = {"resnet", "vit"};
    static const char *const classes[] = {"ResNetForImageClassification",
                                          "ViTForImageClassification"};
    static const char processor[] =
        "{\"their_own\": 1, \"size\": {\"height\": 12, \"width\": 12}, "
        "\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5]}";
    make_colours();
    for (int i = 0; i < 4; i++) {
        make_theirs(names[i % 2], "theirs");
        make_file("theirs/preprocessor_config.json", processor, sizeof processor - 1);
        if (i / 2)
            make_bare("theirs");
        tune("still", "theirs", (const char *[]){"optim.lr=0", "train.steps=1", NULL});
        check_tensors("theirs", "still", true);
        check_config("theirs", "still", classes[i % 2]);
        assert_same_text("theirs", "still", "preprocessor_config.json");
        assert_true(tune("still", "theirs", (const char *[]){"train.resume=true", NULL}).step == 2);
        tune("again", "still", (const char *[]){"optim.lr=0", "train.steps=1", NULL});
        assert_same_text("still", "again", "config.json");
        check_tensors("still", "again", false);
        assert_ok(file_remove_tree(at("theirs")));
        assert_ok(file_remove_tree(at("still")));
        assert_ok(file_remove_tree(at("again")));
    }
}

/* Their model of five classes under these names, the others c0, c2 and c3. */
static void name_theirs(const char *first, const char *second)
{
    json_t *config, *names = json_object();
    for (int i = 0; i < 5; i++) {
        char number[8], name[16];
        snprintf(number, sizeof number, "%d", i);
        snprintf(name, sizeof name, "c%d", i);
        json_object_set_new(names, number, json_string(i == 4 ? first : i == 1 ? second : name));
    }
    assert_ok(json_open(&config, in("theirs", "config.json"), 1 << 20));
    json_object_set_new(config, "id2label", names);
    assert_ok(json_save(config, in("theirs", "config.json"), 2));
    json_decref(config);
}

static const char *label_of(const json_t *config, const char *number)
{
    return json_string_value(json_object_get(json_object_get(config, "id2label"), number));
}

/* Kept with more classes than the data: by the names that it knows, or the first ones, which are
 * then called so; with some of them it is neither. */
static void classifier_is_kept(void **state)
{
    (void)state;
    static const char *const keep[] = {"train.head=keep", "train.steps=1", NULL};
    struct run *run = malloc(sizeof *run);
    json_t *config;
    make_colours();
    make_theirs("resnet", "theirs");
    name_theirs("blue", "red");
    assert_ok(run_open(run, configure_tuning("kept", "theirs", keep), NULL));
    const struct image_set *set = images_set(run->train);
    assert_true(set->labels[0] == 4 && set->labels[set->count - 1] == 1 && set->classes == 5);
    assert_ok(run_train(run));
    run_close(run);
    assert_same_text("theirs", "kept", "config.json");
    name_theirs("c4", "c1");
    tune("first", "theirs", keep);
    assert_ok(json_open(&config, in("first", "config.json"), 1 << 20));
    assert_string_equal(label_of(config, "0"), "blue");
    assert_string_equal(label_of(config, "1"), "red");
    assert_string_equal(label_of(config, "4"), "c4");
    json_decref(config);
    name_theirs("blue", "c1");
    assert_fails(run_open(run, configure_tuning("no", "theirs", keep), NULL), SOTTO_EINVAL,
                 "the model has the data's class 'blue' and has no 'red'");
    free(run);
}

/* Layers for other tasks stay away where the classifier is made anew, and a pooler always; nothing
 * else does. */
static void heads_of_others(void **state)
{
    (void)state;
    static const char *const heads[] = {"decoder.0.weight", "vit.embeddings.mask_token",
                                        "vit.pooler.dense.weight", NULL},
                             *const layer[] = {"vit.encoder.layer.7.extra", NULL};
    char from[FILE_PATH_ROOM];
    make_colours();
    make_theirs("vit", "theirs");
    strcpy(from, in("theirs", "model.safetensors"));
    write_tensors(from, "theirs", false, heads);
    tune("made", "theirs", (const char *[]){"train.head=new", NULL});
    struct run *run = malloc(sizeof *run);
    const struct run_config *c =
        configure_tuning("kept", "theirs", (const char *[]){"train.head=keep", NULL});
    assert_fails(run_open(run, c, NULL), SOTTO_EFORMAT,
                 "1 tensor is not in the model of config.json (vit), and would be ignored: "
                 "'decoder.0.weight'");
    for (int keep = 0; keep < 2; keep++) {
        make_theirs("vit", "theirs");
        write_tensors(from, "theirs", false, layer);
        c = configure_tuning("kept", "theirs",
                             (const char *[]){keep ? "train.head=keep" : "train.head=new", NULL});
        assert_fails(run_open(run, c, NULL), SOTTO_EFORMAT, "ignored: 'vit.encoder.layer.7.extra'");
    }
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuning_keeps_the_folder),
        cmocka_unit_test(classifier_is_made_anew),
        cmocka_unit_test(heads_of_others),
        cmocka_unit_test(classifier_is_kept),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

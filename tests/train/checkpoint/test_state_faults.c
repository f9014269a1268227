/* Numbers in a checkpoint that no run has written: each is refused by its name, before it is
 * computed with and before memory is taken for it. */
#include "train/fixture.h"

#include <unistd.h>

#include "train/run/run_worker.h"

enum { OPTIONS = 4 };

static struct run_config configure(const char *const options[OPTIONS], const char *out)
{
    static const char *const basic[] = {
        "model.layers=1",          "model.width=16",     "model.heads=2",
        "model.positions=16",      "train.batch=2",      "train.steps=5",
        "data.holdout=0",          "train.workers=2",    "train.nodes=2",
        "train.threads=1",         "train.time=virtual", "worker.step=100ms",
        "link.inter=1GB/s,100ms",  "train.save_every=4", "train.keep=0",
        "optim.schedule=constant",
    };
    struct run_config c = configure_run(out);
    set_all(&c, basic, sizeof basic / sizeof *basic);
    set_all(&c, options, OPTIONS);
    return c;
}

static enum sotto_status train(const struct run_config *c, int64_t steps)
{
    struct run_config config = *c;
    struct run run;
    config.train.steps = steps;
    config.train.resume = true;
    TRY(run_open(&run, &config, NULL));
    enum sotto_status st = run_train(&run);
    run_close(&run);
    return st;
}

/* Copies a state file with one value changed: the note `name`, or a number of the list, the first,
 * or with "#i" after the name number i. */
static void change(const char *from, const char *to, const char *named, const char *value)
{
    char name[64];
    size_t number = 0;
    assert_true(sscanf(named, "%63[^#]#%zu", name, &number) >= 1);
    struct safetensors set;
    struct safetensors_writer w;
    bool changed = false;
    assert_ok(safetensors_open(&set, from));
    assert_ok(safetensors_writer_init(&w));
    json_t *notes = json_object_get(set.file[0].header, "__metadata__"), *note;
    const char *key;
    json_object_foreach(notes, key, note)
    {
        const bool this = strcmp(key, name) == 0;
        assert_ok(safetensors_writer_note(&w, key, this ? value : json_string_value(note)));
        changed |= this;
    }
    for (int wide = 8; wide > 0; wide /= 2) /* the order that the writer asks for */
        for (size_t i = 0; i < set.count; i++)
            if ((int)safetensors_type_size(set.entry[i].type) == wide)
                assert_ok(safetensors_writer_declare(&w, set.entry[i].name, set.entry[i].type,
                                                     set.entry[i].ndim, set.entry[i].shape));
    assert_ok(safetensors_writer_start(&w, to));
    for (int wide = 8; wide > 0; wide /= 2)
        for (size_t i = 0; i < set.count; i++) {
            const struct safetensors_entry *e = &set.entry[i];
            size_t done = 0;
            if ((int)safetensors_type_size(e->type) != wide)
                continue;
            if (strcmp(e->name, name) == 0) {
                int64_t integer = strtoll(value, NULL, 10);
                double real = strtod(value, NULL);
                assert_true(wide == 8 && 8 * number < e->bytes);
                assert_ok(safetensors_writer_put(&w, e->data, 8 * number));
                assert_ok(safetensors_writer_put(
                    &w, e->type == SAFETENSORS_I64 ? (void *)&integer : &real, 8));
                done = 8 * number + 8;
                changed = true;
            }
            assert_ok(safetensors_writer_put(&w, e->data + done, e->bytes - done));
        }
    assert_ok(safetensors_writer_finish(&w));
    safetensors_writer_free(&w);
    safetensors_close(&set);
    if (!changed)
        fail_with("the state has no '%s'", name);
}

struct fault {
    const char *name, *value, *message;
};

#define MINUS_ONE "-4616189618054758400" /* -1.0 in a row, whose bits are kept as an integer */

static const struct fault acco[] = {
    {"step", "-3", "state 'step' is -3, want 0 to"},
    {"step", "9223372036854775807", "state 'step' is 9223372036854775807"},
    {"tokens", "-1", "state 'tokens' is -1"},
    {"samples", "-1", "state 'samples' is -1"},
    {"data.tokens", "-1", "state 'data.tokens' is -1"},
    {"report.loss", "nan", "state 'report.loss' is nan"},
    {"report.losses", "-1", "state 'report.losses' is -1"},
    {"report.eval_targets", "-1", "state 'report.eval_targets' is -1"},
    {"report.eval_hits", "-1", "state 'report.eval_hits' is -1"},
    {"cost.seconds", "nan", "the costs of a worker are nan seconds"},
    {"cost.seconds", "1e9", "the costs of a worker are 1e+09 seconds"},
    {"cost.between", "-1", "the costs of a worker are -1 bytes"},
    {"cost.rows", MINUS_ONE, "the costs of a worker are -1 seconds"},
    {"cost.rows#9", MINUS_ONE, "an exchange is to take -1 seconds more"},
    {"cost.rows#13", MINUS_ONE, "the clock of worker 0 is at -1 seconds"},
    {"microbatches", "-4", "state 'microbatches' is -4"},
    {"microbatches", "9223372036854775807", "state 'microbatches' is 9223372036854775807"},
    {"place.next", "-2", "state 'place.next' is -2"},
    {"worker.next", "-1", "state 'worker.next' is -1"},
    {"worker.next", "9223372036854775807", "state 'worker.next' is"},
    {"worker.loss", "nan", "state 'worker.loss' is nan"},
    {"worker.targets", "inf", "state 'worker.targets' is inf"},
    {"worker.tokens", "-1", "state 'worker.tokens' is -1"},
    {"worker.microbatches", "1e300", "state 'worker.microbatches' is 1e+300"},
    {"pending", "0", "state 'pending' is of 0 workers"},
    {"pending", "-1", "state 'pending' is -1"},
    {"pending", "3", "is I64 [2] in the file, this run has I64 [3]"},
    {"history.n", "1099511627776", "a history of 1099511627776 counts in 32 bytes"},
    {"history.n", "-1", "state 'history.n' is -1"},
    {"optim.t", "-1", "state 'optim.t' is -1"},
};

static const struct fault diloco[] = {
    {"replicas", "-1", "state 'replicas' is -1"},
    {"replicas", "2097152", "state 'replicas' is 2097152"},
    {"replicas", "3", "is I64 [2] in the file, this run has I64 [3]"},
    {"replica.optim.t", "-5", "state 'replica.optim.t' is -5"},
    {"outer.round", "-1", "state 'outer.round' is -1"},
    {"outer.step", "9223372036854775807", "state 'outer.step' is 9223372036854775807"},
    {"outer.steps", "-1", "state 'outer.steps' is -1"},
    {"outer.t", "-9", "state 'outer.t' is -9"},
};

static const struct fault co2[] = {
    {"outer.tau", "-1", "state 'outer.tau' is -1"},
    {"outer.under_way", "2", "state 'outer.under_way' is 2, want 0 to 1"},
    {"outer.knows_d", "-1", "state 'outer.knows_d' is -1, want 0 to 1"},
};

static const struct fault overlap[] = {
    {"outer.under_way", "-1", "state 'outer.under_way' is -1, want 0 to 1"},
};

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *options[OPTIONS];
        const struct fault *fault;
        size_t n;
    } methods[] = {
        {{"strategy.preset=acco"}, acco, sizeof acco / sizeof *acco},
        {{"strategy.preset=diloco", "diloco.H=3"}, diloco, sizeof diloco / sizeof *diloco},
        {{"strategy.preset=co2", "co2.tau=3"}, co2, sizeof co2 / sizeof *co2},
        {{"strategy.preset=overlap-local-sgd", "overlap-local.tau=3"},
         overlap,
         sizeof overlap / sizeof *overlap},
    };
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char folder[16], path[96], good[32], list[96];
        snprintf(folder, sizeof folder, "run%d", (int)m);
        struct run_config c = configure(methods[m].options, folder);
        assert_ok(train(&c, 4));
        snprintf(path, sizeof path, "%s/checkpoints/step-00000004/state.safetensors", folder);
        snprintf(list, sizeof list, "%s/checkpoints/step-00000004/files.txt", folder);
        assert_int_equal(unlink(at(list)), 0); /* other values have other lengths */
        snprintf(good, sizeof good, "good%d", (int)m);
        assert_ok(file_link(at(path), at(good)));
        for (size_t i = 0; i < methods[m].n; i++) {
            const struct fault *f = &methods[m].fault[i];
            char to[FILE_PATH_ROOM];
            strcpy(to, at(path));
            change(at(good), to, f->name, f->value);
            assert_fails(train(&c, 5), SOTTO_EFORMAT, f->message);
            assert_non_null(strstr(sotto_error(), "state.safetensors: "));
        }
        if (methods[m].fault == acco) { /* and where another number of workers takes over */
            struct run_config alone = c;
            set(&alone, "train.workers=1");
            set(&alone, "train.nodes=1");
            set(&alone, "link.inter=none");
            change(at(good), at(path), "worker.next", "7163375912303591600");
            assert_fails(train(&alone, 5), SOTTO_EFORMAT, "state 'worker.next' is 716");
        }
        assert_ok(file_link(at(good), at(path)));
        assert_ok(train(&c, 5));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(faults)};
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}

/* libFuzzer: any bytes as the state of a run, through the visitors of every method. What is loaded
 * is trained with: whatever a file says, a round computes or fails with a message.
 *
 * The first byte chooses the method. With its highest bit set the rest are edits of a state that
 * the method has saved itself, so that the file stays well-formed; otherwise the rest is the file.
 */
#define _GNU_SOURCE /* mkstemp */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/worker.h"
#include "io/state.h"
#include "nn/model.h"
#include "strategy/strategy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The model that tests/fuzz/seed trains. */
static const char *const sizes[][2] = {{"layers", "1"},    {"width", "8"},  {"heads", "1"},
                                       {"positions", "8"}, {"vocab", "16"}, {"mlp_width", "8"}};

/* In the order of tests/fuzz/seed. */
static const char *const methods[][3] = {
    {"preset=ddp"},
    {"preset=zero1"},
    {"preset=fsdp"},
    {"preset=dpu"},
    {"preset=acco-wp"},
    {"preset=acco"},
    {"preset=local-sgd"},
    {"preset=overlap-local-sgd"},
    {"preset=slowmo"},
    {"preset=co2"},
    {"preset=co2", "penalty=norm"},
    {"preset=diloco"},
    {"preset=diloco", "outer=adam", "drop=0.5"},
};
enum { METHODS = sizeof methods / sizeof *methods, STEPS = 3 };

static void must(enum sotto_status st)
{
    if (st != SOTTO_OK)
        abort();
}

/* Gradients of 1 and a loss of 1, wherever it is. */
static enum sotto_status begin(struct oracle *o, int slot, int64_t index, int rank, bool sum)
{
    (void)o, (void)slot, (void)rank, (void)sum;
    assert(index >= 0);
    return SOTTO_OK;
}

static enum sotto_status forward(struct oracle *o, int slot, int k, const struct view *theta)
{
    (void)o, (void)slot, (void)k, (void)theta;
    return SOTTO_OK;
}

static enum sotto_status backward(struct oracle *o, int slot, int k, const struct view *theta,
                                  const struct view *grad)
{
    (void)slot, (void)theta;
    for (size_t i = 0; i < table_stage_count(o->table, k); i++)
        ((float *)grad[k].data)[i] += 1;
    return SOTTO_OK;
}

static enum sotto_status result(struct oracle *o, int slot, struct device *dev,
                                struct oracle_result *out)
{
    (void)o, (void)slot, (void)dev;
    *out = (struct oracle_result){1, 1, 1};
    return SOTTO_OK;
}

static const struct oracle_ops oracle_ops = {
    .begin = begin, .forward = forward, .backward = backward, .result = result};

struct lab {
    struct strategy_config config;
    struct optim_config optim;
    struct worker worker;
    struct memory memory;
    struct device dev;
    struct oracle oracle;
    struct mesh mesh;
    struct strategy *s;
};

static const struct model *model(void)
{
    static struct model made;
    static struct model_config config; /* all zero before its defaults */
    struct option_section section =
        OPTION_SECTION_OF("model", "", model_options, model_options_count, &config);
    if (made.n_layer)
        return &made;
    option_defaults(&section, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        must(option_set(&section, 1, sizes[i][0], sizes[i][1]));
    must(model_config_resolve(&config));
    must(model_init(&made, &config, 1, 1));
    return &made;
}

static void lab_open(struct lab *lab, int method)
{
    *lab = (struct lab){.oracle = {.ops = &oracle_ops, .table = &model()->table, .slots = 1}};
    struct option_section sections[STRATEGY_SECTIONS];
    strategy_defaults(&lab->config);
    optim_defaults(&lab->optim);
    for (int i = 0; i < 3 && methods[method][i]; i++) {
        char key[32];
        const char *value = strchr(methods[method][i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(value - methods[method][i]), methods[method][i]);
        strategy_sections(&lab->config, sections);
        must(option_set(sections, STRATEGY_SECTIONS, key, value + 1));
    }
    must(strategy_resolve(&lab->config, 1));
    must(worker_alone(&lab->worker));
    must(device_open(&lab->dev, "cpu", &lab->memory, 1));
    must(mesh_open(&lab->mesh, &lab->worker, lab->config.groups, &lab->dev));
    struct strategy_setup setup = {.config = &lab->config,
                                   .optim = &lab->optim,
                                   .oracle = &lab->oracle,
                                   .dev = &lab->dev,
                                   .mesh = &lab->mesh};
    must(strategy_open(&lab->s, &setup));
    float *flat = calloc(table_count(lab->oracle.table), sizeof *flat);
    if (!flat)
        abort();
    must(lab->s->ops->import(lab->s, flat));
    free(flat);
}

static enum sotto_status lab_train(struct lab *lab, int steps)
{
    struct round round;
    const struct plan plan = {.lr = 1e-3, .next_lr = 1e-3, .want_norm = true};
    for (int i = 0; i < steps; i++)
        TRY(lab->s->ops->round(lab->s, &plan, &round));
    return SOTTO_OK;
}

static void lab_close(struct lab *lab)
{
    lab->s->ops->free(lab->s);
    mesh_close(&lab->mesh);
    device_close(&lab->dev);
    comm_free(lab->worker.world);
}

static void load(int method, const void *data, size_t size)
{
    struct state_file file;
    struct state_visitor v;
    if (state_file_open_memory(&file, data, size, "input") != SOTTO_OK)
        return;
    struct lab lab;
    lab_open(&lab, method);
    state_loader_init(&v, &file);
    enum sotto_status st = lab.s->ops->visit(lab.s, &v);
    if (st != SOTTO_OK)
        assert(*sotto_error());
    else
        (void)state_loader_finish(&v);
    state_free(&v);
    if (st == SOTTO_OK && lab_train(&lab, 2) != SOTTO_OK)
        mesh_abort(&lab.mesh, SOTTO_ENUMERIC);
    lab_close(&lab);
    state_file_close(&file);
}

/* What each method saves after a few rounds. */
static const struct safetensors *saved(int method)
{
    static struct safetensors set[METHODS];
    if (set[method].count)
        return &set[method];
    char path[] = "/tmp/fuzz_state.XXXXXX";
    struct lab lab;
    struct state_visitor v;
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    lab_open(&lab, method);
    must(lab_train(&lab, STEPS));
    must(state_saver_init(&v));
    must(lab.s->ops->visit(lab.s, &v));
    must(state_saver_write(&v, path));
    state_free(&v);
    lab_close(&lab);
    must(safetensors_open(&set[method], path));
    unlink(path);
    return &set[method];
}

/* A file under construction: the entries of a saved state, edited. */
struct value {
    char name[256];
    const char *type;
    size_t size, count; /* of an element; elements */
    bool dropped;
    uint8_t *data;
};

struct draft {
    struct value *piece;
    size_t n;
    json_t *notes;
};

static void draft_open(struct draft *d, const struct safetensors *from)
{
    d->n = from->count;
    d->piece = calloc(d->n, sizeof *d->piece);
    d->notes = json_deep_copy(json_object_get(from->file[0].header, "__metadata__"));
    if (!d->piece || !d->notes)
        abort();
    for (size_t i = 0; i < d->n; i++) {
        const struct safetensors_entry *e = &from->entry[i];
        struct value *p = &d->piece[i];
        *p = (struct value){
            .type = e->type_name, .size = safetensors_type_size(e->type), .count = e->count};
        snprintf(p->name, sizeof p->name, "%s", e->name);
        if (!(p->data = malloc(e->bytes + 1)))
            abort();
        if (e->bytes)
            memcpy(p->data, e->data, e->bytes);
    }
}

static void draft_close(struct draft *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->piece[i].data);
    free(d->piece);
    json_decref(d->notes);
}

static void resize(struct value *p, size_t count)
{
    uint8_t *data = calloc(count * p->size + 1, 1);
    if (!data)
        abort();
    if (count && p->count)
        memcpy(data, p->data, (count < p->count ? count : p->count) * p->size);
    free(p->data);
    p->data = data;
    p->count = count;
}

static void set_note(struct draft *d, unsigned which, const char *text)
{
    void *at = json_object_iter(d->notes);
    for (unsigned i = which % (unsigned)(json_object_size(d->notes) + 1); i > 0 && at; i--)
        at = json_object_iter_next(d->notes, at);
    if (at && text)
        json_object_iter_set_new(d->notes, at, json_string(text));
    else if (at)
        json_object_del(d->notes, json_object_iter_key(at));
}

enum { EDIT = 12 }; /* bytes: kind, place, which (2), value (8) */

static void edit(struct draft *d, const uint8_t *e)
{
    const unsigned which = e[2] | (unsigned)e[3] << 8;
    struct value *p = &d->piece[which % d->n];
    int64_t integer;
    double real;
    char text[64];
    memcpy(&integer, e + 4, 8);
    memcpy(&real, e + 4, 8);
    switch (e[0] % 7) {
    case 0:
        snprintf(text, sizeof text, "%lld", (long long)integer);
        set_note(d, which, text);
        break;
    case 1:
        snprintf(text, sizeof text, "%a", real);
        set_note(d, which, text);
        break;
    case 2:
        set_note(d, which, NULL);
        break;
    case 3: /* small numbers mean something more often */
        integer = (int8_t)e[4];
        snprintf(text, sizeof text, "%lld", (long long)integer);
        set_note(d, which, text);
        break;
    case 4:
        if (p->count * p->size >= 8)
            memcpy(p->data + e[1] % (p->count * p->size / 8) * 8, e + 4, 8);
        break;
    case 5:
        resize(p, (e[4] | (size_t)e[5] << 8) % 512);
        break;
    default:
        p->dropped = true;
    }
}

static uint8_t *draft_write(const struct draft *d, size_t *size)
{
    json_t *header = json_object();
    size_t bytes = 0;
    json_object_set(header, "__metadata__", d->notes);
    for (size_t i = 0; i < d->n; i++) {
        const struct value *p = &d->piece[i];
        if (p->dropped || json_object_get(header, p->name))
            continue;
        json_object_set_new(header, p->name,
                            json_pack("{s:s, s:[I], s:[I,I]}", "dtype", p->type, "shape",
                                      (json_int_t)p->count, "data_offsets", (json_int_t)bytes,
                                      (json_int_t)(bytes + p->count * p->size)));
        bytes += p->count * p->size;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const size_t length = text ? strlen(text) : 0;
    uint8_t *file = malloc(8 + length + bytes);
    if (!text || !file)
        abort();
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(file + 8, text, length);
    uint8_t *to = file + 8 + length;
    for (size_t i = 0; i < d->n; i++) {
        const struct value *p = &d->piece[i];
        if (p->dropped || json_object_del(header, p->name) != 0)
            continue;
        memcpy(to, p->data, p->count * p->size);
        to += p->count * p->size;
    }
    *size = 8 + length + bytes;
    free(text);
    json_decref(header);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const int method = (data[0] & 0x7f) % METHODS;
    if (!(data[0] & 0x80)) {
        load(method, data + 1, size - 1);
        return 0;
    }
    struct draft draft;
    size_t bytes;
    draft_open(&draft, saved((data[0] >> 3 & 1) ? (method + 1) % METHODS : method));
    for (size_t i = 1; i + EDIT <= size; i += EDIT)
        edit(&draft, data + i);
    uint8_t *file = draft_write(&draft, &bytes);
    draft_close(&draft);
    load(method, file, bytes);
    free(file);
    return 0;
}

/* sotto info */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/option/only.h"
#include "cli/schedule.h"
#include "comm/mpi/mpi.h"
#include "data/image/images.h"
#include "hf/weights.h"
#include "tensor/ops.h"
#include "train/plan/estimate.h"

struct info_config {
    int batch, seq, vocab, image_size, channels, classes, stages;
    bool recompute;
    int activations; /* enum dtype */
    int schedule;    /* enum schedule_kind */
    int placement;
    char svg[FILE_PATH_ROOM];
};

static const char *const activation_names[] = {"fp32", "bf16", NULL}; /* as enum dtype */

#define S struct info_config
static const struct option table[] = {
    OPTION_INT(S, batch, "8", 1, 1 << 20, "sequences of a micro-batch, for the memory table"),
    OPTION_INT(S, seq, "0", 0, 1 << 22, "tokens of a sequence; 0: the model's positions"),
    OPTION_INT(S, vocab, "8192", 1, 1 << 24, "vocabulary of presets that take the tokenizer's"),
    OPTION_INT(S, image_size, "0", 0, 1 << 14,
               "rows and columns that the images of a set are brought to, 0: as they are; for "
               "presets that take the data's, 0: 32"),
    OPTION_INT(S, channels, "3", 1, 3, "for such presets: 1: grey, 3: colours"),
    OPTION_INT(S, classes, "10", 1, 1 << 20, "number of classes, for such presets"),
    OPTION_INT(S, stages, "0", 0, 4096,
               "stages that the model is cut into; 0: 1, or 4 with a schedule"),
    OPTION_BOOL(S, recompute, "false", "keep only the stages' inputs"),
    OPTION_ENUM(S, activations, "fp32", activation_names, "as train.activations"),
    OPTION_ENUM(
        S, schedule, "none", schedule_names,
        "draw the timeline of cyclic data parallelism, or of a schedule to compare it with"),
    OPTION_ENUM(S, placement, "auto", schedule_placements,
                "where the schedule runs; auto: pp for 1f1b, otherwise dp"),
    OPTION_FILE(S, svg, "", "draw the schedule into this file too"),
};
#undef S

static int info_stages(const struct info_config *c)
{
    return c->stages ? c->stages : c->schedule == SCHEDULE_NONE ? 1 : 4;
}

static int info_sections(void *config, struct option_section *out)
{
    out[0] = (struct option_section)OPTION_SECTION("", "options", table, config);
    return 1;
}

static const char *const of_text[] = {"seq", "vocab", NULL};
static const char *const of_images[] = {"image_size", "channels", "classes", NULL};
static const char *const of_models[] = {"batch",  "seq",       "vocab",       "channels", "classes",
                                        "stages", "recompute", "activations", NULL};

/* Refuses keys that the user set without an effect here. */
static enum sotto_status refuse_keys(const struct info_config *c, const char *const *keys,
                                     const char *why)
{
    for (; *keys; keys++)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++)
            if (strcmp(table[i].key, *keys) == 0 && !option_is_default(&table[i], c))
                return fail(SOTTO_EINVAL, "%s has no effect: %s", *keys, why);
    return SOTTO_OK;
}

/* Sets open sizes as data would set them. */
static enum sotto_status complete_sizes(struct model_config *m, const struct info_config *c)
{
    const struct image_sizes *open = model_config_image(m);
    if (!open && !m->vocab)
        m->vocab = c->vocab;
    if (!open)
        return SOTTO_OK;
    const int side = c->image_size ? c->image_size : 32;
    return model_config_fit(m, &(struct image_sizes){open->height ? open->height : side,
                                                     open->width ? open->width : side,
                                                     open->channels ? open->channels : c->channels,
                                                     open->classes ? open->classes : c->classes});
}

/* Prints the sizes of [model], which language models have. */
static void print_sizes(const struct model_config *m)
{
    if (model_config_kind(m)->sequences)
        printf("  %6d %6d %6d %7d", m->layers, m->width, m->heads, m->vocab);
    else
        printf("  %6s %6s %6s %7s", "-", "-", "-", "-");
}

static enum sotto_status print_presets(const struct info_config *c)
{
    printf("\n%-14s %12s  %6s %6s %6s %7s  %s\n", "preset", "parameters", "layers", "width",
           "heads", "vocab", "");
    for (int i = 0; i < model_presets_count; i++) {
        struct model_config m = {0};
        struct model model;
        strcpy(m.preset, model_presets[i].config.preset);
        TRY(model_config_resolve(&m));
        TRY(complete_sizes(&m, c));
        TRY(model_init(&model, &m, 1, 1));
        printf("%-14s %12zu", m.preset, model.table.parameters);
        print_sizes(&m);
        printf("  %s\n", model_presets[i].about);
        model_free(&model);
    }
    return SOTTO_OK;
}

static enum sotto_status print_memory_table(const struct model *model, const struct info_config *c)
{
    struct estimate_model m;
    const int t = c->seq ? c->seq : model->config.positions;
    const struct extent e = model_extent(model, c->batch, t, (enum dtype)c->activations);
    const double n = (double)table_count(&model->table);
    TRY(estimate_model(
        model,
        (struct estimate_what){.e = e, .slots = 1, .recompute = c->recompute, .evaluates = true},
        &m));
    const double rest = m.activations + m.scratch + 4 * n;
    if (model_config_kind(&model->config)->sequences)
        printf("\nmemory of one worker with adamw, %d x %d tokens a micro-batch, MB:\n", c->batch,
               t);
    else
        printf("\nmemory of one worker with adamw, %d images a micro-batch, MB:\n", c->batch);
    printf("  %-12s %10s %10s\n", "", "fp32", "mixed");
    printf("  %-12s %10.1f %10.1f\n", "parameters", 4 * n / 1e6, 2 * n / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "gradients", 4 * n / 1e6, 2 * n / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "optimizer", 8 * n / 1e6, 12 * n / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "activations", m.activations / 1e6, m.activations / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "scratch", m.scratch / 1e6, m.scratch / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "checkpoint", 4 * n / 1e6, 4 * n / 1e6);
    printf("  %-12s %10.1f %10.1f\n", "together", (16 * n + rest) / 1e6, (16 * n + rest) / 1e6);
    printf("work: %.2f GFLOP a micro-batch, forward and backward\n", model_flops(model, e) / 1e9);
    return SOTTO_OK;
}

static void describe_model(const char *name, const struct model *model, struct model_config *m)
{
    const struct image_sizes *s = model_config_image(m);
    printf("%s: %zu parameters in %d tensors; ", name, model->table.parameters, model->table.n);
    if (s)
        printf("%s over images of %d x %d x %d, %d classes, %d layers\n", archs[m->arch]->name,
               s->height, s->width, s->channels, s->classes, model->n_layer);
    else
        printf("%d layers, width %d, %d heads (%d key/value), head width %d,\n"
               "feed-forward %d, vocabulary %d, %d positions, %s output projection\n",
               m->layers, m->width, m->heads, m->kv_heads, m->head_width, m->mlp_width, m->vocab,
               m->positions, m->tied == TIED_YES ? "tied" : "separate");
}

/* Prints the images of each class, for sets with few classes. */
static void print_classes(const struct image_set *set)
{
    enum { FEW = 100 };
    for (int k = 0; k < set->classes && set->classes <= FEW; k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < set->count; i++)
            count += set->labels[i] == k;
        printf("  class %-3d %8lld images%s%s\n", k, (long long)count, set->names ? "  " : "",
               set->names ? set->names[k] : "");
    }
}

static enum sotto_status print_image_set(const char *path, const struct info_config *c)
{
    struct data_config data;
    struct loader *loader, *valid;
    const struct images_setup setup = {0};
    char mean[OPTION_ROOM], std[OPTION_ROOM];
    data_defaults(&data);
    snprintf(data.train, sizeof data.train, "%s", path);
    data.holdout = 0;
    data.image_size = c->image_size;
    TRY(refuse_keys(c, of_models, "images are only counted"));
    TRY(images_open(&loader, &data, DATA_TRAIN, &setup));
    const struct image_set *set = images_set(loader);
    const struct image_norm *norm = images_norm(loader);
    enum sotto_status st = images_open_valid(&valid, loader, &data);
    norm_print(norm->mean, norm->channels, mean);
    norm_print(norm->std, norm->channels, std);
    if (st == SOTTO_OK) {
        printf("%s: %lld images of %d x %d x %d in %d classes, %d source%s; mean %s, standard "
               "deviation %s\n",
               path, (long long)set->count, set->height, set->width, set->channels, set->classes,
               set->n_sources, set->n_sources == 1 ? "" : "s", mean, std);
        print_classes(set);
    }
    if (valid) {
        printf("for validation: %lld images\n", (long long)loader_tokens(valid));
        loader_close(valid);
    }
    loader_close(loader);
    return st;
}

/* Prints the work of each stage; the cut makes the heaviest stage as light as possible. */
static void print_stages(const struct model *model, const struct info_config *c)
{
    const int t = c->seq ? c->seq : model->config.positions;
    const struct extent e = model_extent(model, c->batch, t, (enum dtype)c->activations);
    const double all = model_flops(model, e);
    double heaviest = 0;
    printf("\n%d stages, forward and backward of a micro-batch:\n", model->n_stage);
    printf("  %-6s %-12s %12s %12s %8s\n", "stage", "sublayers", "parameters", "GFLOP", "share");
    for (int k = 0; k < model->n_stage; k++) {
        const double work = 3 * model_stage_flops(model, k, e);
        char layers[32];
        heaviest = work > heaviest ? work : heaviest;
        snprintf(layers, sizeof layers, "%d-%d", model->first[k] + 1, model->first[k + 1]);
        printf("  %-6d %-12s %12zu %12.3f %6.1f %%\n", k + 1, layers,
               table_stage_count(&model->table, k), work / 1e9, 100 * work / all);
    }
    printf("heaviest stage: %.3f of an equal share\n", heaviest * model->n_stage / all);
}

static enum sotto_status print_model(const char *name, const struct info_config *c)
{
    struct model_config m = {0};
    struct model model;
    char path[FILE_PATH_ROOM], why[64];
    TRY(file_join(path, name, "config.json"));
    if (file_exists(path)) {
        TRY(weights_config(&m, name));
    } else {
        snprintf(m.preset, sizeof m.preset, "%s", name);
        TRY(fail_in(model_config_resolve(&m), "%s is neither a model folder nor a preset: ", name));
        TRY(complete_sizes(&m, c));
    }
    const struct sample_kind *kind = model_config_kind(&m);
    snprintf(why, sizeof why, "the model reads %s", kind->noun);
    TRY(refuse_keys(c, kind->sequences ? of_images : of_text, why));
    TRY(model_init(&model, &m, info_stages(c), 1));
    describe_model(name, &model, &m);
    enum sotto_status st = print_memory_table(&model, c);
    if (st == SOTTO_OK && info_stages(c) > 1)
        print_stages(&model, c);
    model_free(&model);
    return st;
}

/* Finds the file that the shell would start for `name`. */
static bool find_program(const char *name, char path[FILE_PATH_ROOM])
{
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        const size_t length = strcspn(folders, ":");
        const int used = snprintf(path, FILE_PATH_ROOM, "%.*s/%s", (int)length, folders, name);
        if (length && used < FILE_PATH_ROOM && access(path, X_OK) == 0)
            return true;
        folders += length + (folders[length] == ':');
    }
    return false;
}

/* Prints the other programs that the command can work with. */
static void print_programs(void)
{
    char text[FILE_PATH_ROOM];
    printf("workers: threads of a process, or simulated in virtual time\n");
    mpi_describe(text, sizeof text);
    if (*text)
        printf("MPI: %s: workers also as ranks of mpirun or srun\n", text);
    else
        printf("MPI: not in this build; it takes Open MPI or MPICH, and a build without "
               "SOTTO_STATIC\n");
    if (find_program("gnuplot", text))
        printf("gnuplot: %s\n", text);
    else
        printf("gnuplot: not installed; `sotto compare` draws no figures\n");
}

/* True if `name` holds images; a folder with a model is never taken for images. */
static bool is_image_set(const char *name)
{
    char path[FILE_PATH_ROOM];
    struct data_config data;
    if (!file_exists(name) || file_join(path, name, "config.json") != SOTTO_OK || file_exists(path))
        return false;
    data_defaults(&data);
    snprintf(data.train, sizeof data.train, "%s", name);
    return images_recognise(&data) != DATA_AUTO;
}

static enum sotto_status print_schedule(const struct info_config *c)
{
    const enum schedule_kind kind = (enum schedule_kind)c->schedule;
    struct cdp_schedule s;
    TRY(schedule_make(kind, c->placement, info_stages(c), &s));
    TRY(schedule_print(&s, kind));
    return *c->svg ? schedule_svg(&s, kind, c->svg) : SOTTO_OK;
}

static enum sotto_status run_info(void *config, const char *const *words, int n_words)
{
    const struct info_config *c = config;
    if (n_words > 1)
        return fail(SOTTO_EINVAL, "one model at most, got '%s' and '%s'", words[0], words[1]);
    if (c->schedule == SCHEDULE_NONE && (*c->svg || c->placement))
        return fail(SOTTO_EINVAL, "--%s belongs to a schedule: set --schedule, too",
                    *c->svg ? "svg" : "placement");
    if (n_words == 1 && is_image_set(words[0]))
        return print_image_set(words[0], c);
    if (n_words == 1)
        TRY(print_model(words[0], c));
    if (n_words == 1 && c->schedule != SCHEDULE_NONE)
        printf("\n");
    if (c->schedule != SCHEDULE_NONE)
        return print_schedule(c);
    if (n_words == 1)
        return SOTTO_OK;
    struct memory memory = {0};
    struct device dev;
    char list[1024];
    const int gpus = device_gpus(list, sizeof list);
    TRY(device_open(&dev, "cpu", &memory, 0));
    printf("sotto %s\n", sotto_version());
    printf("devices: cpu (%s, %d thread%s), %sreference, apart\n", device_describe(&dev),
           dev.threads, dev.threads == 1 ? "" : "s", gpus < 0 ? "" : "cuda, ");
    device_close(&dev);
    if (gpus > 0)
        printf("%s\n", list);
    else
        printf("GPUs: %s\n", gpus < 0 ? "not in this build; it takes CUDA's compiler, nvcc, "
                                        "and SOTTO_CUDA=AUTO or ON"
                                      : "none, or no driver for them");
    print_programs();
    return print_presets(c);
}

const struct command command_info = {
    .name = "info",
    .summary = "features of this build; sizes of a preset, model or set of images",
    .usage = "[PRESET|MODEL|IMAGES] [--key=value ...]",
    .example = "  sotto info\n  sotto info gpt2 --batch=4 --seq=256\n"
               "  sotto info gpt2 --stages=4\n"
               "  sotto info --schedule cdp-v2 --stages 4 --svg=timeline.svg",
    .sections = info_sections,
    .run = run_info,
};

#include "train/config/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const activation_names[] = {"fp32", "bf16", NULL}; /* as enum dtype */
static const char *const time_names[] = {"real", "virtual", NULL};
static const char *const save_dtype_names[] = {"auto", "fp32", "bf16", "fp16", NULL};
static const char *const head_names[] = {"auto", "keep", "new", NULL};
static const char *const oracle_names[] = {"model", "null", NULL};
static const char *const collective_names[] = {"native", "ring", NULL};
static const char *const nccl_names[] = {"auto", "off", "on", NULL};

#define S struct train_config
static const struct option train_options[] = {
    {OPTION_OF(S, out, OPTION_TYPE_TEXT, "run",
               "folder of the run: checkpoints, metrics, the model"),
     .room = sizeof(((S *)0)->out), .also = "output output_dir out_dir"},
    {OPTION_OF(S, init, OPTION_TYPE_TEXT, "",
               "Hugging Face model folder to start from instead of new weights"),
     .room = sizeof(((S *)0)->init), .also = "model_name_or_path pretrained"},
    OPTION_ENUM(S, head, "auto", head_names,
                "classifier of an `init` model over images; auto: new if the model has no "
                "classifier, or another number of classes than the data"),
    OPTION_BOOL(
        S, resume, "false",
        "resume from the newest checkpoint in `out`, or in the folder that follows --resume, which "
        "may be a checkpoint itself"),
    {OPTION_OF(S, steps, OPTION_TYPE_LONG, "-1",
               "rounds (updates of the parameters); -1: 1000, or no limit if tokens, samples or "
               "seconds are given"),
     .min = -1, .max = 1e15, .also = "max_steps iterations iters rounds"},
    {OPTION_OF(S, tokens, OPTION_TYPE_LONG, "0",
               "end after this many tokens, of all workers; 0: no limit"),
     .max = 1e15, .also = "epochs num_epochs num_train_epochs"},
    OPTION_LONG(S, samples, "0", 0, 1e15,
                "end after this many sequences or images, of all workers; 0: no limit"),
    OPTION_REAL(S, seconds, "0", 0, 1e12, "end after this training time; 0: no limit"),
    {OPTION_OF(S, batch, OPTION_TYPE_INT, "8", "sequences or images of a micro-batch"), .min = 1,
     .max = 1 << 20, .also = "batch_size micro_batch per_device_train_batch_size"},
    {OPTION_OF(S, seq, OPTION_TYPE_INT, "0", "tokens of a sequence; 0: the model's positions"),
     .max = 1 << 22, .also = "seq_len seq_length block_size max_length context"},
    OPTION_LONG(S, seed, "1", 0, 1e15, "seed of new weights and of the order of the data"),
    OPTION_LONG(S, log_every, "10", 1, 1e15, "rounds between metrics"),
    OPTION_LONG(S, eval_every, "0", 0, 1e15, "rounds between evaluations; 0: at the end only"),
    OPTION_REAL(S, eval_seconds, "0", 0, 1e9,
                "seconds of training between evaluations, in addition to eval_every; 0: none"),
    OPTION_LONG(S, eval_batches, "50", 0, 1e15,
                "micro-batches of an evaluation, spread over the held-out data; 0: all"),
    OPTION_BOOL(S, save, "true",
                "false: no checkpoints and no model, only metrics and the report; a stopped run "
                "cannot be resumed"),
    OPTION_LONG(S, save_every, "0", 0, 1e15,
                "rounds between checkpoints; 0: by save_minutes and at the end only"),
    {OPTION_OF(S, save_minutes, OPTION_TYPE_REAL, "15",
               "minutes of real time between checkpoints, in addition to save_every: made after "
               "the next round or, if groups train independently, the next exchange; 0: never"),
     .max = 1e9, .also = "save_seconds"},
    OPTION_INT(S, keep, "3", 0, 1 << 20, "checkpoints that are kept; 0: all"),
    OPTION_BOOL(
        S, keep_best, "false",
        "keep the checkpoint with the lowest held-out loss too, in the folder `best` of `out`, "
        "which is a run's folder itself"),
    OPTION_LONG(S, patience, "0", 0, 1e15,
                "end after this many evaluations in a row without a lower held-out loss; 0: never"),
    OPTION_ENUM(S, save_dtype, "auto", save_dtype_names,
                "type of the saved weights; auto: the type in `init`, fp32 for a new model"),
    OPTION_INT(S, workers, "0", 0, 1 << 20,
               "workers in this process; 0: one, or the ranks that MPI started"),
    OPTION_INT(S, nodes, "0", 0, 1 << 20,
               "nodes of the workers, consecutive workers in about equal parts; 0: one, or "
               "under MPI the hosts"),
    OPTION_ENUM(S, time, "real", time_names,
                "virtual: a simulated cluster, see [link] and [worker]"),
    OPTION_ENUM(S, oracle, "model", oracle_names,
                "null: sizes and times without arithmetic, in virtual time only"),
    OPTION_INT(S, threads, "0", 0, 1024, "cores to use, by all workers on a machine; 0: all"),
    OPTION_BOOL(S, pin, "false",
                "keep each worker's threads and memory to cores of its own, next to each other"),
    OPTION_INT(S, stages, "0", 0, 4096,
               "stages that the model is cut into; 0: one, with several workers one a layer"),
    OPTION_BOOL(S, recompute, "false", "keep only the stages' inputs and compute the rest again"),
    OPTION_ENUM(S, activations, "fp32", activation_names,
                "type of activations between layers, kept for the backward pass and sent between "
                "stages; bf16 takes half the memory, and sums are fp32 in both cases"),
    OPTION_BOOL(S, trace, "false",
                "write the bytes of activations of every stage's forward and backward to "
                "trace-WORKER.tsv in `out`"),
    OPTION_BOOL(S, check_memory, "true",
                "refuse a run whose estimated memory is more than there is left"),
    OPTION_BOOL(S, check_disk, "true",
                "refuse a run whose checkpoints do not fit the disk of `out`"),
    OPTION_TEXT(S, device, "cpu", DEVICE_HELP),
};
#undef S

#define S struct worker_config
static const struct option worker_options[] = {
    OPTION_TEXT(S, speed, "1",
                "relative speeds of workers, \"1,1,1,0.25\"; the last speed is "
                "repeated"),
    OPTION_TEXT(S, step, "", "time of a micro-batch at speed 1, \"50ms\"; empty: measured once"),
    OPTION_TEXT(S, memory, "",
                "memory bandwidth at speed 1, \"20GB/s\", which gives the time of steps, averages "
                "and copies of vectors; none: no time; empty: measured if step is, else none"),
    OPTION_REAL(S, jitter, "0", 0, 10,
                "standard deviation of a micro-batch's time, as a share of "
                "that time"),
    OPTION_LONG(S, jitter_seed, "1", 0, 1e15, "seed of the jitter"),
};
#undef S

#define S struct link_config
static const struct option link_options[] = {
    OPTION_TEXT(S, intra, "", "links inside a node, \"25GB/s,2us\"; empty: infinitely fast"),
    OPTION_TEXT(S, inter, "",
                "links between nodes (train.nodes), \"100Mbit/s,5ms\"; empty: infinitely fast"),
    OPTION_INT(S, adapters, "1", 0, 1 << 20,
               "network adapters of a node, each as fast as `inter`, assigned to the node's "
               "workers in turn; 0: one a worker"),
    OPTION_TEXT(S, speed, "1",
                "relative speeds of the nodes' adapters, \"1,1,0.25\"; the last speed is repeated"),
};
#undef S

#define S struct comm_config
static const struct option comm_options[] = {
    OPTION_ENUM(S, collectives, "ring", collective_names,
                "under MPI: ring sums in the order of threads, with the same bits; native is the "
                "library's own, slower in every measurement: 0.7 against 2.3 GB/s between 2 ranks, "
                "252 against 475 tokens/s over 100 Mbit/s"),
    OPTION_ENUM(
        S, nccl, "auto", nccl_names,
        "under MPI: on sends vectors from GPU to GPU by NCCL, summed in the order of threads; off: "
        "through host memory; auto: on if all ranks find libnccl.so.2 and have a GPU of their own"),
    OPTION_REAL(S, meet, "20", 0, 1e6,
                "under MPI: seconds for the hosts' first messages to each other; then the run ends "
                "and names the hosts that do not reach each other; 0: no limit"),
};
#undef S

#define S struct null_size_config
static const struct option null_options[] = {
    OPTION_LONG(S, parameters, "0", 0, 1e15, "parameters of the model; 0: those of [model]"),
    OPTION_LONG(S, activation_bytes, "0", 0, 1e15, "bytes of activations of a micro-batch"),
};
#undef S

void run_sections(struct run_config *c, struct option_section s[RUN_SECTIONS])
{
    struct option_section models[MODEL_SECTIONS];
    model_sections(&c->model, models);
    s[0] = (struct option_section)OPTION_SECTION(
        "train", "the run: its folder, length, batch, checkpoints, workers", train_options,
        &c->train);
    s[1] = models[0];
    s[2] = data_section(&c->data);
    s[3] = optim_section(&c->optim);
    s[4] = (struct option_section)OPTION_SECTION(
        "worker", "workers of a simulated cluster: speeds, time of a micro-batch", worker_options,
        &c->worker);
    s[5] = (struct option_section)OPTION_SECTION(
        "link", "modelled links between workers, in virtual or in real time", link_options,
        &c->link);
    s[6] = (struct option_section)OPTION_SECTION("comm", "how workers communicate", comm_options,
                                                 &c->comm);
    s[7] = (struct option_section)OPTION_SECTION(
        "null", "sizes of a model that is not computed (train.oracle = null)", null_options,
        &c->null);
    memcpy(s + RUN_SHARED, models + 1, RUN_MODELS * sizeof *s);
    strategy_sections(&c->strategy, s + RUN_SHARED + RUN_MODELS);
}

enum sotto_status config_parse_kept(struct run_config *config, const char *text, const char *name)
{
    struct option_section sections[RUN_SECTIONS];
    memset(&config->model, 0, sizeof config->model); /* fields that are no options, too */
    run_sections(config, sections);
    option_defaults(sections, RUN_SECTIONS);
    return option_load_text(sections, RUN_SECTIONS, text, name);
}

enum sotto_status config_load_kept(struct run_config *config, const char *path)
{
    char *text;
    TRY(option_file(path, &text));
    enum sotto_status st = config_parse_kept(config, text, path);
    free(text);
    return st;
}

void config_differences(const struct run_config *before, const struct run_config *after,
                        config_difference *each, void *arg)
{
    struct option_section x[RUN_SECTIONS], y[RUN_SECTIONS];
    run_sections((struct run_config *)before, x); /* not modified */
    run_sections((struct run_config *)after, y);
    for (int s = 0; s < RUN_SECTIONS; s++) {
        for (int i = 0; i < x[s].count; i++) {
            char key[2 * OPTION_ROOM], room[2][OPTION_ROOM];
            const char *old_value = option_print(&x[s].table[i], x[s].config, room[0]);
            const char *new_value = option_print(&y[s].table[i], y[s].config, room[1]);
            if (strcmp(old_value, new_value) == 0)
                continue;
            snprintf(key, sizeof key, "%s%s%s", x[s].name, *x[s].name ? "." : "",
                     x[s].table[i].key);
            each(arg, key, old_value, new_value);
        }
    }
}

enum sotto_status config_seconds(const char *key, const char *text, double *out)
{
    static const struct {
        const char *name;
        double seconds;
    } unit[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60}};
    char *end;
    double value = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof unit / sizeof *unit && end != text; i++)
        if (strcmp(end, unit[i].name) == 0 && value >= 0) {
            *out = value * unit[i].seconds;
            if (*out <= CONFIG_SECONDS)
                return SOTTO_OK;
            return fail(SOTTO_EINVAL, "%s = %.80s: want at most %g s", key, text, CONFIG_SECONDS);
        }
    return fail(SOTTO_EINVAL, "%s = %s: want a time such as 50ms or 1.5s", key, text);
}

enum sotto_status config_speeds(const char *key, const char *text, const char *whose, int n,
                                double *out)
{
    const char *at = text;
    if (!*text)
        return fail(SOTTO_EINVAL, "%s is empty: want numbers with commas, such as 1,0.5", key);
    for (int r = 0; r < n; r++) {
        char *end;
        if (!*at) { /* the last speed is repeated */
            out[r] = out[r - 1];
            continue;
        }
        out[r] = strtod(at, &end);
        if (end == at || (*end && *end != ',') ||
            !(out[r] >= 1 / CONFIG_SPEED && out[r] <= CONFIG_SPEED))
            return fail(SOTTO_EINVAL,
                        "%s = %.80s: want numbers from %g to %g with commas, got '%.20s'", key,
                        text, 1 / CONFIG_SPEED, CONFIG_SPEED, at);
        at = *end ? end + 1 : end;
        if (*end && !*at)
            return fail(SOTTO_EINVAL, "%s = %.80s ends with a comma", key, text);
    }
    if (*at)
        return fail(SOTTO_EINVAL, "%s = %.80s names more than %d %s", key, text, n, whose);
    return SOTTO_OK;
}

void config_set_aside_nodes(struct run_config *config, const struct run_config *base)
{
    struct train_config *t = &config->train;
    struct link_config *l = &config->link;
    const bool alone = t->workers == 1, one = t->nodes == 1 && base->train.nodes != 1;
    if (alone && t->nodes == base->train.nodes)
        t->nodes = 0;
    if (!alone && !one)
        return;
    if (strcmp(l->inter, base->link.inter) == 0)
        l->inter[0] = '\0';
    if (l->adapters == base->link.adapters)
        l->adapters = 1;
    if (strcmp(l->speed, base->link.speed) == 0)
        strcpy(l->speed, "1");
}

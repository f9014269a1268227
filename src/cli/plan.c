#include "cli/run_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/image/images.h"
#include "train/config/budget.h"
#include "train/plan/disk.h"
#include "train/plan/estimate.h"
#include "train/plan/traffic.h"

static void print_image_plan(const struct run *run)
{
    const struct model *m = &run->model;
    printf("model: %s over images of %d x %d x %d: %.2f million parameters\n",
           archs[m->config.arch]->name, m->sample.dims[0], m->sample.dims[1], m->sample.dims[2],
           (double)run->table->parameters / 1e6);
    if (!run->train)
        return;
    const struct image_set *set = images_set(run->train);
    const struct image_norm *norm = images_norm(run->train);
    char mean[OPTION_ROOM], std[OPTION_ROOM];
    norm_print(norm->mean, norm->channels, mean);
    norm_print(norm->std, norm->channels, std);
    printf("data: %lld images of %d classes in %d source%s, mean %s, standard deviation %s; %d "
           "images a micro-batch, %d a step and worker\n",
           (long long)loader_tokens(run->train), set->classes, set->n_sources,
           set->n_sources == 1 ? "" : "s", mean, std, run->config.train.batch,
           run->config.strategy.accumulate);
}

static void print_text_plan(const struct run *run)
{
    const struct model_config *m = &run->model.config;
    const struct train_config *t = &run->config.train;
    const struct loader *data = run->train;
    printf("model: %d layers, width %d, %d heads, vocabulary %d: %.2f million parameters\n",
           m->layers, m->width, m->heads, m->vocab, (double)run->table->parameters / 1e6);
    if (data)
        printf("data: %lld tokens in %d source%s; %d x %d tokens a micro-batch, %d a step and "
               "worker\n",
               (long long)loader_tokens(data), data->sources, data->sources == 1 ? "" : "s",
               t->batch, t->seq, run->config.strategy.accumulate);
}

/* Prints the number of threads if threads share cores. */
static void print_crowd(const struct cluster *c)
{
    int cores;
    const int threads = cluster_crowd(c, &cores);
    if (threads)
        printf("threads: %d share %d %s\n", threads, cores, cores == 1 ? "core" : "cores");
}

static void print_header(const struct run *run)
{
    const struct train_config *t = &run->config.train;
    const int groups = run->config.strategy.groups;
    char method[OPTION_ROOM], cluster[CLUSTER_ROOM], device[RUN_DEVICE_ROOM];
    if (t->oracle == ORACLE_NULL)
        printf("null oracle: %.2f million parameters in %d stages\n",
               (double)run->table->parameters / 1e6, run->table->n_stage);
    else if (run_kind(run)->sequences)
        print_text_plan(run);
    else
        print_image_plan(run);
    run_describe_device(run, device);
    if (t->oracle != ORACLE_NULL)
        printf("device: %s\n", device);
    cluster_describe(&run->cluster, cluster);
    printf("cluster: %s\n", cluster);
    strategy_describe(&run->config.strategy, method);
    if (run->cluster.size > 1)
        printf("workers: %d %s in %d group%s of %d%s, %s\n", run->cluster.size,
               run->cluster.mpi       ? "MPI ranks"
               : t->time == TIME_REAL ? "threads"
                                      : "simulated",
               groups, groups == 1 ? "" : "s", run->cluster.size / groups,
               groups > 1 && groups == run->config.strategy.nodes ? ", one a node" : "", method);
    print_crowd(&run->cluster);
    if (t->time == TIME_VIRTUAL)
        printf("virtual time: a micro-batch takes %s at speed 1\n", run->config.worker.step);
    if (*run->checkpoint)
        printf("resuming from %s\n", run->checkpoint);
    fflush(stdout);
}

/* Returns the value of a key as a user would type it. */
static const char *value_of(const struct run_config *config, const char *section, const char *key,
                            char room[OPTION_ROOM])
{
    struct option_section all[RUN_SECTIONS];
    run_sections((struct run_config *)config, all); /* read only */
    for (int s = 0; s < RUN_SECTIONS; s++)
        for (int i = 0; i < all[s].count; i++)
            if (strcmp(all[s].name, section) == 0 && strcmp(all[s].table[i].key, key) == 0)
                return option_print(&all[s].table[i], all[s].config, room);
    return "";
}

static void print_method(const struct run *run)
{
    const struct run_config *c = &run->config;
    char method[OPTION_ROOM], room[OPTION_ROOM];
    strategy_describe(&c->strategy, method);
    printf("method: %s on a mesh of %d x %d (groups x workers of a group), %s\n", method,
           c->strategy.groups, run->cluster.size / c->strategy.groups,
           value_of(c, "strategy", "precision", room));
    printf("optimizer: %s, ", value_of(c, "optim", "kind", room));
    printf("learning rate %g, %s schedule, %lld rounds of warm-up", c->optim.lr,
           value_of(c, "optim", "schedule", room), (long long)c->optim.warmup);
    if (c->optim.kind == OPTIM_SGD)
        printf(", momentum %g", c->optim.momentum);
    else
        printf(", beta1 %g, beta2 %g", c->optim.beta1, c->optim.beta2);
    printf(", weight decay %g\n", c->optim.weight_decay);
}

/* Prints the options of the chosen methods, with their final values. */
static void print_options(const struct run *run)
{
    struct option_section all[STRATEGY_SECTIONS];
    char room[OPTION_ROOM];
    strategy_sections((struct strategy_config *)&run->config.strategy, all); /* only read */
    for (int s = 0; s < STRATEGY_SECTIONS; s++) {
        if (!all[s].used || !all[s].count || !option_in_use(&all[s]))
            continue;
        printf("%s:", all[s].name);
        for (int i = 0; i < all[s].count; i++)
            printf("%s %s = %.80s", i ? "," : "", all[s].table[i].key,
                   option_print(&all[s].table[i], all[s].config, room));
        printf("\n");
    }
}

static int64_t round_samples(const struct run_config *c, int workers)
{
    return (int64_t)workers * c->strategy.accumulate * c->train.batch;
}

/* Prints the length of the run. The samples of a round depend on timing for methods that compute
 * during communication. How often the run goes through its data is not known if a resumed run's
 * rounds have other samples than the rounds before. */
static int64_t print_length(const struct run *run)
{
    const struct train_config *t = &run->config.train;
    const struct sample_kind *kind = run_kind(run);
    const bool elastic = strategy_elastic(&run->config.strategy);
    const int64_t samples = round_samples(&run->config, run->cluster.size);
    const int64_t rounds = budget_rounds(t, &(struct budget_spent){0}, samples);
    const bool changed =
        run->before && samples != round_samples(run->before, run->before->train.workers);
    printf("length: ");
    if (rounds < BUDGET_UNKNOWN)
        printf("%s%lld rounds, each of %s%lld %s", elastic && t->steps < 0 ? "about " : "",
               (long long)rounds, elastic ? "at least " : "", (long long)samples,
               kind->sequences ? "samples" : kind->unit);
    if (rounds < BUDGET_UNKNOWN && kind->sequences)
        printf(" (%lld tokens)", (long long)(samples * t->seq));
    if (t->seconds > 0)
        printf("%s%g s", rounds < BUDGET_UNKNOWN ? ", at most " : "", t->seconds);
    if (run->train && rounds < BUDGET_UNKNOWN && loader_tokens(run->train) > 0 && !changed)
        printf("; %.2f times through the data",
               (double)rounds * (double)samples * t->seq / (double)loader_tokens(run->train));
    printf("\n");
    fflush(stdout);
    return rounds;
}

void plan_begin(const struct run *run)
{
    print_header(run);
    print_length(run);
}

/* Prints bytes, with decimals if the number is a mean. */
static void print_bytes(const char *before, double bytes, const char *behind)
{
    printf("%s%.*f%s", before, bytes == floor(bytes) ? 0 : 2, bytes, behind);
}

static enum sotto_status print_traffic(const struct run *run)
{
    struct traffic t;
    bool known;
    if (run->cluster.size == 1)
        return SOTTO_OK;
    TRY(traffic_of(run, &t, &known));
    if (!known) {
        printf("wire: %s\n", strategy_async(&run->config.strategy)
                                 ? "up to the speed of the groups, each of which sends when it is "
                                   "ready"
                                 : "known when the run has measured how often groups meet");
        return SOTTO_OK;
    }
    print_bytes(t.about ? "wire: about " : "wire: ", t.inside + t.between,
                " bytes a step and worker");
    if (t.inside > 0 && t.between > 0)
        print_bytes(", ", t.between, " of them to other nodes");
    else if (t.inside + t.between > 0)
        printf(", all to %s", t.inside > 0 ? "its own node" : "other nodes");
    if (t.every > 1 && t.meeting > 0) {
        print_bytes(strategy_async(&run->config.strategy) ? "; a push and its answer are "
                                                          : "; groups exchange ",
                    t.meeting, " of each worker");
        printf(" every %lld steps", (long long)t.every);
    }
    printf("\n");
    return SOTTO_OK;
}

static enum sotto_status print_estimate(const struct run *run)
{
    struct estimate e;
    struct available a;
    if (run->config.train.oracle == ORACLE_NULL)
        return SOTTO_OK;
    TRY(estimate_left(run->config.train.device, &a));
    TRY(estimate_run(run, &e));
    const char *device = run->config.train.device;
    printf("memory: about %.1f MB on %s machine (", e.total / 1e6,
           device_absent(device) ? "such a" : "this");
    for (int c = 0, n = 0; c < MEMORY_CATEGORIES; c++)
        if (e.bytes[c] > 0)
            printf("%s%s %.1f", n++ ? ", " : "", memory_category_name((enum memory_category)c),
                   e.bytes[c] / 1e6);
    printf(")");
    estimate_keep_ours(run, &e);
    if (run->sharing > 1)
        printf("; the %d ranks that share this GPU take %.1f MB of it", run->sharing,
               e.total / 1e6);
    else if (device_place(device) != PLACE_HOST)
        printf("; this process takes %.1f MB of its device", e.total / 1e6);
    if (!device_named(device))
        printf(", and the scratch of a GPU's kernels, unknown to this build without CUDA");
    if (isfinite(a.bytes))
        printf("; %s has %.0f MB left", a.by, a.bytes / 1e6);
    printf("\n");
    return SOTTO_OK;
}

static enum sotto_status print_disk(const struct run *run, struct disk_needs *n)
{
    const struct available a = available_disk(run->config.train.out);
    if (!run_keeps(run))
        return SOTTO_OK;
    TRY(disk_needs(run, n));
    printf("disk: about %.0f bytes a checkpoint, up to %lld at once", n->checkpoint,
           (long long)n->most);
    if (n->present)
        printf(", of which %lld %s already there", (long long)n->present,
               n->present == 1 ? "is" : "are");
    printf(": %.1f MB more", n->more / 1e6);
    if (isfinite(a.bytes))
        printf("; %.0f MB are left", a.bytes / 1e6);
    printf("\n");
    return SOTTO_OK;
}

enum sotto_status plan_print(const struct run *run)
{
    const struct train_config *t = &run->config.train;
    print_header(run);
    print_method(run);
    print_options(run);
    struct disk_needs disk = {0};
    const int64_t rounds = print_length(run);
    if (!*run->checkpoint) { /* otherwise printed when the run began */
        run_warn_rare(run, rounds);
        run_warn_strategy(run);
    }
    fflush(stdout);
    cluster_warn_cores(&run->cluster);
    TRY(print_traffic(run));
    TRY(print_estimate(run));
    TRY(print_disk(run, &disk));
    printf("folder: %s%s\n", t->out,
           *run->checkpoint      ? ", whose run would be continued"
           : file_exists(t->out) ? ", which exists"
                                 : ", which would be made");
    printf("dry run: nothing was trained, and the folder is as it was\n");
    return t->check_disk && run_keeps(run) ? disk_check(run, &disk) : SOTTO_OK;
}

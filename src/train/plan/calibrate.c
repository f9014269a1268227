#include "train/plan/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/oracle/null_oracle.h"

enum { TRIES = 3, MOST_TRIES = 50 };

/* Parameters and gradients for a micro-batch, as the run will have them. */
struct calibration_bench {
    struct run *run;
    struct worker worker;
    struct memory memory;
    struct device dev;
    struct pool pool;
    struct buffer x, theta, g; /* x: if the device cannot compute with run->start */
    struct view *stages;       /* (2 n_stage) */
};

static enum sotto_status measure_microbatch(struct calibration_bench *b, double *seconds)
{
    struct run *run = b->run;
    const struct train_config *c = &run->config.train;
    const int n = run->model.table.n_stage;
    struct model_oracle_setup setup = {
        .model = &run->model,
        .dev = &b->dev,
        .pool = &b->pool,
        .loader = run->train,
        .seed = (uint64_t)c->seed,
        .rows = c->batch,
        .t = c->seq,
        .all = run->keeps_all,
        .recompute = c->recompute,
        .activations = (enum dtype)c->activations,
        .worker = &b->worker,
    };
    struct model_oracle o;
    struct oracle_result r;
    /* Most micro-batches of a round add to gradients; only the first writes them. */
    const bool fresh = run->config.strategy.accumulate == 1;
    TRY(model_oracle_init(&o, &setup));
    enum sotto_status st = SOTTO_OK;
    const double enough = clock_now(b->worker.clock) + 0.3; /* seconds, for short micro-batches */
    for (int i = 0; i < MOST_TRIES && st == SOTTO_OK; i++) {
        double before = clock_now(b->worker.clock);
        if (i >= TRIES && before > enough)
            break;
        st = oracle_gradient(&o.base, i, false, fresh, b->stages, b->stages + n, &r);
        if (st == SOTTO_OK)
            st = device_check(&b->dev);
        double took = clock_now(b->worker.clock) - before;
        if (st == SOTTO_OK) /* scaled to a whole micro-batch if the data make it shorter */
            took *=
                (double)c->batch * sample_targets(&run->model.sample, c->seq) / (double)r.tokens;
        if (i == 0 || took < *seconds) /* the least disturbed */
            *seconds = took;
    }
    model_oracle_free(&o);
    return st;
}

static enum sotto_status open_calibration(struct calibration_bench *b)
{
    const struct run_config *c = &b->run->config;
    const struct table *table = &b->run->model.table;
    const bool mixed = c->strategy.precision == PRECISION_MIXED;
    const size_t count = table_count(table);
    struct view theta = view_of(b->run->start, DTYPE_F32);
    b->stages = calloc(2 * (size_t)table->n_stage, sizeof *b->stages);
    if (!b->stages)
        return fail(SOTTO_ENOMEM, "no memory for %d stages", table->n_stage);
    TRY(worker_alone(&b->worker));
    TRY(device_open(&b->dev, c->train.device, &b->memory, 1));
    pool_init(&b->pool, &b->dev, MEMORY_ACTIVATIONS);
    TRY(buffer_init(&b->g, &b->dev, strategy_grad_type(&c->strategy), count, MEMORY_GRADIENTS));
    if (b->dev.ops->place != PLACE_HOST) {
        TRY(buffer_init(&b->x, &b->dev, DTYPE_F32, count, MEMORY_PARAMETERS));
        b->dev.ops->write(&b->dev, b->x.view, b->run->start, count);
        theta = b->x.view;
    }
    if (mixed) {
        TRY(buffer_init(&b->theta, &b->dev, DTYPE_BF16, count, MEMORY_PARAMETERS));
        b->dev.ops->copy(&b->dev, b->theta.view, theta, count);
        theta = b->theta.view;
    }
    table_stages(table, theta, b->stages);
    table_stages(table, b->g.view, b->stages + table->n_stage);
    return device_check(&b->dev);
}

static void close_calibration(struct calibration_bench *b)
{
    if (b->pool.dev)
        pool_free(&b->pool);
    buffer_free(&b->g);
    buffer_free(&b->theta);
    buffer_free(&b->x);
    if (b->dev.ops)
        device_close(&b->dev);
    comm_free(b->worker.world);
    free(b->stages);
}

/* Measures repeated steps, for 0.1 seconds or more: the fastest of some tries. */
static enum sotto_status measure_steps(struct optim *o, struct view x, struct view theta,
                                       struct view g, double bytes, double *memory)
{
    const int repeats = bytes < 3e7 ? (int)(3e7 / bytes) + 1 : 1;
    *memory = 0;
    const double enough = clock_now(&clock_real) + 0.1;
    for (int i = 0; i < MOST_TRIES; i++) { /* the first touches the memory */
        const double before = clock_now(&clock_real);
        if (i > TRIES && before > enough)
            break;
        for (int k = 0; k < repeats; k++)
            optim_step(o, x, theta, g, 1e-3, 1);
        TRY(device_check(o->dev));
        const double took = clock_now(&clock_real) - before;
        if (i > 0 && took > 0 && repeats * bytes / took > *memory)
            *memory = repeats * bytes / took;
    }
    return *memory > 0 ? SOTTO_OK : fail(SOTTO_EINVAL, "the clock does not advance");
}

enum sotto_status calibrate_memory(const char *device, size_t count, bool mixed, double *memory)
{
    enum { MOST = 1 << 23 }; /* far larger than caches */
    const struct optim_config config = {
        .kind = OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct memory account = {0};
    struct device dev = {0};
    struct table table = {0};
    struct optim optim = {0};
    struct buffer x = {0}, g = {0}, theta = {0};
    const size_t n = count < MOST ? count : MOST;
    const enum dtype type = mixed ? DTYPE_BF16 : DTYPE_F32;
    enum sotto_status st;
    TRY_DONE(device_open(&dev, device, &account, 1));
    TRY_DONE(null_table(&table, n, 1, 1));
    TRY_DONE(optim_init(&optim, &config, &dev, &table, NULL, MEMORY_OPTIMIZER));
    TRY_DONE(buffer_init(&x, &dev, DTYPE_F32, table_count(&table), MEMORY_PARAMETERS));
    TRY_DONE(buffer_init(&g, &dev, type, table_count(&table), MEMORY_GRADIENTS));
    if (mixed)
        TRY_DONE(buffer_init(&theta, &dev, type, table_count(&table), MEMORY_PARAMETERS));
    TRY_DONE(measure_steps(&optim, x.view, theta.view, g.view,
                           optim_bytes(&optim, n, type, mixed ? dtype_size(type) : 0, false),
                           memory));
done:
    buffer_free(&theta);
    buffer_free(&g);
    buffer_free(&x);
    if (optim.ops)
        optim_free(&optim);
    table_free(&table);
    if (dev.ops)
        device_close(&dev);
    return st;
}

static enum sotto_status measure_machine(struct run *run, struct calibration *c)
{
    struct calibration_bench b = {.run = run};
    enum sotto_status st = open_calibration(&b);
    if (st == SOTTO_OK)
        st = measure_microbatch(&b, &c->step);
    close_calibration(&b);
    TRY(st);
    return calibrate_memory(run->config.train.device, run->model.table.parameters,
                            run->config.strategy.precision == PRECISION_MIXED, &c->memory);
}

/* Writes the properties that a measurement depends on. */
static void make_key(struct run_config *c, char *key, size_t room)
{
    char text[OPTION_ROOM];
    const struct arch *arch = archs[c->model.arch];
    const struct option_section own = arch_section(&c->model, arch);
    const bool mixed = c->strategy.precision == PRECISION_MIXED;
    int used =
        snprintf(key, room, "%s, batch %d x %d, %s%s%s%s", c->train.device, c->train.batch,
                 c->train.seq, mixed ? "mixed" : "fp32",
                 mixed && strategy_grad_type(&c->strategy) == DTYPE_F32 ? ", fp32 gradients" : "",
                 c->train.recompute ? ", recompute" : "",
                 c->train.activations == DTYPE_BF16 ? ", bf16 activations" : "");
    for (int i = 0; i < model_options_count && used > 0 && (size_t)used < room; i++) {
        const struct option *o = &model_options[i];
        if (strcmp(o->key, "preset") != 0)
            used += snprintf(key + used, room - (size_t)used, ", %s %s", o->key,
                             option_print(o, &c->model, text));
    }
    for (int i = 0; i < arch->n_options && used > 0 && (size_t)used < room; i++)
        used += snprintf(key + used, room - (size_t)used, ", %s.%s %s", own.name, own.table[i].key,
                         option_print(&own.table[i], own.config, text));
}

/* Writes a measurement into the options, which are saved with the run. */
static void keep_calibration(struct run_config *config, const struct calibration *c)
{
    snprintf(config->worker.step, OPTION_ROOM, "%.4gs", c->step);
    if (!*config->worker.memory)
        snprintf(config->worker.memory, OPTION_ROOM, "%.4gGB/s", c->memory / 1e9);
}

static enum sotto_status find_or_measure(struct run *run)
{
    enum { KEY_ROOM = 4096 };
    const char *path = run->watch.calibration;
    struct calibration c = {0};
    bool found = false;
    char key[KEY_ROOM];
    make_key(&run->config, key, sizeof key);
    if (path)
        TRY(calibration_read(path, key, &c, &found));
    if (!found && device_absent(run->config.train.device))
        return fail(SOTTO_EINVAL,
                    "the time of a micro-batch cannot be measured without a GPU: set worker.step, "
                    "for example --worker.step=30ms");
    if (!found)
        TRY(measure_machine(run, &c));
    keep_calibration(&run->config, &c);
    const char *measured = strncmp(run->config.train.device, "cuda", 4) == 0
                               ? "measured on this machine's GPU"
                               : "measured on one core of this machine";
    log_info("a micro-batch takes %s, memory %s: %s%s", run->config.worker.step,
             run->config.worker.memory, found ? "as " : measured, found ? path : "");
    return path && !found ? calibration_write(path, key, &c) : SOTTO_OK;
}

enum sotto_status run_calibrate(struct run *run)
{
    struct worker_config *w = &run->config.worker;
    if (run->config.train.time != TIME_VIRTUAL)
        return SOTTO_OK;
    if (run->before) { /* a resumed run keeps its times */
        if (!*w->step)
            snprintf(w->step, OPTION_ROOM, "%s", run->before->worker.step);
        if (!*w->memory)
            snprintf(w->memory, OPTION_ROOM, "%s", run->before->worker.memory);
    }
    if (!*w->step)
        TRY(find_or_measure(run));
    TRY(fail_in(link_parse_rate(&run->cluster.memory, w->memory), "worker.memory: "));
    return config_seconds("worker.step", w->step, &run->microbatch_seconds);
}

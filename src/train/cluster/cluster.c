#include "train/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "comm/threads/threads.h"
#include "train/config/budget.h"

/* True if a link is modelled; "none" is no link. */
static bool link_given(const char *link)
{
    return *link && strcmp(link, "none") != 0;
}

static enum sotto_status join_mpi(struct cluster *c)
{
    struct run_config *config = c->config;
    struct train_config *t = &config->train;
    const struct mpi_config mpi = {.collectives = (enum mpi_collectives)config->comm.collectives,
                                   .nccl = (enum mpi_nccl)config->comm.nccl,
                                   .nodes = t->nodes,
                                   .meet = config->comm.meet};
    TRY(mpi_world(&c->mpi, &mpi));
    c->leads = c->mpi->rank == 0;
    if (t->time == TIME_VIRTUAL)
        return fail(SOTTO_EINVAL,
                    "train.time = virtual simulates a cluster in one process, not under MPI");
    if (t->workers && t->workers != c->mpi->size)
        return fail(SOTTO_EINVAL, "train.workers = %d, but MPI started %d ranks", t->workers,
                    c->mpi->size);
    if (link_given(config->link.intra) || link_given(config->link.inter))
        return fail(SOTTO_EINVAL, "modelled links ([link]) are for workers of one process; MPI's "
                                  "links are real");
    t->workers = c->mpi->size;
    return SOTTO_OK;
}

static enum sotto_status check_time(const struct run_config *config)
{
    const struct worker_config *w = &config->worker;
    const char *simulated = *w->step                     ? "step"
                            : *w->memory                 ? "memory"
                            : strcmp(w->speed, "1") != 0 ? "speed"
                            : w->jitter > 0              ? "jitter"
                                                         : NULL;
    if (config->train.time != TIME_VIRTUAL && simulated)
        return fail(SOTTO_EINVAL, "worker.%s is for train.time = virtual", simulated);
    if (config->train.oracle != ORACLE_NULL &&
        (config->null.parameters || config->null.activation_bytes))
        return fail(SOTTO_EINVAL, "null.%s is for train.oracle = null",
                    config->null.parameters ? "parameters" : "activation_bytes");
    return SOTTO_OK;
}

static enum sotto_status check_nccl(const struct cluster *c)
{
    const char *device = c->config->train.device;
    if (c->config->comm.nccl != MPI_NCCL_ON)
        return SOTTO_OK;
    if (!c->mpi)
        return fail(SOTTO_EINVAL,
                    "comm.nccl = on is for ranks of MPI (mpirun) with a GPU each: workers of one "
                    "process share a GPU");
    if (device_place(device) == PLACE_HOST) /* device = auto without a GPU, too */
        return fail(SOTTO_EINVAL, "comm.nccl = on needs GPUs, and train.device = %s", device);
    return SOTTO_OK;
}

/* Assigns workers to nodes: MPI's hosts, or consecutive parts of equal size. Nodes count from 0 in
 * the order of ranks. */
static enum sotto_status assign_nodes(struct cluster *c)
{
    const int asked = c->config->train.nodes ? c->config->train.nodes : 1;
    if (asked > c->size)
        return fail(SOTTO_EINVAL,
                    "train.nodes = %d, but train.workers = %d: every node has a worker", asked,
                    c->size);
    c->node = calloc((size_t)c->size, sizeof *c->node);
    if (!c->node)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", c->size);
    c->nodes = c->mpi ? 0 : asked;
    for (int k = 0; !c->mpi && k < asked; k++) {
        const struct comm_block mine = comm_block((size_t)c->size, asked, k);
        for (size_t r = mine.begin; r < mine.end; r++)
            c->node[r] = k;
    }
    for (int r = 0; c->mpi && r < c->size; r++) {
        int first = 0;
        while (c->mpi->node[first] != c->mpi->node[r])
            first++;
        c->node[r] = first == r ? c->nodes++ : c->node[first];
    }
    c->each = calloc((size_t)c->nodes, sizeof *c->each);
    if (!c->each)
        return fail(SOTTO_ENOMEM, "no memory for %d nodes", c->nodes);
    for (int r = 0; r < c->size; r++)
        c->each[c->node[r]]++;
    return SOTTO_OK;
}

static enum sotto_status check_links(const struct cluster *c)
{
    const struct link_config *l = &c->config->link;
    const char *of_inter = l->adapters != 1             ? "adapters"
                           : strcmp(l->speed, "1") != 0 ? "speed"
                                                        : NULL;
    if (link_given(l->inter) && c->nodes == 1)
        return fail(SOTTO_EINVAL,
                    "link.inter is the link between nodes, and there is one node: --nodes=N places "
                    "the %d worker%s on several, --link.intra=%s slows the links inside",
                    c->size, c->size == 1 ? "" : "s", l->inter);
    if (!link_given(l->inter) && of_inter)
        return fail(SOTTO_EINVAL,
                    "link.%s is about the link between nodes, and there is none: set "
                    "--link.inter=BANDWIDTH,LATENCY%s",
                    of_inter, c->nodes == 1 ? " and --nodes=N" : "");
    return SOTTO_OK;
}

/* Sets the speeds of workers and links. */
static enum sotto_status set_cluster_speeds(struct cluster *c)
{
    const struct run_config *config = c->config;
    const struct link_config *l = &config->link;
    c->speed = calloc((size_t)c->size, sizeof *c->speed);
    c->link_speed = calloc((size_t)c->nodes, sizeof *c->link_speed);
    if (!c->speed || !c->link_speed)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", c->size);
    TRY(config_speeds("worker.speed", config->worker.speed, "workers", c->size, c->speed));
    TRY(fail_in(link_parse_rate(&c->memory, config->worker.memory), "worker.memory: "));
    TRY(fail_in(link_parse(&c->links.intra, l->intra), "link.intra: "));
    TRY(fail_in(link_parse(&c->links.inter, l->inter), "link.inter: "));
    TRY(check_links(c));
    TRY(config_speeds("link.speed", l->speed, "nodes", c->nodes, c->link_speed));
    c->links.adapters = l->adapters;
    c->links.speed = c->link_speed;
    return SOTTO_OK;
}

/* Returns the number of nodes if each has the same number of consecutive ranks, else 0: groups of a
 * mesh are then within nodes. */
static int equal_nodes(const struct cluster *c)
{
    for (int r = 0; r < c->size; r++)
        if (c->size % c->nodes || c->node[r] != r / (c->size / c->nodes))
            return 0;
    return c->nodes;
}

/* Resolves the method and its mesh. */
static enum sotto_status resolve_strategy(struct cluster *c)
{
    struct strategy_config *s = &c->config->strategy;
    s->nodes = equal_nodes(c);
    TRY(strategy_resolve(s, c->size));
    if (c->leads && s->nodes < 2 && !*s->mesh && s->groups > 1 && strategy_shares(s)) {
        char method[OPTION_ROOM];
        strategy_describe(s, method);
        log_warn("%s: each worker is a group of its own and shares nothing, since %s; set "
                 "strategy.mesh = RxS for R groups of S workers",
                 method,
                 s->nodes ? "all workers are on one node"
                          : "the nodes do not have the same number of consecutive workers");
    }
    return SOTTO_OK;
}

enum sotto_status cluster_abort(struct cluster *c, enum sotto_status st)
{
    struct status_note note;
    status_save(&note, st);
    if (c->mpi)
        c->mpi->ops->abort(c->mpi, &note);
    return status_raise(&note);
}

/* Checks the optimizer, which the method may choose. */
static enum sotto_status check_optim(struct run_config *config)
{
    char key[OPTION_ROOM], value[OPTION_ROOM], both[2 * OPTION_ROOM + 8];
    TRY(strategy_optim(&config->strategy, &config->optim, NULL));
    if (!strategy_optim_key(&config->strategy, key, value))
        return optim_check(&config->optim, NULL);
    snprintf(both, sizeof both, "%s = %s", key, value);
    return optim_check(&config->optim, both);
}

/* Checks that asynchronous groups know the number of steps that their learning rates need. */
static enum sotto_status check_rates(const struct run_config *config)
{
    const struct train_config *t = &config->train;
    const bool counted = t->tokens > 0 || t->samples > 0;
    char method[OPTION_ROOM];
    strategy_describe(&config->strategy, method);
    if (!strategy_async(&config->strategy))
        return SOTTO_OK;
    if (counted && strategy_elastic(&config->strategy))
        return fail(SOTTO_EINVAL,
                    "train.%s does not give the number of steps of %s: micro-batches a step depend "
                    "on time; set train.steps",
                    t->tokens > 0 ? "tokens" : "samples", method);
    if (t->steps >= 0 || counted || !optim_wants_length(&config->optim))
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "train.seconds = %g alone does not give the number of steps of %s, which its "
                "learning rates depend on: set train.steps, too, as an upper limit, or "
                "optim.schedule = constant",
                t->seconds, method);
}

enum sotto_status cluster_open(struct cluster *c, struct run_config *config)
{
    *c = (struct cluster){.config = config, .leads = true};
    struct train_config *t = &config->train;
    enum sotto_status st;
    TRY_DONE(mpi_check_launcher());
    if (mpi_detected())
        TRY_DONE(join_mpi(c));
    c->size = t->workers = t->workers ? t->workers : 1;
    if (!c->mpi && t->time == TIME_REAL)
        TRY_DONE(fail_in(threads_check(c->size), "train.workers: "));
    budget_resolve(t);
    TRY_DONE(check_time(config));
    TRY_DONE(check_nccl(c));
    TRY_DONE(cluster_settle_device(c));
    TRY_DONE(cluster_find_cores(c));
    TRY_DONE(cluster_check_threads(c));
    TRY_DONE(cluster_check_pin(c));
    TRY_DONE(assign_nodes(c));
    TRY_DONE(resolve_strategy(c));
    TRY_DONE(check_optim(config));
    TRY_DONE(check_rates(config));
    TRY_DONE(set_cluster_speeds(c));
done:
    if (st != SOTTO_OK) {
        cluster_abort(c, st);
        cluster_close(c);
    }
    return st;
}

void cluster_close(struct cluster *c)
{
    free(c->node);
    free(c->each);
    free(c->speed);
    free(c->link_speed);
    comm_free(c->mpi);
    *c = (struct cluster){0};
}

enum sotto_status cluster_run(struct cluster *c, worker_job *job, void *arg)
{
    const struct run_config *config = c->config;
    const bool linked = link_given(config->link.intra) || link_given(config->link.inter);
    struct engine_config engine = {.workers = c->size,
                                   .node = c->node,
                                   .links = &c->links,
                                   .speed = c->speed,
                                   .memory = c->memory,
                                   .jitter = config->worker.jitter,
                                   .seed = (uint64_t)config->worker.jitter_seed,
                                   .cores = config->train.threads,
                                   .issues = device_place(config->train.device) != PLACE_HOST};
    if (c->mpi)
        return engine_mpi(c->mpi, job, arg);
    if (config->train.time == TIME_VIRTUAL)
        return engine_virtual(&engine, job, arg);
    if (!linked)
        engine.links = NULL; /* as fast as memory */
    return engine_threads(&engine, job, arg);
}

/* From a configuration to an engine. */
#include <stdlib.h>
#include <string.h>

#include "comm/mpi.h"
#include "train/embed/embed.h"

static enum sotto_status join_mpi(struct embed_cluster *c)
{
    const struct mpi_config mpi = {.collectives = (enum mpi_collectives)c->config.comm.collectives};
    struct train_config *t = &c->config.train;
    TRY(mpi_world(&c->mpi, &mpi));
    if (t->time == TIME_VIRTUAL)
        return fail(SOTTO_EINVAL,
                    "train.time = virtual simulates a cluster in one process, not under MPI");
    if (t->workers && t->workers != c->mpi->size)
        return fail(SOTTO_EINVAL, "train.workers = %d, but MPI started %d ranks", t->workers,
                    c->mpi->size);
    if (*c->config.link.intra || *c->config.link.inter)
        return fail(SOTTO_EINVAL, "modelled links ([link]) are for workers of one process; MPI's "
                                  "links are real");
    t->workers = c->mpi->size;
    return SOTTO_OK;
}

/* Callbacks read and write what the device computes with. */
static enum sotto_status check_device(const char *name)
{
    if (strcmp(name, "cpu") == 0 || strcmp(name, "reference") == 0)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL, "train.device = %s: callbacks need cpu or reference", name);
}

static enum sotto_status check_time(const struct run_config *c)
{
    const struct worker_config *w = &c->worker;
    const char *simulated = *w->step                     ? "step"
                            : strcmp(w->speed, "1") != 0 ? "speed"
                            : w->jitter > 0              ? "jitter"
                                                         : NULL;
    if (c->train.time != TIME_VIRTUAL && simulated)
        return fail(SOTTO_EINVAL, "worker.%s is for train.time = virtual", simulated);
    return SOTTO_OK;
}

/* Who is on which node and how fast. */
static enum sotto_status place(struct embed_cluster *c)
{
    const struct worker_config *w = &c->config.worker;
    const int per_node = w->per_node ? w->per_node : c->size / c->config.strategy.groups;
    c->node = calloc((size_t)c->size, sizeof *c->node);
    c->speed = calloc((size_t)c->size, sizeof *c->speed);
    if (!c->node || !c->speed)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", c->size);
    for (int r = 0; r < c->size; r++)
        c->node[r] = r / per_node;
    TRY(config_speeds(w->speed, c->size, c->speed));
    TRY(fail_in(link_parse(&c->links.intra, c->config.link.intra), "link.intra: "));
    return fail_in(link_parse(&c->links.inter, c->config.link.inter), "link.inter: ");
}

enum sotto_status embed_cluster_open(struct embed_cluster *c, const struct run_config *config)
{
    *c = (struct embed_cluster){.config = *config};
    struct train_config *t = &c->config.train;
    enum sotto_status st;
    if (mpi_detected())
        TRY_DONE(join_mpi(c));
    c->size = t->workers = t->workers ? t->workers : 1;
    TRY_DONE(check_device(t->device));
    TRY_DONE(check_time(&c->config));
    TRY_DONE(strategy_resolve(&c->config.strategy, c->size));
    TRY_DONE(place(c));
done:
    if (st != SOTTO_OK && c->mpi) { /* the others may be far ahead: end them too */
        struct status_note note;
        status_save(&note, st);
        c->mpi->ops->abort(c->mpi, &note);
    }
    if (st != SOTTO_OK)
        embed_cluster_close(c);
    return st;
}

void embed_cluster_close(struct embed_cluster *c)
{
    free(c->node);
    free(c->speed);
    comm_free(c->mpi);
}

enum sotto_status embed_cluster_run(struct embed_cluster *c, worker_job *job, void *arg)
{
    const struct run_config *config = &c->config;
    const bool linked = *config->link.intra || *config->link.inter;
    struct engine_config engine = {.workers = c->size,
                                   .node = c->node,
                                   .links = &c->links,
                                   .speed = c->speed,
                                   .jitter = config->worker.jitter,
                                   .seed = (uint64_t)config->worker.jitter_seed,
                                   .cores = config->train.threads};
    if (c->mpi)
        return engine_mpi(c->mpi, job, arg);
    if (config->train.time == TIME_VIRTUAL)
        return engine_virtual(&engine, job, arg);
    if (!linked)
        engine.links = NULL; /* as fast as memory */
    return engine_threads(&engine, job, arg);
}

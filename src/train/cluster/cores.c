#define _GNU_SOURCE /* sched_getaffinity, sched_setaffinity */
/* The cores of a worker: number, and binding. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine/cores.h"
#include "comm/mpi/mpi.h"
#include "train/cluster/cluster.h"

/* Returns the workers of ranks below `rank` on this machine. */
static int workers_before(const struct cluster *c, int rank)
{
    int n = 0;
    for (int r = 0; r < rank; r++)
        n += !c->mpi || mpi_same_machine(c->mpi, r);
    return n;
}

/* Warns if timed methods have too few cores: they compute until the exchange is done, and an
 * exchange without a core of its own waits for the computing. */
static void warn_few_cores(const struct cluster *c, int here)
{
    const int all = c->cores * here / c->around, quota = cores_quota("");
    const int cores = quota && quota < all ? quota : all;
    if (strategy_timed(&c->config->strategy) && here > 1 && 2 * here > cores)
        log_warn(
            "%d workers on %d %s: this method needs two each; here the exchange waits for a core "
            "while all workers compute, and rounds take far more micro-batches than needed",
            here, cores, cores == 1 ? "core" : "cores");
}

void cluster_count_around(struct cluster *c, const struct cluster_mask *all, int n, int rank)
{
    c->around = 1;
    c->before = 0;
    for (int r = 0; r < n; r++) {
        bool both = false;
        for (int i = 0; i < CLUSTER_MASK; i++)
            both |= (all[r].word[i] & all[rank].word[i]) != 0;
        if (both && r != rank) {
            c->around++;
            c->before += r < rank;
        }
    }
}

/* Finds ranks with common cores. Ranks that a launcher has bound may have cores of their own, or
 * share a socket. */
static enum sotto_status find_ranks_sharing(struct cluster *c)
{
    const struct comm *mpi = c->mpi;
    struct cluster_mask mine, *all = calloc((size_t)mpi->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", mpi->size);
    if (sched_getaffinity(0, sizeof mine, (cpu_set_t *)(void *)&mine) != 0)
        memset(&mine, 0xff, sizeof mine); /* the machine has more cores than the mask */
    const enum sotto_status st = comm_gather_bytes(c->mpi, all, &mine, sizeof mine);
    for (int r = 0; r < mpi->size; r++)
        if (!mpi_same_machine(mpi, r))
            all[r] = (struct cluster_mask){0};
    cluster_count_around(c, all, mpi->size, mpi->rank);
    free(all);
    return st;
}

enum sotto_status cluster_find_cores(struct cluster *c)
{
    c->cores = cores_bound();
    c->around = c->size;
    c->before = 0;
    return c->mpi ? find_ranks_sharing(c) : SOTTO_OK;
}

/* Returns the threads of each of `here` workers on this machine. All of them share a quota, bound
 * or not. */
static int threads_each(const struct cluster *c, int here)
{
    const int asked = c->config->train.threads, quota = cores_quota("");
    int each = asked ? asked / here : c->cores / c->around;
    if (!asked && quota && quota / here < each)
        each = quota / here;
    return each > 1 ? each : 1;
}

int cluster_threads(const struct cluster *c)
{
    if (c->config->train.time == TIME_VIRTUAL)
        return 1; /* the engine spreads workers over the cores */
    return threads_each(c, workers_before(c, c->size));
}

void cluster_warn_cores(const struct cluster *c)
{
    const struct train_config *t = &c->config->train;
    const bool bound = c->mpi && c->around == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1;
    if (t->time == TIME_VIRTUAL)
        return;
    if (bound && c->cores == 1 && !t->threads)
        log_warn("each rank is bound to one core, where communication competes with computing: "
                 "start with mpirun --bind-to none, or srun -c 2");
    else
        warn_few_cores(c, workers_before(c, c->size));
}

int cluster_crowd(const struct cluster *c, int *cores)
{
    const struct train_config *t = &c->config->train;
    const int here = workers_before(c, c->size), quota = cores_quota("");
    const int each = threads_each(c, here);
    const bool by_quota = quota && quota < here * each; /* all workers here share the quota */
    const int threads = each * (by_quota ? here : c->around);
    *cores = by_quota ? quota : c->cores;
    if (t->time == TIME_VIRTUAL || t->oracle == ORACLE_NULL)
        return 0;
    return threads > *cores ? threads : 0;
}

enum sotto_status cluster_check_pin(const struct cluster *c)
{
    const struct train_config *t = &c->config->train;
    const int cores = c->cores, threads = threads_each(c, workers_before(c, c->size));
    if (t->pin && t->time == TIME_VIRTUAL)
        return fail(SOTTO_EINVAL, "train.pin: workers of virtual time have no cores of their own");
    if (!t->pin || c->around == 1 || c->around * threads <= cores)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "train.pin: %d workers of %d %s on %d %s: take %s, or train.pin = false", c->around,
                threads, threads == 1 ? "thread" : "threads", cores, cores == 1 ? "core" : "cores",
                threads == 1 ? "fewer workers" : "a smaller train.threads");
}

enum sotto_status cluster_check_threads(const struct cluster *c)
{
    const struct train_config *t = &c->config->train;
    const int teams = c->mpi ? 1 : c->size;
    if (t->time == TIME_VIRTUAL || t->oracle == ORACLE_NULL)
        return SOTTO_OK;
    return fail_in(cores_try_threads(teams * (threads_each(c, workers_before(c, c->size)) - 1)),
                   "train.threads: ");
}

/* Returns the memory node of a core. */
static int memory_node(int core)
{
    enum { NODES = 64 };
    char path[64];
    for (int node = 0; node < NODES; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", core, node);
        if (access(path, F_OK) == 0)
            return node;
    }
    return 0;
}

/* Selects `count` cores of `all` from the `first`-th on, counted node by node. */
static void cores_from(const cpu_set_t *all, int first, int count, cpu_set_t *out)
{
    enum { NODES = 64 };
    int8_t node[CPU_SETSIZE];
    int at = 0;
    for (int core = 0; core < CPU_SETSIZE; core++)
        node[core] = (int8_t)(CPU_ISSET(core, all) ? memory_node(core) : -1);
    CPU_ZERO(out);
    for (int n = 0; n < NODES; n++)
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (node[core] == n && at++ >= first && at <= first + count)
                CPU_SET(core, out);
}

enum sotto_status cluster_pin(const struct cluster *c, const struct worker *w, int threads)
{
    const struct train_config *t = &c->config->train;
    const int before = c->mpi ? c->before : w->rank;
    cpu_set_t all, mine;
    if (!t->pin)
        return SOTTO_OK;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return fail(SOTTO_EIO, "train.pin: cannot read the process's cores: %s", strerror(errno));
    if (c->around == 1)
        return SOTTO_OK; /* all cores are this worker's */
    cores_from(&all, before * threads, threads, &mine);
    if (sched_setaffinity(0, sizeof mine, &mine) != 0)
        return fail(SOTTO_EIO, "train.pin: cannot keep to %d cores: %s", threads, strerror(errno));
    return SOTTO_OK;
}

#define _GNU_SOURCE /* sched_getaffinity, sched_setaffinity */
/* The cores of a worker: how many, and which. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/cluster.h"

/* Workers of ranks below `rank` that share this machine's cores. */
static int beside(const struct cluster *c, int rank)
{
    int n = 0;
    for (int r = 0; r < rank; r++)
        n += !c->mpi || mpi_beside(c->mpi, r);
    return n;
}

/* Methods that depend on timing compute for as long as the exchange takes, which without a core of
 * its own is for as long as they compute. */
static void warn_of_starving(const struct cluster *c, int here, int cores)
{
    if (strategy_timed(&c->config->strategy) && here > 1 && 2 * here > cores)
        log_warn(
            "%d workers on %d %s: this method wants two each; here the exchange waits for a core "
            "while all go on computing, and rounds take far more micro-batches than needed",
            here, cores, cores == 1 ? "core" : "cores");
}

/* A launcher has given each rank cores of its own. */
static bool shared_out(const struct cluster *c, int bound)
{
    return c->mpi && bound < sysconf(_SC_NPROCESSORS_ONLN);
}

/* Threads of each of the workers that are `here`. A quota is of them all, whoever bound them. */
static int share(const struct cluster *c, int here, int bound)
{
    const int asked = c->config->train.threads, quota = cores_quota("");
    int all = asked ? asked : shared_out(c, bound) ? bound * here : bound;
    if (!asked && quota && quota < all)
        all = quota;
    return all > here ? all / here : 1;
}

int cluster_threads(const struct cluster *c, const struct worker *w)
{
    const struct train_config *t = &c->config->train;
    const int bound = cores_bound(), here = beside(c, c->size);
    const bool warns = w && w->rank == 0;
    if (t->time == TIME_VIRTUAL)
        return 1; /* the engine spreads workers over the cores */
    if (warns && shared_out(c, bound) && !t->threads) {
        if (bound == 1)
            log_warn("each rank is bound to one core, where communication competes with computing: "
                     "mpirun --bind-to none, or srun -c 2, lets it run beside");
    } else if (warns) {
        warn_of_starving(c, here, cores_allowed(""));
    }
    return share(c, here, bound);
}

enum sotto_status cluster_check_pin(const struct cluster *c)
{
    const struct train_config *t = &c->config->train;
    const int cores = cores_bound(), here = beside(c, c->size), threads = share(c, here, cores);
    if (t->pin && t->time == TIME_VIRTUAL)
        return fail(SOTTO_EINVAL, "train.pin: workers of virtual time have no cores of their own");
    if (!t->pin || here == 1 || shared_out(c, cores) || here * threads <= cores)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "train.pin: %d workers of %d %s on %d %s: take %s, or train.pin = false", here,
                threads, threads == 1 ? "thread" : "threads", cores, cores == 1 ? "core" : "cores",
                threads == 1 ? "fewer workers" : "a smaller train.threads");
}

/* The part of memory that a core is close to. */
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

/* `count` cores of `all` from the first-th on, counted node by node. */
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
    const int here = beside(c, w->size);
    cpu_set_t all, mine;
    if (!t->pin)
        return SOTTO_OK;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return fail(SOTTO_EIO, "train.pin: cores cannot be told: %s", strerror(errno));
    if (here == 1 || shared_out(c, cores_bound()))
        return SOTTO_OK; /* all are its own; or the launcher has shared them out */
    cores_from(&all, beside(c, w->rank) * threads, threads, &mine);
    if (sched_setaffinity(0, sizeof mine, &mine) != 0)
        return fail(SOTTO_EIO, "train.pin: cannot keep to %d cores: %s", threads, strerror(errno));
    return SOTTO_OK;
}

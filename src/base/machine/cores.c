#define _GNU_SOURCE /* sched_getaffinity */
#include "base/machine/cores.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine/control_group.h"

int cores_bound(void)
{
    enum { CORES_MOST = 1 << 16 };
    int bound = 0;
    for (int most = CPU_SETSIZE; !bound && most <= CORES_MOST; most *= 2) { /* the kernel may want a
                                                                               larger set */
        cpu_set_t *set = CPU_ALLOC((size_t)most);
        if (set && sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)most), set) == 0)
            bound = CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)most), set);
        CPU_FREE(set);
    }
    if (bound <= 0)
        bound = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return bound > 0 ? bound : 1;
}

static void limit_cores_by_group(void *arg, const char *folder, int version)
{
    double *cores = arg, quota[2]; /* microseconds: of work in a period; of the period */
    const int found =
        version == 2 ? control_group_numbers(folder, "cpu.max", "", 2, quota)
                     : control_group_numbers(folder, "cpu.cfs_quota_us", "", 1, quota) +
                           control_group_numbers(folder, "cpu.cfs_period_us", "", 1, quota + 1);
    if (found == 2 && quota[0] > 0 && quota[1] > 0) /* version 1: -1 is no limit */
        *cores = fmin(*cores, ceil(quota[0] / quota[1]));
}

int cores_quota(const char *root)
{
    double cores = INT_MAX;
    control_group_each(root, "cpu", limit_cores_by_group, &cores);
    return cores < INT_MAX ? (int)cores : 0;
}

int cores_allowed(const char *root)
{
    const int bound = cores_bound(), quota = cores_quota(root);
    return quota && quota < bound ? quota : bound;
}

static void *wait_at_gate(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

enum sotto_status cores_try_threads(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    if (n <= 0)
        return SOTTO_OK;
    pthread_t *thread = calloc((size_t)n, sizeof *thread);
    int started = 0, error = thread ? 0 : ENOMEM;
    pthread_mutex_lock(&gate);
    while (started < n && !error) {
        error = pthread_create(&thread[started], NULL, wait_at_gate, &gate);
        started += !error;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    if (!error)
        return SOTTO_OK;
    return fail(SOTTO_ENOMEM,
                "cannot start %d more thread%s, only %d: %s. Use fewer threads, or raise the limit "
                "(ulimit -u for processes, ulimit -v for memory)",
                n, n == 1 ? "" : "s", started, strerror(error));
}

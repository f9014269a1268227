/* Meetings of ranks that wait for each other. */
#include <errno.h>
#include <math.h>
#include <time.h>

#include "comm/threads/threads_impl.h"

enum sotto_status threads_status(struct threads_run *w)
{
    pthread_mutex_lock(&w->lock);
    enum sotto_status st = status_raise(&w->note);
    pthread_mutex_unlock(&w->lock);
    return st;
}

bool threads_sleep(struct threads_group *g, double until)
{
    if (isinf(until))
        return pthread_cond_wait(&g->moved, &g->lock) == 0;
    const struct timespec t = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    return pthread_cond_timedwait(&g->moved, &g->lock, &t) != ETIMEDOUT;
}

/* Warns of the ranks missing in this rank's meeting. */
static void warn_of_stalled(struct threads_member *m, double waited)
{
    struct threads_group *g = m->group;
    const uint64_t mine = atomic_load(&g->visits[m->base.rank]);
    struct stalled_ranks who = {0};
    for (int r = 0; r < g->size; r++)
        if (atomic_load(&g->visits[r]) < mine)
            stall_add_rank(&who, g->world_rank[r]);
    stall_warn(&g->run->stall, &who, waited);
}

/* Waits until all ranks of the group have arrived. False if the run was aborted first and `heed` is
 * true. The rank then takes its arrival back: no other rank may count it as met and read its
 * memory. */
static bool wait_for_all(struct threads_member *m, bool heed)
{
    enum { SPINS = 4000 };
    struct threads_group *g = m->group;
    atomic_fetch_add(&g->visits[m->base.rank], 1);
    uint64_t size = (uint64_t)g->size, before = atomic_fetch_add(&g->arrivals, 1);
    uint64_t all = (before / size + 1) * size; /* arrivals that complete this meeting */
    if (before + 1 == all) {
        if (atomic_load(&g->asleep)) {
            pthread_mutex_lock(&g->lock);
            pthread_cond_broadcast(&g->moved);
            pthread_mutex_unlock(&g->lock);
        }
        return true;
    }
    for (int i = 0; g->run->spins && i < SPINS; i++)
        if (atomic_load(&g->arrivals) >= all)
            return true;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->asleep, 1); /* before the last look: the last rank to arrive looks at
                                        `asleep` after it has arrived */
    const double begin = clock_now(&clock_real);
    while (atomic_load(&g->arrivals) < all && !(heed && atomic_load(&g->run->aborted)))
        if (!threads_sleep(g, begin + stall_limit(&g->run->stall)))
            warn_of_stalled(m, clock_now(&clock_real) - begin);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&g->lock);
    uint64_t arrived = atomic_load(&g->arrivals);
    while (arrived < all)
        if (atomic_compare_exchange_weak(&g->arrivals, &arrived, arrived - 1))
            return false;
    return true;
}

enum sotto_status threads_meet(struct threads_member *m)
{
    return wait_for_all(m, true) ? SOTTO_OK : threads_status(m->group->run);
}

void threads_meet_again(struct threads_member *m)
{
    wait_for_all(m, false);
}

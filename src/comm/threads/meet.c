/* Ranks that wait for each other. */
#include <errno.h>
#include <math.h>
#include <time.h>

#include "comm/threads/threads_impl.h"

enum sotto_status threads_status(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    enum sotto_status st = status_raise(&w->note);
    pthread_mutex_unlock(&w->lock);
    return st;
}

bool threads_sleep(struct group *g, double until)
{
    if (isinf(until))
        return pthread_cond_wait(&g->moved, &g->lock) == 0;
    const struct timespec t = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    return pthread_cond_timedwait(&g->moved, &g->lock, &t) != ETIMEDOUT;
}

/* Those who have not come to the meeting that this rank waits in. */
static void name_absent(struct member *m, double waited)
{
    struct group *g = m->group;
    const uint64_t mine = atomic_load(&g->visits[m->base.rank]);
    struct absent who = {0};
    for (int r = 0; r < g->size; r++)
        if (atomic_load(&g->visits[r]) < mine)
            absent_add(&who, g->world_rank[r]);
    absence_tell(&g->world->absence, &who, waited);
}

/* Waits until all ranks of the group have come; false if the run was aborted first, and `heed`. Who
 * gives up takes back that it came, so nobody believes to have met it and reads its memory. */
static bool gathered(struct member *m, bool heed)
{
    enum { SPINS = 4000 };
    struct group *g = m->group;
    atomic_fetch_add(&g->visits[m->base.rank], 1);
    uint64_t size = (uint64_t)g->size, before = atomic_fetch_add(&g->came, 1);
    uint64_t all = (before / size + 1) * size; /* when this meeting is held */
    if (before + 1 == all) {
        if (atomic_load(&g->asleep)) {
            pthread_mutex_lock(&g->lock);
            pthread_cond_broadcast(&g->moved);
            pthread_mutex_unlock(&g->lock);
        }
        return true;
    }
    for (int i = 0; g->world->spins && i < SPINS; i++)
        if (atomic_load(&g->came) >= all)
            return true;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->asleep, 1); /* before a last look: the last to come looks after it came */
    const double begin = clock_now(&clock_real);
    while (atomic_load(&g->came) < all && !(heed && atomic_load(&g->world->aborted)))
        if (!threads_sleep(g, begin + absence_limit(&g->world->absence)))
            name_absent(m, clock_now(&clock_real) - begin);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&g->lock);
    uint64_t came = atomic_load(&g->came);
    while (came < all)
        if (atomic_compare_exchange_weak(&g->came, &came, came - 1))
            return false;
    return true;
}

enum sotto_status threads_meet(struct member *m)
{
    return gathered(m, true) ? SOTTO_OK : threads_status(m->group->world);
}

void threads_meet_again(struct member *m)
{
    gathered(m, false);
}

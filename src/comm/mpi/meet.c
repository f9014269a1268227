/* The first messages of a job: empty messages, which every rank exchanges with every other rank, or
 * with up to 64 of many. With two hosts that cannot exchange messages, MPI would wait without
 * limit; here ranks wait for some seconds, name the ranks whose messages did not arrive, and end
 * the job.
 *
 * A step that MPI makes by itself, such as its start, cannot be interrupted; another thread warns
 * if the step takes long. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

enum { MOST = 64 }; /* most ranks that a rank exchanges with */

#define STAGGER 25e-3       /* seconds between the reports of successive ranks */
#define STAGGER_MOST 0.8    /* the longest such delay */
#define GRACE_OF_RANK_0 1.0 /* seconds from the report of rank 0 to the end of the job */
#define GRACE_OF_OTHERS                                                                            \
    6.0 /* seconds from another rank's report, if rank 0 has not ended the job */
#define LATER_RANKS_WAIT 5.0 /* seconds of waiting of ranks other than the first of their host */

/* Returns the stride: ranks a and b exchange a first message if the stride divides a + b. With a
 * stride coprime to the number of ranks, some ranks of every two hosts meet, for up to 28 hosts of
 * equal size, whether a host has consecutive ranks or every n-th rank. */
static int meeting_stride(int size)
{
    int stride = (size + MOST - 1) / MOST;
    for (;; stride++) {
        int a = size, b = stride;
        while (b) {
            const int rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

bool mpi_meets(int size, int a, int b)
{
    return a != b && (a + b) % meeting_stride(size) == 0;
}

struct mpi_meeting {
    int n; /* ranks not met yet */
    struct mpi_partner {
        int rank;
        MPI_Request sent, received;
    } with[MOST];
};

static enum sotto_status invite_ranks(const struct mpi_member *all, struct mpi_meeting *t)
{
    for (int r = 0; r < all->base.size; r++) {
        struct mpi_partner *p = &t->with[t->n];
        if (!mpi_meets(all->base.size, all->base.rank, r))
            continue;
        *p = (struct mpi_partner){r, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        t->n++;
        TRY(mpi_check(all,
                      MPI_Irecv(NULL, 0, MPI_BYTE, r, MPI_TAG_HELLO, MPI_COMM_WORLD, &p->received),
                      "start"));
        TRY(mpi_check(all, MPI_Isend(NULL, 0, MPI_BYTE, r, MPI_TAG_HELLO, MPI_COMM_WORLD, &p->sent),
                      "start"));
    }
    return SOTTO_OK;
}

/* Drops the ranks whose messages have been exchanged. */
static enum sotto_status look_around(struct mpi_member *all, void *arg, int *done)
{
    struct mpi_meeting *t = arg;
    int left = 0;
    for (int i = 0; i < t->n; i++) {
        struct mpi_partner *p = &t->with[i];
        int received = 0, sent = 0;
        TRY(mpi_check(all, MPI_Test(&p->received, &received, MPI_STATUS_IGNORE), "start"));
        TRY(mpi_check(all, MPI_Test(&p->sent, &sent, MPI_STATUS_IGNORE), "start"));
        if (!received || !sent)
            t->with[left++] = *p;
    }
    t->n = left;
    *done = left == 0;
    return SOTTO_OK;
}

/* Writes the missing ranks: "rank 1", "ranks 1 and 3", "ranks 1, 3, 5 and 4 others". */
static void list_missing(const struct mpi_meeting *t, char *out, size_t room)
{
    enum { NAMED = 4 };
    const int named = t->n <= NAMED ? t->n : NAMED - 1;
    size_t at = (size_t)snprintf(out, room, "rank%s %d", t->n > 1 ? "s" : "", t->with[0].rank);
    for (int i = 1; i < named; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%d", i + 1 == t->n ? " and " : ", ",
                               t->with[i].rank);
    if (named < t->n)
        snprintf(out + at, room - at, " and %d others", t->n - named);
}

static struct timespec to_timespec(double seconds)
{
    const double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

/* Sleeps. False if a signal arrived: another rank has ended the job. */
static bool sleep_through(double seconds)
{
    const struct timespec t = to_timespec(seconds);
    return nanosleep(&t, NULL) == 0;
}

/* Reports the missing ranks and ends the job. One rank of each host reports, rank 0 first; the
 * first rank that reported ends the job when the others have had time to report. */
static void part_unmet(const struct mpi_member *all, const struct mpi_meeting *t, double limit)
{
    char missing[128], advice[512];
    struct mpi_host host;
    const int rank = all->base.rank;
    mpi_look_at_host(&host);
    list_missing(t, missing, sizeof missing);
    mpi_advise(&host, advice, sizeof advice);
    const double turn = fmin(STAGGER * rank, STAGGER_MOST);
    if (sleep_through(turn + (mpi_launched_place() > 0 ? LATER_RANKS_WAIT : 0))) {
        log_error("host %s (%s): rank %d cannot exchange messages with %s: none arrived in %g s",
                  host.name, host.addresses, rank, missing, limit);
        if (sleep_through(rank > 0 ? GRACE_OF_OTHERS + turn : GRACE_OF_RANK_0))
            log_error("these hosts cannot train together. %s. (comm.meet = %g s)", advice, limit);
    }
    mpi_end_job();
}

enum sotto_status mpi_meet(struct mpi_member *all, double limit)
{
    struct mpi_meeting *t = calloc(1, sizeof *t);
    if (!t)
        return fail(SOTTO_ENOMEM, "no memory to meet %d ranks", all->base.size);
    enum sotto_status st = invite_ranks(all, t);
    if (st == SOTTO_OK)
        st = mpi_poll(all, look_around, t, clock_now(&clock_real) + limit, false);
    if (st == SOTTO_OK && t->n > 0) {
        part_unmet(all, t, limit);
        st = fail(SOTTO_EPEER, "rank %d received no first message from %d ranks", all->base.rank,
                  t->n);
    }
    free(t);
    return st;
}

static void *watch_start(void *arg)
{
    struct mpi_watch *w = arg;
    struct timespec now;
    int waited = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const struct timespec until =
        to_timespec((double)now.tv_sec + 1e-9 * (double)now.tv_nsec + w->limit);
    pthread_mutex_lock(&w->lock);
    while (!w->over && waited == 0)
        waited = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    const bool late = !w->over;
    pthread_mutex_unlock(&w->lock);
    if (late) {
        char advice[512] = "";
        struct mpi_host host;
        mpi_look_at_host(&host);
        if (mpi_launched_rank() == 0)
            mpi_advise(&host, advice, sizeof advice);
        log_warn("host %s (%s): MPI has not %s in %g s: ranks are late, or cannot exchange "
                 "messages%s%s",
                 host.name, host.addresses, w->what, w->limit, *advice ? ". " : "", advice);
    }
    return NULL;
}

void mpi_watch_open(struct mpi_watch *w, const char *what, double limit)
{
    enum { SPEAKERS = 32 }; /* ranks below this number warn, if first of their host */
    *w = (struct mpi_watch){.what = what, .limit = limit};
    if (limit <= 0 || mpi_launched_place() > 0 || mpi_launched_rank() >= SPEAKERS)
        return;
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &steady);
    pthread_condattr_destroy(&steady);
    w->runs = pthread_create(&w->thread, NULL, watch_start, w) == 0;
}

void mpi_watch_close(struct mpi_watch *w)
{
    if (!w->runs)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    w->runs = false;
}

#endif

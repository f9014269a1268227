/* Waiting without burning a core: polls for a moment, then sleeps between polls, longer and longer.
 * MPI moves bytes only while it is polled; a poll that took much processor time has moved some, and
 * makes the sleeps shorter again. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <math.h>
#include <time.h>

#define SPIN_SECONDS 40e-6   /* time of a small message: no sleep before */
#define SHORTEST_SLEEP 20e-6 /* first and shortest sleep */
#define LONG_SLEEP 1e-3      /* longest sleep in a short wait */
#define LONGEST_SLEEP 4e-3   /* longest sleep: waking costs 10 to 20 us, half a percent */
#define SLEEP_SHARE                                                                                \
    0.03 /* a sleep's share of the time waited so far: what sleeps may add to a long wait */
#define WORK_SECONDS 4e-6  /* least processor time of a poll that moved bytes */
#define COLD_SECONDS 25e-6 /* the same if another thread had the core before */
enum {
    POLLS = 3
}; /* polls between sleeps: some libraries look at sockets only at every other poll */

enum sotto_status mpi_check(const struct mpi_member *m, int code, const char *what)
{
    if (code == MPI_SUCCESS)
        return SOTTO_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, kind = MPI_ERR_OTHER;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &kind);
    for (char *c = text; *c; c++) /* MPICH writes one line per function */
        *c = *c == '\n' ? ' ' : *c;
    if (kind == MPI_ERR_TRUNCATE)
        return fail(SOTTO_EPEER, "rank %d, %s: a peer sent more bytes than expected (%s)",
                    m->base.rank, what, text);
    return fail(SOTTO_EPEER, "rank %d, %s: %s", m->base.rank, what, text);
}

static double clamp_seconds(double low, double x, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* A moment: this thread's processor time, and the clock, in seconds. */
struct poll_moment {
    double processor, clock;
};

static struct poll_moment moment_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (struct poll_moment){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec,
                                clock_now(&clock_real)};
}

/* True if the poll between two moments moved bytes. An idle library may yield the core: the switch
 * to another thread and back costs as much time as moving a few bytes, and so does waking from a
 * sleep. */
static bool has_worked(struct poll_moment from, struct poll_moment to, bool slept)
{
    const double used = to.processor - from.processor, away = to.clock - from.clock - used;
    return used > (slept || away > WORK_SECONDS ? COLD_SECONDS : WORK_SECONDS);
}

static void sleep_for(double seconds)
{
    struct timespec t = {0, (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

struct request_test {
    MPI_Request *request;
    MPI_Status *status;
    const char *what;
};

static enum sotto_status test_request(struct mpi_member *m, void *arg, int *done)
{
    const struct request_test *t = arg;
    int received = 0;
    if (m->greets)
        TRY(mpi_check(m, MPI_Test(&m->hello, &received, MPI_STATUS_IGNORE), t->what));
    if (received) {
        m->greets = false;
        m->base.wait.to = clock_now(&clock_real);
    }
    return mpi_check(m, MPI_Test(t->request, done, t->status), t->what);
}

enum sotto_status mpi_met(struct mpi_member *m)
{
    if (!m->greets)
        return SOTTO_OK;
    m->greets = false;
    TRY(mpi_await(m, &m->hello, MPI_STATUS_IGNORE, "hello"));
    m->base.wait.to = clock_now(&clock_real);
    return SOTTO_OK;
}

enum sotto_status mpi_poll(struct mpi_member *m, mpi_look *look, void *arg, double until,
                           bool for_any)
{
    int done = 0;
    TRY(look(m, arg, &done));
    if (done)
        return SOTTO_OK;
    double begin = clock_now(&clock_real), waited = 0;
    const double longest = until - begin;
    struct mpi_liveness_wait call = {.for_any = for_any};
    while (!done && waited < SPIN_SECONDS) {
        TRY(look(m, arg, &done));
        waited = clock_now(&clock_real) - begin;
    }
    double sleep = SHORTEST_SLEEP;
    struct poll_moment at = moment_now();
    for (int polls = 1; !done; polls++) { /* polls since the last sleep */
        TRY(look(m, arg, &done));
        const struct poll_moment before = at;
        at = moment_now();
        waited = at.clock - begin;
        const bool worked = has_worked(before, at, polls == 1), enough = worked || polls >= POLLS;
        if (done || (enough && waited >= longest))
            break;
        mpi_liveness_step(m, &call, at.clock, waited);
        if (worked) {
            sleep = clamp_seconds(SHORTEST_SLEEP, sleep / 2, LONGEST_SLEEP);
            polls = 1;
        } else if (enough) {
            sleep_for(fmin(sleep, longest - waited));
            at = moment_now();
            waited = at.clock - begin;
            sleep = clamp_seconds(0, sleep * 2,
                                  clamp_seconds(LONG_SLEEP, SLEEP_SHARE * waited, LONGEST_SLEEP));
            polls = 0;
        }
    }
    return SOTTO_OK;
}

enum sotto_status mpi_await(struct mpi_member *m, MPI_Request *request, MPI_Status *status,
                            const char *what)
{
    return mpi_poll(m, test_request, &(struct request_test){request, status, what}, INFINITY,
                    false);
}

#endif

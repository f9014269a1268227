/* All-reduce in place, timed in bursts on request: the measuring end of bench/comm.py.
 *
 * Reads lines "WHAT BYTES REPEATS" and answers each line with the seconds of one call, the mean of
 * a burst of REPEATS after a warm-up, by rank 0's clock. REPEATS 0 verifies instead and answers 0.
 * Processes sleep between lines, so that other programs can be measured meanwhile. WHAT, as
 * threads:
 *
 *     threads        our ranks as threads of this process
 *     memcpy         each rank copies BYTES from one place of its own to another, all at once
 *
 * and under mpirun:
 *
 *     mpi, mpi-ring  our ranks of MPI, the library's collectives and ours
 *     mpi-plain      MPI_Allreduce, blocking */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SOTTO_WITH_MPI
#include <mpi.h>
#endif

#include "base/option/option.h"
#include "comm/mpi/mpi.h"
#include "comm/worker.h"

struct config {
    int workers;
};

#define S struct config
static const struct option table[] = {
    OPTION_INT(S, workers, "2", 1, 64, "ranks, where mpirun does not say"),
};
#undef S

/* The data of a rank. */
struct side {
    struct comm *comm, *ring; /* ring: under mpirun */
    float *x, *copy;
    size_t room; /* bytes of each buffer */
};

static enum sotto_status call_comm(struct side *s, size_t count)
{
    struct view v = view_of(s->x, DTYPE_F32);
    return comm_allreduce(s->comm, v, v, count);
}

static enum sotto_status call_ring(struct side *s, size_t count)
{
    struct view v = view_of(s->x, DTYPE_F32);
    return comm_allreduce(s->ring, v, v, count);
}

static enum sotto_status call_memcpy(struct side *s, size_t count)
{
    memcpy(s->copy, s->x, count * sizeof *s->x);
    __asm__ volatile("" : : "r"(s->copy) : "memory"); /* keeps the copy from being optimized away */
    return SOTTO_OK;
}

#ifdef SOTTO_WITH_MPI
static enum sotto_status call_plain(struct side *s, size_t count)
{
    if (MPI_Allreduce(MPI_IN_PLACE, s->x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD))
        return fail(SOTTO_EPEER, "MPI_Allreduce of %zu elements failed", count);
    return SOTTO_OK;
}
#endif

static const struct contender {
    const char *name;
    bool mpi; /* true: runs under mpirun only; false: without mpirun only */
    enum sotto_status (*call)(struct side *s, size_t count);
} contenders[] = {
    {"threads", false, call_comm},   {"memcpy", false, call_memcpy},
    {"mpi", true, call_comm},        {"mpi-ring", true, call_ring},
#ifdef SOTTO_WITH_MPI
    {"mpi-plain", true, call_plain},
#endif
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };

/* A line of input, as rank 0 passes it on. */
struct request {
    int32_t what; /* -1: end of input */
    int32_t repeats;
    uint64_t bytes;
};

static enum sotto_status read_request(const struct side *s, struct request *r)
{
    char line[128], name[32];
    long long bytes;
    int repeats;
    *r = (struct request){.what = -1};
    if (!fgets(line, sizeof line, stdin))
        return SOTTO_OK;
    if (sscanf(line, "%31s %lld %d", name, &bytes, &repeats) != 3 || bytes < 4 || repeats < 0)
        return fail(SOTTO_EINVAL, "want WHAT BYTES REPEATS, not %s", line);
    for (int i = 0; i < CONTENDERS; i++)
        if (strcmp(name, contenders[i].name) == 0 && contenders[i].mpi == (s->ring != NULL))
            *r = (struct request){i, repeats, (uint64_t)bytes};
    return r->what >= 0 ? SOTTO_OK : fail(SOTTO_EINVAL, "cannot run %s here", name);
}

static enum sotto_status reserve(struct side *s, size_t bytes)
{
    if (bytes <= s->room)
        return SOTTO_OK;
    free(s->x);
    free(s->copy);
    s->room = (bytes + 63) / 64 * 64; /* aligned as the library's own vectors are */
    s->x = aligned_alloc(64, s->room);
    s->copy = aligned_alloc(64, s->room);
    if (!s->x || !s->copy)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes", bytes);
    memset(s->x, 0, s->room);
    memset(s->copy, 0, s->room);
    return SOTTO_OK;
}

static float value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 17) - 8;
}

/* Verifies a contender: sums of small integers are exact. Leaves zeros, which sum to zeros. */
static enum sotto_status verify(struct side *s, const struct contender *k, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s->x[i] = value(s->comm->rank, i);
    TRY(k->call(s, count));
    bool copies = k->call == call_memcpy;
    const float *got = copies ? s->copy : s->x;
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int r = 0; r < s->comm->size; r++)
            want += copies && r != s->comm->rank ? 0 : value(r, i);
        if (got[i] != want)
            return fail(SOTTO_ENUMERIC, "%s: [%zu] of %zu is %g, not %g", k->name, i, count,
                        (double)got[i], (double)want);
    }
    memset(s->x, 0, count * sizeof *s->x);
    return SOTTO_OK;
}

static enum sotto_status burst(struct side *s, const struct contender *k, const struct request *r,
                               double *seconds)
{
    size_t count = r->bytes / sizeof *s->x;
    double begin = 0;
    for (int i = -1 - r->repeats / 4; i < r->repeats; i++) {
        if (i == 0) {
            TRY(comm_barrier(s->comm));
            begin = clock_now(&clock_real);
        }
        TRY(k->call(s, count));
    }
    *seconds = (clock_now(&clock_real) - begin) / r->repeats;
    return SOTTO_OK;
}

static enum sotto_status serve(struct side *s)
{
    for (;;) {
        struct request r;
        double seconds = 0;
        if (s->comm->rank == 0)
            TRY(read_request(s, &r));
        TRY(comm_broadcast(s->comm, view_of(&r, DTYPE_F32), sizeof r / 4, 0));
        if (r.what < 0)
            return SOTTO_OK;
        const struct contender *k = &contenders[r.what];
        TRY(reserve(s, r.bytes));
        TRY(r.repeats ? burst(s, k, &r, &seconds) : verify(s, k, r.bytes / sizeof *s->x));
        TRY(comm_barrier(s->comm)); /* all ranks have verified */
        if (s->comm->rank == 0)
            printf("%.9f\n", seconds);
        fflush(stdout);
    }
}

static enum sotto_status work(struct worker *w, void *arg)
{
    (void)arg;
    struct side s = {.comm = w->world};
    enum sotto_status st = serve(&s);
    free(s.x);
    free(s.copy);
    return st;
}

static enum sotto_status run_mpi(void)
{
    struct side s = {0};
    enum sotto_status st =
        mpi_world(&s.comm, &(struct mpi_config){.collectives = MPI_COLLECTIVES_NATIVE});
    if (st == SOTTO_OK)
        st = mpi_world(&s.ring, &(struct mpi_config){.collectives = MPI_COLLECTIVES_RING});
    if (st == SOTTO_OK)
        st = serve(&s);
    if (st != SOTTO_OK && s.comm) {
        struct status_note note;
        status_save(&note, st);
        fprintf(stderr, "bench_comm: %s\n", sotto_error());
        s.comm->ops->abort(s.comm, &note); /* the other ranks wait */
    }
    comm_free(s.ring);
    comm_free(s.comm);
    free(s.x);
    free(s.copy);
    return st;
}

int main(int argc, char **argv)
{
    struct config c;
    const struct option_section section = OPTION_SECTION("", "", table, &c);
    const char *rest[64];
    int n_rest;
    option_defaults(&section, 1);
    enum sotto_status st = argc > 64 ? fail(SOTTO_EINVAL, "too many arguments")
                                     : option_parse(&section, 1, argc - 1,
                                                    (const char *const *)argv + 1, rest, &n_rest);
    const struct engine_config engine = {.workers = c.workers};
    if (st == SOTTO_OK)
        st = mpi_detected() ? run_mpi() : engine_threads(&engine, work, NULL);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_comm: %s\n", sotto_error());
    return st != SOTTO_OK;
}

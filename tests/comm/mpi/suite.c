/* Every call of comm.h over MPI, native and ring, on the world and its splits. Sums are of small
 * integers, hence exact; sums of the ring also have the bits of sum_block. Run by run.sh under
 * mpirun; fails by abort.
 *
 *     mpi_suite          all calls
 *     mpi_suite nodes    the ring on several nodes
 *     mpi_suite abort    the last rank aborts while the others wait: the run must end
 *     mpi_suite silent   rank 2 of 4 sleeps for some seconds: a warning names rank 2 and no other
 *     mpi_suite any      rank 0 waits for any message; the last rank aborts: the run must end
 *     mpi_suite ended    rank 0 waits for any message; the others end: rank 0 gets an error, and
 *                        no warning names a rank
 *     mpi_suite nccl     vectors in device memory by NCCL, a fake library
 *     mpi_suite no-nccl  the same without the library
 *     mpi_suite gpus     the same on two ranks whose devices report which GPU they are
 *     mpi_suite self     messages of a rank to itself by the real NCCL on a GPU, unless
 *                        SOTTO_TEST_DEVICE names a device; exits 77 without NCCL or GPU
 *
 * All but the first run as if the launcher had dealt ranks to two machines in turn. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/share.h"
#include "comm/any.h"
#include "comm/comm.h"
#include "comm/mpi/mpi.h"
#include "comm/mpi/mpi_impl.h"
#include "comm/stay.h"
#include "comm/sum.h"

#include <mpi.h>

static struct comm *world;

/* Calls of MPI that keep all ranks but one waiting: counted on their way to the library. */
static int one_sided;

int MPI_Ireduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request *request)
{
    one_sided++;
    return PMPI_Ireduce(in, out, count, type, op, root, comm, request);
}

int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
    one_sided++;
    return PMPI_Ibcast(data, count, type, root, comm, request);
}

/* Number of machines, with ranks on each in turn; 0: the real machines. */
static int machines;

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    int rank;
    if (!machines)
        return PMPI_Comm_split_type(comm, type, key, info, out);
    PMPI_Comm_rank(comm, &rank);
    return PMPI_Comm_split(comm, rank % machines, key, out);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until this time a poll for a message takes as much processor time as if bytes had moved. */
static double slow_until;

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *came, MPI_Status *status)
{
    const double end = seconds(CLOCK_THREAD_CPUTIME_ID) + 50e-6;
    while (seconds(CLOCK_MONOTONIC) < slow_until && seconds(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
    return PMPI_Iprobe(from, tag, comm, came, status);
}

/* Bytes really sent inside a node and between nodes, on the communicator `watched`. */
static const struct comm *watched;
static int64_t left[2];

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    if (watched)
        left[watched->node[to] != watched->node[watched->rank]] +=
            count; /* messages of bytes only */
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

__attribute__((format(printf, 1, 2))) static void suite_abort(const char *format, ...)
{
    struct status_note note = {.code = SOTTO_EPEER};
    va_list args;
    va_start(args, format);
    vsnprintf(note.text, sizeof note.text, format, args);
    va_end(args);
    world->ops->abort(world, &note);
}

/* Calls no function if `ok` holds: vectors are checked element by element. */
#define check(ok, ...)                                                                             \
    do {                                                                                           \
        if (!(ok))                                                                                 \
            suite_abort(__VA_ARGS__);                                                              \
    } while (0)

#define OK(call)                                                                                   \
    do {                                                                                           \
        enum sotto_status ok_ = (call);                                                            \
        check(ok_ == SOTTO_OK, "line %d: %s: %s", __LINE__, #call, sotto_error());                 \
    } while (0)

static void *memory(size_t bytes)
{
    void *p = malloc(bytes + 1);
    check(p != NULL, "no memory");
    memset(p, 0x5a, bytes + 1);
    return p;
}

static struct view vector(enum dtype type, size_t count)
{
    return view_of(memory(count * dtype_size(type)), type);
}

static void put(struct view v, size_t i, float value)
{
    if (v.type == DTYPE_F32)
        ((float *)v.data)[i] = value;
    else
        ((uint16_t *)v.data)[i] = bf16_round(value);
}

static float get(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((float *)v.data)[i] : bf16_widen(((uint16_t *)v.data)[i]);
}

/* Returns small integers that differ by rank and place. */
static float value(int rank, size_t i)
{
    return (float)((int)((i * 7 + (size_t)rank * 3) % 11) - 5);
}

static float value_sum(int size, size_t i)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, i);
    return sum;
}

/* Fills a vector with floats of many magnitudes, so that another order of additions gives other
 * bits. */
static void fill_random(struct view v, size_t count, int rank)
{
    uint64_t s = 0x9e3779b97f4a7c15u * (uint64_t)(rank + 1);
    for (size_t i = 0; i < count; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        put(v, i, ((float)(s >> 40) - 8388608.0f) / (float)(1u << (s >> 35 & 31)));
    }
}

static void fill(struct view v, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        put(v, i, value(rank, i));
}

static void test_allreduce(struct comm *c, enum dtype type, size_t count, bool in_place)
{
    struct view x = vector(type, count), y = in_place ? x : vector(type, count);
    fill(x, count, c->rank);
    OK(comm_allreduce(c, y, x, count));
    for (size_t i = 0; i < count; i++) {
        check(get(y, i) == value_sum(c->size, i), "allreduce of %zu: element %zu is %g", count, i,
              (double)get(y, i));
        check(in_place || get(x, i) == value(c->rank, i), "allreduce wrote to x at %zu", i);
    }
    if (!in_place)
        free(y.data);
    free(x.data);
}

static void test_reduce_scatter(struct comm *c, enum dtype type, size_t count, bool in_place)
{
    struct comm_block b = comm_block(count, c->size, c->rank);
    struct view x = vector(type, count);
    struct view y = in_place ? view_at(x, b.begin) : vector(type, b.end - b.begin);
    fill(x, count, c->rank);
    OK(comm_reduce_scatter(c, y, x, count));
    for (size_t i = b.begin; i < b.end; i++)
        check(get(y, i - b.begin) == value_sum(c->size, i),
              "reduce_scatter of %zu: element %zu is %g", count, i, (double)get(y, i - b.begin));
    for (size_t i = 0; i < count; i++)
        check((in_place && i >= b.begin && i < b.end) || get(x, i) == value(c->rank, i),
              "reduce_scatter wrote to x at %zu", i);
    if (!in_place)
        free(y.data);
    free(x.data);
}

static void test_allgather(struct comm *c, enum dtype type, size_t count, bool in_place)
{
    struct comm_block b = comm_block(count, c->size, c->rank);
    struct view y = vector(type, count);
    struct view x = in_place ? view_at(y, b.begin) : vector(type, b.end - b.begin);
    for (size_t i = b.begin; i < b.end; i++)
        put(x, i - b.begin, value(c->rank, i));
    OK(comm_allgather(c, y, x, count));
    for (int r = 0; r < c->size; r++) {
        b = comm_block(count, c->size, r);
        for (size_t i = b.begin; i < b.end; i++)
            check(get(y, i) == value(r, i), "allgather of %zu: element %zu is %g", count, i,
                  (double)get(y, i));
    }
    if (!in_place)
        free(x.data);
    free(y.data);
}

static void test_broadcast(struct comm *c, enum dtype type, size_t count)
{
    struct view x = vector(type, count);
    for (int root = 0; root < c->size; root++) {
        fill(x, count, c->rank + 10);
        OK(comm_broadcast(c, x, count, root));
        for (size_t i = 0; i < count; i++)
            check(get(x, i) == value(root + 10, i), "broadcast of %zu from %d: element %zu", count,
                  root, i);
    }
    free(x.data);
}

/* Messages around the ring. Rank 0 sends first, the other ranks receive first, since a send may
 * wait for its receiver. */
static void test_messages(struct comm *c, enum dtype type, size_t count)
{
    int next = (c->rank + 1) % c->size, previous = (c->rank + c->size - 1) % c->size;
    struct view x = vector(type, count), y = vector(type, count);
    fill(x, count, c->rank);
    if (c->rank == 0)
        OK(comm_send(c, x, count, next));
    OK(comm_recv(c, y, count, previous));
    if (c->rank != 0)
        OK(comm_send(c, x, count, next));
    for (size_t i = 0; i < count; i++)
        check(get(y, i) == value(previous, i), "message of %zu: element %zu", count, i);
    free(x.data);
    free(y.data);
}

/* Every rank exchanges with every other rank: rank r sends r elements less than there is room for;
 * with r = 0 also messages of whole pieces. Memory after a shorter message stays untouched. */
static void test_exchange(struct comm *c, enum dtype type, size_t count)
{
    struct view x = vector(type, count), y = vector(type, count);
    for (int far = 1; far < c->size; far++) {
        int to = (c->rank + far) % c->size, from = (c->rank + c->size - far) % c->size;
        size_t mine = count > (size_t)c->rank ? count - (size_t)c->rank : 0, came = 0;
        size_t want = count > (size_t)from ? count - (size_t)from : 0;
        fill(x, count, c->rank);
        fill(y, count, 99);
        OK(comm_exchange(c, x, mine, to, y, count, from, &came));
        check(came == want, "exchange of %zu: %zu came", want, came);
        for (size_t i = 0; i < count; i++)
            check(get(y, i) == value(i < want ? from : 99, i), "exchange of %zu: element %zu",
                  count, i);
    }
    free(x.data);
    free(y.data);
}

/* The ring's sums have the bits of sum_block, which threads use. */
static void test_bits(struct comm *c, enum dtype type, size_t count)
{
    struct view x[64], want = vector(type, count), y = vector(type, count);
    struct comm_block b = comm_block(count, c->size, c->rank);
    for (int r = 0; r < c->size; r++) {
        x[r] = vector(type, count);
        fill_random(x[r], count, r);
    }
    for (int r = 0; r < c->size; r++) {
        struct comm_block block = comm_block(count, c->size, r);
        sum_block(&want, 1, x, c->layout, r, block.begin, block.end);
    }
    OK(comm_allreduce(c, y, x[c->rank], count));
    check(memcmp(y.data, want.data, count * dtype_size(type)) == 0, "allreduce of %zu: other bits",
          count);
    OK(comm_reduce_scatter(c, y, x[c->rank], count));
    check(memcmp(y.data, view_at(want, b.begin).data, (b.end - b.begin) * dtype_size(type)) == 0,
          "reduce_scatter of %zu: other bits", count);
    for (int r = 0; r < c->size; r++)
        free(x[r].data);
    free(want.data);
    free(y.data);
}

/* The bytes that the front counts are the bytes that the ring sends. */
static void test_bytes(struct comm *c, enum dtype type, size_t count)
{
    static const enum comm_call calls[] = {COMM_ALLREDUCE, COMM_REDUCE_SCATTER, COMM_ALLGATHER};
    struct view x = vector(type, count), y = vector(type, count);
    fill(x, count, c->rank);
    for (int k = 0; k < 3; k++) {
        const struct comm_stats *t = &c->stats[calls[k]];
        const int64_t inside = t->inside, between = t->between;
        left[0] = left[1] = 0;
        watched = c;
        if (calls[k] == COMM_ALLREDUCE)
            OK(comm_allreduce(c, y, x, count));
        else if (calls[k] == COMM_REDUCE_SCATTER)
            OK(comm_reduce_scatter(c, y, x, count));
        else
            OK(comm_allgather(c, y, x, count));
        watched = NULL;
        check(t->inside - inside == left[0] && t->between - between == left[1],
              "%s of %zu: sent %lld and %lld, counted %lld and %lld", comm_call_name(calls[k]),
              count, (long long)left[0], (long long)left[1], (long long)(t->inside - inside),
              (long long)(t->between - between));
    }
    free(x.data);
    free(y.data);
}

static void test_small(struct comm *c)
{
    uint8_t mine[5] = {'r', 1, 2, 3, (uint8_t)c->rank}, all[64][5];
    OK(comm_gather_bytes(c, all, mine, sizeof mine));
    for (int r = 0; r < c->size; r++) {
        mine[4] = (uint8_t)r;
        check(memcmp(all[r], mine, sizeof mine) == 0, "gather_bytes: rank %d sent something else",
              r);
    }
    double x[3] = {c->rank, 1, 0.1};
    double tenths = 0;
    OK(comm_sum(c, x, 3));
    for (int r = 0; r < c->size; r++)
        tenths += 0.1;
    check(x[0] == c->size * (c->size - 1) / 2 && x[1] == c->size && x[2] == tenths,
          "comm_sum: %g %g %g", x[0], x[1], x[2]);
}

static void test_calls(struct comm *c, bool ring, size_t longest)
{
    const size_t counts[] = {0, 1, 7, 1023, longest};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int t = 0; t < 2; t++) {
            enum dtype type = t ? DTYPE_BF16 : DTYPE_F32;
            for (int in_place = 0; in_place < 2; in_place++) {
                test_allreduce(c, type, counts[k], in_place);
                test_reduce_scatter(c, type, counts[k], in_place);
                test_allgather(c, type, counts[k], in_place);
            }
            test_broadcast(c, type, counts[k]);
            test_exchange(c, type, counts[k]);
            if (c->size > 1)
                test_messages(c, type, counts[k]);
            if (ring) {
                test_bits(c, type, counts[k]);
                test_bytes(c, type, counts[k]);
            }
        }
    test_small(c);
    OK(comm_barrier(c));
}

/* All ranks send and receive at the same time, for vectors of every length. */
static void test_long(struct comm *c, size_t count)
{
    for (int t = 0; t < 2; t++) {
        const int before = one_sided;
        test_allreduce(c, t ? DTYPE_BF16 : DTYPE_F32, count, t);
        test_reduce_scatter(c, t ? DTYPE_BF16 : DTYPE_F32, count, !t);
        test_allgather(c, t ? DTYPE_BF16 : DTYPE_F32, count, t);
        check(one_sided == before, "%zu elements go to or from one rank at a time", count);
    }
}

static void test_splits(struct comm *c, bool ring, size_t longest)
{
    const int colors[] = {c->rank % 2, c->rank == 0 ? -7 : 1 << 30, c->rank};
    for (size_t k = 0; k < sizeof colors / sizeof *colors; k++) {
        struct comm *part;
        OK(comm_split(c, colors[k], &part));
        int members = k == 0              ? (c->size + 1 - c->rank % 2) / 2
                      : k == 1 && c->rank ? c->size - 1
                                          : 1;
        int place = k == 0 ? c->rank / 2 : k == 1 && c->rank ? c->rank - 1 : 0;
        check(part->size == members && part->rank == place, "split %zu: rank %d of %d", k,
              part->rank, part->size);
        check(part->node[part->rank] == c->node[c->rank], "split %zu: another node", k);
        test_calls(part, ring, longest);
        comm_free(part);
    }
}

struct lane_work {
    struct comm *comm;
    int times;
    double cpu, wall; /* seconds of the lane's thread */
};

static enum sotto_status reduce_often(void *arg)
{
    struct lane_work *w = arg;
    double cpu = seconds(CLOCK_THREAD_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
    float x[1000];
    for (int k = 0; k < w->times; k++) {
        struct view v = view_of(x, DTYPE_F32);
        fill(v, 1000, w->comm->rank);
        TRY(comm_allreduce(w->comm, v, v, 1000));
        for (size_t i = 0; i < 1000; i++)
            if (x[i] != value_sum(w->comm->size, i))
                return fail(SOTTO_EPEER, "in the lane, element %zu is %g", i, (double)x[i]);
    }
    w->cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    w->wall = seconds(CLOCK_MONOTONIC) - wall;
    return SOTTO_OK;
}

/* A lane reduces while the worker gathers and reduces on its own communicator. */
static void test_lane(struct comm *c)
{
    struct lane *lane;
    struct lane_work work = {.times = 100};
    OK(comm_duplicate(c, &work.comm));
    OK(lane_open_thread(&lane));
    OK(lane_start(lane, reduce_often, &work));
    for (int k = 0; k < 50; k++) {
        test_allgather(c, DTYPE_F32, 1023, k % 2);
        test_allreduce(c, DTYPE_BF16, 777, k % 2);
    }
    OK(lane_wait(lane));
    lane_close(lane);
    comm_free(work.comm);
}

/* A lane that waits 0.4 s for rank 0 does not spin. Its processor time is printed: below 2 % of a
 * core on a quiet machine. The limit here leaves room for a busy machine, where each wake-up finds
 * cold caches. */
static void test_idle(struct comm *c, const char *name)
{
    struct lane *lane;
    struct lane_work work = {.times = 1};
    double busy = 1;
    OK(comm_duplicate(c, &work.comm));
    OK(lane_open_thread(&lane));
    for (int attempt = 0; attempt < 3 && busy > 0; attempt++) {
        for (int k = 0; k < 4; k++) /* past the calls that are compared */
            OK(comm_barrier(work.comm));
        if (c->rank == 0)
            nanosleep(&(struct timespec){0, 400000000}, NULL);
        OK(lane_start(lane, reduce_often, &work));
        OK(lane_wait(lane));
        check(c->rank == 0 || work.wall > 0.3, "%s: the lane waited %g s only", name, work.wall);
        busy = c->rank != 0 && work.cpu > 0.2 * work.wall;
        OK(comm_sum(c, &busy, 1));
        if (c->rank == 1)
            printf("%s: a waiting lane takes %.2f %% of a core\n", name,
                   100 * work.cpu / work.wall);
    }
    check(busy == 0, "%s: waiting lanes of %g ranks take too much of a core, here %.1f %%", name,
          busy, 100 * work.cpu / work.wall);
    lane_close(lane);
    comm_free(work.comm);
}

/* A wait whose polls all look as if bytes had moved still ends in time. */
static void test_slow_looks(struct comm *c)
{
    const double begin = seconds(CLOCK_MONOTONIC);
    float x = 0;
    int from = 0;
    slow_until = begin + 10;
    OK(comm_recv_any(c, view_of(&x, DTYPE_F32), 1, NULL, clock_now(&clock_real) + 0.02, &from));
    const double took = seconds(CLOCK_MONOTONIC) - begin;
    check(from == -1 && took >= 0.02, "a message of rank %d after %g s", from, took);
    check(took < 5, "a wait of 0.02 s took %g s", took);
    slow_until = 0;
    OK(comm_barrier(c)); /* no rank sends or ends while others wait */
}

static void expect_mismatch(enum sotto_status st, const char *what, const char *text)
{
    check(st == SOTTO_EPEER, "%s was not noticed", what);
    check(strstr(sotto_error(), text), "%s: \"%s\"", what, sotto_error());
}

static void test_mismatch(struct comm *c)
{
    float x[64] = {0}, y[64];
    struct view v = view_of(x, DTYPE_F32), w = view_of(y, DTYPE_F32), h = view_of(x, DTYPE_BF16);
    bool odd = c->rank == c->size - 1;
    struct comm *d;
    OK(comm_duplicate(c, &d));
    expect_mismatch(comm_allreduce(d, v, v, odd ? 8 : 9), "another count",
                    "allreduce of 9 elements");
    expect_mismatch(comm_allreduce(d, odd ? h : v, odd ? h : v, 8), "another type", "of 2 bytes");
    expect_mismatch(odd ? comm_barrier(d) : comm_allgather(d, w, v, 8), "another call", "barrier");
    expect_mismatch(comm_broadcast(d, v, 8, odd ? 1 : 0), "another root", "from rank 1");
    struct comm *none;
    comm_free(d);
    OK(comm_duplicate(c, &d));
    expect_mismatch(odd ? comm_split(d, 0, &none) : comm_barrier(d), "a split", "split");
    if (c->rank < 2) { /* messages longer and shorter than expected */
        for (int k = 0; k < 2; k++)
            if (c->rank == 0)
                OK(comm_send(d, v, k ? 16 : 8, 1));
            else
                expect_mismatch(comm_recv(d, w, k ? 8 : 16, 0), "another length",
                                k ? "more" : "which sent 32");
        size_t came;
        if (c->rank == 0)
            OK(comm_exchange(d, v, 16, 1, w, 8, 1, &came));
        else
            expect_mismatch(comm_exchange(d, v, 8, 0, w, 8, 0, &came), "no room", "more");
    }
    comm_free(d);
}

/* A ring finds different lengths at any time; here between the two ranks of a pair. */
static void test_ring_length(struct comm *c)
{
    float x[64] = {0};
    struct view v = view_of(x, DTYPE_F32);
    struct comm *pair;
    OK(comm_split(c, c->rank / 2, &pair));
    if (pair->size == 2) {
        for (int k = 0; k < 4; k++)
            OK(comm_barrier(pair));
        expect_mismatch(comm_allreduce(pair, v, v, pair->rank ? 20 : 40), "another length",
                        pair->rank ? "sent" : "which sent 80");
    }
    comm_free(pair);
}

/* The first messages: between some ranks of every two hosts, for every order of ranks on hosts, and
 * few for each rank. */
static void test_meeting(void)
{
    static const int hosts[] = {2, 7, 16, 28}, each[] = {1, 3, 8};
    for (size_t i = 0; i < 2 * 4 * 3; i++) {
        const int h = hosts[i % 4], n = each[i / 4 % 3], size = h * n;
        const bool dealt = i >= 12;
        bool met[28][28] = {{false}};
        for (int a = 0; a < size; a++) {
            int most = 0;
            for (int b = 0; b < size; b++) {
                const bool meets = mpi_meets(size, a, b);
                check(meets == mpi_meets(size, b, a), "ranks %d and %d of %d", a, b, size);
                most += meets;
                met[dealt ? a % h : a / n][dealt ? b % h : b / n] |= meets;
            }
            check(most <= 64, "rank %d of %d meets %d", a, size, most);
        }
        for (int a = 0; a < h * h; a++)
            check(met[a / h][a % h] || a / h == a % h, "hosts %d and %d of %d", a / h, a % h, h);
    }
}

/* The ranks of a machine are consecutive, whatever their order in MPI; and the ring on machines,
 * and on a given number of nodes. */
static void test_nodes(void)
{
    const int size = world->size, half = (size + 1) / 2;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(world->rank == rank / 2 + rank % 2 * half, "MPI's rank %d is rank %d", rank, world->rank);
    for (int r = 0; r < size; r++) {
        const bool same = (r < half) == (world->rank < half);
        check(mpi_same_machine(world, r) == same, "rank %d beside rank %d", r, world->rank);
        check((world->node[r] == world->node[world->rank]) == same, "the node of rank %d", r);
    }
    for (int nodes = 0; nodes <= size; nodes++) {
        struct comm *c;
        const int want = nodes ? nodes : 2;
        OK(mpi_world(&c, &(struct mpi_config){.collectives = MPI_COLLECTIVES_RING,
                                              .nodes = nodes,
                                              .largest = 1000 * (size_t)(nodes % 2)}));
        const struct layout l = c->layout; /* one node for uneven nodes */
        check(size % want ? l.nodes == 1 && l.each == size
                          : l.nodes == want && l.each == size / want,
              "%d nodes: %d x %d", nodes, l.nodes, l.each);
        check(mpi_same_machine(c, 0) == (c->rank < half), "%d nodes: rank 0 beside rank %d", nodes,
              c->rank);
        test_calls(c, true, 20000);
        comm_free(c);
    }
    comm_free(world);
    exit(0);
}

static enum sotto_status wait_in_lane(void *arg)
{
    return comm_barrier(arg);
}

static void test_abort(void)
{
    struct comm *c;
    struct lane *lane;
    OK(comm_duplicate(world, &c));
    OK(lane_open_thread(&lane));
    if (world->rank == world->size - 1) {
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        check(false, "the disk is full");
    }
    OK(lane_start(lane, wait_in_lane, c));
    OK(comm_barrier(world));
}

/* Rank 2 sleeps. Its pair waits for it, and the other ranks for the pair. */
static void test_silent(void)
{
    struct comm *c, *pair;
    float x = 1;
    const struct view v = view_of(&x, DTYPE_F32);
    OK(mpi_world(&c, &(struct mpi_config){.collectives = MPI_COLLECTIVES_RING, .patience = 3}));
    OK(comm_split(c, c->rank / 2, &pair));
    OK(comm_barrier(c));
    if (c->rank == 2)
        nanosleep(&(struct timespec){7, 0}, NULL);
    OK(comm_allreduce(pair, v, v, 1));
    OK(comm_allreduce(c, v, v, 1));
    comm_free(pair);
    comm_free(c);
    comm_free(world);
    exit(0);
}

/* Rank 0 waits for any message while the last rank aborts. */
static void test_any_abort(void)
{
    float x = 1;
    int from;
    if (world->rank == world->size - 1) {
        OK(comm_send(world, view_of(&x, DTYPE_F32), 1, 0));
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        check(false, "the disk is full");
    }
    for (;;)
        OK(comm_recv_any(world, view_of(&x, DTYPE_F32), 1, NULL, INFINITY, &from));
}

/* Ranks are busy for longer than the patience. Messages sent before the end of their ranks are
 * received. */
static void test_ended(void)
{
    float x = 1;
    const struct view v = view_of(&x, DTYPE_F32);
    int from;
    if (world->rank) {
        nanosleep(&(struct timespec){2, 0}, NULL);
        OK(comm_send(world, v, 1, 0));
    }
    if (world->rank == 0) {
        for (int r = 1; r < world->size; r++)
            OK(comm_recv_any(world, v, 1, NULL, INFINITY, &from));
        expect_mismatch(comm_recv_any(world, v, 1, NULL, INFINITY, &from), "the end of all others",
                        "all ranks that could send it have ended");
    }
    comm_free(world);
    exit(0);
}

static void print_line(enum log_level level, const char *line, void *arg)
{
    (void)level, (void)arg;
    fprintf(stderr, "%s\n", line);
}

struct reducing {
    struct comm *c;
    struct buffer x;
};

static enum sotto_status reduce_ones(void *arg)
{
    struct reducing *r = arg;
    struct device *dev = r->c->dev;
    for (int i = 0; i < 20; i++) {
        dev->ops->fill(dev, r->x.view, 1000, 1);
        TRY(comm_allreduce(r->c, r->x.view, r->x.view, 1000));
    }
    return SOTTO_OK;
}

/* A lane with a communicator and a device of its own. */
static enum sotto_status lane_run_beside(struct worker *w, void *arg)
{
    struct memory memory = {0};
    struct device dev, lane_dev;
    struct reducing r;
    struct lane *lane;
    float host[1000];
    TRY(device_open(&dev, "apart", &memory, 1));
    w->world->dev = &dev;
    TRY(comm_duplicate(w->world, &r.c));
    TRY(w->ops->lane(w, &lane));
    TRY(suite_lane_device(lane, r.c, &lane_dev));
    TRY(buffer_init(&r.x, &lane_dev, DTYPE_F32, 1000, MEMORY_OUTER));
    TRY(lane_start(lane, reduce_ones, &r));
    TRY(stay_run(w, arg)); /* in parallel, with a device of its own */
    TRY(lane_wait(lane));
    lane_dev.ops->read(&lane_dev, host, r.x.view, 1000);
    for (int i = 0; i < 1000; i++)
        CHECK(host[i] == (float)w->size, "in the lane, [%d] is %g", i, host[i]);
    CHECK(r.c->staged == 0, "%lld bytes went through the host", (long long)r.c->staged);
    lane_close(lane);
    comm_free(r.c);
    buffer_free(&r.x);
    device_close(&lane_dev);
    device_close(&dev);
    return SOTTO_OK;
}

/* By NCCL: every call has the bits of every other backend, on one node and on two, in lanes too,
 * and no byte passes the host. */
static void test_nccl(void)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct comm *c;
        size_t counts[] = {1, 3, 10007};
        const struct mpi_config config = {
            .collectives = MPI_COLLECTIVES_RING, .nccl = MPI_NCCL_ON, .nodes = nodes};
        OK(mpi_world(&c, &config));
        for (int i = 0; i < 3; i++)
            OK(engine_mpi(c, stay_run, &counts[i]));
        OK(engine_mpi(c, lane_run_beside, &counts[1]));
        comm_free(c);
    }
    comm_free(world);
    exit(0);
}

/* A message of a rank to itself by NCCL, in a group as in device_collectives.c. */
struct to_self {
    const struct nccl *nccl;
    void *const *comm;
    size_t bytes;
    int pieces;
};

static enum sotto_status send_to_self(void *stream, const struct view *v, const void *arg)
{
    const struct to_self *t = arg;
    const struct nccl *n = t->nccl;
    const size_t each = t->bytes / (size_t)t->pieces;
    TRY(nccl_check(n, n->group_start(), "begin"));
    for (int i = 0; i < t->pieces; i++) {
        const size_t at = each * (size_t)i, bytes = i < t->pieces - 1 ? each : t->bytes - at;
        TRY(nccl_check(n, n->send((char *)v[0].data + at, bytes, NCCL_BYTES, 0, *t->comm, stream),
                       "send"));
        TRY(nccl_check(n, n->recv((char *)v[1].data + at, bytes, NCCL_BYTES, 0, *t->comm, stream),
                       "receive"));
    }
    return nccl_check(n, n->group_end(), "send and receive");
}

/* Ops of the stream around each message, which must not be reordered. */
static enum sotto_status self_calls(struct comm *c, struct device *dev, size_t count)
{
    const struct mpi_member *m = (const struct mpi_member *)c;
    const struct to_self t = {&m->shared->nccl, &m->on_device.comm, count * sizeof(float), 3};
    struct buffer x, y;
    bool done;
    float *host = malloc(count * sizeof *host);
    c->dev = dev;
    TRY(buffer_init(&x, dev, DTYPE_F32, count, MEMORY_OUTER));
    TRY(buffer_init(&y, dev, DTYPE_F32, count, MEMORY_OUTER));
    for (size_t i = 0; i < count; i++)
        host[i] = value(3, i);
    dev->ops->write(dev, x.view, host, count);
    for (int round = 1; round <= 20; round++) {
        TRY(c->ops->on_device(c, COMM_BROADCAST, x.view, x.view, count, 0, &done));
        CHECK(done && m->on_device.way == MPI_DEVICE_NCCL, "not by NCCL");
        const struct view both[] = {x.view, y.view};
        dev->ops->fill(dev, y.view, count, 99);
        dev->ops->call(dev, send_to_self, both, 2, &t, sizeof t);
        dev->ops->axpy(dev, x.view, 1, y.view, count); /* doubles x */
        dev->ops->scale(dev, x.view, 0.5f, count);
        dev->ops->scale(dev, y.view, (float)round, count);
        TRY(device_failed(dev));
        dev->ops->read(dev, host, y.view, count);
        CHECK(m->on_device.comm, "without NCCL's communicator");
        for (size_t i = 0; i < count; i++)
            CHECK(host[i] == (float)round * value(3, i), "round %d: [%zu] is %g", round, i,
                  host[i]);
    }
    c->dev = NULL;
    buffer_free(&x);
    buffer_free(&y);
    free(host);
    return device_check(dev);
}

struct self_work {
    struct comm *comm;
    struct device dev;
    struct memory memory;
};

static enum sotto_status self_in_lane(void *arg)
{
    struct self_work *w = arg;
    return self_calls(w->comm, &w->dev, 1 << 20);
}

/* Messages of the worker and of its lane at the same time, each with a communicator and a stream.
 */
static void test_self(void)
{
    static struct self_work own, beside;
    const char *device = getenv("SOTTO_TEST_DEVICE") ? stay_device() : "cuda";
    struct lane *lane;
    struct nccl nccl;
    nccl_init(&nccl);
    nccl_need(&nccl);
    if (!nccl.library || device_open(&own.dev, device, &own.memory, 1) != SOTTO_OK) {
        printf("%s\n", nccl.library ? sotto_error() : nccl.why);
        exit(77);
    }
    OK(mpi_world(&own.comm,
                 &(struct mpi_config){.collectives = MPI_COLLECTIVES_RING, .nccl = MPI_NCCL_ON}));
    OK(comm_duplicate(own.comm, &beside.comm));
    OK(device_open(&beside.dev, device, &beside.memory, 1));
    OK(lane_open_thread(&lane));
    OK(lane_start(lane, self_in_lane, &beside));
    OK(self_calls(own.comm, &own.dev, 1 << 20));
    OK(lane_wait(lane));
    OK(self_calls(own.comm, &own.dev, 7));
    lane_close(lane);
    comm_free(beside.comm);
    comm_free(own.comm);
    device_close(&beside.dev);
    device_close(&own.dev);
    check(own.memory.total == 0 && beside.memory.total == 0, "memory is left");
    nccl_close(&nccl);
    printf("messages to oneself by NCCL on '%s': ok\n", device);
    comm_free(world);
    exit(0);
}

static int gpu;

static int gpu_of(const struct device *dev)
{
    (void)dev;
    return gpu;
}

/* NCCL needs one GPU per rank: another GPU, or one on another machine. */
static void test_gpus(void)
{
    static const struct {
        int gpu[2], machines;
        enum sotto_status on; /* status with nccl = on */
        bool nccl;            /* true if nccl = auto uses NCCL */
    } cases[] = {{{0, 0}, 1, SOTTO_EINVAL, false},
                 {{0, 1}, 1, SOTTO_OK, true},
                 {{0, 0}, 2, SOTTO_OK, true},
                 {{3, 3}, 1, SOTTO_EINVAL, false},
                 {{-1, -1}, 1, SOTTO_OK, false}};
    struct memory account = {0};
    struct device dev;
    struct buffer b;
    struct ops ops;
    OK(device_open(&dev, "apart", &account, 1));
    OK(buffer_init(&b, &dev, DTYPE_F32, 100, MEMORY_OUTER));
    ops = *dev.ops;
    ops.number = gpu_of;
    dev.ops = &ops;
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct comm *c;
        const bool on = i % 2;
        const enum sotto_status want = on ? cases[i / 2].on : SOTTO_OK;
        const struct mpi_config config = {.collectives = MPI_COLLECTIVES_RING,
                                          .nccl = on ? MPI_NCCL_ON : MPI_NCCL_AUTO};
        machines = cases[i / 2].machines == 2 ? 2 : 0;
        gpu = cases[i / 2].gpu[world->rank];
        OK(mpi_world(&c, &config));
        c->dev = &dev;
        const enum sotto_status st = comm_allreduce(c, b.view, b.view, 100);
        check(st == want, "case %zu: status %d: %s", i, (int)st, sotto_error());
        check(st == SOTTO_OK || strstr(sotto_error(), "rank 1 shares its GPU with another rank"),
              "%s", sotto_error());
        const bool nccl = on ? want == SOTTO_OK : cases[i / 2].nccl;
        check(st != SOTTO_OK || (c->staged == 0) == nccl, "case %zu: %lld bytes through the host",
              i, (long long)c->staged);
        OK(device_check(&dev));
        c->dev = NULL;
        comm_free(c);
    }
    buffer_free(&b);
    device_close(&dev);
    comm_free(world);
    exit(0);
}

/* Without NCCL: nccl = on fails; otherwise vectors pass the host. */
static void test_no_nccl(void)
{
    struct comm *c;
    struct memory memory = {0};
    struct device dev;
    struct buffer b;
    OK(device_open(&dev, "apart", &memory, 1));
    OK(buffer_init(&b, &dev, DTYPE_F32, 100, MEMORY_OUTER));
    for (int on = 0; on < 2; on++) {
        const struct mpi_config config = {.collectives = MPI_COLLECTIVES_RING,
                                          .nccl = on ? MPI_NCCL_ON : MPI_NCCL_AUTO};
        OK(mpi_world(&c, &config));
        c->dev = &dev;
        const enum sotto_status st = comm_allreduce(c, b.view, b.view, 100);
        check(st == (on ? SOTTO_EINVAL : SOTTO_OK), "status %d: %s", (int)st, sotto_error());
        check(!on || strstr(sotto_error(), "comm.nccl = on: rank 0 cannot load libnccl.so.2"), "%s",
              sotto_error());
        check(on || c->staged == 2 * 400, "%lld bytes through the host", (long long)c->staged);
        c->dev = NULL;
        comm_free(c);
    }
    buffer_free(&b);
    device_close(&dev);
    comm_free(world);
    exit(0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct mpi_config config;
        size_t longest; /* longest vector, in more pieces than the ring has in flight; on a busy
                           machine each piece waits for its turn */
    } kind[] = {
        {"native", {.collectives = MPI_COLLECTIVES_NATIVE}, 100000},
        {"ring", {.collectives = MPI_COLLECTIVES_RING}, 100000},
        {"ring in pieces", {.collectives = MPI_COLLECTIVES_RING, .largest = 1000}, 20000},
        {"native in pieces", {.collectives = MPI_COLLECTIVES_NATIVE, .largest = 1000}, 20000},
    };
    log_set(print_line, NULL);
    const bool nccl = argc > 1 && strcmp(argv[1], "nccl") == 0;
    const bool no_nccl = argc > 1 && strcmp(argv[1], "no-nccl") == 0;
    const bool self = argc > 1 && strcmp(argv[1], "self") == 0;
    const bool gpus = argc > 1 && strcmp(argv[1], "gpus") == 0;
    machines = argc > 1 && !nccl && !no_nccl && !self && !gpus ? 2 : 0;
    const struct mpi_config soon = {.collectives = MPI_COLLECTIVES_RING, .patience = 1};
    const bool ended = argc > 1 && strcmp(argv[1], "ended") == 0;
    if (mpi_world(&world, ended ? &soon : NULL) != SOTTO_OK)
        return fprintf(stderr, "mpi_suite: %s\n", sotto_error()), 1;
    if (world->rank == 0)
        test_meeting();
    if (argc > 1 && strcmp(argv[1], "abort") == 0)
        test_abort();
    if (argc > 1 && strcmp(argv[1], "silent") == 0)
        test_silent();
    if (argc > 1 && strcmp(argv[1], "any") == 0)
        test_any_abort();
    if (ended)
        test_ended();
    if (nccl)
        test_nccl();
    if (no_nccl)
        test_no_nccl();
    if (self)
        test_self();
    if (gpus)
        test_gpus();
    if (argc > 1)
        test_nodes();
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
        struct comm *c;
        bool ring = kind[k].config.collectives == MPI_COLLECTIVES_RING;
        if (!share_has(k + (size_t)world->size, 2)) /* a share of the cases has native and ring */
            continue;
        OK(mpi_world(&c, &kind[k].config));
        check(c->rank == world->rank && c->size == world->size, "rank %d of %d", c->rank, c->size);
        test_calls(c, ring, kind[k].longest);
        test_splits(c, ring, kind[k].longest);
        test_lane(c);
        OK(engine_mpi(c, any_run, NULL));
        test_long(c, kind[k].longest - 1);
        if (c->size > 1) {
            test_mismatch(c);
            test_idle(c, kind[k].name);
            if (ring)
                test_slow_looks(c);
        }
        if (ring)
            test_ring_length(c);
        if (c->rank == 0)
            printf("%s, %d ranks: ok\n", kind[k].name, c->size);
        fflush(stdout);
        comm_free(c);
    }
    check(one_sided > 0 || world->size == 1, "broadcasts were not counted");
    comm_free(world);
    return 0;
}

/* The front of all communicators: checks arguments, places vectors on host or device, counts
 * seconds. Bytes are counted by stats.c. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/lane.h"
#include "comm/staging.h"
#include "comm/stats.h"
#include "tensor/ops.h"

const char *comm_call_name(enum comm_call call)
{
    static const char *const name[COMM_CALLS] = {
        "send",           "recv",      "exchange",  "allreduce",
        "reduce_scatter", "allgather", "broadcast", "barrier",
    };
    return name[call];
}

/* Returns the time at which a call begins, with an empty wait. */
static double begin_call(struct comm *c)
{
    const double now = clock_now(c->clock);
    c->wait = (struct comm_wait){now, now};
    return now;
}

/* Counts a call that lasted from `begin` to `end`. */
static void count_seconds(struct comm *c, enum comm_call call, double begin, double end)
{
    struct comm_stats *t = &c->stats[call];
    struct comm_wait *wait =
        &c->wait; /* cut to the call: both ends are read from the clock again */
    wait->from = fmin(fmax(wait->from, begin), end);
    wait->to = fmin(fmax(wait->to, wait->from), end);
    t->calls++;
    t->seconds = t->seconds + (end - begin); /* only the owner writes */
    t->waiting = t->waiting + (wait->to - wait->from);
    if (c->lane)
        lane_count_call(c->lane, begin, *wait, end);
}

/* Counts a call that lasted from `begin` until now. */
static void count_call(struct comm *c, enum comm_call call, double begin)
{
    count_seconds(c, call, begin, clock_now(c->clock));
}

/* True if a message of x, or into x, need not leave the device. */
static bool message_stays_on_device(const struct comm *c, struct view x)
{
    return c->ops->send_device && c->dev && x.data && x.place == PLACE_DEVICE;
}

typedef enum sotto_status send_op(struct comm *c, const void *data, size_t bytes, int to);

static enum sotto_status send_staged(struct comm *c, send_op *send, struct view x, size_t count,
                                     int to)
{
    struct view host;
    TRY(staging_room(c, x, x, count, &host));
    TRY(staging_take(c, host, x, count));
    return send(c, host.data, count * dtype_size(x.type), to);
}

static enum sotto_status send_message_by(struct comm *c, send_op *send, struct view x, size_t count,
                                         int to)
{
    assert(to >= 0 && to < c->size && (to != c->rank || c->twinned));
    double begin = begin_call(c);
    size_t bytes = count * dtype_size(x.type);
    TRY(message_stays_on_device(c, x) ? c->ops->send_device(c, x, count, to)
                                      : send_staged(c, send, x, count, to));
    stats_count_message(c, COMM_SEND, bytes, to);
    count_call(c, COMM_SEND, begin);
    return SOTTO_OK;
}

enum sotto_status comm_send(struct comm *c, struct view x, size_t count, int to)
{
    return send_message_by(c, c->ops->send, x, count, to);
}

enum sotto_status comm_post(struct comm *c, struct view x, size_t count, int to)
{
    return send_message_by(c, c->ops->post ? c->ops->post : c->ops->send, x, count, to);
}

enum sotto_status comm_wrong_length(const struct comm *c, size_t expected, size_t received,
                                    int from)
{
    return fail(SOTTO_EPEER, "rank %d expects %zu bytes from rank %d, which sent %zu", c->rank,
                expected, from, received);
}

static enum sotto_status recv_staged(struct comm *c, struct view x, size_t count, int from,
                                     size_t *received)
{
    const size_t bytes = count * dtype_size(x.type);
    struct view host;
    TRY(staging_room(c, x, x, count, &host));
    TRY(c->ops->recv(c, host.data, bytes, from, received));
    if (*received == bytes)
        staging_give(c, x, host, count);
    return SOTTO_OK;
}

enum sotto_status comm_recv(struct comm *c, struct view x, size_t count, int from)
{
    assert(from >= 0 && from < c->size && (from != c->rank || c->twinned));
    double begin = begin_call(c);
    size_t bytes = count * dtype_size(x.type), received = 0;
    TRY(message_stays_on_device(c, x) ? c->ops->recv_device(c, x, count, from, &received)
                                      : recv_staged(c, x, count, from, &received));
    count_call(c, COMM_RECV, begin);
    return received == bytes ? SOTTO_OK : comm_wrong_length(c, bytes, received, from);
}

enum sotto_status comm_all_ended(const struct comm *c)
{
    return fail(SOTTO_EPEER,
                "rank %d waits for a message, but all ranks that could send it have ended",
                c->rank);
}

static bool has_sender(const struct comm *c, const bool *among)
{
    for (int r = 0; r < c->size; r++)
        if ((!among || among[r]) && (r != c->rank || c->twinned))
            return true;
    return false;
}

static enum sotto_status recv_any_staged(struct comm *c, struct view x, size_t room,
                                         const bool *among, double until, int *from,
                                         size_t *received)
{
    const size_t unit = dtype_size(x.type);
    struct view host;
    TRY(staging_room(c, x, x, room, &host));
    TRY(c->ops->recv_any(c, host.data, room * unit, among, until, from, received));
    if (*from >= 0 && *received <= room * unit)
        staging_give(c, x, host, *received / unit);
    return SOTTO_OK;
}

enum sotto_status comm_recv_some(struct comm *c, struct view x, size_t room, const bool *among,
                                 double until, int *from, size_t *received)
{
    double begin = begin_call(c);
    const size_t unit = dtype_size(x.type);
    size_t bytes = 0;
    *from = -1;
    *received = 0;
    if (!has_sender(c, among))
        return comm_all_ended(c);
    TRY(message_stays_on_device(c, x)
            ? c->ops->recv_any_device(c, x, room, among, until, from, &bytes)
            : recv_any_staged(c, x, room, among, until, from, &bytes));
    count_call(c, COMM_RECV, begin);
    if (*from >= 0 && (bytes > room * unit || bytes % unit))
        return comm_wrong_length(c, room * unit, bytes, *from);
    *received = bytes / unit;
    return SOTTO_OK;
}

enum sotto_status comm_recv_any(struct comm *c, struct view x, size_t count, const bool *among,
                                double until, int *from)
{
    const size_t unit = dtype_size(x.type);
    size_t received;
    TRY(comm_recv_some(c, x, count, among, until, from, &received));
    return *from < 0 || received == count
               ? SOTTO_OK
               : comm_wrong_length(c, count * unit, received * unit, *from);
}

enum sotto_status comm_exchange(struct comm *c, struct view out, size_t count, int to,
                                struct view in, size_t room, int from, size_t *received)
{
    assert(to >= 0 && to < c->size && to != c->rank && out.type == in.type);
    assert(from >= 0 && from < c->size && from != c->rank);
    double begin = begin_call(c);
    size_t unit = dtype_size(out.type), bytes = 0;
    struct view host; /* memory for both vectors if one is in device memory */
    TRY(staging_room(c, out, in, count + room, &host));
    const bool staged = staging_used(out, in);
    const struct view host_out = staged ? host : out, host_in = staged ? view_at(host, count) : in;
    TRY(staging_take(c, host_out, out, count));
    if (c->ops->exchange) {
        TRY(c->ops->exchange(c, host_out.data, count * unit, to, host_in.data, room * unit, from,
                             &bytes));
    } else {
        TRY(c->ops->send(c, host_out.data, count * unit, to));
        TRY(c->ops->recv(c, host_in.data, room * unit, from, &bytes));
    }
    if (bytes <= room * unit)
        staging_give(c, in, host_in, bytes / unit);
    stats_count_message(c, COMM_EXCHANGE, count * unit, to);
    count_call(c, COMM_EXCHANGE, begin);
    if (bytes > room * unit || bytes % unit)
        return comm_wrong_length(c, room * unit, bytes, from);
    *received = bytes / unit;
    return SOTTO_OK;
}

static enum sotto_status collect_on_host(struct comm *c, enum comm_call call, struct view y,
                                         struct view x, size_t count)
{
    if (call == COMM_ALLREDUCE)
        return c->ops->allreduce(c, y, x, count);
    if (call == COMM_REDUCE_SCATTER)
        return c->ops->reduce_scatter(c, y, x, count);
    return c->ops->allgather(c, y.data, x.data, count, dtype_size(x.type));
}

/* Runs a collective through host memory; x or y is in device memory. On the host, both are parts of
 * the same `count` elements: all of them, or the rank's own block (the x of an all-gather, the y of
 * a reduce-scatter). */
static enum sotto_status collect_staged(struct comm *c, enum comm_call call, struct view y,
                                        struct view x, size_t count)
{
    const struct comm_block all = {0, count}, mine = comm_block(count, c->size, c->rank);
    const struct comm_block in = call == COMM_ALLGATHER ? mine : all;
    const struct comm_block out = call == COMM_REDUCE_SCATTER ? mine : all;
    struct view host;
    TRY(staging_room(c, y, x, count, &host));
    const struct view host_x = view_at(host, in.begin), host_y = view_at(host, out.begin);
    TRY(staging_take(c, host_x, x, in.end - in.begin));
    TRY(collect_on_host(c, call, host_y, host_x, count));
    staging_give(c, y, host_y, out.end - out.begin);
    return SOTTO_OK;
}

/* True if a collective of these vectors need not leave the device; all ranks find the same. An
 * empty block has no view. */
static bool collective_stays_on_device(const struct comm *c, struct view y, struct view x,
                                       size_t count)
{
    return c->ops->on_device && c->dev && c->dev->ops->sum_ranks && c->size <= RANKS_MOST &&
           count > 0 && (y.data || x.data) && (!y.data || y.place == PLACE_DEVICE) &&
           (!x.data || x.place == PLACE_DEVICE);
}

static enum sotto_status collect_on_device(struct comm *c, enum comm_call call, struct view y,
                                           struct view x, size_t count, int root, bool *done)
{
    *done = false;
    if (!collective_stays_on_device(c, y, x, count))
        return SOTTO_OK;
    TRY(c->ops->on_device(c, call, y, x, count, root, done));
    return *done ? device_failed(c->dev) : SOTTO_OK;
}

static enum sotto_status collect_where_placed(struct comm *c, enum comm_call call, struct view y,
                                              struct view x, size_t count)
{
    bool done;
    TRY(collect_on_device(c, call, y, x, count, 0, &done));
    if (done)
        return SOTTO_OK;
    return staging_used(y, x) ? collect_staged(c, call, y, x, count)
                              : collect_on_host(c, call, y, x, count);
}

static enum sotto_status broadcast_where_placed(struct comm *c, struct view x, size_t count,
                                                int root)
{
    struct view host;
    bool done;
    TRY(collect_on_device(c, COMM_BROADCAST, x, x, count, root, &done));
    if (done)
        return SOTTO_OK;
    TRY(staging_room(c, x, x, count, &host));
    if (c->rank == root)
        TRY(staging_take(c, host, x, count));
    TRY(c->ops->broadcast(c, host.data, count * dtype_size(x.type), root));
    if (c->rank != root)
        staging_give(c, x, host, count);
    return SOTTO_OK;
}

void comm_count(struct comm *c, enum comm_call call, enum dtype type, size_t count, double begin,
                double end)
{
    if (call == COMM_ALLREDUCE)
        stats_count_allreduce(c, type, count);
    else if (call == COMM_REDUCE_SCATTER)
        stats_count_reduce_scatter(c, type, count);
    else
        stats_count_allgather(c, count, dtype_size(type));
    count_seconds(c, call, begin, end);
}

static enum sotto_status run_collective(struct comm *c, enum comm_call call, struct view y,
                                        struct view x, size_t count)
{
    assert(y.type == x.type);
    double begin = begin_call(c);
    if (c->size == 1)
        staging_copy(c, y, x, count);
    else
        TRY(collect_where_placed(c, call, y, x, count));
    comm_count(c, call, x.type, count, begin, clock_now(c->clock));
    return SOTTO_OK;
}

enum sotto_status comm_collect(void *arg)
{
    const struct comm_collective *a = arg;
    return run_collective(a->comm, a->call, a->y, a->x, a->count);
}

enum sotto_status comm_allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    return run_collective(c, COMM_ALLREDUCE, y, x, count);
}

enum sotto_status comm_reduce_scatter(struct comm *c, struct view y, struct view x, size_t count)
{
    return run_collective(c, COMM_REDUCE_SCATTER, y, x, count);
}

enum sotto_status comm_allgather(struct comm *c, struct view y, struct view x, size_t count)
{
    return run_collective(c, COMM_ALLGATHER, y, x, count);
}

enum sotto_status comm_broadcast(struct comm *c, struct view x, size_t count, int root)
{
    assert(root >= 0 && root < c->size);
    double begin = begin_call(c);
    if (c->size > 1)
        TRY(broadcast_where_placed(c, x, count, root));
    stats_count_broadcast(c, count * dtype_size(x.type), root);
    count_call(c, COMM_BROADCAST, begin);
    return SOTTO_OK;
}

enum sotto_status comm_barrier(struct comm *c)
{
    double begin = begin_call(c);
    if (c->size > 1)
        TRY(c->ops->barrier(c));
    count_call(c, COMM_BARRIER, begin);
    return SOTTO_OK;
}

enum sotto_status comm_split(struct comm *c, int color, struct comm **out)
{
    *out = NULL;
    TRY(c->ops->split(c, color, out));
    (*out)->dev = c->dev;
    return SOTTO_OK;
}

enum sotto_status comm_duplicate(struct comm *c, struct comm **out)
{
    return comm_split(c, 0, out);
}

enum sotto_status comm_twin(struct comm *c, struct comm **out)
{
    assert(!c->twinned);
    *out = NULL;
    TRY(c->ops->twin(c, out));
    c->twinned = (*out)->twinned = true;
    return SOTTO_OK;
}

void comm_free(struct comm *c)
{
    if (c)
        c->ops->free(c);
}

/* Counts an all-gather of `bytes` bytes from each rank. */
static void count_byte_gather(struct comm *c, size_t bytes, double begin)
{
    stats_count_allgather(c, bytes * (size_t)c->size, 1);
    count_call(c, COMM_ALLGATHER, begin);
}

enum sotto_status comm_gather_bytes(struct comm *c, void *out, const void *in, size_t bytes)
{
    double begin = begin_call(c);
    if (c->size == 1)
        memcpy(out, in, bytes);
    else
        TRY(c->ops->allgather(c, out, in, bytes * (size_t)c->size, 1));
    count_byte_gather(c, bytes, begin);
    return SOTTO_OK;
}

/* Sums by an all-gather, for backends without the op. Memory for many workers is allocated for the
 * call: next to n messages, the allocation costs nothing. */
static enum sotto_status gather_and_sum(struct comm *c, double *x, int count)
{
    enum { ROOM = 1024 };
    double all[ROOM], *from = all;
    size_t bytes = (size_t)count * sizeof *x;
    if (c->size > ROOM / count && !(from = malloc(bytes * (size_t)c->size)))
        return fail(SOTTO_ENOMEM, "no memory for the numbers of %d workers", c->size);
    enum sotto_status st = comm_gather_bytes(c, from, x, bytes);
    for (int i = 0; i < count && st == SOTTO_OK; i++) {
        x[i] = 0;
        for (int r = 0; r < c->size; r++)
            x[i] += from[r * count + i];
    }
    if (from != all)
        free(from);
    return st;
}

enum sotto_status comm_sum(struct comm *c, double *x, int count)
{
    assert(count > 0);
    if (!c->ops->sum || c->size == 1)
        return gather_and_sum(c, x, count);
    double begin = begin_call(c);
    TRY(c->ops->sum(c, x, count));
    count_byte_gather(c, (size_t)count * sizeof *x, begin);
    return SOTTO_OK;
}

/* Writes the first line in which `a` differs from `b`, cut to `room` bytes. */
static void first_difference(const char *a, const char *b, char *line, size_t room)
{
    size_t same = 0;
    while (a[same] && a[same] == b[same])
        same++;
    while (same && a[same - 1] != '\n')
        same--;
    size_t length = strcspn(a + same, "\n");
    snprintf(line, room, "%.*s", (int)(length < room ? length : room - 1), a + same);
}

void comm_name(const struct comm *c, int rank, char out[COMM_NAME_ROOM])
{
    if (c->ops->rank_name)
        snprintf(out, COMM_NAME_ROOM, "%s", c->ops->rank_name(c, rank));
    else
        snprintf(out, COMM_NAME_ROOM, "rank %d", rank);
}

/* Fails on all ranks with the same message. Rank 0 broadcasts its text; rank `other` compares the
 * text with its own and broadcasts the message, so that the first rank to end the run has the
 * message. */
static enum sotto_status name_difference(struct comm *c, const char *what, const char *text,
                                         size_t length, int other)
{
    char mine[COMM_NAME_ROOM], its[COMM_NAME_ROOM];
    char here[200], there[200], message[1024] = "", *first = calloc(length + 1, 1);
    if (!first)
        return fail(SOTTO_ENOMEM, "no memory to compare %s", what);
    if (c->rank == 0)
        memcpy(first, text, length);
    enum sotto_status st = c->ops->broadcast(c, first, length, 0);
    if (st == SOTTO_OK && c->rank == other) {
        first_difference(text, first, here, sizeof here);
        first_difference(first, text, there, sizeof there);
        comm_name(c, c->rank, mine);
        comm_name(c, 0, its);
        snprintf(message, sizeof message, "%s differs: %s has '%s', %s has '%s'", what, mine, here,
                 its, there);
    }
    free(first);
    if (st == SOTTO_OK)
        st = c->ops->broadcast(c, message, sizeof message, other);
    return st == SOTTO_OK ? fail(SOTTO_EPEER, "%s", message) : st;
}

enum sotto_status comm_agree(struct comm *c, const char *what, const char *text)
{
    struct text_fingerprint {
        uint64_t hash, length;
    } mine = {hash_text(text), strlen(text)}, *all = calloc((size_t)c->size, sizeof *all);
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory to compare %d workers", c->size);
    enum sotto_status st = comm_gather_bytes(c, all, &mine, sizeof mine);
    int other = 0; /* a rank that differs from rank 0; 0: none */
    for (int r = 1; r < c->size && st == SOTTO_OK && !other; r++)
        if (memcmp(&all[r], &all[0], sizeof *all) != 0)
            other = r;
    if (st == SOTTO_OK && other)
        st = name_difference(c, what, text, (size_t)all[0].length, other);
    free(all);
    return st;
}

/* Collectives from GPU to GPU, by NCCL. What is added, in which order, and which bytes go where are
 * ring.h's, so bits are those of every other backend; but a rank sends straight to those that need
 * its blocks, all at once, and sums with the device's own op. (NCCL's sums have an order of their
 * own, which depends on its version and the machine.)
 *
 * Calls are issued to the device of the communicator and return. Lanes have communicators and
 * devices, hence streams, of their own. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <assert.h>
#include <stdlib.h>

#include "comm/sum.h"
#include "tensor/ops.h"

/* Messages that set out together. */
struct transfers {
    const struct nccl *nccl;
    void *const *comm;
    int n;
    struct transfer {
        int peer;
        bool send;
        size_t bytes;
    } at[DEVICE_CALL_VIEWS];
};

struct parcel_list {
    struct transfers t;
    struct view v[DEVICE_CALL_VIEWS];
};

static enum sotto_status transfer_now(void *stream, const struct view *v, const void *arg)
{
    const struct transfers *t = arg;
    const struct nccl *n = t->nccl;
    int code = n->group_start();
    for (int i = 0; i < t->n && code == 0; i++) {
        const struct transfer *p = &t->at[i];
        code = p->send ? n->send(v[i].data, p->bytes, NCCL_BYTES, p->peer, *t->comm, stream)
                       : n->recv(v[i].data, p->bytes, NCCL_BYTES, p->peer, *t->comm, stream);
    }
    const int ended = n->group_end();
    return nccl_check(n, code ? code : ended, "send and receive");
}

static void put(struct parcel_list *l, struct view v, size_t count, int peer, bool send)
{
    if (!count)
        return;
    assert(l->t.n < DEVICE_CALL_VIEWS);
    l->v[l->t.n] = v;
    l->t.at[l->t.n++] = (struct transfer){peer, send, count * dtype_size(v.type)};
}

static void set_out(struct mpi_member *m, struct parcel_list *l)
{
    struct device *dev = m->base.dev;
    l->t.nccl = &m->shared->nccl;
    l->t.comm = &m->on_device.comm;
    const size_t bytes = offsetof(struct transfers, at) + (size_t)l->t.n * sizeof l->t.at[0];
    if (l->t.n)
        dev->ops->call(dev, transfer_now, l->v, l->t.n, &l->t, bytes);
}

/* Where this rank is, and blocks of vectors of `count` elements. */
struct seat {
    int size, nodes, each, node, place;
    size_t count;
};

static struct seat seat_of(const struct comm *c, size_t count)
{
    const struct layout l = c->layout;
    return (struct seat){c->size, l.nodes, l.each, c->rank / l.each, c->rank % l.each, count};
}

static int rank_at(const struct seat *s, int node, int place)
{
    return node * s->each + place;
}

static size_t length(const struct seat *s, int node, int place)
{
    return comm_blocks(s->count, s->size, rank_at(s, node, place), 1);
}

static struct view block(const struct seat *s, struct view v, int node, int place)
{
    return view_at(v, comm_block(s->count, s->size, rank_at(s, node, place)).begin);
}

/* Room for what comes: the slice of this place from each rank of the node, its blocks one behind
 * the other, and the own block from each node. */
struct relay {
    struct view room;
    size_t slice;
};

static size_t slice_length(const struct seat *s)
{
    size_t sum = 0;
    for (int k = 0; k < s->nodes; k++)
        sum += length(s, k, s->place);
    return sum;
}

static struct view from_place(const struct seat *s, const struct relay *r, int place, int node)
{
    size_t at = (size_t)place * r->slice;
    for (int k = 0; k < node; k++)
        at += length(s, k, s->place);
    return view_at(r->room, at);
}

static struct view from_node(const struct seat *s, const struct relay *r, int node)
{
    return view_at(r->room,
                   (size_t)s->each * r->slice + (size_t)node * length(s, s->node, s->place));
}

static enum sotto_status open_relay(struct mpi_member *m, const struct seat *s, enum dtype type,
                                    struct relay *out)
{
    struct device *dev = m->base.dev;
    out->slice = slice_length(s);
    const size_t own = length(s, s->node, s->place);
    const size_t count = (size_t)s->each * out->slice + (size_t)s->nodes * own;
    TRY(device_relay(dev, count * dtype_size(type)));
    out->room = (struct view){dev->relay, type, dev->ops->place};
    return SOTTO_OK;
}

/* Around the node: its sum of the blocks of this place on node k goes to to[k]. */
static void sum_inside(struct mpi_member *m, const struct seat *s, const struct relay *r,
                       struct view x, const struct view *to)
{
    struct device *dev = m->base.dev;
    struct parcel_list l = {.t.n = 0};
    for (int i = 0; i < s->each; i++)
        for (int k = 0; k < s->nodes && i != s->place; k++) {
            put(&l, block(s, x, k, i), length(s, k, i), rank_at(s, s->node, i), true);
            put(&l, from_place(s, r, i, k), length(s, k, s->place), rank_at(s, s->node, i), false);
        }
    set_out(m, &l);
    for (int k = 0; k < s->nodes; k++) {
        const struct rank_sum p = {1, s->each, 0, s->place, 0, length(s, k, s->place)};
        struct view of[RANKS_MOST];
        for (int i = 0; i < s->each; i++)
            of[i] = i == s->place ? block(s, x, k, i) : from_place(s, r, i, k);
        if (p.end)
            dev->ops->sum_ranks(dev, &p, &to[k], 1, of);
    }
}

/* Across: y = the sum of all nodes' sums of the own block; those of this node are at sum[k]. */
static void sum_across(struct mpi_member *m, const struct seat *s, const struct relay *r,
                       struct view y, const struct view *sum)
{
    struct device *dev = m->base.dev;
    const size_t own = length(s, s->node, s->place);
    const struct rank_sum p = {s->nodes, 1, s->node, 0, 0, own};
    struct parcel_list l = {.t.n = 0};
    struct view of[RANKS_MOST];
    for (int k = 0; k < s->nodes; k++) {
        of[k] = k == s->node ? sum[k] : from_node(s, r, k);
        if (k == s->node)
            continue;
        put(&l, sum[k], length(s, k, s->place), rank_at(s, k, s->place), true);
        put(&l, of[k], own, rank_at(s, k, s->place), false);
    }
    set_out(m, &l);
    if (own)
        dev->ops->sum_ranks(dev, &p, &y, 1, of);
}

static enum sotto_status far_reduce_scatter(struct mpi_member *m, const struct seat *s,
                                            struct view y, struct view x)
{
    struct relay r;
    struct view sum[RANKS_MOST]; /* of the node, for each node */
    TRY(open_relay(m, s, x.type, &r));
    for (int k = 0; k < s->nodes; k++)
        sum[k] = s->nodes == 1  ? y
                 : s->each == 1 ? block(s, x, k, s->place)
                                : from_place(s, &r, s->place, k);
    if (s->each > 1)
        sum_inside(m, s, &r, x, sum);
    if (s->nodes > 1)
        sum_across(m, s, &r, y, sum);
    return SOTTO_OK;
}

static void far_allgather(struct mpi_member *m, const struct seat *s, struct view y, struct view x)
{
    struct device *dev = m->base.dev;
    struct parcel_list across = {.t.n = 0}, inside = {.t.n = 0};
    const struct view own = block(s, y, s->node, s->place);
    const size_t n = length(s, s->node, s->place);
    if (n && own.data != x.data)
        dev->ops->copy(dev, own, x, n);
    for (int k = 0; k < s->nodes; k++) {
        const int to = rank_at(s, k, s->place);
        if (k == s->node)
            continue;
        put(&across, own, n, to, true);
        put(&across, block(s, y, k, s->place), length(s, k, s->place), to, false);
    }
    set_out(m, &across);
    for (int i = 0; i < s->each; i++)
        for (int k = 0; k < s->nodes && i != s->place; k++) {
            const int to = rank_at(s, s->node, i);
            put(&inside, block(s, y, k, s->place), length(s, k, s->place), to, true);
            put(&inside, block(s, y, k, i), length(s, k, i), to, false);
        }
    set_out(m, &inside);
}

struct broadcasting {
    const struct nccl *nccl;
    void *const *comm;
    size_t bytes;
    int root;
};

static enum sotto_status broadcast_now(void *stream, const struct view *v, const void *arg)
{
    const struct broadcasting *b = arg;
    return nccl_check(
        b->nccl,
        b->nccl->broadcast(v->data, v->data, b->bytes, NCCL_BYTES, b->root, *b->comm, stream),
        "broadcast");
}

struct joining {
    const struct nccl *nccl;
    void **comm;
    struct nccl_id id;
    int size, rank;
};

static enum sotto_status join_now(void *stream, const struct view *v, const void *arg)
{
    const struct joining *j = arg;
    (void)stream, (void)v;
    return nccl_check(j->nccl, j->nccl->init_rank(j->comm, j->size, j->id, j->rank),
                      "join its ranks");
}

/* What ranks tell each other before the first call. */
struct far_note {
    int32_t loaded, number, host;
};

static enum sotto_status join(struct mpi_member *m)
{
    struct device *dev = m->base.dev;
    const struct nccl *n = &m->shared->nccl;
    struct joining j = {n, &m->on_device.comm, {{0}}, m->base.size, m->base.rank};
    if (m->base.rank == 0)
        TRY(nccl_check(n, n->get_id(&j.id), "begin"));
    MPI_DO(m, "begin NCCL", MPI_Ibcast, &j.id, (int)sizeof j.id, MPI_BYTE, 0, m->comm);
    dev->ops->call(dev, join_now, NULL, 0, &j, sizeof j);
    return device_failed(dev);
}

/* Whether all ranks can; *why of one that cannot, and which. */
static int who_cannot(const struct mpi_member *m, const struct far_note *all, const char **why)
{
    for (int r = 0; r < m->base.size; r++) {
        *why = "cannot load libnccl.so.2";
        if (!all[r].loaded)
            return r;
        *why = "has its GPU from another rank, too, and NCCL wants one for each";
        for (int q = 0; q < r; q++)
            if (all[q].host == all[r].host && all[q].number == all[r].number && all[r].number >= 0)
                return r;
        *why = "has no GPU";
        if (all[r].number < 0 && m->shared->config.nccl == MPI_NCCL_AUTO)
            return r;
    }
    return -1;
}

static enum sotto_status decide(struct mpi_member *m)
{
    struct mpi_shared *s = m->shared;
    const struct device *dev = m->base.dev;
    nccl_need(&s->nccl);
    struct far_note *all = mpi_scratch(&m->base, (size_t)m->base.size * sizeof *all);
    const struct far_note mine = {s->nccl.library && dev->ops->call,
                                  dev->ops->number ? dev->ops->number(dev) : -1, s->host[s->rank]};
    const char *why;
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", m->base.size);
    MPI_DO(m, "begin NCCL", MPI_Iallgather, &mine, (int)sizeof mine, MPI_BYTE, all,
           (int)sizeof mine, MPI_BYTE, m->comm);
    const int who = who_cannot(m, all, &why);
    if (who >= 0 && s->config.nccl == MPI_NCCL_ON)
        return fail(SOTTO_EINVAL, "comm.nccl = on: rank %d %s%s%s", who, why,
                    who == m->base.rank && !mine.loaded ? ": " : "",
                    who == m->base.rank && !mine.loaded ? s->nccl.why : "");
    m->on_device.way = who < 0 ? MPI_FAR_NCCL : MPI_FAR_HOST;
    return who < 0 ? join(m) : SOTTO_OK;
}

enum sotto_status mpi_far(struct comm *c, enum comm_call call, struct view y, struct view x,
                          size_t count, int root, bool *done)
{
    struct mpi_member *m = (struct mpi_member *)c;
    const struct seat s = seat_of(c, count);
    *done = false;
    if (m->shared->config.nccl == MPI_NCCL_OFF)
        return SOTTO_OK;
    if (m->on_device.way == MPI_FAR_UNKNOWN)
        TRY(decide(m));
    if (m->on_device.way == MPI_FAR_HOST)
        return SOTTO_OK;
    *done = true;
    TRY(mpi_open_call(m, call, count, dtype_size(y.type), root));
    if (call == COMM_ALLREDUCE) {
        const struct view own = block(&s, y, s.node, s.place);
        TRY(far_reduce_scatter(m, &s, own, x));
        far_allgather(m, &s, y, own);
    } else if (call == COMM_REDUCE_SCATTER) {
        TRY(far_reduce_scatter(m, &s, y, x));
    } else if (call == COMM_ALLGATHER) {
        far_allgather(m, &s, y, x);
    } else {
        const struct broadcasting b = {&m->shared->nccl, &m->on_device.comm,
                                       count * dtype_size(y.type), root};
        c->dev->ops->call(c->dev, broadcast_now, &y, 1, &b, sizeof b);
    }
    return SOTTO_OK;
}

void mpi_far_close(struct mpi_member *m)
{
    if (!m->on_device.comm)
        return;
    if (m->base.dev) /* otherwise it was closed, when all was done */
        (void)device_check(m->base.dev);
    (void)m->shared->nccl.destroy(m->on_device.comm);
    m->on_device.comm = NULL;
}

#endif

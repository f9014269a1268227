/* Collectives from GPU to GPU, by NCCL. The sums, their order, and the bytes between nodes are
 * those of ring.h, so bits are the same as in every other backend. A rank sends each block straight
 * to the ranks that need the block, all at the same time, and sums with the device's own op.
 * (NCCL's sums have an order of their own, which depends on its version and the machine.)
 *
 * Calls are issued to the device of the communicator and return at once. Lanes have communicators
 * and devices, hence streams, of their own. */
#include "comm/mpi/mpi_impl.h"

#ifdef SOTTO_WITH_MPI

#include <assert.h>
#include <stdlib.h>

#include "comm/sum.h"
#include "tensor/ops.h"

/* Messages that start together, in one NCCL group. */
struct nccl_transfers {
    const struct nccl *nccl;
    void *const *comm;
    int n;
    struct nccl_transfer {
        int peer;
        bool send;
        size_t bytes;
    } at[DEVICE_CALL_VIEWS];
};

struct transfer_list {
    struct nccl_transfers t;
    struct view v[DEVICE_CALL_VIEWS];
};

static enum sotto_status run_transfers(void *stream, const struct view *v, const void *arg)
{
    const struct nccl_transfers *t = arg;
    const struct nccl *n = t->nccl;
    int code = n->group_start();
    for (int i = 0; i < t->n && code == 0; i++) {
        const struct nccl_transfer *p = &t->at[i];
        code = p->send ? n->send(v[i].data, p->bytes, NCCL_BYTES, p->peer, *t->comm, stream)
                       : n->recv(v[i].data, p->bytes, NCCL_BYTES, p->peer, *t->comm, stream);
    }
    const int ended = n->group_end();
    return nccl_check(n, code ? code : ended, "send and receive");
}

static void add_transfer(struct transfer_list *l, struct view v, size_t count, int peer, bool send)
{
    if (!count)
        return;
    assert(l->t.n < DEVICE_CALL_VIEWS);
    l->v[l->t.n] = v;
    l->t.at[l->t.n++] = (struct nccl_transfer){peer, send, count * dtype_size(v.type)};
}

static void start_transfers(struct mpi_member *m, struct transfer_list *l)
{
    struct device *dev = m->base.dev;
    l->t.nccl = &m->shared->nccl;
    l->t.comm = &m->on_device.comm;
    const size_t bytes = offsetof(struct nccl_transfers, at) + (size_t)l->t.n * sizeof l->t.at[0];
    if (l->t.n)
        dev->ops->call(dev, run_transfers, l->v, l->t.n, &l->t, bytes);
}

/* Position of this rank in the layout, and `count`, the elements of a vector that is cut into
 * blocks. */
struct block_map {
    int size, nodes, each, node, place;
    size_t count;
};

static struct block_map block_map_of(const struct comm *c, size_t count)
{
    const struct layout l = c->layout;
    return (struct block_map){c->size, l.nodes, l.each, c->rank / l.each, c->rank % l.each, count};
}

static int block_rank(const struct block_map *s, int node, int place)
{
    return node * s->each + place;
}

static size_t block_length(const struct block_map *s, int node, int place)
{
    return comm_blocks(s->count, s->size, block_rank(s, node, place), 1);
}

static struct view block_view(const struct block_map *s, struct view v, int node, int place)
{
    return view_at(v, comm_block(s->count, s->size, block_rank(s, node, place)).begin);
}

/* Memory for received blocks: the slice of this place from each rank of the node, block after
 * block, then the own block from each node. */
struct nccl_relay {
    struct view room;
    size_t slice;
};

static size_t slice_length(const struct block_map *s)
{
    size_t sum = 0;
    for (int k = 0; k < s->nodes; k++)
        sum += block_length(s, k, s->place);
    return sum;
}

static struct view relay_from_place(const struct block_map *s, const struct nccl_relay *r,
                                    int place, int node)
{
    size_t at = (size_t)place * r->slice;
    for (int k = 0; k < node; k++)
        at += block_length(s, k, s->place);
    return view_at(r->room, at);
}

static struct view relay_from_node(const struct block_map *s, const struct nccl_relay *r, int node)
{
    return view_at(r->room,
                   (size_t)s->each * r->slice + (size_t)node * block_length(s, s->node, s->place));
}

static enum sotto_status open_relay(struct mpi_member *m, const struct block_map *s,
                                    enum dtype type, struct nccl_relay *out)
{
    struct device *dev = m->base.dev;
    out->slice = slice_length(s);
    const size_t own = block_length(s, s->node, s->place);
    const size_t count = (size_t)s->each * out->slice + (size_t)s->nodes * own;
    TRY(device_relay(dev, count * dtype_size(type)));
    out->room = (struct view){dev->relay, type, dev->ops->place};
    return SOTTO_OK;
}

/* Sums inside the node: the node's sum of the blocks of this place on node k goes to to[k]. */
static void nccl_sum_inside(struct mpi_member *m, const struct block_map *s,
                            const struct nccl_relay *r, struct view x, const struct view *to)
{
    struct device *dev = m->base.dev;
    struct transfer_list l = {.t.n = 0};
    for (int i = 0; i < s->each; i++)
        for (int k = 0; k < s->nodes && i != s->place; k++) {
            add_transfer(&l, block_view(s, x, k, i), block_length(s, k, i),
                         block_rank(s, s->node, i), true);
            add_transfer(&l, relay_from_place(s, r, i, k), block_length(s, k, s->place),
                         block_rank(s, s->node, i), false);
        }
    start_transfers(m, &l);
    for (int k = 0; k < s->nodes; k++) {
        const struct rank_sum p = {1, s->each, 0, s->place, 0, block_length(s, k, s->place)};
        struct view of[RANKS_MOST];
        for (int i = 0; i < s->each; i++)
            of[i] = i == s->place ? block_view(s, x, k, i) : relay_from_place(s, r, i, k);
        if (p.end)
            dev->ops->sum_ranks(dev, &p, &to[k], 1, of);
    }
}

/* Sums across nodes: y <- the sum of all nodes' sums of the own block. This node's sums are in
 * sum[k]. */
static void nccl_sum_across(struct mpi_member *m, const struct block_map *s,
                            const struct nccl_relay *r, struct view y, const struct view *sum)
{
    struct device *dev = m->base.dev;
    const size_t own = block_length(s, s->node, s->place);
    const struct rank_sum p = {s->nodes, 1, s->node, 0, 0, own};
    struct transfer_list l = {.t.n = 0};
    struct view of[RANKS_MOST];
    for (int k = 0; k < s->nodes; k++) {
        of[k] = k == s->node ? sum[k] : relay_from_node(s, r, k);
        if (k == s->node)
            continue;
        add_transfer(&l, sum[k], block_length(s, k, s->place), block_rank(s, k, s->place), true);
        add_transfer(&l, of[k], own, block_rank(s, k, s->place), false);
    }
    start_transfers(m, &l);
    if (own)
        dev->ops->sum_ranks(dev, &p, &y, 1, of);
}

static enum sotto_status nccl_reduce_scatter(struct mpi_member *m, const struct block_map *s,
                                             struct view y, struct view x)
{
    struct nccl_relay r;
    struct view sum[RANKS_MOST]; /* for each node: this node's sum of the blocks of its place */
    TRY(open_relay(m, s, x.type, &r));
    for (int k = 0; k < s->nodes; k++)
        sum[k] = s->nodes == 1  ? y
                 : s->each == 1 ? block_view(s, x, k, s->place)
                                : relay_from_place(s, &r, s->place, k);
    if (s->each > 1)
        nccl_sum_inside(m, s, &r, x, sum);
    if (s->nodes > 1)
        nccl_sum_across(m, s, &r, y, sum);
    return SOTTO_OK;
}

static void nccl_allgather(struct mpi_member *m, const struct block_map *s, struct view y,
                           struct view x)
{
    struct device *dev = m->base.dev;
    struct transfer_list across = {.t.n = 0}, inside = {.t.n = 0};
    const struct view own = block_view(s, y, s->node, s->place);
    const size_t n = block_length(s, s->node, s->place);
    if (n && own.data != x.data)
        dev->ops->copy(dev, own, x, n);
    for (int k = 0; k < s->nodes; k++) {
        const int to = block_rank(s, k, s->place);
        if (k == s->node)
            continue;
        add_transfer(&across, own, n, to, true);
        add_transfer(&across, block_view(s, y, k, s->place), block_length(s, k, s->place), to,
                     false);
    }
    start_transfers(m, &across);
    for (int i = 0; i < s->each; i++)
        for (int k = 0; k < s->nodes && i != s->place; k++) {
            const int to = block_rank(s, s->node, i);
            add_transfer(&inside, block_view(s, y, k, s->place), block_length(s, k, s->place), to,
                         true);
            add_transfer(&inside, block_view(s, y, k, i), block_length(s, k, i), to, false);
        }
    start_transfers(m, &inside);
}

struct nccl_broadcast_call {
    const struct nccl *nccl;
    void *const *comm;
    size_t bytes;
    int root;
};

static enum sotto_status run_broadcast(void *stream, const struct view *v, const void *arg)
{
    const struct nccl_broadcast_call *b = arg;
    return nccl_check(
        b->nccl,
        b->nccl->broadcast(v->data, v->data, b->bytes, NCCL_BYTES, b->root, *b->comm, stream),
        "broadcast");
}

struct nccl_join_call {
    const struct nccl *nccl;
    void **comm;
    struct nccl_id id;
    int size, rank;
};

static enum sotto_status run_join(void *stream, const struct view *v, const void *arg)
{
    const struct nccl_join_call *j = arg;
    (void)stream, (void)v;
    return nccl_check(j->nccl, j->nccl->init_rank(j->comm, j->size, j->id, j->rank),
                      "join its ranks");
}

/* What ranks exchange before the first call. */
struct nccl_note {
    int32_t loaded, number, host;
};

static enum sotto_status join_nccl(struct mpi_member *m)
{
    struct device *dev = m->base.dev;
    const struct nccl *n = &m->shared->nccl;
    struct nccl_join_call j = {n, &m->on_device.comm, {{0}}, m->base.size, m->base.rank};
    if (m->base.rank == 0)
        TRY(nccl_check(n, n->get_id(&j.id), "begin"));
    MPI_DO(m, "begin NCCL", MPI_Ibcast, &j.id, (int)sizeof j.id, MPI_BYTE, 0, m->comm);
    dev->ops->call(dev, run_join, NULL, 0, &j, sizeof j);
    return device_failed(dev);
}

/* Returns the first rank that cannot use NCCL, and *why; -1: all can. */
static int find_unable_rank(const struct mpi_member *m, const struct nccl_note *all,
                            const char **why)
{
    for (int r = 0; r < m->base.size; r++) {
        *why = "cannot load libnccl.so.2";
        if (!all[r].loaded)
            return r;
        *why = "shares its GPU with another rank, but NCCL needs one GPU per rank";
        for (int q = 0; q < r; q++)
            if (all[q].host == all[r].host && all[q].number == all[r].number && all[r].number >= 0)
                return r;
        *why = "has no GPU";
        if (all[r].number < 0 && m->shared->config.nccl == MPI_NCCL_AUTO)
            return r;
    }
    return -1;
}

static enum sotto_status choose_device_way(struct mpi_member *m)
{
    struct mpi_shared *s = m->shared;
    const struct device *dev = m->base.dev;
    nccl_need(&s->nccl);
    struct nccl_note *all = mpi_scratch(&m->base, (size_t)m->base.size * sizeof *all);
    const struct nccl_note mine = {s->nccl.library && dev->ops->call,
                                   dev->ops->number ? dev->ops->number(dev) : -1, s->host[s->rank]};
    const char *why;
    if (!all)
        return fail(SOTTO_ENOMEM, "no memory for %d ranks", m->base.size);
    MPI_DO(m, "begin NCCL", MPI_Iallgather, &mine, (int)sizeof mine, MPI_BYTE, all,
           (int)sizeof mine, MPI_BYTE, m->comm);
    const int who = find_unable_rank(m, all, &why);
    if (who >= 0 && s->config.nccl == MPI_NCCL_ON)
        return fail(SOTTO_EINVAL, "comm.nccl = on: rank %d %s%s%s", who, why,
                    who == m->base.rank && !mine.loaded ? ": " : "",
                    who == m->base.rank && !mine.loaded ? s->nccl.why : "");
    m->on_device.way = who < 0 ? MPI_DEVICE_NCCL : MPI_DEVICE_HOST;
    return who < 0 ? join_nccl(m) : SOTTO_OK;
}

enum sotto_status mpi_collect_on_device(struct comm *c, enum comm_call call, struct view y,
                                        struct view x, size_t count, int root, bool *done)
{
    struct mpi_member *m = (struct mpi_member *)c;
    const struct block_map s = block_map_of(c, count);
    *done = false;
    if (m->shared->config.nccl == MPI_NCCL_OFF)
        return SOTTO_OK;
    if (m->on_device.way == MPI_DEVICE_UNKNOWN)
        TRY(choose_device_way(m));
    if (m->on_device.way == MPI_DEVICE_HOST)
        return SOTTO_OK;
    *done = true;
    TRY(mpi_open_call(m, call, count, dtype_size(y.type), root));
    if (call == COMM_ALLREDUCE) {
        const struct view own = block_view(&s, y, s.node, s.place);
        TRY(nccl_reduce_scatter(m, &s, own, x));
        nccl_allgather(m, &s, y, own);
    } else if (call == COMM_REDUCE_SCATTER) {
        TRY(nccl_reduce_scatter(m, &s, y, x));
    } else if (call == COMM_ALLGATHER) {
        nccl_allgather(m, &s, y, x);
    } else {
        const struct nccl_broadcast_call b = {&m->shared->nccl, &m->on_device.comm,
                                              count * dtype_size(y.type), root};
        c->dev->ops->call(c->dev, run_broadcast, &y, 1, &b, sizeof b);
    }
    return SOTTO_OK;
}

void mpi_device_close(struct mpi_member *m)
{
    if (!m->on_device.comm)
        return;
    if (m->base.dev) /* NULL: the device is closed, when all its ops were done */
        (void)device_check(m->base.dev);
    (void)m->shared->nccl.destroy(m->on_device.comm);
    m->on_device.comm = NULL;
}

#endif

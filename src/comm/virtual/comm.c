#include "comm/virtual/comm.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/model/way.h"
#include "comm/sum.h"

enum { CALL_SPLIT = COMM_CALLS, CALL_SUM };

/* What a rank brings to a collective. */
struct offer {
    int call;
    size_t count, unit;
    int root;
    int color;         /* split */
    struct comm **out; /* split */
};

struct message {
    struct flow flow;
    struct network_use use[2];
    struct message *next;
    size_t bytes, room;
    double sent, ready; /* when it set out, when its last byte arrives */
    double latency;
    bool gone; /* the last byte has left */
    int from;
    struct member *to;
    struct virtual_process *sender; /* waits for that */
    void *data;
    bool empty; /* only its size was declared */
};

/* From one rank to another. */
struct box {
    struct message *first, *last;
};

struct group {
    struct virtual_sim *sim;
    int size, users;
    int *node;   /* (size) */
    int *worker; /* (size): its ranks in the world */
    struct way way;
    struct trip trip; /* the collective that is under way */
    int arrived;
    double met;                     /* when the last rank came to the collective before ... */
    double end;                     /* ... when it was over, which it */
    bool over;                      /* ... is */
    struct offer *offer;            /* (size) */
    struct view *x, *y;             /* (size) */
    struct virtual_process **there; /* (size): who waits in the collective */
    struct member **member;         /* (size) */
    struct message *idle;           /* memory for the next messages */
    struct status_note failure;     /* once workers disagree, for good */
};

struct member {
    struct comm base;
    struct group *group;
    struct box *box;                  /* (size): from each rank; NULL until a message comes */
    struct virtual_process *receiver; /* waits for a message from rank `from` */
    int from;
};

static const struct comm_ops virtual_comm_ops;

static const char *call_name(int call)
{
    if (call >= COMM_CALLS)
        return call == CALL_SPLIT ? "split" : "sum";
    return comm_call_name((enum comm_call)call);
}

static void free_messages(struct message *m)
{
    while (m) {
        struct message *next = m->next;
        free(m->data);
        free(m);
        m = next;
    }
}

static void free_group(struct group *g)
{
    for (int r = 0; r < g->size && g->member; r++) {
        for (int i = 0; i < g->size && g->member[r] && g->member[r]->box; i++)
            free_messages(g->member[r]->box[i].first);
        if (g->member[r])
            free(g->member[r]->box);
        free(g->member[r]);
    }
    free_messages(g->idle);
    way_close(&g->way);
    free(g->node);
    free(g->worker);
    free(g->offer);
    free(g->x);
    free(g->y);
    free(g->there);
    free(g->member);
    free(g);
}

static void free_comm(struct comm *c)
{
    struct group *g = ((struct member *)c)->group;
    if (--g->users == 0)
        free_group(g);
}

/* NULL without memory; the workers are still to be set (set_worker, then open_way). */
static struct group *make_group(struct virtual_sim *sim, int size)
{
    struct group *g = calloc(1, sizeof *g);
    size_t n = (size_t)size;
    if (!g)
        return NULL;
    g->sim = sim;
    g->size = g->users = size;
    g->node = calloc(n, sizeof *g->node);
    g->worker = calloc(n, sizeof *g->worker);
    g->offer = calloc(n, sizeof *g->offer);
    g->x = calloc(n, sizeof *g->x);
    g->y = calloc(n, sizeof *g->y);
    g->there = calloc(n, sizeof(struct virtual_process *));
    g->member = calloc(n, sizeof(struct member *));
    bool whole = g->node && g->worker && g->offer && g->x && g->y && g->there && g->member;
    for (int r = 0; r < size && whole; r++) {
        struct member *m = g->member[r] = calloc(1, sizeof *m);
        if ((whole = m != NULL)) {
            m->base = (struct comm){.ops = &virtual_comm_ops,
                                    .rank = r,
                                    .size = size,
                                    .node = g->node,
                                    .clock = &sim->clock};
            m->group = g;
        }
    }
    if (!whole) {
        free_group(g);
        return NULL;
    }
    return g;
}

static void set_worker(struct group *g, int rank, int worker, int node)
{
    g->worker[rank] = worker;
    g->node[rank] = node;
}

static void let_go(struct trip *trip, double time);

static void open_way(struct group *g)
{
    way_open(&g->way, g->sim->net, g->worker, g->node, g->size);
    g->trip.over = let_go;
    for (int r = 0; r < g->size; r++)
        g->member[r]->base.layout = g->way.layout;
}

enum sotto_status virtual_world(struct virtual_sim *sim, const int *node, int workers,
                                struct comm **out)
{
    struct group *g = make_group(sim, workers);
    if (!g)
        return fail(SOTTO_ENOMEM, "no memory for a world of %d", workers);
    for (int r = 0; r < g->size; r++) {
        set_worker(g, r, r, node[r]);
        out[r] = &g->member[r]->base;
    }
    open_way(g);
    return SOTTO_OK;
}

static bool same(const struct offer *a, const struct offer *b)
{
    return a->call == b->call && a->count == b->count && a->unit == b->unit && a->root == b->root;
}

static enum sotto_status check_offers(const struct group *g)
{
    const struct offer *a = &g->offer[0];
    for (int r = 1; r < g->size; r++) {
        const struct offer *o = &g->offer[r];
        if (same(a, o))
            continue;
        if (a->call == o->call && a->root != o->root)
            return fail(
                SOTTO_EPEER,
                "workers call different things: rank 0 %s from root %d, rank %d %s from root %d",
                call_name(a->call), a->root, r, call_name(o->call), o->root);
        return fail(
            SOTTO_EPEER,
            "workers call different things: rank 0 %s of %zu elements of %zu bytes, rank %d "
            "%s of %zu elements of %zu bytes",
            call_name(a->call), a->count, a->unit, r, call_name(o->call), o->count, o->unit);
    }
    return SOTTO_OK;
}

/* Whether every rank brought memory; an empty block of its own needs none. */
static bool have_data(const struct group *g)
{
    const struct offer *o = &g->offer[0];
    bool all = o->count > 0;
    for (int r = 0; r < g->size && all; r++) {
        struct comm_block b = comm_block(o->count, g->size, r);
        bool no_x = o->call == COMM_ALLGATHER && b.begin == b.end;
        bool no_y = o->call == COMM_REDUCE_SCATTER && b.begin == b.end;
        all = (g->x[r].data || no_x) && (g->y[r].data || no_y);
    }
    return all;
}

static void combine_sums(struct group *g, bool scatter, size_t count, size_t unit)
{
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        if (b.begin == b.end)
            continue;
        struct view y = g->y[r];
        y.data = (char *)y.data - b.begin * unit; /* as if y were the whole vector */
        sum_block(scatter ? &y : g->y, scatter ? 1 : g->size, g->x, g->member[r]->base.layout, r,
                  b.begin, b.end);
    }
}

/* Into rank 0's memory block by block, from there to the others at once. */
static void combine_blocks(struct group *g, size_t count, size_t unit)
{
    char *whole = g->y[0].data;
    for (int r = 0; r < g->size; r++) {
        struct comm_block b = comm_block(count, g->size, r);
        if (b.end > b.begin && whole + b.begin * unit != g->x[r].data)
            memmove(whole + b.begin * unit, g->x[r].data, (b.end - b.begin) * unit);
    }
    for (int r = 1; r < g->size; r++)
        memcpy(g->y[r].data, whole, count * unit);
}

static void combine_numbers(struct group *g, int count)
{
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < g->size; r++)
            sum += ((const double *)g->x[r].data)[i];
        for (int r = 0; r < g->size; r++)
            ((double *)g->y[r].data)[i] = sum;
    }
}

static int by_color(const void *a, const void *b)
{
    const struct offer *x = *(const struct offer *const *)a, *y = *(const struct offer *const *)b;
    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    return x < y ? -1 : x > y; /* both in g->offer: by rank */
}

/* New groups, one a color. Either all are made or none. */
static enum sotto_status make_split(struct group *g)
{
    bool whole = true;
    const struct offer **order = malloc((size_t)g->size * sizeof(const struct offer *));
    if (!order)
        return fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
    for (int r = 0; r < g->size; r++)
        order[r] = &g->offer[r];
    qsort(order, (size_t)g->size, sizeof(const struct offer *), by_color);
    for (int begin = 0, end; begin < g->size && whole; begin = end) {
        for (end = begin; end < g->size && order[end]->color == order[begin]->color;)
            end++;
        struct group *part = make_group(g->sim, end - begin);
        whole = part != NULL;
        for (int i = begin; i < end && whole; i++) {
            const int rank = (int)(order[i] - g->offer);
            set_worker(part, i - begin, g->worker[rank], g->node[rank]);
            *order[i]->out = &part->member[i - begin]->base;
        }
        if (whole)
            open_way(part);
    }
    for (int r = 0; r < g->size && !whole; r++) {
        comm_free(*g->offer[r].out);
        *g->offer[r].out = NULL;
    }
    free(order);
    return whole ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
}

/* All have come: moves the data. */
static enum sotto_status complete(struct group *g)
{
    TRY(check_offers(g));
    const struct offer *o = &g->offer[0];
    const bool moves = have_data(g);
    switch (o->call) {
    case COMM_ALLREDUCE:
    case COMM_REDUCE_SCATTER:
        if (moves)
            combine_sums(g, o->call == COMM_REDUCE_SCATTER, o->count, o->unit);
        return SOTTO_OK;
    case COMM_ALLGATHER:
        if (moves)
            combine_blocks(g, o->count, o->unit);
        return SOTTO_OK;
    case COMM_BROADCAST:
        for (int r = 0; r < g->size && moves; r++)
            if (r != o->root)
                memcpy(g->y[r].data, g->x[o->root].data, o->count);
        return SOTTO_OK;
    case CALL_SUM:
        combine_numbers(g, (int)o->count);
        return SOTTO_OK;
    case CALL_SPLIT:
        return make_split(g);
    default:
        return SOTTO_OK;
    }
}

static struct group *group_of(struct trip *trip)
{
    return (struct group *)((char *)trip - offsetof(struct group, trip));
}

/* The collective has come through: all go on. The last to come need not have begun to wait. */
static void let_go(struct trip *trip, double time)
{
    struct group *g = group_of(trip);
    g->over = true;
    g->end = time;
    for (int r = 0; r < g->size; r++)
        if (g->there[r]->state == PROCESS_WAITING)
            virtual_wake(g->there[r], time);
}

/* It sets out through the network. Making communicators costs no time, nor does a pause. */
static enum sotto_status set_out(struct group *g)
{
    const struct offer *o = &g->offer[0];
    struct way_call call = {.call = (enum comm_call)o->call,
                            .bytes = (double)o->count * (double)o->unit,
                            .bf16 = o->unit == dtype_size(DTYPE_BF16),
                            .root = o->root};
    if (o->call == CALL_SUM) { /* each rank's numbers go to all */
        call.call = COMM_ALLGATHER;
        call.bytes *= g->size;
    }
    if (g->sim->net && o->call != CALL_SPLIT && !g->sim->current->free)
        return trip_start(&g->trip, &g->way, call, g->met);
    let_go(&g->trip, g->met);
    return SOTTO_OK;
}

static enum sotto_status collective(struct comm *c, struct offer offer, struct view y,
                                    struct view x)
{
    struct group *g = ((struct member *)c)->group;
    struct virtual_sim *sim = g->sim;
    TRY(status_raise(&sim->stop));
    TRY(status_raise(&g->failure));
    g->offer[c->rank] = offer;
    g->x[c->rank] = x;
    g->y[c->rank] = y;
    g->there[c->rank] = sim->current;
    g->over = false;
    if (++g->arrived == g->size) {
        g->arrived = 0;
        g->met = sim->current->time;
        enum sotto_status st = complete(g);
        if (st == SOTTO_OK)
            st = set_out(g);
        if (st != SOTTO_OK) {
            status_save(&g->failure, st);
            let_go(&g->trip, g->met);
        }
    }
    if (g->over)
        virtual_advance(sim, g->end);
    else
        TRY(virtual_block(sim, call_name(offer.call), -1));
    c->wait.to = g->met; /* nobody comes to the next one before all have left this */
    return status_raise(&g->failure);
}

static enum sotto_status allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    struct offer offer = {.call = COMM_ALLREDUCE, .count = count, .unit = dtype_size(x.type)};
    return collective(c, offer, y, x);
}

static enum sotto_status reduce_scatter(struct comm *c, struct view y, struct view x, size_t count)
{
    struct offer offer = {.call = COMM_REDUCE_SCATTER, .count = count, .unit = dtype_size(x.type)};
    return collective(c, offer, y, x);
}

static enum sotto_status allgather(struct comm *c, void *y, const void *x, size_t count,
                                   size_t unit)
{
    struct offer offer = {.call = COMM_ALLGATHER, .count = count, .unit = unit};
    return collective(c, offer, (struct view){.data = y}, (struct view){.data = (void *)x});
}

static enum sotto_status broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    struct view x = {.data = data};
    return collective(
        c, (struct offer){.call = COMM_BROADCAST, .count = bytes, .unit = 1, .root = root}, x, x);
}

static enum sotto_status sum_numbers(struct comm *c, double *x, int count)
{
    struct view v = {.data = x};
    return collective(
        c, (struct offer){.call = CALL_SUM, .count = (size_t)count, .unit = sizeof *x}, v, v);
}

static enum sotto_status barrier(struct comm *c)
{
    return collective(c, (struct offer){.call = COMM_BARRIER}, view_none, view_none);
}

static enum sotto_status split(struct comm *c, int color, struct comm **out)
{
    return collective(c, (struct offer){.call = CALL_SPLIT, .color = color, .out = out}, view_none,
                      view_none);
}

static enum sotto_status take_message(struct group *g, const void *data, size_t bytes,
                                      struct message **out)
{
    struct message *m = g->idle;
    if (m)
        g->idle = m->next;
    else if (!(m = calloc(1, sizeof *m)))
        return fail(SOTTO_ENOMEM, "no memory for a message");
    m->next = NULL;
    m->bytes = bytes;
    m->empty = !data;
    if (data && m->room < bytes) {
        free(m->data);
        m->data = malloc(bytes);
        m->room = m->data ? bytes : 0;
    }
    if (data && m->room < bytes) {
        free_messages(m);
        return fail(SOTTO_ENOMEM, "no memory for a message of %zu bytes", bytes);
    }
    if (data && bytes)
        memcpy(m->data, data, bytes);
    *out = m;
    return SOTTO_OK;
}

/* The last byte has left: the sender goes on, and the receiver after the latency. */
static void message_left(struct flow *flow, double time)
{
    struct message *m = (struct message *)flow; /* its first member */
    struct member *to = m->to;
    m->gone = true;
    m->ready = time + m->latency;
    if (m->sender->state == PROCESS_WAITING)
        virtual_wake(m->sender, time);
    if (to->receiver && to->from == m->from && to->box[m->from].first == m) {
        virtual_wake(to->receiver, m->ready);
        to->receiver = NULL;
    }
}

static enum sotto_status set_out_message(struct group *g, struct message *m)
{
    struct virtual_sim *sim = g->sim;
    m->gone = false;
    m->sender = sim->current;
    m->sent = sim->current->time;
    m->latency = 0;
    m->flow.use = m->use;
    m->flow.n = 0;
    m->flow.ended = message_left;
    if (sim->net && !sim->current->free) {
        const struct hop hop =
            network_hop(sim->net, g->worker[m->from], g->worker[m->to->base.rank]);
        m->latency = hop.latency;
        for (int i = 0; i < 2; i++)
            if (hop.side[i] >= 0)
                m->use[m->flow.n++] = (struct network_use){.side = hop.side[i], .streams = 1};
    }
    if (!m->flow.n) {
        message_left(&m->flow, m->sent);
        return SOTTO_OK;
    }
    TRY(network_reserve(sim->net));
    network_start(sim->net, &m->flow, (double)m->bytes, m->sent);
    return SOTTO_OK;
}

/* The sender is busy until the last byte has left; the latency is only the receiver's. */
static enum sotto_status send_message(struct comm *c, const void *data, size_t bytes, int to)
{
    struct group *g = ((struct member *)c)->group;
    struct virtual_sim *sim = g->sim;
    struct member *peer = g->member[to];
    struct message *m = NULL;
    TRY(status_raise(&sim->stop));
    if (!peer->box && !(peer->box = calloc((size_t)g->size, sizeof *peer->box)))
        return fail(SOTTO_ENOMEM, "no memory for messages from %d ranks", g->size);
    TRY(take_message(g, data, bytes, &m));
    m->from = c->rank;
    m->to = peer;
    struct box *box = &peer->box[c->rank];
    if (box->first)
        box->last->next = m;
    else
        box->first = m;
    box->last = m;
    TRY(set_out_message(g, m));
    if (m->gone)
        return SOTTO_OK;
    return virtual_block(sim, comm_call_name(COMM_SEND), to);
}

static enum sotto_status recv_message(struct comm *c, void *data, size_t room, int from,
                                      size_t *came)
{
    struct member *self = (struct member *)c;
    struct group *g = self->group;
    struct virtual_sim *sim = g->sim;
    TRY(status_raise(&sim->stop));
    c->wait.from = sim->current->time;
    if (!self->box || !self->box[from].first || !self->box[from].first->gone) {
        self->receiver = sim->current;
        self->from = from;
        TRY(virtual_block(sim, comm_call_name(COMM_RECV), from));
    }
    struct box *box = &self->box[from];
    struct message *m = box->first;
    box->first = m->next;
    c->wait.to = m->sent;
    virtual_advance(sim, m->ready);
    *came = m->bytes;
    if (*came && *came <= room && data && !m->empty)
        memcpy(data, m->data, *came);
    m->next = g->idle;
    g->idle = m;
    return SOTTO_OK;
}

static void abort_world(struct comm *c, const struct status_note *note)
{
    struct virtual_sim *sim = ((struct member *)c)->group->sim;
    struct status_note named = {.code = note->code};
    snprintf(named.text, sizeof named.text, "worker %d: %.*s", sim->current->rank, STATUS_ROOM - 32,
             note->text);
    virtual_stop(sim, &named);
}

static const struct comm_ops virtual_comm_ops = {
    .name = "virtual",
    .send = send_message,
    .recv = recv_message,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .sum = sum_numbers,
    .broadcast = broadcast,
    .barrier = barrier,
    .split = split,
    .abort = abort_world,
    .free = free_comm,
};

/* Messages of cyclic data parallelism: sent in one lane, received in another, each in the order of
 * the schedule.
 *
 * A communicator belongs to one line of work, so a worker only sends or only receives on it. Each
 * bit of a device's number has two communicators: one for senders with the bit 0, one for senders
 * with the bit 1. A message from u to v uses the lowest bit in which u and v differ. */
#include "strategy/cdp/cdp.h"

#include <assert.h>
#include <stdlib.h>

static int device_bits(int devices)
{
    int n = 0;
    while (1 << n < devices)
        n++;
    return n;
}

static struct comm *comm_between(const struct cdp *c, int from, int to)
{
    int bit = 0;
    assert(from != to);
    while (!((from ^ to) >> bit & 1))
        bit++;
    return c->comm[2 * bit + (from >> bit & 1)];
}

static enum sotto_status open_line(struct cdp *c, struct cdp_line *line, size_t room)
{
    TRY(mesh_lane(c->shard.is.mesh, c->shard.is.mesh->shard, &line->lane));
    line->ring = calloc(room, sizeof *line->ring);
    line->room = room;
    return line->ring ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory for %zu messages", room);
}

enum sotto_status cdp_transfer_open(struct cdp *c)
{
    struct mesh *mesh = c->shard.is.mesh;
    const int n = device_bits(c->devices);
    const size_t room = CDP_VECTORS * (size_t)c->is.n + 16;
    if (c->devices == 1)
        return SOTTO_OK;
    c->comm = calloc(2 * (size_t)n, sizeof(struct comm *));
    if (!c->comm)
        return fail(SOTTO_ENOMEM, "no memory for %d communicators", 2 * n);
    TRY(open_line(c, &c->in, room));
    TRY(open_line(c, &c->out, room));
    for (int b = 0; b < n; b++)
        for (int side = 0; side < 2; side++)
            TRY(mesh_duplicate(mesh, mesh->shard,
                               (c->device >> b & 1) == side ? c->out.lane : c->in.lane,
                               &c->comm[2 * b + side]));
    return SOTTO_OK;
}

void cdp_transfer_free(struct cdp *c)
{
    if (c->out.lane)
        (void)lane_wait(c->out.lane); /* jobs use the rings */
    if (c->in.lane)
        (void)lane_wait(c->in.lane);
    free(c->in.ring);
    free(c->out.ring);
    free(c->comm);
}

enum sotto_status cdp_wait_message(struct cdp_line *line, uint64_t message)
{
    if (message <= line->waited)
        return SOTTO_OK;
    TRY(lane_wait_but(line->lane, (size_t)(line->started - message)));
    line->waited = message;
    return SOTTO_OK;
}

static enum sotto_status send_job(void *arg)
{
    struct cdp_message *m = arg;
    TRY(comm_send(m->comm, m->view, m->count, m->peer));
    atomic_store(&m->done, true);
    return SOTTO_OK;
}

static enum sotto_status receive_job(void *arg)
{
    struct cdp_message *m = arg;
    return comm_recv(m->comm, m->view, m->count, m->peer);
}

/* Returns the next message of the ring, after the message before in the same place is done. */
static enum sotto_status next_message(struct cdp_line *line, struct cdp_message **out)
{
    if (line->started >= line->room)
        TRY(cdp_wait_message(line, line->started - line->room + 1));
    *out = &line->ring[line->started % line->room];
    return SOTTO_OK;
}

static enum sotto_status start_transfer(struct cdp_line *line, lane_job *job, struct cdp_message *m)
{
    TRY(lane_start(line->lane, job, m));
    line->started++;
    return SOTTO_OK;
}

static int flight_slot(const struct cdp *c, const struct cdp_move *move)
{
    int slot = 0;
    while (c->flight[slot].step != move->step || c->flight[slot].micro != move->micro)
        slot++;
    return slot;
}

/* Finds a message's memory on this worker: `view`, `count`. */
static enum sotto_status message_view(struct cdp *c, const struct cdp_move *move, int slot,
                                      bool receives, struct view *view, size_t *count)
{
    struct cdp_stage *st = &c->stage[move->stage];
    *count = st->count;
    switch (move->what) {
    case CDP_ACTIVATION:
        return oracle_edge(c->shard.is.oracle, slot, move->stage, view, count);
    case CDP_ACTIVATION_GRADIENT:
        return oracle_edge_gradient(c->shard.is.oracle, slot, move->stage + 1, view, count);
    case CDP_SUM:
        *view = receives && move->add ? c->added.view : st->g[move->step & 1];
        return SOTTO_OK;
    default:
        *view = receives ? st->theta[st->two] : cdp_theta(c, move->stage, move->version);
        return SOTTO_OK;
    }
}

static enum sotto_status start_message_send(struct cdp *c, const struct cdp_move *move,
                                            struct view view, size_t count, int slot, int edge)
{
    struct cdp_message *m;
    TRY(next_message(&c->out, &m));
    m->comm = comm_between(c, move->from, move->to);
    m->peer = move->to;
    m->slot = slot;
    m->edge = edge;
    m->view = view;
    m->count = count;
    atomic_store(&m->done, false);
    return start_transfer(&c->out, send_job, m);
}

static enum sotto_status start_message_receive(struct cdp *c, const struct cdp_move *move,
                                               struct view view, size_t count)
{
    struct cdp_message *m;
    TRY(next_message(&c->in, &m));
    m->comm = comm_between(c, move->from, move->to);
    m->peer = move->from;
    m->view = view;
    m->count = count;
    return start_transfer(&c->in, receive_job, m);
}

/* Sends a stage's state. The sender keeps none of it, except in mp the version in use. */
static enum sotto_status send_state(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    struct view vector[CDP_VECTORS];
    const int n = cdp_state_vectors(c, move, false, vector);
    for (int i = 0; i < n; i++)
        TRY(start_message_send(c, move, vector[i], st->count, 0, 0));
    st->room->sent = c->out.started;
    if (c->is.placement == CDP_ZERO)
        st->room = NULL;
    else if (move->parts & CDP_PART_NEWEST)
        st->theta_sent[0] = c->out.started;
    return SOTTO_OK;
}

static enum sotto_status receive_state(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    struct view vector[CDP_VECTORS];
    if (c->is.placement == CDP_ZERO)
        cdp_enter_room(st, cdp_vacant_room(c, move->stage));
    else if (move->parts & CDP_PART_NEWEST)
        TRY(cdp_wait_message(&c->out, st->theta_sent[st->two]));
    TRY(cdp_wait_message(&c->out, st->room->sent)); /* its last state message must be sent */
    const int n = cdp_state_vectors(c, move, true, vector);
    for (int i = 0; i < n; i++)
        TRY(start_message_receive(c, move, vector[i], st->count));
    return SOTTO_OK;
}

enum sotto_status cdp_send(struct cdp *c, const struct cdp_move *move)
{
    struct cdp_stage *st = &c->stage[move->stage];
    const bool edge = move->what == CDP_ACTIVATION, back = move->what == CDP_ACTIVATION_GRADIENT;
    const int slot = edge || back ? flight_slot(c, move) : 0;
    struct view view;
    size_t count;
    if (move->what == CDP_STATE)
        return send_state(c, move);
    TRY(message_view(c, move, slot, false, &view, &count));
    TRY(start_message_send(c, move, view, count, slot,
                           edge   ? move->stage
                           : back ? move->stage + 1
                                  : 0));
    if (edge || back)
        c->flight[slot].edges = c->out.started;
    if (move->what == CDP_SUM)
        st->g_sent[0] = st->g_sent[1] = c->out.started;
    if (move->what == CDP_PARAMETERS)
        st->theta_sent[move->version != st->version] = c->out.started;
    return SOTTO_OK;
}

enum sotto_status cdp_receive(struct cdp *c, const struct cdp_move *move, int slot, uint64_t *out)
{
    struct cdp_stage *st = &c->stage[move->stage];
    struct view view;
    size_t count;
    if (move->what == CDP_SUM && !move->add)
        TRY(cdp_wait_message(&c->out,
                             st->g_sent[move->step & 1])); /* the sum before must be sent */
    if (move->what == CDP_PARAMETERS)
        TRY(cdp_wait_message(&c->out, st->theta_sent[st->two]));
    if (move->what == CDP_ACTIVATION_GRADIENT)
        TRY(cdp_wait_edges(c, &c->flight[slot]));
    if (move->what == CDP_STATE) {
        TRY(receive_state(c, move));
    } else {
        TRY(message_view(c, move, slot, true, &view, &count));
        TRY(start_message_receive(c, move, view, count));
    }
    *out = c->in.started;
    return SOTTO_OK;
}

enum sotto_status cdp_wait_edges(struct cdp *c, const struct cdp_flight *f)
{
    TRY(cdp_wait_message(&c->out, f->edges));
    cdp_drop_sent_edges(c);
    return SOTTO_OK;
}

void cdp_drop_sent_edges(struct cdp *c)
{
    const uint64_t first = c->out.started > c->out.room ? c->out.started - c->out.room : 0;
    for (uint64_t i = first; i < c->out.started; i++) {
        struct cdp_message *m = &c->out.ring[i % c->out.room];
        if (!m->edge || !atomic_load(&m->done))
            continue;
        oracle_drop(c->shard.is.oracle, m->slot, m->edge);
        m->edge = 0;
    }
}

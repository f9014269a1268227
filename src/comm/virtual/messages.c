#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/virtual/virtual_impl.h"

void virtual_free_messages(struct virtual_message *m)
{
    while (m) {
        struct virtual_message *next = m->next;
        payload_free(&m->payload);
        free(m);
        m = next;
    }
}

/* Takes an idle message, or makes one, and fills its payload. Messages with device memory are kept
 * in a list of their own. */
static enum sotto_status take_message(struct comm *c, struct view x, size_t count,
                                      struct virtual_message **out)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    struct virtual_message **idle = &g->idle[x.place == PLACE_DEVICE], *m = *idle;
    if (m)
        *idle = m->next;
    else if (!(m = calloc(1, sizeof *m)))
        return fail(SOTTO_ENOMEM, "no memory for a message");
    m->next = NULL;
    m->place = x.place;
    const enum sotto_status st = payload_fill(&m->payload, &g->sim->depot, c, x, count);
    if (st != SOTTO_OK)
        virtual_free_messages(m);
    else
        *out = m;
    return st;
}

/* Puts a message into the receiver's list of messages that have left, most often at the end. */
static void list_message(struct virtual_message *m)
{
    struct virtual_member *to = m->to;
    struct virtual_message *before = to->last;
    while (before &&
           (before->ready > m->ready || (before->ready == m->ready && before->from > m->from)))
        before = before->before;
    m->before = before;
    m->after = before ? before->after : to->first;
    *(before ? &before->after : &to->first) = m;
    *(m->after ? &m->after->before : &to->last) = m;
}

static void unlist_message(struct virtual_message *m)
{
    struct virtual_member *to = m->to;
    *(m->before ? &m->before->after : &to->first) = m->after;
    *(m->after ? &m->after->before : &to->last) = m->before;
}

/* Ends a message's flow: the last byte has left. The sender continues; the receiver continues after
 * the latency. */
static void virtual_message_left(struct network_flow *flow, double time)
{
    struct virtual_message *m = (struct virtual_message *)flow; /* first member */
    struct virtual_member *to = m->to;
    m->has_left = true;
    m->ready = fmax(time + m->latency, m->earliest);
    list_message(m);
    if (m->sender->state == PROCESS_WAITING)
        virtual_wake(m->sender, time);
    if (to->receiver && to->from == FROM_ANY && (!to->among || to->among[m->from]))
        virtual_wake_at(to->receiver, m->ready);
    if (to->receiver && to->from == m->from && to->box[m->from].first == m) {
        virtual_wake(to->receiver, m->ready);
        to->receiver = NULL;
    }
}

static enum sotto_status set_out_message(struct virtual_group *g, struct virtual_message *m)
{
    struct virtual_sim *sim = g->sim;
    m->has_left = false;
    m->sender = sim->current;
    m->sent = sim->current->time;
    m->latency = 0;
    m->flow.use = m->use;
    m->flow.n = 0;
    m->flow.ended = virtual_message_left;
    if (sim->net && !sim->current->untimed) {
        const struct network_hop hop =
            network_hop(sim->net, g->worker[m->from], g->worker[m->to->base.rank]);
        m->latency = hop.latency;
        for (int i = 0; i < 2; i++)
            if (hop.port[i] >= 0)
                m->use[m->flow.n++] = (struct network_use){.port = hop.port[i], .streams = 1};
    }
    if (!m->flow.n) {
        virtual_message_left(&m->flow, m->sent);
        return SOTTO_OK;
    }
    TRY(network_reserve(sim->net));
    network_start(sim->net, &m->flow, (double)m->payload.bytes, m->sent);
    return SOTTO_OK;
}

/* Sends: the sender is busy until the last byte has left; the latency delays only the receiver. */
enum sotto_status virtual_send_device(struct comm *c, struct view x, size_t count, int to)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    struct virtual_sim *sim = g->sim;
    struct virtual_member *peer = g->member[to];
    struct virtual_message *m = NULL;
    virtual_sync_clock(sim);
    TRY(status_raise(&sim->stop));
    if (!peer->box && !(peer->box = calloc((size_t)g->size, sizeof *peer->box)))
        return fail(SOTTO_ENOMEM, "no memory for messages from %d ranks", g->size);
    TRY(take_message(c, x, count, &m));
    m->from = c->rank;
    m->to = peer;
    struct virtual_box *box = &peer->box[c->rank];
    m->earliest = box->first ? box->last->ready : 0;
    if (box->first)
        box->last->next = m;
    else
        box->first = m;
    box->last = m;
    TRY(set_out_message(g, m));
    if (m->has_left)
        return SOTTO_OK;
    return virtual_block(sim, comm_call_name(COMM_SEND), to);
}

enum sotto_status virtual_send(struct comm *c, const void *data, size_t bytes, int to)
{
    return virtual_send_device(c, view_of((void *)data, DTYPE_U8), bytes, to);
}

/* Receives a box's first message, whose last byte has left. */
static enum sotto_status virtual_receive(struct comm *c, struct virtual_message *m, struct view x,
                                         size_t room, size_t *received)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    enum sotto_status st = SOTTO_OK;
    m->to->box[m->from].first = m->next;
    unlist_message(m);
    c->wait.to = m->sent;
    virtual_advance(g->sim, m->ready);
    *received = m->payload.bytes;
    if (*received <= room * dtype_size(x.type))
        st = payload_take(&m->payload, &g->sim->depot, c, x);
    m->next = g->idle[m->place == PLACE_DEVICE];
    g->idle[m->place == PLACE_DEVICE] = m;
    return st;
}

enum sotto_status virtual_recv_device(struct comm *c, struct view x, size_t room, int from,
                                      size_t *received)
{
    struct virtual_member *self = (struct virtual_member *)c;
    struct virtual_sim *sim = self->group->sim;
    virtual_sync_clock(sim);
    TRY(status_raise(&sim->stop));
    c->wait.from = sim->current->time;
    if (!self->box || !self->box[from].first || !self->box[from].first->has_left) {
        self->receiver = sim->current;
        self->from = from;
        TRY(virtual_block(sim, comm_call_name(COMM_RECV), from));
    }
    return virtual_receive(c, self->box[from].first, x, room, received);
}

enum sotto_status virtual_recv(struct comm *c, void *data, size_t room, int from, size_t *received)
{
    return virtual_recv_device(c, view_of(data, DTYPE_U8), room, from, received);
}

static struct virtual_message *virtual_first_among(const struct virtual_member *self,
                                                   const bool *among)
{
    struct virtual_message *m = self->first;
    while (m && among && !among[m->from])
        m = m->after;
    return m;
}

static bool virtual_all_ended(const struct virtual_member *self, const bool *among)
{
    const struct virtual_group *g = self->group;
    for (int r = 0; r < g->size; r++)
        if ((g->member[r] != self || self->base.twinned) && !g->member[r]->ended &&
            (!among || among[r]))
            return false;
    return true;
}

void virtual_end_member(struct virtual_member *m)
{
    struct virtual_group *g = m->group;
    g->member[m->base.rank]->ended = true; /* m may be the twin */
    for (int r = 0; r < g->size && g->for_any; r++) {
        const struct virtual_member *other = g->member[r];
        if (other->receiver && other->from == FROM_ANY &&
            !virtual_first_among(other, other->among) && virtual_all_ended(other, other->among))
            virtual_wake_at(other->receiver, clock_now(&g->sim->clock));
    }
}

/* Waits until a message of `among` arrives, sent before or meanwhile. */
static enum sotto_status wait_for_any(struct virtual_member *self, const bool *among, double until)
{
    struct virtual_sim *sim = self->group->sim;
    const struct virtual_message *first = virtual_first_among(self, among);
    self->receiver = sim->current;
    self->from = FROM_ANY;
    self->among = among;
    self->group->for_any++;
    const enum sotto_status st =
        virtual_block_until(sim, "recv_any", first ? fmin(first->ready, until) : until);
    self->group->for_any--;
    self->receiver = NULL;
    return st;
}

/* Receives the first message of `among`. A message that arrived before now is the first. A message
 * that arrives exactly now may not be: processes at this time may still send. */
enum sotto_status virtual_recv_any_device(struct comm *c, struct view x, size_t room,
                                          const bool *among, double until, int *from,
                                          size_t *received)
{
    struct virtual_member *self = (struct virtual_member *)c;
    struct virtual_sim *sim = self->group->sim;
    virtual_sync_clock(sim);
    TRY(status_raise(&sim->stop));
    const double now = c->wait.from = sim->current->time, limit = fmax(until, now);
    struct virtual_message *m = virtual_first_among(self, among);
    if (!m && virtual_all_ended(self, among))
        return comm_all_ended(c);
    if (!m || m->ready >= now) {
        TRY(wait_for_any(self, among, limit));
        m = virtual_first_among(self, among);
    }
    c->wait.to = sim->current->time;
    if (m && m->ready <= sim->current->time) {
        *from = m->from;
        return virtual_receive(c, m, x, room, received);
    }
    return sim->current->time < limit ? comm_all_ended(c) : SOTTO_OK;
}

enum sotto_status virtual_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                   double until, int *from, size_t *received)
{
    return virtual_recv_any_device(c, view_of(data, DTYPE_U8), room, among, until, from, received);
}

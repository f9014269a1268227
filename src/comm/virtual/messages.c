#include <stdlib.h>
#include <string.h>

#include "comm/virtual/state.h"

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
        virtual_free_messages(m);
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
enum sotto_status virtual_send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct group *g = ((struct member *)c)->group;
    struct virtual_sim *sim = g->sim;
    struct member *peer = g->member[to];
    struct message *m = NULL;
    virtual_meet(sim);
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

enum sotto_status virtual_recv(struct comm *c, void *data, size_t room, int from, size_t *came)
{
    struct member *self = (struct member *)c;
    struct group *g = self->group;
    struct virtual_sim *sim = g->sim;
    virtual_meet(sim);
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

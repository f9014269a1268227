#include "comm/links/network.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct network_port {
    double capacity;
    struct network_use *first; /* list of flows through the port */
    /* While rates are computed: */
    double spare, streams; /* capacity not assigned yet; streams without a rate */
    int open;              /* flows without a rate */
    bool seen;
    struct network_port *next;
};

struct network {
    const struct link_model *links;
    const int *node; /* (workers) */
    int *adapter;    /* (workers): first port of the worker's adapter */
    struct network_port *port;
    int ports;
    double now;
    struct network_flow *stale; /* flows that need a new rate, as do flows that share their ports */
    struct network_flow **heap; /* active flows, a heap by end */
    int flows, room;
    uint64_t started;
};

/* Offsets of the two ports of a link. Ports of workers' links are first, two each, then the ports
 * of adapters. */
enum { OUT, IN };

static enum sotto_status make_ports(struct network *net, int workers)
{
    const struct link_model *links = net->links;
    int nodes = 0, most = 1;
    for (int r = 0, here = 1; r < workers; r++) {
        nodes = net->node[r] >= nodes ? net->node[r] + 1 : nodes;
        here = r > 0 && net->node[r] == net->node[r - 1] ? here + 1 : 1;
        most = here > most ? here : most;
    }
    const int adapters = links->adapters ? links->adapters : most;
    net->ports = 2 * (workers + nodes * adapters);
    net->port = calloc((size_t)net->ports, sizeof *net->port);
    net->adapter = calloc((size_t)workers, sizeof *net->adapter);
    if (!net->port || !net->adapter)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", workers);
    for (int i = 0; i < 2 * workers; i++)
        net->port[i].capacity = links->intra.bandwidth;
    for (int i = 2 * workers; i < net->ports; i++) {
        const int node = (i - 2 * workers) / (2 * adapters);
        net->port[i].capacity = links->inter.bandwidth * (links->speed ? links->speed[node] : 1);
    }
    for (int r = 0, place = 0; r < workers; r++) {
        place = r > 0 && net->node[r] == net->node[r - 1] ? place + 1 : 0;
        net->adapter[r] = 2 * (workers + net->node[r] * adapters + place % adapters);
    }
    return SOTTO_OK;
}

enum sotto_status network_open(struct network **out, const struct link_model *links,
                               const int *node, int workers)
{
    struct network *net = *out = calloc(1, sizeof *net);
    if (!net)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", workers);
    net->links = links;
    net->node = node;
    const enum sotto_status st = make_ports(net, workers);
    if (st != SOTTO_OK) {
        network_close(net);
        *out = NULL;
    }
    return st;
}

void network_close(struct network *net)
{
    if (!net)
        return;
    free(net->port);
    free(net->adapter);
    free(net->heap);
    free(net);
}

struct network_hop network_hop(const struct network *net, int from, int to)
{
    const bool near = net->node[from] == net->node[to];
    if (from == to) /* from one lane of a worker to another */
        return (struct network_hop){.port = {-1, -1}};
    struct network_hop hop = {.latency =
                                  near ? net->links->intra.latency : net->links->inter.latency};
    hop.port[0] = (near ? 2 * from : net->adapter[from]) + OUT;
    hop.port[1] = (near ? 2 * to : net->adapter[to]) + IN;
    for (int i = 0; i < 2; i++)
        if (net->port[hop.port[i]].capacity <= 0)
            hop.port[i] = -1;
    return hop;
}

double network_capacity(const struct network *net, int port)
{
    return net->port[port].capacity;
}

int network_ports(const struct network *net)
{
    return net->ports;
}

static bool flow_ends_before(const struct network_flow *a, const struct network_flow *b)
{
    return a->end < b->end || (a->end == b->end && a->order < b->order);
}

static void place_flow(struct network *net, struct network_flow *flow, int i)
{
    net->heap[i] = flow;
    flow->place = i;
}

static void raise_flow(struct network *net, struct network_flow *flow)
{
    int i = flow->place;
    for (; i > 0 && flow_ends_before(flow, net->heap[(i - 1) / 2]); i = (i - 1) / 2)
        place_flow(net, net->heap[(i - 1) / 2], i);
    place_flow(net, flow, i);
}

static void sink_flow(struct network *net, struct network_flow *flow)
{
    int i = flow->place;
    for (int child; (child = 2 * i + 1) < net->flows; i = child) {
        if (child + 1 < net->flows && flow_ends_before(net->heap[child + 1], net->heap[child]))
            child++;
        if (!flow_ends_before(net->heap[child], flow))
            break;
        place_flow(net, net->heap[child], i);
    }
    place_flow(net, flow, i);
}

static void mark_stale(struct network *net, struct network_flow *flow)
{
    if (flow->stale)
        return;
    flow->stale = true;
    flow->next = net->stale;
    net->stale = flow;
}

/* Sets a flow's rate from now on. */
static void set_rate(struct network *net, struct network_flow *flow, double rate)
{
    flow->rate = rate;
    flow->end = flow->left > 0 ? net->now + flow->left / rate : net->now;
    raise_flow(net, flow);
    sink_flow(net, flow);
}

enum sotto_status network_reserve(struct network *net)
{
    if (net->flows < net->room)
        return SOTTO_OK;
    const int room = net->room ? 2 * net->room : 64;
    struct network_flow **heap = realloc(net->heap, (size_t)room * sizeof(struct network_flow *));
    if (!heap)
        return fail(SOTTO_ENOMEM, "no memory for %d messages at once", room);
    net->heap = heap;
    net->room = room;
    return SOTTO_OK;
}

void network_start(struct network *net, struct network_flow *flow, double bytes, double now)
{
    assert(now >= net->now && bytes >= 0 && net->flows < net->room);
    network_next(net); /* completes rates until now */
    net->now = now;
    flow->left = bytes;
    flow->since = now;
    flow->order = net->started++;
    flow->stale = false;
    double alone = INFINITY;
    bool shares = false;
    for (int i = 0; i < flow->n; i++) {
        struct network_use *use = &flow->use[i];
        struct network_port *port = &net->port[use->port];
        shares |= port->first != NULL;
        alone = fmin(alone, port->capacity / use->streams);
        use->flow = flow;
        use->link = &port->first;
        if ((use->next = port->first))
            use->next->link = &use->next;
        port->first = use;
    }
    place_flow(net, flow, net->flows++);
    set_rate(net, flow, alone);
    if (shares)
        mark_stale(net, flow);
}

/* Flows that share ports with stale flows, directly or through other flows, and their ports. */
struct tangle {
    struct network_flow *flows;
    struct network_port *ports;
};

static void add_flow(struct tangle *t, struct network_flow *flow)
{
    if (flow->found)
        return;
    flow->found = true;
    flow->next = t->flows;
    t->flows = flow;
}

static struct tangle find_tangle(struct network *net)
{
    struct tangle t = {0};
    struct network_flow *todo = net->stale;
    net->stale = NULL;
    while (todo) { /* flows not found yet are listed by `next`, which found flows use too */
        struct network_flow *flow = todo;
        todo = flow->next;
        if (flow->found)
            continue;
        add_flow(&t, flow);
        for (int i = 0; i < flow->n; i++) {
            struct network_port *port = &net->port[flow->use[i].port];
            if (port->seen)
                continue;
            port->seen = true;
            port->next = t.ports;
            t.ports = port;
            for (struct network_use *u = port->first; u; u = u->next) {
                if (u->flow->found || u->flow->stale)
                    continue; /* stale flows are in the list already */
                u->flow->stale = true;
                u->flow->next = todo;
                todo = u->flow;
            }
        }
    }
    return t;
}

/* Updates the bytes left of each flow to the current time, and resets the ports. */
static void update_bytes_left(struct network *net, struct tangle *t)
{
    for (struct network_flow *f = t->flows; f; f = f->next) {
        f->left = fmax(0, f->left - f->rate * (net->now - f->since));
        f->since = net->now;
    }
    for (struct network_port *s = t->ports; s; s = s->next) {
        s->spare = s->capacity;
        s->streams = 0;
        s->open = 0;
        for (struct network_use *u = s->first; u; u = u->next) {
            s->streams += u->streams;
            s->open++;
        }
    }
}

/* Returns the port that is full first if the rates of all streams without a rate rise together, and
 * `*rate` at that point. */
static struct network_port *first_full(const struct tangle *t, double *rate)
{
    struct network_port *full = NULL;
    *rate = INFINITY;
    for (struct network_port *s = t->ports; s; s = s->next)
        if (s->open && s->spare / s->streams < *rate) {
            full = s;
            *rate = s->spare / s->streams;
        }
    return full;
}

/* Sets a flow's rate, and subtracts its share from every port of the flow. */
static void give_rate(struct network *net, struct network_flow *flow, double rate)
{
    flow->found = flow->stale = false;
    set_rate(net, flow, rate);
    for (int i = 0; i < flow->n; i++) {
        struct network_port *s = &net->port[flow->use[i].port];
        s->spare = fmax(0, s->spare - flow->use[i].streams * rate);
        s->streams -= flow->use[i].streams;
        s->open--;
    }
}

static void share_out(struct network *net)
{
    struct tangle t = find_tangle(net);
    update_bytes_left(net, &t);
    double rate;
    for (struct network_port *full; (full = first_full(&t, &rate));)
        for (struct network_use *u = full->first; u; u = u->next)
            if (u->flow->found)
                give_rate(net, u->flow, rate);
    for (struct network_port *s = t.ports; s; s = s->next)
        s->seen = false;
}

double network_time(const struct network *net)
{
    return net->now;
}

double network_next(struct network *net)
{
    if (net->stale)
        share_out(net);
    return net->flows ? net->heap[0]->end : INFINITY;
}

void network_end_next(struct network *net)
{
    const double end = network_next(net);
    struct network_flow *flow = net->heap[0];
    assert(net->flows && end >= net->now);
    net->now = end;
    struct network_flow *last = net->heap[--net->flows];
    if (last != flow) {
        place_flow(net, last, 0);
        sink_flow(net, last);
    }
    for (int i = 0; i < flow->n; i++) {
        struct network_use *use = &flow->use[i];
        if ((*use->link = use->next))
            use->next->link = use->link;
        if (net->port[use->port].first)
            mark_stale(net, net->port[use->port].first->flow);
    }
    flow->ended(flow, end);
}

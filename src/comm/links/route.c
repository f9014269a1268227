#include "comm/links/route.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void route_open(struct route *route, struct network *net, const int *worker, const int *node,
                int size)
{
    *route =
        (struct route){.net = net, .worker = worker, .size = size, .layout = layout_of(node, size)};
    route->uneven = route->layout.nodes == 1 && node[0] != node[size - 1];
}

void route_close(struct route *route)
{
    for (int i = 0; i < ROUTE_KINDS; i++) {
        free(route->hops[i].use);
        free(route->hops[i].hop);
        free(route->hops[i].previous);
    }
    *route = (struct route){0};
}

static struct network_hop hop_between(const struct route *route, int from, int to)
{
    return network_hop(route->net, route->worker[from], route->worker[to]);
}

/* Returns the rank that `rank` passes to; -1: none. */
static int next_of(const struct route *route, enum route_kind kind, int rank, int root)
{
    const struct layout l = route->layout;
    const int node = rank / l.each, place = rank % l.each;
    if (kind == ROUTE_INSIDE)
        return node * l.each + (place + 1) % l.each;
    if (kind == ROUTE_ACROSS)
        return (node + 1) % l.nodes * l.each + place;
    const int next = (rank + 1) % route->size;
    return kind == ROUTE_CHAIN && next == root ? -1 : next;
}

static void load_hop(const struct route *route, double *load, int from, int to, double streams)
{
    const struct network_hop hop = hop_between(route, from, to);
    for (int i = 0; i < 2; i++)
        if (hop.port[i] >= 0)
            load[hop.port[i]] += streams;
}

/* Returns the rate of a stream on a hop that shares the ports with the streams of `load`. */
static double hop_rate(const struct route *route, const double *load, int from, int to)
{
    const struct network_hop hop = hop_between(route, from, to);
    double rate = INFINITY;
    for (int i = 0; i < 2; i++)
        if (hop.port[i] >= 0)
            rate = fmin(rate, network_capacity(route->net, hop.port[i]) / load[hop.port[i]]);
    return rate;
}

/* Stores each hop, if hops differ, to compute the delay that slow hops cause. */
static enum sotto_status keep_hops(const struct route *route, struct route_hops *h,
                                   enum route_kind kind, const double *load)
{
    const size_t n = (size_t)route->size;
    h->hop = calloc(4 * n, sizeof *h->hop);
    h->previous = calloc(n, sizeof *h->previous);
    if (!h->hop || !h->previous)
        return fail(SOTTO_ENOMEM, "no memory for the ring of %d workers", route->size);
    for (int r = 0; r < route->size; r++) {
        const int next = next_of(route, kind, r, h->root);
        h->previous[next] = r;
        h->hop[r] = 1 / hop_rate(route, load, r, next);
        h->hop[route->size + r] = hop_between(route, r, next).latency;
    }
    return SOTTO_OK;
}

static enum sotto_status keep_uses(const struct route *route, struct route_hops *h,
                                   const double *load)
{
    const int ports = network_ports(route->net);
    h->n = 0;
    for (int i = 0; i < ports; i++)
        h->n += load[i] > 0;
    h->use = calloc((size_t)h->n + 1, sizeof *h->use);
    if (!h->use)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", route->size);
    for (int i = 0, n = 0; i < ports; i++)
        if (load[i] > 0)
            h->use[n++] = (struct network_use){.port = i, .streams = load[i]};
    return SOTTO_OK;
}

static void load_hops(const struct route *route, enum route_kind kind, int root, double *load)
{
    for (int r = 0; r < route->size; r++) {
        if (kind != ROUTE_DIRECT && next_of(route, kind, r, root) >= 0)
            load_hop(route, load, r, next_of(route, kind, r, root), 1);
        for (int to = 0; to < route->size && kind == ROUTE_DIRECT; to++)
            if (to != r) /* the peers take turns */
                load_hop(route, load, r, to, 1.0 / (route->size - 1));
    }
}

/* Computes the rate of the slowest hop and the latency, and whether all hops are equal. */
static void measure_hops(const struct route *route, struct route_hops *h, enum route_kind kind,
                         const double *load)
{
    h->rate = INFINITY;
    h->latency = 0;
    h->even = true;
    for (int r = 0; r < route->size; r++) {
        const int next = next_of(route, kind, r, h->root);
        if (next < 0)
            continue;
        const double rate = hop_rate(route, load, r, next),
                     latency = hop_between(route, r, next).latency;
        if (r > 0)
            h->even &= rate == h->rate && latency == h->latency;
        h->rate = fmin(h->rate, rate);
        h->latency = kind == ROUTE_CHAIN ? h->latency + latency : fmax(h->latency, latency);
    }
}

static enum sotto_status find_hops(struct route *route, enum route_kind kind, int root,
                                   struct route_hops **out)
{
    struct route_hops *h = *out = &route->hops[kind];
    if (h->made && h->root == root)
        return SOTTO_OK;
    free(h->use);
    *h = (struct route_hops){.root = root};
    double *load = calloc((size_t)network_ports(route->net), sizeof *load);
    if (!load)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", route->size);
    load_hops(route, kind, root, load);
    measure_hops(route, h, kind, load);
    enum sotto_status st;
    TRY_DONE(keep_uses(route, h, load));
    for (int i = 0; i < h->n; i++) /* includes the hops of `direct` */
        h->rate = fmin(h->rate, network_capacity(route->net, h->use[i].port) / h->use[i].streams);
    if (!h->even && kind < ROUTE_CHAIN)
        TRY_DONE(keep_hops(route, h, kind, load));
    h->made = true;
done:
    free(load);
    return st;
}

static struct route_known *look_up_seconds(struct route *route, int what, int n, double bytes)
{
    for (size_t i = 0; i < sizeof route->known / sizeof *route->known; i++) {
        struct route_known *k = &route->known[i];
        if (k->what == what && k->n == n && k->bytes == bytes)
            return k;
    }
    return NULL;
}

static double remember_seconds(struct route *route, int what, int n, double bytes, double seconds)
{
    route->known[route->next_known] = (struct route_known){what, n, bytes, seconds};
    route->next_known = (route->next_known + 1) % (int)(sizeof route->known / sizeof *route->known);
    return seconds;
}

static double seconds_at_rate(double bytes, double rate)
{
    return bytes > 0 ? bytes / rate : 0; /* 0 at an infinite rate */
}

/* Returns the seconds until all ranks have done their steps around a ring. A rank starts a step
 * after it has passed on the block before and received the block of the previous rank. */
static double ring_steps(struct route *route, enum route_kind kind, int steps, double block)
{
    struct route_hops *h = &route->hops[kind];
    if (h->even)
        return steps * (seconds_at_rate(block, h->rate) + h->latency);
    const struct route_known *known = look_up_seconds(route, 1 + (int)kind, steps, block);
    if (known)
        return known->seconds;
    const int n = route->size;
    const double *pace = h->hop, *latency = h->hop + n;
    double *time = h->hop + 2 * n, *received = h->hop + 3 * n, last = 0;
    memset(time, 0, (size_t)n * sizeof *time);
    for (int s = 0; s < steps; s++) {
        for (int r = 0; r < n; r++) {
            const int from = h->previous[r];
            received[r] = time[from] + block * pace[from] + latency[from];
        }
        for (int r = 0; r < n; r++)
            time[r] = fmax(time[r] + block * pace[r], received[r]);
    }
    for (int r = 0; r < n; r++)
        last = fmax(last, time[r]);
    return remember_seconds(route, 1 + (int)kind, steps, block, last);
}

/* A round in which ranks send `bytes` each at once, rank r to r + distance. In a tree a rank sends
 * only if its distance from the root is a multiple of 2 * distance and a receiver exists. */
struct route_round {
    int distance;
    double bytes;
    bool tree;
    int root;
};

static bool takes_part(const struct route *route, const struct route_round *round, int rank)
{
    const int from_root = (rank - round->root + route->size) % route->size;
    return !round->tree ||
           (from_root % (2 * round->distance) == 0 && from_root + round->distance < route->size);
}

static double round_seconds(const struct route *route, const struct route_round *round,
                            double *load)
{
    const int n = route->size, ahead = (round->distance % n + n) % n;
    double slowest = 0;
    memset(load, 0, (size_t)network_ports(route->net) * sizeof *load);
    for (int r = 0; r < n; r++)
        if (takes_part(route, round, r))
            load_hop(route, load, r, (r + ahead) % n, 1);
    for (int r = 0; r < n; r++) {
        if (!takes_part(route, round, r))
            continue;
        const int to = (r + ahead) % n;
        slowest = fmax(slowest, hop_between(route, r, to).latency +
                                    seconds_at_rate(round->bytes, hop_rate(route, load, r, to)));
    }
    return slowest;
}

/* Computes the seconds of rounds. Broadcast: a binomial tree. Barrier: every rank hears of all
 * others in rounds of doubling distance. Otherwise: blocks of `bytes` are gathered in such rounds,
 * from the preceding ranks. */
static enum sotto_status rounds_seconds(struct route *route, enum comm_call call, double bytes,
                                        int root, double *seconds)
{
    const int what = -1 - (int)call;
    const struct route_known *known = look_up_seconds(route, what, root, bytes);
    if (known) {
        *seconds = known->seconds;
        return SOTTO_OK;
    }
    double *load = calloc((size_t)network_ports(route->net), sizeof *load), sum = 0;
    if (!load)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", route->size);
    for (int d = 1; d < route->size; d *= 2) {
        struct route_round round = {.distance = d, .bytes = bytes, .root = root};
        if (call == COMM_BROADCAST)
            round.tree = true;
        else if (call != COMM_BARRIER) {
            round.distance = -d;
            round.bytes = bytes * (d < route->size - d ? d : route->size - d);
        }
        sum += round_seconds(route, &round, load);
    }
    free(load);
    *seconds = remember_seconds(route, what, root, bytes, sum);
    return SOTTO_OK;
}

/* The legs of a collective, with the number of steps and the bytes of a block of each leg. */
struct route_plan {
    int legs;
    struct {
        enum route_kind kind;
        int steps;
        double block;
    } leg[ROUTE_LEGS];
};

static void add_leg(struct route_plan *p, enum route_kind kind, int steps, double block)
{
    p->leg[p->legs].kind = kind;
    p->leg[p->legs].steps = steps;
    p->leg[p->legs++].block = block;
}

static struct route_plan plan_legs(const struct route *route, struct route_call c)
{
    const struct layout l = route->layout;
    const double block = c.bytes / route->size;
    const bool level = l.nodes == 1 || l.each == 1, sums = c.call != COMM_ALLGATHER,
               gathers = c.call != COMM_REDUCE_SCATTER;
    struct route_plan p = {0};
    if (c.call == COMM_BROADCAST) {
        add_leg(&p, ROUTE_CHAIN, 1, c.bytes);
    } else if (level && !(c.bf16 && sums && route->uneven)) {
        add_leg(&p, ROUTE_RING, (sums + gathers) * (route->size - 1), block);
    } else if (level) {
        add_leg(&p, ROUTE_DIRECT, route->size - 1, block);
        if (gathers)
            add_leg(&p, ROUTE_RING, route->size - 1, block);
    } else {
        if (sums) {
            add_leg(&p, ROUTE_INSIDE, l.each - 1, block * l.nodes);
            add_leg(&p, ROUTE_ACROSS, l.nodes - 1, block);
        }
        if (gathers) {
            add_leg(&p, ROUTE_ACROSS, l.nodes - 1, block);
            add_leg(&p, ROUTE_INSIDE, l.each - 1, block * l.nodes);
        }
    }
    return p;
}

/* True if the call runs in rounds; `*block` is then the bytes of a block. */
static bool goes_in_rounds(const struct route *route, struct route_call c, double *block)
{
    const double each = c.call == COMM_ALLGATHER ? c.bytes / route->size : c.bytes;
    *block = each;
    if (c.call == COMM_REDUCE_SCATTER)
        return false;
    return c.call == COMM_BARRIER || each * route->size <= COMM_SMALL;
}

static enum sotto_status find_legs(struct trip *trip, struct route *route, struct route_call call)
{
    double block;
    trip->route = route;
    trip->legs = trip->at = 0;
    trip->rest = 0;
    if (route->size == 1)
        return SOTTO_OK;
    if (goes_in_rounds(route, call, &block))
        return rounds_seconds(route, call.call, block, call.root, &trip->rest);
    const struct route_plan p = plan_legs(route, call);
    for (int i = 0; i < p.legs; i++) {
        const enum route_kind kind = p.leg[i].kind;
        const double bytes = p.leg[i].steps * p.leg[i].block;
        struct route_hops *h;
        TRY(find_hops(route, kind, kind == ROUTE_CHAIN ? call.root : 0, &h));
        trip->leg[trip->legs++] = (struct route_leg){kind, bytes};
        if (kind < ROUTE_CHAIN)
            trip->rest += fmax(0, ring_steps(route, kind, p.leg[i].steps, p.leg[i].block) -
                                      seconds_at_rate(bytes, h->rate));
        else
            trip->rest += p.leg[i].steps * h->latency;
    }
    return SOTTO_OK;
}

/* Starts the next leg after a flow has ended, or ends the collective. */
static void start_next_leg(struct network_flow *flow, double time)
{
    struct trip *trip = (struct trip *)flow; /* `flow` is the first member */
    if (trip->at == trip->legs) {
        trip->over(trip, time + trip->rest);
        return;
    }
    const struct route_leg leg = trip->leg[trip->at++];
    flow->use = trip->route->hops[leg.kind].use;
    flow->n = trip->route->hops[leg.kind].n;
    flow->ended = start_next_leg;
    network_start(trip->route->net, flow, leg.bytes, time);
}

enum sotto_status trip_start(struct trip *trip, struct route *route, struct route_call call,
                             double now)
{
    TRY(network_reserve(route->net));
    TRY(find_legs(trip, route, call));
    start_next_leg(&trip->flow, now);
    return SOTTO_OK;
}

enum sotto_status route_seconds(struct route *route, struct route_call call, double *seconds)
{
    struct trip trip;
    TRY(find_legs(&trip, route, call));
    *seconds = trip.rest;
    for (int i = 0; i < trip.legs; i++)
        *seconds += seconds_at_rate(trip.leg[i].bytes, route->hops[trip.leg[i].kind].rate);
    return SOTTO_OK;
}

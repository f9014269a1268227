#include "comm/links/route.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void way_open(struct way *way, struct network *net, const int *worker, const int *node, int size)
{
    *way =
        (struct way){.net = net, .worker = worker, .size = size, .layout = layout_of(node, size)};
    way->uneven = way->layout.nodes == 1 && node[0] != node[size - 1];
}

void way_close(struct way *way)
{
    for (int i = 0; i < WAY_KINDS; i++) {
        free(way->hops[i].use);
        free(way->hops[i].hop);
        free(way->hops[i].previous);
    }
    *way = (struct way){0};
}

static struct hop hop_between(const struct way *way, int from, int to)
{
    return network_hop(way->net, way->worker[from], way->worker[to]);
}

/* To whom a rank passes; -1: to nobody. */
static int next_of(const struct way *way, enum way_kind kind, int rank, int root)
{
    const struct layout l = way->layout;
    const int node = rank / l.each, place = rank % l.each;
    if (kind == WAY_INSIDE)
        return node * l.each + (place + 1) % l.each;
    if (kind == WAY_ACROSS)
        return (node + 1) % l.nodes * l.each + place;
    const int next = (rank + 1) % way->size;
    return kind == WAY_CHAIN && next == root ? -1 : next;
}

static void load_hop(const struct way *way, double *load, int from, int to, double streams)
{
    const struct hop hop = hop_between(way, from, to);
    for (int i = 0; i < 2; i++)
        if (hop.side[i] >= 0)
            load[hop.side[i]] += streams;
}

/* What a stream gets on a hop beside the others of `load`. */
static double hop_rate(const struct way *way, const double *load, int from, int to)
{
    const struct hop hop = hop_between(way, from, to);
    double rate = INFINITY;
    for (int i = 0; i < 2; i++)
        if (hop.side[i] >= 0)
            rate = fmin(rate, network_capacity(way->net, hop.side[i]) / load[hop.side[i]]);
    return rate;
}

/* Hops that differ are kept one by one, to find how the slow ones hold up the others. */
static enum sotto_status keep_hops(const struct way *way, struct way_hops *h, enum way_kind kind,
                                   const double *load)
{
    const size_t n = (size_t)way->size;
    h->hop = calloc(4 * n, sizeof *h->hop);
    h->previous = calloc(n, sizeof *h->previous);
    if (!h->hop || !h->previous)
        return fail(SOTTO_ENOMEM, "no memory for the ring of %d workers", way->size);
    for (int r = 0; r < way->size; r++) {
        const int next = next_of(way, kind, r, h->root);
        h->previous[next] = r;
        h->hop[r] = 1 / hop_rate(way, load, r, next);
        h->hop[way->size + r] = hop_between(way, r, next).latency;
    }
    return SOTTO_OK;
}

static enum sotto_status keep_uses(const struct way *way, struct way_hops *h, const double *load)
{
    const int sides = network_sides(way->net);
    h->n = 0;
    for (int i = 0; i < sides; i++)
        h->n += load[i] > 0;
    h->use = calloc((size_t)h->n + 1, sizeof *h->use);
    if (!h->use)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", way->size);
    for (int i = 0, n = 0; i < sides; i++)
        if (load[i] > 0)
            h->use[n++] = (struct network_use){.side = i, .streams = load[i]};
    return SOTTO_OK;
}

static void load_hops(const struct way *way, enum way_kind kind, int root, double *load)
{
    for (int r = 0; r < way->size; r++) {
        if (kind != WAY_DIRECT && next_of(way, kind, r, root) >= 0)
            load_hop(way, load, r, next_of(way, kind, r, root), 1);
        for (int to = 0; to < way->size && kind == WAY_DIRECT; to++)
            if (to != r) /* each takes its turn */
                load_hop(way, load, r, to, 1.0 / (way->size - 1));
    }
}

/* The slowest hop and the longest latency, and whether all are alike. */
static void measure_hops(const struct way *way, struct way_hops *h, enum way_kind kind,
                         const double *load)
{
    h->rate = INFINITY;
    h->latency = 0;
    h->even = true;
    for (int r = 0; r < way->size; r++) {
        const int next = next_of(way, kind, r, h->root);
        if (next < 0)
            continue;
        const double rate = hop_rate(way, load, r, next),
                     latency = hop_between(way, r, next).latency;
        if (r > 0)
            h->even &= rate == h->rate && latency == h->latency;
        h->rate = fmin(h->rate, rate);
        h->latency = kind == WAY_CHAIN ? h->latency + latency : fmax(h->latency, latency);
    }
}

static enum sotto_status find_hops(struct way *way, enum way_kind kind, int root,
                                   struct way_hops **out)
{
    struct way_hops *h = *out = &way->hops[kind];
    if (h->made && h->root == root)
        return SOTTO_OK;
    free(h->use);
    *h = (struct way_hops){.root = root};
    double *load = calloc((size_t)network_sides(way->net), sizeof *load);
    if (!load)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", way->size);
    load_hops(way, kind, root, load);
    measure_hops(way, h, kind, load);
    enum sotto_status st;
    TRY_DONE(keep_uses(way, h, load));
    for (int i = 0; i < h->n; i++) /* also those that only `direct` goes through */
        h->rate = fmin(h->rate, network_capacity(way->net, h->use[i].side) / h->use[i].streams);
    if (!h->even && kind < WAY_CHAIN)
        TRY_DONE(keep_hops(way, h, kind, load));
    h->made = true;
done:
    free(load);
    return st;
}

static struct way_known *look_up(struct way *way, int what, int n, double bytes)
{
    for (size_t i = 0; i < sizeof way->known / sizeof *way->known; i++) {
        struct way_known *k = &way->known[i];
        if (k->what == what && k->n == n && k->bytes == bytes)
            return k;
    }
    return NULL;
}

static double remember(struct way *way, int what, int n, double bytes, double seconds)
{
    way->known[way->next_known] = (struct way_known){what, n, bytes, seconds};
    way->next_known = (way->next_known + 1) % (int)(sizeof way->known / sizeof *way->known);
    return seconds;
}

static double over_rate(double bytes, double rate)
{
    return bytes > 0 ? bytes / rate : 0; /* at an infinite rate: 0 */
}

/* Seconds until all ranks have done their steps around a ring. A rank begins one when it has passed
 * on the block before and the one from the previous rank has come. */
static double ring_steps(struct way *way, enum way_kind kind, int steps, double block)
{
    struct way_hops *h = &way->hops[kind];
    if (h->even)
        return steps * (over_rate(block, h->rate) + h->latency);
    const struct way_known *known = look_up(way, 1 + (int)kind, steps, block);
    if (known)
        return known->seconds;
    const int n = way->size;
    const double *pace = h->hop, *latency = h->hop + n;
    double *time = h->hop + 2 * n, *come = h->hop + 3 * n, last = 0;
    memset(time, 0, (size_t)n * sizeof *time);
    for (int s = 0; s < steps; s++) {
        for (int r = 0; r < n; r++) {
            const int from = h->previous[r];
            come[r] = time[from] + block * pace[from] + latency[from];
        }
        for (int r = 0; r < n; r++)
            time[r] = fmax(time[r] + block * pace[r], come[r]);
    }
    for (int r = 0; r < n; r++)
        last = fmax(last, time[r]);
    return remember(way, 1 + (int)kind, steps, block, last);
}

/* A round in which ranks send `bytes` each at once, rank r to r + distance; of a tree only those
 * that are a multiple of twice the distance from the root, and have that many behind them. */
struct round {
    int distance;
    double bytes;
    bool tree;
    int root;
};

static bool takes_part(const struct way *way, const struct round *round, int rank)
{
    const int from_root = (rank - round->root + way->size) % way->size;
    return !round->tree ||
           (from_root % (2 * round->distance) == 0 && from_root + round->distance < way->size);
}

static double round_seconds(const struct way *way, const struct round *round, double *load)
{
    const int n = way->size, ahead = (round->distance % n + n) % n;
    double slowest = 0;
    memset(load, 0, (size_t)network_sides(way->net) * sizeof *load);
    for (int r = 0; r < n; r++)
        if (takes_part(way, round, r))
            load_hop(way, load, r, (r + ahead) % n, 1);
    for (int r = 0; r < n; r++) {
        if (!takes_part(way, round, r))
            continue;
        const int to = (r + ahead) % n;
        slowest = fmax(slowest, hop_between(way, r, to).latency +
                                    over_rate(round->bytes, hop_rate(way, load, r, to)));
    }
    return slowest;
}

/* Broadcast: a binomial tree, the farthest first. Barrier: everybody hears of all others in rounds
 * of doubling distance. Otherwise: blocks of `bytes` gathered likewise, from the ranks behind. */
static enum sotto_status rounds_seconds(struct way *way, enum comm_call call, double bytes,
                                        int root, double *seconds)
{
    const int what = -1 - (int)call;
    const struct way_known *known = look_up(way, what, root, bytes);
    if (known) {
        *seconds = known->seconds;
        return SOTTO_OK;
    }
    double *load = calloc((size_t)network_sides(way->net), sizeof *load), sum = 0;
    if (!load)
        return fail(SOTTO_ENOMEM, "no memory for the links of %d workers", way->size);
    for (int d = 1; d < way->size; d *= 2) {
        struct round round = {.distance = d, .bytes = bytes, .root = root};
        if (call == COMM_BROADCAST)
            round.tree = true;
        else if (call != COMM_BARRIER) {
            round.distance = -d;
            round.bytes = bytes * (d < way->size - d ? d : way->size - d);
        }
        sum += round_seconds(way, &round, load);
    }
    free(load);
    *seconds = remember(way, what, root, bytes, sum);
    return SOTTO_OK;
}

/* The legs, with how many steps each and with which blocks. */
struct plan {
    int legs;
    struct {
        enum way_kind kind;
        int steps;
        double block;
    } leg[WAY_LEGS];
};

static void add_leg(struct plan *p, enum way_kind kind, int steps, double block)
{
    p->leg[p->legs].kind = kind;
    p->leg[p->legs].steps = steps;
    p->leg[p->legs++].block = block;
}

static struct plan plan_of(const struct way *way, struct way_call c)
{
    const struct layout l = way->layout;
    const double block = c.bytes / way->size;
    const bool level = l.nodes == 1 || l.each == 1, sums = c.call != COMM_ALLGATHER,
               gathers = c.call != COMM_REDUCE_SCATTER;
    struct plan p = {0};
    if (c.call == COMM_BROADCAST) {
        add_leg(&p, WAY_CHAIN, 1, c.bytes);
    } else if (level && !(c.bf16 && sums && way->uneven)) {
        add_leg(&p, WAY_RING, (sums + gathers) * (way->size - 1), block);
    } else if (level) {
        add_leg(&p, WAY_DIRECT, way->size - 1, block);
        if (gathers)
            add_leg(&p, WAY_RING, way->size - 1, block);
    } else {
        if (sums) {
            add_leg(&p, WAY_INSIDE, l.each - 1, block * l.nodes);
            add_leg(&p, WAY_ACROSS, l.nodes - 1, block);
        }
        if (gathers) {
            add_leg(&p, WAY_ACROSS, l.nodes - 1, block);
            add_leg(&p, WAY_INSIDE, l.each - 1, block * l.nodes);
        }
    }
    return p;
}

/* Whether the call goes in rounds, and of which blocks. */
static bool goes_in_rounds(const struct way *way, struct way_call c, double *block)
{
    const double each = c.call == COMM_ALLGATHER ? c.bytes / way->size : c.bytes;
    *block = each;
    if (c.call == COMM_REDUCE_SCATTER)
        return false;
    return c.call == COMM_BARRIER || each * way->size <= COMM_SMALL;
}

static enum sotto_status find_legs(struct trip *trip, struct way *way, struct way_call call)
{
    double block;
    trip->way = way;
    trip->legs = trip->at = 0;
    trip->rest = 0;
    if (way->size == 1)
        return SOTTO_OK;
    if (goes_in_rounds(way, call, &block))
        return rounds_seconds(way, call.call, block, call.root, &trip->rest);
    const struct plan p = plan_of(way, call);
    for (int i = 0; i < p.legs; i++) {
        const enum way_kind kind = p.leg[i].kind;
        const double bytes = p.leg[i].steps * p.leg[i].block;
        struct way_hops *h;
        TRY(find_hops(way, kind, kind == WAY_CHAIN ? call.root : 0, &h));
        trip->leg[trip->legs++] = (struct way_leg){kind, bytes};
        if (kind < WAY_CHAIN)
            trip->rest += fmax(0, ring_steps(way, kind, p.leg[i].steps, p.leg[i].block) -
                                      over_rate(bytes, h->rate));
        else
            trip->rest += p.leg[i].steps * h->latency;
    }
    return SOTTO_OK;
}

/* A flow has ended: the next leg, or the end. */
static void go_on(struct flow *flow, double time)
{
    struct trip *trip = (struct trip *)flow; /* its first member */
    if (trip->at == trip->legs) {
        trip->over(trip, time + trip->rest);
        return;
    }
    const struct way_leg leg = trip->leg[trip->at++];
    flow->use = trip->way->hops[leg.kind].use;
    flow->n = trip->way->hops[leg.kind].n;
    flow->ended = go_on;
    network_start(trip->way->net, flow, leg.bytes, time);
}

enum sotto_status trip_start(struct trip *trip, struct way *way, struct way_call call, double now)
{
    TRY(network_reserve(way->net));
    TRY(find_legs(trip, way, call));
    go_on(&trip->flow, now);
    return SOTTO_OK;
}

enum sotto_status way_seconds(struct way *way, struct way_call call, double *seconds)
{
    struct trip trip;
    TRY(find_legs(&trip, way, call));
    *seconds = trip.rest;
    for (int i = 0; i < trip.legs; i++)
        *seconds += over_rate(trip.leg[i].bytes, way->hops[trip.leg[i].kind].rate);
    return SOTTO_OK;
}

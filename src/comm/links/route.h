/* The way of a communicator's collectives through the network: what ring.h sends, as flows.
 *
 *     ring     every rank passes blocks to the next, all at once, for so many steps
 *     inside   the same inside every node, in slices
 *     across   every place of a node with the same place of the other nodes
 *     chain    from the root to all others, each passing on what has come
 *     direct   blocks of bf16 to the ranks that sum them, where nodes are not even
 *
 * A leg is one of these: one flow, and on top of it what the first and last blocks wait for, which
 * others that share the links do not change. Collectives that are small go in rounds of doubling
 * distance; they take the time of their messages, and what they take from others is left out. */
#ifndef SOTTO_COMM_LINKS_ROUTE_H
#define SOTTO_COMM_LINKS_ROUTE_H

#include "comm/comm.h"
#include "comm/layout.h"
#include "comm/links/network.h"

enum route_kind { ROUTE_RING, ROUTE_INSIDE, ROUTE_ACROSS, ROUTE_CHAIN, ROUTE_DIRECT, ROUTE_KINDS };

/* The hops of one kind, made when they are first asked for. */
struct route_hops {
    struct network_use *use; /* (n): the sides that they go through together */
    int n;
    double rate;    /* bytes a second and hop when nothing else flows; INFINITY: no limit */
    double latency; /* the largest; of a chain: in all */
    bool made, even;
    int root;      /* chain: where it begins */
    double *hop;   /* (4, size) where hops differ: seconds a byte, latency, and for working */
    int *previous; /* (size) likewise: who passes to a rank */
};

struct route {
    struct network *net;
    const int *worker; /* (size) its ranks among the network's workers */
    int size;
    struct layout layout;
    bool uneven; /* several nodes, but no even layout */
    struct route_hops hops[ROUTE_KINDS];
    struct route_known { /* what was worked out last */
        int what, n;
        double bytes, seconds;
    } known[8];
    int next_known;
};

/* `node`: of its ranks. */
void route_open(struct route *route, struct network *net, const int *worker, const int *node,
                int size);
void route_close(struct route *route);

/* A collective of `bytes` in all: the whole vector that is summed or gathered, or a message. */
struct route_call {
    enum comm_call call;
    double bytes;
    bool bf16; /* sums of them are not passed on */
    int root;  /* of a broadcast */
};

enum { ROUTE_LEGS = 4 };

/* A collective under way; one at a time on a way. */
struct trip {
    struct network_flow flow;
    struct route_leg {
        enum route_kind kind;
        double bytes; /* on each hop */
    } leg[ROUTE_LEGS];
    struct route *route;
    int legs, at;
    double rest; /* seconds after the last flow */
    void (*over)(struct trip *trip, double time);
};

/* Calls `over` when it ends: later, or at once where nothing limits it. */
enum sotto_status trip_start(struct trip *trip, struct route *route, struct route_call call,
                             double now);

/* How long it takes when nothing else flows. */
enum sotto_status route_seconds(struct route *route, struct route_call call, double *seconds);

#endif

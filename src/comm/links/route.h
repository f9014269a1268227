/* The route of a communicator's collectives through the network: the messages of ring.h as flows.
 *
 *     ring     every rank passes blocks to the next rank, all at once, for a number of steps
 *     inside   a ring inside every node, in slices
 *     across   a ring of the same place in every node
 *     chain    from the root to all others, each rank passing on received blocks
 *     direct   blocks of bf16 to the ranks that sum them, if nodes are uneven
 *
 * A leg is one of these patterns: a flow, and after the flow the time that the first and last
 * blocks wait, which other flows on the links do not change. Small collectives run in rounds of
 * doubling distance: their messages take time, but do not load the links for other flows. */
#ifndef SOTTO_COMM_LINKS_ROUTE_H
#define SOTTO_COMM_LINKS_ROUTE_H

#include "comm/comm.h"
#include "comm/layout.h"
#include "comm/links/network.h"

enum route_kind { ROUTE_RING, ROUTE_INSIDE, ROUTE_ACROSS, ROUTE_CHAIN, ROUTE_DIRECT, ROUTE_KINDS };

/* The hops of a pattern, computed at first use. */
struct route_hops {
    struct network_use *use; /* (n): ports of all hops together */
    int n;
    double rate;    /* bytes a second of a hop without other flows; INFINITY: no limit */
    double latency; /* the largest latency of a hop; of a chain: the sum */
    bool made, even;
    int root;      /* of a chain: the first rank */
    double *hop;   /* (4, size) if hops differ: seconds a byte, latency, and two rows of scratch */
    int *previous; /* (size) if hops differ: the rank that passes to a rank */
};

struct route {
    struct network *net;
    const int *worker; /* (size) the network's worker of each rank */
    int size;
    struct layout layout;
    bool uneven; /* several nodes, but no even layout */
    struct route_hops hops[ROUTE_KINDS];
    struct route_known { /* results of the last calls */
        int what, n;
        double bytes, seconds;
    } known[8];
    int next_known;
};

/* Opens the route of `size` ranks; `worker[r]` and `node[r]` are the worker and the node of rank r.
 * The caller owns both, and `worker` must outlive the route. */
void route_open(struct route *route, struct network *net, const int *worker, const int *node,
                int size);
void route_close(struct route *route);

/* A collective; `bytes` is the size of the whole vector that is summed or gathered, or of a
 * message. */
struct route_call {
    enum comm_call call;
    double bytes;
    bool bf16; /* ranks do not pass on partial sums of bf16 */
    int root;  /* root of a broadcast */
};

enum { ROUTE_LEGS = 4 };

/* A collective in flight; a route has one at a time. */
struct trip {
    struct network_flow flow;
    struct route_leg {
        enum route_kind kind;
        double bytes; /* bytes on each hop */
    } leg[ROUTE_LEGS];
    struct route *route;
    int legs, at;
    double rest; /* seconds after the last flow */
    void (*over)(struct trip *trip, double time);
};

/* Starts a collective; calls `over` when it ends: later, or at once if no link limits the
 * collective. */
enum sotto_status trip_start(struct trip *trip, struct route *route, struct route_call call,
                             double now);

/* Computes the seconds of a collective without other flows. */
enum sotto_status route_seconds(struct route *route, struct route_call call, double *seconds);

#endif

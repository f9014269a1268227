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

enum way_kind { WAY_RING, WAY_INSIDE, WAY_ACROSS, WAY_CHAIN, WAY_DIRECT, WAY_KINDS };

/* The hops of one kind, made when they are first asked for. */
struct way_hops {
    struct network_use *use; /* (n): the sides that they go through together */
    int n;
    double rate;    /* bytes a second and hop when nothing else flows; INFINITY: no limit */
    double latency; /* the largest; of a chain: in all */
    bool made, even;
    int root;      /* chain: where it begins */
    double *hop;   /* (4, size) where hops differ: seconds a byte, latency, and for working */
    int *previous; /* (size) likewise: who passes to a rank */
};

struct way {
    struct network *net;
    const int *worker; /* (size) its ranks among the network's workers */
    int size;
    struct layout layout;
    bool uneven; /* several nodes, but no even layout */
    struct way_hops hops[WAY_KINDS];
    struct way_known { /* what was worked out last */
        int what, n;
        double bytes, seconds;
    } known[8];
    int next_known;
};

/* `node`: of its ranks. */
void way_open(struct way *way, struct network *net, const int *worker, const int *node, int size);
void way_close(struct way *way);

/* A collective of `bytes` in all: the whole vector that is summed or gathered, or a message. */
struct way_call {
    enum comm_call call;
    double bytes;
    bool bf16; /* sums of them are not passed on */
    int root;  /* of a broadcast */
};

enum { WAY_LEGS = 4 };

/* A collective under way; one at a time on a way. */
struct trip {
    struct flow flow;
    struct way_leg {
        enum way_kind kind;
        double bytes; /* on each hop */
    } leg[WAY_LEGS];
    struct way *way;
    int legs, at;
    double rest; /* seconds after the last flow */
    void (*over)(struct trip *trip, double time);
};

/* Calls `over` when it ends: later, or at once where nothing limits it. */
enum sotto_status trip_start(struct trip *trip, struct way *way, struct way_call call, double now);

/* How long it takes when nothing else flows. */
enum sotto_status way_seconds(struct way *way, struct way_call call, double *seconds);

#endif

/* The links of a cluster as shared ports.
 *
 * Each worker has a link inside its node, and each node has adapters to the other nodes. Links and
 * adapters carry a number of bytes a second in each direction: a port is one direction. A flow is a
 * set of equal streams, in step with each other, through some of the ports. A message is a flow
 * with a stream through two ports; a ring on which all ranks pass blocks at once is a flow with a
 * stream on every hop.
 *
 * Ports are shared max-min fairly: the rates of all flows rise together until a port is full; flows
 * through a full port keep their rate, the rates of the other flows rise further. Long-lived
 * connections converge to these rates. Rates are computed again when a flow begins or ends. Times
 * must not decrease from call to call; the caller adds latencies. */
#ifndef SOTTO_COMM_LINKS_NETWORK_H
#define SOTTO_COMM_LINKS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/links/link.h"

struct network;

/* A port of a flow, and the number of the flow's streams through the port. */
struct network_use {
    int port;
    double streams;
    struct network_flow *flow; /* set by the network */
    struct network_use *next, **link;
};

/* A flow, in the caller's memory, which the caller must not touch from network_start until the flow
 * has ended. */
struct network_flow {
    struct network_use *use; /* (n) */
    int n;
    void (*ended)(struct network_flow *flow, double time); /* may start flows; not NULL */
    /* Set by the network: */
    double left, since, rate; /* bytes left of each stream at time `since`; bytes a second */
    double end;
    uint64_t order; /* of start: of flows that end at the same time the first ends first */
    int place;      /* in the heap */
    bool stale;     /* true: the rate must be computed again */
    bool found;
    struct network_flow *next;
};

/* Opens the network of `workers` workers; `node[r]` is the node of worker r. The caller owns
 * `links` and `node`, which must outlive the network. */
enum sotto_status network_open(struct network **out, const struct link_model *links,
                               const int *node, int workers);
void network_close(struct network *net); /* NULL is allowed */

/* The ports of messages from worker `from` to worker `to`, and their latency. Port -1: no limit. */
struct network_hop {
    int port[2];
    double latency;
};
struct network_hop network_hop(const struct network *net, int from, int to);

/* Returns the bytes a second of a port. */
double network_capacity(const struct network *net, int port);
int network_ports(const struct network *net);

/* Reserves space for another flow, so that the next network_start cannot fail. */
enum sotto_status network_reserve(struct network *net);

/* Starts a flow of `bytes` on each stream at time `now`. Space must be reserved for each flow; a
 * flow that ends frees its space. */
void network_start(struct network *net, struct network_flow *flow, double bytes, double now);

/* Returns the latest time passed to the network. */
double network_time(const struct network *net);

/* Returns the time when the next flow ends, or INFINITY without flows. */
double network_next(struct network *net);

/* Ends the next flow: network_next must be finite. */
void network_end_next(struct network *net);

#endif

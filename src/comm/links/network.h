/* The links of a cluster as things that are shared.
 *
 * Each worker has a link inside its node, each node has adapters to the other nodes; both carry so
 * many bytes a second in each direction, which makes two sides of each. What moves at once is a
 * flow: equal streams, in step with each other, through some of the sides. A message is a flow of
 * one stream through two sides; a ring on which all ranks pass blocks at once is a flow with a
 * stream on every hop.
 *
 * Sides are shared max-min fairly: the streams of all flows get faster alike until a side is full;
 * the flows through it stay at that, the others get faster on. That is what connections that live
 * long come to, and it is done anew whenever a flow begins or ends. Times must not go back from
 * call to call; latencies are the caller's business. */
#ifndef SOTTO_COMM_LINKS_NETWORK_H
#define SOTTO_COMM_LINKS_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/links/link.h"

struct network;

/* A side that a flow goes through, with how many of its streams. */
struct network_use {
    int port;
    double streams;
    struct network_flow *flow; /* the network's */
    struct network_use *next, **link;
};

/* The caller's memory, untouched by it from network_start until it has ended. */
struct network_flow {
    struct network_use *use; /* (n) */
    int n;
    void (*ended)(struct network_flow *flow, double time); /* may start flows; not NULL */
    /* The network's: */
    double left, since, rate; /* bytes of each stream to go at a time, and how fast */
    double end;
    uint64_t order; /* of beginning: the first of those that end at once */
    int place;      /* in the heap */
    bool stale;     /* its rate is to be found */
    bool found;
    struct network_flow *next;
};

/* `node[r]`: where worker r of `workers` runs. */
enum sotto_status network_open(struct network **out, const struct link_model *links,
                               const int *node, int workers);
void network_close(struct network *net); /* NULL is fine */

/* The two sides that worker `from`'s messages to `to` go through, -1: none, since nothing limits
 * it, and their latency. */
struct network_hop {
    int port[2];
    double latency;
};
struct network_hop network_hop(const struct network *net, int from, int to);

/* Bytes a second. */
double network_capacity(const struct network *net, int port);
int network_ports(const struct network *net);

/* Room for one more flow, so that the next network_start cannot fail. */
enum sotto_status network_reserve(struct network *net);

/* `bytes` on each stream, from `now` on. There is room for as many flows as have been reserved, and
 * for one when one has ended. */
void network_start(struct network *net, struct network_flow *flow, double bytes, double now);

/* The latest time that it has been told of. */
double network_time(const struct network *net);

/* When the next flow ends, INFINITY: none flows. */
double network_next(struct network *net);

/* Ends it: network_next must be finite. */
void network_end_next(struct network *net);

#endif

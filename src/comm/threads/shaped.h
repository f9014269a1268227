/* Modelled links in real time: threads that wait as long as the network (model/network.h) would
 * keep them. Every function may be called by any thread; who waits moves the network on for all. */
#ifndef SOTTO_COMM_THREADS_SHAPED_H
#define SOTTO_COMM_THREADS_SHAPED_H

#include "comm/links/route.h"

struct shaped;

/* `links` and `node` (workers) stay the caller's. */
enum sotto_status shaped_open(struct shaped **out, const struct link_model *links, const int *node,
                              int workers);
void shaped_close(struct shaped *s); /* NULL is fine; nothing flows any more */
struct network *shaped_network(struct shaped *s);

/* A collective of a group: the `number`th of it, which the first member to come starts at the time
 * `since`. Waits until it is over. */
struct shaped_trip {
    struct trip trip;
    uint64_t started, over; /* how many */
    double end;
};
enum sotto_status shaped_travel(struct shaped *s, struct shaped_trip *trip, struct route *route,
                                struct route_call call, uint64_t number, double since);

/* A message from one worker to another. Set out by its sender, who waits until its last byte has
 * left; the receiver waits until it has come. */
struct shaped_message {
    struct network_flow flow;
    struct network_use use[2];
    bool gone;
    double left, latency;
};
enum sotto_status shaped_send(struct shaped *s, struct shaped_message *m, int from, int to,
                              double bytes, double since);
double shaped_wait_left(struct shaped *s, struct shaped_message *m); /* when it will have come */
void shaped_wait_come(struct shaped *s, struct shaped_message *m);

void shaped_sleep_until(double when);

#endif

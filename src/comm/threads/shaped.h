/* Modelled links in real time: threads wait for as long as the network (links/network.h) would
 * need. Every function may be called by any thread; a waiting thread advances the network for all.
 */
#ifndef SOTTO_COMM_THREADS_SHAPED_H
#define SOTTO_COMM_THREADS_SHAPED_H

#include "comm/links/route.h"

struct shaped;

/* `links` and `node` (workers) stay the caller's. */
enum sotto_status shaped_open(struct shaped **out, const struct link_model *links, const int *node,
                              int workers);
void shaped_close(struct shaped *s); /* NULL is fine; no flow may be in flight */
struct network *shaped_network(struct shaped *s);

/* Waits for the end of a group's collective number `number`, which the first member to arrive
 * starts at the time `since`. */
struct shaped_trip {
    struct trip trip;
    uint64_t started, over; /* collectives so far */
    double end;
};
enum sotto_status shaped_collective(struct shaped *s, struct shaped_trip *trip, struct route *route,
                                    struct route_call call, uint64_t number, double since);

/* A message between two workers. The sender starts it and waits until the last byte has left; the
 * receiver waits until it has arrived. */
struct shaped_message {
    struct network_flow flow;
    struct network_use use[2];
    bool gone;
    double left, latency;
};
enum sotto_status shaped_send(struct shaped *s, struct shaped_message *m, int from, int to,
                              double bytes, double since);
double shaped_wait_left(struct shaped *s,
                        struct shaped_message *m); /* returns the time of arrival */
void shaped_wait_arrived(struct shaped *s, struct shaped_message *m);

void shaped_sleep_until(double when);

#endif

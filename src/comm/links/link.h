/* A model of the links between workers: bandwidth and latency inside a node and between nodes. Used
 * to slow threads down in real time and to advance the clocks of a simulated cluster. */
#ifndef SOTTO_COMM_LINKS_LINK_H
#define SOTTO_COMM_LINKS_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct link {
    double bandwidth; /* bytes a second, of one direction; 0: infinite */
    double latency;   /* seconds a message */
};

/* The links of a cluster: each worker has a link inside its node, and each node has adapters to
 * other nodes. Bandwidth is that of a single direction; concurrent messages share it. */
struct link_model {
    struct link intra, inter;
    int adapters; /* adapters of a node; place p uses adapter p modulo `adapters`. 0: an adapter for
                     each worker */
    const double *speed; /* (nodes): speed of a node's adapters, relative to 1; NULL: all 1 */
};

/* Parses "25GB/s,2us", "100Mbit/s,5ms", "1Gbit/s"; "" or "none": infinitely fast. */
enum sotto_status link_parse(struct link *link, const char *text);

/* Parses a bandwidth alone, in bytes a second; "" or "none": 0, infinite. */
enum sotto_status link_parse_rate(double *rate, const char *text);

#endif

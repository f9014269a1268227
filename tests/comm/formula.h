/* Times of collectives on links without other traffic, written from comm.h and links/route.h, for
 * `nodes` nodes of `each` workers with one adapter per worker. */
#ifndef SOTTO_TESTS_COMM_FORMULA_H
#define SOTTO_TESTS_COMM_FORMULA_H

#include <math.h>
#include <stdbool.h>

#include "comm/links/link.h"

/* True if two times are equal but for rounding. */
static inline bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

struct formula {
    int nodes, each;
    struct link intra, inter;
};

static inline double formula_message(struct link link, double bytes)
{
    return link.latency + (link.bandwidth > 0 ? bytes / link.bandwidth : 0);
}

/* Returns the seconds of half an all-reduce of `bytes` in all: a reduce-scatter or an all-gather.
 */
static inline double formula_turn(const struct formula *f, double bytes)
{
    const double block = bytes / (f->nodes * f->each);
    return (f->each - 1) * formula_message(f->intra, f->nodes * block) +
           (f->nodes - 1) * formula_message(f->inter, block);
}

/* Returns the seconds of the slower message, inside a node or between nodes, if the layout has
 * both. */
static inline double formula_slower(const struct formula *f, double bytes)
{
    const double inside = f->each > 1 ? formula_message(f->intra, bytes) : 0;
    const double between = f->nodes > 1 ? formula_message(f->inter, bytes) : 0;
    return fmax(inside, between);
}

/* Returns the seconds of rounds of doubling distance that move `bytes` from each worker to all. */
static inline double formula_rounds(const struct formula *f, double bytes)
{
    const int n = f->nodes * f->each;
    double sum = 0;
    for (int d = 1; d < n; d *= 2)
        sum += formula_slower(f, bytes * (d < n - d ? d : n - d));
    return sum;
}

enum { FORMULA_SMALL = 65536 };

static inline double formula_gather(const struct formula *f, double bytes)
{
    const int n = f->nodes * f->each;
    return bytes <= FORMULA_SMALL ? formula_rounds(f, bytes / n) : formula_turn(f, bytes);
}

static inline double formula_allreduce(const struct formula *f, double bytes)
{
    const int n = f->nodes * f->each;
    return bytes * n <= FORMULA_SMALL ? formula_rounds(f, bytes) : 2 * formula_turn(f, bytes);
}

#endif

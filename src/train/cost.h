/* What training has cost a worker, in its own time. */
#ifndef SOTTO_TRAIN_COST_H
#define SOTTO_TRAIN_COST_H

#include <stdint.h>

#include "io/state.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

/* Where time is modelled, seconds = compute + update + what was waited. */
struct cost {
    double seconds; /* of training                                          */
    double compute;
    double wire;             /* communication on its way, wherever it was spent      */
    double waited_others;    /* of its own time, for workers that had not come yet   */
    double waited_wire;      /* of its own time, for communication on its way        */
    double update;           /* of its own time, in steps, averages and copies of vectors, or
                                waiting for a lane that was at them                  */
    int64_t inside, between; /* bytes sent, inside a node and to other nodes         */
    int64_t microbatches;    /* computed                                             */
};

enum { COST_FIELDS = 9 };

void cost_add(struct cost *sum, const struct cost *c, int sign);

/* Of several workers, one after the other: means, and the slowest one's seconds. */
struct cost_joint {
    struct cost sum;
    double slowest;
    int workers;
};
void cost_join(struct cost_joint *j, const struct cost *c);
struct cost cost_mean(const struct cost_joint *j);

/* The time that the worker waited for communication, whatever the reason. */
static inline double cost_exposed(const struct cost *c)
{
    return c->waited_others + c->waited_wire;
}

/* Counts while training goes on, and not while it pauses: evaluations and checkpoints are not
 * training. What lanes send meanwhile is part of it, so their bytes always count; the time that it
 * takes does not, as nobody computes or waits then, unless lanes stand still in a pause and make up
 * for it (meter_keep_lanes, before the next start). */
struct meter {
    struct worker *worker;
    const struct oracle *oracle;
    struct mesh *mesh;
    struct cost base;  /* of the run that this one goes on from      */
    struct cost pause; /* what the pauses took up to the last start  */
    struct cost mark;  /* what the clocks showed when the last began */
    double beside;     /* seconds on the wire in lanes then          */
    double kept;       /* of them, in pauses, and not waited for yet */
    bool running;
    double owed[MESH_LANES]; /* by the lanes of the run that this one goes on from */
    int64_t *each;           /* (workers, COST_FIELDS) for checkpoints */
    int64_t *each_owed;      /* (workers, MESH_LANES) likewise         */
};

/* Stands still until the first start. */
enum sotto_status meter_init(struct meter *m, struct worker *w, const struct oracle *oracle,
                             struct mesh *mesh);
void meter_free(struct meter *m);
void meter_start(struct meter *m);
void meter_stop(struct meter *m);
void meter_keep_lanes(struct meter *m);
void meter_forget_lanes(struct meter *m); /* of a run that ends before it waits for them */
void meter_owe(struct meter *m); /* before the first start: the lanes wait for what they owe */
struct cost meter_read(const struct meter *m);

/* The costs of all workers in a checkpoint, and the number of their computations; before they are
 * saved all workers gather them. Another number of workers than they are of goes on from the joined
 * ones. */
enum sotto_status meter_gather(struct meter *m);
enum sotto_status meter_visit(struct meter *m, struct state_visitor *v);

/* The parts of both, for workers that are not gathered: what a worker tells, and what another meter
 * takes of it; what it has of all of them, and what is each one's own. */
struct meter_row {
    int64_t cost[COST_FIELDS], owed[MESH_LANES];
};
enum sotto_status meter_tell(struct meter *m, struct meter_row *row);
void meter_take(struct meter *m, int rank, const struct meter_row *row);
enum sotto_status meter_visit_costs(struct meter *m, struct state_visitor *v);
enum sotto_status meter_visit_begun(struct meter *m, struct state_visitor *v);

#endif

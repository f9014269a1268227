/* What training has cost a worker, in its own time. */
#ifndef SOTTO_TRAIN_CLUSTER_COST_H
#define SOTTO_TRAIN_CLUSTER_COST_H

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

/* What a checkpoint keeps of a worker, bit by bit: numbers of 8 bytes, and nothing else. */
struct meter_row {
    struct cost cost;
    double owed[MESH_LANES]; /* seconds, by its lanes                                  */
    double clock;            /* in the pause, where clocks stand still in it; else 0   */
};

/* Counts while training goes on, and not while it pauses: evaluations and checkpoints are not
 * training. What lanes send meanwhile is part of it, so their bytes always count; the time that it
 * takes does not, as nobody computes or waits then, unless lanes stand still in a pause and make up
 * for it (meter_go_on). */
struct meter {
    struct worker *worker;
    const struct oracle *oracle;
    struct mesh *mesh;
    struct cost base; /* up to the last stop, and of the run that this one is resumed from;
                         without the bytes that lanes of this run have sent                 */
    struct cost mark; /* what the clocks showed at the last start                           */
    struct cost sent; /* bytes of lanes before the run began or was resumed                 */
    double beside;    /* seconds on the wire in lanes at the last stop                      */
    double kept;      /* of them, in pauses, and not waited for yet                         */
    bool running;
    double owed[MESH_LANES]; /* by the lanes of the run that this one is resumed from */
    double least;            /* the time of the clock at which that run went on       */
    struct meter_row *each;  /* (workers) for checkpoints                             */
};

/* Stands still until the first start. */
enum sotto_status meter_init(struct meter *m, struct worker *w, const struct oracle *oracle,
                             struct mesh *mesh);
void meter_free(struct meter *m);
void meter_start(struct meter *m);
void meter_stop(struct meter *m);
void meter_forget_lanes(struct meter *m); /* of a run that ends before it waits for them */
/* Ends a pause of all workers: where clocks are modelled, each goes on with its lead over the
 * others, and after the first pause of a resumed run its lanes wait for what they owe. */
enum sotto_status meter_go_on(struct meter *m);
struct cost meter_read(const struct meter *m);

/* The costs of all workers in a checkpoint, and the number of their computations; before they are
 * saved all workers gather them. Another number of workers than they are of goes on from the joined
 * ones. */
enum sotto_status meter_gather(struct meter *m);
enum sotto_status meter_visit(struct meter *m, struct state_visitor *v);

/* The parts of both, for workers that are not gathered: what a worker tells, and what another meter
 * takes of it; what it has of all of them, and what is each one's own. */
enum sotto_status meter_tell(struct meter *m, struct meter_row *row);
void meter_take(struct meter *m, int rank, const struct meter_row *row);
enum sotto_status meter_visit_costs(struct meter *m, struct state_visitor *v);
enum sotto_status meter_visit_begun(struct meter *m, struct state_visitor *v);

#endif

/* Costs of training of a worker, in its own time. */
#ifndef SOTTO_TRAIN_CLUSTER_COST_H
#define SOTTO_TRAIN_CLUSTER_COST_H

#include <stdint.h>

#include "io/state.h"
#include "strategy/mesh.h"
#include "strategy/oracle.h"

/* In modelled time, seconds = compute + update + waited_others + waited_wire. */
struct cost {
    double seconds; /* of training                                          */
    double compute;
    double wire;          /* communication in flight, in any line of work */
    double waited_others; /* own time, waiting for other workers */
    double waited_wire;   /* own time, waiting for communication in flight */
    /* own time in steps, averages and copies of vectors, or waiting for a lane that does these */
    double update;
    int64_t inside, between; /* bytes sent, inside a node and to other nodes         */
    int64_t microbatches;    /* computed by this worker */
};

void cost_add(struct cost *sum, const struct cost *c, int sign);

/* Costs of several workers: means, and the largest `seconds`. */
struct cost_joint {
    struct cost sum;
    double slowest;
    int workers;
};
void cost_join(struct cost_joint *j, const struct cost *c);
struct cost cost_mean(const struct cost_joint *j);

/* Returns the time that the worker waited for communication, for any reason. */
static inline double cost_exposed(const struct cost *c)
{
    return c->waited_others + c->waited_wire;
}

/* Costs of a worker in a checkpoint: only numbers of 8 bytes, saved bit by bit. */
struct meter_row {
    struct cost cost;
    double owed[MESH_LANES]; /* seconds that lanes still have to wait, by lane */
    double clock;            /* at the pause, if clocks stop in pauses; else 0 */
};

/* Measures a worker's costs while training runs. Pauses for evaluations and checkpoints are not
 * training. Bytes that lanes send in a pause always count. Their time does not count, since no
 * worker computes or waits then, unless lanes stop in a pause and continue afterwards
 * (meter_resume). */
struct meter {
    struct worker *worker;
    const struct oracle *oracle;
    struct mesh *mesh;
    /* up to the last stop, including the run before a resume; without bytes sent by lanes of
     * this run */

    struct cost base;
    struct cost started; /* clocks at the last start */
    struct cost sent;    /* bytes of lanes before the run began or was resumed                 */
    double lane_wire;    /* seconds of messages in lanes at the last stop */
    double pause_wire;   /* part of these in pauses, not waited for yet */
    bool running;
    double owed[MESH_LANES]; /* by the lanes of the resumed run */
    double least_clock;      /* clock at which the resumed run continued */
    struct meter_row *each;  /* (workers) for checkpoints                             */
};

/* Initializes a stopped meter. */
enum sotto_status meter_init(struct meter *m, struct worker *w, const struct oracle *oracle,
                             struct mesh *mesh);
void meter_free(struct meter *m);
void meter_start(struct meter *m);
void meter_stop(struct meter *m);
void meter_forget_lanes(struct meter *m); /* at the end of a run that leaves lanes busy */
/* Ends a pause of all workers. With modelled clocks each worker keeps its lead over the others and,
 * after the first pause of a resumed run, its lanes wait for the time in `owed`. */
enum sotto_status meter_resume(struct meter *m);
struct cost meter_read(const struct meter *m);

/* Gathers the costs of all workers; called by all of them before a save. */
enum sotto_status meter_gather(struct meter *m);

/* The parts of meter_gather, for workers that do not gather. meter_fill_row fills a worker's row;
 * meter_store_row stores the row of worker `rank` in another meter. */
enum sotto_status meter_fill_row(struct meter *m, struct meter_row *row);
void meter_store_row(struct meter *m, int rank, const struct meter_row *row);

/* Visit the costs of all workers, and the worker's number of micro-batches. Another number of
 * workers continues from the joined costs. */
enum sotto_status meter_visit_costs(struct meter *m, struct state_visitor *v);
enum sotto_status meter_visit_jitter(struct meter *m, struct state_visitor *v);

#endif

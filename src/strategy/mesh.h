/* The mesh |R| x |S| of workers: S = shard groups on fast links, R = the same place in every group,
 * across slow links. rank = r*|S| + s. A one-level run is a mesh with the other side 1.
 *
 * Communicators and lanes of a method are opened here, with the device contexts that they belong
 * to, so that a failure can bring all of them to rest and what they cost is counted in one place.
 */
#ifndef SOTTO_STRATEGY_MESH_H
#define SOTTO_STRATEGY_MESH_H

#include "comm/worker.h"

enum { MESH_COMMS = 32, MESH_LANES = 4 };

struct mesh {
    struct worker *worker; /* not owned */
    struct device *dev;    /* of the worker's own line of work; not owned */
    int n_r, n_s;          /* |R|, |S|  */
    int r, s;
    struct comm *shard, *replicate; /* of this worker's group; of its place in all groups */
    /* A line of work beside the compute, with communicators of its own. */
    struct lane *lane;
    struct comm *lane_world, *lane_shard, *lane_replicate;

    struct comm *comm[MESH_COMMS]; /* all of them, owned */
    struct lane *lanes[MESH_LANES];
    int n_comm, n_lane;
    double worked; /* seconds of work over vectors on the worker's own line (vector_work.h) */
    struct device *lane_dev[MESH_LANES]; /* the lanes', owned */
    bool serves[MESH_LANES]; /* a lane whose job waits for others until they let it end */
};

/* `groups` = |R|, which must divide the number of workers; `dev`: the worker's, NULL: host memory
 * only. Called by all of them. */
enum sotto_status mesh_open(struct mesh *mesh, struct worker *worker, int groups,
                            struct device *dev);
void mesh_close(struct mesh *mesh);

/* One more lane, and a communicator of the ranks of `like` for it, or, lane NULL, for the worker's
 * own line; the latter is called by all workers. Closed with the mesh. `waiter`: a communicator of
 * the line of work that starts its jobs and waits for it. */
enum sotto_status mesh_lane(struct mesh *mesh, const struct comm *waiter, struct lane **out);
enum sotto_status mesh_duplicate(struct mesh *mesh, struct comm *like, struct lane *lane,
                                 struct comm **out);

/* A communicator's twin (comm_twin) for that lane, or, NULL, for the worker's own line. */
enum sotto_status mesh_twin(struct mesh *mesh, struct comm *of, struct lane *lane,
                            struct comm **out);

/* A lane that has one long job, which others let end: at rest between their messages. */
void mesh_serves(struct mesh *mesh, const struct lane *lane);

/* Waits until all lanes are at rest but those that serve. */
enum sotto_status mesh_rest(struct mesh *mesh);

/* Seconds of what each lane had under way when a pause began, where lanes stand still in it, and 0
 * elsewhere: to be saved with a checkpoint, and to be waited for by a run that goes on from it. */
void mesh_owed(const struct mesh *mesh, double owed[MESH_LANES]);
void mesh_owe(struct mesh *mesh, const double owed[MESH_LANES]);

/* This worker cannot go on: ends everybody's waiting with its status and message, so that the lanes
 * come to rest and what their jobs use may be freed. Returns the status. */
enum sotto_status mesh_abort(struct mesh *mesh, enum sotto_status st);

/* What communication has cost this worker so far: the time that it took on the wire, wherever it
 * was spent, and what of its own time the worker waited, for others to come and for the wire. */
struct mesh_account {
    double wire;
    double waited_others, waited_wire;
    double update; /* of its own time: over vectors, or waiting for a lane that was at it */
    int64_t inside, between; /* bytes sent to workers on the same node, on other nodes */
};
struct mesh_account mesh_account_own(const struct mesh *mesh);   /* on its own line of work */
struct mesh_account mesh_account_lanes(const struct mesh *mesh); /* in lanes, while it computes */

#endif

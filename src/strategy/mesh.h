/* The mesh |R| x |S| of workers: S = shard groups on fast links, R = the same place in every group,
 * across slow links. rank = r*|S| + s. A one-level run is a mesh with the other side 1.
 *
 * The mesh opens a method's communicators, lanes and their device contexts, so that a failure can
 * bring all of them to rest and their costs are counted in one place. */
#ifndef SOTTO_STRATEGY_MESH_H
#define SOTTO_STRATEGY_MESH_H

#include "comm/worker.h"

enum { MESH_COMMS = 32, MESH_LANES = 4 };

struct mesh {
    struct worker *worker; /* not owned */
    struct device *dev;    /* of the worker's own line of work; not owned */
    int n_r, n_s;          /* |R|, |S|  */
    int r, s;
    struct comm *shard,
        *replicate; /* of this worker's group; of the workers with its place in all groups */
    /* A line of work in parallel with the computing, with communicators of its own. */
    struct lane *lane;
    struct comm *lane_world, *lane_shard, *lane_replicate;

    struct comm *comm[MESH_COMMS]; /* all communicators, owned */
    struct lane *lanes[MESH_LANES];
    int n_comm, n_lane;
    double worked; /* seconds of work over vectors on the worker's own line (vector_work.h) */
    struct device *lane_dev[MESH_LANES]; /* the lanes', owned */
    bool serves[MESH_LANES];             /* lanes with a job that other workers end */
};

/* Opens the mesh. `groups` = |R|, a divisor of the number of workers; `dev`: the worker's, NULL:
 * host memory only. Called by all workers. */
enum sotto_status mesh_open(struct mesh *mesh, struct worker *worker, int groups,
                            struct device *dev);
void mesh_close(struct mesh *mesh);

/* mesh_lane opens another lane; `waiter`: a communicator of the line of work that starts the lane's
 * jobs and waits for them. mesh_duplicate opens another communicator of the ranks of `like`, for a
 * lane or, with lane NULL, for the worker's own line; the latter is called by all workers. Both are
 * closed with the mesh. */
enum sotto_status mesh_lane(struct mesh *mesh, const struct comm *waiter, struct lane **out);
enum sotto_status mesh_duplicate(struct mesh *mesh, struct comm *like, struct lane *lane,
                                 struct comm **out);

/* Opens a communicator's twin (comm_twin) for a lane or, with NULL, for the worker's own line. */
enum sotto_status mesh_twin(struct mesh *mesh, struct comm *of, struct lane *lane,
                            struct comm **out);

/* Marks a lane with one job until the end of the run, which other workers end. The lane counts as
 * at rest. */
void mesh_serves(struct mesh *mesh, const struct lane *lane);

/* Waits until all lanes are at rest, except those of mesh_serves. */
enum sotto_status mesh_rest(struct mesh *mesh);

/* mesh_owed: seconds of messages that each lane had in flight when a pause began, if lanes stop in
 * pauses, else 0. The seconds are saved with a checkpoint; mesh_owe makes the lanes of a resumed
 * run wait for them. */
void mesh_owed(const struct mesh *mesh, double owed[MESH_LANES]);
void mesh_owe(struct mesh *mesh, const double owed[MESH_LANES]);

/* Ends the waiting of all workers with this worker's status and message, after a failure. Lanes
 * come to rest, and memory of their jobs may be freed. Returns the status. */
enum sotto_status mesh_abort(struct mesh *mesh, enum sotto_status st);

/* Costs of this worker's communication so far: seconds of messages on the wire, in any line of
 * work, and own seconds spent waiting for other workers and for the wire. */
struct mesh_account {
    double wire;
    double waited_others, waited_wire;
    double update; /* own seconds of work over vectors, or of waiting for a lane with such work */
    int64_t inside, between; /* bytes sent to workers on the same node, on other nodes */
};
struct mesh_account mesh_account_own(const struct mesh *mesh); /* of its own line of work */
struct mesh_account mesh_account_lanes(
    const struct mesh *mesh); /* of its lanes, in parallel with computing */

#endif

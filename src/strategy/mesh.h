/* The mesh |R| x |S| of workers: S = shard groups on fast links, R = the same place in every group,
 * across slow links. rank = r*|S| + s. A one-level run is a mesh with the other side 1. */
#ifndef SOTTO_STRATEGY_MESH_H
#define SOTTO_STRATEGY_MESH_H

#include "comm/worker.h"

struct mesh {
    struct worker *worker; /* not owned */
    int n_r, n_s;          /* |R|, |S|  */
    int r, s;
    struct comm *shard, *replicate; /* of this worker's group; of its place in all groups */
    /* A line of work beside the compute, with communicators of its own. */
    struct lane *lane;
    struct comm *lane_world, *lane_shard, *lane_replicate;
};

/* `groups` = |R|, which must divide the number of workers. Called by all of them. */
enum sotto_status mesh_open(struct mesh *mesh, struct worker *worker, int groups);
void mesh_close(struct mesh *mesh);

/* This worker cannot go on: ends everybody's waiting with its status and message, so that the lane
 * comes to rest and what its jobs use may be freed. Returns the status. */
enum sotto_status mesh_abort(struct mesh *mesh, enum sotto_status st);

#endif

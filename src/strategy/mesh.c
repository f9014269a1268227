#include "strategy/mesh.h"

enum sotto_status mesh_open(struct mesh *mesh, struct worker *worker, int groups)
{
    *mesh = (struct mesh){.worker = worker, .n_r = groups};
    if (groups < 1 || worker->size % groups)
        return fail(SOTTO_EINVAL, "%d workers cannot be cut into %d equal groups", worker->size,
                    groups);
    mesh->n_s = worker->size / groups;
    mesh->r = worker->rank / mesh->n_s;
    mesh->s = worker->rank % mesh->n_s;
    enum sotto_status st;
    TRY_DONE(comm_split(worker->world, mesh->r, &mesh->shard));
    TRY_DONE(comm_split(worker->world, mesh->s, &mesh->replicate));
    TRY_DONE(comm_duplicate(worker->world, &mesh->lane_world));
    TRY_DONE(comm_duplicate(mesh->shard, &mesh->lane_shard));
    TRY_DONE(comm_duplicate(mesh->replicate, &mesh->lane_replicate));
    TRY_DONE(worker->ops->lane(worker, &mesh->lane));
done:
    if (st != SOTTO_OK)
        mesh_close(mesh);
    return st;
}

void mesh_close(struct mesh *mesh)
{
    lane_close(mesh->lane); /* first: its job may be using the communicators */
    comm_free(mesh->lane_replicate);
    comm_free(mesh->lane_shard);
    comm_free(mesh->lane_world);
    comm_free(mesh->replicate);
    comm_free(mesh->shard);
    *mesh = (struct mesh){0};
}

enum sotto_status mesh_abort(struct mesh *mesh, enum sotto_status st)
{
    struct status_note note;
    struct comm *world = mesh->worker->world;
    status_save(&note, st);
    world->ops->abort(world, &note);
    lane_wait(mesh->lane);
    return status_raise(&note);
}

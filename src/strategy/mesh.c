#include "strategy/mesh.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor/ops.h"

static enum sotto_status split_world(struct mesh *mesh, int color, struct comm **out)
{
    assert(mesh->n_comm < MESH_COMMS);
    TRY(comm_split(mesh->worker->world, color, out));
    mesh->comm[mesh->n_comm++] = *out;
    return SOTTO_OK;
}

enum sotto_status mesh_duplicate(struct mesh *mesh, struct comm *like, struct lane *lane,
                                 struct comm **out)
{
    assert(mesh->n_comm < MESH_COMMS);
    TRY(comm_duplicate(like, out));
    (*out)->lane = lane;
    (*out)->dev = lane ? lane->dev : mesh->dev;
    mesh->comm[mesh->n_comm++] = *out;
    return SOTTO_OK;
}

enum sotto_status mesh_twin(struct mesh *mesh, struct comm *of, struct lane *lane,
                            struct comm **out)
{
    assert(mesh->n_comm < MESH_COMMS);
    TRY(comm_twin(of, out));
    (*out)->lane = lane;
    (*out)->dev = lane ? lane->dev : mesh->dev;
    mesh->comm[mesh->n_comm++] = *out;
    return SOTTO_OK;
}

/* Opens a context like the worker's; NULL if the worker has none. */
static enum sotto_status open_device(const struct device *like, struct device **out)
{
    *out = NULL;
    if (!like)
        return SOTTO_OK;
    struct device *dev = malloc(sizeof *dev);
    if (!dev)
        return fail(SOTTO_ENOMEM, "no memory for a device");
    enum sotto_status st = device_open(dev, like->ops->name, like->memory, like->threads);
    if (st != SOTTO_OK)
        free(dev);
    else
        *out = dev;
    return st;
}

static void close_device(struct device *dev)
{
    if (dev)
        device_close(dev);
    free(dev);
}

enum sotto_status mesh_lane(struct mesh *mesh, const struct comm *waiter, struct lane **out)
{
    assert(mesh->n_lane < MESH_LANES);
    struct device *dev;
    TRY(open_device(mesh->dev, &dev));
    const enum sotto_status st = mesh->worker->ops->lane(mesh->worker, out);
    if (st != SOTTO_OK) {
        close_device(dev);
        return st;
    }
    (*out)->above = waiter->lane;
    lane_bind(*out, dev, waiter->dev);
    mesh->lane_dev[mesh->n_lane] = dev;
    mesh->lanes[mesh->n_lane++] = *out;
    return SOTTO_OK;
}

enum sotto_status mesh_open(struct mesh *mesh, struct worker *worker, int groups,
                            struct device *dev)
{
    *mesh = (struct mesh){.worker = worker, .dev = dev, .n_r = groups};
    if (groups < 1 || worker->size % groups)
        return fail(SOTTO_EINVAL, "%d workers cannot be cut into %d equal groups", worker->size,
                    groups);
    mesh->n_s = worker->size / groups;
    mesh->r = worker->rank / mesh->n_s;
    mesh->s = worker->rank % mesh->n_s;
    enum sotto_status st;
    worker->world->dev = dev;
    TRY_DONE(split_world(mesh, mesh->r, &mesh->shard));
    TRY_DONE(split_world(mesh, mesh->s, &mesh->replicate));
    TRY_DONE(mesh_lane(mesh, worker->world, &mesh->lane));
    TRY_DONE(mesh_duplicate(mesh, worker->world, mesh->lane, &mesh->lane_world));
    TRY_DONE(mesh_duplicate(mesh, mesh->shard, mesh->lane, &mesh->lane_shard));
    TRY_DONE(mesh_duplicate(mesh, mesh->replicate, mesh->lane, &mesh->lane_replicate));
done:
    if (st != SOTTO_OK)
        mesh_close(mesh);
    return st;
}

void mesh_close(struct mesh *mesh)
{
    for (int i = 0; i < mesh->n_lane; i++) /* first: jobs may be using everything else */
        lane_close(mesh->lanes[i]);
    while (mesh->n_comm > 0)
        comm_free(mesh->comm[--mesh->n_comm]);
    while (mesh->n_lane > 0)
        close_device(mesh->lane_dev[--mesh->n_lane]);
    if (mesh->worker)
        mesh->worker->world->dev = NULL;
    *mesh = (struct mesh){0};
}

void mesh_serves(struct mesh *mesh, const struct lane *lane)
{
    for (int i = 0; i < mesh->n_lane; i++)
        mesh->serves[i] |= mesh->lanes[i] == lane;
}

static enum sotto_status rest_lanes(struct mesh *mesh, bool all)
{
    enum sotto_status first = SOTTO_OK;
    struct status_note note = {0};
    for (int i = 0; i < mesh->n_lane; i++) {
        if (mesh->serves[i] && !all)
            continue;
        enum sotto_status st = lane_wait(mesh->lanes[i]);
        if (st != SOTTO_OK && first == SOTTO_OK)
            status_save(&note, first = st);
    }
    return status_raise(&note);
}

enum sotto_status mesh_rest(struct mesh *mesh)
{
    return rest_lanes(mesh, false);
}

void mesh_owed(const struct mesh *mesh, double owed[MESH_LANES])
{
    for (int i = 0; i < MESH_LANES; i++) {
        const struct lane *lane = i < mesh->n_lane && !mesh->serves[i] ? mesh->lanes[i] : NULL;
        owed[i] = lane && lane->ops->seconds_left ? lane->ops->seconds_left(lane) : 0;
    }
}

void mesh_owe(struct mesh *mesh, const double owed[MESH_LANES])
{
    for (int i = 0; i < mesh->n_lane; i++)
        if (owed[i] > 0 && mesh->lanes[i]->ops->delay)
            mesh->lanes[i]->ops->delay(mesh->lanes[i], owed[i]);
}

enum sotto_status mesh_abort(struct mesh *mesh, enum sotto_status st)
{
    struct status_note note;
    struct comm *world = mesh->worker->world;
    status_save(&note, st);
    world->ops->abort(world, &note);
    rest_lanes(mesh, true);
    return status_raise(&note);
}

static void add_comm_account(struct mesh_account *a, const struct comm *c)
{
    for (int i = 0; i < COMM_CALLS; i++) {
        const struct comm_stats *t = &c->stats[i];
        const double waiting = t->waiting, wire = t->seconds - waiting;
        a->wire += wire;
        a->waited_others += c->lane ? 0 : waiting;
        a->waited_wire += c->lane ? 0 : wire;
        a->inside += t->inside;
        a->between += t->between;
    }
}

struct mesh_account mesh_account_lanes(const struct mesh *mesh)
{
    struct mesh_account a = {0};
    if (mesh->worker->ops->sync_clock)
        mesh->worker->ops->sync_clock(mesh->worker);
    for (int i = 0; i < mesh->n_comm; i++)
        if (mesh->comm[i]->lane)
            add_comm_account(&a, mesh->comm[i]);
    return a;
}

struct mesh_account mesh_account_own(const struct mesh *mesh)
{
    struct mesh_account a = {0};
    add_comm_account(&a, mesh->worker->world);
    for (int i = 0; i < mesh->n_comm; i++)
        if (!mesh->comm[i]->lane)
            add_comm_account(&a, mesh->comm[i]);
    for (int i = 0; i < mesh->n_lane; i++) {
        const struct lane *lane = mesh->lanes[i];
        a.waited_others += lane->above ? 0 : lane->others;
        a.waited_wire += lane->above ? 0 : lane->wire;
        a.update += lane->above ? 0 : lane->work;
    }
    a.update += mesh->worked;
    return a;
}

/* The op table of communicators in virtual time, and the world: on top of groups, messages and
 * calls. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/virtual/world.h"
#include "comm/virtual/virtual_impl.h"

static void virtual_free_comm(struct comm *c)
{
    struct virtual_group *g = ((struct virtual_member *)c)->group;
    virtual_end_member((struct virtual_member *)c);
    if (g->member[c->rank] != (struct virtual_member *)c)
        free(c); /* a twin; other members are freed with the group */
    if (--g->users == 0)
        virtual_free_group(g);
}

static enum sotto_status virtual_twin(struct comm *c, struct comm **out)
{
    struct virtual_member *m = calloc(1, sizeof *m);
    if (!m)
        return fail(SOTTO_ENOMEM, "no memory for a communicator");
    m->base = (struct comm){.ops = c->ops,
                            .rank = c->rank,
                            .size = c->size,
                            .node = c->node,
                            .layout = c->layout,
                            .clock = c->clock};
    m->group = ((struct virtual_member *)c)->group;
    m->group->users++;
    *out = &m->base;
    return SOTTO_OK;
}

static void virtual_abort(struct comm *c, const struct status_note *note)
{
    struct virtual_sim *sim = ((struct virtual_member *)c)->group->sim;
    struct status_note named = {.code = note->code};
    virtual_sync_clock(sim);
    snprintf(named.text, sizeof named.text, "worker %d: %.*s", sim->current->rank, STATUS_ROOM - 32,
             note->text);
    virtual_stop_run(sim, &named);
}

static const struct comm_ops virtual_comm_ops = {
    .name = "virtual",
    .send = virtual_send,
    .send_device = virtual_send_device,
    .recv = virtual_recv,
    .recv_device = virtual_recv_device,
    .recv_any = virtual_recv_any,
    .recv_any_device = virtual_recv_any_device,
    .allreduce = virtual_allreduce,
    .reduce_scatter = virtual_reduce_scatter,
    .allgather = virtual_allgather,
    .sum = virtual_sum,
    .broadcast = virtual_broadcast,
    .on_device = virtual_on_device,
    .barrier = virtual_barrier,
    .split = virtual_split,
    .twin = virtual_twin,
    .abort = virtual_abort,
    .free = virtual_free_comm,
};

enum sotto_status virtual_world(struct virtual_sim *sim, const int *node, int workers,
                                struct comm **out)
{
    struct virtual_group *g = virtual_make_group(sim, &virtual_comm_ops, workers);
    if (!g)
        return fail(SOTTO_ENOMEM, "no memory for a world of %d", workers);
    for (int r = 0; r < g->size; r++) {
        virtual_set_worker(g, r, r, node[r]);
        out[r] = &g->member[r]->base;
    }
    virtual_open_route(g);
    return SOTTO_OK;
}

void virtual_world_leave(struct comm *world)
{
    virtual_end_member((struct virtual_member *)world);
}

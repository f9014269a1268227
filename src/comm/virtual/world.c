#include <stdio.h>
#include <stdlib.h>

#include "comm/virtual/world.h"
#include "comm/virtual/virtual_impl.h"

static const struct comm_ops virtual_comm_ops;

void virtual_free_messages(struct message *m)
{
    while (m) {
        struct message *next = m->next;
        payload_free(&m->payload);
        free(m);
        m = next;
    }
}

static void free_group(struct group *g)
{
    for (int r = 0; r < g->size && g->member; r++) {
        for (int i = 0; i < g->size && g->member[r] && g->member[r]->box; i++)
            virtual_free_messages(g->member[r]->box[i].first);
        if (g->member[r])
            free(g->member[r]->box);
        free(g->member[r]);
    }
    virtual_free_messages(g->idle[0]);
    virtual_free_messages(g->idle[1]);
    way_close(&g->way);
    free(g->node);
    free(g->worker);
    free(g->offer);
    free(g->x);
    free(g->y);
    free(g->there);
    free(g->member);
    free(g);
}

static void free_comm(struct comm *c)
{
    struct group *g = ((struct member *)c)->group;
    virtual_end((struct member *)c);
    if (g->member[c->rank] != (struct member *)c)
        free(c); /* a twin; the others go with the group */
    if (--g->users == 0)
        free_group(g);
}

static enum sotto_status twin(struct comm *c, struct comm **out)
{
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return fail(SOTTO_ENOMEM, "no memory for a communicator");
    m->base = (struct comm){.ops = c->ops,
                            .rank = c->rank,
                            .size = c->size,
                            .node = c->node,
                            .layout = c->layout,
                            .clock = c->clock};
    m->group = ((struct member *)c)->group;
    m->group->users++;
    *out = &m->base;
    return SOTTO_OK;
}

/* NULL without memory; the workers are still to be set (set_worker, then open_way). */
static struct group *make_group(struct virtual_sim *sim, int size)
{
    struct group *g = calloc(1, sizeof *g);
    size_t n = (size_t)size;
    if (!g)
        return NULL;
    g->sim = sim;
    g->size = g->users = size;
    g->node = calloc(n, sizeof *g->node);
    g->worker = calloc(n, sizeof *g->worker);
    g->offer = calloc(n, sizeof *g->offer);
    g->x = calloc(n, sizeof *g->x);
    g->y = calloc(n, sizeof *g->y);
    g->there = calloc(n, sizeof(struct virtual_process *));
    g->member = calloc(n, sizeof(struct member *));
    bool whole = g->node && g->worker && g->offer && g->x && g->y && g->there && g->member;
    for (int r = 0; r < size && whole; r++) {
        struct member *m = g->member[r] = calloc(1, sizeof *m);
        if ((whole = m != NULL)) {
            m->base = (struct comm){.ops = &virtual_comm_ops,
                                    .rank = r,
                                    .size = size,
                                    .node = g->node,
                                    .clock = &sim->clock};
            m->group = g;
        }
    }
    if (!whole) {
        free_group(g);
        return NULL;
    }
    return g;
}

static void set_worker(struct group *g, int rank, int worker, int node)
{
    g->worker[rank] = worker;
    g->node[rank] = node;
}

static void open_way(struct group *g)
{
    way_open(&g->way, g->sim->net, g->worker, g->node, g->size);
    g->trip.over = virtual_let_go;
    for (int r = 0; r < g->size; r++)
        g->member[r]->base.layout = g->way.layout;
}

enum sotto_status virtual_world(struct virtual_sim *sim, const int *node, int workers,
                                struct comm **out)
{
    struct group *g = make_group(sim, workers);
    if (!g)
        return fail(SOTTO_ENOMEM, "no memory for a world of %d", workers);
    for (int r = 0; r < g->size; r++) {
        set_worker(g, r, r, node[r]);
        out[r] = &g->member[r]->base;
    }
    open_way(g);
    return SOTTO_OK;
}

void virtual_world_leave(struct comm *world)
{
    virtual_end((struct member *)world);
}

static int by_color(const void *a, const void *b)
{
    const struct offer *x = *(const struct offer *const *)a, *y = *(const struct offer *const *)b;
    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    return x < y ? -1 : x > y; /* both in g->offer: by rank */
}

enum sotto_status virtual_make_split(struct group *g)
{
    bool whole = true;
    const struct offer **order = malloc((size_t)g->size * sizeof(const struct offer *));
    if (!order)
        return fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
    for (int r = 0; r < g->size; r++)
        order[r] = &g->offer[r];
    qsort(order, (size_t)g->size, sizeof(const struct offer *), by_color);
    for (int begin = 0, end; begin < g->size && whole; begin = end) {
        for (end = begin; end < g->size && order[end]->color == order[begin]->color;)
            end++;
        struct group *part = make_group(g->sim, end - begin);
        whole = part != NULL;
        for (int i = begin; i < end && whole; i++) {
            const int rank = (int)(order[i] - g->offer);
            set_worker(part, i - begin, g->worker[rank], g->node[rank]);
            *order[i]->out = &part->member[i - begin]->base;
        }
        if (whole)
            open_way(part);
    }
    for (int r = 0; r < g->size && !whole; r++) {
        comm_free(*g->offer[r].out);
        *g->offer[r].out = NULL;
    }
    free(order);
    return whole ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
}

static void abort_world(struct comm *c, const struct status_note *note)
{
    struct virtual_sim *sim = ((struct member *)c)->group->sim;
    struct status_note named = {.code = note->code};
    virtual_meet(sim);
    snprintf(named.text, sizeof named.text, "worker %d: %.*s", sim->current->rank, STATUS_ROOM - 32,
             note->text);
    virtual_stop(sim, &named);
}

static const struct comm_ops virtual_comm_ops = {
    .name = "virtual",
    .send = virtual_send,
    .send_far = virtual_send_far,
    .recv = virtual_recv,
    .recv_far = virtual_recv_far,
    .recv_any = virtual_recv_any,
    .recv_any_far = virtual_recv_any_far,
    .allreduce = virtual_allreduce,
    .reduce_scatter = virtual_reduce_scatter,
    .allgather = virtual_allgather,
    .sum = virtual_sum,
    .broadcast = virtual_broadcast,
    .far = virtual_far,
    .barrier = virtual_barrier,
    .split = virtual_split,
    .twin = twin,
    .abort = abort_world,
    .free = free_comm,
};

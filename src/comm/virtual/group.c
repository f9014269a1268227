/* Groups: the ranks of a communicator and their shared state, made for the world and by splits. */
#include <stdlib.h>

#include "comm/virtual/virtual_impl.h"

void virtual_free_group(struct virtual_group *g)
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
    route_close(&g->route);
    free(g->node);
    free(g->worker);
    free(g->offer);
    free(g->x);
    free(g->y);
    free(g->process);
    free(g->member);
    free(g);
}

struct virtual_group *virtual_make_group(struct virtual_sim *sim, const struct comm_ops *ops,
                                         int size)
{
    struct virtual_group *g = calloc(1, sizeof *g);
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
    g->process = calloc(n, sizeof(struct virtual_process *));
    g->member = calloc(n, sizeof(struct virtual_member *));
    bool whole = g->node && g->worker && g->offer && g->x && g->y && g->process && g->member;
    for (int r = 0; r < size && whole; r++) {
        struct virtual_member *m = g->member[r] = calloc(1, sizeof *m);
        if ((whole = m != NULL)) {
            m->base = (struct comm){
                .ops = ops, .rank = r, .size = size, .node = g->node, .clock = &sim->clock};
            m->group = g;
        }
    }
    if (!whole) {
        virtual_free_group(g);
        return NULL;
    }
    return g;
}

void virtual_set_worker(struct virtual_group *g, int rank, int worker, int node)
{
    g->worker[rank] = worker;
    g->node[rank] = node;
}

void virtual_open_route(struct virtual_group *g)
{
    route_open(&g->route, g->sim->net, g->worker, g->node, g->size);
    for (int r = 0; r < g->size; r++)
        g->member[r]->base.layout = g->route.layout;
}

static int by_color(const void *a, const void *b)
{
    const struct virtual_offer *x = *(const struct virtual_offer *const *)a,
                               *y = *(const struct virtual_offer *const *)b;
    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    return x < y ? -1 : x > y; /* both in g->offer: ties in the order of ranks */
}

enum sotto_status virtual_make_split(struct virtual_group *g)
{
    bool whole = true;
    const struct virtual_offer **order =
        malloc((size_t)g->size * sizeof(const struct virtual_offer *));
    if (!order)
        return fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
    for (int r = 0; r < g->size; r++)
        order[r] = &g->offer[r];
    qsort(order, (size_t)g->size, sizeof(const struct virtual_offer *), by_color);
    for (int begin = 0, end; begin < g->size && whole; begin = end) {
        for (end = begin; end < g->size && order[end]->color == order[begin]->color;)
            end++;
        struct virtual_group *part =
            virtual_make_group(g->sim, g->member[0]->base.ops, end - begin);
        whole = part != NULL;
        for (int i = begin; i < end && whole; i++) {
            const int rank = (int)(order[i] - g->offer);
            virtual_set_worker(part, i - begin, g->worker[rank], g->node[rank]);
            *order[i]->out = &part->member[i - begin]->base;
        }
        if (whole)
            virtual_open_route(part);
    }
    for (int r = 0; r < g->size && !whole; r++) {
        comm_free(*g->offer[r].out);
        *g->offer[r].out = NULL;
    }
    free(order);
    return whole ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory to split %d ranks", g->size);
}

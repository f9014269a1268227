#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/machine/cores.h"
#include "comm/threads/threads.h"
#include "comm/threads/threads_impl.h"

static void leave_world(struct threads_run *w)
{
    if (atomic_fetch_sub(&w->users, 1) == 1) {
        pthread_mutex_destroy(&w->lock);
        shaped_close(w->shaped);
        free(w->node);
        free(w);
    }
}

static void free_messages(struct threads_message *message)
{
    while (message) {
        struct threads_message *next = message->next;
        free(message->data);
        free(message);
        message = next;
    }
}

static void threads_free_group(struct threads_group *g)
{
    struct threads_run *w = g->run;
    pthread_mutex_lock(&w->lock);
    struct threads_group **at = &w->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; g->box && i < g->size * g->size; i++)
        free_messages(g->box[i].first);
    free_messages(g->idle);
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    route_close(&g->route);
    free(g->offer);
    free(g->done);
    free(g->box);
    free(g->inbox);
    free(g->ended);
    free(g->color);
    free(g->made);
    free(g->node);
    free(g->visits);
    free(g->world_rank);
    free(g);
    leave_world(w);
}

/* Makes a group of `size` ranks; rank i is worker[i] of the world. NULL: no memory. */
static struct threads_group *threads_make_group(struct threads_run *w, int size, const int *worker)
{
    struct threads_group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    size_t n = (size_t)size;
    g->run = w;
    g->size = size;
    atomic_init(&g->users, size);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t monotonic; /* as clock_real */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    g->offer = calloc(n, sizeof *g->offer);
    g->done = calloc(n, sizeof *g->done);
    g->box = calloc(n * n, sizeof *g->box);
    g->inbox = calloc(n, sizeof *g->inbox);
    g->ended = calloc(n, sizeof *g->ended);
    g->color = calloc(n, sizeof *g->color);
    g->made = calloc(n, sizeof *g->made);
    g->node = calloc(n, sizeof *g->node);
    g->visits = calloc(n, sizeof *g->visits);
    g->world_rank = calloc(n, sizeof *g->world_rank);
    atomic_fetch_add(&w->users, 1);
    pthread_mutex_lock(&w->lock);
    g->next = w->groups;
    w->groups = g;
    pthread_mutex_unlock(&w->lock);
    if (!g->offer || !g->box || !g->inbox || !g->ended || !g->color || !g->made || !g->node ||
        !g->visits || !g->world_rank || !g->done) {
        threads_free_group(g);
        return NULL;
    }
    for (int i = 0; i < size; i++) {
        g->world_rank[i] = worker[i];
        g->node[i] = w->node[worker[i]];
    }
    if (w->shaped)
        route_open(&g->route, shaped_network(w->shaped), g->world_rank, g->node, size);
    for (size_t i = 0; i < n * n; i++)
        g->box[i].last = &g->box[i].first;
    return g;
}

static void leave_group(struct threads_group *g)
{
    if (atomic_fetch_sub(&g->users, 1) == 1)
        threads_free_group(g);
}

void threads_end(struct comm *c)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    pthread_mutex_lock(&g->lock);
    g->ended[c->rank] = true;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static void threads_free_member(struct comm *c)
{
    struct threads_member *m = (struct threads_member *)c;
    threads_end(c);
    leave_group(m->group);
    free(m->x);
    free(m->y);
    free(m);
}

/* Aborts the run: wakes all waiting ranks of the world. The first note counts. */
static void threads_abort(struct comm *c, const struct status_note *note)
{
    const struct threads_member *m = (const struct threads_member *)c;
    struct threads_run *w = m->group->run;
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->aborted)) {
        w->note.code = note->code;
        snprintf(w->note.text, sizeof w->note.text, "worker %d: %.*s", m->world_rank,
                 STATUS_ROOM - 32, note->text);
        atomic_store(&w->aborted, true);
        for (struct threads_group *g = w->groups; g; g = g->next) {
            pthread_mutex_lock(&g->lock);
            pthread_cond_broadcast(&g->moved);
            pthread_mutex_unlock(&g->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

static enum sotto_status threads_split(struct comm *c, int color, struct comm **out);
static enum sotto_status threads_twin(struct comm *c, struct comm **out);

static const struct comm_ops threads_ops = {
    .name = "threads",
    .send = threads_send,
    .post = threads_post,
    .recv = threads_recv,
    .recv_any = threads_recv_any,
    .exchange = threads_exchange,
    .allreduce = threads_allreduce,
    .reduce_scatter = threads_reduce_scatter,
    .allgather = threads_allgather,
    .broadcast = threads_broadcast,
    .on_device = threads_on_device,
    .barrier = threads_barrier,
    .split = threads_split,
    .twin = threads_twin,
    .abort = threads_abort,
    .free = threads_free_member,
};

static enum sotto_status threads_make_member(struct threads_group *g, int rank, struct comm **out)
{
    struct threads_member *m = calloc(1, sizeof *m);
    struct view *x = calloc((size_t)g->size, sizeof *x), *y = calloc((size_t)g->size, sizeof *y);
    if (!m || !x || !y) {
        free(m);
        free(x);
        free(y);
        leave_group(g);
        return fail(SOTTO_ENOMEM, "no memory for a communicator of %d ranks", g->size);
    }
    m->base = (struct comm){.ops = &threads_ops,
                            .rank = rank,
                            .size = g->size,
                            .node = g->node,
                            .layout = layout_of(g->node, g->size),
                            .clock = &clock_real};
    m->group = g;
    m->world_rank = g->world_rank[rank];
    m->x = x;
    m->y = y;
    *out = &m->base;
    return SOTTO_OK;
}

static enum sotto_status threads_twin(struct comm *c, struct comm **out)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    atomic_fetch_add(&g->users, 1);
    return threads_make_member(g, c->rank, out);
}

/* Splits: the lowest rank of each color makes the group for its color. */
static enum sotto_status threads_split(struct comm *c, int color, struct comm **out)
{
    struct threads_member *m = (struct threads_member *)c;
    struct threads_group *g = m->group;
    g->color[c->rank] = color;
    TRY(threads_meet(m));
    int lowest = -1, rank = 0, size = 0;
    int *worker = calloc((size_t)g->size, sizeof *worker);
    for (int r = 0; r < g->size; r++) {
        if (g->color[r] != color)
            continue;
        lowest = lowest < 0 ? r : lowest;
        rank += r < c->rank;
        if (worker)
            worker[size] = g->world_rank[r];
        size++;
    }
    if (lowest == c->rank)
        g->made[c->rank] = worker ? threads_make_group(g->run, size, worker) : NULL;
    free(worker);
    threads_meet_again(m);
    struct threads_group *mine = g->made[lowest];
    enum sotto_status st = mine ? threads_make_member(mine, rank, out)
                                : fail(SOTTO_ENOMEM, "no memory for %d ranks", size);
    threads_meet_again(m); /* color and made may be written again */
    return st;
}

enum sotto_status threads_check(int size)
{
    if (size <= THREADS_MOST)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%d workers are more than this process can run as threads, at most %d, on %d "
                "cores: use virtual time, which simulates any number of workers, or MPI, which "
                "spreads them over machines",
                size, THREADS_MOST, cores_allowed(""));
}

/* Makes the world of `config`, with its creator as the first user. */
static enum sotto_status make_world(const struct threads_config *config, struct threads_run **out)
{
    struct threads_run *w = *out = calloc(1, sizeof *w);
    if (!w)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", config->size);
    pthread_mutex_init(&w->lock, NULL);
    atomic_init(&w->users, 1);
    w->stall.patience = config->patience > 0 ? config->patience : STALL_PATIENCE;
    w->spins = cores_allowed("") >= config->size;
    w->node = calloc((size_t)config->size, sizeof *w->node);
    if (!w->node)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", config->size);
    if (config->node)
        memcpy(w->node, config->node, (size_t)config->size * sizeof *w->node);
    return config->links ? shaped_open(&w->shaped, config->links, w->node, config->size) : SOTTO_OK;
}

/* Makes the communicators of a world: all or none. */
static enum sotto_status make_members(struct threads_run *w, int size, struct comm **out)
{
    int *worker = calloc((size_t)size, sizeof *worker);
    for (int r = 0; r < size && worker; r++)
        worker[r] = r;
    struct threads_group *g = worker ? threads_make_group(w, size, worker) : NULL;
    free(worker);
    if (!g)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", size);
    enum sotto_status st = SOTTO_OK;
    for (int r = 0; r < size; r++) {
        if (st == SOTTO_OK)
            st = threads_make_member(g, r, &out[r]); /* leaves the group on failure */
        else
            leave_group(g);
    }
    for (int r = 0; r < size && st != SOTTO_OK; r++) {
        comm_free(out[r]);
        out[r] = NULL;
    }
    return st;
}

enum sotto_status threads_world(const struct threads_config *config, struct comm **out)
{
    TRY(threads_check(config->size));
    for (int r = 0; r < config->size; r++)
        out[r] = NULL;
    struct threads_run *w = NULL;
    enum sotto_status st = make_world(config, &w);
    if (st == SOTTO_OK)
        st = make_members(w, config->size, out);
    if (w)
        leave_world(w);
    return st;
}

enum sotto_status threads_aborted(struct comm *c)
{
    return threads_status(((struct threads_member *)c)->group->run);
}

#include "comm/threads/threads.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/threads/absent.h"
#include "comm/threads/shaped.h"
#include "comm/sum.h"

/* What all communicators of a run share: whether it is still alive. */
struct world {
    atomic_int users; /* groups, and who makes it */
    atomic_bool aborted;
    pthread_mutex_t lock;
    struct status_note note; /* why it was aborted */
    struct group *groups;    /* all that wait for each other, under lock */
    bool spins;              /* cores enough that a short wait may spin  */
    struct absence absence;
    int *node;             /* (workers) */
    struct shaped *shaped; /* modelled links; NULL: as fast as memory */
};

/* What a rank brings to a call. */
struct offer {
    enum comm_call call;
    struct view x, y;
    size_t count, unit;
    int root;
    double since; /* when it came */
};

struct message {
    struct message *next;
    size_t bytes, room;
    double sent; /* when it set out */
    struct shaped_message shaped;
    void *data;
};

/* From one rank to another. */
struct box {
    struct message *first, **last;
    struct message *idle; /* memory for the next messages */
};

struct group {
    struct world *world;
    struct group *next; /* of the world's */
    int size;
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    atomic_uint_least64_t came;    /* ranks, to all meetings: `size` more for each */
    atomic_int asleep;             /* ranks that wait for the last one to come     */
    atomic_uint_least64_t *visits; /* (size) each rank's, to meetings */
    int *world_rank;               /* (size) */
    struct offer *offer;           /* (size) */
    struct box *box;               /* (size, size): from, to */
    int *color;                    /* (size): of the split under way */
    struct group **made;           /* (size): by the lowest rank of each color */
    int *node;                     /* (size) */
    struct way way;                /* with modelled links */
    struct shaped_trip trip;
};

struct member {
    struct comm base;
    struct group *group;
    int world_rank;
    uint64_t trips;     /* that this rank has been on */
    struct view *x, *y; /* (size) scratch of this rank */
};

static enum sotto_status aborted(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    enum sotto_status st = status_raise(&w->note);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static double now(void)
{
    return clock_now(&clock_real);
}

/* Until something moves in the group, whose lock is held; false: nothing has at that time. */
static bool sleep_in_group(struct group *g, double until)
{
    const struct timespec t = {(time_t)until, (long)((until - floor(until)) * 1e9)};
    return pthread_cond_timedwait(&g->moved, &g->lock, &t) != ETIMEDOUT;
}

/* Those who have not come to the meeting that this rank waits in. */
static void name_absent(struct member *m, double waited)
{
    struct group *g = m->group;
    const uint64_t mine = atomic_load(&g->visits[m->base.rank]);
    struct absent who = {0};
    for (int r = 0; r < g->size; r++)
        if (atomic_load(&g->visits[r]) < mine)
            absent_add(&who, g->world_rank[r]);
    absence_tell(&g->world->absence, &who, waited);
}

/* Waits until all ranks of the group have come; false if the run was aborted first, and `heed`. Who
 * gives up takes back that it came, so nobody believes to have met it and reads its memory. */
static bool gathered(struct member *m, bool heed)
{
    enum { SPINS = 4000 };
    struct group *g = m->group;
    atomic_fetch_add(&g->visits[m->base.rank], 1);
    uint64_t size = (uint64_t)g->size, before = atomic_fetch_add(&g->came, 1);
    uint64_t all = (before / size + 1) * size; /* when this meeting is held */
    if (before + 1 == all) {
        if (atomic_load(&g->asleep)) {
            pthread_mutex_lock(&g->lock);
            pthread_cond_broadcast(&g->moved);
            pthread_mutex_unlock(&g->lock);
        }
        return true;
    }
    for (int i = 0; g->world->spins && i < SPINS; i++)
        if (atomic_load(&g->came) >= all)
            return true;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->asleep, 1); /* before a last look: the last to come looks after it came */
    const double begin = now();
    while (atomic_load(&g->came) < all && !(heed && atomic_load(&g->world->aborted)))
        if (!sleep_in_group(g, begin + absence_limit(&g->world->absence)))
            name_absent(m, now() - begin);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&g->lock);
    uint64_t came = atomic_load(&g->came);
    while (came < all)
        if (atomic_compare_exchange_weak(&g->came, &came, came - 1))
            return false;
    return true;
}

/* The beginning of a call, which an aborted run never reaches; and its end, to which all come who
 * began it. */
static enum sotto_status meet(struct member *m)
{
    return gathered(m, true) ? SOTTO_OK : aborted(m->group->world);
}

static void meet_again(struct member *m)
{
    gathered(m, false);
}

/* Publishes what this rank brings and waits for the others; then whether all brought the same. */
static enum sotto_status open_call(struct member *m, struct offer mine)
{
    struct group *g = m->group;
    mine.since = now();
    g->offer[m->base.rank] = mine;
    TRY(meet(m));
    for (int r = 0; r < g->size; r++) {
        const struct offer *o = &g->offer[r];
        m->x[r] = o->x;
        m->y[r] = o->y;
        if (o->call != mine.call || o->count != mine.count || o->unit != mine.unit ||
            o->root != mine.root)
            return fail(
                SOTTO_EPEER,
                "workers call different things: rank %d %s of %zu elements of %zu bytes, rank %d "
                "%s of %zu elements of %zu bytes",
                m->base.rank, comm_call_name(mine.call), mine.count, mine.unit, r,
                comm_call_name(o->call), o->count, o->unit);
    }
    return SOTTO_OK;
}

/* Waits until nobody reads this rank's memory any more and, with links, until a call of `bytes` in
 * all has crossed them, from when the last one came. */
static enum sotto_status close_call(struct member *m, size_t bytes)
{
    struct group *g = m->group;
    const struct offer *mine = &g->offer[m->base.rank];
    const struct way_call call = {.call = mine->call,
                                  .bytes = (double)bytes,
                                  .bf16 = mine->unit == dtype_size(DTYPE_BF16),
                                  .root = mine->root};
    double last = 0;
    for (int r = 0; r < g->size; r++)
        last = g->offer[r].since > last ? g->offer[r].since : last;
    m->base.wait.to = last;
    meet_again(m);
    if (!g->world->shaped)
        return SOTTO_OK;
    return shaped_travel(g->world->shaped, &g->trip, &g->way, call, ++m->trips, last);
}

static enum sotto_status allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    struct member *m = (struct member *)c;
    size_t unit = dtype_size(x.type);
    TRY(open_call(
        m, (struct offer){.call = COMM_ALLREDUCE, .x = x, .y = y, .count = count, .unit = unit}));
    struct comm_block b = comm_block(count, c->size, c->rank);
    sum_block(m->y, c->size, m->x, c->layout, c->rank, b.begin, b.end);
    return close_call(m, count * unit);
}

static enum sotto_status reduce_scatter(struct comm *c, struct view y, struct view x, size_t count)
{
    struct member *m = (struct member *)c;
    size_t unit = dtype_size(x.type);
    TRY(open_call(
        m,
        (struct offer){.call = COMM_REDUCE_SCATTER, .x = x, .y = y, .count = count, .unit = unit}));
    struct comm_block b = comm_block(count, c->size, c->rank);
    struct view out = {(char *)y.data - b.begin * unit, y.type}; /* as if y were the whole vector */
    sum_block(&out, 1, m->x, c->layout, c->rank, b.begin, b.end);
    return close_call(m, count * unit);
}

static enum sotto_status allgather(struct comm *c, void *y, const void *x, size_t count,
                                   size_t unit)
{
    struct member *m = (struct member *)c;
    TRY(open_call(
        m,
        (struct offer){.call = COMM_ALLGATHER, .x.data = (void *)x, .count = count, .unit = unit}));
    for (int i = 0; i < c->size; i++) {
        int r = (c->rank + i) % c->size; /* not all from the same one at once */
        struct comm_block b = comm_block(count, c->size, r);
        char *to = (char *)y + b.begin * unit;
        if (b.end > b.begin && to != m->x[r].data)
            memmove(to, m->x[r].data, (b.end - b.begin) * unit);
    }
    return close_call(m, count * unit);
}

static enum sotto_status broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    struct member *m = (struct member *)c;
    TRY(open_call(
        m, (struct offer){
               .call = COMM_BROADCAST, .x.data = data, .count = bytes, .unit = 1, .root = root}));
    if (c->rank != root && bytes)
        memcpy(data, m->x[root].data, bytes);
    return close_call(m, bytes);
}

static enum sotto_status barrier(struct comm *c)
{
    struct member *m = (struct member *)c;
    TRY(open_call(m, (struct offer){.call = COMM_BARRIER}));
    return close_call(m, 0);
}

static enum sotto_status send_message(struct comm *c, const void *data, size_t bytes, int to)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    struct box *box = &g->box[c->rank * g->size + to];
    pthread_mutex_lock(&g->lock);
    struct message *message = box->idle;
    if (message)
        box->idle = message->next;
    pthread_mutex_unlock(&g->lock);
    if (!message && !(message = calloc(1, sizeof *message)))
        return fail(SOTTO_ENOMEM, "no memory for a message");
    if (message->room < bytes) {
        free(message->data);
        message->data = malloc(bytes);
        message->room = message->data ? bytes : 0;
    }
    if (message->room < bytes) {
        free(message);
        return fail(SOTTO_ENOMEM, "no memory for a message of %zu bytes", bytes);
    }
    if (bytes)
        memcpy(message->data, data, bytes);
    message->bytes = bytes;
    message->next = NULL;
    message->sent = now();
    struct shaped *shaped = g->world->shaped;
    enum sotto_status st = SOTTO_OK;
    if (shaped)
        st = shaped_send(shaped, &message->shaped, m->world_rank, g->world_rank[to], (double)bytes,
                         message->sent);
    if (st != SOTTO_OK) {
        free(message->data);
        free(message);
        return st;
    }
    pthread_mutex_lock(&g->lock);
    *box->last = message;
    box->last = &message->next;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    if (shaped)
        shaped_wait_left(shaped, &message->shaped);
    return atomic_load(&g->world->aborted) ? aborted(g->world) : SOTTO_OK;
}

static enum sotto_status recv_message(struct comm *c, void *data, size_t room, int from,
                                      size_t *came)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    struct box *box = &g->box[from * g->size + c->rank];
    c->wait.from = now();
    pthread_mutex_lock(&g->lock);
    while (!box->first && !atomic_load(&g->world->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    struct message *message = box->first;
    if (message && !(box->first = message->next))
        box->last = &box->first;
    pthread_mutex_unlock(&g->lock);
    if (!message)
        return aborted(g->world);
    *came = message->bytes;
    c->wait.to = message->sent;
    if (*came && *came <= room)
        memcpy(data, message->data, *came);
    if (g->world->shaped)
        shaped_wait_come(g->world->shaped, &message->shaped);
    pthread_mutex_lock(&g->lock);
    message->next = box->idle;
    box->idle = message;
    pthread_mutex_unlock(&g->lock);
    return SOTTO_OK;
}

static void leave_world(struct world *w)
{
    if (atomic_fetch_sub(&w->users, 1) == 1) {
        pthread_mutex_destroy(&w->lock);
        shaped_close(w->shaped);
        free(w->node);
        free(w);
    }
}

static void free_group(struct group *g)
{
    struct world *w = g->world;
    pthread_mutex_lock(&w->lock);
    struct group **at = &w->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; g->box && i < g->size * g->size; i++) {
        struct message *lists[] = {g->box[i].first, g->box[i].idle};
        for (int k = 0; k < 2; k++) {
            while (lists[k]) {
                struct message *next = lists[k]->next;
                free(lists[k]->data);
                free(lists[k]);
                lists[k] = next;
            }
        }
    }
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    way_close(&g->way);
    free(g->offer);
    free(g->box);
    free(g->color);
    free(g->made);
    free(g->node);
    free(g->visits);
    free(g->world_rank);
    free(g);
    leave_world(w);
}

/* A group of `size` ranks, the i-th of them worker[i] of the world; NULL without memory. */
static struct group *make_group(struct world *w, int size, const int *worker)
{
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    size_t n = (size_t)size;
    g->world = w;
    g->size = size;
    atomic_init(&g->users, size);
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_t monotonic; /* as clock_real is */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    g->offer = calloc(n, sizeof *g->offer);
    g->box = calloc(n * n, sizeof *g->box);
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
    if (!g->offer || !g->box || !g->color || !g->made || !g->node || !g->visits || !g->world_rank) {
        free_group(g);
        return NULL;
    }
    for (int i = 0; i < size; i++) {
        g->world_rank[i] = worker[i];
        g->node[i] = w->node[worker[i]];
    }
    if (w->shaped)
        way_open(&g->way, shaped_network(w->shaped), g->world_rank, g->node, size);
    for (size_t i = 0; i < n * n; i++)
        g->box[i].last = &g->box[i].first;
    return g;
}

static void leave_group(struct group *g)
{
    if (atomic_fetch_sub(&g->users, 1) == 1)
        free_group(g);
}

static void free_member(struct comm *c)
{
    struct member *m = (struct member *)c;
    leave_group(m->group);
    free(m->x);
    free(m->y);
    free(m);
}

/* Wakes everybody who waits anywhere in the world. The first note counts. */
static void abort_world(struct comm *c, const struct status_note *note)
{
    const struct member *m = (const struct member *)c;
    struct world *w = m->group->world;
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->aborted)) {
        w->note.code = note->code;
        snprintf(w->note.text, sizeof w->note.text, "worker %d: %.*s", m->world_rank,
                 STATUS_ROOM - 32, note->text);
        atomic_store(&w->aborted, true);
        for (struct group *g = w->groups; g; g = g->next) {
            pthread_mutex_lock(&g->lock);
            pthread_cond_broadcast(&g->moved);
            pthread_mutex_unlock(&g->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

static enum sotto_status split(struct comm *c, int color, struct comm **out);

static const struct comm_ops threads_ops = {
    .name = "threads",
    .send = send_message,
    .recv = recv_message,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .broadcast = broadcast,
    .barrier = barrier,
    .split = split,
    .abort = abort_world,
    .free = free_member,
};

static enum sotto_status make_member(struct group *g, int rank, struct comm **out)
{
    struct member *m = calloc(1, sizeof *m);
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

/* The lowest rank of each color makes the group for all of them. */
static enum sotto_status split(struct comm *c, int color, struct comm **out)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    g->color[c->rank] = color;
    TRY(meet(m));
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
        g->made[c->rank] = worker ? make_group(g->world, size, worker) : NULL;
    free(worker);
    meet_again(m);
    struct group *mine = g->made[lowest];
    enum sotto_status st =
        mine ? make_member(mine, rank, out) : fail(SOTTO_ENOMEM, "no memory for %d ranks", size);
    meet_again(m); /* color and made may be written again */
    return st;
}

enum sotto_status threads_check(int size)
{
    if (size <= THREADS_MOST)
        return SOTTO_OK;
    return fail(SOTTO_EINVAL,
                "%d workers are more than this process can run as threads, at most %d, on %ld "
                "cores: virtual time simulates as many as you like, MPI spreads them over machines",
                size, THREADS_MOST, sysconf(_SC_NPROCESSORS_ONLN));
}

/* The world of `config`, used by who makes it. */
static enum sotto_status make_world(const struct threads_config *config, struct world **out)
{
    struct world *w = *out = calloc(1, sizeof *w);
    if (!w)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", config->size);
    pthread_mutex_init(&w->lock, NULL);
    atomic_init(&w->users, 1);
    w->absence.patience = config->patience > 0 ? config->patience : ABSENCE_PATIENCE;
    w->spins = sysconf(_SC_NPROCESSORS_ONLN) >= config->size;
    w->node = calloc((size_t)config->size, sizeof *w->node);
    if (!w->node)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", config->size);
    if (config->node)
        memcpy(w->node, config->node, (size_t)config->size * sizeof *w->node);
    return config->links ? shaped_open(&w->shaped, config->links, w->node, config->size) : SOTTO_OK;
}

/* Its communicators: all or none. */
static enum sotto_status make_members(struct world *w, int size, struct comm **out)
{
    int *worker = calloc((size_t)size, sizeof *worker);
    for (int r = 0; r < size && worker; r++)
        worker[r] = r;
    struct group *g = worker ? make_group(w, size, worker) : NULL;
    free(worker);
    if (!g)
        return fail(SOTTO_ENOMEM, "no memory for %d workers", size);
    enum sotto_status st = SOTTO_OK;
    for (int r = 0; r < size; r++) {
        if (st == SOTTO_OK)
            st = make_member(g, r, &out[r]); /* leaves the group when it fails */
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
    struct world *w = NULL;
    enum sotto_status st = make_world(config, &w);
    if (st == SOTTO_OK)
        st = make_members(w, config->size, out);
    if (w)
        leave_world(w);
    return st;
}

enum sotto_status threads_aborted(struct comm *c)
{
    return aborted(((struct member *)c)->group->world);
}

/* Messages. A short one is copied into memory that the next one of the pair uses again, and its
 * sender goes on. A long one would take the memory of what is sent, as often as some are under way:
 * it is copied by its receiver, from where it lies, and its sender waits for that, as MPI's does.
 * With modelled links a sender waits as long as these say, so all are copied. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/threads/threads_impl.h"

enum { LONG = 1 << 16 }; /* bytes */

/* The smallest that has room, or else the largest; NULL: there is none. The lock is held. */
static struct message *take_idle(struct group *g, size_t bytes)
{
    struct message **best = &g->idle, *message = g->idle;
    for (struct message **at = best; *at; at = &(*at)->next) {
        const size_t room = (*at)->room, so_far = (*best)->room;
        if (so_far < bytes ? room > so_far : room >= bytes && room < so_far)
            best = at;
    }
    if (message) {
        message = *best;
        *best = message->next;
    }
    return message;
}

/* The sender or the receiver needs it no more; the lock is held. */
static void let_go(struct group *g, struct message *message)
{
    if (--message->users > 0)
        return;
    message->next = g->idle;
    g->idle = message;
}

/* Memory for a message with a copy of the data. */
static enum sotto_status make_message(struct group *g, const void *data, size_t bytes,
                                      struct message **out)
{
    pthread_mutex_lock(&g->lock);
    struct message *message = take_idle(g, bytes);
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
    message->listed = message->taken = message->lent = false;
    *out = message;
    return SOTTO_OK;
}

/* The last byte has left: into the inbox, most often at its end; the lock is held. */
static void list(struct group *g, struct message *message, int to, double ready)
{
    struct inbox *inbox = &g->inbox[to];
    struct message *before = inbox->last;
    while (before &&
           (before->ready > ready || (before->ready == ready && before->from > message->from)))
        before = before->before;
    message->ready = ready;
    message->before = before;
    message->after = before ? before->after : inbox->first;
    *(before ? &before->after : &inbox->first) = message;
    *(message->after ? &message->after->before : &inbox->last) = message;
    message->listed = true;
}

static struct box *box_to(struct comm *c, int to)
{
    struct group *g = ((struct member *)c)->group;
    return &g->box[c->rank * g->size + to];
}

/* Behind the others of its box; the lock is held. */
static void post(struct box *box, struct message *message)
{
    *box->last = message;
    box->last = &message->next;
}

/* A copy, which leaves as the links let it. */
static enum sotto_status send_copy(struct comm *c, const void *data, size_t bytes, int to)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    struct box *box = box_to(c, to);
    struct message *message = NULL;
    TRY(make_message(g, data, bytes, &message));
    message->from = c->rank;
    message->sent = clock_now(&clock_real);
    struct shaped *shaped = g->world->shaped;
    message->users = shaped ? 2 : 1;
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
    post(box, message);
    if (!shaped)
        list(g, message, to, message->sent);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    if (shaped) {
        const double ready = shaped_wait_left(shaped, &message->shaped);
        pthread_mutex_lock(&g->lock);
        if (!message->taken)
            list(g, message, to, ready);
        let_go(g, message);
        pthread_cond_broadcast(&g->moved);
        pthread_mutex_unlock(&g->lock);
    }
    return atomic_load(&g->world->aborted) ? threads_status(g->world) : SOTTO_OK;
}

static bool lends(const struct comm *c, size_t bytes)
{
    return bytes >= LONG && !((const struct member *)c)->group->world->shaped;
}

/* Shows the data themselves to their receiver, until take_back. */
static void lend(struct comm *c, struct message *message, const void *data, size_t bytes, int to)
{
    struct group *g = ((struct member *)c)->group;
    *message = (struct message){.from = c->rank,
                                .lent = true,
                                .bytes = bytes,
                                .data = (void *)data, /* which nobody writes to */
                                .sent = clock_now(&clock_real)};
    message->since = message->sent;
    pthread_mutex_lock(&g->lock);
    post(box_to(c, to), message);
    list(g, message, to, message->sent);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

/* Out of its box, and of the inbox of the rank `to`; the lock is held. */
static void take_out(struct group *g, struct box *box, const struct message *message, int to)
{
    struct inbox *inbox = &g->inbox[to];
    struct message **at = &box->first;
    while (*at != message)
        at = &(*at)->next;
    if (!(*at = message->next))
        box->last = at;
    if (message->listed) {
        *(message->before ? &message->before->after : &inbox->first) = message->after;
        *(message->after ? &message->after->before : &inbox->last) = message->before;
    }
}

/* Waits until the data of a message that was lent are copied, or nobody will: a receiver that has
 * ended, or `gives_up`. */
static enum sotto_status take_back(struct comm *c, struct message *message, int to, bool gives_up)
{
    struct group *g = ((struct member *)c)->group;
    pthread_mutex_lock(&g->lock);
    while (!message->taken && !gives_up && !g->ended[to] && !atomic_load(&g->world->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    if (!message->taken)
        take_out(g, box_to(c, to), message, to);
    while (message->taken && !message->copied)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    c->wait = (struct comm_wait){message->sent, message->since};
    return atomic_load(&g->world->aborted) ? threads_status(g->world) : SOTTO_OK;
}

enum sotto_status threads_post(struct comm *c, const void *data, size_t bytes, int to)
{
    return send_copy(c, data, bytes, to);
}

enum sotto_status threads_send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct message message;
    if (!lends(c, bytes))
        return send_copy(c, data, bytes, to);
    lend(c, &message, data, bytes, to);
    return take_back(c, &message, to, false);
}

/* The box's first message, for the rank `to`; the lock is held. */
static struct message *take(struct group *g, struct box *box, int to)
{
    struct message *message = box->first;
    take_out(g, box, message, to);
    message->taken = true;
    return message;
}

/* ... which is received when it has come. */
static void receive(struct comm *c, struct message *message, void *data, size_t room, size_t *came)
{
    struct group *g = ((struct member *)c)->group;
    *came = message->bytes;
    c->wait.to = message->sent;
    if (*came && *came <= room)
        memcpy(data, message->data, *came);
    if (g->world->shaped)
        shaped_wait_come(g->world->shaped, &message->shaped);
    pthread_mutex_lock(&g->lock);
    if (message->lent) {
        message->since = c->wait.from;
        message->copied = true;
        pthread_cond_broadcast(&g->moved);
    } else {
        let_go(g, message);
    }
    pthread_mutex_unlock(&g->lock);
}

enum sotto_status threads_recv(struct comm *c, void *data, size_t room, int from, size_t *came)
{
    struct group *g = ((struct member *)c)->group;
    struct box *box = &g->box[from * g->size + c->rank];
    c->wait.from = clock_now(&clock_real);
    pthread_mutex_lock(&g->lock);
    while (!box->first && !g->ended[from] && !atomic_load(&g->world->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    struct message *message = box->first ? take(g, box, c->rank) : NULL;
    pthread_mutex_unlock(&g->lock);
    if (message) {
        receive(c, message, data, room, came);
        return SOTTO_OK;
    }
    TRY(threads_status(g->world));
    return fail(SOTTO_EPEER, "rank %d waits for a message from rank %d, which has ended", c->rank,
                from);
}

/* All may send before they receive. */
enum sotto_status threads_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                                   size_t room, int from, size_t *came)
{
    struct message message;
    if (!lends(c, bytes)) {
        TRY(send_copy(c, out, bytes, to));
        return threads_recv(c, in, room, from, came);
    }
    lend(c, &message, out, bytes, to);
    const enum sotto_status st = threads_recv(c, in, room, from, came);
    const struct comm_wait wait = c->wait; /* mostly both are */
    struct status_note note;
    status_save(&note, st);
    const enum sotto_status sent = take_back(c, &message, to, st != SOTTO_OK);
    c->wait = wait;
    return st == SOTTO_OK ? sent : status_raise(&note);
}

static struct message *first_among(const struct inbox *inbox, const bool *among)
{
    struct message *message = inbox->first;
    while (message && among && !among[message->from])
        message = message->after;
    return message;
}

static bool all_ended(const struct group *g, const struct comm *c, const bool *among)
{
    for (int r = 0; r < g->size; r++)
        if ((r != c->rank || c->twinned) && !g->ended[r] && (!among || among[r]))
            return false;
    return true;
}

enum sotto_status threads_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                   double until, int *from, size_t *came)
{
    struct group *g = ((struct member *)c)->group;
    struct message *message = NULL;
    double now = c->wait.from = clock_now(&clock_real);
    const double limit = fmax(until, now);
    bool ended = false;
    pthread_mutex_lock(&g->lock);
    for (; !atomic_load(&g->world->aborted); now = clock_now(&clock_real)) {
        const struct message *first = first_among(&g->inbox[c->rank], among);
        if (first && first->ready <= fmin(now, limit)) {
            *from = first->from;
            message = take(g, &g->box[*from * g->size + c->rank], c->rank);
            break;
        }
        ended = !first && all_ended(g, c, among);
        if (ended || now >= limit)
            break;
        threads_sleep(g, first ? fmin(first->ready, limit) : limit);
    }
    pthread_mutex_unlock(&g->lock);
    c->wait.to = now;
    if (message) {
        receive(c, message, data, room, came);
        return SOTTO_OK;
    }
    TRY(threads_status(g->world));
    return ended ? comm_all_ended(c) : SOTTO_OK;
}

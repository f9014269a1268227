/* Messages between threads. A short message is copied into memory that later messages use again,
 * and the sender continues. For a long message, such copies would take the memory of every message
 * in flight: the receiver copies the data from the sender's memory, and the sender waits for the
 * copy, as in MPI. With modelled links, which decide how long a sender waits, all messages are
 * copied. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/threads/threads_impl.h"

enum { LONG = 1 << 16 }; /* bytes from which a message is long */

/* Takes the smallest idle message with room for `bytes` bytes, or else the largest; NULL: none. The
 * lock is held. */
static struct threads_message *take_idle_message(struct threads_group *g, size_t bytes)
{
    struct threads_message **best = &g->idle, *message = g->idle;
    for (struct threads_message **at = best; *at; at = &(*at)->next) {
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

/* Drops a reference to a message; the last makes the memory idle. The lock is held. */
static void release_message(struct threads_group *g, struct threads_message *message)
{
    if (--message->users > 0)
        return;
    message->next = g->idle;
    g->idle = message;
}

/* Makes a message with a copy of the data. */
static enum sotto_status make_message(struct threads_group *g, const void *data, size_t bytes,
                                      struct threads_message **out)
{
    pthread_mutex_lock(&g->lock);
    struct threads_message *message = take_idle_message(g, bytes);
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

/* Puts a message whose last byte has left into the inbox of `to`, most often at the end. The lock
 * is held. */
static void list_arrival(struct threads_group *g, struct threads_message *message, int to,
                         double ready)
{
    struct threads_inbox *inbox = &g->inbox[to];
    struct threads_message *before = inbox->last;
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

static struct threads_box *box_to(struct comm *c, int to)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    return &g->box[c->rank * g->size + to];
}

/* Appends a message to its box. The lock is held. */
static void append_message(struct threads_box *box, struct threads_message *message)
{
    *box->last = message;
    box->last = &message->next;
}

/* Sends a copy; with modelled links, waits until its last byte has left. */
static enum sotto_status send_copy(struct comm *c, const void *data, size_t bytes, int to)
{
    struct threads_member *m = (struct threads_member *)c;
    struct threads_group *g = m->group;
    struct threads_box *box = box_to(c, to);
    struct threads_message *message = NULL;
    TRY(make_message(g, data, bytes, &message));
    message->from = c->rank;
    message->sent = clock_now(&clock_real);
    struct shaped *shaped = g->run->shaped;
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
    append_message(box, message);
    if (!shaped)
        list_arrival(g, message, to, message->sent);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    if (shaped) {
        const double ready = shaped_wait_left(shaped, &message->shaped);
        pthread_mutex_lock(&g->lock);
        if (!message->taken)
            list_arrival(g, message, to, ready);
        release_message(g, message);
        pthread_cond_broadcast(&g->moved);
        pthread_mutex_unlock(&g->lock);
    }
    return atomic_load(&g->run->aborted) ? threads_status(g->run) : SOTTO_OK;
}

static bool must_lend(const struct comm *c, size_t bytes)
{
    return bytes >= LONG && !((const struct threads_member *)c)->group->run->shaped;
}

/* Shows the sender's own data to the receiver, until await_copied. */
static void lend_message(struct comm *c, struct threads_message *message, const void *data,
                         size_t bytes, int to)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    *message = (struct threads_message){.from = c->rank,
                                        .lent = true,
                                        .bytes = bytes,
                                        .data = (void *)data, /* never written to */
                                        .sent = clock_now(&clock_real)};
    message->since = message->sent;
    pthread_mutex_lock(&g->lock);
    append_message(box_to(c, to), message);
    list_arrival(g, message, to, message->sent);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

/* Removes a message from its box and from the inbox of `to`. The lock is held. */
static void remove_message(struct threads_group *g, struct threads_box *box,
                           const struct threads_message *message, int to)
{
    struct threads_inbox *inbox = &g->inbox[to];
    struct threads_message **at = &box->first;
    while (*at != message)
        at = &(*at)->next;
    if (!(*at = message->next))
        box->last = at;
    if (message->listed) {
        *(message->before ? &message->before->after : &inbox->first) = message->after;
        *(message->after ? &message->after->before : &inbox->last) = message->before;
    }
}

/* Waits until the receiver has copied the data of a lent message, or never will: the receiver has
 * ended or, with `gives_up`, the sender has failed. */
static enum sotto_status await_copied(struct comm *c, struct threads_message *message, int to,
                                      bool gives_up)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    pthread_mutex_lock(&g->lock);
    while (!message->taken && !gives_up && !g->ended[to] && !atomic_load(&g->run->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    if (!message->taken)
        remove_message(g, box_to(c, to), message, to);
    while (message->taken && !message->copied)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    c->wait = (struct comm_wait){message->sent, message->since};
    return atomic_load(&g->run->aborted) ? threads_status(g->run) : SOTTO_OK;
}

enum sotto_status threads_post(struct comm *c, const void *data, size_t bytes, int to)
{
    return send_copy(c, data, bytes, to);
}

enum sotto_status threads_send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct threads_message message;
    if (!must_lend(c, bytes))
        return send_copy(c, data, bytes, to);
    lend_message(c, &message, data, bytes, to);
    return await_copied(c, &message, to, false);
}

/* Takes the first message of a box, for rank `to`. The lock is held. */
static struct threads_message *take_first(struct threads_group *g, struct threads_box *box, int to)
{
    struct threads_message *message = box->first;
    remove_message(g, box, message, to);
    message->taken = true;
    return message;
}

/* Receives a taken message, after its arrival. */
static void receive_message(struct comm *c, struct threads_message *message, void *data,
                            size_t room, size_t *received)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    *received = message->bytes;
    c->wait.to = message->sent;
    if (*received && *received <= room)
        memcpy(data, message->data, *received);
    if (g->run->shaped)
        shaped_wait_arrived(g->run->shaped, &message->shaped);
    pthread_mutex_lock(&g->lock);
    if (message->lent) {
        message->since = c->wait.from;
        message->copied = true;
        pthread_cond_broadcast(&g->moved);
    } else {
        release_message(g, message);
    }
    pthread_mutex_unlock(&g->lock);
}

enum sotto_status threads_recv(struct comm *c, void *data, size_t room, int from, size_t *received)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    struct threads_box *box = &g->box[from * g->size + c->rank];
    c->wait.from = clock_now(&clock_real);
    pthread_mutex_lock(&g->lock);
    while (!box->first && !g->ended[from] && !atomic_load(&g->run->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    struct threads_message *message = box->first ? take_first(g, box, c->rank) : NULL;
    pthread_mutex_unlock(&g->lock);
    if (message) {
        receive_message(c, message, data, room, received);
        return SOTTO_OK;
    }
    TRY(threads_status(g->run));
    return fail(SOTTO_EPEER, "rank %d waits for a message from rank %d, which has ended", c->rank,
                from);
}

/* Sends and receives; all ranks may send first. */
enum sotto_status threads_exchange(struct comm *c, const void *out, size_t bytes, int to, void *in,
                                   size_t room, int from, size_t *received)
{
    struct threads_message message;
    if (!must_lend(c, bytes)) {
        TRY(send_copy(c, out, bytes, to));
        return threads_recv(c, in, room, from, received);
    }
    lend_message(c, &message, out, bytes, to);
    const enum sotto_status st = threads_recv(c, in, room, from, received);
    const struct comm_wait wait = c->wait; /* the waits mostly coincide */
    struct status_note note;
    status_save(&note, st);
    const enum sotto_status sent = await_copied(c, &message, to, st != SOTTO_OK);
    c->wait = wait;
    return st == SOTTO_OK ? sent : status_raise(&note);
}

static struct threads_message *threads_first_among(const struct threads_inbox *inbox,
                                                   const bool *among)
{
    struct threads_message *message = inbox->first;
    while (message && among && !among[message->from])
        message = message->after;
    return message;
}

static bool threads_all_ended(const struct threads_group *g, const struct comm *c,
                              const bool *among)
{
    for (int r = 0; r < g->size; r++)
        if ((r != c->rank || c->twinned) && !g->ended[r] && (!among || among[r]))
            return false;
    return true;
}

enum sotto_status threads_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                   double until, int *from, size_t *received)
{
    struct threads_group *g = ((struct threads_member *)c)->group;
    struct threads_message *message = NULL;
    double now = c->wait.from = clock_now(&clock_real);
    const double limit = fmax(until, now);
    bool ended = false;
    pthread_mutex_lock(&g->lock);
    for (; !atomic_load(&g->run->aborted); now = clock_now(&clock_real)) {
        const struct threads_message *first = threads_first_among(&g->inbox[c->rank], among);
        if (first && first->ready <= fmin(now, limit)) {
            *from = first->from;
            message = take_first(g, &g->box[*from * g->size + c->rank], c->rank);
            break;
        }
        ended = !first && threads_all_ended(g, c, among);
        if (ended || now >= limit)
            break;
        threads_sleep(g, first ? fmin(first->ready, limit) : limit);
    }
    pthread_mutex_unlock(&g->lock);
    c->wait.to = now;
    if (message) {
        receive_message(c, message, data, room, received);
        return SOTTO_OK;
    }
    TRY(threads_status(g->run));
    return ended ? comm_all_ended(c) : SOTTO_OK;
}

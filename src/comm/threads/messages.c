/* Messages: copied once, into memory that the next one of the pair uses again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/threads/state.h"

/* Memory for a message with a copy of the data. */
static enum sotto_status make_message(struct group *g, struct box *box, const void *data,
                                      size_t bytes, struct message **out)
{
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
    message->listed = message->taken = false;
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

enum sotto_status threads_send(struct comm *c, const void *data, size_t bytes, int to)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    struct box *box = &g->box[c->rank * g->size + to];
    struct message *message = NULL;
    TRY(make_message(g, box, data, bytes, &message));
    message->from = c->rank;
    message->sent = clock_now(&clock_real);
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
    if (!shaped)
        list(g, message, to, message->sent);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    if (shaped) { /* whoever has taken it gave it back to this sender */
        const double ready = shaped_wait_left(shaped, &message->shaped);
        pthread_mutex_lock(&g->lock);
        if (!message->taken)
            list(g, message, to, ready);
        pthread_cond_broadcast(&g->moved);
        pthread_mutex_unlock(&g->lock);
    }
    return atomic_load(&g->world->aborted) ? threads_status(g->world) : SOTTO_OK;
}

/* The box's first message, for the rank `to`; the lock is held. */
static struct message *take(struct group *g, struct box *box, int to)
{
    struct message *message = box->first;
    struct inbox *inbox = &g->inbox[to];
    if (!(box->first = message->next))
        box->last = &box->first;
    message->taken = true;
    if (message->listed) {
        *(message->before ? &message->before->after : &inbox->first) = message->after;
        *(message->after ? &message->after->before : &inbox->last) = message->before;
    }
    return message;
}

/* ... which is received when it has come. */
static void receive(struct comm *c, struct box *box, struct message *message, void *data,
                    size_t room, size_t *came)
{
    struct group *g = ((struct member *)c)->group;
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
        receive(c, box, message, data, room, came);
        return SOTTO_OK;
    }
    TRY(threads_status(g->world));
    return fail(SOTTO_EPEER, "rank %d waits for a message from rank %d, which has ended", c->rank,
                from);
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
        receive(c, &g->box[*from * g->size + c->rank], message, data, room, came);
        return SOTTO_OK;
    }
    TRY(threads_status(g->world));
    return ended ? comm_all_ended(c) : SOTTO_OK;
}

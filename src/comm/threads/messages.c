/* Messages: copied once, into memory that the next one of the pair uses again. */
#include <stdlib.h>
#include <string.h>

#include "comm/threads/state.h"

enum sotto_status threads_send(struct comm *c, const void *data, size_t bytes, int to)
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
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    if (shaped)
        shaped_wait_left(shaped, &message->shaped);
    return atomic_load(&g->world->aborted) ? threads_status(g->world) : SOTTO_OK;
}

enum sotto_status threads_recv(struct comm *c, void *data, size_t room, int from, size_t *came)
{
    struct member *m = (struct member *)c;
    struct group *g = m->group;
    struct box *box = &g->box[from * g->size + c->rank];
    c->wait.from = clock_now(&clock_real);
    pthread_mutex_lock(&g->lock);
    while (!box->first && !atomic_load(&g->world->aborted))
        pthread_cond_wait(&g->moved, &g->lock);
    struct message *message = box->first;
    if (message && !(box->first = message->next))
        box->last = &box->first;
    pthread_mutex_unlock(&g->lock);
    if (!message)
        return threads_status(g->world);
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

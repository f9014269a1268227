/* Letters in memory: the part of the backend that another transport replaces. */
#include "comm/mail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void office_open(struct office *o)
{
    pthread_condattr_t monotonic; /* as clock_real */
    *o = (struct office){.last = &o->first};
    pthread_mutex_init(&o->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&o->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void office_close(struct office *o)
{
    for (struct letter *l = o->first, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    pthread_cond_destroy(&o->moved);
    pthread_mutex_destroy(&o->lock);
}

uint64_t office_number(struct office *o, int n)
{
    pthread_mutex_lock(&o->lock);
    const uint64_t first = o->boxes;
    o->boxes += (uint64_t)n;
    pthread_mutex_unlock(&o->lock);
    return first;
}

enum sotto_status office_put(struct office *o, struct letter head, const void *data)
{
    struct letter *l = malloc(sizeof *l + head.bytes);
    if (!l)
        return fail(SOTTO_ENOMEM, "no memory for a message of %zu bytes", head.bytes);
    *l = head;
    if (head.bytes)
        memcpy(l->data, data, head.bytes);
    pthread_mutex_lock(&o->lock);
    *o->last = l;
    o->last = &l->next;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
    return SOTTO_OK;
}

/* Returns the place of the letter, NULL if the letter has not come. */
static struct letter **find_letter(struct office *o, const struct letter *head, const bool *among,
                                   bool *ended)
{
    bool expected[MAIL_MOST];
    memcpy(expected, among, sizeof expected);
    for (struct letter **at = &o->first; *at; at = &(*at)->next) {
        const struct letter *l = *at;
        if (l->box != head->box || l->to != head->to || !among[l->from])
            continue;
        if (l->kind == head->kind)
            return at;
        if (l->kind == LETTER_END)
            expected[l->from] = false;
    }
    *ended = !memchr(expected, true, sizeof expected);
    return NULL;
}

enum sotto_status office_take(struct office *o, struct letter head, const bool *among, double until,
                              struct letter **out, bool *ended)
{
    const double limit = fmin(until, 1e9);
    const struct timespec time = {(time_t)limit, (long)(1e9 * fmod(limit, 1))};
    struct letter **at;
    struct status_note note = {0};
    *ended = false;
    pthread_mutex_lock(&o->lock);
    while (!(at = find_letter(o, &head, among, ended)) && !*ended && !o->aborted &&
           clock_now(&clock_real) < until)
        pthread_cond_timedwait(&o->moved, &o->lock, &time);
    *out = o->aborted || !at ? NULL : *at;
    if (*out) {
        *at = (*out)->next;
        o->last = *at ? o->last : at;
    }
    if (o->aborted)
        note = o->note;
    pthread_mutex_unlock(&o->lock);
    return status_raise(&note);
}

void office_abort(struct office *o, const struct status_note *note)
{
    pthread_mutex_lock(&o->lock);
    if (!o->aborted)
        o->note = *note;
    o->aborted = true;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
}

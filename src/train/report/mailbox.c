#include "train/report/mailbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mailbox_record {
    struct mailbox *mailbox;
    struct mailbox_record *next;
    _Alignas(max_align_t) char data[];
};

struct mailbox {
    struct worker *worker;
    size_t bytes;                /* of a record */
    struct comm *comm;           /* NULL: there is one worker */
    struct lane *lane;           /* sends the records; idle on rank 0 */
    bool *among;                 /* (size) the rank that mailbox_take waits for */
    struct mailbox_record *kept; /* rank 0's own records, oldest first; owned */
};

enum sotto_status mailbox_open(struct mailbox **out, struct worker *w, size_t bytes)
{
    struct mailbox *m = *out = calloc(1, sizeof *m);
    if (!m || !(m->among = calloc((size_t)w->size, sizeof *m->among)))
        return fail(SOTTO_ENOMEM, "no memory for records of %d workers", w->size);
    m->worker = w;
    m->bytes = bytes;
    if (w->size == 1)
        return SOTTO_OK;
    TRY(comm_duplicate(w->world, &m->comm));
    TRY(w->ops->lane(w, &m->lane));
    if (w->rank > 0)
        m->comm->lane = m->lane;
    if (m->lane->ops->set_untimed)
        m->lane->ops->set_untimed(m->lane);
    return SOTTO_OK;
}

void mailbox_close(struct mailbox *m)
{
    if (!m)
        return;
    lane_close(m->lane);
    comm_free(m->comm);
    for (struct mailbox_record *r = m->kept, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    free(m->among);
    free(m);
}

static enum sotto_status send_record(void *arg)
{
    struct mailbox_record *r = arg;
    const struct mailbox *m = r->mailbox;
    enum sotto_status st = comm_send_bytes(m->comm, r->data, m->bytes, 0);
    free(r);
    return st;
}

enum sotto_status mailbox_send(struct mailbox *m, const void *record)
{
    struct mailbox_record *r = malloc(sizeof *r + m->bytes), **end = &m->kept;
    if (!r)
        return fail(SOTTO_ENOMEM, "no memory for a record of %zu bytes", m->bytes);
    *r = (struct mailbox_record){.mailbox = m};
    memcpy(r->data, record, m->bytes);
    if (m->worker->rank > 0)
        return lane_start(m->lane, send_record, r);
    while (*end)
        end = &(*end)->next;
    *end = r;
    return SOTTO_OK;
}

static void take_kept(struct mailbox *m, void *record)
{
    struct mailbox_record *r = m->kept;
    memcpy(record, r->data, m->bytes);
    m->kept = r->next;
    free(r);
}

enum sotto_status mailbox_take(struct mailbox *m, int from, bool wait, void *record, bool *found)
{
    int sender;
    *found = m->kept && from <= 0;
    if (*found)
        take_kept(m, record);
    if (*found || !m->comm || from == 0)
        return SOTTO_OK;
    if (from > 0)
        m->among[from] = true;
    const enum sotto_status st = comm_recv_any_bytes(
        m->comm, record, m->bytes, from > 0 ? m->among : NULL, wait ? INFINITY : 0, &sender);
    if (from > 0)
        m->among[from] = false;
    TRY(st);
    *found = sender >= 0;
    return SOTTO_OK;
}

enum sotto_status mailbox_flush(struct mailbox *m)
{
    return m->worker->rank > 0 ? lane_wait(m->lane) : SOTTO_OK;
}

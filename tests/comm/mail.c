/* The calls of a communicator over letters (mail.h). */
#include "comm/mail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ring.h"

struct mail {
    struct comm base;
    struct office *office;
    uint64_t box;
    int *node; /* (size) owned; base.node */
    struct ring ring;
    struct slot {
        void *data;
        size_t bytes;
        int from;
    } slot[RING_SLOTS]; /* letters that the ring is to receive */
    char *scratch;      /* of the ring, owned */
};

static struct mail *mail_of(struct comm *c)
{
    return (struct mail *)c;
}

static enum sotto_status put_letter(struct comm *c, enum letter_kind kind, const void *data,
                                    size_t bytes, int to)
{
    const struct letter head = {
        .box = mail_of(c)->box, .kind = kind, .from = c->rank, .to = to, .bytes = bytes};
    return office_put(mail_of(c)->office, head, data);
}

/* Takes a letter of one of the ranks of `among` into `data`; a letter of more than `room` bytes is
 * dropped. *from: the sender, -1 if no letter came until the time `until`. */
static enum sotto_status take_letter(struct comm *c, enum letter_kind kind, void *data, size_t room,
                                     const bool *among, double until, int *from, size_t *received)
{
    const struct letter head = {.box = mail_of(c)->box, .kind = kind, .to = c->rank};
    struct letter *l;
    bool ended;
    TRY(office_take(mail_of(c)->office, head, among, until, &l, &ended));
    c->wait.to = clock_now(c->clock); /* the wait for the sender ends here */
    if (!l && ended)
        return comm_all_ended(c);
    *from = l ? l->from : -1;
    *received = l ? l->bytes : 0;
    if (*received && *received <= room)
        memcpy(data, l->data, l->bytes);
    free(l);
    return SOTTO_OK;
}

static enum sotto_status take_from(struct comm *c, enum letter_kind kind, void *data, size_t room,
                                   int from, size_t *received)
{
    bool among[MAIL_MOST] = {false};
    among[from] = true;
    return take_letter(c, kind, data, room, among, INFINITY, &from, received);
}

static enum sotto_status mail_send(struct comm *c, const void *data, size_t bytes, int to)
{
    return put_letter(c, LETTER_MESSAGE, data, bytes, to);
}

static enum sotto_status mail_recv(struct comm *c, void *data, size_t room, int from,
                                   size_t *received)
{
    return take_from(c, LETTER_MESSAGE, data, room, from, received);
}

static enum sotto_status mail_recv_any(struct comm *c, void *data, size_t room, const bool *among,
                                       double until, int *from, size_t *received)
{
    bool senders[MAIL_MOST] = {false};
    for (int r = 0; r < c->size; r++)
        senders[r] = (!among || among[r]) && (r != c->rank || c->twinned);
    return take_letter(c, LETTER_MESSAGE, data, room, senders, until, from, received);
}

/* The transport of the collectives (ring.h). */
static enum sotto_status mail_start_send(struct comm *c, int slot, const void *data, size_t bytes,
                                         int to)
{
    (void)slot;
    return put_letter(c, LETTER_CALL, data, bytes, to);
}

static enum sotto_status mail_start_recv(struct comm *c, int slot, void *data, size_t bytes,
                                         int from)
{
    mail_of(c)->slot[slot] = (struct slot){data, bytes, from};
    return SOTTO_OK;
}

static enum sotto_status mail_wait_send(struct comm *c, int slot)
{
    (void)c, (void)slot;
    return SOTTO_OK; /* the office has the letter */
}

static enum sotto_status mail_wait_recv(struct comm *c, int slot)
{
    const struct slot *s = &mail_of(c)->slot[slot];
    size_t received;
    TRY(take_from(c, LETTER_CALL, s->data, s->bytes, s->from, &received));
    return received == s->bytes ? SOTTO_OK : comm_wrong_length(c, s->bytes, received, s->from);
}

static void mail_drop(struct comm *c)
{
    (void)c; /* the office frees letters that no rank takes */
}

static void *mail_scratch(struct comm *c, size_t bytes)
{
    free(mail_of(c)->scratch);
    return mail_of(c)->scratch = malloc(bytes + 1);
}

static const struct ring_ops transport = {mail_start_send, mail_start_recv, mail_wait_send,
                                          mail_wait_recv,  mail_drop,       mail_scratch};

static enum sotto_status mail_allreduce(struct comm *c, struct view y, struct view x, size_t count)
{
    return ring_allreduce(&mail_of(c)->ring, y, x, count);
}

static enum sotto_status mail_reduce_scatter(struct comm *c, struct view y, struct view x,
                                             size_t count)
{
    return ring_reduce_scatter(&mail_of(c)->ring, y, x, count);
}

static enum sotto_status mail_allgather(struct comm *c, void *y, const void *x, size_t count,
                                        size_t unit)
{
    return ring_allgather(&mail_of(c)->ring, y, x, count, unit);
}

static enum sotto_status mail_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    size_t received = bytes;
    for (int r = 0; r < c->size && c->rank == root; r++)
        if (r != root)
            TRY(put_letter(c, LETTER_CALL, data, bytes, r));
    if (c->rank != root)
        TRY(take_from(c, LETTER_CALL, data, bytes, root, &received));
    return received == bytes ? SOTTO_OK : comm_wrong_length(c, bytes, received, root);
}

static enum sotto_status mail_barrier(struct comm *c)
{
    char all[MAIL_MOST];
    const char mine = 0;
    return mail_allgather(c, all, &mine, (size_t)c->size, 1);
}

/* Rank 0 takes a number for each color; the lowest rank of a color says which is the color's. */
static enum sotto_status mail_split(struct comm *c, int color, struct comm **out)
{
    struct mail *m = mail_of(c);
    int colors[MAIL_MOST] = {color}, node[MAIL_MOST], rank = 0, size = 0, lowest = -1;
    uint64_t first = 0;
    if (c->size > 1)
        TRY(mail_allgather(c, colors, &color, (size_t)c->size, sizeof color));
    if (c->rank == 0)
        first = office_number(m->office, c->size);
    if (c->size > 1)
        TRY(mail_broadcast(c, &first, sizeof first, 0));
    for (int r = 0; r < c->size; r++) {
        if (colors[r] != color)
            continue;
        lowest = lowest < 0 ? r : lowest;
        rank += r < c->rank;
        node[size++] = m->node[r];
    }
    return mail_open(m->office, first + (uint64_t)lowest, rank, size, node, out);
}

static enum sotto_status mail_twin(struct comm *c, struct comm **out)
{
    struct mail *m = mail_of(c);
    return mail_open(m->office, m->box, c->rank, c->size, m->node, out);
}

static void mail_abort(struct comm *c, const struct status_note *note)
{
    office_abort(mail_of(c)->office, note);
}

void mail_end(struct comm *c)
{
    for (int r = 0; r < c->size; r++)
        (void)put_letter(c, LETTER_END, NULL, 0, r);
}

static void free_mail(struct comm *c)
{
    mail_end(c);
    free(mail_of(c)->node);
    free(mail_of(c)->scratch);
    free(c);
}

static const struct comm_ops mail_ops = {
    .name = "mail",
    .send = mail_send,
    .recv = mail_recv,
    .recv_any = mail_recv_any,
    .allreduce = mail_allreduce,
    .reduce_scatter = mail_reduce_scatter,
    .allgather = mail_allgather,
    .broadcast = mail_broadcast,
    .barrier = mail_barrier,
    .split = mail_split,
    .twin = mail_twin,
    .abort = mail_abort,
    .free = free_mail,
};

enum sotto_status mail_open(struct office *o, uint64_t box, int rank, int size, const int *node,
                            struct comm **out)
{
    struct mail *m = calloc(1, sizeof *m);
    int *copy = malloc((size_t)size * sizeof *copy);
    if (!m || !copy) {
        free(m);
        free(copy);
        return fail(SOTTO_ENOMEM, "no memory for a communicator of %d ranks", size);
    }
    memcpy(copy, node, (size_t)size * sizeof *copy);
    m->base = (struct comm){.ops = &mail_ops,
                            .rank = rank,
                            .size = size,
                            .node = copy,
                            .layout = layout_of(copy, size),
                            .clock = &clock_real};
    m->office = o;
    m->box = box;
    m->node = copy;
    m->ring = (struct ring){&transport, &m->base, 1 << 20};
    *out = &m->base;
    return SOTTO_OK;
}

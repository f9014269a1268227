#include "train/gather.h"

#include <stdlib.h>
#include <string.h>

void gather_share(struct state_visitor *v, int rank, bool first)
{
    v->skip_common = rank != 0;
    v->skip_slices = !first;
}

/* A parcel is items one behind the other, each padded to words: this head, the name, the data. The
 * workers of a run are the same program on the same kind of machine. */
struct head {
    uint64_t whole, offset, count;
    uint64_t name, data; /* bytes, padding included */
    uint32_t kind, type, category, padding;
};

enum { WORD = 8 };

struct packer {
    struct state_visitor base;
    struct memory *memory;
    char *parcel;
    size_t bytes, room;
};

static size_t padded(size_t bytes)
{
    return (bytes + WORD - 1) / WORD * WORD;
}

static enum sotto_status append(struct packer *p, const void *data, size_t bytes, size_t room)
{
    if (p->bytes + room > p->room) {
        size_t more = p->bytes + room + p->room / 4;
        char *parcel = memory_resize(p->memory, MEMORY_CHECKPOINT, p->parcel, p->room, more);
        if (!parcel)
            return fail(SOTTO_ENOMEM, "no memory for %zu bytes of state", more);
        p->parcel = parcel;
        p->room = more;
    }
    memcpy(p->parcel + p->bytes, data, bytes);
    memset(p->parcel + p->bytes + bytes, 0, room - bytes);
    p->bytes += room;
    return SOTTO_OK;
}

/* Room for what will be visited, so that a parcel is not copied while it grows: tensors are
 * counted, and names take little. */
static enum sotto_status reserve(struct packer *p, state_owner *visit, void *owner, int rank,
                                 bool first)
{
    struct state_visitor v;
    size_t bytes = (size_t)1 << 16;
    state_counter_init(&v);
    gather_share(&v, rank, first);
    enum sotto_status st = visit(owner, &v);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        bytes += v.bytes[c];
    state_free(&v);
    TRY(st);
    p->parcel = memory_resize(p->memory, MEMORY_CHECKPOINT, NULL, 0, bytes);
    if (!p->parcel)
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of state", bytes);
    p->room = bytes;
    return SOTTO_OK;
}

static enum sotto_status append_piece(void *arg, const void *data, size_t bytes)
{
    return append(arg, data, bytes, bytes);
}

static enum sotto_status pack(struct state_visitor *v, const struct state_item *item)
{
    struct packer *p = (struct packer *)v;
    size_t bytes = item->kind == STATE_TENSOR ? item->count * safetensors_type_size(item->type)
                   : item->kind == STATE_TEXT ? strlen(item->to.text) + 1
                                              : WORD;
    size_t name = strlen(item->name) + 1;
    struct head head = {.whole = item->whole,
                        .offset = item->offset,
                        .count = item->count,
                        .name = padded(name),
                        .data = padded(bytes),
                        .kind = item->kind,
                        .type = item->type,
                        .category = item->category};
    TRY(append(p, &head, sizeof head, sizeof head));
    TRY(append(p, item->name, name, padded(name)));
    if (item->kind != STATE_TENSOR)
        return append(p, item->kind == STATE_TEXT ? item->to.text : (void *)item->to.integer, bytes,
                      padded(bytes));
    TRY(state_pieces(v, item, append_piece, p));
    return append(p, "", 0, padded(bytes) - bytes);
}

static enum sotto_status unpack(const char *parcel, size_t bytes, struct state_visitor *saver)
{
    for (const char *at = parcel, *end = parcel + bytes; at < end;) {
        struct head head;
        memcpy(&head, at, sizeof head);
        char *data = (char *)at + sizeof head + head.name;
        struct state_item item = {.name = at + sizeof head,
                                  .kind = (enum state_kind)head.kind,
                                  .type = (enum safetensors_type)head.type,
                                  .category = (enum memory_category)head.category,
                                  .data = data,
                                  .whole = head.whole,
                                  .offset = head.offset,
                                  .count = head.count,
                                  .room = head.data};
        if (item.kind == STATE_TEXT)
            item.to.text = data;
        else if (item.kind != STATE_TENSOR)
            item.to.integer = (int64_t *)(void *)data; /* or the bits of a double */
        TRY(saver->ops->visit(saver, &item));
        at = data + head.data;
    }
    return SOTTO_OK;
}

/* Parcels are whole words, which travel as two fp32 each. */
static struct view words(void *data)
{
    return view_of(data, DTYPE_F32);
}

static enum sotto_status send_parcel(struct comm *world, struct packer *p)
{
    uint64_t bytes = p->bytes;
    TRY(comm_send(world, words(&bytes), 2, 0));
    return bytes ? comm_send(world, words(p->parcel), bytes / 4, 0) : SOTTO_OK;
}

static enum sotto_status receive_parcel(struct comm *world, int from, struct gathered *g,
                                        struct state_visitor *saver)
{
    uint64_t bytes;
    TRY(comm_recv(world, words(&bytes), 2, from));
    if (!bytes)
        return SOTTO_OK;
    if (!(g->parcel[from] = memory_resize(g->memory, MEMORY_CHECKPOINT, NULL, 0, bytes)))
        return fail(SOTTO_ENOMEM, "no memory for %llu bytes of worker %d's state",
                    (unsigned long long)bytes, from);
    g->bytes[from] = bytes;
    TRY(comm_recv(world, words(g->parcel[from]), bytes / 4, from));
    return unpack(g->parcel[from], bytes, saver);
}

enum sotto_status gather_state(struct comm *world, bool first, state_owner *visit, void *owner,
                               struct memory *memory, struct state_visitor *saver,
                               struct gathered *out)
{
    if (world->rank == 0) {
        *out =
            (struct gathered){calloc((size_t)world->size, sizeof *out->parcel),
                              calloc((size_t)world->size, sizeof *out->bytes), world->size, memory};
        if (!out->parcel || !out->bytes)
            return fail(SOTTO_ENOMEM, "no memory for the state of %d workers", world->size);
        TRY(visit(owner, saver));
        for (int r = 1; r < world->size; r++)
            TRY(receive_parcel(world, r, out, saver));
        return SOTTO_OK;
    }
    static const struct state_ops ops = {pack, NULL};
    struct packer p = {.base.ops = &ops, .memory = memory};
    gather_share(&p.base, world->rank, first);
    enum sotto_status st = reserve(&p, visit, owner, world->rank, first);
    if (st == SOTTO_OK)
        st = visit(owner, &p.base);
    if (st == SOTTO_OK)
        st = send_parcel(world, &p);
    memory_give(memory, MEMORY_CHECKPOINT, p.parcel, p.room);
    state_free(&p.base);
    return st;
}

void gathered_free(struct gathered *g)
{
    for (int r = 0; r < g->size && g->parcel && g->bytes; r++)
        memory_give(g->memory, MEMORY_CHECKPOINT, g->parcel[r], g->bytes[r]);
    free(g->parcel);
    free(g->bytes);
    *g = (struct gathered){0};
}

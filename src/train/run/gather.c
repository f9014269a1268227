#include "train/run/gather.h"

#include <stdlib.h>
#include <string.h>

void gather_share(struct state_visitor *v, int rank, bool first)
{
    v->skip_common = rank != 0;
    v->skip_slices = !first;
}

/* Packed state is a list of items, each a head, a name and data, padded to words. Byte
 * order and sizes are the same on all workers: the same program on machines of the same kind. */
struct packed_head {
    uint64_t whole, offset, count;
    uint64_t name, data; /* bytes, padding included */
    uint32_t kind, type, category, padding;
};

enum { WORD = 8 };

struct packer {
    struct state_visitor base;
    struct packed *to;
};

static size_t padded_size(size_t bytes)
{
    return (bytes + WORD - 1) / WORD * WORD;
}

static enum sotto_status append_data(struct packed *p, const void *data, size_t bytes, size_t room)
{
    if (p->bytes + room > p->room) {
        size_t more = p->bytes + room + p->room / 4;
        char *larger = memory_resize(p->memory, MEMORY_CHECKPOINT, p->data, p->room, more);
        if (!larger)
            return fail(SOTTO_ENOMEM, "no memory for %zu bytes of state", more);
        p->data = larger;
        p->room = more;
    }
    memcpy(p->data + p->bytes, data, bytes);
    memset(p->data + p->bytes + bytes, 0, room - bytes);
    p->bytes += room;
    return SOTTO_OK;
}

static enum sotto_status allocate_packed(struct packed *p, size_t bytes)
{
    if (!(p->data = memory_resize(p->memory, MEMORY_CHECKPOINT, NULL, 0, bytes)))
        return fail(SOTTO_ENOMEM, "no memory for %zu bytes of state", bytes);
    p->room = bytes;
    return SOTTO_OK;
}

/* Allocates room for the state that `visit` shows, so that `p` need not grow: counts the tensors,
 * and adds a little for names. */
static enum sotto_status reserve_packed(struct packed *p, state_owner *visit, void *owner, int rank,
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
    return allocate_packed(p, bytes);
}

static enum sotto_status append_piece(void *arg, const void *data, size_t bytes)
{
    return append_data(arg, data, bytes, bytes);
}

static enum sotto_status pack_item(struct state_visitor *v, const struct state_item *item)
{
    struct packed *p = ((struct packer *)v)->to;
    size_t bytes = item->kind == STATE_TENSOR ? item->count * safetensors_type_size(item->type)
                   : item->kind == STATE_TEXT ? strlen(item->to.text) + 1
                                              : WORD;
    size_t name = strlen(item->name) + 1;
    struct packed_head head = {.whole = item->whole,
                               .offset = item->offset,
                               .count = item->count,
                               .name = padded_size(name),
                               .data = padded_size(bytes),
                               .kind = item->kind,
                               .type = item->type,
                               .category = item->category};
    TRY(append_data(p, &head, sizeof head, sizeof head));
    TRY(append_data(p, item->name, name, padded_size(name)));
    if (item->kind != STATE_TENSOR)
        return append_data(p, item->kind == STATE_TEXT ? item->to.text : (void *)item->to.integer,
                           bytes, padded_size(bytes));
    TRY(state_pieces(v, item, append_piece, p));
    return append_data(p, "", 0, padded_size(bytes) - bytes);
}

enum sotto_status packed_show(const struct packed *p, struct state_visitor *saver)
{
    for (const char *at = p->data, *end = at ? at + p->bytes : at; at < end;) {
        struct packed_head head;
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

/* A view of packed state, whose words are sent as two fp32 each. */
static struct view view_words(void *data)
{
    return view_of(data, DTYPE_F32);
}

enum sotto_status packed_make(struct packed *p, struct memory *memory, int rank, bool first,
                              state_owner *visit, void *owner)
{
    static const struct state_ops ops = {pack_item, NULL};
    struct packer packer = {.base.ops = &ops, .to = p};
    *p = (struct packed){.memory = memory};
    gather_share(&packer.base, rank, first);
    enum sotto_status st = reserve_packed(p, visit, owner, rank, first);
    if (st == SOTTO_OK)
        st = visit(owner, &packer.base);
    state_free(&packer.base);
    if (st != SOTTO_OK)
        packed_free(p);
    return st;
}

void packed_free(struct packed *p)
{
    memory_give(p->memory, MEMORY_CHECKPOINT, p->data, p->room);
    *p = (struct packed){0};
}

enum sotto_status packed_send(struct comm *comm, const struct packed *p, int to)
{
    uint64_t bytes = p->bytes;
    TRY(comm_send(comm, view_words(&bytes), 2, to));
    return bytes ? comm_send(comm, view_words(p->data), bytes / 4, to) : SOTTO_OK;
}

enum sotto_status packed_receive(struct comm *comm, struct packed *p, struct memory *memory,
                                 int from)
{
    uint64_t bytes;
    *p = (struct packed){.memory = memory};
    TRY(comm_recv(comm, view_words(&bytes), 2, from));
    if (!bytes)
        return SOTTO_OK;
    TRY(fail_in(allocate_packed(p, bytes), "worker %d: ", from));
    p->bytes = bytes;
    return comm_recv(comm, view_words(p->data), bytes / 4, from);
}

static enum sotto_status receive_all(struct comm *world, struct memory *memory,
                                     struct state_visitor *saver, struct gathered *out)
{
    *out = (struct gathered){calloc((size_t)world->size, sizeof *out->packed), world->size};
    if (!out->packed)
        return fail(SOTTO_ENOMEM, "no memory for the state of %d workers", world->size);
    for (int r = 1; r < world->size; r++) {
        TRY(packed_receive(world, &out->packed[r], memory, r));
        TRY(packed_show(&out->packed[r], saver));
    }
    return SOTTO_OK;
}

enum sotto_status gather_state(struct comm *world, bool first, state_owner *visit, void *owner,
                               struct memory *memory, struct state_visitor *saver,
                               struct gathered *out)
{
    struct packed mine;
    if (world->rank == 0) {
        TRY(visit(owner, saver));
        return receive_all(world, memory, saver, out);
    }
    TRY(packed_make(&mine, memory, world->rank, first, visit, owner));
    enum sotto_status st = packed_send(world, &mine, 0);
    packed_free(&mine);
    return st;
}

void gathered_free(struct gathered *g)
{
    for (int r = 0; r < g->size && g->packed; r++)
        packed_free(&g->packed[r]);
    free(g->packed);
    *g = (struct gathered){0};
}

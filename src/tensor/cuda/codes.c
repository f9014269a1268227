/* Ops of codecs. */
#include "tensor/cuda/cuda.h"

static struct tile_shape tile_shape_of(const struct tiling *p, int k, struct view basis)
{
    const struct tiles *t = &p->tiles[k];
    const float *b = basis.data;
    return (struct tile_shape){.at = t->at - p->from,
                               .stride = t->stride,
                               .kept = t->kept,
                               .nx = t->nx,
                               .h = t->h,
                               .w = t->w,
                               .keep = t->keep,
                               .begin = p->end ? p->begin : 0,
                               .end = p->end ? p->end : t->ny * t->nx,
                               .basis_h = b + t->basis_h,
                               .basis_w = b + t->basis_w};
}

/* Returns in *room the scratch of the list that needs most; NULL if no list needs scratch.
 * Returns false after a kept failure. */
static bool open_list_room(struct device *dev, const struct tiling *p, struct view basis,
                           float **room)
{
    size_t most = 0;
    for (int k = 0; k < p->n; k++) {
        const struct tile_shape s = tile_shape_of(p, k, basis);
        const size_t floats = (size_t)tile_blocks(&s) * tile_room(&s);
        most = floats > most ? floats : most;
    }
    *room = most ? device_scratch(dev, most * sizeof **room) : NULL;
    return *room || !most;
}

void cuda_tiles_encode(struct device *dev, const struct tiling *p, struct view basis, struct view m,
                       struct view index, struct view value)
{
    float *room;
    if (!open_list_room(dev, p, basis, &room))
        return;
    for (int k = 0; k < p->n; k++) {
        const struct tile_shape s = tile_shape_of(p, k, basis);
        cuda_check(
            dev,
            launch_tiles_encode(cuda_stream(dev), &s, m.data, index.data, cuda_vec(value), room),
            "encode");
    }
}

void cuda_tiles_decode(struct device *dev, const struct tiling *p, struct view basis, int senders,
                       struct view y, struct view index, size_t index_step, struct view value,
                       size_t value_step)
{
    const struct tile_messages sent = {index.data, index_step, cuda_vec(value), value_step,
                                       senders};
    float *room;
    if (!open_list_room(dev, p, basis, &room))
        return;
    for (int k = 0; k < p->n; k++) {
        const struct tile_shape s = tile_shape_of(p, k, basis);
        cuda_check(dev,
                   launch_tiles_decode(cuda_stream(dev), &s, y.data, &sent, room,
                                       &cuda_of(dev)->flags->damaged),
                   "decode");
    }
}

void cuda_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    cuda_check(dev, launch_bits_pack(cuda_stream(dev), bits, y.data, x.data, count), "pack");
}

void cuda_bits_unpack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    cuda_check(dev, launch_bits_unpack(cuda_stream(dev), bits, y.data, x.data, count), "unpack");
}

void cuda_sign(struct device *dev, struct view y, struct view x, size_t count)
{
    cuda_check(dev, launch_sign(cuda_stream(dev), cuda_vec(y), cuda_vec(x), count), "take signs");
}

_Static_assert((int)CHOOSE_ROUNDS == (int)SHUFFLE_ROUNDS, "same number of rounds");

void cuda_choose(struct device *dev, const struct shuffle *p, struct view index, size_t count)
{
    struct choose_shape shape = {.mask = p->mask, .shift = p->shift, .of = p->count};
    memcpy(shape.multiply, p->multiply, sizeof shape.multiply);
    memcpy(shape.add, p->add, sizeof shape.add);
    cuda_check(dev, launch_choose(cuda_stream(dev), &shape, index.data, count), "choose");
}

static struct pick_shape picks_of(const struct picks *p, struct view index)
{
    return (struct pick_shape){p->count, p->first, p->stride, index.data};
}

void cuda_pick(struct device *dev, const struct picks *p, struct view value, struct view m,
               struct view index)
{
    cuda_check(dev, launch_pick(cuda_stream(dev), picks_of(p, index), cuda_vec(value), m.data),
               "pick");
}

void cuda_put(struct device *dev, const struct picks *p, struct view y, float a, struct view value,
              struct view index)
{
    cuda_check(dev, launch_put(cuda_stream(dev), picks_of(p, index), y.data, a, cuda_vec(value)),
               "put");
}

void cuda_signs_pack(struct device *dev, struct view y, struct view x, size_t count)
{
    cuda_check(dev, launch_signs_pack(cuda_stream(dev), y.data, cuda_vec(x), count), "pack");
}

void cuda_signs_unpack(struct device *dev, struct view y, struct view x, size_t count, bool add)
{
    cuda_check(dev, launch_signs_unpack(cuda_stream(dev), cuda_vec(y), x.data, count, add),
               "unpack");
}

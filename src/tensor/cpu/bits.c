/* Packed numbers of a few bits, and signs: chunks over threads. */
#include "tensor/cpu/cpu.h"

_Static_assert(CHUNK % 8 == 0, "a chunk of packed elements is whole bytes");

static void pack_bits(int bits, uint8_t *y, const int32_t *x, size_t n)
{
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    uint64_t ready = 0;
    int fill = 0;
    for (size_t i = 0; i < n; i++) {
        ready |= (uint64_t)((uint32_t)x[i] & mask) << fill;
        fill += bits;
        if (fill < 32)
            continue;
        for (int k = 0; k < 4; k++) /* four bytes a turn */
            y[k] = (uint8_t)(ready >> 8 * k);
        y += 4;
        fill -= 32;
        ready >>= 32;
    }
    for (; fill > 0; fill -= 8, ready >>= 8)
        *y++ = (uint8_t)ready;
}

/* Unpacks n elements. An element is in at most three bytes; four are read while the input has
 * four left. */
static void unpack_bits(int bits, int32_t *y, const uint8_t *x, size_t n)
{
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    const size_t bytes = (n * (size_t)bits + 7) / 8;
    size_t i = 0;
    for (; i * (size_t)bits / 8 + 4 <= bytes; i++) {
        const uint8_t *from = x + i * (size_t)bits / 8;
        const uint32_t four =
            from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
        y[i] = (int32_t)(four >> i * (size_t)bits % 8 & mask);
    }
    for (; i < n; i++) {
        const size_t at = i * (size_t)bits / 8, left = bytes - at;
        const uint32_t three = x[at] | (left > 1 ? (uint32_t)x[at + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)x[at + 2] << 16 : 0);
        y[i] = (int32_t)(three >> i * (size_t)bits % 8 & mask);
    }
}

void cpu_bits_pack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    (void)dev; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK)
        pack_bits(bits, (uint8_t *)y.data + at / 8 * (size_t)bits, (const int32_t *)x.data + at,
                  min_size(CHUNK, count - at));
}

void cpu_bits_unpack(struct device *dev, int bits, struct view y, struct view x, size_t count)
{
    (void)dev; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK)
        unpack_bits(bits, (int32_t *)y.data + at, (const uint8_t *)x.data + at / 8 * (size_t)bits,
                    min_size(CHUNK, count - at));
}

void cpu_sign(struct device *dev, struct view y, struct view x, size_t count)
{
    const struct kernels *k = kernels_of(dev);
#pragma omp parallel for schedule(static) num_threads(team_size(dev, count))
    for (size_t at = 0; at < count; at += CHUNK) {
        float x_room[CHUNK], y_room[CHUNK];
        const size_t n = min_size(CHUNK, count - at);
        float *out = place_floats(y, at, y_room);
        k->codec->sign(out, load_floats(k, x, at, n, x_room), n);
        store_floats(k, y, at, n, out);
    }
}

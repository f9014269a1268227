/* Elements picked from vectors and put into vectors, and packed numbers and signs. No element is
 * picked twice. */
#include <math_constants.h>

#include "tensor/cuda/kernels/element.cuh"

namespace {

/* shuffle_at of base/rng.c */
struct choose_each {
    choose_shape p;
    int32_t *index;
    template <int V> __device__ void run(size_t at) const
    {
        uint32_t i = (uint32_t)at;
        do
            for (int r = 0; r < CHOOSE_ROUNDS; r++) {
                i = (i * p.multiply[r] + p.add[r]) & p.mask;
                i ^= i >> p.shift;
            }
        while (i >= p.of);
        index[at] = (int32_t)i;
    }
};

__device__ __forceinline__ size_t picked_index(const pick_shape &p, size_t i)
{
    return p.index ? (size_t)p.index[i] : p.first + i * p.stride;
}

struct pick_each {
    pick_shape p;
    vec value;
    float *m;
    template <int V> __device__ void run(size_t i) const
    {
        const size_t e = picked_index(p, i);
        put_element(value, i, m[e]);
        m[e] -= get_element(value, i);
    }
};

struct put_each {
    pick_shape p;
    float *y, a;
    vec value;
    template <int V> __device__ void run(size_t i) const
    {
        y[picked_index(p, i)] = a * get_element(value, i);
    }
};

/* A thread has eight elements: `bits` bytes when packed. */
typedef unsigned __int128 eight_packed;

struct bits_pack_each {
    uint8_t *y;
    const int32_t *x;
    size_t n, bytes;
    int bits;
    template <int V> __device__ void run(size_t i) const
    {
        eight_packed all = 0;
        for (int k = 0; k < 8 && 8 * i + k < n; k++)
            all |= (eight_packed)((unsigned)x[8 * i + k] & ((1u << bits) - 1)) << k * bits;
        for (int k = 0; k < bits && i * bits + k < bytes; k++)
            y[i * bits + k] = (uint8_t)(all >> 8 * k);
    }
};

struct bits_unpack_each {
    int32_t *y;
    const uint8_t *x;
    size_t n, bytes;
    int bits;
    template <int V> __device__ void run(size_t i) const
    {
        eight_packed all = 0;
        for (int k = 0; k < bits && i * bits + k < bytes; k++)
            all |= (eight_packed)x[i * bits + k] << 8 * k;
        for (int k = 0; k < 8 && 8 * i + k < n; k++)
            y[8 * i + k] = (int32_t)((unsigned)(all >> k * bits) & ((1u << bits) - 1));
    }
};

struct signs_pack_each {
    uint8_t *y;
    vec x;
    size_t n;
    template <int V> __device__ void run(size_t i) const
    {
        unsigned byte = 0;
        for (int k = 0; k < 4 && 4 * i + k < n; k++) {
            const float v = get_element(x, 4 * i + k);
            byte |= (isnan(v) ? 2u : v > 0 ? 1u : v < 0 ? 3u : 0u) << 2 * k;
        }
        y[i] = (uint8_t)byte;
    }
};

struct signs_unpack_each {
    vec y;
    const uint8_t *x;
    int add;
    template <int V> __device__ void run(size_t i) const
    {
        const int bits = x[i / 4] >> 2 * (i % 4) & 3;
        const float sign = bits == 3 ? -1 : bits == 2 ? CUDART_NAN_F : (float)bits;
        put_element(y, i, add ? get_element(y, i) + sign : sign);
    }
};

} // namespace

int launch_choose(stream_t s, const struct choose_shape *p, int32_t *index, size_t n)
{
    return launch_each_one(s, choose_each{*p, index}, n);
}

int launch_pick(stream_t s, pick_shape p, vec value, float *m)
{
    return launch_each_one(s, pick_each{p, value, m}, p.count);
}

int launch_put(stream_t s, pick_shape p, float *y, float a, vec value)
{
    return launch_each_one(s, put_each{p, y, a, value}, p.count);
}

int launch_bits_pack(stream_t s, int bits, uint8_t *y, const int32_t *x, size_t n)
{
    return launch_each_one(s, bits_pack_each{y, x, n, (n * bits + 7) / 8, bits}, (n + 7) / 8);
}

int launch_bits_unpack(stream_t s, int bits, int32_t *y, const uint8_t *x, size_t n)
{
    return launch_each_one(s, bits_unpack_each{y, x, n, (n * bits + 7) / 8, bits}, (n + 7) / 8);
}

int launch_signs_pack(stream_t s, uint8_t *y, vec x, size_t n)
{
    return launch_each_one(s, signs_pack_each{y, x, n}, (n + 3) / 4);
}

int launch_signs_unpack(stream_t s, vec y, const uint8_t *x, size_t n, int add)
{
    return launch_each_one(s, signs_unpack_each{y, x, add}, n);
}

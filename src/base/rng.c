#include "base/rng.h"

#include <assert.h>
#include <math.h>

#include "base/machine/cores.h"

void philox_4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void draw_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox_4x32(counter, key, out);
}

struct rng rng_make(uint64_t seed, uint64_t stream)
{
    return (struct rng){.seed = seed, .stream = stream};
}

uint32_t rng_u32(struct rng *rng)
{
    if (rng->left == 0) {
        draw_block(rng->seed, rng->stream, rng->block++, rng->word);
        rng->left = 4;
    }
    return rng->word[4 - rng->left--];
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t low = rng_u32(rng);
    return low | (uint64_t)rng_u32(rng) << 32;
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    assert(bound > 0);
    uint64_t reject =
        (0 - bound) % bound; /* 2^64 mod bound: these values would make some results more likely */
    uint64_t value;
    do
        value = rng_u64(rng);
    while (value < reject);
    return value % bound;
}

/* Makes two numbers from a block's four words: Box-Muller, both halves used. */
static void normal_pair(const uint32_t word[4], float mean, float std, float *out, size_t count)
{
    const uint64_t a = word[0] | (uint64_t)word[1] << 32, b = word[2] | (uint64_t)word[3] << 32;
    const double radius = sqrt(-2.0 * log(1.0 - (double)(a >> 11) * 0x1p-53));
    const double angle = 2.0 * 3.14159265358979323846 * ((double)(b >> 11) * 0x1p-53);
    out[0] = (float)(mean + std * radius * cos(angle));
    if (count > 1)
        out[1] = (float)(mean + std * radius * sin(angle));
}

void rng_normal(struct rng *rng, float *out, size_t count, float mean, float std)
{
    enum { MANY = 1 << 16 }; /* numbers that are worth waking threads for */
    const size_t pairs = (count + 1) / 2;
    const uint64_t first = rng->block;
    if (rng->left) { /* starts inside a block: each pair spans two blocks */
        for (size_t i = 0; i < pairs; i++) {
            uint32_t word[4];
            for (int k = 0; k < 4; k++)
                word[k] = rng_u32(rng);
            normal_pair(word, mean, std, out + 2 * i, count - 2 * i);
        }
        return;
    }
#pragma omp parallel for schedule(static) num_threads(count >= MANY ? cores_allowed("") : 1)
    for (size_t i = 0; i < pairs; i++) {
        uint32_t word[4];
        draw_block(rng->seed, rng->stream, first + i, word);
        normal_pair(word, mean, std, out + 2 * i, count - 2 * i);
    }
    rng->block = first + pairs;
}

uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t word[4];
    draw_block(seed, stream, index, word);
    return word[0] | (uint64_t)word[1] << 32;
}

struct shuffle shuffle_make(uint64_t seed, uint64_t stream, uint64_t count)
{
    struct shuffle s = {.count = count};
    int bits = 1;
    while (bits < 32 && (uint64_t)1 << bits < count)
        bits++;
    s.mask = UINT32_MAX >> (32 - bits);
    s.shift = (bits + 1) / 2;
    for (int r = 0; r < SHUFFLE_ROUNDS; r++) {
        const uint64_t key = rng_at(seed, stream, (uint64_t)r);
        s.multiply[r] = (uint32_t)key | 1;
        s.add[r] = (uint32_t)(key >> 32);
    }
    return s;
}

uint32_t shuffle_at(const struct shuffle *s, uint32_t i)
{
    assert(i < s->count && s->count <= (uint64_t)1 << 31);
    do
        for (int r = 0; r < SHUFFLE_ROUNDS; r++) {
            i = (i * s->multiply[r] + s->add[r]) & s->mask;
            i ^= i >> s->shift;
        }
    while (i >= s->count);
    return i;
}

/* A four-round Feistel network over the next power of four, repeated until the result is below
 * count. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t count)
{
    assert(i < count);
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < count)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mixed = rng_at(seed, stream, right | round << 62) & mask;
            uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= count);
    return i;
}

/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
 *
 * A value is a pure function of (seed, stream, index), so any worker can produce any other worker's
 * numbers and nothing has to be saved but the index. */
#ifndef SOTTO_BASE_RNG_H
#define SOTTO_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Computes the bijection itself, for tests with known answers. */
void philox_4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

struct rng {
    uint64_t seed;   /* key                                               */
    uint64_t stream; /* upper half of the counter: purpose of the numbers */
    uint64_t block;  /* lower half: number of blocks of 4 words drawn     */
    uint32_t word[4];
    int left; /* words of the last block that are not used yet */
};

struct rng rng_make(uint64_t seed, uint64_t stream);
uint32_t rng_u32(struct rng *rng);
uint64_t rng_u64(struct rng *rng);
double rng_uniform(struct rng *rng);                 /* in [0, 1), 53 bits      */
uint64_t rng_below(struct rng *rng, uint64_t bound); /* in [0, bound), unbiased */
void rng_normal(struct rng *rng, float *out, size_t count, float mean, float std);

/* Returns a 64-bit value of (seed, stream, index), without a generator. */
uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index);

/* Returns element i of a pseudo-random permutation of [0, count), in O(1) and without a table. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t count);

/* A pseudo-random permutation that vectorizes: about ten 32-bit operations an element and step of
 * the walk, two steps on average at most, with keys drawn once. Each step does rounds of x <- x
 * multiply + add, x <- x ^ x >> shift, over the bits that `count` takes; a result outside [0,
 * count) takes another step. Not a cipher: a sample without replacement. */
enum { SHUFFLE_ROUNDS = 4 };
struct shuffle {
    uint32_t multiply[SHUFFLE_ROUNDS], add[SHUFFLE_ROUNDS]; /* multiply is odd             */
    uint32_t mask;                                          /* the bits that `count` takes */
    int shift;                                              /* half of them                */
    uint64_t count;
};
struct shuffle shuffle_make(uint64_t seed, uint64_t stream, uint64_t count);

/* Returns element i of the permutation of [0, count); count is at most 2^31. */
uint32_t shuffle_at(const struct shuffle *s, uint32_t i);

#endif

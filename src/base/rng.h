/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
 *
 * A value is a pure function of (seed, stream, index), so any worker can produce any other worker's
 * numbers and nothing has to be saved but the index. */
#ifndef SOTTO_BASE_RNG_H
#define SOTTO_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* The bijection itself, for the known answers. */
void philox_4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

struct rng {
    uint64_t seed;   /* key                                         */
    uint64_t stream; /* upper half of the counter: who draws        */
    uint64_t block;  /* lower half: how many blocks of 4 were drawn */
    uint32_t word[4];
    int left; /* words of the last block not handed out yet */
};

struct rng rng_make(uint64_t seed, uint64_t stream);
uint32_t rng_u32(struct rng *rng);
uint64_t rng_u64(struct rng *rng);
double rng_uniform(struct rng *rng);                 /* in [0, 1), 53 bits            */
uint64_t rng_below(struct rng *rng, uint64_t bound); /* in [0, bound), unbiased       */
void rng_normal(struct rng *rng, float *out, size_t count, float mean, float std);

/* One 64-bit value of (seed, stream, index), without a generator. */
uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index);

/* Element i of a pseudo-random permutation of [0, count), in O(1) and without a table. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t count);

/* The same for vectors: some ten operations of 32 bits an element and step of a walk, on 2 elements
 * in the mean at most, with keys that are drawn once. Rounds of x <- x multiply + add, x <- x ^ x
 * >> shift, over the bits that `count` takes; what falls outside walks on. No cipher: a sample
 * without replacement. */
enum { SHUFFLE_ROUNDS = 4 };
struct shuffle {
    uint32_t multiply[SHUFFLE_ROUNDS], add[SHUFFLE_ROUNDS]; /* multiply is odd */
    uint32_t mask;                                          /* the bits        */
    int shift;                                              /* half of them    */
    uint64_t count;
};
struct shuffle shuffle_make(uint64_t seed, uint64_t stream, uint64_t count);

/* Element i of [0, count), count at most 2^31. */
uint32_t shuffle_at(const struct shuffle *s, uint32_t i);

#endif

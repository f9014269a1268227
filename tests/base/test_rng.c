/* Philox: the published known answers, then the functions based on Philox. */
#include "base/rng.h"
#include "base/scratch.h"

#include <math.h>

static void known_answers(void **state)
{
    (void)state;
    /* Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, answer. */
    static const uint32_t kat[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t out[4];
        philox_4x32(kat[i], kat[i] + 4, out);
        assert_memory_equal(out, kat[i] + 6, sizeof out);
    }
}

static void a_generator_hands_out_the_blocks(void **state)
{
    (void)state;
    uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210;
    struct rng rng = rng_make(seed, stream);
    for (uint32_t block = 0; block < 5; block++) {
        const uint32_t counter[4] = {block, 0, (uint32_t)stream, (uint32_t)(stream >> 32)};
        const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
        uint32_t out[4];
        philox_4x32(counter, key, out);
        assert_true(rng_at(seed, stream, block) == (out[0] | (uint64_t)out[1] << 32));
        for (int i = 0; i < 4; i++)
            assert_int_equal(rng_u32(&rng), out[i]);
    }
    struct rng again = rng_make(seed, stream);
    again.block = 3; /* the block is the only state to save */
    struct rng from_start = rng_make(seed, stream);
    for (int i = 0; i < 12; i++)
        rng_u32(&from_start);
    assert_true(rng_u64(&again) == rng_u64(&from_start));
}

enum { DRAWS = 1 << 18 };

static void uniform_moments(void **state)
{
    (void)state;
    struct rng rng = rng_make(1, 2);
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double u = rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u - 0.5;
        squares += (u - 0.5) * (u - 0.5);
    }
    /* Five standard errors: the mean's is sqrt(1/12 / n), the variance's sqrt((1/80 - 1/144) / n).
     */
    assert_true(fabs(sum / DRAWS) < 5 * sqrt(1. / 12 / DRAWS));
    assert_true(fabs(squares / DRAWS - 1. / 12) < 5 * sqrt((1. / 80 - 1. / 144) / DRAWS));
}

static void normal_moments(void **state)
{
    (void)state;
    struct rng rng = rng_make(3, 4);
    float *x = malloc(DRAWS * sizeof *x);
    assert_non_null(x);
    rng_normal(&rng, x, DRAWS, 2.0f, 0.5f);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, pairs = 0;
    for (int i = 0; i < DRAWS; i++) {
        double z = (x[i] - 2.0) / 0.5;
        m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
    }
    for (int i = 0; i < DRAWS;
         i += 2) /* the two halves of one Box-Muller draw, squared: 1 if independent */
        pairs += (x[i] - 2.0) * (x[i] - 2.0) * (x[i + 1] - 2.0) * (x[i + 1] - 2.0) / 0.0625;
    assert_true(fabs(pairs / (DRAWS / 2) - 1) < 5 * sqrt(8. / (DRAWS / 2))); /* Var = 9 - 1 */
    /* Var of z, z^2, z^3, z^4 is 1, 2, 15, 96; five standard errors. */
    assert_true(fabs(m1 / DRAWS) < 5 * sqrt(1. / DRAWS));
    assert_true(fabs(m2 / DRAWS - 1) < 5 * sqrt(2. / DRAWS));
    assert_true(fabs(m3 / DRAWS) < 5 * sqrt(15. / DRAWS));
    assert_true(fabs(m4 / DRAWS - 3) < 5 * sqrt(96. / DRAWS));

    float odd[4] = {0, 0, 0, -77};
    rng_normal(&rng, odd, 3, 0, 1);
    assert_true(odd[3] == -77); /* an odd count stays within bounds */
    free(x);
}

/* Any count at once, by threads or not, from the start or the middle of a block. */
static void many_normal_numbers(void **state)
{
    (void)state;
    enum { COUNT = 200001 };
    static float all[COUNT];
    for (int skip = 0; skip < 4; skip++) {
        struct rng rng = rng_make(5, 6), one = rng;
        for (int i = 0; i < skip; i++)
            assert_int_equal(rng_u32(&rng), rng_u32(&one));
        rng_normal(&rng, all, COUNT, 1, 2);
        for (int i = 0; i < COUNT; i += 2) {
            float pair[2];
            rng_normal(&one, pair, i + 1 < COUNT ? 2 : 1, 1, 2);
            assert_memory_equal(pair, all + i, i + 1 < COUNT ? sizeof pair : sizeof *pair);
        }
        assert_true(rng_u64(&rng) == rng_u64(&one));
    }
}

static void below_bounds(void **state)
{
    (void)state;
    static const uint64_t bounds[] = {1, 2, 3, 10, 1000003, (uint64_t)1 << 63, UINT64_MAX};
    struct rng rng = rng_make(5, 6);
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
        for (int i = 0; i < 2000; i++)
            assert_true(rng_below(&rng, bounds[b]) < bounds[b]);

    int seen[6] = {0};
    for (int i = 0; i < 60000; i++)
        seen[rng_below(&rng, 6)]++;
    for (int i = 0; i < 6; i++) /* five standard deviations of a binomial(60000, 1/6) are 456 */
        assert_in_range(seen[i], 10000 - 456, 10000 + 456);
}

static void permute_is_a_bijection(void **state)
{
    (void)state;
    static uint8_t hit[70000];
    static const uint64_t more[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537};
    for (uint64_t k = 1; k <= 300 + sizeof more / sizeof *more; k++) {
        uint64_t count = k <= 300 ? k : more[k - 301];
        memset(hit, 0, count);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t to = rng_permute(9, k, i, count);
            assert_true(to < count);
            assert_int_equal(hit[to]++, 0);
        }
    }
    assert_true(rng_permute(1, 1, UINT64_MAX - 1, UINT64_MAX) < UINT64_MAX);
}

/* An identity or a rotation is a bijection too: counts the fixed points, which a shuffle has few
 * of. */
static void permute_shuffles(void **state)
{
    (void)state;
    enum { N = 10000 };
    int fixed = 0, next = 0, same = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t to = rng_permute(1, 2, i, N), other = rng_permute(1, 3, i, N);
        fixed += to == i;
        same += to == other;
        next += i && to == rng_permute(1, 2, i - 1, N) + 1;
    }
    /* Each count is about Poisson(1). */
    assert_in_range(fixed, 0, 9);
    assert_in_range(same, 0, 9);
    assert_in_range(next, 0, 9);
}

static void shuffle_is_a_bijection(void **state)
{
    (void)state;
    static uint8_t hit[70000];
    static const uint64_t more[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537};
    for (uint64_t k = 1; k <= 300 + sizeof more / sizeof *more; k++) {
        const uint64_t count = k <= 300 ? k : more[k - 301];
        const struct shuffle s = shuffle_make(9, k, count);
        memset(hit, 0, count);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t to = shuffle_at(&s, i);
            assert_true(to < count);
            assert_int_equal(hit[to]++, 0);
        }
    }
    const struct shuffle most = shuffle_make(1, 1, (uint64_t)1 << 31);
    assert_true(shuffle_at(&most, INT32_MAX) <= INT32_MAX);
    assert_int_equal(most.mask, INT32_MAX);
    const struct shuffle beyond =
        shuffle_make(1, 1, (uint64_t)1 << 40); /* is made, not drawn from */
    assert_true(beyond.mask == UINT32_MAX && beyond.shift == 16);
}

/* The first elements are a sample: over many streams every element, and every pair of neighbours,
 * is equally frequent; a run of elements has neither too many samples nor too even a share. */
static void shuffle_samples_evenly(void **state)
{
    (void)state;
    enum { N = 1500, SOME = N / 8, STREAMS = 2000, BLOCK = 100, FAR = 64 };
    static uint8_t in[N];
    static int hits[N];
    static double pairs[FAR + 1];
    const double share = (double)SOME / N;
    double spread = 0, blocks = 0;
    memset(hits, 0, sizeof hits);
    memset(pairs, 0, sizeof pairs);
    for (uint64_t t = 0; t < STREAMS; t++) {
        const struct shuffle s = shuffle_make(3, t, N);
        memset(in, 0, sizeof in);
        for (uint32_t i = 0; i < SOME; i++)
            in[shuffle_at(&s, i)] = 1;
        for (int i = 0; i < N; i++) {
            hits[i] += in[i];
            for (int d = 1; d <= FAR && in[i] && i + d < N; d++)
                pairs[d] += in[i + d];
        }
        for (int b = 0; b < N / BLOCK; b++) {
            double n = -BLOCK * share;
            for (int i = 0; i < BLOCK; i++)
                n += in[b * BLOCK + i];
            blocks += n * n;
        }
    }
    for (int i = 0; i < N; i++)
        spread += pow(hits[i] - STREAMS * share, 2);
    spread /= N * STREAMS * share * (1 - share);
    blocks /= BLOCK * share * (1 - share) * (N - BLOCK) / (N - 1) * (N / BLOCK) * STREAMS;
    /* Of mean 1; five standard deviations of chi squares of N and of N / BLOCK * STREAMS. */
    assert_true(fabs(spread - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(blocks - 1) < 5 * sqrt(2.0 * BLOCK / N / STREAMS));
    for (int d = 1; d <= FAR; d++) {
        const double mean = STREAMS * share * (SOME - 1) / (N - 1) * (N - d);
        assert_true(fabs(pairs[d] - mean) < 5 * sqrt(mean));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(a_generator_hands_out_the_blocks),
        cmocka_unit_test(uniform_moments),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(many_normal_numbers),
        cmocka_unit_test(below_bounds),
        cmocka_unit_test(permute_is_a_bijection),
        cmocka_unit_test(permute_shuffles),
        cmocka_unit_test(shuffle_is_a_bijection),
        cmocka_unit_test(shuffle_samples_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

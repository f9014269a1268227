/* The pool: blocks are reused, the smallest sufficient block is taken, and the account has exactly
 * the peak of memory in use at once. */
#include "tensor/on_cpu.h"

#include "tensor/pool.h"

/* Absurd sizes are meant to be refused, also by the sanitizer's allocator. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static struct pool_block *take(struct pool *pool, enum dtype type, size_t count)
{
    struct pool_block *block;
    assert_ok(pool_take(pool, type, count, &block));
    assert_true(block->buffer.count >= count);
    assert_int_equal(block->buffer.view.type, type);
    return block;
}

/* A repeated sequence of takes and gives allocates in its first round only. */
static void second_round_allocates_nothing(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    size_t after_first = 0;
    for (int round = 0; round < 5; round++) {
        struct pool_block *a = take(&pool, DTYPE_F32, 100), *b = take(&pool, DTYPE_F32, 300);
        pool_give(&pool, a);
        struct pool_block *c = take(&pool, DTYPE_F32, 200), *d = take(&pool, DTYPE_F32, 90);
        pool_give(&pool, b);
        pool_give(&pool, c);
        pool_give(&pool, d);
        if (round == 0)
            after_first = memory.now[MEMORY_ACTIVATIONS];
        assert_int_equal(memory.now[MEMORY_ACTIVATIONS], after_first);
    }
    assert_int_equal(after_first, 4 * (100 + 300 + 200)); /* d was given a's block */
    assert_int_equal(memory.peak[MEMORY_ACTIVATIONS], after_first);
    pool_free(&pool);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 0);
}

/* An idle block is reused after POOL_RESTING other blocks have been given back; a block of another
 * size is not reused. */
static void the_longest_rested(void **state)
{
    (void)state;
    struct pool pool;
    struct pool_block *block[20], *other = NULL;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    other = take(&pool, DTYPE_F32, 110);
    pool_give(&pool, other);
    for (int i = 0; i < 20; i++) {
        assert_ok(pool_take_rested(&pool, DTYPE_F32, 100, &block[i]));
        assert_int_equal(block[i]->buffer.count, 100);
        if (i > POOL_RESTING)
            assert_ptr_equal(block[i], block[i - POOL_RESTING - 1]);
        for (int j = i > POOL_RESTING ? i - POOL_RESTING : 0; j < i; j++)
            assert_ptr_not_equal(block[i], block[j]);
        if (i > 0)
            pool_give(&pool, block[i - 1]); /* each block rests while the next is in use */
    }
    pool_give(&pool, block[19]);
    assert_int_equal(pool.live, 0);
    assert_int_equal(pool.peak, 2 * 400);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 4 * (110 + (POOL_RESTING + 1) * 100));
    pool_free(&pool);
}

/* Blocks held for a while do not change the number of blocks. */
static void rested_and_held(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    for (int round = 0; round < 8; round++) {
        struct pool_block *block[3], *held[POOL_RESTING];
        const int n = round % POOL_RESTING;
        for (int i = 0; i < n; i++)
            held[i] = take(&pool, DTYPE_F32, 100);
        for (int i = 0; i < 3; i++) {
            assert_ok(pool_take_rested(&pool, DTYPE_F32, 100, &block[i]));
            if (i > 0)
                pool_give(&pool, block[i - 1]);
        }
        pool_give(&pool, block[2]);
        for (int i = 0; i < n; i++)
            pool_give(&pool, held[i]);
        assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 400 * (POOL_RESTING + 1));
    }
    pool_free(&pool);
}

/* Live bytes are the requested bytes: neither idle blocks nor the rest of a larger block. */
static void live_bytes(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    struct pool_block *a = take(&pool, DTYPE_F32, 100), *b = take(&pool, DTYPE_BF16, 30);
    assert_int_equal(pool.live, 460);
    pool_give(&pool, a);
    assert_int_equal(pool.live, 60);
    pool.high = pool.live;
    assert_ptr_equal(take(&pool, DTYPE_F32, 60), a);
    assert_int_equal(pool.live, 300);
    pool_give(&pool, a);
    pool_give(&pool, b);
    assert_true(pool.live == 0 && pool.high == 300 && pool.peak == 460);
    struct pool_block *none;
    assert_fails(pool_take(&pool, DTYPE_F32, (size_t)1 << 58, &none), SOTTO_ENOMEM, "activations");
    assert_true(pool.live == 0 && pool.peak == 460);
    pool_free(&pool);
}

/* The smallest sufficient idle block is taken, in any order of returns. */
static void best_fit(void **state)
{
    (void)state;
    static const size_t sizes[] = {500, 100, 300, 200, 400};
    for (int first = 0; first < 5; first++) {
        struct pool pool;
        pool_init(&pool, &dev, MEMORY_OUTER);
        struct pool_block *block[5];
        for (int i = 0; i < 5; i++)
            block[i] = take(&pool, DTYPE_F32, sizes[i]);
        for (int i = 0; i < 5; i++)
            pool_give(&pool, block[(first + i) % 5]);
        struct pool_block *x = take(&pool, DTYPE_F32, 250), *y = take(&pool, DTYPE_F32, 250),
                          *z = take(&pool, DTYPE_F32, 100), *w = take(&pool, DTYPE_F32, 501);
        assert_int_equal(x->buffer.count, 300);
        assert_int_equal(y->buffer.count, 400);
        assert_int_equal(z->buffer.count, 100);
        assert_int_equal(w->buffer.count, 501);
        assert_int_equal(memory.now[MEMORY_OUTER], 4 * 2001);
        pool_give(&pool, x);
        pool_give(&pool, y);
        pool_give(&pool, z);
        pool_give(&pool, w);
        pool_give(&pool, NULL);
        pool_free(&pool);
    }
}

/* Blocks of another type are not reused, though their bytes would suffice. */
static void types_do_not_mix(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    struct pool_block *a = take(&pool, DTYPE_F32, 64);
    pool_give(&pool, a);
    struct pool_block *b = take(&pool, DTYPE_BF16, 64);
    assert_ptr_not_equal(a, b);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 64 * 6);
    pool_give(&pool, b);
    pool_free(&pool);
}

/* Two pools on one account, each in its category. */
static void categories_are_kept_apart(void **state)
{
    (void)state;
    struct pool activations, scratch_pool;
    pool_init(&activations, &dev, MEMORY_ACTIVATIONS);
    pool_init(&scratch_pool, &dev, MEMORY_COMMUNICATION);
    struct pool_block *a = take(&activations, DTYPE_F32, 10),
                      *b = take(&scratch_pool, DTYPE_F32, 20);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 40);
    assert_int_equal(memory.now[MEMORY_COMMUNICATION], 80);
    pool_give(&activations, a);
    pool_free(&activations);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 0);
    assert_int_equal(memory.now[MEMORY_COMMUNICATION], 80);
    pool_give(&scratch_pool, b);
    pool_free(&scratch_pool);
    assert_int_equal(memory.peak[MEMORY_ACTIVATIONS], 40);
    assert_int_equal(memory.total_peak, 120);
}

/* Without memory: a status, no block, nothing accounted, and the pool remains usable. */
static void failure_leaves_the_pool_usable(void **state)
{
    (void)state;
    struct pool pool;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    struct pool_block *a = take(&pool, DTYPE_F32, 10), *none = a;
    assert_fails(pool_take(&pool, DTYPE_F32, (size_t)1 << 58, &none), SOTTO_ENOMEM, "activations");
    assert_null(none);
    assert_int_equal(memory.now[MEMORY_ACTIVATIONS], 40);
    pool_give(&pool, a);
    assert_ptr_equal(take(&pool, DTYPE_F32, 5), a);
    pool_give(&pool, a);
    pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON_CPU(second_round_allocates_nothing),
        TEST_ON_CPU(the_longest_rested),
        TEST_ON_CPU(rested_and_held),
        TEST_ON_CPU(live_bytes),
        TEST_ON_CPU(best_fit),
        TEST_ON_CPU(types_do_not_mix),
        TEST_ON_CPU(categories_are_kept_apart),
        TEST_ON_CPU(failure_leaves_the_pool_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

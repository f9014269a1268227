/* Pieces of a room do not overlap, and AddressSanitizer reports an op that leaves its piece: gaps
 * between pieces, memory beyond the requested size of a pool's block or of a device's scratch, and
 * idle blocks must not be touched. */
#include "tensor/carve.h"
#include "tensor/pool.h"

#include "tensor/on_cpu.h"

static bool forbidden(const void *at)
{
#ifdef SANITIZED_ADDRESS
    return __asan_address_is_poisoned(at);
#else
    (void)at;
    return false;
#endif
}

#ifdef SANITIZED_ADDRESS
static const bool guarded = true;
#else
static const bool guarded = false;
#endif

/* Asserts that the first `bytes` at `data` may be touched, and the next byte may not. */
static void assert_ends(const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_false(forbidden(data + i));
    assert_int_equal(forbidden(data + bytes), guarded);
}

/* Any odd count of either type, in a room with guards of an earlier, longer division. */
static void pieces_lie_apart(void **state)
{
    (void)state;
    struct buffer b;
    struct room sizes = {0};
    enum { MOST = 70 };
    for (size_t n = 0; n < MOST; n++)
        assert_null(carve_piece(&sizes, n, n % 2 ? DTYPE_F32 : DTYPE_BF16).data);
    assert_ok(buffer_init(&b, &dev, DTYPE_F32, sizes.used / 4, MEMORY_SCRATCH));
    for (size_t from = 0; from < 3; from++) { /* each division leaves other guards */
        struct room room = {.data = b.view.data, .size = sizes.used};
        char *end = b.view.data;
        for (size_t n = from; n < MOST; n++) {
            const enum dtype type = n % 2 ? DTYPE_F32 : DTYPE_BF16;
            const size_t bytes = n * dtype_size(type);
            struct view piece = carve_piece(&room, n, type);
            assert_true((char *)piece.data >= end && (uintptr_t)piece.data % 64 == 0);
            assert_ends(piece.data, bytes);
            end = (char *)piece.data + bytes;
        }
        assert_true(room.used <= sizes.used && (from > 0 || room.used == sizes.used));
    }
    buffer_free(&b);
}

/* A block of a pool ends after the requested count, even if the block is longer; an idle block must
 * not be touched. */
static void blocks_end_at_their_count(void **state)
{
    (void)state;
    struct pool pool;
    struct pool_block *block;
    pool_init(&pool, &dev, MEMORY_ACTIVATIONS);
    assert_ok(pool_take(&pool, DTYPE_F32, 200, &block));
    const char *data = block->buffer.view.data;
    assert_ends(data, 800);
    pool_give(&pool, block);
    assert_int_equal(forbidden(data), guarded);
    assert_ok(pool_take(&pool, DTYPE_F32, 101, &block));
    assert_ptr_equal(block->buffer.view.data, data);
    assert_ends(data, 404);
    pool_give(&pool, block);
    assert_ok(pool_take(&pool, DTYPE_F32, 199, &block));
    assert_ptr_equal(block->buffer.view.data, data);
    assert_ends(data, 796);
    pool_give(&pool, block);
    pool_free(&pool);
}

/* Scratch ends after the requested size, even if another op requested more before. */
static void scratch_ends_where_asked(void **state)
{
    (void)state;
    static const size_t asked[] = {1000, 64, 999, 8, 1001, 3};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const char *data = device_scratch(&dev, asked[i]);
        assert_non_null(data);
        assert_ends(data, asked[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON_CPU(pieces_lie_apart),
        TEST_ON_CPU(blocks_end_at_their_count),
        TEST_ON_CPU(scratch_ends_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Micro-batches: room for every token, and a status where there is none. */
#include "base/scratch.h"

#include "tensor/batch.h"

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void room_for_all(void **state)
{
    (void)state;
    struct batch batch;
    assert_ok(batch_init(&batch, 3, 5));
    assert_int_equal(batch.room, 15);
    assert_int_equal(batch.n_targets, 0);
    for (int i = 0; i < 15; i++)
        assert_true(batch.tokens[i] == 0 && batch.targets[i] == 0);
    memset(batch.tokens, 1, 15 * sizeof *batch.tokens);
    memset(batch.targets, 1, 15 * sizeof *batch.targets);
    batch_free(&batch);
    assert_null(batch.tokens);
    batch_free(&batch);
}

/* 2^60 tokens: the product does not wrap, and memory that was allocated is freed. */
static void absurd_sizes(void **state)
{
    (void)state;
    struct batch batch;
    assert_fails(batch_init(&batch, 1 << 30, 1 << 30), SOTTO_ENOMEM, "1073741824 x 1073741824");
    assert_null(batch.tokens);
    assert_null(batch.targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_for_all),
        cmocka_unit_test(absurd_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The memory account: exact by category, with nothing left after a failure. */
#include "base/scratch.h"

#include "tensor/ops.h"

/* Absurd sizes are meant to be refused, also by the sanitizer's allocator. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static const char *const devices[] = {"cpu", "reference"};

static void assert_empty(const struct memory *memory)
{
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        assert_int_equal(memory->now[c], 0);
    assert_int_equal(memory->total, 0);
}

/* `now` follows every addition and removal, each category has a peak of its own, and the total's
 * peak is the peak of the sum, not the sum of peaks. */
static void account_is_exact(void **state)
{
    (void)state;
    struct memory m = {0};
    memory_add(&m, MEMORY_PARAMETERS, 100);
    memory_add(&m, MEMORY_GRADIENTS, 50);
    memory_remove(&m, MEMORY_PARAMETERS, 100);
    memory_add(&m, MEMORY_GRADIENTS, 20);
    assert_int_equal(m.now[MEMORY_PARAMETERS], 0);
    assert_int_equal(m.peak[MEMORY_PARAMETERS], 100);
    assert_int_equal(m.now[MEMORY_GRADIENTS], 70);
    assert_int_equal(m.peak[MEMORY_GRADIENTS], 70);
    assert_int_equal(m.peak[MEMORY_OUTER], 0);
    assert_int_equal(m.total, 70);
    assert_int_equal(m.total_peak, 150);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        for (int d = 0; d < c; d++)
            assert_string_not_equal(memory_category_name((enum memory_category)c),
                                    memory_category_name((enum memory_category)d));
}

/* A buffer costs count * element size in its own category; it is zeroed and aligned. */
static void buffers_are_paid_for(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct memory m = {0};
        struct device dev;
        assert_ok(device_open(&dev, devices[d], &m, 1));
        static const size_t counts[] = {0, 1, 33, 1000, (size_t)3 << 20};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct buffer a, b, tokens, marks;
            assert_ok(buffer_init(&tokens, &dev, DTYPE_I32, counts[i], MEMORY_ACTIVATIONS));
            assert_ok(buffer_init(&marks, &dev, DTYPE_U8, counts[i], MEMORY_ACTIVATIONS));
            assert_int_equal(m.now[MEMORY_ACTIVATIONS], 5 * counts[i]);
            assert_int_equal(tokens.view.place, dev.ops->place);
            assert_int_equal(view_at(marks.view, counts[i]).place, dev.ops->place);
            buffer_free(&tokens);
            buffer_free(&marks);
            assert_ok(buffer_init(&a, &dev, DTYPE_F32, counts[i], MEMORY_OPTIMIZER));
            assert_ok(buffer_init(&b, &dev, DTYPE_BF16, counts[i], MEMORY_COMMUNICATION));
            assert_int_equal(m.now[MEMORY_OPTIMIZER], 4 * counts[i]);
            assert_int_equal(m.now[MEMORY_COMMUNICATION], 2 * counts[i]);
            assert_int_equal(m.total, 6 * counts[i]);
            assert_int_equal((uintptr_t)a.view.data % 64, 0);
            for (size_t j = 0; j < counts[i]; j++)
                assert_true(((float *)a.view.data)[j] == 0 && ((uint16_t *)b.view.data)[j] == 0);
            buffer_free(&a);
            buffer_free(&b);
            buffer_free(&b); /* a second time does nothing */
            assert_empty(&m);
        }
        assert_int_equal(m.peak[MEMORY_OPTIMIZER], 12 << 20);
        device_close(&dev);
    }
}

/* A size beyond any machine is SOTTO_ENOMEM with its category; nothing is accounted or left. */
static void absurd_buffers_are_refused(void **state)
{
    (void)state;
    struct memory m = {0};
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &m, 1));
    static const size_t counts[] = {(size_t)1 << 58, SIZE_MAX / 4, SIZE_MAX / 2, SIZE_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct buffer b;
        assert_fails(buffer_init(&b, &dev, DTYPE_F32, counts[i], MEMORY_GRADIENTS), SOTTO_ENOMEM,
                     "gradients");
        assert_int_equal(m.total_peak, 0);
        buffer_free(&b); /* harmless */
    }
    device_close(&dev);
}

/* Scratch grows to the largest request, is reused below it, and is paid for once. */
static void scratch_is_accounted(void **state)
{
    (void)state;
    struct memory m = {0};
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &m, 1));
    void *a = device_scratch(&dev, 1000);
    assert_non_null(a);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal(m.now[MEMORY_SCRATCH], 1000);
    assert_ptr_equal(device_scratch(&dev, 10), a);
    assert_int_equal(m.now[MEMORY_SCRATCH], 1000);
    void *b = device_scratch(&dev, 5000);
    memset(b, 1, 5000);
    assert_int_equal(m.now[MEMORY_SCRATCH], 5000);
    assert_ptr_equal(device_scratch(&dev, 5000), b);
    assert_ok(device_check(&dev));
    device_close(&dev);
    assert_empty(&m);
}

/* A failed allocation of scratch leaves the old scratch, and the next check reports the failure
 * once. */
static void scratch_failure_is_kept(void **state)
{
    (void)state;
    struct memory m = {0};
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &m, 1));
    assert_non_null(device_scratch(&dev, 100));
    assert_null(device_scratch(&dev, (size_t)1 << 60));
    assert_int_equal(m.now[MEMORY_SCRATCH], 100);
    assert_fails(device_check(&dev), SOTTO_ENOMEM, "scratch");
    assert_non_null(device_scratch(&dev, 50));
    device_close(&dev);
    assert_empty(&m);
}

static void unknown_device(void **state)
{
    (void)state;
    struct memory m = {0};
    struct device dev;
    assert_fails(device_open(&dev, "tpu", &m, 1), SOTTO_EINVAL, "'tpu'");
    assert_ok(device_open(&dev, "cpu", &m, 0)); /* 0: all cores, at least one */
    assert_true(dev.threads >= 1);
    device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(account_is_exact),           cmocka_unit_test(buffers_are_paid_for),
        cmocka_unit_test(absurd_buffers_are_refused), cmocka_unit_test(scratch_is_accounted),
        cmocka_unit_test(scratch_failure_is_kept),    cmocka_unit_test(unknown_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

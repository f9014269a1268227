/* Any number of threads makes the same bits, and takes the scratch that is counted. */
#include "tensor/op_check.h"

static void send_plainly(float *y, const float *x, size_t n)
{
    memcpy(y, x, n * sizeof *y);
}

static void sent_plainly(void)
{
}

/* Kernels that claim to write past the caches with many threads. */
struct sending {
    struct kernels kernels;
    struct vector_kernels vector;
};

static void make_send(struct sending *s, struct device *dev)
{
    s->kernels = *kernels_of(dev);
    s->vector = *s->kernels.vector;
    s->kernels.vector = &s->vector;
    if (!s->vector.send) {
        s->vector.send = send_plainly;
        s->vector.sent = sent_plainly;
    }
    dev->impl = &s->kernels;
}

/* Checks few threads, an odd number, or five, in turn; always one thread and many. */
static void check_threads(const struct op_case *c, unsigned half, size_t turn)
{
    static const int some[] = {2, 3, 5};
    const int threads[] = {1, some[turn % 3], 16};
    enum { DEVICES = sizeof threads / sizeof *threads };
    struct device dev[DEVICES];
    struct op_room room[DEVICES], begin;
    struct sending many;
    assert_ok(device_open(&dev[0], "cpu", &memory, threads[0]));
    assert_ok(op_room_init(&begin, &dev[0], c, half));
    const void *impl = dev[0].impl;
    for (int t = 0; t < DEVICES; t++) {
        if (t > 0)
            assert_ok(device_open(&dev[t], "cpu", &memory, threads[t]));
        if (t == DEVICES - 1)
            make_send(&many, &dev[t]);
        assert_ok(op_room_copy(&room[t], &dev[t], &begin, half));
        for (int pass = 0; pass < family_of(c)->passes; pass++)
            op_room_run(&room[t], pass);
        for (int i = 0; i < room[t].n; i++) {
            size_t bytes = room[t].operand[i].count * dtype_size(room[t].view[i].type);
            if (bytes && memcmp(room[t].view[i].data, room[0].view[i].data, bytes) != 0) {
                print_case(c, half);
                fail_with("%s differs between 1 and %d threads", room[t].operand[i].name,
                          threads[t]);
            }
        }
    }
    op_room_free(&begin);
    dev[DEVICES - 1].impl = impl;
    for (int t = 0; t < DEVICES; t++) {
        op_room_free(&room[t]);
        device_close(&dev[t]);
    }
}

static void test_threads_give_equal_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < op_cases_count * HALVES; i++)
        if (op_share_has(i))
            check_threads(&op_cases[i / HALVES], halves[i % HALVES], i / (size_t)OP_STRIDE);
}

/* A fresh gradient written over NaNs equals a gradient added to zeros; a bias's gradient is always
 * added. Most rows are more than kernels sum at once. */
enum { MOST_ROWS = 1700 };

static void fresh_gradients(struct device *dev, const char *kernels, int threads, int rows)
{
    enum { IN = 65, OUT = 150 };
    static float x[MOST_ROWS * IN], dy[MOST_ROWS * OUT], dw[2][IN * OUT], dbias[2][OUT];
    const struct view v_x = view_of(x, DTYPE_F32), v_dy = view_of(dy, DTYPE_F32);
    for (int i = 0; i < rows * IN; i++)
        x[i] = (float)sin(0.37 * i);
    for (int i = 0; i < rows * OUT; i++)
        dy[i] = (float)cos(0.73 * i);
    for (int i = 0; i < 8; i++) {
        const enum dtype type = i & 1 ? DTYPE_BF16 : DTYPE_F32;
        for (int fresh = 0; fresh < 2; fresh++) {
            const struct linear p = {rows,  IN,   OUT, i & 2 ? LINEAR_IN_OUT : LINEAR_OUT_IN,
                                     i & 4, fresh};
            const struct view to = view_of(dw[fresh], type);
            for (int o = 0; o < OUT; o++)
                dbias[fresh][o] = (float)o;
            dev->ops->fill(dev, to, IN * OUT, fresh ? NAN : 0);
            dev->ops->linear_backward_w(dev, &p, to, view_of(dbias[fresh], DTYPE_F32), v_dy, v_x);
        }
        for (size_t e = 0; e < IN * OUT; e++) {
            const double have = element(view_of(dw[1], type), e);
            const double want = element(view_of(dw[0], type), e);
            if (!(have == want))
                fail_with("%s, %d threads, case %d: dw[%zu] is %g, added to zeros %g", kernels,
                          threads, i, e, have, want);
        }
        assert_memory_equal(dbias[1], dbias[0], sizeof *dbias);
    }
}

static void test_fresh_gradients(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 5, 16};
    struct device dev;
    EACH_SHARED(i, SANITIZED ? share_step(3) : 1, 4 * VARIANTS) {
        const char *kernels = variants[i % VARIANTS];
        const int team = threads[i / VARIANTS];
        struct sending many;
        assert_ok(device_open(&dev, "cpu", &memory, team));
        if (cpu_select(&dev, kernels) == SOTTO_OK) {
            const void *impl = dev.impl;
            make_send(&many, &dev);
            fresh_gradients(&dev, kernels, team, MOST_ROWS);
            dev.impl = impl;
        }
        device_close(&dev);
    }
    assert_ok(device_open(&dev, "reference", &memory, 1));
    fresh_gradients(&dev, "reference", 1, 17);
    device_close(&dev);
}

/* Returns the bytes of scratch of a pass, on a device without scratch before. */
static size_t scratch_of(struct device *dev, const struct op_case *c, unsigned half, int pass)
{
    struct op_room room;
    assert_ok(op_room_make(&room, dev, c, half));
    op_room_run(&room, pass);
    op_room_free(&room);
    const size_t bytes = dev->memory->peak[MEMORY_SCRATCH];
    device_close(dev);
    return bytes;
}

/* A device that only counts takes the same scratch as the real device, for ops with much
 * scratch. */
static void test_scratch_is_counted(void **state)
{
    (void)state;
    int counted = 0;
    for (int i = 0; i < (int)op_cases_count; i++) {
        const struct op_case *c = &op_cases[i];
        if (strcmp(c->op, "linear") != 0 && strcmp(c->op, "attention") != 0 &&
            strcmp(c->op, "conv") != 0)
            continue;
        for (int k = 0; k < HALVES * family_of(c)->passes; k++) {
            if (!op_share_has((size_t)(i * HALVES + k % HALVES)))
                continue;
            const int pass = k / HALVES, threads = 1 + 3 * (i % 2);
            struct memory real = {0}, counts = {0};
            struct device dev, counting;
            assert_ok(device_open(&dev, "cpu", &real, threads));
            assert_ok(device_open_counting(&counting, "cpu", &counts, threads));
            const size_t want = scratch_of(&dev, c, halves[k % HALVES], pass);
            const size_t got = scratch_of(&counting, c, halves[k % HALVES], pass);
            if (got != want) {
                print_case(c, halves[k % HALVES]);
                fail_with("pass %d takes %zu bytes of scratch, counted as %zu", pass, want, got);
            }
            assert_int_equal(counts.total, 0);
            counted += got > 0;
        }
    }
    assert_true(counted > (OP_STRIDE == 1 ? 100 : 0));
}

/* The last, smaller batch of an epoch takes no more scratch than the batches before. */
static void test_fewer_rows_take_no_more_scratch(void **state)
{
    (void)state;
    static const int rows[] = {4, 100, 800, 1024, 1500, 1536, 1537, 1600, 2048, 3000, 8192};
    static const int sides[][2] = {{768, 768}, {768, 3072}, {3072, 768}, {384, 20000}};
    static const unsigned kinds[] = {0, KIND_GRADIENT, KIND_GRADIENT | KIND_WEIGHT};
    for (size_t i = 0; i < 2 * 4 * 3; i++) {
        const int *side = sides[i / 6];
        const unsigned half = kinds[i % 3];
        size_t most = 0;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const struct op_case c = {"linear", {rows[r], side[0], side[1]}, CASE_BOTH};
            struct memory counts = {0};
            struct device counting;
            assert_ok(device_open_counting(&counting, "cpu", &counts, i / 3 % 2 ? 16 : 4));
            const size_t bytes = scratch_of(&counting, &c, half, 2);
            if (bytes < most) {
                print_case(&c, half);
                fail_with("takes %zu bytes of scratch, fewer rows %zu", bytes, most);
            }
            most = bytes;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scratch_is_counted),
        cmocka_unit_test(test_fewer_rows_take_no_more_scratch),
        cmocka_unit_test(test_threads_give_equal_bits),
        cmocka_unit_test(test_fresh_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

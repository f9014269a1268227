/* The separate-memory device has the cpu's bits, and shows a host access and a missing wait. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scratch.h"
#include "tensor/op_cases.h"

static struct memory memory;

static void open_device(struct device *dev, const char *name)
{
    assert_ok(device_open(dev, name, &memory, 1));
}

/* Returns the bytes of an operand, to be freed. */
static void *bytes_of(struct op_room *room, int i)
{
    const size_t count = room->operand[i].count;
    void *host = calloc(count + 1, 4);
    assert_non_null(host);
    room->dev->ops->read(room->dev, host, room->view[i], count);
    return host;
}

static void check_case(const struct op_case *c, unsigned half)
{
    struct device dev[2];
    struct op_room room[2];
    for (int d = 0; d < 2; d++) {
        open_device(&dev[d], d ? "apart" : "cpu");
        assert_ok(op_room_init(&room[d], &dev[d], c, half));
        for (int pass = 0; pass < family_of(c)->passes; pass++)
            op_room_run(&room[d], pass);
        assert_ok(device_check(&dev[d]));
    }
    for (int i = 0; i < room[0].n; i++) {
        if (!room[0].operand[i].count)
            continue;
        void *want = bytes_of(&room[0], i), *got = bytes_of(&room[1], i);
        assert_memory_equal(got, want, room[0].operand[i].count * dtype_size(room[0].view[i].type));
        free(want);
        free(got);
    }
    for (int d = 0; d < 2; d++) {
        op_room_free(&room[d]);
        device_close(&dev[d]);
    }
    assert_int_equal(memory.total, 0);
}

static void ops_have_the_cpus_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < op_cases_count; i++) {
        if (i > 0 && (i + (size_t)share_first(LEAP, LEAP)) % (size_t)LEAP &&
            family_of(&op_cases[i]) == family_of(&op_cases[i - 1]))
            continue; /* keep the first case of every op */
        if (op_case_elements(&op_cases[i]) > 2000000 && !share_has(i, SANITIZED ? 4 * LEAP : 6))
            continue;
        check_case(&op_cases[i], 0);
        check_case(&op_cases[i], KIND_WEIGHT);
    }
}

/* Issues many calls, some of them long, so that the ring is full and wraps at every place. A write
 * has copied the host's data when the call returns. */
static void order_is_kept(void **state)
{
    (void)state;
    enum { N = 9000, CALLS = SANITIZED ? 400 : 2000 };
    struct device dev;
    struct buffer x;
    static float host[N];
    open_device(&dev, "apart");
    assert_ok(buffer_init(&x, &dev, DTYPE_F32, N, MEMORY_OUTER));
    for (int i = 0; i < CALLS; i++) {
        const size_t count = (size_t)(i * 37 % N + 1); /* some fit a call, some do not */
        for (size_t k = 0; k < count; k++)
            host[k] = (float)i;
        dev.ops->write(&dev, x.view, host, count);
        memset(host, 0xff, count * sizeof *host);
        dev.ops->axpy(&dev, x.view, 1, x.view, count);
        if (i % 100 == 99) {
            dev.ops->read(&dev, host, x.view, count);
            assert_true(host[0] == 2 * (float)i && host[count - 1] == 2 * (float)i);
        }
    }
    buffer_free(&x); /* runs after the ops that use x */
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

/* A view knows its place, is aligned as on the cpu, and a new buffer has zeros. */
static void memory_is_a_devices(void **state)
{
    (void)state;
    struct device dev;
    struct buffer x;
    uint8_t host[100];
    open_device(&dev, "apart");
    assert_ok(buffer_init(&x, &dev, DTYPE_U8, sizeof host, MEMORY_OUTER));
    assert_int_equal(x.view.place, PLACE_DEVICE);
    assert_int_equal(view_at(x.view, 3).place, PLACE_DEVICE);
    assert_int_equal((uintptr_t)x.view.data % 64, 0);
    memset(host, 1, sizeof host);
    dev.ops->read(&dev, host, x.view, sizeof host);
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], 0);
    assert_int_equal(memory.now[MEMORY_OUTER], sizeof host);
    buffer_free(&x);
    device_close(&dev);
}

/* A process that reads or writes the memory on the host ends by a signal. */
static void host_access_crashes(void **state)
{
    (void)state;
    struct device dev;
    struct buffer x;
    open_device(&dev, "apart");
    assert_ok(buffer_init(&x, &dev, DTYPE_F32, 10, MEMORY_OUTER));
    for (int writes = 0; writes < 2; writes++) {
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* no handler of a sanitizer */
            signal(SIGBUS, SIG_DFL);
            volatile float *data = x.view.data;
            if (writes)
                *data = 1;
            _exit(*data == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_true(WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
    }
    buffer_free(&x);
    device_close(&dev);
}

enum { ROUNDS = 40 };

/* Returns the number of wrong copies of ROUNDS: a context computes x, another context copies x,
 * after a mark of the first context if it `follows`. */
static int wrong_copies(struct device *dev, bool follows)
{
    enum { N = 64 };
    struct buffer x, y;
    float host[N];
    int wrong = 0;
    assert_ok(buffer_init(&x, &dev[0], DTYPE_F32, N, MEMORY_OUTER));
    assert_ok(buffer_init(&y, &dev[1], DTYPE_F32, N, MEMORY_OUTER));
    for (int i = 1; i <= ROUNDS; i++) {
        dev[0].ops->fill(&dev[0], x.view, N, (float)i);
        if (follows)
            device_follow(&dev[1], device_mark(&dev[0]));
        dev[1].ops->copy(&dev[1], y.view, x.view, N);
        dev[1].ops->read(&dev[1], host, y.view, N);
        wrong += host[0] != (float)i || host[N - 1] != (float)i;
        assert_ok(device_check(&dev[0]));
    }
    buffer_free(&x);
    buffer_free(&y);
    return wrong;
}

#if defined(SANITIZED_THREAD)
enum { RACES_ARE_REPORTED = 1 };
#else
enum { RACES_ARE_REPORTED = 0 };
#endif

/* First with random delays, then without a thread: an op then runs only when a caller waits, so
 * every copy without a follow is wrong. */
static void missing_follow_shows(void **state)
{
    (void)state;
    struct device dev[2];
    for (int delayed = 1; delayed >= 0; delayed--) {
        if (delayed)
            assert_int_equal(setenv("SOTTO_APART_DELAY", "2000", 1), 0);
        for (int i = 0; i < 2; i++)
            open_device(&dev[i], "apart");
        assert_int_equal(unsetenv("SOTTO_APART_DELAY"), 0);
        assert_int_equal(wrong_copies(dev, true), 0);
        if (!delayed)
            assert_int_equal(wrong_copies(dev, false), ROUNDS);
        else if (!RACES_ARE_REPORTED)
            assert_true(wrong_copies(dev, false) > 0);
        for (int i = 0; i < 2; i++)
            device_close(&dev[i]);
        assert_int_equal(memory.total, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_have_the_cpus_bits), cmocka_unit_test(order_is_kept),
        cmocka_unit_test(memory_is_a_devices),    cmocka_unit_test(host_access_crashes),
        cmocka_unit_test(missing_follow_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

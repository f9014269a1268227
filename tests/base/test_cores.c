#define _GNU_SOURCE /* sched_setaffinity */
/* The number of cores that a process may use: the cores bound to the process, and the time allowed
 * by its groups. */
#include "base/file.h"
#include "base/machine/cores.h"
#include "base/scratch.h"

#include <sched.h>
#include <sys/resource.h>

static void assert_quota(const char *root, int cores)
{
    if (cores_quota(at(root)) != cores)
        fail_with("%s: %d cores, want %d", root, cores_quota(at(root)), cores);
}

static void no_quota(void **state)
{
    (void)state;
    assert_quota("nowhere", 0);
    put_file("none/proc/self/cgroup", "0::/job\n");
    assert_quota("none", 0);
    put_file("none/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    assert_quota("none", 0);
    assert_int_equal(cores_allowed(at("none")), cores_bound());
}

/* The smallest quota of the group and its parents, rounded up. */
static void version_2(void **state)
{
    (void)state;
    put_file("v2/proc/self/cgroup", "0::/slice/job/step\n");
    put_file("v2/sys/fs/cgroup/slice/job/step/cpu.max", "max 100000\n");
    put_file("v2/sys/fs/cgroup/slice/job/cpu.max", "250000 100000\n");
    assert_quota("v2", 3);
    put_file("v2/sys/fs/cgroup/slice/cpu.max", "400000 100000\n");
    assert_quota("v2", 3);
    put_file("v2/sys/fs/cgroup/slice/job/step/cpu.max", "50000 50000\n");
    assert_quota("v2", 1);
    put_file("v2/sys/fs/cgroup/slice/job/step/cpu.max", "1000 50000\n");
    assert_quota("v2", 1);
    assert_int_equal(cores_allowed(at("v2")), 1);
}

/* A container sees its own group as the top, under a name from outside. */
static void container(void **state)
{
    (void)state;
    put_file("in/proc/self/cgroup", "0::/../../docker/abc\n");
    put_file("in/sys/fs/cgroup/cpu.max", "150000 100000\n");
    assert_quota("in", 2);
}

static void version_1(void **state)
{
    (void)state;
    put_file("v1/proc/self/cgroup", "5:cpuset:/x\n4:cpuacct,cpu:/docker/abc\n1:name=systemd:/\n");
    put_file("v1/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put_file("v1/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put_file("v1/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n"); /* of another group */
    put_file("v1/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_quota("v1", 0);
    put_file("v1/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "410000\n");
    put_file("v1/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_quota("v1", 5);
}

static void bound(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cores_bound(), CPU_COUNT(&all));
    int core = 0;
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cores_bound(), 1);
    put_file("wide/proc/self/cgroup", "0::/\n");
    put_file("wide/sys/fs/cgroup/cpu.max", "800000 100000\n");
    assert_int_equal(cores_allowed(at("wide")), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* A limit of address space represents all limits: every thread has a stack. */
static void threads_that_cannot_be(void **state)
{
    (void)state;
    enum { MANY = 30000 };
    struct rlimit before, limit;
    assert_ok(cores_try_threads(0));
    assert_ok(cores_try_threads(3));
#if !defined(SANITIZED_ADDRESS) && !defined(SANITIZED_THREAD) /* sanitizers map terabytes */
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_fails(cores_try_threads(MANY), SOTTO_ENOMEM, "cannot start 30000 more threads");
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_ok(cores_try_threads(3)); /* the threads of the call before have ended */
#else
    (void)before, (void)limit;
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_quota),  cmocka_unit_test(version_2),
        cmocka_unit_test(container), cmocka_unit_test(version_1),
        cmocka_unit_test(bound),     cmocka_unit_test(threads_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

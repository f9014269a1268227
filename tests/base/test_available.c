/* Memory that is left: the smallest of several limits, in the kernel's file formats. */
#include "base/file.h"
#include "base/machine/available.h"
#include "base/scratch.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

static void assert_available(const char *root, double bytes, const char *by)
{
    struct available a = available_memory(at(root));
    if (a.bytes != bytes || !strstr(a.by, by))
        fail_with("%s: %.0f bytes by %s, want %.0f by %s", root, a.bytes, a.by, bytes, by);
}

static void nothing_known(void **state)
{
    (void)state;
    assert_available("nowhere", INFINITY, "nothing");
}

static void the_machine(void **state)
{
    (void)state;
    put_file("m/proc/meminfo", "MemTotal:       200 kB\nMemFree:  1 kB\nMemAvailable:     50 kB\n");
    assert_available("m", 50 * 1024, "this machine");
    put_file("m/proc/self/cgroup", "0::/\n"); /* a group without limits changes nothing */
    put_file("m/sys/fs/cgroup/memory.max", "max\n");
    put_file("m/sys/fs/cgroup/memory.current", "1000\n");
    assert_available("m", 50 * 1024, "this machine");
}

/* A limit may be set in any parent group; cache that can be dropped counts as free. */
static void version_2(void **state)
{
    (void)state;
    put_file("v2/proc/meminfo", "MemAvailable:     50 kB\n");
    put_file("v2/proc/self/cgroup", "0::/system.slice/job/step\n");
    put_file("v2/sys/fs/cgroup/system.slice/job/memory.max", "30000\n");
    put_file("v2/sys/fs/cgroup/system.slice/job/memory.current", "20000\n");
    assert_available("v2", 10000, "memory.max");
    put_file("v2/sys/fs/cgroup/system.slice/job/memory.stat",
             "anon 7\nfile 9000\ninactive_file 5000\n");
    assert_available("v2", 15000, "memory.max");
    put_file("v2/sys/fs/cgroup/system.slice/job/step/memory.max", "1000\n");
    put_file("v2/sys/fs/cgroup/system.slice/job/step/memory.current", "3000\n");
    assert_available("v2", 0, "memory.max");
}

static void version_1(void **state)
{
    (void)state;
    put_file("v1/proc/meminfo", "MemAvailable:     50 kB\n");
    put_file("v1/proc/self/cgroup",
             "5:cpuset:/x\n4:hugetlb,memory:/docker/abc\n1:name=systemd:/\n");
    put_file("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_file("v1/sys/fs/cgroup/memory/memory.usage_in_bytes", "40000\n");
    assert_available("v1", 50 * 1024, "this machine");
    put_file("v1/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "20000\n");
    put_file("v1/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "8000\n");
    put_file("v1/sys/fs/cgroup/memory/docker/abc/memory.stat",
             "cache 1\ntotal_inactive_file 500\n");
    assert_available("v1", 12500, "memory.limit_in_bytes");
}

static void address_space(void **state)
{
    (void)state;
    struct rlimit before, set;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    set = before;
    set.rlim_cur = (rlim_t)1 << 46; /* more than sanitizers reserve */
    assert_int_equal(setrlimit(RLIMIT_AS, &set), 0);
    put_file("as/proc/self/statm", "1024 7 7 7 0 7 0\n");
    assert_available("as", 0x1p46 - 1024.0 * (double)sysconf(_SC_PAGESIZE), "ulimit -v");
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_known), cmocka_unit_test(the_machine),
        cmocka_unit_test(version_2),     cmocka_unit_test(version_1),
        cmocka_unit_test(address_space),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

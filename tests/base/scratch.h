/* Shared by the tests of base and io: cmocka, a folder that is removed at the end, and assertions
 * on a status. */
#ifndef SOTTO_TESTS_BASE_SCRATCH_H
#define SOTTO_TESTS_BASE_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* cmocka's macro has the name of our function (and breaks cmocka's fail_msg) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/share.h"
#include "base/status.h"

#define fail_with(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        enum sotto_status st_ = (call);                                                            \
        if (st_ != SOTTO_OK)                                                                       \
            fail_with("%s: %s: %s", #call, sotto_status_name(st_), sotto_error());                 \
    } while (0)

/* Fails with this code and a message that contains `part`. */
#define assert_fails(call, code, part)                                                             \
    do {                                                                                           \
        enum sotto_status st_ = (call);                                                            \
        if (st_ != (code) || !strstr(sotto_error(), part))                                         \
            fail_with("%s: want %s with '%s', got %s: %s", #call, sotto_status_name(code), part,   \
                      sotto_status_name(st_), sotto_error());                                      \
    } while (0)

/* Runs a run's share of the program's cases: every `step`-th, or more rarely on a device with
 * separate memory; without a share all cases. */
static inline int run_shared(const char *name, const struct CMUnitTest *tests, size_t cases,
                             int step, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    enum { MOST_CASES = 64 };
    struct CMUnitTest taken[MOST_CASES];
    size_t n = 0;
    assert_true(cases <= MOST_CASES);
    if (strcmp(test_device(), "apart") == 0)
        step = 3;
    if (!share_given())
        step = 1;
    EACH_SHARED(i, share_step(step), cases)
        taken[n++] = tests[i];
    return _cmocka_run_group_tests(name, taken, n, setup, teardown);
}

#define run_cases(tests, step, setup, teardown)                                                    \
    run_shared(#tests, tests, sizeof(tests) / sizeof *(tests), step, setup, teardown)

static char scratch[128];

static inline int scratch_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/sotto-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return file_remove_tree(scratch) == SOTTO_OK ? 0 : -1;
}

/* Returns a path in the scratch folder; each thread may use four paths at a time. */
static inline const char *at(const char *name)
{
    static _Thread_local char path[4][FILE_PATH_ROOM];
    static _Thread_local int turn;
    char *out = path[turn++ % 4];
    assert_ok(file_join(out, scratch, name));
    return out;
}

/* Writes a file in the scratch folder, and makes its parent folders. */
static inline void put_file(const char *name, const char *text)
{
    char folder[FILE_PATH_ROOM];
    snprintf(folder, sizeof folder, "%s", at(name));
    *strrchr(folder, '/') = '\0';
    assert_ok(file_make_directories(folder));
    assert_ok(file_write(at(name), text, strlen(text)));
}

/* Returns the whole file as text; the caller frees it. */
static inline char *slurp(const char *path)
{
    char *text;
    size_t size;
    assert_ok(file_read(path, 1 << 26, &text, &size));
    return text;
}

#endif

/* The share of many like cases that one run takes. SOTTO_TEST_SHARE=K chooses the share, so that
 * runs with all K together take all cases; with SOTTO_TEST_SHARE=K/N loops take every N-th case,
 * with 0/1 all cases. A test prints its K: the same K repeats a failure. Without K a run on the cpu
 * and without sanitizers takes all cases. */
#ifndef SOTTO_TESTS_BASE_SHARE_H
#define SOTTO_TESTS_BASE_SHARE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitized.h"

#if defined(SANITIZED_ADDRESS) || defined(SANITIZED_THREAD)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Returns the device of tests that run on several devices; the cpu unless ctest sets another. */
static inline const char *test_device(void)
{
    const char *name = getenv("SOTTO_TEST_DEVICE");
    return name ? name : "cpu";
}

/* Returns N of SOTTO_TEST_SHARE=K/N, otherwise `usual`. */
static inline int share_step(int usual)
{
    const char *share = getenv("SOTTO_TEST_SHARE");
    const char *of = share ? strchr(share, '/') : NULL;
    return of && atoi(of + 1) > 0 ? atoi(of + 1) : usual;
}

/* Returns K of the share, and prints it once; 0 without a share. */
static inline unsigned long share_number(void)
{
    static bool printed;
    const char *share = getenv("SOTTO_TEST_SHARE");
    if (share && !printed)
        printf("SOTTO_TEST_SHARE=%s\n", share);
    printed = true;
    return share ? strtoul(share, NULL, 10) : 0;
}

/* True if this run takes a share, also where a run takes all cases without one. */
static inline bool share_given(void)
{
    return getenv("SOTTO_TEST_SHARE") != NULL;
}

/* True if this is one of every `step` cases that a run with a share takes; without a share all
 * cases are taken. */
static inline bool share_has(size_t index, int step)
{
    const unsigned long of = (unsigned long)share_step(step);
    return !share_given() || (index + share_number()) % of == 0;
}

/* Returns the first case of a loop with this step; every loop takes one case at least. */
static inline int share_first(int step, size_t cases)
{
    const size_t of = (size_t)step < cases ? (size_t)step : cases;
    return step == 1 ? 0 : (int)(share_number() % of);
}

/* The step of cases of methods whose workers race: all of them where races are looked for. */
#ifdef SANITIZED_THREAD
enum { RACE_STRIDE = 1 };
#else
enum { RACE_STRIDE = SANITIZED ? 3 : 1 };
#endif

/* The step of loops over many like cases: few cases have all of a race, a missing wait or a write
 * past its memory, and sanitizers or a device with separate memory make each case slow. The step
 * divides no count of cases. */
#ifdef SANITIZED_THREAD
#define STRIDE share_step(share_given() ? 37 : 11)
#else
#define STRIDE                                                                                     \
    share_step(strcmp(test_device(), "cpu") != 0 ? 11 : !SANITIZED ? 1 : share_given() ? 13 : 7)
#endif

/* The step of loops over cases of ops: no op has fewer than 15, with each mix of types. */
#define OP_STRIDE share_step(!SANITIZED ? 1 : share_given() ? 13 : 4)

/* The step of loops that are all arithmetic: few cases have every write past memory. */
#define LEAP share_step(!SANITIZED ? 1 : share_given() ? 7 : 5)

/* Loops over this run's share of the cases. */
#define EACH_SHARED(i, step, cases)                                                                \
    for (int i = share_first(step, cases); i < (int)(cases); i += step)

#endif

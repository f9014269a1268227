/* Part of every test program: SOTTO_TEST_CASE=PATTERN runs the cases whose names match. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>

__attribute__((constructor)) static void filter_cases(void)
{
    const char *pattern = getenv("SOTTO_TEST_CASE");
    if (pattern)
        cmocka_set_test_filter(pattern);
}

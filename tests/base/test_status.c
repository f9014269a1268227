/* Messages: one per thread, with context in front. */
#include "base/log.h"
#include "base/scratch.h"

#include <errno.h>
#include <pthread.h>

static enum sotto_status inner(int columns)
{
    if (columns != 768)
        return fail(SOTTO_EFORMAT, "want %d columns, file has %d", 768, columns);
    return SOTTO_OK;
}

static enum sotto_status middle(int columns)
{
    TRY(fail_in(inner(columns), "layer %d: ", 7));
    return SOTTO_OK;
}

static enum sotto_status outer(int columns, bool *released)
{
    enum sotto_status st;
    TRY_DONE(fail_in(middle(columns), "%s: ", "model"));
done:
    *released = true;
    return st;
}

static void nesting(void **state)
{
    (void)state;
    bool released = false;
    assert_int_equal(outer(1024, &released), SOTTO_EFORMAT);
    assert_true(released);
    assert_string_equal(sotto_error(), "model: layer 7: want 768 columns, file has 1024");
    assert_int_equal(outer(768, &released), SOTTO_OK); /* a success leaves the message unchanged */
    assert_string_equal(sotto_error(), "model: layer 7: want 768 columns, file has 1024");
}

static void messages_may_quote_themselves(void **state)
{
    (void)state;
    fail(SOTTO_EIO, "cause");
    fail(SOTTO_EIO, "again %s", sotto_error());
    assert_string_equal(sotto_error(), "again cause");
    fail_in(SOTTO_EIO, "%s, ", sotto_error());
    assert_string_equal(sotto_error(), "again cause, again cause");
}

static void system_errors(void **state)
{
    (void)state;
    errno = ENOSPC;
    assert_int_equal(fail_errno(SOTTO_EIO, "cannot write %s", "x"), SOTTO_EIO);
    assert_string_equal(sotto_error(), "cannot write x: No space left on device");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[3 * STATUS_ROOM];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    fail(SOTTO_EIO, "%s", text);
    assert_int_equal(strlen(sotto_error()), STATUS_ROOM - 1);
    fail_in(SOTTO_EIO, "%s", text);
    assert_int_equal(strlen(sotto_error()), STATUS_ROOM - 1);
    fail_errno(SOTTO_EIO, "%s", text);
    assert_int_equal(strlen(sotto_error()), STATUS_ROOM - 1);
}

static void *other_thread(void *arg)
{
    assert_string_equal(sotto_error(), "");
    status_save(arg, fail(SOTTO_EPEER, "from the other thread"));
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct status_note note;
    pthread_t thread;
    fail(SOTTO_EIO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &note), 0);
    pthread_join(thread, NULL);
    assert_string_equal(sotto_error(), "mine");
    assert_int_equal(status_raise(&note), SOTTO_EPEER);
    assert_string_equal(sotto_error(), "from the other thread");
    note.code = SOTTO_OK;
    fail(SOTTO_EIO, "kept");
    assert_int_equal(status_raise(&note), SOTTO_OK);
    assert_string_equal(sotto_error(), "kept");
}

static void names(void **state)
{
    (void)state;
    for (int i = SOTTO_OK; i <= SOTTO_EPEER; i++) {
        assert_non_null(sotto_status_name((enum sotto_status)i));
        assert_string_not_equal(sotto_status_name((enum sotto_status)i), "unknown");
    }
    assert_string_equal(sotto_status_name((enum sotto_status)99), "unknown");
    assert_non_null(sotto_version());
}

static void sink(enum log_level level, const char *line, void *arg)
{
    snprintf(arg, 64, "%d %s", (int)level, line);
}

static void log_lines(void **state)
{
    (void)state;
    char seen[64] = "";
    log_info("dropped");
    log_set(sink, seen);
    log_warn("x = %d", 3);
    assert_string_equal(seen, "1 x = 3");
    log_info("y");
    assert_string_equal(seen, "0 y");
    log_set(NULL, NULL);
    log_info("dropped");
    assert_string_equal(seen, "0 y");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesting),       cmocka_unit_test(messages_may_quote_themselves),
        cmocka_unit_test(system_errors), cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(threads),       cmocka_unit_test(names),
        cmocka_unit_test(log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[STATUS_ROOM];

enum sotto_status fail(enum sotto_status code, const char *format, ...)
{
    char text[STATUS_ROOM]; /* an argument may point into `message` */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return code;
}

enum sotto_status fail_in(enum sotto_status code, const char *format, ...)
{
    if (code == SOTTO_OK)
        return code;
    char text[STATUS_ROOM];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "%s", message);
    memcpy(message, text, sizeof message);
    return code;
}

enum sotto_status fail_errno(enum sotto_status code, const char *format, ...)
{
    int cause = errno;
    char text[STATUS_ROOM], reason[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (strerror_r(cause, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", cause);
    return fail(code, "%s: %s", text, reason);
}

void status_save(struct status_note *note, enum sotto_status code)
{
    note->code = code;
    memcpy(note->text, message, sizeof message);
}

enum sotto_status status_raise(const struct status_note *note)
{
    if (note->code != SOTTO_OK)
        memcpy(message, note->text, sizeof message);
    return note->code;
}

const char *sotto_error(void)
{
    return message;
}

const char *sotto_status_name(enum sotto_status status)
{
    static const char *const name[] = {
        [SOTTO_OK] = "ok",
        [SOTTO_EINVAL] = "invalid",
        [SOTTO_EFORMAT] = "format",
        [SOTTO_EIO] = "i/o",
        [SOTTO_ENOMEM] = "no memory",
        [SOTTO_ENUMERIC] = "numeric",
        [SOTTO_ESTOPPED] = "stopped",
        [SOTTO_EPEER] = "peer",
    };
    if ((unsigned)status >= sizeof name / sizeof *name)
        return "unknown";
    return name[status];
}

const char *sotto_version(void)
{
    return SOTTO_VERSION;
}

/* Status codes with one message, made where the cause is known.
 *
 *     if (cols != want)
 *         return fail(SOTTO_EFORMAT, "layer %d wants %d columns, file has %d", i, want, cols);
 *
 * The message lives in thread-local storage, so several ranks in one process do not mix theirs;
 * code that hands a failure to another thread copies it with status_save/status_raise. */
#ifndef SOTTO_BASE_STATUS_H
#define SOTTO_BASE_STATUS_H

#include <sotto/sotto.h>

#define STATUS_ROOM 1024

struct status_note {
    enum sotto_status code;
    char text[STATUS_ROOM];
};

/* Sets the message and returns `code`. */
enum sotto_status fail(enum sotto_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Puts context in front of the message already set ("model.safetensors: " + "header is ...") and
 * returns `code`; does nothing for SOTTO_OK. */
enum sotto_status fail_in(enum sotto_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* `fail` with ": " and the text of errno behind the message. */
enum sotto_status fail_errno(enum sotto_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

void status_save(struct status_note *note, enum sotto_status code);
enum sotto_status status_raise(const struct status_note *note);

/* Return early from a function that has nothing to release. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum sotto_status try_ = (call);                                                           \
        if (try_ != SOTTO_OK)                                                                      \
            return try_;                                                                           \
    } while (0)

/* The same where something must be released: needs a local `st` and a label `done`. */
#define TRY_DONE(call)                                                                             \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != SOTTO_OK)                                                                        \
            goto done;                                                                             \
    } while (0)

#endif

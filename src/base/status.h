/* Status codes with one message, made where the cause is known.
 *
 *     if (cols != want)
 *         return fail(SOTTO_EFORMAT, "layer %d wants %d columns, file has %d", i, want, cols);
 *
 * The message is thread-local, so ranks in one process do not mix their messages; code that hands a
 * failure to another thread copies the message with status_save and status_raise. */
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

/* Puts context before the message ("model.safetensors: " + "header is ...") and returns `code`;
 * does nothing for SOTTO_OK. */
enum sotto_status fail_in(enum sotto_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the message, with ": " and the text of errno appended, and returns `code`. */
enum sotto_status fail_errno(enum sotto_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

void status_save(struct status_note *note, enum sotto_status code);
enum sotto_status status_raise(const struct status_note *note);

/* Returns early, from a function that has nothing to release. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum sotto_status try_ = (call);                                                           \
        if (try_ != SOTTO_OK)                                                                      \
            return try_;                                                                           \
    } while (0)

/* Jumps to a label `done` where something must be released; needs a local `st`. */
#define TRY_DONE(call)                                                                             \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != SOTTO_OK)                                                                        \
            goto done;                                                                             \
    } while (0)

#endif

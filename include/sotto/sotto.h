/* sotto: training neural networks over slow networks. This is the public contract.
 *
 * A function that can fail returns an enum sotto_status; a message with the cause is kept per
 * thread and read with sotto_error(). The library never exits and never prints. */
#ifndef SOTTO_SOTTO_H
#define SOTTO_SOTTO_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SOTTO_BUILD)
#define SOTTO_API __attribute__((visibility("default")))
#else
#define SOTTO_API
#endif

/* The result of a call. */
enum sotto_status {
    SOTTO_OK = 0,
    SOTTO_EINVAL,   /* a wrong argument, option or combination               */
    SOTTO_EFORMAT,  /* a file or message in a wrong format                   */
    SOTTO_EIO,      /* the operating system refused: no such file, full disk */
    SOTTO_ENOMEM,   /* not enough memory                                     */
    SOTTO_ENUMERIC, /* the loss or a parameter is not a finite number        */
    SOTTO_ESTOPPED, /* stopped on request (Ctrl-C); everything is saved      */
    SOTTO_EPEER,    /* another worker failed or was lost                     */
};

/* Version of the library as "major.minor.patch". */
SOTTO_API const char *sotto_version(void);

/* Returns the meaning of a status in a word or two, e.g. "format". Never NULL. */
SOTTO_API const char *sotto_status_name(enum sotto_status status);

/* Returns the message of the last failure on this thread; "" if no call has failed. Valid until the
 * next failing call on the same thread. */
SOTTO_API const char *sotto_error(void);

/* Runs a subcommand as the `sotto` program does: argv[0] is the subcommand ("train", "eval", ...),
 * the rest are its arguments. Output goes to the process's standard streams. */
SOTTO_API enum sotto_status sotto_command(int argc, const char *const *argv);

#ifdef __cplusplus
}
#endif

#include <sotto/train.h>
#endif

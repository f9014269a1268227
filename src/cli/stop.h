/* Ctrl-C stops a run after its round; a second Ctrl-C ends the process. */
#ifndef SOTTO_CLI_STOP_H
#define SOTTO_CLI_STOP_H

#include <stdatomic.h>

/* Texts for the moment of a signal, since a launcher may leave no time for later texts. The texts
 * must stay valid. */
struct stop_words {
    const char *asked; /* text after the signal's name; NULL: nothing is printed */
    const char *gone;  /* text after the name of a lost worker */
    /* (optional) Returns the name of a lost worker, "" if another worker reports the loss, NULL if
     * none is lost. With a lost worker the signal is no request to stop: a launcher ends the
     * remaining workers, and nothing can be saved. Called in the signal handler. */
    const char *(*lost)(const void *arg);
    const void *arg;
};
void stop_words(const struct stop_words *words); /* NULL: nothing is printed */

/* Installs the handlers for SIGINT, SIGTERM, SIGHUP (a closed terminal; ignored under nohup) and
 * SIGPIPE (the reader of `| less` has ended). The returned number becomes that of the received
 * signal. */
const atomic_int *stop_watch(void);

/* Returns the exit code of a process stopped by a signal, by the convention of shells: 128 plus the
 * number of the signal from stop_watch. */
int stop_code(void);

/* Returns the name of a signal, as "SIGTERM". */
const char *stop_name(int number);

#endif

/* Ctrl-C asks a run to stop after its round; a second one ends the process. */
#ifndef SOTTO_CLI_STOP_H
#define SOTTO_CLI_STOP_H

#include <signal.h>

/* What is printed the moment a signal arrives, since a launcher may not leave the time for another
 * word: `text` must stay. NULL: nothing. */
void stop_words(const char *text);

/* Begins to watch for SIGINT and SIGTERM; what is returned becomes non-zero when one arrives. */
const volatile sig_atomic_t *stop_watch(void);

#endif

/* Ctrl-C asks a run to stop after its round; a second one ends the process. */
#ifndef SOTTO_CLI_STOP_H
#define SOTTO_CLI_STOP_H

#include <stdatomic.h>

/* What is printed behind the name of a signal the moment it arrives, since a launcher may not leave
 * the time for another word: `text` must stay. NULL: nothing. */
void stop_words(const char *text);

/* Begins to watch for SIGINT, SIGTERM, SIGHUP (a closed terminal; left alone under nohup) and
 * SIGPIPE (`| less` that was left); what is returned becomes the number of the one that arrives. */
const atomic_int *stop_watch(void);

/* "SIGTERM" */
const char *stop_name(int number);

#endif

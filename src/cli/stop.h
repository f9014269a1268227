/* Ctrl-C asks a run to stop after its round; a second one ends the process. */
#ifndef SOTTO_CLI_STOP_H
#define SOTTO_CLI_STOP_H

#include <stdatomic.h>

/* What is printed the moment a signal arrives, since a launcher may not leave the time for another
 * word. The texts must stay. */
struct stop_words {
    const char *asked; /* text after the signal's name; NULL: nothing is printed */
    const char *gone;  /* text after the name of a worker that is gone           */
    /* (optional) That name, "": another worker says it, NULL: none is gone. Where one is, no stop
     * was asked for: a launcher ends the workers that are left, and nothing can be saved. Called in
     * the signal's handler. */
    const char *(*lost)(const void *arg);
    const void *arg;
};
void stop_words(const struct stop_words *words); /* NULL: nothing is printed */

/* Begins to watch for SIGINT, SIGTERM, SIGHUP (a closed terminal; left alone under nohup) and
 * SIGPIPE (`| less` that was left); what is returned becomes the number of the one that arrives. */
const atomic_int *stop_watch(void);

/* Returns the exit code of a process that a signal has stopped, as shells have it: 128 and the
 * number of the signal that stop_watch has seen. */
int stop_code(void);

/* "SIGTERM" */
const char *stop_name(int number);

#endif

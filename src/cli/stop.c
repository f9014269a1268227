#include "cli/stop.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A signal handler has nowhere else to write. */
static volatile sig_atomic_t asked;
static const char *volatile words;

static void on_signal(int number)
{
    const int cause = errno;
    (void)number;
    if (asked)
        _exit(130); /* a second one means it */
    asked = 1;
    if (words && write(STDERR_FILENO, words, strlen(words)) < 0)
        asked = 1; /* nobody is there to read it */
    errno = cause;
}

void stop_words(const char *text)
{
    words = text;
}

const volatile sig_atomic_t *stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    asked = 0;
    words = NULL;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &asked;
}

#include "cli/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A signal handler has nowhere else to write. */
static atomic_int asked;
static const char *volatile words;

const char *stop_name(int number)
{
    return number == SIGINT    ? "SIGINT"
           : number == SIGTERM ? "SIGTERM"
           : number == SIGPIPE ? "SIGPIPE"
                               : "SIGHUP";
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* nobody is there to read it */
}

static void on_signal(int number)
{
    const int cause = errno;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const bool gone = number == SIGHUP || number == SIGPIPE;
    if (asked && gone)
        return; /* a terminal that closes may say it more than once */
    if (asked)
        _exit(130); /* a second one means it */
    asked = number;
    if (gone) /* who read from us may have gone with the terminal: save all the same */
        sigaction(SIGPIPE, &ignore, NULL);
    if (words) {
        say("\n");
        say(stop_name(number));
        say(words);
    }
    errno = cause;
}

void stop_words(const char *text)
{
    words = text;
}

/* Unless it is ignored, as nohup and others have it. */
static void watch(int number, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(number, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        sigaction(number, action, NULL);
}

const atomic_int *stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    asked = 0;
    words = NULL;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    watch(SIGHUP, &action);
    watch(SIGPIPE, &action);
    return &asked;
}

#include "cli/stop.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* State of the signal handler, which has no argument. */
static atomic_int asked;
static atomic_llong asked_at; /* nanoseconds */
static atomic_bool said_lost;
static const struct stop_words *volatile words;

const char *stop_name(int number)
{
    return number == SIGINT    ? "SIGINT"
           : number == SIGTERM ? "SIGTERM"
           : number == SIGPIPE ? "SIGPIPE"
                               : "SIGHUP";
}

/* Writes three texts with one call, since a launcher that merges the output of ranks keeps one
 * write together. */
static void write_three(const char *first, const char *second, const char *third)
{
    const struct iovec text[] = {{(void *)(uintptr_t)first, strlen(first)},
                                 {(void *)(uintptr_t)second, strlen(second)},
                                 {(void *)(uintptr_t)third, strlen(third)}};
    if (writev(STDERR_FILENO, text, 3) < 0)
        return; /* no reader is left */
}

/* timeout(1) sends its signal twice, to the process and to the group: within this time a second
 * signal of the same number is the first one. */
enum { AGAIN_NANOSECONDS = 500000000 };

static long long stop_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

enum { LEFT_SECONDS = 10 }; /* grace for a process with a lost peer, which may be writing */

/* True if a worker is gone; reports the loss once. */
static bool report_lost(const struct stop_words *w)
{
    const char *name = w && w->lost ? w->lost(w->arg) : NULL;
    if (!name)
        return false;
    if (*name && w->gone && !said_lost) {
        write_three("\nsotto: ", name, w->gone);
    }
    said_lost = true;
    alarm(LEFT_SECONDS);
    return true;
}

static void handle_signal(int number)
{
    const int cause = errno;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const bool gone = number == SIGHUP || number == SIGPIPE;
    if (asked && gone)
        return; /* a closing terminal may signal more than once */
    if (asked == number && stop_clock() - asked_at < AGAIN_NANOSECONDS)
        return;
    if (asked)
        _exit(128 + number); /* the second signal ends the process */
    asked_at = stop_clock();
    asked = number;
    if (gone) /* the reader of our output may be gone with the terminal: save all the same */
        sigaction(SIGPIPE, &ignore, NULL);
    const struct stop_words *w = words;
    if (!report_lost(w) && w && w->asked) {
        write_three("\n", stop_name(number), w->asked);
    }
    errno = cause;
}

int stop_code(void)
{
    return 128 + (asked ? asked : SIGINT);
}

void stop_words(const struct stop_words *w)
{
    words = w;
}

/* Installs the action unless the signal is ignored, as under nohup. */
static void install_action(int number, const struct sigaction *action)
{
    struct sigaction before;
    if (sigaction(number, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        sigaction(number, action, NULL);
}

const atomic_int *stop_watch(void)
{
    struct sigaction action = {.sa_handler = handle_signal};
    asked = 0;
    words = NULL;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files (ulimit -f) fails instead */
    install_action(SIGHUP, &action);
    install_action(SIGPIPE, &action);
    return &asked;
}

#include "cli/stop.h"

#include <stddef.h>
#include <unistd.h>

/* A signal handler has nowhere else to write. */
static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    (void)number;
    if (asked)
        _exit(130); /* a second one means it */
    asked = 1;
}

const volatile sig_atomic_t *stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    asked = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &asked;
}

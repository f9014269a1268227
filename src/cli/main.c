#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"

/* OpenMP's threads spin for milliseconds between two pieces of work, and on a machine that others
 * use too they spin while the thread they wait for has no core: measured beside one busy process on
 * two cores, twenty times slower. How long they spin is read from the environment before main,
 * hence the second start. */
static void spin_less(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || getenv("KMP_BLOCKTIME"))
        return;
    setenv("GOMP_SPINCOUNT", "300", 1); /* gcc's runtime */
    setenv("KMP_BLOCKTIME", "0", 1);    /* clang's       */
    execv("/proc/self/exe", argv);      /* where that fails, go on as we are */
}

int main(int argc, char **argv)
{
    spin_less(argv);
    enum sotto_status st = command_main(argc, (const char *const *)argv);
    if (fflush(stdout) != 0 && st == SOTTO_OK) {
        fprintf(stderr, "sotto: cannot write to standard output\n");
        return 1;
    }
    if (st == SOTTO_OK)
        return 0;
    if (*sotto_error()) /* empty: said already */
        fprintf(stderr, "sotto: %s\n", sotto_error());
    return st == SOTTO_ESTOPPED ? 130 : 1;
}

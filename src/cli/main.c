#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "cli/command.h"
#include "cli/stop.h"

/* Moves the process from the first OpenMP place back to the cores of all places. Before main,
 * OpenMP's runtime has bound this thread to the first place (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY), and with it all later threads, so that every worker would share one core;
 * train.pin binds workers. */
static bool unbind_from_place(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};
    bool set = false;
    cpu_set_t all;
    CPU_ZERO(&all);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        set = set || getenv(names[i]);
        unsetenv(names[i]);
    }
    if (!set)
        return false;
#ifdef _OPENMP
    for (int place = 0; place < omp_get_num_places(); place++) {
        const int count = omp_get_place_num_procs(place);
        int *core = calloc((size_t)count + 1, sizeof *core);
        if (!core)
            return false;
        omp_get_place_proc_ids(place, core);
        for (int i = 0; i < count; i++)
            if (core[i] < CPU_SETSIZE)
                CPU_SET(core[i], &all);
        free(core);
    }
#endif
    return CPU_COUNT(&all) > 0 && sched_setaffinity(0, sizeof all, &all) == 0;
}

/* Shortens the spinning of OpenMP's threads between two pieces of work. On a machine with other
 * load, threads spin while the thread that they wait for has no core: twenty times slower with one
 * busy process on two cores. */
static bool spin_less(void)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || getenv("KMP_BLOCKTIME"))
        return false;
    setenv("GOMP_SPINCOUNT", "300", 1); /* gcc's runtime */
    setenv("KMP_BLOCKTIME", "0", 1);    /* clang's */
    return true;
}

/* Starts the program a second time if the environment has changed, which the runtime reads before
 * main. */
static void start_again(char **argv)
{
    const bool unbound = unbind_from_place(), quieter = spin_less();
    if (unbound || quieter)
        execv("/proc/self/exe", argv); /* on failure continue as started */
}

/* Names the process as its program: after the second start, ps would show "exe" for the process and
 * its threads. */
static void name_process(const char *program)
{
    const char *slash = strrchr(program, '/');
    prctl(PR_SET_NAME, slash ? slash + 1 : program);
}

int main(int argc, char **argv)
{
    start_again(argv);
    if (argc > 0)
        name_process(argv[0]);
    enum sotto_status st = command_main(argc, (const char *const *)argv);
    if (fflush(stdout) != 0 && st == SOTTO_OK) {
        fprintf(stderr, "sotto: cannot write to standard output\n");
        return 1;
    }
    if (st == SOTTO_OK)
        return 0;
    if (*sotto_error()) /* empty: printed before */
        fprintf(stderr, "sotto: %s\n", sotto_error());
    return st == SOTTO_ESTOPPED ? stop_code() : 1;
}

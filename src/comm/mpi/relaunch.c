/* The command that would start these ranks again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/option/option.h"
#include "comm/mpi/mpi_impl.h"

/* Open MPI's option for the seconds from SIGTERM to SIGKILL, and the variable that reports its
 * value to ranks. */
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
#define GRACE_OPTION "--prtemca odls_base_sigkill_timeout"
#define GRACE_VARIABLE "PRTE_MCA_odls_base_sigkill_timeout"
#else
#define GRACE_OPTION "--mca odls_base_sigkill_timeout"
#define GRACE_VARIABLE "OMPI_MCA_odls_base_sigkill_timeout"
#endif

/* Prints the time to stop that mpirun was given. No default is proposed: Open MPI waits for all of
 * this time, several times over, at every end by a signal or an error, even if its ranks have ended
 * long before. */
static void put_grace(FILE *out)
{
    const char *grace = getenv(GRACE_VARIABLE);
    if (grace && *grace)
        fprintf(out, " " GRACE_OPTION " %d", mpi_env_number(GRACE_VARIABLE));
}

/* Prints the options for `ranks` ranks on this machine that Open MPI demands. */
static void put_open_mpi(FILE *out, int ranks, bool crowded)
{
    if (geteuid() == 0)
        fputs(" --allow-run-as-root", out);
    if (crowded || ranks > sysconf(_SC_NPROCESSORS_ONLN))
        fputs(" --oversubscribe", out);
    put_grace(out);
}

/* Prints the options of the launcher; only Open MPI demands any. OMPI_UNIVERSE_SIZE is the number
 * of ranks started without --oversubscribe. */
static void put_launcher_options(FILE *out, int ranks)
{
    const int slots = mpi_env_number("OMPI_UNIVERSE_SIZE");
    const int size = mpi_env_number("OMPI_COMM_WORLD_SIZE");
    if (size > 0)
        put_open_mpi(out, ranks, slots > 0 && size > slots);
}

/* Returns the binding of ranks to cores that Open MPI was given; NULL: none, and Open MPI may
 * choose another one next time. */
static const char *core_binding(void)
{
    static const char *const variable[] = {"OMPI_MCA_hwloc_base_binding_policy",
                                           "PRTE_MCA_hwloc_default_binding_policy"};
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++) {
        const char *to = getenv(variable[i]);
        if (to && *to && !to[strspn(to, "abcdefghijklmnopqrstuvwxyz0123-:")])
            return to;
    }
    return NULL;
}

static bool under_mpirun(void)
{
    const char *launcher = mpi_launcher();
    return launcher && strcmp(launcher, "mpirun") == 0;
}

/* Returns the host file that Open MPI was given; NULL: none. The hosts of -H are not in the
 * environment. */
static const char *host_file(void)
{
    static const char *const variable[] = {"OMPI_MCA_orte_default_hostfile",
                                           "PRTE_MCA_prte_default_hostfile"};
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++)
        if (getenv(variable[i]) && *getenv(variable[i]))
            return getenv(variable[i]);
    return NULL;
}

/* Prints the launcher's own command without the program, with the time to stop and the binding that
 * the launcher's environment contains. */
static void put_as_started(const char *started, FILE *out)
{
    const bool bound = strstr(started, "bind-to") || strstr(started, "binding_policy");
    const char *end = strchr(started, '\n');
    fprintf(out, "%.*s", (int)(end - started), started);
    if (mpi_env_number("OMPI_COMM_WORLD_SIZE") > 0 && !strstr(started, "odls_base_sigkill_timeout"))
        put_grace(out);
    if (core_binding() && !bound)
        fprintf(out, " --bind-to %s", core_binding());
    fprintf(out, " %s", end + 1);
}

static void put_as_known(const struct comm *world, FILE *out)
{
    int here = 0;
    for (int r = 0; r < world->size; r++)
        here += mpi_same_machine(world, r);
    fputs(mpi_launcher(), out);
    if (!under_mpirun() && getenv("PMIX_RANK"))
        fputs(" --mpi=pmix", out);
    put_launcher_options(out, here);
    if (core_binding() && under_mpirun())
        fprintf(out, " --bind-to %s", core_binding());
    if (under_mpirun() && host_file()) {
        fputs(" --hostfile ", out);
        option_put_word(host_file(), out);
    }
    if (!under_mpirun() && mpi_env_number("SLURM_STEP_NUM_NODES") > 1)
        fprintf(out, " -N %d", mpi_env_number("SLURM_STEP_NUM_NODES"));
    fprintf(out, " -n %d ", world->size);
}

void mpi_print_launcher(const struct comm *world, FILE *out)
{
    if (!world || !mpi_launcher())
        return;
    if (under_mpirun() && *mpi_launch_command(world))
        put_as_started(mpi_launch_command(world), out);
    else
        put_as_known(world, out);
}

const char *mpi_launcher_missing(const struct comm *world)
{
    if (!world || !under_mpirun() || *mpi_launch_command(world) || host_file())
        return NULL;
    return mpi_env_number("OMPI_COMM_WORLD_SIZE") ? "with the same -H or --hostfile"
                                                  : "with the same -hosts or -f";
}

/* Prints the command of this program, quoted for a shell. */
static void put_program(FILE *out)
{
    char words[512] = "";
    FILE *f = fopen("/proc/self/cmdline", "r"); /* words, each with a zero byte after it */
    const size_t n = f ? fread(words, 1, sizeof words, f) : 0;
    if (f)
        fclose(f);
    if (n == 0 || words[n - 1]) /* not read, or longer than `words` */
        fputs(" PROGRAM ...", out);
    for (size_t at = 0; n > 0 && !words[n - 1] && at < n; at += strlen(words + at) + 1) {
        fputc(' ', out);
        option_put_word(words + at, out);
    }
}

enum sotto_status mpi_check_launcher(void)
{
    const int size = mpi_env_number("WORLD_SIZE"), here = mpi_env_number("LOCAL_WORLD_SIZE");
    const bool several = here > 0 && here < size; /* true if ranks are on several hosts */
    char *command = NULL;
    size_t length = 0;
    /* Variables under mpirun, even of one rank, are left from another launcher. */
    if (mpi_detected() || getenv("OMPI_COMM_WORLD_SIZE") || getenv("MPI_LOCALRANKID") ||
        !getenv("RANK") || size < 2)
        return SOTTO_OK;
    FILE *out = open_memstream(&command, &length);
    if (!out)
        return fail(SOTTO_ENOMEM, "no memory for a command");
    fputs("mpirun", out);
#if defined SOTTO_WITH_MPI && defined OPEN_MPI
    put_open_mpi(out, several ? here : size, false);
#endif
    fprintf(out, " -n %d", size);
    if (several)
        fprintf(out, " -H HOST:%d,...", here);
    put_program(out);
    fclose(out);
    const enum sotto_status st =
        fail(SOTTO_EINVAL,
             "RANK=%d and WORLD_SIZE=%d: this is one of %d processes of torchrun or a similar "
             "launcher, and each would train alone. MPI joins them: %s",
             mpi_env_number("RANK"), size, size, command);
    free(command);
    return st;
}

enum sotto_status mpi_join_world(struct comm **out)
{
    *out = NULL;
    TRY(mpi_check_launcher());
    return mpi_detected() ? mpi_world(out, NULL) : SOTTO_OK;
}

/* Open MPI reports its own options to ranks. Ctrl-C reaches mpirun only, which sends SIGTERM, and
 * SIGKILL after the grace time. */
double mpi_grace(const char **option)
{
    const char *set = getenv(GRACE_VARIABLE);
    *option = GRACE_OPTION;
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        return -1;
    return set ? atof(set) : 1;
}

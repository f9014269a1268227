/* The command that would start these ranks again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/option/option.h"
#include "comm/mpi/mpi_impl.h"

/* Seconds from SIGTERM to SIGKILL: Open MPI's option, and the variable in which ranks find it. */
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
#define GRACE_OPTION "--prtemca odls_base_sigkill_timeout"
#define GRACE_VARIABLE "PRTE_MCA_odls_base_sigkill_timeout"
#else
#define GRACE_OPTION "--mca odls_base_sigkill_timeout"
#define GRACE_VARIABLE "OMPI_MCA_odls_base_sigkill_timeout"
#endif

/* The time to stop in that mpirun was given. None is proposed: Open MPI waits for all of it,
 * several times over, at every end by a signal or an error, also when its ranks have ended long
 * before. */
static void put_grace(FILE *out)
{
    const char *grace = getenv(GRACE_VARIABLE);
    if (grace && *grace)
        fprintf(out, " " GRACE_OPTION " %d", mpi_env_number(GRACE_VARIABLE));
}

/* What Open MPI wants said, of `ranks` on this machine. */
static void put_open_mpi(FILE *out, int ranks, bool crowded)
{
    if (geteuid() == 0)
        fputs(" --allow-run-as-root", out);
    if (crowded || ranks > sysconf(_SC_NPROCESSORS_ONLN))
        fputs(" --oversubscribe", out);
    put_grace(out);
}

/* Open MPI alone asks for options, and tells how many ranks it would start without a word. */
static void put_launcher_options(FILE *out, int ranks)
{
    const int slots = mpi_env_number("OMPI_UNIVERSE_SIZE");
    const int size = mpi_env_number("OMPI_COMM_WORLD_SIZE");
    if (size > 0)
        put_open_mpi(out, ranks, slots > 0 && size > slots);
}

/* How Open MPI was told to bind ranks to cores; without that it may choose another way. */
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

/* The hosts that Open MPI was given in a file; not those of -H, which it keeps to itself. */
static const char *host_file(void)
{
    static const char *const variable[] = {"OMPI_MCA_orte_default_hostfile",
                                           "PRTE_MCA_prte_default_hostfile"};
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++)
        if (getenv(variable[i]) && *getenv(variable[i]))
            return getenv(variable[i]);
    return NULL;
}

/* The launcher's own command without the program, with the time to stop in, and with a binding that
 * its environment gave it. */
static void put_as_started(const char *started, FILE *out)
{
    const bool bound = strstr(started, "bind-to") || strstr(started, "binding_policy");
    const char *behind = strchr(started, '\n');
    fprintf(out, "%.*s", (int)(behind - started), started);
    if (mpi_env_number("OMPI_COMM_WORLD_SIZE") > 0 && !strstr(started, "odls_base_sigkill_timeout"))
        put_grace(out);
    if (core_binding() && !bound)
        fprintf(out, " --bind-to %s", core_binding());
    fprintf(out, " %s", behind + 1);
}

static void put_as_known(const struct comm *world, FILE *out)
{
    int here = 0;
    for (int r = 0; r < world->size; r++)
        here += mpi_same_machine(world, r);
    fputs(mpi_launcher(), out);
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
    if (under_mpirun() && *mpi_started(world))
        put_as_started(mpi_started(world), out);
    else
        put_as_known(world, out);
}

const char *mpi_launcher_missing(const struct comm *world)
{
    if (!world || !under_mpirun() || *mpi_started(world) || host_file())
        return NULL;
    return mpi_env_number("OMPI_COMM_WORLD_SIZE") ? "with the same -H or --hostfile"
                                                  : "with the same -hosts or -f";
}

/* The words that started this program, as a shell would want them. */
static void put_program(FILE *out)
{
    char words[512] = "";
    FILE *f = fopen("/proc/self/cmdline", "r"); /* a word, a zero byte, a word, ... */
    const size_t n = f ? fread(words, 1, sizeof words, f) : 0;
    if (f)
        fclose(f);
    if (n == 0 || words[n - 1]) /* or it is longer than that */
        fputs(" PROGRAM ...", out);
    for (size_t at = 0; n > 0 && !words[n - 1] && at < n; at += strlen(words + at) + 1) {
        fputc(' ', out);
        option_put_word(words + at, out);
    }
}

enum sotto_status mpi_check_launcher(void)
{
    const int size = mpi_env_number("WORLD_SIZE"), here = mpi_env_number("LOCAL_WORLD_SIZE");
    const bool several = here > 0 && here < size; /* hosts */
    char *command = NULL;
    size_t length = 0;
    /* Under mpirun, also of one rank, they are left from something else. */
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
             "RANK=%d and WORLD_SIZE=%d: this is one of %d processes, as torchrun starts them, and "
             "each would train alone. MPI joins them: %s",
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

/* Open MPI tells its ranks what it was started with. Ctrl-C reaches mpirun alone, which sends
 * SIGTERM and after this time SIGKILL. */
double mpi_grace(const char **option)
{
    const char *set = getenv(GRACE_VARIABLE);
    *option = GRACE_OPTION;
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        return -1;
    return set ? atof(set) : 1;
}

/* What a launcher's environment variables report to a rank. */
#include <stdlib.h>

#include "comm/mpi/mpi_impl.h"

int mpi_env_number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

/* Of Slurm's variables only those of the step count: SLURM_NTASKS and SLURM_PROCID are also set in
 * the shell of an allocation, which is one process for any number of tasks. */
int mpi_launched_size(void)
{
    static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (mpi_env_number(size[i]) > 0)
            return mpi_env_number(size[i]);
    return getenv("PMIX_RANK") || getenv("PMI_RANK") ? 0 : 1;
}

int mpi_launched_rank(void)
{
    static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                       "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof rank / sizeof *rank; i++)
        if (getenv(rank[i]))
            return mpi_detected() ? mpi_env_number(rank[i]) : 0;
    return 0;
}

int mpi_launched_place(void)
{
    static const char *const place[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        if (getenv(place[i]))
            return mpi_env_number(place[i]);
    return 0;
}

/* Open MPI and MPICH report the ranks of this host, Slurm the number of hosts. */
bool mpi_launched_on_several_hosts(void)
{
    static const char *const here[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (mpi_env_number(here[i]) > 0)
            return mpi_env_number(here[i]) < mpi_launched_size();
    return mpi_env_number("SLURM_STEP_NUM_NODES") > 1;
}

bool mpi_detected(void)
{
    return mpi_launched_size() != 1;
}

/* In a Slurm allocation mpirun may start its ranks with srun; OMPI_COMM_WORLD_SIZE is set then. */
const char *mpi_launcher(void)
{
    if (!mpi_detected())
        return NULL;
    if (getenv("OMPI_COMM_WORLD_SIZE") || !getenv("SLURM_STEP_NUM_TASKS"))
        return "mpirun";
    return "srun";
}

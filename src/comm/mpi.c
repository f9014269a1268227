/* Who launched us; and the whole backend of a build without MPI. */
#include "comm/mpi.h"

#include <stdlib.h>

#include "comm/mpi_state.h"

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

/* A batch script of Slurm has a SLURM_PROCID as well, but is no step: only srun makes steps. */
int mpi_launched_size(void)
{
    static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (number(size[i]) > 0)
            return number(size[i]);
    if (getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") && number("SLURM_NTASKS") > 1)
        return number("SLURM_NTASKS");
    return getenv("PMIX_RANK") || getenv("PMI_RANK") ? 1 : 0;
}

bool mpi_detected(void)
{
    return mpi_launched_size() > 0;
}

#ifndef SOTTO_WITH_MPI
enum sotto_status mpi_world(struct comm **out, const struct mpi_config *config)
{
    (void)config;
    *out = NULL;
    return fail(SOTTO_EINVAL,
                "this build has no MPI: install Open MPI or MPICH and build again with "
                "-DSOTTO_MPI=ON");
}
#endif

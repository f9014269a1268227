/* The backend of a build without MPI. */
#include "comm/mpi/mpi_impl.h"

#ifndef SOTTO_WITH_MPI

enum sotto_status mpi_world(struct comm **out, const struct mpi_config *config)
{
    (void)config;
    *out = NULL;
    return fail(SOTTO_EINVAL,
                "this build has no MPI: install Open MPI or MPICH and build again with "
                "-DSOTTO_MPI=ON, without SOTTO_STATIC");
}

bool mpi_same_machine(const struct comm *world, int rank)
{
    (void)world, (void)rank;
    return true;
}

const char *mpi_rank_name(const struct comm *world, int rank)
{
    (void)world, (void)rank;
    return "";
}

bool mpi_reports_failure(const struct comm *world)
{
    (void)world;
    return true;
}

const char *mpi_launch_command(const struct comm *world)
{
    (void)world;
    return "";
}

const char *mpi_lost_rank(const struct comm *world)
{
    (void)world;
    return NULL;
}

void mpi_record_connections(const struct comm *world)
{
    (void)world;
}

void mpi_abort_unstarted(const struct status_note *note)
{
    (void)note;
}

void mpi_describe(char *out, size_t room)
{
    if (room)
        *out = '\0';
}

#endif

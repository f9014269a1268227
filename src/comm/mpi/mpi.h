/* Workers as ranks of MPI, started by mpirun or srun. Every call is nonblocking inside and polled
 * with growing sleeps, so that a lane that waits for a slow link leaves its core to the compute.
 *
 * A send may wait until its receiver takes it, unlike between threads. What cannot be nonblocking
 * in MPI (splitting, ending) is done when all ranks are known to have come. */
#ifndef SOTTO_COMM_MPI_MPI_H
#define SOTTO_COMM_MPI_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "comm/comm.h"

enum mpi_collectives {
    MPI_COLLECTIVES_NATIVE, /* the library's own: its algorithms, its order of sums             */
    MPI_COLLECTIVES_RING    /* ring.h: the order of comm.h, to the bit; faster, see bench/README */
};

/* How vectors of GPUs go. */
enum mpi_nccl {
    MPI_NCCL_AUTO, /* by NCCL where all ranks find it and have a GPU of their own, else ... */
    MPI_NCCL_OFF,  /* ... through the host's memory                                         */
    MPI_NCCL_ON    /* by NCCL, or an error                                                  */
};

struct mpi_config {
    enum mpi_collectives collectives;
    enum mpi_nccl nccl;
    int nodes; /* that ranks lie on, neighbouring parts as comm_block cuts them; 0: the machines */
    size_t largest;  /* elements or bytes in one message; 0 or more than 2^30: 2^30 */
    double patience; /* seconds of waiting after which a rank that does not answer is named in the
                        log; 0: 60 */
    double meet;     /* seconds that ranks have for their first messages to each other, before they
                        are named and the job ends; 0: no limit */
};

#define MPI_MEET_SECONDS 20 /* where nothing else is said */

/* Whether a launcher started this process together with others. One that was started alone needs no
 * MPI, and could not always have it: in a shell that srun started, MPI starts once and no more. */
bool mpi_detected(void);

/* Which of them this one is, from 0, before MPI is started; 0 where that is not told. */
int mpi_launched_rank(void);

/* What it was, "mpirun" or "srun"; NULL where there was none. */
const char *mpi_launcher(void);

/* Refuses a process that another launcher has started together with others, as torchrun does: MPI
 * does not join them, and each would train alone. The message has the command that does join them.
 */
enum sotto_status mpi_check_launcher(void);

/* What would start these ranks again, "mpirun -H a:2,b:2 -n 4 ": the launcher's own command where a
 * rank can read it, else what is known of it, and the option that leaves ranks the time to stop in
 * after Ctrl-C; nothing where `world` is NULL or was not started so.
 */
void mpi_print_launcher(const struct comm *world, FILE *out);

/* What must be added to that by hand, "with the same -H or --hostfile"; NULL: nothing. */
const char *mpi_launcher_missing(const struct comm *world);

/* The MPI library and its version, "Open MPI v5.0.7"; empty: this build has none. */
void mpi_describe(char *out, size_t room);

/* Seconds that the launcher leaves its ranks to end after it has asked them to, and the option that
 * changes it; negative: not known. */
double mpi_grace(const char **option);

/* This process's communicator of all ranks; NULL config: ring. Ranks are ordered by machine, which
 * need not be MPI's own order; rank 0 is the same. Starts MPI unless the program has,
 * and ends it when the last communicator is freed, which is the calling thread's to do. MPI starts
 * once in a process. The communicator's abort logs the note and ends the processes of all ranks,
 * this one included. */
enum sotto_status mpi_world(struct comm **out, const struct mpi_config *config);

/* The world of what MPI's launcher has started, ring; NULL: this process was started alone. Refuses
 * what mpi_check_launcher does. */
enum sotto_status mpi_join_world(struct comm **out);

/* Whether this rank of a world runs on this machine, whatever the nodes. */
bool mpi_same_machine(const struct comm *world, int rank);

/* "rank 1", followed by "(host ub)" where ranks are on several machines. */
enum { MPI_NAME_ROOM = 96 };
const char *mpi_rank_name(const struct comm *world, int rank);

/* True if this rank is to say what has failed: rank 0 is at once, another when ranks before it have
 * had the time to say the same for all and to end the job. */
bool mpi_reports_failure(const struct comm *world);

/* Who is gone, by name, "a rank on host ub" where that is all that is known; NULL: none is seen to
 * be. May be called in a signal's handler, once mpi_record_connections has been, which takes the
 * connections between machines that there are by then for those that stay. */
const char *mpi_lost_rank(const struct comm *world);
void mpi_record_connections(const struct comm *world);

/* For a rank that fails before it has started MPI: not every launcher ends the others, which would
 * wait for this one for ever. Starts MPI to log the note and end all ranks, this one included; does
 * nothing where there was no launcher or MPI was started before. The log says which rank it is,
 * unless it is rank 0 and the note is of no file. */
void mpi_abort_unstarted(const struct status_note *note);

#endif

/* What rank 0 reads for all ranks of MPI, which may run on machines without the folder of the run
 * and without that of the model that training starts from. All functions but lent_close are called
 * by all ranks; vectors and state are sent to those ranks alone that do not have the same. */
#ifndef SOTTO_TRAIN_RUN_LEND_H
#define SOTTO_TRAIN_RUN_LEND_H

#include "comm/comm.h"
#include "io/state.h"

/* Rank 0's bytes, with a NUL after them, for all: the others get a copy, which the caller frees.
 * `*text` NULL: no rank has one. */
enum sotto_status lend_text(struct comm *mpi, char **text, size_t *size);

/* The files of rank 0's model folder but the weights: `local` is `from` on rank 0, on the others a
 * temporary folder, which lend_drop removes. */
enum sotto_status lend_folder(struct comm *mpi, const char *from, char local[FILE_PATH_ROOM]);
void lend_drop(const struct comm *mpi, char local[FILE_PATH_ROOM]);

/* Makes x (host memory) on all ranks what it is on rank 0. `have`: this rank has read or made it
 * already, and needs it only if it is not the same. *sent: ranks that needed it. */
enum sotto_status lend_vector(struct comm *mpi, float *x, size_t count, bool have, int *sent);

/* A file of state that is read on rank 0, and on ranks that have a copy: rank 0 sends the others
 * what they load, when they load it. */
struct lent {
    struct comm *comm; /* for that alone; NULL: every rank reads its own file */
    struct lane *lane; /* rank 0's, from lent_begin on                        */
    const struct state_file *file;
    bool *away; /* (size) ranks that ask for what they load */
    int asking; /* of them, those that have not ended       */
};

/* Opens `path` as `file`, which with `l` must stay where they are; an error on all ranks if rank 0
 * cannot. */
enum sotto_status lent_open(struct lent *l, struct comm *mpi, struct state_file *file,
                            const char *path);
/* Around loading, on every rank, and after a failure, too: `st`, which is returned, is loading's.
 * In the end rank 0 has sent all. */
enum sotto_status lent_begin(struct lent *l);
enum sotto_status lent_end(struct lent *l, enum sotto_status st);
void lent_close(struct lent *l); /* once all ranks have ended; fine if it is not open */

#endif

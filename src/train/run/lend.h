/* Files that rank 0 reads for all ranks of MPI: a rank's machine may lack the folder of the run,
 * and the folder of the model that training starts from. All ranks call the functions, but for
 * lent_close. Vectors and state are sent only to ranks that do not have the same. */
#ifndef SOTTO_TRAIN_RUN_LEND_H
#define SOTTO_TRAIN_RUN_LEND_H

#include "comm/comm.h"
#include "io/state.h"

/* Sends rank 0's bytes, followed by a NUL, to all ranks, whose callers free the copy. *text NULL on
 * rank 0: no rank gets bytes. */
enum sotto_status lend_text(struct comm *mpi, char **text, size_t *size);

/* Sends the files of rank 0's model folder but the weights. `local` is `from` on rank 0, and on
 * other ranks a temporary folder, which lend_drop removes. */
enum sotto_status lend_folder(struct comm *mpi, const char *from, char local[FILE_PATH_ROOM]);
void lend_drop(const struct comm *mpi, char local[FILE_PATH_ROOM]);

/* Copies rank 0's x (host memory) to all ranks. `have`: this rank has an x already, and needs rank
 * 0's only if the two differ. *sent: number of ranks that needed a copy. */
enum sotto_status lend_vector(struct comm *mpi, float *x, size_t count, bool have, int *sent);

/* A file of state, read on rank 0 and on ranks that have a copy. Rank 0 sends the other ranks the
 * bytes that they load, when they load them. */
struct lent {
    struct comm *comm; /* of requests and bytes; NULL: every rank reads its own file */
    struct lane *lane; /* on rank 0, from lent_begin on: answers requests */
    const struct state_file *file;
    bool *away; /* (size) ranks without the file, which send requests */
    int asking; /* ranks of `away` that have not ended */
};

/* Opens `path` as `file`; fails on all ranks if rank 0 cannot. `file` and `l` must not move. */
enum sotto_status lent_open(struct lent *l, struct comm *mpi, struct state_file *file,
                            const char *path);
/* Begin and end loading, on every rank, and after a failure, too. `st` is the status of loading;
 * lent_end returns `st` or its own failure, once rank 0 has sent all bytes. */
enum sotto_status lent_begin(struct lent *l);
enum sotto_status lent_end(struct lent *l, enum sotto_status st);
void lent_close(struct lent *l); /* after lent_end of all ranks; may be closed already */

#endif

/* NCCL, loaded at run time if installed: carries vectors from GPU to GPU. The functions used here
 * are declared as in NCCL's own header, which need not be installed. */
#ifndef SOTTO_COMM_MPI_NCCL_H
#define SOTTO_COMM_MPI_NCCL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct nccl_id {
    char internal[128];
};

enum { NCCL_BYTES = 0 }; /* ncclInt8 */

struct nccl {
    pthread_mutex_t lock;
    bool tried;
    void *library; /* NULL: not loaded; `why` has the reason */
    int (*get_id)(struct nccl_id *id);
    int (*init_rank)(void **comm, int size, struct nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *data, size_t count, int type, int peer, void *comm, void *stream);
    int (*recv)(void *data, size_t count, int type, int peer, void *comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                     void *stream);
    const char *(*error)(int code);
    char why[200];
};

void nccl_init(struct nccl *n);
void nccl_need(struct nccl *n); /* loads NCCL, once; any thread may call */
void nccl_close(struct nccl *n);

/* Returns SOTTO_OK for code 0, otherwise SOTTO_EPEER with NCCL's message and `what`. */
enum sotto_status nccl_check(const struct nccl *n, int code, const char *what);

#endif

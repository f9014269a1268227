/* NCCL, loaded when there is one: what carries vectors from GPU to GPU. Its few functions that are
 * used here are declared as its own header does, which need not be installed. */
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
    void *library; /* NULL: there is none, and `why` says so */
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
void nccl_need(struct nccl *n); /* loads it, once; any line of work may ask */
void nccl_close(struct nccl *n);

/* SOTTO_OK for 0; otherwise what NCCL says of `what`. */
enum sotto_status nccl_check(const struct nccl *n, int code, const char *what);

#endif

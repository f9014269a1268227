#include "comm/mpi/nccl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool find_function(struct nccl *n, const char *name, void *function)
{
    void *found = dlsym(n->library, name);
    memcpy(function, &found, sizeof found); /* copied: C does not convert addresses of functions */
    if (!found)
        snprintf(n->why, sizeof n->why, "libnccl.so.2 has no %s", name);
    return found;
}

static void unload_nccl(struct nccl *n)
{
    if (n->library)
        dlclose(n->library);
    n->library = NULL;
}

static void load_nccl(struct nccl *n)
{
    n->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        const char *why = dlerror();
        snprintf(n->why, sizeof n->why, "%s", why ? why : "libnccl.so.2 cannot be loaded");
        return;
    }
    const bool all = find_function(n, "ncclGetUniqueId", &n->get_id) &&
                     find_function(n, "ncclCommInitRank", &n->init_rank) &&
                     find_function(n, "ncclCommDestroy", &n->destroy) &&
                     find_function(n, "ncclGroupStart", &n->group_start) &&
                     find_function(n, "ncclGroupEnd", &n->group_end) &&
                     find_function(n, "ncclSend", &n->send) &&
                     find_function(n, "ncclRecv", &n->recv) &&
                     find_function(n, "ncclBroadcast", &n->broadcast) &&
                     find_function(n, "ncclGetErrorString", &n->error);
    if (!all)
        unload_nccl(n);
}

void nccl_init(struct nccl *n)
{
    *n = (struct nccl){.tried = false};
    pthread_mutex_init(&n->lock, NULL);
}

void nccl_need(struct nccl *n)
{
    pthread_mutex_lock(&n->lock);
    if (!n->tried)
        load_nccl(n);
    n->tried = true;
    pthread_mutex_unlock(&n->lock);
}

void nccl_close(struct nccl *n)
{
    unload_nccl(n);
    pthread_mutex_destroy(&n->lock);
}

enum sotto_status nccl_check(const struct nccl *n, int code, const char *what)
{
    return code == 0 ? SOTTO_OK : fail(SOTTO_EPEER, "NCCL cannot %s: %s", what, n->error(code));
}

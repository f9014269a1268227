/* CUDA's own context is the process's, and so are these: the one list of this library that is. */
#include <pthread.h>

#include "tensor/cuda/cuda.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda *parked;

struct cuda *cuda_unpark(int gpu)
{
    pthread_mutex_lock(&lock);
    struct cuda **at = &parked;
    while (*at && (*at)->gpu != gpu)
        at = &(*at)->next;
    struct cuda *c = *at;
    if (c) {
        *at = c->next;
        c->next = NULL;
    }
    pthread_mutex_unlock(&lock);
    return c;
}

void cuda_park(struct cuda *c)
{
    pthread_mutex_lock(&lock);
    c->next = parked;
    parked = c;
    pthread_mutex_unlock(&lock);
}

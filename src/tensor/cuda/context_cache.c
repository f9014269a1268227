/* CUDA's own context belongs to the process, and so does this list: the only global state of the
 * library. */
#include <pthread.h>

#include "tensor/cuda/cuda.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda *cached_contexts;

struct cuda *context_cache_take(int gpu)
{
    pthread_mutex_lock(&lock);
    struct cuda **at = &cached_contexts;
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

void context_cache_put(struct cuda *c)
{
    pthread_mutex_lock(&lock);
    c->next = cached_contexts;
    cached_contexts = c;
    pthread_mutex_unlock(&lock);
}

#include "comm/virtual/pool.h"

#include <pthread.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/machine/cores.h"

struct compute_pool {
    pthread_mutex_t lock;
    pthread_cond_t given, finished;
    struct pool_job *first, **last;
    bool closing;
    int inner; /* OpenMP threads per job */
    int threads;
    pthread_t thread[];
};

static void *pool_serve(void *arg)
{
    struct compute_pool *p = arg;
#ifdef _OPENMP
    omp_set_num_threads(p->inner);
#endif
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->closing)
            pthread_cond_wait(&p->given, &p->lock);
        struct pool_job *job = p->first;
        if (!job)
            break;
        if (!(p->first = job->next))
            p->last = &p->first;
        pthread_mutex_unlock(&p->lock);
        enum sotto_status st = job->work(job->arg);
        job->note.code = st;
        if (st != SOTTO_OK)
            status_save(&job->note, st);
        pthread_mutex_lock(&p->lock);
        job->finished = true;
        pthread_cond_signal(&p->finished); /* only the scheduler waits */
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int share_of_cores(int threads)
{
#ifdef _OPENMP
    const int cores = cores_allowed(""), most = omp_get_max_threads();
    const int all = most < cores ? most : cores;
    return all > threads ? all / threads : 1;
#else
    (void)threads;
    return 1;
#endif
}

enum sotto_status pool_open(struct compute_pool **out, int threads)
{
    *out = NULL;
    if (threads == 0)
        threads = cores_allowed("");
    struct compute_pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof *p->thread);
    if (!p)
        return fail(SOTTO_ENOMEM, "no memory for %d threads that compute", threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->given, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->last = &p->first;
    p->inner = share_of_cores(threads);
    while (p->threads < threads && pthread_create(&p->thread[p->threads], NULL, pool_serve, p) == 0)
        p->threads++;
    if (p->threads == 0) {
        pool_close(p);
        return fail(SOTTO_ENOMEM, "cannot start a thread that computes");
    }
    *out = p;
    return SOTTO_OK;
}

void pool_close(struct compute_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->given);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->given);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void pool_start(struct compute_pool *p, struct pool_job *job)
{
    job->finished = false;
    job->next = NULL;
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    pthread_cond_signal(&p->given);
    pthread_mutex_unlock(&p->lock);
}

enum sotto_status pool_wait(struct compute_pool *p, struct pool_job *job)
{
    pthread_mutex_lock(&p->lock);
    while (!job->finished)
        pthread_cond_wait(&p->finished, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return status_raise(&job->note);
}

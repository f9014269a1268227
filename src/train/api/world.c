/* Workers, MPI, names of memory categories, and the log, for programs. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "train/api/api_impl.h"

int sotto_worker_rank(const struct sotto_worker *worker)
{
    return worker->worker->rank;
}

int sotto_worker_size(const struct sotto_worker *worker)
{
    return worker->worker->size;
}

double sotto_worker_seconds(const struct sotto_worker *worker)
{
    return clock_now(worker->worker->clock);
}

enum sotto_status sotto_worker_sum(struct sotto_worker *worker, double *numbers, int count)
{
    return comm_sum(worker->worker->world, numbers, count);
}

struct sotto_mpi {
    struct comm *world; /* NULL: alone */
};

enum sotto_status sotto_mpi_open(struct sotto_mpi **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return fail(SOTTO_ENOMEM, "no memory for a place in MPI");
    enum sotto_status st = mpi_join_world(&(*out)->world);
    if (st != SOTTO_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

void sotto_mpi_close(struct sotto_mpi *mpi)
{
    if (mpi)
        comm_free(mpi->world);
    free(mpi);
}

int sotto_mpi_rank(const struct sotto_mpi *mpi)
{
    return mpi->world ? mpi->world->rank : 0;
}

int sotto_mpi_size(const struct sotto_mpi *mpi)
{
    return mpi->world ? mpi->world->size : 1;
}

_Static_assert((int)SOTTO_MEMORY_CATEGORIES == (int)MEMORY_CATEGORIES &&
                   (int)SOTTO_MEMORY_OUTER == (int)MEMORY_OUTER &&
                   (int)SOTTO_MEMORY_ACTIVATIONS == (int)MEMORY_ACTIVATIONS,
               "the public categories are the library's");

const char *sotto_memory_name(enum sotto_memory category)
{
    return memory_category_name((enum memory_category)category);
}

enum sotto_status sotto_fail(enum sotto_status status, const char *format, ...)
{
    char text[STATUS_ROOM];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(status, "%s", text);
}

/* The sink of this process. log_set orders the write before the first line that is logged. */
static sotto_log_sink *public_sink;

static void to_public(enum log_level level, const char *line, void *arg)
{
    (void)level;
    public_sink(line, arg);
}

void sotto_log(sotto_log_sink *sink, void *arg)
{
    log_set(NULL, NULL);
    public_sink = sink;
    if (sink)
        log_set(to_public, arg);
}

/* Seconds of an all-reduce, native and ring in turn: mpirun -n 2 mpi_time. One line a size: median
 * of each, their ratio, and what a rank sends a second (2 (size-1)/size of the vector). */
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/mpi.h"

enum { KINDS = 2, MOST_RUNS = 201 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum sotto_status measure(struct comm **c, size_t bytes, int runs, float *x)
{
    double took[KINDS][MOST_RUNS];
    size_t count = bytes / sizeof *x;
    struct view v = {x, DTYPE_F32};
    for (size_t i = 0; i < count; i++)
        x[i] = 0;
    for (int k = -4; k < runs; k++)
        for (int kind = 0; kind < KINDS; kind++) {
            TRY(comm_barrier(c[kind]));
            double begin = clock_now(&clock_real);
            TRY(comm_allreduce(c[kind], v, v, count));
            if (k >= 0)
                took[kind][k] = clock_now(&clock_real) - begin;
        }
    for (int kind = 0; kind < KINDS; kind++)
        qsort(took[kind], (size_t)runs, sizeof **took, by_size);
    double native = took[0][runs / 2], ring = took[1][runs / 2];
    double sent = 2.0 * (c[0]->size - 1) / c[0]->size * (double)bytes;
    if (c[0]->rank == 0)
        printf(
            "%9zu bytes: native %9.1f us (%.2f GB/s), ring %9.1f us (%.2f GB/s), ring/native %.2f\n",
            bytes, native * 1e6, sent / native * 1e-9, ring * 1e6, sent / ring * 1e-9,
            ring / native);
    return SOTTO_OK;
}

int main(void)
{
    static const struct mpi_config config[KINDS] = {{MPI_COLLECTIVES_NATIVE, 0},
                                                    {MPI_COLLECTIVES_RING, 0}};
    struct comm *c[KINDS] = {NULL};
    float *x = malloc(64 << 20);
    enum sotto_status st = x ? SOTTO_OK : fail(SOTTO_ENOMEM, "no memory");
    for (int kind = 0; kind < KINDS && st == SOTTO_OK; kind++)
        st = mpi_world(&c[kind], &config[kind]);
    if (st == SOTTO_OK)
        st = measure(c, 4 << 10, 201, x);
    if (st == SOTTO_OK)
        st = measure(c, 64 << 10, 201, x);
    if (st == SOTTO_OK)
        st = measure(c, 1 << 20, 101, x);
    if (st == SOTTO_OK)
        st = measure(c, 64 << 20, 11, x);
    if (st != SOTTO_OK)
        fprintf(stderr, "mpi_time: %s\n", sotto_error());
    for (int kind = KINDS - 1; kind >= 0; kind--)
        comm_free(c[kind]);
    free(x);
    return st != SOTTO_OK;
}

/* All-reduce over the backends: time and bus bandwidth, 2(N-1)/N * bytes / seconds, beside a memcpy
 * of as many bytes. A line a size: what was run, median and quartiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "comm/worker.h"

struct config {
    int workers, rounds;
};

#define S struct config
static const struct option table[] = {
    OPTION_INT(S, workers, "2", 1, 64, "ranks"),
    OPTION_INT(S, rounds, "30", 3, 1e6, "measurements a size"),
};
#undef S

static const size_t sizes[] = {4096, 1 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct bench {
    struct config c;
    double *seconds; /* (rounds), of rank 0 */
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, struct bench *b, size_t bytes, double moved)
{
    qsort(b->seconds, (size_t)b->c.rounds, sizeof *b->seconds, ascending);
    double median = b->seconds[b->c.rounds / 2];
    printf("%-20s %2d ranks %9zu bytes  %10.1f us (%.1f .. %.1f)  %7.2f GB/s\n", what, b->c.workers,
           bytes, 1e6 * median, 1e6 * b->seconds[b->c.rounds / 4],
           1e6 * b->seconds[3 * b->c.rounds / 4], moved / median / 1e9);
}

/* Enough calls at once that the clock's own cost does not show. */
static int repeats(size_t bytes)
{
    return bytes < 100000 ? 100 : 1;
}

static enum sotto_status work(struct worker *w, void *arg)
{
    struct bench *b = arg;
    for (int k = 0; k < SIZES; k++) {
        size_t count = sizes[k] / 4;
        struct view x = {calloc(count, 4), DTYPE_F32};
        float *copy = calloc(count, 4);
        if (!x.data || !copy)
            return fail(SOTTO_ENOMEM, "no memory for %zu bytes", sizes[k]);
        enum sotto_status st = SOTTO_OK;
        for (int i = -2; i < b->c.rounds && st == SOTTO_OK; i++) {
            TRY(comm_barrier(w->world));
            double begin = clock_now(w->clock);
            for (int j = 0; j < repeats(sizes[k]) && st == SOTTO_OK; j++)
                st = comm_allreduce(w->world, x, x, count);
            if (i >= 0 && w->rank == 0)
                b->seconds[i] = (clock_now(w->clock) - begin) / repeats(sizes[k]);
        }
        if (st == SOTTO_OK && w->rank == 0)
            report("allreduce threads", b, sizes[k],
                   2.0 * (w->size - 1) / w->size * (double)sizes[k]);
        for (int i = -2; i < b->c.rounds && w->rank == 0; i++) {
            double begin = clock_now(w->clock);
            for (int j = 0; j < repeats(sizes[k]); j++) {
                memcpy(copy, x.data, sizes[k]);
                __asm__ volatile("" : : "r"(copy) : "memory"); /* the copy is wanted */
            }
            if (i >= 0)
                b->seconds[i] = (clock_now(w->clock) - begin) / repeats(sizes[k]);
        }
        if (w->rank == 0)
            report("memcpy", b, sizes[k], (double)sizes[k]);
        free(copy);
        free(x.data);
        TRY(st);
        TRY(comm_barrier(w->world));
    }
    return SOTTO_OK;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    const struct option_section section = OPTION_SECTION("", "", table, &b.c);
    const char *rest[64];
    int n_rest;
    option_defaults(&section, 1);
    enum sotto_status st = argc > 64 ? fail(SOTTO_EINVAL, "too many arguments")
                                     : option_parse(&section, 1, argc - 1,
                                                    (const char *const *)argv + 1, rest, &n_rest);
    b.seconds = calloc((size_t)b.c.rounds, sizeof *b.seconds);
    const struct engine_config engine = {.workers = b.c.workers};
    if (st == SOTTO_OK)
        st = engine_threads(&engine, work, &b);
    free(b.seconds);
    if (st != SOTTO_OK)
        fprintf(stderr, "bench_comm: %s\n", sotto_error());
    return st != SOTTO_OK;
}

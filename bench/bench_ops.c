/* Speed of every op on the shapes of GPT-2 124M and of a small model (6 layers, 384 wide), 4
 * sequences of 256 tokens. Each line: op, pass, shape, fastest (median) time, and, of the fastest,
 * GFLOP/s as a fraction of what the product kernel does on data in the first cache, or GB/s as a
 * fraction of what a plain loop with as many streams does.
 *
 *     bench_ops [threads] [op] [kernels] [mixed]     kernels: amx, v4, ...; mixed: bf16 weights
 *     bench_ops THREADS -      for each line of input (which pass; 1 for bf16, 6 for weights and
 * gradients alone; the op and its shape) seconds of that pass, of the clock and of processors
 * (conv.py, products.py)
 *
 * Results are checked against the reference on a small shape before anything is timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tensor/cpu/cpu.h"
#include "tensor/op_cases.h"

enum { MIN_RUNS = 7, MAX_RUNS = 400 };

static struct memory memory;

/* The cost of a pass: operations of arithmetic, or streams over memory. */
struct cost {
    double flops;
    double bytes;
};

static double size_of(const struct op_room *room, int first, int last)
{
    double bytes = 0;
    for (int i = first; i <= last; i++)
        bytes += (double)room->operand[i].count * (double)dtype_size(room->view[i].type);
    return bytes;
}

static struct cost cost_of(const struct op_room *room, int pass)
{
    const int *d = room->c->d;
    const char *op = room->c->op;
    struct cost c = {0};
    if (strcmp(op, "linear") == 0) {
        c.flops = 2.0 * d[0] * d[1] * d[2];
    } else if (strcmp(op, "conv") == 0) {
        c.flops = 2.0 * d[3] * d[5] * d[5] * (double)room->operand[3].count;
    } else if (strcmp(op, "batchnorm") == 0) { /* a pass for the sums, one for the rest */
        c.bytes = size_of(room, 0, 0) * (pass ? 5 : 3) + size_of(room, 3, 3) * (pass ? 4 : 1);
    } else if (strcmp(op, "relu") == 0) {
        c.bytes = size_of(room, 0, 0) * (pass ? 3 : 2);
    } else if (strcmp(op, "maxpool") == 0 || strcmp(op, "meanpool") == 0) {
        c.bytes = size_of(room, 0, 1);
    } else if (strcmp(op, "attention") == 0) { /* causal: half of the square */
        double seen = room->c->flags & CASE_WHOLE ? d[2] : d[2] - (d[1] - 1) / 2.0;
        double pairs = (double)d[0] * d[3] * d[1] * seen;
        c.flops = pairs * d[5] * (pass ? 10 : 4);
    } else if (strcmp(op, "layernorm") == 0 || strcmp(op, "rmsnorm") == 0) {
        c.bytes = size_of(room, 0, 0) * (pass ? 3 : 2);
    } else if (strcmp(op, "gelu") == 0) {
        c.bytes = size_of(room, 0, 0) * (pass ? 3 : 2);
    } else if (strcmp(op, "swiglu") == 0) {
        c.bytes = size_of(room, 0, 0) * (pass ? 5 : 3);
    } else if (strcmp(op, "rope") == 0) {
        c.bytes = size_of(room, 0, 0) * 2;
    } else if (strcmp(op, "embedding") == 0) {
        c.bytes = size_of(room, 2, 2) * (pass ? 5 : 3);
    } else if (strcmp(op, "cross_entropy") == 0) {
        c.bytes = size_of(room, 0, 0) * (pass ? 2 : 1);
    } else if (strcmp(op, "adamw") == 0) {
        c.bytes = size_of(room, 0, 0) * 7;
    } else if (strcmp(op, "sgd") == 0) {
        c.bytes = size_of(room, 0, 0) * 5;
    }
    return c;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the fastest seconds of a pass, and the median: at least MIN_RUNS runs, about a third of a
 * second. */
static double time_pass(struct op_room *room, int pass, double *median)
{
    static double seconds[MAX_RUNS];
    int n = 0;
    double total = 0;
    op_room_run(room, pass);
    while (n < MIN_RUNS || (n < MAX_RUNS && total < 0.3)) {
        double start = clock_now(&clock_real);
        op_room_run(room, pass);
        seconds[n] = clock_now(&clock_real) - start;
        total += seconds[n++];
    }
    qsort(seconds, (size_t)n, sizeof *seconds, ascending);
    *median = seconds[n / 2];
    return seconds[0];
}

/* Returns the GFLOP/s of all threads on a tile in the first cache. */
static double measure_peak(struct device *dev, bool half)
{
    const struct gemm_kernels *f = half ? kernels_of(dev)->gemm_half : kernels_of(dev)->gemm;
    enum { DEPTH = 256, TIMES = 2000 };
    double best = 0;
    for (int run = 0; run < 5; run++) {
        double start = clock_now(&clock_real);
#pragma omp parallel for num_threads(dev->threads)
        for (int t = 0; t < dev->threads; t++) {
            static _Thread_local float a[64 * DEPTH], b[64 * DEPTH],
                c[64 * 64]; /* for any kernel */
            for (int i = 0; i < TIMES; i++)
                f->block(f->rows, f->columns, DEPTH, a, b, c, 64, c, 64, NULL);
        }
        double flops = 2.0 * dev->threads * TIMES * DEPTH * f->rows * f->columns;
        best = fmax(best, flops / (clock_now(&clock_real) - start));
    }
    return best * 1e-9;
}

/* Returns the GB/s of y += x over memory larger than any cache: two streams read, one written. */
static double measure_bandwidth(struct device *dev)
{
    const size_t count = (size_t)64 << 20;
    struct buffer x, y;
    double best = 0;
    if (buffer_init(&x, dev, DTYPE_F32, count, MEMORY_ACTIVATIONS) != SOTTO_OK ||
        buffer_init(&y, dev, DTYPE_F32, count, MEMORY_ACTIVATIONS) != SOTTO_OK)
        return 0;
    for (int run = 0; run < 5; run++) {
        double start = clock_now(&clock_real);
        dev->ops->axpy(dev, y.view, 1, x.view, count);
        best = fmax(best, 12.0 * (double)count / (clock_now(&clock_real) - start));
    }
    buffer_free(&x);
    buffer_free(&y);
    return best * 1e-9;
}

static void report(struct device *dev, const struct op_case *c, unsigned half, double peak,
                   double bandwidth)
{
    static const char *const linear_pass[] = {"forward", "dx", "dw"};
    struct op_room room;
    if (op_room_init(&room, dev, c, half) != SOTTO_OK) {
        printf("%s: %s\n", c->op, sotto_error());
        return;
    }
    const struct family *f = family_of(c);
    bool decoding = strcmp(c->op, "attention") == 0 && c->d[1] != c->d[2]; /* has no backward */
    for (int pass = 0; pass < (decoding ? 1 : f->passes); pass++) {
        struct cost cost = cost_of(&room, pass);
        double median, seconds = time_pass(&room, pass, &median);
        char shape[64] = "";
        for (int i = 0, n = 0; i < 8 && (c->d[i] || i < 1); i++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, i ? "x%d" : "%d", c->d[i]);
        const char *name = f->passes == 3 ? linear_pass[pass] : pass ? "backward" : "forward";
        printf("%-13s %-8s %-22s %9.3f (%9.3f) ms  ", c->op, name, shape, seconds * 1e3,
               median * 1e3);
        if (cost.flops > 0)
            printf("%6.1f GFLOP/s %3.0f %% of peak\n", cost.flops / seconds * 1e-9,
                   100 * cost.flops / seconds * 1e-9 / peak);
        else
            printf("%6.1f GB/s    %3.0f %% of memory\n", cost.bytes / seconds * 1e-9,
                   100 * cost.bytes / seconds * 1e-9 / bandwidth);
        fflush(stdout);
    }
    op_room_free(&room);
}

static bool verify(struct device *dev)
{
    struct device oracle;
    bool good = device_open(&oracle, "reference", &memory, 1) == SOTTO_OK;
    for (size_t i = 0; i < op_cases_count && good; i++) {
        const struct op_case *c = &op_cases[i];
        struct op_room got, want;
        good = op_room_init(&got, dev, c, 0) == SOTTO_OK &&
               op_room_init(&want, &oracle, c, 0) == SOTTO_OK;
        for (int pass = 0; good && pass < family_of(c)->passes; pass++) {
            op_room_run(&got, pass);
            op_room_run(&want, pass);
        }
        for (int o = 0; good && o < got.n; o++) {
            for (size_t e = 0; good && e < got.operand[o].count; e++) {
                float a = ((float *)got.view[o].data)[e], b = ((float *)want.view[o].data)[e];
                good = fabsf(a - b) <= (c->flags & CASE_HALF ? 5e-2f : 1e-3f) + 1e-4f * fabsf(b);
            }
        }
        if (!good)
            fprintf(stderr, "bench_ops: %s is wrong: case %zu\n", c->op, i);
        op_room_free(&got);
        op_room_free(&want);
    }
    device_close(&oracle);
    return good;
}

static const struct op_case shapes[] = {
    {"linear", {1024, 384, 1152}, CASE_BIAS},
    {"linear", {1024, 384, 384}, CASE_BIAS | CASE_RESIDUAL},
    {"linear", {1024, 384, 1536}, CASE_BIAS},
    {"linear", {1024, 1536, 384}, CASE_BIAS | CASE_RESIDUAL},
    {"linear", {1024, 384, 8192}, 0},
    {"linear", {1024, 768, 2304}, CASE_BIAS | CASE_IN_OUT},
    {"linear", {1024, 768, 768}, CASE_BIAS | CASE_RESIDUAL | CASE_IN_OUT},
    {"linear", {1024, 768, 3072}, CASE_BIAS | CASE_IN_OUT},
    {"linear", {1024, 3072, 768}, CASE_BIAS | CASE_RESIDUAL | CASE_IN_OUT},
    {"linear", {256, 768, 50257}, 0},
    {"linear", {1024, 768, 50257}, 0},
    {"linear", {1, 768, 3072}, CASE_BIAS},
    {"attention", {4, 256, 256, 6, 6, 64}, CASE_FUSED},
    {"attention", {4, 256, 256, 12, 12, 64}, CASE_FUSED},
    {"attention", {1, 1024, 1024, 12, 12, 64}, CASE_FUSED},
    {"attention", {1, 1, 1024, 12, 12, 64}, 0},
    {"layernorm", {1024, 384}, CASE_BIAS},
    {"layernorm", {1024, 768}, CASE_BIAS},
    {"rmsnorm", {1024, 768}, 0},
    {"gelu", {1024 * 1536}, 0},
    {"gelu", {1024 * 3072}, 0},
    {"gelu", {1024 * 3072}, CASE_EXACT},
    {"swiglu", {1024 * 2048}, 0},
    {"rope", {4, 256, 12, 64}, CASE_IN_PLACE},
    {"embedding", {4, 256, 768, 50257}, 0},
    {"cross_entropy", {1024, 8192}, CASE_IN_PLACE},
    {"cross_entropy", {256, 50257}, CASE_IN_PLACE},
    {"conv", {64, 32, 32, 64, 64, 3, 1, 1}, 0},
    {"conv", {64, 8, 8, 256, 256, 3, 1, 1}, 0},
    {"conv", {8, 56, 56, 64, 256, 1, 1, 0}, 0},
    {"conv", {8, 224, 224, 3, 64, 7, 2, 3}, 0},
    {"batchnorm", {64 * 32 * 32, 64, 1}, CASE_RELU},
    {"batchnorm", {64 * 32 * 32, 64, 1}, CASE_RELU | CASE_RESIDUAL},
    {"relu", {64 * 32 * 32 * 64}, 0},
    {"maxpool", {8, 112, 112, 64, 3, 2, 1}, 0},
    {"meanpool", {64, 16, 512}, 0},
    {"adamw", {13770240}, 0},
    {"adamw", {124439808 / 2}, 0},
    {"sgd", {124439808 / 2}, 0},
};

/* Answers each line of input. */
static int serve(struct device *dev)
{
    struct op_room room = {0};
    struct op_case c = {0};
    char line[256], last[256] = "", op[32];
    int pass, half, read;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%d %d %31s %n", &pass, &half, op, &read) != 3)
            return 1;
        if (strcmp(line + 2, last) != 0) { /* another shape or type: all but the pass */
            op_room_free(&room);
            strcpy(last, line + 2);
            c = (struct op_case){.op = op};
            char *at = line + read;
            for (int i = 0; i < 8; i++)
                c.d[i] = (int)strtol(at, &at, 10);
            if (!family_of(&c) ||
                op_room_init(&room, dev, &c, half == 1 ? 7 : (unsigned)half) != SOTTO_OK)
                return 1;
        }
        const double start = clock_now(&clock_real), used = (double)clock() / CLOCKS_PER_SEC;
        op_room_run(&room, pass);
        printf("%.9f %.6f\n", clock_now(&clock_real) - start,
               (double)clock() / CLOCKS_PER_SEC - used);
        fflush(stdout);
    }
    op_room_free(&room);
    return 0;
}

int main(int argc, char **argv)
{
    struct device dev;
    if (device_open(&dev, "cpu", &memory, argc > 1 ? atoi(argv[1]) : 0) != SOTTO_OK ||
        (argc > 3 && cpu_select(&dev, argv[3]) != SOTTO_OK)) {
        fprintf(stderr, "bench_ops: %s\n", sotto_error());
        return 1;
    }
    if (!verify(&dev))
        return 1;
    if (argc > 2 && strcmp(argv[2], "-") == 0)
        return serve(&dev);
    const unsigned half = argc > 4 ? KIND_WEIGHT | KIND_GRADIENT : 0;
    double peak = measure_peak(&dev, half), bandwidth = measure_bandwidth(&dev);
    printf("kernels %s%s, %d threads: %.0f GFLOP/s in cache, %.1f GB/s from memory\n",
           kernels_of(&dev)->name, half ? " mixed" : "", dev.threads, peak, bandwidth);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct op_case c = shapes[i];
        c.flags |= half ? CASE_HALF : 0;
        if (argc < 3 || strcmp(argv[2], c.op) == 0)
            report(&dev, &c, half, peak, bandwidth);
    }
    device_close(&dev);
    return 0;
}

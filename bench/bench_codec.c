/* Speed of the codecs: parameters a second through encode (transform, select, take out) and decode,
 * for chunks and tiles of 64 at a rate of 1/32.
 *
 *     bench_codec [threads] [parameters] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tensor/ops.h"

enum { SIDE = 64, TURNS = 5 };

static struct memory memory;

static struct buffer make(struct device *dev, enum dtype type, size_t count)
{
    struct buffer b;
    if (buffer_init(&b, dev, type, count, MEMORY_SCRATCH) != SOTTO_OK) {
        fprintf(stderr, "bench_codec: %s\n", sotto_error());
        exit(1);
    }
    return b;
}

static double elapsed(double begin)
{
    return clock_now(&clock_real) - begin;
}

static void measure(struct device *dev, const char *name, struct tiles t)
{
    const size_t count = (size_t)t.ny * (size_t)t.nx * (size_t)t.h * (size_t)t.w;
    const size_t kept = (size_t)t.ny * (size_t)t.nx * (size_t)t.keep;
    struct buffer basis = make(dev, DTYPE_F32, SIDE * SIDE), m = make(dev, DTYPE_F32, count),
                  y = make(dev, DTYPE_F32, count), index = make(dev, DTYPE_I32, kept),
                  value = make(dev, DTYPE_F32, kept);
    float *from = basis.view.data;
    for (int f = 0; f < SIDE; f++)
        for (int i = 0; i < SIDE; i++)
            from[f * SIDE + i] = (float)(sqrt((f ? 2.0 : 1.0) / SIDE) *
                                         cos(acos(-1) * (2 * i + 1) * f / (2.0 * SIDE)));
    struct rng rng = rng_make(1, 2);
    rng_normal(&rng, m.view.data, count, 0, 1);
    const struct tiling p = {&t, 1};
    double encode = INFINITY, decode = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = clock_now(&clock_real);
        dev->ops->tiles_encode(dev, &p, basis.view, m.view, index.view, value.view);
        encode = fmin(encode, elapsed(begin));
        begin = clock_now(&clock_real);
        dev->ops->tiles_decode(dev, &p, basis.view, 1, y.view, index.view, 0, value.view, 0);
        decode = fmin(decode, elapsed(begin));
    }
    printf("%-7s encode %.0f million/s, decode %.0f million/s\n", name,
           (double)count / encode / 1e6, (double)count / decode / 1e6);
    struct buffer *const all[] = {&basis, &m, &y, &index, &value};
    for (int i = 0; i < 5; i++)
        buffer_free(all[i]);
}

int main(int argc, char **argv)
{
    struct device dev;
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const int blocks = (int)((argc > 2 ? atof(argv[2]) : 13.8e6) / (SIDE * SIDE));
    if (device_open(&dev, "cpu", &memory, threads) != SOTTO_OK || blocks < 1) {
        fprintf(stderr, "bench_codec: %s\n", sotto_error());
        return 1;
    }
    const size_t all = (size_t)blocks * SIDE * SIDE;
    measure(
        &dev, "chunks",
        (struct tiles){.stride = all, .ny = 1, .nx = blocks * SIDE, .h = 1, .w = SIDE, .keep = 2});
    measure(
        &dev, "tiles",
        (struct tiles){
            .stride = SIDE, .ny = blocks, .nx = 1, .h = SIDE, .w = SIDE, .keep = SIDE * SIDE / 32});
    device_close(&dev);
    return 0;
}

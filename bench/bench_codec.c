/* Speed of DeMo's codec: parameters a second through encode (transform, select, take out, pack) and
 * decode (unpack, average over two senders, transform back), for chunks and tiles of 64 at a rate
 * of 1/32.
 *
 *     bench_codec [--device=NAME] [threads] [parameters]     the best of five turns
 *     bench_codec [--device=NAME] THREADS PARAMETERS -       a turn for each line of input, for
 *                                                            codec.py: seconds of encode and decode
 *                                                            of chunks, then of tiles
 *
 * Seconds are the device's own where it has a clock. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "strategy/decoupled/codec.h"

enum { SIDE = 64, TURNS = 5, SENDERS = 2 };

/* Chunks or tiles, with separate vectors. */
struct lab {
    struct codec codec;
    struct buffer m, y;
    double encode, decode; /* seconds of the last turn */
};

static void check(enum sotto_status st)
{
    if (st == SOTTO_OK)
        return;
    fprintf(stderr, "bench_codec: %s\n", sotto_error());
    exit(1);
}

static void nothing(void *arg, size_t begin, size_t end)
{
    (void)arg, (void)begin, (void)end;
}

/* Fills a buffer with a few million normal numbers, repeated: making numbers takes longer than all
 * the rest. */
static void fill(struct device *dev, const struct buffer *b, struct rng *rng)
{
    enum { FEW = 1 << 22 };
    float *host = malloc(FEW * sizeof *host);
    if (!host)
        check(fail(SOTTO_ENOMEM, "no memory for %d numbers", FEW));
    rng_normal(rng, host, FEW, 0, 1);
    for (size_t at = 0; at < b->count; at += FEW)
        dev->ops->write(dev, view_at(b->view, at), host,
                        b->count - at < FEW ? b->count - at : (size_t)FEW);
    free(host);
}

static void lab_open(struct lab *lab, struct device *dev, const struct table *table, bool tiles)
{
    const struct tiling_rule rule = {.chunk = SIDE, .rate = 1 / 32., .tiles = tiles};
    const size_t count = table_count(table);
    struct rng rng = rng_make(1, 2);
    check(codec_init(&lab->codec, dev, &rule, CODEC_F32, table, NULL, NULL, SENDERS));
    check(buffer_init(&lab->m, dev, DTYPE_F32, count, MEMORY_SCRATCH));
    check(buffer_init(&lab->y, dev, DTYPE_F32, codec_room(&lab->codec), MEMORY_SCRATCH));
    for (int r = SENDERS - 1; r >= 0; r--) {
        fill(dev, &lab->m, &rng);
        codec_encode(&lab->codec, 0, r, lab->m.view, NULL, NULL);
    }
    codec_decode(&lab->codec, 0, lab->y.view, nothing, NULL);
    check(device_check(dev));
}

/* A time by the device's clock or, if the device has none, by the host's. */
struct moment {
    uint64_t mark;
    double seconds;
};

static struct moment now(struct device *dev)
{
    return dev->ops->elapsed ? (struct moment){.mark = dev->ops->mark(dev)}
                             : (struct moment){.seconds = clock_now(&clock_real)};
}

static double between(struct device *dev, struct moment a, struct moment b)
{
    return dev->ops->elapsed ? dev->ops->elapsed(dev, a.mark, b.mark) : b.seconds - a.seconds;
}

static void turn(struct lab *lab)
{
    struct device *dev = lab->codec.dev;
    const struct moment begin = now(dev);
    codec_encode(&lab->codec, 0, 0, lab->m.view, NULL, NULL);
    const struct moment middle = now(dev);
    codec_decode(&lab->codec, 0, lab->y.view, nothing, NULL);
    const struct moment end = now(dev);
    check(device_check(dev));
    lab->encode = between(dev, begin, middle);
    lab->decode = between(dev, middle, end);
}

static void lab_close(struct lab *lab)
{
    codec_free(&lab->codec);
    buffer_free(&lab->m);
    buffer_free(&lab->y);
}

static void best(struct lab *lab, const char *name)
{
    double encode = INFINITY, decode = INFINITY;
    for (int i = 0; i < TURNS; i++) {
        turn(lab);
        encode = fmin(encode, lab->encode);
        decode = fmin(decode, lab->decode);
    }
    const double count = (double)lab->m.count / 1e6;
    printf("%-7s encode %.3f ms, %.0f million/s; decode %.3f ms, %.0f million/s\n", name,
           1e3 * encode, count / encode, 1e3 * decode, count / decode);
}

int main(int argc, char **argv)
{
    struct memory memory = {0};
    struct device dev;
    struct table table = {0};
    struct lab lab[2];
    const char *name = "cpu";
    if (argc > 1 && strncmp(argv[1], "--device=", 9) == 0) {
        name = argv[1] + 9;
        argc--;
        argv++;
    }
    const int64_t rows = (int64_t)(argc > 2 ? atof(argv[2]) : 13.8e6) / (SIDE * 384) * SIDE;
    check(device_open(&dev, name, &memory, argc > 1 ? atoi(argv[1]) : 1));
    if (rows < 1 || table_add(&table, "w", (int64_t[]){rows, 384, 0}, TABLE_ZERO, 0) < 0)
        check(fail(SOTTO_EINVAL, "want at least %d parameters", SIDE * 384));
    check(table_layout(&table, 1, 1));
    for (int i = 0; i < 2; i++)
        lab_open(&lab[i], &dev, &table, i);
    if (argc > 3) {
        for (int c; (c = getchar()) != EOF;) {
            if (c != '\n')
                continue;
            turn(&lab[0]);
            turn(&lab[1]);
            printf("%g %g %g %g\n", lab[0].encode, lab[0].decode, lab[1].encode, lab[1].decode);
            fflush(stdout);
        }
    } else {
        best(&lab[0], "chunks");
        best(&lab[1], "tiles");
    }
    for (int i = 0; i < 2; i++)
        lab_close(&lab[i]);
    device_close(&dev);
    table_free(&table);
    return 0;
}

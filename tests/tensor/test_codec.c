/* Tiles of the cosine transform: every table against the formula, the inverse transform, and the
 * number of coefficients. */
#include "base/scratch.h"

#include <math.h>

#include "base/rng.h"
#include "tensor/cpu/cpu.h"

static struct memory memory;
static const struct contender {
    const char *device, *variant; /* NULL: the device under test */
} contenders[] = {{"cpu", "amx"},      {"cpu", "v4"},   {"cpu", "v3"},
                  {"cpu", "baseline"}, {"apart", NULL}, {NULL, NULL}};

enum { BASIS = 2 * TILE_SIDE * TILE_SIDE };

/* A device, a list of tiles, and their buffers. */
struct lab {
    struct device dev;
    struct tiles tiles;
    struct tiling tiling;
    struct buffer basis, m, y, index, value;
    size_t count, kept;
};

static void make_basis(float *to, int n)
{
    for (int f = 0; f < n; f++)
        for (int t = 0; t < n; t++)
            to[f * n + t] =
                (float)(sqrt((f ? 2.0 : 1.0) / n) * cos(acos(-1) * (2 * t + 1) * f / (2.0 * n)));
}

/* Opens a lab with ny x nx tiles of (h, w) and space for `senders`. */
static void lab_open(struct lab *lab, const char *device, const char *variant, struct tiles t,
                     enum dtype wire, int senders)
{
    static float basis[BASIS], m[1 << 17];
    *lab = (struct lab){.tiles = t};
    lab->tiling = (struct tiling){.tiles = &lab->tiles, .n = 1};
    lab->count = t.at + (size_t)(t.ny * t.h) * t.stride + 7;
    lab->kept = t.kept + (size_t)(t.ny * t.nx * t.keep) + 3;
    assert_true(lab->count <= 1 << 17);
    assert_ok(device_open(&lab->dev, device, &memory, 2));
    if (variant)
        assert_ok(cpu_select(&lab->dev, variant));
    assert_ok(buffer_init(&lab->basis, &lab->dev, DTYPE_F32, BASIS, MEMORY_SCRATCH));
    assert_ok(buffer_init(&lab->m, &lab->dev, DTYPE_F32, lab->count, MEMORY_SCRATCH));
    assert_ok(buffer_init(&lab->y, &lab->dev, DTYPE_F32, lab->count, MEMORY_SCRATCH));
    const size_t all = (size_t)senders * lab->kept;
    assert_ok(buffer_init(&lab->index, &lab->dev, DTYPE_I32, all, MEMORY_SCRATCH));
    assert_ok(buffer_init(&lab->value, &lab->dev, wire, all, MEMORY_SCRATCH));
    make_basis(basis, t.h);
    make_basis(basis + t.h * t.h, t.w);
    lab->tiles.basis_w = (size_t)(t.h * t.h);
    lab->dev.ops->write(&lab->dev, lab->basis.view, basis, BASIS);
    struct rng rng = rng_make(5, (uint64_t)(t.h * 1000 + t.w));
    rng_normal(&rng, m, lab->count, 0, 1);
    lab->dev.ops->write(&lab->dev, lab->m.view, m, lab->count);
}

static void lab_drop(struct lab *lab)
{
    struct buffer *const all[] = {&lab->basis, &lab->m, &lab->y, &lab->index, &lab->value};
    for (int i = 0; i < 5; i++)
        buffer_free(all[i]);
    device_close(&lab->dev);
}

static void lab_close(struct lab *lab)
{
    assert_ok(device_check(&lab->dev));
    lab_drop(lab);
}

/* Encodes as sender r. */
static void encode(struct lab *lab, int r)
{
    const size_t at = (size_t)r * lab->kept;
    lab->dev.ops->tiles_encode(&lab->dev, &lab->tiling, lab->basis.view, lab->m.view,
                               view_at(lab->index.view, at), view_at(lab->value.view, at));
}

static void decode(struct lab *lab, int senders)
{
    lab->dev.ops->tiles_decode(&lab->dev, &lab->tiling, lab->basis.view, senders, lab->y.view,
                               lab->index.view, lab->kept, lab->value.view, lab->kept);
}

static double *read_all(struct lab *lab, const struct buffer *b)
{
    static float room[1 << 17];
    double *out = malloc(b->count * sizeof *out);
    assert_non_null(out);
    if (b->view.type == DTYPE_F32) {
        lab->dev.ops->read(&lab->dev, room, b->view, b->count);
        for (size_t i = 0; i < b->count; i++)
            out[i] = room[i];
    } else if (b->view.type == DTYPE_I32) {
        lab->dev.ops->read(&lab->dev, room, b->view, b->count);
        for (size_t i = 0; i < b->count; i++)
            out[i] = ((const int32_t *)(const void *)room)[i];
    } else {
        lab->dev.ops->read(&lab->dev, room, b->view, b->count);
        for (size_t i = 0; i < b->count; i++)
            out[i] = bf16_widen(((const uint16_t *)(const void *)room)[i]);
    }
    return out;
}

static void assert_equal(struct lab *a, const struct buffer *x, struct lab *b,
                         const struct buffer *y, double room, const char *what)
{
    double *p = read_all(a, x), *q = read_all(b, y);
    for (size_t i = 0; i < x->count; i++)
        if (!(fabs(p[i] - q[i]) <= room * fmax(1, fabs(q[i]))))
            fail_with("%s of %d x %d tiles of (%d, %d), %d kept: element %zu is %.9g, not %.9g",
                      what, a->tiles.ny, a->tiles.nx, a->tiles.h, a->tiles.w, a->tiles.keep, i,
                      p[i], q[i]);
    free(p);
    free(q);
}

/* Runs two rounds of two senders, so that both the selected coefficients and the rest matter. */
static void run(struct lab *lab)
{
    encode(lab, 0);
    encode(lab, 1);
    decode(lab, 2);
}

static const struct tiles shapes[] = {
    {.ny = 1, .nx = 5, .h = 1, .w = 1, .keep = 1, .stride = 5},
    {.ny = 1, .nx = 61, .h = 1, .w = 64, .keep = 4, .stride = 61 * 64, .at = 3, .kept = 2},
    {.ny = 1, .nx = 7, .h = 1, .w = 29, .keep = 29, .stride = 7 * 29},
    {.ny = 1, .nx = 1, .h = 1, .w = 256, .keep = 3, .stride = 256},
    {.ny = 3, .nx = 2, .h = 1, .w = 31, .keep = 2, .stride = 62},
    {.ny = 2, .nx = 3, .h = 16, .w = 16, .keep = 5, .stride = 48},
    {.ny = 1, .nx = 26, .h = 1, .w = 40, .keep = 7, .stride = 26 * 40},
    {.ny = 1, .nx = 2, .h = 7, .w = 13, .keep = 5, .stride = 26, .at = 11},
    {.ny = 2, .nx = 1, .h = 29, .w = 3, .keep = 87, .stride = 3},
    {.ny = 1, .nx = 1, .h = 32, .w = 24, .keep = 17, .stride = 24},
    {.ny = 1, .nx = 200, .h = 1, .w = 64, .keep = 2, .stride = 200 * 64},
    {.ny = 2, .nx = 1, .h = 64, .w = 64, .keep = 128, .stride = 64 + 5, .at = 7, .kept = 3},
    {.ny = 1, .nx = 3, .h = 29, .w = 64, .keep = 58, .stride = 192},
    {.ny = 1, .nx = 1, .h = 64, .w = 48, .keep = 96, .stride = 48},
};

static const char *device_of(struct contender c)
{
    return c.device ? c.device : test_device();
}

static bool has(struct contender c)
{
    struct device dev;
    assert_ok(device_open(&dev, device_of(c), &memory, 1));
    const bool ok = !c.variant || cpu_select(&dev, c.variant) == SOTTO_OK;
    device_close(&dev);
    return ok;
}

static void tables_agree(void **state)
{
    (void)state;
    const int step = SANITIZED && share_given() ? share_step(3) : 1;
    EACH_SHARED(i, step, 2 * (sizeof shapes / sizeof *shapes)) {
        const bool half = i % 2;
        const enum dtype wire = half ? DTYPE_BF16 : DTYPE_F32;
        struct lab want, got;
        lab_open(&want, "reference", NULL, shapes[i / 2], wire, 2);
        run(&want);
        for (size_t v = 0; v < sizeof contenders / sizeof *contenders; v++) {
            const struct contender c = contenders[v];
            if (!has(c))
                continue;
            lab_open(&got, device_of(c), c.variant, shapes[i / 2], wire, 2);
            run(&got);
            assert_equal(&got, &got.index, &want, &want.index, 0, "indices");
            assert_equal(&got, &got.value, &want, &want.value, half ? 1.0 / 128 : 1e-5, "values");
            assert_equal(&got, &got.m, &want, &want.m, half ? 2e-2 : 1e-5, "what is left");
            assert_equal(&got, &got.y, &want, &want.y, half ? 2e-2 : 1e-5, "what comes back");
            lab_close(&got);
        }
        lab_close(&want);
    }
}

/* Every size of chunk against the formula: all coefficients give the chunk back, leave nothing and
 * have its energy. */
static void every_size(void **state)
{
    (void)state;
    for (int w = 1; w <= TILE_SIDE; w++) {
        struct lab lab;
        const struct tiles t = {
            .ny = 1, .nx = 3, .h = 1, .w = w, .keep = w, .stride = 3 * (size_t)w};
        lab_open(&lab, test_device(), NULL, t, DTYPE_F32, 1);
        double *before = read_all(&lab, &lab.m);
        encode(&lab, 0);
        decode(&lab, 1);
        double *value = read_all(&lab, &lab.value), *left = read_all(&lab, &lab.m),
               *back = read_all(&lab, &lab.y);
        double energy = 0, spectrum = 0;
        for (int c = 0; c < 3; c++)
            for (int f = 0; f < w; f++) {
                double sum = 0;
                for (int i = 0; i < w; i++)
                    sum += sqrt((f ? 2.0 : 1.0) / w) * cos(acos(-1) * (2 * i + 1) * f / (2.0 * w)) *
                           before[c * w + i];
                if (fabs(sum - value[c * w + f]) > 2e-6 * sqrt(w))
                    fail_with("frequency %d of %d is %.9g, not %.9g", f, w, value[c * w + f], sum);
            }
        for (int i = 0; i < 3 * w; i++) {
            energy += before[i] * before[i];
            spectrum += value[i] * value[i];
            assert_true(fabs(back[i] - before[i]) < 1e-5 && fabs(left[i]) < 1e-5);
        }
        assert_true(fabs(energy - spectrum) < 1e-5 * energy);
        free(before), free(value), free(left), free(back);
        lab_close(&lab);
    }
}

/* Of equal coefficients, including zeros, the first are kept, also if larger coefficients
 * follow. */
static void ties(void **state)
{
    (void)state;
    const struct {
        struct tiles t;
        float m[256];
        double want[33];
    } cases[] = {
        {{.ny = 1, .nx = 1, .h = 1, .w = 64, .keep = 4, .stride = 64}, {0}, {0, 1, 2, 3}},
        {{.ny = 1, .nx = 1, .h = 1, .w = 64, .keep = 5, .stride = 64}, {0}, {0, 1, 2, 3, 4}},
        {{.ny = 1, .nx = 1, .h = 1, .w = 256, .keep = 5, .stride = 256}, {0}, {0, 1, 2, 3, 4}},
        {{.ny = 1, .nx = 1, .h = 1, .w = 4, .keep = 3, .stride = 4}, {1, 0, 0, -1}, {0, 1, 3}},
        {{.ny = 1, .nx = 1, .h = 64, .w = 64, .keep = 5, .stride = 64}, {0}, {0, 1, 2, 3, 4}},
        {{.ny = 1, .nx = 1, .h = 1, .w = 64, .keep = 33, .stride = 64},
         {[0] = 1, [63] = -1}, /* all even coefficients are 0, no odd one is */
         {0,  1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
          33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lab lab;
        lab_open(&lab, test_device(), NULL, cases[i].t, DTYPE_F32, 1);
        lab.dev.ops->fill(&lab.dev, lab.m.view, lab.count, 0);
        lab.dev.ops->write(&lab.dev, lab.m.view, cases[i].m, (size_t)cases[i].t.w);
        encode(&lab, 0);
        double *index = read_all(&lab, &lab.index);
        for (int k = 0; k < cases[i].t.keep; k++)
            assert_true(index[k] == cases[i].want[k]);
        free(index);
        lab_close(&lab);
    }
}

/* Elements that no tile covers stay as they are, and threads change nothing. */
static void threads_give_equal_bits(void **state)
{
    (void)state;
    const struct tiles t = {
        .ny = 4, .nx = 6, .h = 32, .w = 48, .keep = 40, .stride = 6 * 48 + 5, .at = 9};
    struct lab lab[2];
    for (int k = 0; k < 2; k++) {
        lab_open(&lab[k], "cpu", NULL, t, DTYPE_F32, 2);
        lab[k].dev.threads = 1 + 4 * k;
        run(&lab[k]);
    }
    assert_equal(&lab[0], &lab[0].m, &lab[1], &lab[1].m, 0, "what is left");
    assert_equal(&lab[0], &lab[0].y, &lab[1], &lab[1].y, 0, "what comes back");
    double *y = read_all(&lab[0], &lab[0].y);
    assert_true(y[0] == 0 && y[8] == 0 && y[9] != 0 && y[9 + 6 * 48] == 0);
    free(y);
    lab_close(&lab[0]);
    lab_close(&lab[1]);
}

/* A damaged message is an error, and no element beyond a tile is written. */
static void no_such_coefficient(void **state)
{
    (void)state;
    const char *const tables[] = {"reference", "cpu", "apart", test_device()};
    static const struct tiles damaged[] = {
        {.ny = 1, .nx = 2, .h = 1, .w = 7, .keep = 2, .stride = 14},
        {.ny = 1, .nx = 2, .h = 3, .w = 5, .keep = 2, .stride = 10},
        {.ny = 1, .nx = 2, .h = 1, .w = 64, .keep = 2, .stride = 128},
        {.ny = 1, .nx = 1, .h = 64, .w = 64, .keep = 2, .stride = 64},
        {.ny = 1, .nx = 1, .h = 29, .w = 64, .keep = 2, .stride = 64},
    };
    for (int i = 0; i < 20; i++) {
        const struct tiles *t = &damaged[i / 4];
        if (i % 4 == 0 && t->w == 64) /* slow in the reference */
            continue;
        const int size = t->h * t->w;
        struct lab lab;
        char want[64];
        lab_open(&lab, tables[i % 4], NULL, *t, DTYPE_F32, 2);
        encode(&lab, 0);
        encode(&lab, 1);
        lab.dev.ops->write(&lab.dev, view_at(lab.index.view, lab.kept + 1), &size, 1);
        decode(&lab, 2);
        assert_int_equal(device_check(&lab.dev), SOTTO_EFORMAT);
        snprintf(want, sizeof want, "coefficient %d of a tile of %d x %d", size, t->h, t->w);
        assert_non_null(strstr(sotto_error(), want));
        double *y = read_all(&lab, &lab.y);
        for (size_t e = (size_t)(t->nx * size); e < lab.count; e++)
            assert_true(y[e] == 0);
        free(y);
        lab_drop(&lab);
    }
}

static void signs(void **state)
{
    (void)state;
    struct device dev;
    struct buffer b;
    float x[] = {3, -0.5f, 0, -0.f, 1e-40f, NAN}, want[] = {1, -1, 0, 0, 1};
    assert_ok(device_open(&dev, test_device(), &memory, 1));
    assert_ok(buffer_init(&b, &dev, DTYPE_F32, 6, MEMORY_SCRATCH));
    dev.ops->write(&dev, b.view, x, 6);
    dev.ops->sign(&dev, b.view, b.view, 6);
    dev.ops->read(&dev, x, b.view, 6);
    for (int i = 0; i < 5; i++)
        assert_true(x[i] == want[i]);
    assert_true(isnan(x[5])); /* a NaN stays NaN */
    buffer_free(&b);
    device_close(&dev);
}

/* Every width against the reference's bits, and back. */
static void bits(void **state)
{
    (void)state;
    const char *const tables[] = {"reference", "cpu", "apart", test_device()};
    static int32_t x[5001], back[5001];
    uint8_t packed[4][2 * 5001];
    struct rng rng = rng_make(3, 4);
    for (int b = 1; b <= 16; b++)
        for (size_t n = (size_t)b; n <= 5001; n += LEAP > 1 ? 4985 : 997)
            for (int k = 0; k < 4; k++) {
                const size_t bytes = (n * (size_t)b + 7) / 8;
                struct device dev;
                struct buffer to, from;
                for (size_t i = 0; i < n && k == 0; i++)
                    x[i] = (int32_t)(rng_u32(&rng) >> (32 - b));
                assert_ok(device_open(&dev, tables[k], &memory, 2));
                assert_ok(buffer_init(&to, &dev, DTYPE_U8, bytes, MEMORY_SCRATCH));
                assert_ok(buffer_init(&from, &dev, DTYPE_I32, n, MEMORY_SCRATCH));
                dev.ops->write(&dev, from.view, x, n);
                dev.ops->bits_pack(&dev, b, to.view, from.view, n);
                memset(back, 0, sizeof back);
                dev.ops->write(&dev, from.view, back, n);
                dev.ops->bits_unpack(&dev, b, from.view, to.view, n);
                dev.ops->read(&dev, packed[k], to.view, bytes);
                dev.ops->read(&dev, back, from.view, n);
                assert_memory_equal(packed[k], packed[0], bytes);
                assert_memory_equal(back, x, n * sizeof *x);
                buffer_free(&to);
                buffer_free(&from);
                device_close(&dev);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_agree),
        cmocka_unit_test(every_size),
        cmocka_unit_test(ties),
        cmocka_unit_test(threads_give_equal_bits),
        cmocka_unit_test(signs),
        cmocka_unit_test(bits),
        cmocka_unit_test(no_such_coefficient),
    };
    return run_cases(tests, 1, NULL, NULL);
}

/* Slices of a deep product that are multiplied at once give the same bits as slices one after the
 * other, in any order of threads, for any addend, rounding and type; and so do two products at
 * once. */
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/many.h"

#include "tensor/on_cpu.h"

#include "base/rng.h"

struct shape {
    int m, n, k;
    bool trans_a, trans_b;
    int beside; /* columns next to c that must not change */
};

/* A row of blocks and several rows, edges in all directions, and as many slices as threads, more,
 * and fewer. */
static const struct shape shapes[] = {
    {.m = 64, .n = 64, .k = 2304},
    {.m = 33, .n = 70, .k = 2200, .trans_a = true},
    {.m = 100, .n = 97, .k = 3000, .trans_b = true},
    {.m = 300, .n = 96, .k = 7000, .beside = 5},
    {.m = 40, .n = 8, .k = 9300, .trans_a = true, .trans_b = true}};
static const int threads[] = {3, 4, 5, 16};
enum { SHAPES = sizeof shapes / sizeof *shapes, TEAMS = sizeof threads / sizeof *threads };

/* Addends of the product. */
enum kind { NOTHING, ITSELF, BIAS_AND_RESIDUAL, ROUNDED, KINDS };

struct lab {
    struct shape is;
    float *a, *b, *residual, *bias, *c;
    uint16_t *half;
};

static float *numbers(size_t count, struct rng *rng)
{
    float *x = aligned_alloc(64, round_up(count * sizeof *x, 64));
    assert_non_null(x);
    rng_normal(rng, x, count, 0, 1);
    return x;
}

static size_t stride(struct shape s)
{
    return (size_t)(s.n + s.beside);
}

static size_t result_bytes(const struct lab *lab, enum kind kind)
{
    return (size_t)lab->is.m * stride(lab->is) *
           (kind == ROUNDED ? sizeof *lab->half : sizeof *lab->c);
}

static void *result_of(const struct lab *lab, enum kind kind)
{
    return kind == ROUNDED ? (void *)lab->half : (void *)lab->c;
}

/* Returns a room filled with NaNs. */
static float *room_of(const struct lab *lab, const struct device *on, bool half)
{
    const size_t floats = cpu_gemm_room(on, lab->is.m, lab->is.n, lab->is.k, half);
    float *room = aligned_alloc(64, round_up(floats * sizeof *room, 64));
    assert_non_null(room);
    memset(room, 0xff, floats * sizeof *room);
    return room;
}

static struct gemm product_of(const struct lab *lab, enum kind kind, bool half, float *room)
{
    const struct shape s = lab->is;
    const size_t n = (size_t)s.n, count = (size_t)s.m * stride(s);
    for (size_t i = 0; i < count; i++) {
        lab->c[i] = (float)i;
        lab->half[i] = (uint16_t)(0x3f80 + i % 64);
    }
    struct gemm g = {.m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .half = half,
                     .a = lab->a,
                     .b = lab->b,
                     .c = lab->c,
                     .trans_a = s.trans_a,
                     .trans_b = s.trans_b,
                     .lda = (size_t)(s.trans_a ? s.m : s.k),
                     .ldb = (size_t)(s.trans_b ? s.k : s.n),
                     .ldc = stride(s),
                     .room = room,
                     .add = kind == ITSELF || kind == ROUNDED};
    if (kind == BIAS_AND_RESIDUAL) {
        g.bias = lab->bias;
        g.residual = lab->residual;
        g.ld_residual = n;
    }
    if (kind == ROUNDED) {
        g.c_from = g.c_to = lab->half;
        g.ld_half = stride(s);
    }
    return g;
}

static void multiply(struct lab *lab, struct device *on, enum kind kind, bool half)
{
    float *room = room_of(lab, on, half);
    const struct gemm g = product_of(lab, kind, half, room);
    cpu_gemm(on, &g);
    free(room);
}

static int abreast_of(struct shape s, struct device *on, bool half)
{
    const struct lab lab = {.is = s};
    float *room = room_of(&lab, on, half);
    const int abreast = gemm_plan_of(on, s.m, s.n, s.k, half, room, on->threads).abreast;
    free(room);
    return abreast;
}

/* Returns the number of teams with slices at once. */
static int check(struct lab *lab, struct device *one, enum kind kind, bool half,
                 const char *kernels)
{
    int at_once = 0;
    const size_t bytes = result_bytes(lab, kind);
    void *expected = malloc(bytes);
    assert_non_null(expected);
    multiply(lab, one, kind, half);
    memcpy(expected, result_of(lab, kind), bytes);
    for (int t = 0; t < TEAMS; t++) {
        struct device many;
        assert_ok(device_open(&many, "cpu", &memory, threads[t]));
        assert_ok(cpu_select(&many, kernels));
        at_once += abreast_of(lab->is, &many, half) > 1;
        for (int turn = 0; turn < (SANITIZED ? 1 : 3); turn++) {
            multiply(lab, &many, kind, half);
            assert_memory_equal(result_of(lab, kind), expected, bytes);
        }
        device_close(&many);
    }
    free(expected);
    return at_once;
}

static struct lab lab_of(struct shape s, int seed)
{
    const size_t m = (size_t)s.m, n = (size_t)s.n, k = (size_t)s.k;
    struct rng rng = rng_make(7, (uint64_t)seed);
    struct lab lab = {.is = s,
                      .a = numbers(m * k, &rng),
                      .b = numbers(k * n, &rng),
                      .residual = numbers(m * n, &rng),
                      .bias = numbers(n, &rng),
                      .c = numbers(m * stride(s), &rng),
                      .half = malloc(m * stride(s) * sizeof(uint16_t))};
    assert_non_null(lab.half);
    return lab;
}

static void lab_free(struct lab *lab)
{
    free(lab->a), free(lab->b), free(lab->residual), free(lab->bias), free(lab->c);
    free(lab->half);
}

static const char *const variants[] = {"amx", "v4", "v3", "bf16", "baseline"};
enum { VARIANTS = sizeof variants / sizeof *variants };

static struct lab deep[SHAPES];

/* The second of two products: about as large as a deep product; more blocks than threads, with
 * hardly a column each; small enough for a single thread. */
static const struct shape more[] = {{.m = 96, .n = 400, .k = 700, .trans_a = true},
                                    {.m = 3000, .n = 20, .k = 768},
                                    {.m = 5, .n = 3, .k = 9}};
enum { MORE = sizeof more / sizeof *more };
static struct lab second[MORE];

static int make_labs(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        deep[i] = lab_of(shapes[i], i);
    for (int i = 0; i < MORE; i++)
        second[i] = lab_of(more[i], 2);
    return 0;
}

static int free_labs(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        lab_free(&deep[i]);
    for (int i = 0; i < MORE; i++)
        lab_free(&second[i]);
    return 0;
}

/* True if this run takes a case: with a share one in three, under a sanitizer one in eleven. Both
 * divide no count of shapes, kinds or kernels. */
static bool takes_case(int index)
{
    return share_has((size_t)index, SANITIZED ? 11 : 3);
}

static void slices_at_once_make_equal_bits(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        if (cpu_select(&dev, variants[v]) != SOTTO_OK)
            continue;
        int at_once[2] = {0}, cases = 0;
        for (int i = 0; i < SHAPES; i++) {
            for (int k = 0; k < 2 * KINDS; k++) {
                if (!takes_case((v * SHAPES + i) * 2 * KINDS + k + i))
                    continue;
                at_once[k % 2] += check(&deep[i], &dev, (enum kind)(k / 2), k % 2, variants[v]);
                cases++;
            }
        }
        const bool all = cases == SHAPES * 2 * KINDS;
        assert_true(!all || (at_once[0] > 0 && at_once[1] > 0)); /* otherwise the test is empty */
    }
}

/* Multiplies by a team, or by a thread although a team was requested. */
static void multiply_both(struct lab lab[2], struct device *on, enum kind kind, bool half,
                          bool team_came)
{
    float *room[2] = {room_of(&lab[0], on, half), room_of(&lab[1], on, half)};
    const struct gemm g = product_of(&lab[0], kind, half, room[0]);
    const struct gemm h = product_of(&lab[1], kind, half, room[1]);
    if (team_came) {
        cpu_gemm_both(on, &g, &h);
    } else {
        struct gemm_plan one = gemm_plan_many(on, g.m, g.n, g.k, half, room[0], on->threads - 1);
        struct gemm_plan other = gemm_plan_many(on, h.m, h.n, h.k, half, room[1], 1);
        one.g = &g, other.g = &h;
        gemm_work_both(&one, &other);
    }
    free(room[0]), free(room[1]);
}

static void two_at_once_make_equal_bits(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        if (cpu_select(&dev, variants[v]) != SOTTO_OK)
            continue;
        for (int i = 0; i < MORE * KINDS * 2; i++) {
            if (!takes_case(i + v))
                continue;
            const enum kind kind = (enum kind)(i / 2 % KINDS);
            const bool half = i % 2;
            struct lab lab[2] = {deep[i % SHAPES], second[i / 8]};
            const size_t bytes[2] = {result_bytes(&lab[0], kind), result_bytes(&lab[1], kind)};
            void *expected[2] = {malloc(bytes[0]), malloc(bytes[1])};
            for (int w = 0; w < 2; w++) {
                assert_non_null(expected[w]);
                multiply(&lab[w], &dev, kind, half);
                memcpy(expected[w], result_of(&lab[w], kind), bytes[w]);
            }
            for (int t = 0; t < 2 * TEAMS; t++) {
                struct device many;
                assert_ok(device_open(&many, "cpu", &memory, threads[t / 2]));
                assert_ok(cpu_select(&many, variants[v]));
                multiply_both(lab, &many, kind, half, t % 2);
                for (int w = 0; w < 2; w++)
                    assert_memory_equal(result_of(&lab[w], kind), expected[w], bytes[w]);
                device_close(&many);
            }
            free(expected[0]), free(expected[1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST_ON_CPU(slices_at_once_make_equal_bits),
                                       TEST_ON_CPU(two_at_once_make_equal_bits)};
    return cmocka_run_group_tests(tests, make_labs, free_labs);
}

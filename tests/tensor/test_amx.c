/* The kernels of the matrix unit with its instructions in plain C (plain/immintrin.h): packing of
 * matrices of any shape, products compared with sums in double precision, and attention compared
 * with this machine's kernels. */
#include "tensor/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/scratch.h"
#include "tensor/op_cases.h"

int plain_sent;

extern const struct gemm_kernels plain_amx, plain_amx_half;

enum { M = 96, N = 64, K = 128, PAD = 7 }; /* the largest */

/* a is (m, k) if turned, else (k, m); b is (n, k) if turned, else (k, n). */
struct product {
    const struct gemm_kernels *f;
    int m, n, k;
    bool turned_a, turned_b, half_b; /* half_b: from bf16 */
    bool from, bias;
    size_t lda, ldb, ldc;
};

static struct {
    float a[(M + PAD) * (K + PAD)], b[(N + PAD) * (K + PAD)];
    uint16_t b_half[(N + PAD) * (K + PAD)];
    float residual[M * (N + 32)], bias[N];
    float strips_a[M * K * 2] __attribute__((aligned(64)));
    float strips_b[N * K * 2] __attribute__((aligned(64)));
    float c[2][M * (N + 32)] __attribute__((aligned(64)));
} room;

static float some(struct rng *rng)
{
    const float x = (float)(2 * rng_uniform(rng) - 1);
    return rng_uniform(rng) < 0.3 ? x * 1e-3f : x;
}

static float wide(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static void fill(struct rng *rng)
{
    for (size_t i = 0; i < sizeof room.a / sizeof *room.a; i++)
        room.a[i] = some(rng);
    for (size_t i = 0; i < sizeof room.b / sizeof *room.b; i++) {
        const float x = room.b[i] = some(rng);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        room.b_half[i] = (uint16_t)(bits >> 16);
    }
    for (size_t i = 0; i < sizeof room.residual / sizeof *room.residual; i++)
        room.residual[i] = some(rng);
    for (int j = 0; j < N; j++)
        room.bias[j] = some(rng);
}

static size_t strip_floats(const struct product *p)
{
    return 32 * (size_t)((p->k + 31) / 32 * 32) * (size_t)p->f->halves / 2;
}

static int at_most_32(int n)
{
    return n < 32 ? n : 32;
}

static void pack(const struct product *p)
{
    for (int i = 0; i < p->m; i += 32)
        p->f->pack_a(room.strips_a + (size_t)(i / 32) * strip_floats(p),
                     room.a + (size_t)i * (p->turned_a ? p->lda : 1), p->lda, at_most_32(p->m - i),
                     p->k, p->turned_a);
    for (int j = 0; j < p->n; j += 32) {
        float *to = room.strips_b + (size_t)(j / 32) * strip_floats(p);
        const size_t at = (size_t)j * (p->turned_b ? p->ldb : 1);
        const int n = at_most_32(p->n - j);
        if (p->half_b)
            p->f->pack_b_half(to, room.b_half + at, p->ldb, n, p->k, p->turned_b);
        else
            p->f->pack_b(to, room.b + at, p->ldb, n, p->k, p->turned_b);
    }
}

/* Returns a copy of the strips of `rows` rows or columns with no memory after the copy, so that a
 * sanitizer finds a read beyond the end. */
static float *alone(const struct product *p, const float *strips, int rows)
{
    const size_t bytes = (size_t)((rows + 31) / 32) * strip_floats(p) * sizeof *strips;
    float *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, strips, bytes);
}

/* Multiplies twice: with ordinary stores, and with stores past the caches. */
static void multiply(const struct product *p)
{
    float *a = alone(p, room.strips_a, p->m), *b = alone(p, room.strips_b, p->n);
    for (int way = 0; way < 2; way++) {
        float *c = room.c[way];
        memset(c, 0x55, sizeof room.c[way]);
        (way ? p->f->send_block : p->f->block)(p->m, p->n, p->k, a, b, c, p->ldc,
                                               p->from ? room.residual : NULL, p->ldc,
                                               p->bias ? room.bias : NULL);
    }
    free(a);
    free(b);
    assert_memory_equal(room.c[0], room.c[1], sizeof room.c[0]);
}

static void check(const struct product *p)
{
    const bool rounds = p->f == &plain_amx_half;
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            const size_t at = (size_t)i * p->ldc + (size_t)j;
            const double residual = p->from ? room.residual[at] : 0;
            const double bias = p->bias ? room.bias[j] : 0;
            double sum = residual + bias, size = fabs(residual) + fabs(bias) + 1e-6;
            for (int l = 0; l < p->k; l++) {
                const size_t at_a =
                    p->turned_a ? (size_t)i * p->lda + (size_t)l : (size_t)l * p->lda + (size_t)i;
                const size_t at_b =
                    p->turned_b ? (size_t)j * p->ldb + (size_t)l : (size_t)l * p->ldb + (size_t)j;
                const double y = p->half_b ? wide(room.b_half[at_b]) : room.b[at_b];
                sum += room.a[at_a] * y;
                size += fabs(room.a[at_a] * y);
            }
            if (!(fabs(room.c[0][at] - sum) <= (rounds ? 1e-2 : 1e-6) * size))
                fail_with("%d x %d x %d: element (%d, %d) is %.9g, not %.9g", p->m, p->n, p->k, i,
                          j, (double)room.c[0][at], sum);
        }
    for (int i = 0; i < p->m; i++) /* memory next to c is unchanged */
        for (size_t j = (size_t)p->n; j < p->ldc; j++)
            assert_memory_equal(&room.c[0][(size_t)i * p->ldc + j], "UUUU", 4);
}

static void products(void **state)
{
    (void)state;
    static const int ms[] = {1, 31, 32, 33, M}, ns[] = {1, 32, 45, N}, ks[] = {1, 32, 33, 100, K};
    EACH_SHARED(i, share_given() ? share_step(SANITIZED ? 7 : 3) : 1, 5 * 4 * 5 * 2) {
        struct rng rng = rng_make(7, (uint64_t)i);
        const int m = ms[i % 5], n = ns[i / 5 % 4], k = ks[i / 20 % 5], rounded = i / 100;
        const unsigned bits = (unsigned)(rng_uniform(&rng) * 64);
        struct product p = {.f = rounded ? &plain_amx_half : &plain_amx,
                            .m = m,
                            .n = n,
                            .k = k,
                            .turned_a = bits & 1,
                            .turned_b = bits & 2,
                            .half_b = rounded && bits & 4,
                            .from = bits & 8,
                            .bias = bits & 16};
        const bool lines = bits & 32; /* rows of c begin at lines */
        p.lda = (size_t)(p.turned_a ? k : m) + 3;
        p.ldb = (size_t)(p.turned_b ? k : n) + 5;
        p.ldc = lines ? (size_t)(n + 15) / 16 * 16 : (size_t)n + 3;
        plain_sent = 0;
        fill(&rng);
        pack(&p);
        multiply(&p);
        check(&p);
        assert_int_equal(plain_sent > 0, m >= 32 && n >= 32 && p.ldc % 16 == 0);
    }
}

/* Sums that underflow from below are -0 with both kinds of stores. */
static void signs_of_zeros(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        struct product p = {.f = half ? &plain_amx_half : &plain_amx, .m = 32, .n = 32, .k = 32};
        p.lda = p.ldb = p.ldc = 32;
        for (int i = 0; i < 32 * 32; i++)
            room.a[i] = -1e-20f, room.b[i] = 1e-20f;
        pack(&p);
        multiply(&p);
        assert_true(room.c[0][0] == 0 && signbit(room.c[0][0]));
    }
}

/* Packing split rows gives the same strips. */
static void split_rows(void **state)
{
    (void)state;
    enum { ROWS = 64, WIDE = 96 };
    static uint16_t split[ROWS][3 * WIDE];
    const uint16_t *rows[ROWS];
    struct rng rng = rng_make(8, 0);
    for (int half = 0; half < 2; half++) {
        const struct gemm_kernels *f = half ? &plain_amx_half : &plain_amx;
        fill(&rng);
        for (int r = 0; r < ROWS; r++) {
            f->split(split[r], room.a + r * WIDE, WIDE);
            rows[r] = split[r];
        }
        const size_t at = 32, words = at * (size_t)f->halves;
        const size_t bytes = 32 * 64 * sizeof(uint16_t) * (size_t)f->halves;
        for (int n = 20; n <= 32; n += 12) { /* of a: 64 deep */
            f->pack_a(room.strips_a, room.a + at, WIDE, n, 64, true);
            f->pack_a_split(room.strips_b, rows, words, n, 64);
            assert_memory_equal(room.strips_a, room.strips_b, bytes);
        }
        for (int k = 43; k <= 64; k += 21) { /* of b: 32 columns */
            f->pack_b(room.strips_a, room.a + at, WIDE, 32, k, false);
            f->pack_b_split(room.strips_b, rows, words, k);
            assert_memory_equal(room.strips_a, room.strips_b, bytes);
        }
    }
}

static float element(struct view v, size_t i)
{
    return v.type == DTYPE_F32 ? ((float *)v.data)[i] : bf16_widen(((uint16_t *)v.data)[i]);
}

static void compare(const struct op_room *got, const struct op_room *want)
{
    for (int i = 0; i < got->n; i++) {
        const bool rounds = got->c->flags & CASE_HALF, rounded = got->view[i].type == DTYPE_BF16;
        float largest = 1;
        for (size_t e = 0; e < got->operand[i].count; e++)
            largest = fmaxf(largest, fabsf(element(want->view[i], e)));
        for (size_t e = 0; e < got->operand[i].count; e++) {
            const float x = element(got->view[i], e), y = element(want->view[i], e);
            const float off = (rounds ? 1.0f / 128 : 4e-6f) * largest;
            if (!(fabsf(x - y) <= off + (rounded ? fabsf(y) / 128 : 0)))
                fail_with("%s[%zu] of %d x %d queries is %.9g, not %.9g", got->operand[i].name, e,
                          got->c->d[0], got->c->d[1], (double)x, (double)y);
        }
    }
}

/* Both passes of attention with the unit, and with kernels that do not pack queries, have the
 * results of this machine's kernels. */
static void attention(void **state)
{
    (void)state;
    enum { LONGEST = 70 };
    struct memory memory = {0};
    struct device with, without;
    assert_ok(device_open(&without, "cpu", &memory, 1));
    assert_ok(device_open(&with, "cpu", &memory, 1));
    struct kernels kernels = *kernels_of(&with);
    const struct gemm_kernels *small = kernels.small;
    const void *impl = with.impl;
    kernels.gemm_half = &plain_amx_half;
    with.impl = &kernels;
    EACH_SHARED(i, share_given() ? share_step(SANITIZED ? 7 : 3) : LEAP, op_cases_count * 4) {
        const struct op_case *c = &op_cases[i / 4];
        const unsigned half = i % 4 / 2 ? KIND_ACTIVATION : 0; /* rows are bf16 */
        struct op_room got, want;
        if (strcmp(c->op, "attention") != 0 || c->d[1] > LONGEST)
            continue;
        kernels.small = kernels.attend = i % 2 ? &plain_amx : small;
        assert_ok(op_room_init(&want, &without, c, half));
        for (int pass = 0; pass < family_of(c)->passes; pass++) {
            assert_ok(op_room_copy(&got, &with, &want, half));
            op_room_run(&want, pass);
            op_room_run(&got, pass);
            compare(&got, &want);
            op_room_free(&got);
        }
        op_room_free(&want);
    }
    with.impl = impl;
    device_close(&with);
    device_close(&without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(signs_of_zeros),
                                       cmocka_unit_test(split_rows), cmocka_unit_test(attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

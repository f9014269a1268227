/* A NaN stays NaN, whatever its bits, in every op of every instruction set: a run with a broken
 * number must not continue as if it were sound. */
#include <math.h>

#include "base/scratch.h"
#include "tensor/cpu/cpu.h"
#include "tensor/op_cases.h"

static struct memory memory;

static const char *const variants[] = {"amx", "v4", "v3", "bf16", "baseline"};

/* The usual NaN; NaNs that rounding to 16 bits carries into the sign, or out of the word; and a NaN
 * with the upper half of an infinity. */
static const uint32_t patterns[] = {0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f800001};

static const unsigned halves[] = {0, KIND_ACTIVATION | KIND_WEIGHT | KIND_GRADIENT, KIND_WEIGHT};

static bool is_nan(struct view v, size_t i)
{
    const uint32_t bits =
        v.type == DTYPE_F32 ? ((uint32_t *)v.data)[i] : (uint32_t)((uint16_t *)v.data)[i] << 16;
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static void set_nan(struct view v, size_t i, uint32_t bits)
{
    if (v.type == DTYPE_F32)
        ((uint32_t *)v.data)[i] = bits;
    else
        ((uint16_t *)v.data)[i] = (uint16_t)(bits >> 16 | 0x40);
}

static void copy_state(struct op_room *to, const struct op_room *from)
{
    for (int i = 0; i < to->n; i++)
        if (to->view[i].data)
            memcpy(to->view[i].data, from->view[i].data,
                   to->operand[i].count * dtype_size(to->view[i].type));
}

/* Asserts that the fast table has a NaN wherever the reference has a NaN. */
static void compare(const struct op_room *got, const struct op_room *want, uint32_t bits,
                    const char *in, const char *variant)
{
    for (int i = 0; i < got->n; i++)
        for (size_t e = 0; got->view[i].data && e < got->operand[i].count; e++) {
            const bool wants = is_nan(want->view[i], e);
            if (wants && !is_nan(got->view[i], e))
                fail_with("%s, %s: 0x%08x in %s gives a number in %s[%zu]", got->c->op, variant,
                          (unsigned)bits, in, got->operand[i].name, e);
        }
}

static void check(const struct op_case *c, unsigned half, const char *variant)
{
    struct device oracle, fast;
    struct op_room start, want, got;
    assert_ok(device_open(&oracle, "reference", &memory, 1));
    assert_ok(device_open(&fast, "cpu", &memory, 1));
    if (cpu_select(&fast, variant) == SOTTO_OK) {
        assert_ok(op_room_init(&start, &oracle, c, half));
        assert_ok(op_room_init(&want, &oracle, c, half));
        assert_ok(op_room_init(&got, &fast, c, half));
        for (int pass = 0; pass < family_of(c)->passes; pass++) {
            for (int i = 0; i < start.n; i++) {
                if (start.operand[i].role == ROLE_SAVED) /* made by the op itself */
                    continue;
                for (size_t p = 0; start.view[i].data && p < sizeof patterns / 4; p++) {
                    copy_state(&want, &start);
                    set_nan(want.view[i], start.operand[i].count / 2, patterns[p]);
                    copy_state(&got, &want);
                    op_room_run(&want, pass);
                    op_room_run(&got, pass);
                    compare(&got, &want, patterns[p], start.operand[i].name, variant);
                }
            }
            op_room_run(&start, pass); /* the next pass reads the results */
        }
        op_room_free(&got);
        op_room_free(&want);
        op_room_free(&start);
    }
    device_close(&fast);
    device_close(&oracle);
}

static void every_op(void **state)
{
    (void)state;
    const size_t n = sizeof halves / sizeof *halves;
    for (size_t i = 0; i < op_cases_count; i++)
        for (size_t h = (i + share_first(LEAP, LEAP)) % LEAP;
             h < n && op_case_elements(&op_cases[i]) < 30000; h += LEAP)
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
                check(&op_cases[i], halves[h], variants[v]);
}

/* Products large enough for every way of packing operands: a single NaN makes a row or a column of
 * the result NaN. */
static void products(void **state)
{
    (void)state;
    enum { ROWS = 70, IN = 66, OUT = 68 };
    static float x[ROWS * IN], w[OUT * IN], y[ROWS * OUT], dx[ROWS * IN], dw[OUT * IN];
    static const struct view vx = {.data = x, .type = DTYPE_F32},
                             vy = {.data = y, .type = DTYPE_F32},
                             vdx = {.data = dx, .type = DTYPE_F32},
                             vdw = {.data = dw, .type = DTYPE_F32};
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
        for (size_t p = 0; p < sizeof patterns / 4 && cpu_select(&dev, variants[v]) == SOTTO_OK;
             p++)
            for (int k = 0; k < 4; k++) {
                const struct linear l = {ROWS,  IN,   OUT, k & 1 ? LINEAR_IN_OUT : LINEAR_OUT_IN,
                                         k & 2, false};
                const struct view vw = view_of(w, k & 2 ? DTYPE_BF16 : DTYPE_F32);
                const size_t in = 5, row = 40;
                memset(w, 0, sizeof w);
                memset(x, 0, sizeof x);
                set_nan(vx, row * IN + in, patterns[p]);
                dev.ops->linear_forward(&dev, &l, vy, vx, vw, view_none, view_none);
                for (size_t o = 0; o < OUT; o++)
                    assert_true(is_nan(vy, row * OUT + o) && !is_nan(vy, o));
                memset(y, 0, sizeof y);
                memset(dw, 0, sizeof dw);
                dev.ops->linear_backward_w(&dev, &l, vdw, view_none, vy, vx);
                for (size_t o = 0; o < OUT; o++)
                    assert_true(is_nan(vdw, k & 1 ? in * OUT + o : o * IN + in));
                set_nan(vy, row * OUT + 7, patterns[p]);
                dev.ops->linear_backward_x(&dev, &l, vdx, vy, vw, false);
                for (size_t i = 0; i < IN; i++)
                    assert_true(is_nan(vdx, row * IN + i) && !is_nan(vdx, i));
            }
    device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_op), cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The op tables: the fast one against the reference, the reference against finite differences. */
#include "tensor/op_check.h"

/* Returns the largest absolute value of an operand. */
static double largest_of(const struct op_room *room, int i)
{
    double largest = 0;
    for (size_t e = 0; e < room->operand[i].count; e++)
        largest = fmax(largest, fabs(element(room->view[i], e)));
    return largest;
}

/* The operands before and after a pass of the reference. */
struct reference_pass {
    struct op_room before, room;
    bool changed[OPERANDS];   /* by the pass                                       */
    double largest[OPERANDS]; /* absolute value after the pass; -1: not searched yet */
};

static size_t operand_bytes(const struct op_room *room, int i)
{
    return room->operand[i].count * dtype_size(room->view[i].type);
}

/* True if an operand that the reference did not change kept every bit. Unchanged operands are most
 * of the table's elements: weights in a forward pass. */
static bool left_alone(const struct op_room *got, const struct reference_pass *want, int i)
{
    return !want->changed[i] &&
           memcmp(got->view[i].data, want->room.view[i].data, operand_bytes(got, i)) == 0;
}

/* Compares operands. bf16 has 8 bits, so two values that agree before rounding differ by at most
 * one last place. Ops that add several times into bf16 round each time, as the reference does.
 * Attention that may round does so with its factors, not with its results. */
static void compare(const struct op_room *got, struct reference_pass *want, unsigned half,
                    const char *what)
{
    double tolerance = family_of(got->c)->tolerance;
    bool sums = family_of(got->c)->sums;
    for (int i = 0; i < got->n; i++) {
        const size_t count = got->operand[i].count;
        const bool rounded = got->view[i].type == DTYPE_BF16;
        if (count == 0 || left_alone(got, want, i))
            continue;
        for (size_t e = 0; e < count; e++) {
            double a = element(got->view[i], e), b = element(want->room.view[i], e);
            if (a - b == 0 || fabs(a - b) <= tolerance) /* the tightest tolerance */
                continue;
            if (sums && want->largest[i] < 0)
                want->largest[i] = largest_of(&want->room, i);
            double room = tolerance * fmax(sums ? want->largest[i] : fabs(b), 1);
            room += rounded ? fabs(b) / 128 : 0;
            room += got->c->flags & CASE_HALF ? want->largest[i] / 128 : 0;
            if (!(fabs(a - b) <= room)) {
                print_case(got->c, half);
                fail_with("%s[%zu] is %.9g with %s, the reference says %.9g (room %.2g)",
                          got->operand[i].name, e, a, what, b, room);
            }
        }
    }
}

/* Every pass starts from the reference's state, so that errors do not add up over passes. */
static void copy_state(struct op_room *to, const struct op_room *from)
{
    for (int i = 0; i < to->n; i++) {
        if (to->view[i].data)
            memcpy(to->view[i].data, from->view[i].data,
                   to->operand[i].count * dtype_size(to->view[i].type));
    }
}

/* Runs one pass with the kernels `name`, if the machine has them. A run with a share takes all
 * mixes of types with the best and the plainest kernels, and two mixes of five with kernels between
 * them.
 */
static void check_kernels(const char *name, struct reference_pass *want, int mix, int pass)
{
    struct device fast;
    struct op_room got;
    assert_ok(device_open(&fast, "cpu", &memory, 2));
    const bool all = strcmp(name, kernels_of(&fast)->name) == 0 || strcmp(name, "baseline") == 0;
    if (cpu_select(&fast, name) == SOTTO_OK &&
        (all || share_has(mix, HALVES) || share_has(mix + 1, HALVES))) {
        assert_ok(op_room_copy(&got, &fast, &want->before, halves[mix]));
        op_room_run(&got, pass);
        assert_ok(device_check(&fast));
        compare(&got, want, halves[mix], name);
        op_room_free(&got);
    }
    device_close(&fast);
}

static void run_reference(struct reference_pass *want, int pass)
{
    copy_state(&want->before, &want->room);
    op_room_run(&want->room, pass);
    for (int i = 0; i < want->room.n; i++) {
        want->largest[i] = -1;
        want->changed[i] = want->room.operand[i].count &&
                           memcmp(want->before.view[i].data, want->room.view[i].data,
                                  operand_bytes(&want->room, i)) != 0;
    }
}

static void check_against_reference(const struct op_case *c, int mix)
{
    struct device oracle;
    struct reference_pass want;
    assert_ok(device_open(&oracle, "reference", &memory, 1));
    assert_ok(op_room_init(&want.room, &oracle, c, halves[mix]));
    assert_ok(op_room_copy(&want.before, &oracle, &want.room, halves[mix]));
    for (int pass = 0; pass < family_of(c)->passes; pass++) {
        run_reference(&want, pass);
        for (size_t i = 0; i < VARIANTS; i++)
            check_kernels(variants[i], &want, mix, pass);
    }
    op_room_free(&want.room);
    op_room_free(&want.before);
    device_close(&oracle);
}

static void test_fast_agrees_with_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < op_cases_count * HALVES; i++)
        if (op_share_has(i))
            check_against_reference(&op_cases[i / HALVES], (int)(i % HALVES));
}

/* f = sum(c * y), in double. */
static double functional(struct op_room *room)
{
    int y = -1, dy = -1;
    double sum = 0;
    for (int i = 0; i < room->n; i++) {
        y = room->operand[i].role == ROLE_OUT ? i : y;
        dy = room->operand[i].role == ROLE_DY ? i : dy;
    }
    op_room_run(room, 0);
    for (size_t e = 0; e < room->operand[y].count; e++)
        sum += element(room->view[y], e) * element(room->view[dy], e);
    return sum;
}

/* Returns the derivative by the five-point formula with a wide step: its error h^4 f'''''/30 and
 * the error of y's rounding, 2^-24 / h, are both near 1e-6. */
static double difference(struct op_room *room, int operand, size_t e)
{
    float *x = (float *)room->view[operand].data + e, x0 = *x;
    const float h = 1.0f / 32;
    double f[4];
    for (int i = 0; i < 4; i++) {
        *x = x0 + h * (float)(i < 2 ? i - 2 : i - 1);
        f[i] = functional(room);
    }
    *x = x0;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

static void check_gradient(struct op_room *room, const struct op_room *start, int grad)
{
    const struct operand *o = &room->operand[grad];
    size_t step = 1 + o->count / 60; /* a sample of a large operand */
    for (size_t e = 0; e < o->count; e += step) {
        double want = difference(room, o->of, e);
        double got = element(room->view[grad], e) - (o->adds ? element(start->view[grad], e) : 0);
        if (!(fabs(got - want) <= 2e-4 * (1 + fabs(want)))) {
            print_case(room->c, 0);
            fail_with("%s[%zu] is %.7g, finite differences say %.7g", o->name, e, got, want);
        }
    }
}

/* Returns the count of elements of the largest operand. */
static size_t largest_operand(const struct op_case *c)
{
    struct operand operand[OPERANDS];
    size_t largest = 0;
    for (int i = family_of(c)->operands(c, operand); i-- > 0;)
        largest = operand[i].count > largest ? operand[i].count : largest;
    return largest;
}

static void test_reference_agrees_with_finite_differences(void **state)
{
    (void)state;
    int checked = 0;
    EACH_SHARED(i, LEAP, op_cases_count) {
        const struct op_case *c = &op_cases[i];
        struct device dev;
        struct op_room room, start;
        if (largest_operand(c) >= 2000)
            continue;
        assert_ok(device_open(&dev, "reference", &memory, 1));
        assert_ok(op_room_init(&start, &dev, c, 0));
        assert_ok(op_room_init(&room, &dev, c, 0));
        for (int pass = 0; pass < family_of(c)->passes; pass++)
            op_room_run(&room, pass);
        for (int o = 0; o < room.n; o++) {
            if (room.operand[o].role == ROLE_GRAD && room.operand[o].of >= 0) {
                check_gradient(&room, &start, o);
                checked++;
            }
        }
        op_room_free(&room);
        op_room_free(&start);
        device_close(&dev);
    }
    assert_true(checked > (LEAP == 1 ? 60 : 0));
}

/* The first of equal logits is the prediction, and an ignored row is exactly nothing. */
static void test_cross_entropy_ties_and_ignored(void **state)
{
    (void)state;
    static const char *const tables[] = {"cpu", "reference"};
    for (int i = 0; i < 2; i++) {
        struct device dev;
        assert_ok(device_open(&dev, tables[i], &memory, 1));
        float logits[4][40], losses[4];
        for (int r = 0; r < 4; r++) {
            for (int j = 0; j < 40; j++)
                logits[r][j] = j == 3 || j == 37 ? 2 : -1;
        }
        int32_t targets[4] = {3, 37, -1, 5};
        uint8_t places[4];
        struct view view = view_of(logits, DTYPE_F32);
        dev.ops->cross_entropy(&dev, 4, 40, view, view_of(targets, DTYPE_I32), 1,
                               view_of(losses, DTYPE_F32), view_of(places, DTYPE_U8));
        assert_int_equal(places[0], 1);
        assert_int_equal(places[1], 2);
        assert_int_equal(places[2], 0);
        assert_int_equal(places[3], 3 + 4); /* after 0, 1, 2 and 4, which are equal */
        assert_true(losses[2] == 0);
        for (int j = 0; j < 40; j++)
            assert_true(logits[2][j] == 0);
        assert_true(losses[0] == losses[1] && losses[3] > losses[0]);
        device_close(&dev);
    }
}

/* The first of equal pixels wins, a NaN always wins, and pixels outside never win. */
static void test_maxpool_ties(void **state)
{
    (void)state;
    static const char *const tables[] = {"cpu", "reference"};
    const struct pooling p = {1, 3, 3, 1, 3, 2, 1};
    for (int i = 0; i < 2; i++) {
        struct device dev;
        assert_ok(device_open(&dev, tables[i], &memory, 1));
        float x[9] = {-1, -1, -2, -1, -1, NAN, -2, 3, 3}, y[4];
        uint8_t winner[4];
        dev.ops->maxpool_forward(&dev, &p, view_of(y, DTYPE_F32), view_of(winner, DTYPE_U8),
                                 view_of(x, DTYPE_F32));
        assert_true(y[0] == -1 && isnan(y[1]) && y[2] == 3 && isnan(y[3]));
        assert_int_equal(winner[0], 4);
        assert_int_equal(winner[1], 7);
        assert_int_equal(winner[2], 5);
        assert_int_equal(winner[3], 1);
        device_close(&dev);
    }
}

/* Channels that hardly vary far from zero keep their digits, and a constant channel has no
 * variance. */
static void test_batchnorm_far_from_zero(void **state)
{
    (void)state;
    enum { ROWS = 4001 };
    static float x[ROWS * 2], y[ROWS * 2];
    const struct batchnorm p = {ROWS, 2, 0, 0.25f, true, false, false};
    double mean = 0, square = 0;
    for (int r = 0; r < ROWS; r++) {
        x[2 * r] = 1000 + (float)(r * 37 % 101) * 0.001f;
        x[2 * r + 1] = 5;
        mean += x[2 * r] / (double)ROWS;
    }
    for (int r = 0; r < ROWS; r++)
        square += pow(x[2 * r] - mean, 2);
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &memory, 2));
    float gain[2] = {1, 1}, bias[2] = {0}, at[2] = {4, 4}, variance[2] = {8, 8}, stats[4];
    dev.ops->batchnorm_forward(&dev, &p, view_of(y, DTYPE_F32), view_of(x, DTYPE_F32),
                               view_of(gain, DTYPE_F32), view_of(bias, DTYPE_F32), view_none,
                               view_of(at, DTYPE_F32), view_of(variance, DTYPE_F32),
                               view_of(stats, DTYPE_F32));
    assert_true(fabs(stats[0] - mean) < 1e-4);
    assert_true(fabs(stats[2] * sqrt(square / ROWS) - 1) < 1e-5);
    assert_true(fabs(at[0] - (0.75 * 4 + 0.25 * mean)) < 1e-4);
    assert_true(fabs(variance[0] - (0.75 * 8 + 0.25 * square / (ROWS - 1))) < 1e-6);
    assert_true(stats[1] == 5 && isinf(stats[3]) && variance[1] == 6 && at[1] == 4.25f);
    /* Again, with the saved statistics: the same bits, and no other input. */
    static float again[ROWS * 2];
    struct batchnorm given = p;
    given.given = true;
    stats[1] = 3;
    stats[3] = 0.5f;
    for (int r = 0; r < ROWS; r++)
        y[2 * r + 1] = 1;
    dev.ops->batchnorm_forward(&dev, &given, view_of(again, DTYPE_F32), view_of(x, DTYPE_F32),
                               view_of(gain, DTYPE_F32), view_of(bias, DTYPE_F32), view_none,
                               view_none, view_none, view_of(stats, DTYPE_F32));
    assert_memory_equal(again, y, sizeof y);
    device_close(&dev);
}

/* Values far from the usual range stay finite and right. */
static void test_extreme_arguments(void **state)
{
    (void)state;
    struct device dev;
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    float x[8] = {-1e30f, -200, -20, 0, 20, 200, 1e30f, -0.0f}, y[8], one[8];
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (cpu_select(&dev, variants[i]) != SOTTO_OK)
            continue;
        for (int kind = GELU_TANH; kind <= GELU_EXACT; kind++) {
            dev.ops->gelu_forward(&dev, (enum gelu_kind)kind, view_of(y, DTYPE_F32),
                                  view_of(x, DTYPE_F32), 8);
            for (int e = 0; e < 8; e++)
                assert_true(fabs(y[e] - (x[e] > 0 ? x[e] : 0)) < 1e-6);
        }
        for (int e = 0; e < 8; e++)
            one[e] = 1;
        dev.ops->swiglu_forward(&dev, view_of(y, DTYPE_F32), view_of(x, DTYPE_F32),
                                view_of(one, DTYPE_F32), 8);
        for (int e = 0; e < 8; e++)
            assert_true(fabs(y[e] - (x[e] > 0 ? x[e] : 0)) < 1e-6);
        float logits[3] = {1e4f, -1e4f, 0}, loss;
        int32_t target = 0;
        dev.ops->cross_entropy(&dev, 1, 3, view_of(logits, DTYPE_F32), view_of(&target, DTYPE_I32),
                               1, view_of(&loss, DTYPE_F32), view_none);
        assert_true(loss == 0 && logits[1] == 0 && logits[2] == 0);
        float bad[2] = {NAN, 1};
        dev.ops->gelu_forward(&dev, GELU_TANH, view_of(bad, DTYPE_F32), view_of(bad, DTYPE_F32), 2);
        assert_true(isnan(bad[0]) && !isnan(bad[1]));
    }
    device_close(&dev);
}

/* A peek at a step and the step itself agree in every bit, and the peek leaves the state alone. */
static void test_peek_is_the_step(void **state)
{
    (void)state;
    for (int sgd = 0; sgd < 2; sgd++) {
        struct op_case step = {sgd ? "sgd" : "adamw", {333}, CASE_THETA};
        struct op_case peek = {step.op, {333}, CASE_PEEK};
        struct device dev;
        struct op_room a, b, start;
        assert_ok(device_open(&dev, "cpu", &memory, 1));
        assert_ok(op_room_init(&a, &dev, &step, 0));
        assert_ok(op_room_init(&b, &dev, &peek, 0));
        assert_ok(op_room_init(&start, &dev, &peek, 0));
        op_room_run(&a, 0);
        op_room_run(&b, 0);
        assert_memory_equal(a.view[1].data, b.view[1].data, 333 * sizeof(float));
        for (int i = 0; i < b.n; i++) {
            if (i != 1)
                assert_memory_equal(b.view[i].data, start.view[i].data, 333 * sizeof(float));
        }
        op_room_free(&a);
        op_room_free(&b);
        op_room_free(&start);
        device_close(&dev);
    }
}

/* The factor of a bf16 weight, or of its gradient, is either rounded to bf16, to nearest, or not at
 * all, the same for all elements. */
struct product {
    int m, n, k;
    const float *a, *b;
    int a_row, a_column, b_row, b_column; /* distances of elements */
};

static double dot(const struct product *p, int i, int j, bool rounded)
{
    double sum = 0;
    for (int l = 0; l < p->k; l++) {
        float a = p->a[i * p->a_row + l * p->a_column], b = p->b[l * p->b_row + j * p->b_column];
        sum +=
            rounded ? (double)bf16_widen(bf16_round(a)) * bf16_widen(bf16_round(b)) : (double)a * b;
    }
    return sum;
}

/* True if c is the product of rounded operands; fails if c is neither that nor the exact
 * product. */
static bool is_rounded(const struct product *p, struct view c, const char *what)
{
    double off[2] = {0};
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++)
            for (int rounded = 0; rounded < 2; rounded++) {
                double want = dot(p, i, j, rounded), have = element(c, (size_t)(i * p->n + j));
                double place = c.type == DTYPE_BF16 ? fabs(want) / 256 : 0;
                off[rounded] = fmax(off[rounded], fabs(have - want) - place);
            }
    if (!(fmin(off[0], off[1]) < 1e-4))
        fail_with("%s: %g off the product, %g off that of rounded operands", what, off[0], off[1]);
    return off[1] < off[0];
}

static void products_of_bf16(void **state)
{
    (void)state;
    enum { ROWS = 37, IN = 65, OUT = 50 };
    static float x[ROWS * IN], dy[ROWS * OUT], w[IN * OUT];
    static uint16_t half[IN * OUT], dw[IN * OUT];
    struct view v_x = view_of(x, DTYPE_F32), v_dy = view_of(dy, DTYPE_F32),
                v_w = view_of(half, DTYPE_BF16), v_dw = view_of(dw, DTYPE_BF16);
    static float y[ROWS * OUT], dx[ROWS * IN], dw_wide[IN * OUT];
    const struct view v_wide = view_of(dw_wide, DTYPE_F32);
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (float)sin(0.37 * i);
    for (int i = 0; i < ROWS * OUT; i++)
        dy[i] = (float)cos(0.73 * i);
    for (int i = 0; i < IN * OUT; i++)
        w[i] = bf16_widen(half[i] = bf16_round((float)sin(1.1 * i)));
    for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
        struct device dev;
        assert_ok(device_open(&dev, "cpu", &memory, 2));
        if (cpu_select(&dev, variants[k]) != SOTTO_OK) {
            device_close(&dev);
            continue;
        }
        for (int layout = LINEAR_OUT_IN; layout <= LINEAR_IN_OUT; layout++) {
            const struct linear p = {ROWS, IN, OUT, (enum linear_layout)layout, false, false};
            const bool out_in = layout == LINEAR_OUT_IN;
            const int w_in = out_in ? 1 : OUT, w_out = out_in ? IN : 1;
            memset(dw, 0, sizeof dw);
            dev.ops->linear_forward(&dev, &p, view_of(y, DTYPE_F32), v_x, v_w, view_none,
                                    view_none);
            dev.ops->linear_backward_x(&dev, &p, view_of(dx, DTYPE_F32), v_dy, v_w, false);
            dev.ops->linear_backward_w(&dev, &p, v_dw, view_none, v_dy, v_x);
            struct product forward = {ROWS, OUT, IN, x, w, IN, 1, w_in, w_out};
            struct product backward = {ROWS, IN, OUT, dy, w, OUT, 1, w_out, w_in};
            struct product weight = {IN, OUT, ROWS, x, dy, 1, IN, OUT, 1};
            if (out_in)
                weight = (struct product){OUT, IN, ROWS, dy, x, 1, OUT, IN, 1};
            bool rounded = is_rounded(&forward, view_of(y, DTYPE_F32), variants[k]);
            assert_int_equal(is_rounded(&backward, view_of(dx, DTYPE_F32), variants[k]), rounded);
            assert_int_equal(is_rounded(&weight, v_dw, variants[k]), rounded);
            struct linear half_p = p;
            half_p.half = true; /* a gradient summed in fp32 takes no longer */
            memset(dw_wide, 0, sizeof dw_wide);
            dev.ops->linear_backward_w(&dev, &half_p, v_wide, view_none, v_dy, v_x);
            assert_int_equal(is_rounded(&weight, v_wide, variants[k]), rounded);
            memset(dw_wide, 0, sizeof dw_wide);
            dev.ops->linear_backward_w(&dev, &p, v_wide, view_none, v_dy, v_x);
            assert_false(is_rounded(&weight, v_wide, variants[k]));
            assert_int_equal(rounded,
                             strcmp(variants[k], "amx") == 0 || strcmp(variants[k], "bf16") == 0);
        }
        device_close(&dev);
    }
}

/* Fills more than a block with zeros, from the middle of a buffer: neighbours are unchanged, and a
 * zero keeps its sign. */
static void test_zero(void **state)
{
    (void)state;
    enum { FIRST = 3, N = 70001, ALL = N + 2 * FIRST };
    static float wide[ALL];
    static uint16_t half[ALL];
    for (int run = 0; run < 8; run++) {
        struct device dev;
        const struct view v = run & 1 ? view_of(half, DTYPE_BF16) : view_of(wide, DTYPE_F32);
        const float zero = run & 2 ? -0.0f : 0.0f;
        assert_ok(device_open(&dev, "cpu", &memory, run & 4 ? 3 : 1));
        dev.ops->fill(&dev, v, ALL, 7);
        dev.ops->fill(&dev, view_at(v, FIRST), N, zero);
        for (size_t i = 0; i < ALL; i++) {
            const bool inside = i >= FIRST && i < FIRST + N;
            assert_true(element(v, i) == (inside ? 0 : 7));
            assert_true(!inside || !signbit(element(v, i)) == !signbit(zero));
        }
        device_close(&dev);
    }
}

/* Attention with bf16 weights rounds if the kernels do, and only then. */
static void attention_of_bf16(void **state)
{
    (void)state;
    enum { T = 70, WIDTH = 40, COUNT = T * WIDTH };
    static float x[4][COUNT], lse[T], y[2][4][COUNT];
    struct device dev;
    for (int i = 0; i < 4 * COUNT; i++)
        x[i / COUNT][i % COUNT] = (float)sin(0.37 * i);
    assert_ok(device_open(&dev, "cpu", &memory, 1));
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (cpu_select(&dev, variants[v]) != SOTTO_OK)
            continue;
        for (int half = 0; half < 2; half++) {
            const struct attention p = {1,    T,     T,     1,     1,     WIDTH, 0,   false,
                                        0.1f, WIDTH, WIDTH, WIDTH, WIDTH, 0,     half};
            struct view in[4], out[4], log = view_of(lse, DTYPE_F32);
            for (int i = 0; i < 4; i++) {
                in[i] = view_of(x[i], DTYPE_F32);
                out[i] = view_of(y[half][i], DTYPE_F32);
            }
            dev.ops->attention_forward(&dev, &p, out[0], in[0], in[1], in[2], log);
            dev.ops->attention_backward(&dev, &p, out[1], out[2], out[3], in[3], out[0], in[0],
                                        in[1], in[2], log);
        }
        const bool rounds = kernels_of(&dev)->gemm_half != kernels_of(&dev)->gemm;
        for (int i = 0; i < 4; i++)
            if ((memcmp(y[0][i], y[1][i], sizeof y[0][i]) != 0) != rounds)
                fail_with("%s: result %d of attention is%s rounded", variants[v], i,
                          rounds ? " not" : "");
    }
    device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_bf16),
        cmocka_unit_test(attention_of_bf16),
        cmocka_unit_test(test_reference_agrees_with_finite_differences),
        cmocka_unit_test(test_fast_agrees_with_reference),
        cmocka_unit_test(test_cross_entropy_ties_and_ignored),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_maxpool_ties),
        cmocka_unit_test(test_batchnorm_far_from_zero),
        cmocka_unit_test(test_extreme_arguments),
        cmocka_unit_test(test_peek_is_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

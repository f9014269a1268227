/* Gradients with the same sign row after row: a bf16 sum that is rounded after every term stops
 * growing at 256 terms, so ops add in fp32 and round once. Compared with double precision. */
#include "base/scratch.h"

#include <math.h>

#include "tensor/ops.h"

enum { ROWS = 8192, WIDTH = 5, VOCAB = 7, T = 4 };

static struct memory memory;
static float x[ROWS * WIDTH], dy[ROWS * WIDTH], stats[2 * ROWS], dx[ROWS * WIDTH];
static int32_t tokens[ROWS];
static const struct view v_x = {.data = x, .type = DTYPE_F32},
                         v_dy = {.data = dy, .type = DTYPE_F32},
                         v_stats = {.data = stats, .type = DTYPE_F32},
                         v_dx = {.data = dx, .type = DTYPE_F32};

/* All values have the same sign, and most rows belong to one token. */
static void make(void)
{
    for (int r = 0; r < ROWS; r++) {
        tokens[r] = r % 64 ? 3 : r / 64 % VOCAB;
        stats[2 * r] = 0;
        stats[2 * r + 1] = 1;
        for (int i = 0; i < WIDTH; i++) {
            x[r * WIDTH + i] = 1 + 0.125f * (float)((r + i) % 3);
            dy[r * WIDTH + i] = 1e-3f * (1 + 0.25f * (float)((r + 2 * i) % 4));
        }
    }
}

/* Asserts a single rounding of the start and the sum: half a unit in the last of 8 bits. */
static void assert_sum(const char *what, int i, uint16_t have, double start, double sum)
{
    const double want = start + sum;
    if (!(fabs(bf16_widen(have) - want) <= ldexp(fabs(want), -8)))
        fail_with("%s %d is %g, want %g", what, i, bf16_widen(have), want);
}

static const float start = 0.25f;

static void begin(uint16_t *g, size_t count)
{
    for (size_t i = 0; i < count; i++)
        g[i] = bf16_round(start);
}

static void check_embedding(struct device *dev)
{
    uint16_t table[VOCAB * WIDTH], positions[T * WIDTH];
    begin(table, VOCAB * WIDTH);
    begin(positions, T * WIDTH);
    dev->ops->embedding_backward(dev, ROWS / T, T, WIDTH, view_of(table, DTYPE_BF16),
                                 view_of(positions, DTYPE_BF16), view_of(tokens, DTYPE_I32), v_dy);
    for (int i = 0; i < WIDTH; i++) {
        double token[VOCAB] = {0}, position[T] = {0};
        for (int r = 0; r < ROWS; r++) {
            token[tokens[r]] += dy[r * WIDTH + i];
            position[r % T] += dy[r * WIDTH + i];
        }
        assert_true(token[3] > 8);
        for (int t = 0; t < VOCAB; t++)
            assert_sum("token", t, table[t * WIDTH + i], start, token[t]);
        for (int t = 0; t < T; t++)
            assert_sum("position", t, positions[t * WIDTH + i], start, position[t]);
    }
}

static void check_linear(struct device *dev, enum linear_layout layout)
{
    uint16_t dw[WIDTH * WIDTH], dbias[WIDTH];
    const struct linear p = {ROWS, WIDTH, WIDTH, layout, true, false};
    begin(dw, WIDTH * WIDTH);
    begin(dbias, WIDTH);
    dev->ops->linear_backward_w(dev, &p, view_of(dw, DTYPE_BF16), view_of(dbias, DTYPE_BF16), v_dy,
                                v_x);
    for (int o = 0; o < WIDTH; o++) {
        double bias = 0;
        for (int i = 0; i < WIDTH; i++) {
            double sum = 0;
            for (int r = 0; r < ROWS; r++) /* operands may be rounded to bf16, results may not */
                sum += (double)bf16_widen(bf16_round(dy[r * WIDTH + o])) * x[r * WIDTH + i];
            assert_sum("dw", i, dw[layout == LINEAR_OUT_IN ? o * WIDTH + i : i * WIDTH + o], start,
                       sum);
        }
        for (int r = 0; r < ROWS; r++)
            bias += dy[r * WIDTH + o];
        assert_sum("dbias", o, dbias[o], start, bias);
    }
}

static void check_norm(struct device *dev, bool rms)
{
    uint16_t dgain[WIDTH], dbias[WIDTH];
    float gain[WIDTH] = {1, 1, 1, 1, 1};
    const struct norm p = {ROWS, WIDTH, 0};
    const struct view v_dgain = view_of(dgain, DTYPE_BF16), v_gain = view_of(gain, DTYPE_F32);
    begin(dgain, WIDTH);
    begin(dbias, WIDTH);
    if (rms)
        dev->ops->rmsnorm_backward(dev, &p, v_dx, v_dgain, v_dy, v_x, v_gain, v_stats, view_none);
    else
        dev->ops->layernorm_backward(dev, &p, v_dx, v_dgain, view_of(dbias, DTYPE_BF16), v_dy, v_x,
                                     v_gain, v_stats, view_none);
    for (int i = 0; i < WIDTH; i++) {
        double sum = 0, sum_hat = 0;
        for (int r = 0; r < ROWS; r++) {
            sum += dy[r * WIDTH + i];
            sum_hat += (double)dy[r * WIDTH + i] * x[r * WIDTH + i];
        }
        assert_sum("dgain", i, dgain[i], start, sum_hat);
        if (!rms)
            assert_sum("dbias", i, dbias[i], start, sum);
    }
}

static void rounded_once(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "reference"};
    make();
    for (int d = 0; d < 2; d++) {
        struct device dev;
        assert_ok(device_open(&dev, devices[d], &memory, 2));
        check_embedding(&dev);
        check_linear(&dev, LINEAR_OUT_IN);
        check_linear(&dev, LINEAR_IN_OUT);
        check_norm(&dev, false);
        check_norm(&dev, true);
        device_close(&dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounded_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

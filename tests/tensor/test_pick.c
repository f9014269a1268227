/* Elements picked out of a vector and put into another, by a list and by a stride, and signs of two
 * bits: every table against plain loops, exactly. */
#include "base/scratch.h"

#include <math.h>

#include "base/rng.h"
#include "tensor/cpu/cpu.h"

static struct memory memory;

static const struct table_of {
    const char *device, *variant;
} tables[] = {{"reference", NULL}, {"cpu", "amx"},      {"cpu", "v4"},
              {"cpu", "v3"},       {"cpu", "baseline"}, {"apart", NULL}};
enum { TABLES = sizeof tables / sizeof *tables };

/* Opens a table; false: this machine lacks the table. */
static bool open_table(struct device *dev, int i)
{
    assert_ok(device_open(dev, tables[i].device, &memory, 3));
    if (!tables[i].variant || cpu_select(dev, tables[i].variant) == SOTTO_OK)
        return true;
    device_close(dev);
    return false;
}

static struct buffer buffer_of(struct device *dev, enum dtype type, size_t count, const void *from)
{
    struct buffer b;
    assert_ok(buffer_init(&b, dev, type, count, MEMORY_SCRATCH));
    if (from)
        dev->ops->write(dev, b.view, from, count);
    return b;
}

static void *read_back(struct device *dev, struct buffer *b)
{
    void *out = malloc(b->count * dtype_size(b->view.type));
    assert_non_null(out);
    dev->ops->read(dev, out, b->view, b->count);
    assert_ok(device_check(dev));
    buffer_free(b);
    return out;
}

/* The shuffle equals the plain formula, for a power of two, one more, and a single element. Threads
 * share long shuffles. */
static void choose(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, of;
        size_t count;
    } cases[] = {
        {1, 0, 1, 1},          {1, 7, 5, 5},
        {3, 1, 4096, 4096},    {(uint64_t)1 << 40 | 3, (uint64_t)1 << 35 | 9, 4097, 4097},
        {2, 2, 100003, 40001}, {2, 3, (uint64_t)1 << 31, 700},
    };
    for (int t = 0; t < TABLES; t++) {
        struct device dev;
        if (!open_table(&dev, t))
            continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const struct shuffle p = shuffle_make(cases[i].seed, cases[i].stream, cases[i].of);
            struct buffer index = buffer_of(&dev, DTYPE_I32, cases[i].count, NULL);
            dev.ops->choose(&dev, &p, index.view, cases[i].count);
            int32_t *got = read_back(&dev, &index);
            for (size_t k = 0; k < cases[i].count; k++)
                if ((uint32_t)got[k] != shuffle_at(&p, (uint32_t)k))
                    fail_with("%s: element %zu of %zu is %d", tables[t].device, k, (size_t)p.count,
                              got[k]);
            free(got);
        }
        device_close(&dev);
    }
}

/* `at`: indices of the picked elements. */
static void check_picks(struct device *dev, const struct picks *p, const int32_t *at, bool list,
                        bool half, size_t count)
{
    float *m = malloc(count * sizeof *m), *y = malloc(count * sizeof *y);
    assert_true(m && y);
    struct rng rng = rng_make(5, count);
    rng_normal(&rng, m, count, 0, 1);
    rng_normal(&rng, y, count, 0, 1);
    struct buffer m_on = buffer_of(dev, DTYPE_F32, count, m);
    struct buffer y_on = buffer_of(dev, DTYPE_F32, count, y);
    struct buffer value = buffer_of(dev, half ? DTYPE_BF16 : DTYPE_F32, p->count, NULL);
    struct buffer index = buffer_of(dev, DTYPE_I32, p->count, at);
    const struct view where = list ? index.view : view_none;
    dev->ops->pick(dev, p, value.view, m_on.view, where);
    dev->ops->put(dev, p, y_on.view, 0.25f, value.view, where);
    float *m_got = read_back(dev, &m_on), *y_got = read_back(dev, &y_on);
    void *value_got = read_back(dev, &value);
    free(read_back(dev, &index));
    for (size_t i = 0; i < p->count; i++) {
        const float q = half ? bf16_widen(bf16_round(m[at[i]])) : m[at[i]];
        const float sent = half ? bf16_widen(((uint16_t *)value_got)[i]) : ((float *)value_got)[i];
        assert_true(sent == q);
        m[at[i]] -= q;
        y[at[i]] = 0.25f * q;
    }
    assert_memory_equal(m, m_got, count * sizeof *m); /* other elements are unchanged */
    assert_memory_equal(y, y_got, count * sizeof *y);
    free(m), free(y), free(m_got), free(y_got), free(value_got);
}

static void pick_and_put(void **state)
{
    (void)state;
    static int32_t at[10000];
    for (int t = 0; t < TABLES; t++) {
        struct device dev;
        if (!open_table(&dev, t))
            continue;
        for (int half = 0; half < 2; half++) {
            const size_t count = 9001, strides[] = {1, 3, 7000, 9001};
            for (int i = 0; i < 4; i++)
                for (size_t first = 0; first < 2; first++) {
                    const size_t n = (count - first + strides[i] - 1) / strides[i];
                    const struct picks p = {n, first, strides[i]};
                    for (size_t k = 0; k < n; k++)
                        at[k] = (int32_t)(first + k * strides[i]);
                    check_picks(&dev, &p, at, false, half, count);
                }
            for (size_t k = 0; k < count; k++)
                at[k] = (int32_t)rng_permute(1, 1, k, count);
            for (size_t n = 1; n <= count; n = 6 * n + 1)
                check_picks(&dev, &(struct picks){.count = n}, at, true, half, count);
        }
        device_close(&dev);
    }
}

static void packed_signs(void **state)
{
    (void)state;
    enum { MOST = 5003 };
    static float x[MOST], sum[MOST];
    static uint8_t want[(MOST + 3) / 4];
    struct rng rng = rng_make(1, 1);
    rng_normal(&rng, x, MOST, 0, 1);
    for (int i = 0; i < MOST; i += 5)
        x[i] = i % 2 ? 0.f : -0.f;
    for (int i = 6; i < MOST; i += 1001)
        x[i] = NAN;
    for (int t = 0; t < TABLES; t++) {
        struct device dev;
        if (!open_table(&dev, t))
            continue;
        for (size_t n = 1; n <= MOST; n = n < 9                       ? n + 1
                                          : 3 * n < MOST || n == MOST ? 3 * n
                                                                      : MOST) {
            struct buffer from = buffer_of(&dev, DTYPE_F32, n, x),
                          y = buffer_of(&dev, DTYPE_F32, n, x);
            struct buffer bits = buffer_of(&dev, DTYPE_U8, (n + 3) / 4, NULL);
            dev.ops->signs_pack(&dev, bits.view, from.view, n);
            dev.ops->signs_pack(&dev, bits.view, from.view, n); /* overwrites */
            dev.ops->signs_unpack(&dev, y.view, bits.view, n, true);
            dev.ops->signs_unpack(&dev, from.view, bits.view, n, false);
            float *signs = read_back(&dev, &from), *added = read_back(&dev, &y);
            uint8_t *got = read_back(&dev, &bits);
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < n; i++) {
                const int sign = (x[i] > 0) - (x[i] < 0), code = isnan(x[i]) ? 2 : sign & 3;
                want[i / 4] |= (uint8_t)(code << 2 * (i % 4));
                sum[i] = x[i] + (float)sign;
                assert_true(isnan(x[i]) ? isnan(signs[i]) : signs[i] == (float)sign);
            }
            assert_memory_equal(got, want, (n + 3) / 4);
            for (size_t i = 0; i < n; i++)
                assert_true(isnan(x[i]) ? isnan(added[i]) : added[i] == sum[i]);
            free(signs), free(added), free(got);
        }
        device_close(&dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choose),
        cmocka_unit_test(pick_and_put),
        cmocka_unit_test(packed_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A GPU's table against the reference, over the table of cases; what is true of any device with
 * memory and time of its own; and its failures. SOTTO_TEST_DEVICE may name another such device. */
#include <math.h>

#include "base/scratch.h"
#include "tensor/op_cases.h"

static struct memory memory;

static const char *far_device(void)
{
    const char *name = getenv("SOTTO_TEST_DEVICE");
    return name ? name : "cuda";
}

/* Which operands are bf16: none, all, weights alone, activations and gradients. */
static const unsigned halves[] = {0, KIND_ACTIVATION | KIND_WEIGHT | KIND_GRADIENT, KIND_WEIGHT,
                                  KIND_ACTIVATION | KIND_GRADIENT};
enum { HALVES = sizeof halves / sizeof *halves };

static double element(const void *data, enum dtype type, size_t i)
{
    return type == DTYPE_F32 ? ((const float *)data)[i] : bf16_widen(((const uint16_t *)data)[i]);
}

/* What an operand holds, on the host, to be freed. */
static void *host_copy(struct op_room *room, int i)
{
    const size_t count = room->operand[i].count;
    void *host = calloc(count + 1, 4);
    assert_non_null(host);
    room->dev->ops->read(room->dev, host, room->view[i], count);
    return host;
}

/* bf16 has 8 bits, so two values that agree before rounding are at most one last place apart.
 * Attention of bf16 rows may round its weights, whose sums are then off by as much of the largest.
 */
static int differing(struct op_room *got, struct op_room *want, unsigned half, int pass)
{
    const struct family *f = family_of(got->c);
    const bool rounds = strcmp(f->op, "attention") == 0;
    int wrong = 0;
    for (int i = 0; i < got->n; i++) {
        const size_t count = got->operand[i].count;
        const enum dtype type = got->view[i].type;
        if (!count)
            continue;
        void *a = host_copy(got, i), *b = host_copy(want, i);
        double largest = 0;
        for (size_t e = 0; e < count; e++)
            largest = fmax(largest, fabs(element(b, type, e)));
        for (size_t e = 0; e < count; e++) {
            const double x = element(a, type, e), y = element(b, type, e);
            double room = f->tolerance * fmax(f->sums ? largest : fabs(y), 1);
            room += type == DTYPE_BF16 ? fabs(y) / 128 + (rounds ? largest / 128 : 0) : 0;
            if (fabs(x - y) <= room)
                continue;
            print_error("%s (%s) = %d %d %d %d %d %d %d %d, flags %u, bf16 %u, pass %d: %s[%zu] is "
                        "%.9g, the reference says %.9g (room %.2g)\n",
                        f->op, f->shape, got->c->d[0], got->c->d[1], got->c->d[2], got->c->d[3],
                        got->c->d[4], got->c->d[5], got->c->d[6], got->c->d[7], got->c->flags, half,
                        pass, got->operand[i].name, e, x, y, room);
            wrong = 1;
            break;
        }
        free(a);
        free(b);
    }
    return wrong;
}

static void copy_room(struct op_room *to, struct op_room *from)
{
    for (int i = 0; i < to->n; i++) {
        if (!to->operand[i].count)
            continue;
        void *host = host_copy(from, i);
        to->dev->ops->write(to->dev, to->view[i], host, to->operand[i].count);
        free(host);
    }
}

/* Every pass starts from the reference's state, so that errors do not add up over passes. */
static int check_case(struct device *oracle, struct device *far, const struct op_case *c,
                      unsigned half)
{
    struct op_room want, got;
    int wrong = 0;
    assert_ok(op_room_init(&want, oracle, c, half));
    assert_ok(op_room_init(&got, far, c, half));
    for (int pass = 0; pass < family_of(c)->passes; pass++) {
        copy_room(&got, &want);
        op_room_run(&want, pass);
        op_room_run(&got, pass);
        assert_ok(device_check(far));
        wrong += differing(&got, &want, half, pass);
    }
    op_room_free(&want);
    op_room_free(&got);
    return wrong;
}

static void agrees_with_reference(void **state)
{
    (void)state;
    struct device oracle, far;
    int wrong = 0;
    assert_ok(device_open(&oracle, "reference", &memory, 1));
    assert_ok(device_open(&far, far_device(), &memory, 1));
    for (size_t i = 0; i < op_cases_count * HALVES; i += LEAP)
        wrong += check_case(&oracle, &far, &op_cases[i / HALVES], halves[i % HALVES]);
    device_close(&far);
    device_close(&oracle);
    assert_int_equal(wrong, 0);
    assert_int_equal(memory.total, 0);
}

/* On another context, behind other work, the same bits come out. */
static void twice_the_same_bits(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < op_cases_count * HALVES; i += 3 * LEAP) {
        const struct op_case *c = &op_cases[i / HALVES];
        struct device dev[2];
        struct op_room room[2];
        for (int d = 0; d < 2; d++) {
            assert_ok(device_open(&dev[d], far_device(), &memory, 1));
            assert_ok(op_room_init(&room[d], &dev[d], c, halves[i % HALVES]));
            for (int pass = 0; pass < family_of(c)->passes; pass++)
                op_room_run(&room[d], pass);
            assert_ok(device_check(&dev[d]));
        }
        for (int o = 0; o < room[0].n; o++) {
            const size_t count = room[0].operand[o].count;
            if (!count)
                continue;
            void *a = host_copy(&room[0], o), *b = host_copy(&room[1], o);
            if (memcmp(a, b, count * dtype_size(room[0].view[o].type)) != 0) {
                print_error("%s, case %zu: %s differs\n", c->op, i, room[0].operand[o].name);
                wrong++;
            }
            free(a);
            free(b);
        }
        for (int d = 0; d < 2; d++) {
            op_room_free(&room[d]);
            device_close(&dev[d]);
        }
    }
    assert_int_equal(wrong, 0);
}

/* Long reads and writes go in pieces; a write has taken what it needs when it returns. */
static void data_pass_whole(void **state)
{
    (void)state;
    enum { N = 5000001 };
    struct device dev;
    struct buffer x;
    float *host = malloc(N * sizeof *host);
    assert_non_null(host);
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    assert_ok(buffer_init(&x, &dev, DTYPE_F32, N, MEMORY_OUTER));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            host[i] = (float)(i % 1000003 + round);
        dev.ops->write(&dev, x.view, host, N);
        memset(host, 0xff, N * sizeof *host);
        dev.ops->axpy(&dev, x.view, 1, x.view, N);
        dev.ops->read(&dev, host, x.view, N);
        for (int i = 0; i < N; i++)
            assert_true(host[i] == 2 * (float)(i % 1000003 + round));
    }
    buffer_free(&x);
    device_close(&dev);
    free(host);
    assert_int_equal(memory.total, 0);
}

/* One context computes, another goes on behind its mark, around more marks than are kept. */
static void contexts_follow(void **state)
{
    (void)state;
    enum { N = 1 << 20, ROUNDS = 200 };
    struct device dev[2];
    struct buffer x, y;
    float last;
    for (int i = 0; i < 2; i++)
        assert_ok(device_open(&dev[i], far_device(), &memory, 1));
    assert_ok(buffer_init(&x, &dev[0], DTYPE_F32, N, MEMORY_OUTER));
    assert_ok(buffer_init(&y, &dev[1], DTYPE_F32, N, MEMORY_OUTER));
    for (int i = 1; i <= ROUNDS; i++) {
        dev[0].ops->fill(&dev[0], x.view, N, (float)i);
        device_follow(&dev[1], device_mark(&dev[0]));
        dev[1].ops->axpy(&dev[1], y.view, 1, x.view, N);
        device_follow(&dev[0], device_mark(&dev[1]));
    }
    dev[1].ops->read(&dev[1], &last, view_at(y.view, N - 1), 1);
    assert_true(last == ROUNDS * (ROUNDS + 1) / 2);
    buffer_free(&x);
    buffer_free(&y);
    for (int i = 0; i < 2; i++)
        device_close(&dev[i]);
}

/* More than any device has is refused, with who has what. */
static void no_memory_is_said(void **state)
{
    (void)state;
    struct device dev;
    struct buffer x, y;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    if (dev.ops->left) {
        assert_ok(buffer_init(&x, &dev, DTYPE_F32, 1 << 20, MEMORY_PARAMETERS));
        assert_fails(buffer_init(&y, &dev, DTYPE_F32, (size_t)1 << 43, MEMORY_ACTIVATIONS),
                     SOTTO_ENOMEM, "MB of activations");
        assert_non_null(strstr(sotto_error(), "parameters 4.2"));
        assert_ok(device_check(&dev)); /* and nothing else has happened */
        buffer_free(&x);
    }
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

int main(void)
{
    struct device dev;
    if (device_open(&dev, far_device(), &memory, 1) != SOTTO_OK) {
        printf("%s\n", sotto_error());
        return strcmp(far_device(), "cuda") == 0 ? 77 : 1;
    }
    device_close(&dev);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_reference), cmocka_unit_test(twice_the_same_bits),
        cmocka_unit_test(data_pass_whole),       cmocka_unit_test(contexts_follow),
        cmocka_unit_test(no_memory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

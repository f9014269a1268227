/* A GPU's table against the reference, over the table of cases; properties of any device with
 * memory and time of its own; and failures of such a device. SOTTO_TEST_DEVICE may name another
 * device.
 *
 *     test_cuda [--largest=N] [op...]    cases of the table: of these ops alone, of operands of at
 *                                        most N elements (tools/check-gpu) */
#include <math.h>

#include "base/rng.h"
#include "base/scratch.h"
#include "tensor/op_cases.h"

static struct memory memory;

/* Filter of the table's cases: by op, and by the elements of the largest operand. */
static struct {
    char **op;
    int n;
    size_t largest;
} only;

static bool wanted(const struct op_case *c)
{
    struct operand operand[OPERANDS];
    const int n = family_of(c)->operands(c, operand);
    for (int i = 0; i < n; i++)
        if (only.largest && operand[i].count > only.largest)
            return false;
    for (int i = 0; i < only.n; i++)
        if (strcmp(c->op, only.op[i]) == 0)
            return true;
    return only.n == 0;
}

static const char *far_device(void)
{
    const char *name = getenv("SOTTO_TEST_DEVICE");
    return name ? name : "cuda";
}

/* Kinds of operands that are bf16: none, all, weights alone, activations and gradients. */
static const unsigned halves[] = {0, KIND_ACTIVATION | KIND_WEIGHT | KIND_GRADIENT, KIND_WEIGHT,
                                  KIND_ACTIVATION | KIND_GRADIENT};
enum { HALVES = sizeof halves / sizeof *halves };

static double element(const void *data, enum dtype type, size_t i)
{
    return type == DTYPE_F32 ? ((const float *)data)[i] : bf16_widen(((const uint16_t *)data)[i]);
}

/* Returns a host copy of an operand; the caller frees it. */
static void *host_copy(struct op_room *room, int i)
{
    const size_t count = room->operand[i].count;
    void *host = calloc(count + 1, 4);
    assert_non_null(host);
    room->dev->ops->read(room->dev, host, room->view[i], count);
    return host;
}

/* True if an op adds to operand i, a result. */
static bool added(const struct op_room *room, int i)
{
    return room->operand[i].adds || room->c->flags & (CASE_RESIDUAL | CASE_ADD);
}

/* Returns the error allowed for bf16 operands, relative to the largest element. Matrix units add in
 * fp32 without rounding to nearest. cuBLASLt's kernels for Hopper without split sums round a
 * product to bf16 before the addition, an error of half a last place. Attention may round its
 * weights. */
static double lost(const struct family *f, enum dtype type, unsigned half, bool adds)
{
    if (!half || !f->sums)
        return 0;
    if (strcmp(f->op, "attention") == 0)
        return type == DTYPE_BF16 ? 1. / 128 : 0;
    if (strcmp(f->op, "linear") == 0 || strcmp(f->op, "conv") == 0)
        return type == DTYPE_BF16 && adds ? 1. / 256 : 1e-5;
    return 0;
}

/* bf16 has 8 bits, so two values that agree before rounding are at most one last place apart. */
static int differing(struct op_room *got, struct op_room *want, unsigned half, int pass)
{
    const struct family *f = family_of(got->c);
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
            room += (type == DTYPE_BF16 ? fabs(y) / 128 : 0) +
                    lost(f, type, half, added(got, i)) * largest;
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
    int wrong = 0, checked = 0;
    assert_ok(device_open(&oracle, "reference", &memory, 1));
    assert_ok(device_open(&far, far_device(), &memory, 1));
    EACH_SHARED(i, LEAP, op_cases_count * HALVES)
        if (wanted(&op_cases[i / HALVES])) {
            wrong += check_case(&oracle, &far, &op_cases[i / HALVES], halves[i % HALVES]);
            checked++;
        }
    device_close(&far);
    device_close(&oracle);
    assert_int_equal(wrong, 0);
    assert_true(checked > 0);
    assert_int_equal(memory.total, 0);
}

/* Another context, with work queued before, computes the same bits. */
static void twice_the_same_bits(void **state)
{
    (void)state;
    int wrong = 0;
    EACH_SHARED(i, 3 * LEAP, op_cases_count * HALVES) {
        const struct op_case *c = &op_cases[i / HALVES];
        if (!wanted(c))
            continue;
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
                print_error("%s, case %d: %s differs\n", c->op, i, room[0].operand[o].name);
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

/* A projection and its loss: by linear_loss if the device has the op, else by separate ops. */
enum { LOSS_ROWS = 70, LOSS_IN = 40, LOSS_OUT = 1003, LOSS_RESULTS = 3 };
struct projection {
    struct device *dev;
    struct buffer x, w, targets, result[LOSS_RESULTS], logits; /* losses, dx, dw */
};

static void fill_normal(struct device *dev, struct buffer *b, uint64_t stream, float spread)
{
    void *host = calloc(b->count, sizeof(float));
    assert_non_null(host);
    for (size_t i = 0; i < b->count; i++) {
        const float x = spread * ((float)(rng_at(5, stream, i) % 2001) / 1000 - 1);
        if (b->view.type == DTYPE_F32)
            ((float *)host)[i] = bf16_widen(bf16_round(x));
        else
            ((uint16_t *)host)[i] = bf16_round(x);
    }
    dev->ops->write(dev, b->view, host, b->count);
    free(host);
}

static void open_projection(struct projection *p, struct device *dev, enum dtype x, enum dtype w,
                            enum dtype dw)
{
    const size_t in = LOSS_ROWS * LOSS_IN, weights = LOSS_IN * LOSS_OUT;
    int32_t targets[LOSS_ROWS];
    p->dev = dev;
    assert_ok(buffer_init(&p->x, dev, x, in, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&p->w, dev, w, weights, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&p->targets, dev, DTYPE_I32, LOSS_ROWS, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&p->result[0], dev, DTYPE_F32, LOSS_ROWS, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&p->result[1], dev, x, in, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&p->result[2], dev, dw, weights, MEMORY_GRADIENTS));
    assert_ok(buffer_init(&p->logits, dev, DTYPE_F32, LOSS_ROWS * LOSS_OUT, MEMORY_SCRATCH));
    for (int i = 0; i < LOSS_ROWS; i++)
        targets[i] = i % 7 == 3 ? -1 : i * 13 % LOSS_OUT;
    dev->ops->write(dev, p->targets.view, targets, LOSS_ROWS);
    fill_normal(dev, &p->x, 1, 1);
    fill_normal(dev, &p->w, 2, 0.5f);
    fill_normal(dev, &p->result[2], 3, 0.5f);
}

static void close_projection(struct projection *p)
{
    struct buffer *all[] = {&p->x,         &p->w,         &p->targets, &p->result[0],
                            &p->result[1], &p->result[2], &p->logits};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
}

static void project(struct projection *p, enum linear_layout layout, bool fresh)
{
    struct device *dev = p->dev;
    const struct ops *ops = dev->ops;
    const struct linear q = {LOSS_ROWS, LOSS_IN, LOSS_OUT, layout, p->w.view.type == DTYPE_BF16,
                             fresh};
    const struct view logits = p->logits.view, losses = p->result[0].view, dx = p->result[1].view,
                      dw = p->result[2].view;
    if (fresh)
        ops->fill(dev, dw, p->result[2].count, NAN);
    if (ops->linear_loss) {
        const struct linear_loss l = {.x = p->x.view,
                                      .w = p->w.view,
                                      .targets = p->targets.view,
                                      .losses = losses,
                                      .scale = 0.25f,
                                      .dx = dx,
                                      .dw = dw};
        ops->linear_loss(dev, &q, &l);
    } else {
        ops->linear_forward(dev, &q, logits, p->x.view, p->w.view, view_none, view_none);
        ops->cross_entropy(dev, LOSS_ROWS, LOSS_OUT, logits, p->targets.view, 0.25f, losses,
                           view_none);
        ops->linear_backward_w(dev, &q, dw, view_none, logits, p->x.view);
        ops->linear_backward_x(dev, &q, dx, logits, p->w.view, false);
    }
    assert_ok(device_check(dev));
}

/* Returns the largest difference of a result, relative to its largest element. */
static double apart_by(struct projection *got, struct projection *want, int i)
{
    const size_t count = got->result[i].count;
    const enum dtype type = got->result[i].view.type;
    void *a = calloc(count, 4), *b = calloc(count, 4);
    double largest = 0, most = 0;
    got->dev->ops->read(got->dev, a, got->result[i].view, count);
    want->dev->ops->read(want->dev, b, want->result[i].view, count);
    for (size_t e = 0; e < count; e++) {
        const double d = fabs(element(a, type, e) - element(b, type, e));
        largest = fmax(largest, fabs(element(b, type, e)));
        most = d <= most ? most : d; /* also true for a NaN */
    }
    free(a);
    free(b);
    return most / largest;
}

/* With bf16 weights the gradient of the logits is rounded; with bf16 rows the logits may be rounded
 * too. */
static void losses_at_once(void **state)
{
    (void)state;
    static const char *const name[] = {"losses", "dx", "dw"};
    struct device dev[2];
    int wrong = 0;
    assert_ok(device_open(&dev[0], "reference", &memory, 1));
    assert_ok(device_open(&dev[1], far_device(), &memory, 1));
    for (int i = 0; i < 32; i++) {
        struct projection p[2];
        for (int d = 0; d < 2; d++) {
            open_projection(&p[d], &dev[d], i & 1 ? DTYPE_BF16 : DTYPE_F32,
                            i & 2 ? DTYPE_BF16 : DTYPE_F32, i & 4 ? DTYPE_BF16 : DTYPE_F32);
            project(&p[d], i & 8 ? LINEAR_IN_OUT : LINEAR_OUT_IN, i & 16);
        }
        for (int k = 0; k < LOSS_RESULTS; k++) {
            const double off = apart_by(&p[1], &p[0], k);
            if (off <= (i & 7 ? 1. / 64 : 1e-5))
                continue;
            print_error("case %d: %s is off by %g of its largest element\n", i, name[k], off);
            wrong++;
        }
        for (int d = 0; d < 2; d++)
            close_projection(&p[d]);
    }
    for (int d = 0; d < 2; d++)
        device_close(&dev[d]);
    assert_int_equal(wrong, 0);
    assert_int_equal(memory.total, 0);
}

/* Returns a host copy of a buffer; the caller frees it. */
static void *host_buffer(struct device *dev, const struct buffer *b)
{
    void *host = calloc(b->count, sizeof(float));
    assert_non_null(host);
    dev->ops->read(dev, host, b->view, b->count);
    return host;
}

/* More rows than the logits held at once, even and odd vocabularies: a fresh gradient written over
 * NaNs equals a gradient added to zeros. */
static void fresh_losses(void **state)
{
    (void)state;
    enum { ROWS = 9000, IN = 16, MOST_OUT = 67 };
    struct device dev;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    for (int i = 0; i < 8 && dev.ops->linear_loss; i++) {
        const enum dtype type = i & 1 ? DTYPE_BF16 : DTYPE_F32;
        const int out = i & 2 ? MOST_OUT : 64;
        const size_t in = (size_t)ROWS * IN, weights = (size_t)out * IN;
        struct buffer x, w, dx, dw, targets, losses;
        int32_t *target = calloc(ROWS, sizeof *target);
        assert_non_null(target);
        assert_ok(buffer_init(&x, &dev, type, in, MEMORY_ACTIVATIONS));
        assert_ok(buffer_init(&dx, &dev, type, in, MEMORY_ACTIVATIONS));
        assert_ok(buffer_init(&w, &dev, type, weights, MEMORY_PARAMETERS));
        assert_ok(buffer_init(&dw, &dev, i & 4 ? DTYPE_F32 : type, weights, MEMORY_GRADIENTS));
        assert_ok(buffer_init(&targets, &dev, DTYPE_I32, ROWS, MEMORY_ACTIVATIONS));
        assert_ok(buffer_init(&losses, &dev, DTYPE_F32, ROWS, MEMORY_ACTIVATIONS));
        for (int r = 0; r < ROWS; r++)
            target[r] = r * 13 % out;
        dev.ops->write(&dev, targets.view, target, ROWS);
        fill_normal(&dev, &x, 1, 1);
        fill_normal(&dev, &w, 2, 0.5f);
        void *got[2];
        for (int fresh = 0; fresh < 2; fresh++) {
            const struct linear p = {ROWS, IN, out, LINEAR_OUT_IN, type == DTYPE_BF16, fresh};
            const struct linear_loss l = {.x = x.view,
                                          .w = w.view,
                                          .targets = targets.view,
                                          .losses = losses.view,
                                          .scale = 0.25f,
                                          .dx = dx.view,
                                          .dw = dw.view};
            dev.ops->fill(&dev, dw.view, weights, fresh ? NAN : 0);
            dev.ops->linear_loss(&dev, &p, &l);
            assert_ok(device_check(&dev));
            got[fresh] = host_buffer(&dev, &dw);
        }
        for (size_t e = 0; e < weights; e++)
            if (!(element(got[1], dw.view.type, e) == element(got[0], dw.view.type, e)))
                fail_with("case %d: dw[%zu] is %g, added to zeros %g", i, e,
                          element(got[1], dw.view.type, e), element(got[0], dw.view.type, e));
        struct buffer *all[] = {&x, &w, &dx, &dw, &targets, &losses};
        for (size_t b = 0; b < sizeof all / sizeof *all; b++)
            buffer_free(all[b]);
        free(got[0]);
        free(got[1]);
        free(target);
    }
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

/* If a device has the op: dx equals that of gelu_backward, and dbias gains the column sums of
 * dx. */
static void gelu_adds_up_its_bias(struct device *dev, enum gelu_kind kind, enum dtype x,
                                  enum dtype b, int rows, int width)
{
    const size_t count = (size_t)rows * (size_t)width;
    struct buffer in, dy, dx, plain, dbias;
    assert_ok(buffer_init(&in, dev, x, count, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&dy, dev, x, count, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&dx, dev, x, count, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&plain, dev, x, count, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&dbias, dev, b, (size_t)width, MEMORY_GRADIENTS));
    fill_normal(dev, &in, 1, 3);
    fill_normal(dev, &dy, 2, 1);
    fill_normal(dev, &dbias, 3, 1);
    void *before = host_buffer(dev, &dbias);
    dev->ops->gelu_backward(dev, kind, plain.view, dy.view, in.view, count);
    dev->ops->copy(dev, dx.view, dy.view, count);
    dev->ops->gelu_bias_backward(dev, kind, rows, width, dx.view, dbias.view, dx.view, in.view);
    assert_ok(device_check(dev));
    void *have = host_buffer(dev, &dx), *want = host_buffer(dev, &plain);
    void *after = host_buffer(dev, &dbias);
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(element(have, x, i) - element(want, x, i)) <=
                    fabs(element(want, x, i)) * (x == DTYPE_BF16 ? 1. / 128 : 1e-6) + 1e-9);
    for (int c = 0; c < width; c++) {
        double sum = element(before, b, (size_t)c), largest = fabs(sum);
        for (int r = 0; r < rows; r++) {
            sum += element(have, x, (size_t)r * (size_t)width + (size_t)c);
            largest = fmax(largest, fabs(sum));
        }
        /* sums are of numbers before rounding: the error is the root of their count */
        const double room = (x == DTYPE_BF16 ? sqrt(rows) / 256 : 1e-5 * largest) +
                            (b == DTYPE_BF16 ? fabs(sum) / 128 : 1e-5);
        if (!(fabs(element(after, b, (size_t)c) - sum) <= room))
            fail_with("%d x %d, types %d %d: column %d is %g, not %g", rows, width, (int)x, (int)b,
                      c, element(after, b, (size_t)c), sum);
    }
    struct buffer *all[] = {&in, &dy, &dx, &plain, &dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
    free(before);
    free(have);
    free(want);
    free(after);
}

static void gelu_with_bias(void **state)
{
    (void)state;
    struct device dev;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    for (int i = 0; i < 16 && dev.ops->gelu_bias_backward; i++)
        gelu_adds_up_its_bias(&dev, i & 1 ? GELU_EXACT : GELU_TANH, i & 2 ? DTYPE_BF16 : DTYPE_F32,
                              i & 4 ? DTYPE_BF16 : DTYPE_F32, 300, i & 8 ? 272 : 33);
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

/* A bias's gradient is computed from the original dy, though the product after the sum writes
 * dy. */
static void sums_before_it_is_written(void **state)
{
    (void)state;
    enum { ROWS = 8192, WIDE = 2304, NARROW = 8 };
    const struct linear down = {.rows = ROWS, .in = NARROW, .out = WIDE};
    const struct linear up = {.rows = ROWS, .in = WIDE, .out = NARROW};
    struct device dev;
    struct buffer dy, thin, w, dw, dbias;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    assert_ok(buffer_init(&dy, &dev, DTYPE_BF16, (size_t)ROWS * WIDE, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&thin, &dev, DTYPE_BF16, (size_t)ROWS * NARROW, MEMORY_ACTIVATIONS));
    assert_ok(buffer_init(&w, &dev, DTYPE_BF16, (size_t)WIDE * NARROW, MEMORY_PARAMETERS));
    assert_ok(buffer_init(&dw, &dev, DTYPE_BF16, (size_t)WIDE * NARROW, MEMORY_GRADIENTS));
    assert_ok(buffer_init(&dbias, &dev, DTYPE_F32, WIDE, MEMORY_GRADIENTS));
    for (int round = 0; round < 4; round++) {
        dev.ops->fill(&dev, dy.view, dy.count, 1);
        dev.ops->fill(&dev, dbias.view, dbias.count, 0);
        dev.ops->linear_backward_w(&dev, &down, dw.view, dbias.view, dy.view, thin.view);
        dev.ops->linear_backward_x(&dev, &up, dy.view, thin.view, w.view, false); /* zeros */
        float *sums = host_buffer(&dev, &dbias);
        for (int c = 0; c < WIDE; c++)
            assert_true(sums[c] == ROWS);
        free(sums);
    }
    struct buffer *all[] = {&dy, &thin, &w, &dw, &dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

/* Vectors that methods slice, long enough for all widths of loads. */
enum { SLICED = 70001, SLICED_VECTORS = 5 };
enum slice_op {
    SLICE_ADAMW,
    SLICE_PEEK,
    SLICE_SGD,
    SLICE_MOMENTUM,
    SLICE_NESTEROV,
    SLICE_AXPBY,
    SLICE_CO2,
    SLICE_OPS
};

/* Fills a buffer with numbers of all bits, from `least` to `least` + 1. */
static void fill_uniform(struct device *dev, struct buffer *b, uint64_t stream, float least)
{
    void *host = calloc(b->count, sizeof(float));
    assert_non_null(host);
    for (size_t i = 0; i < b->count; i++) {
        const float x = least + (float)(rng_at(6, stream, i) >> 40) / (1 << 24);
        if (b->view.type == DTYPE_F32)
            ((float *)host)[i] = x;
        else
            ((uint16_t *)host)[i] = bf16_round(x);
    }
    dev->ops->write(dev, b->view, host, b->count);
    free(host);
}

static void run_slice(struct device *dev, enum slice_op op, const struct buffer *b, size_t begin,
                      size_t end)
{
    struct view v[SLICED_VECTORS];
    for (int i = 0; i < SLICED_VECTORS; i++)
        v[i] = view_at(b[i].view, begin);
    const struct stretch s = {.x = v[0],
                              .theta = v[1],
                              .g = v[2],
                              .m = op == SLICE_SGD ? view_none : v[3],
                              .v = v[4],
                              .count = end - begin,
                              .decay = 0.1f};
    const struct adamw adamw = {.lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .correct1 = 0.19f,
                                .correct2 = 0.0975f,
                                .grad_scale = 0.3f,
                                .peek = op == SLICE_PEEK};
    const struct sgd sgd = {.lr = 0.01f,
                            .momentum = op == SLICE_SGD ? 0 : 0.9f,
                            .nesterov = op == SLICE_NESTEROV,
                            .grad_scale = 0.3f};
    const struct co2_step co2 = {0.25f, 3, 0.7f, 0.9f, 1, 1.1f};
    if (op <= SLICE_PEEK)
        dev->ops->adamw(dev, &adamw, &s, 1);
    else if (op <= SLICE_NESTEROV)
        dev->ops->sgd(dev, &sgd, &s, 1);
    else if (op == SLICE_AXPBY)
        dev->ops->axpby(dev, v[1], 0.3f, -0.7f, v[0], s.count);
    else if (v[1].type == DTYPE_F32)
        dev->ops->co2(dev, &co2, v[0], v[1], v[3], v[4], v[2], s.count);
}

/* Runs `op` on n slices of the vectors, each slice from one cut to the next. */
static void run_slices(struct device *dev, enum slice_op op, enum dtype type, const size_t *cut,
                       int n, void **out)
{
    struct buffer b[SLICED_VECTORS];
    for (int i = 0; i < SLICED_VECTORS; i++) { /* theta and g have the type, v is positive */
        const enum dtype own = i == 1 || i == 2 ? type : DTYPE_F32;
        assert_ok(buffer_init(&b[i], dev, own, SLICED, MEMORY_OPTIMIZER));
        fill_uniform(dev, &b[i], (uint64_t)i, i == 4 ? 0.01f : -0.5f);
    }
    for (int i = 0; i < n; i++)
        run_slice(dev, op, b, cut[i], cut[i + 1]);
    assert_ok(device_check(dev));
    for (int i = 0; i < SLICED_VECTORS; i++) {
        out[i] = host_buffer(dev, &b[i]);
        buffer_free(&b[i]);
    }
}

/* Workers may share vectors in any slices: an element has the same bits in every slice. */
static void slices_have_the_same_bits(void **state)
{
    (void)state;
    static const size_t whole[] = {0, SLICED},
                        sliced[] = {0, 1, 4, 2059, 33336, 50002, 69999, SLICED};
    struct device dev;
    int wrong = 0;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    for (int i = 0; i < 2 * SLICE_OPS; i++) {
        const enum dtype type = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        void *a[SLICED_VECTORS], *b[SLICED_VECTORS];
        run_slices(&dev, (enum slice_op)(i / 2), type, whole, 1, a);
        run_slices(&dev, (enum slice_op)(i / 2), type, sliced, 7, b);
        for (int k = 0; k < SLICED_VECTORS; k++) {
            if (memcmp(a[k], b[k], SLICED * sizeof(float)) != 0) {
                print_error("op %d, type %d: vector %d differs\n", i / 2, (int)type, k);
                wrong++;
            }
            free(a[k]);
            free(b[k]);
        }
    }
    device_close(&dev);
    assert_int_equal(wrong, 0);
    assert_int_equal(memory.total, 0);
}

/* Gradients of frequent tokens, which fill many rows in every group that is sorted at once. The
 * gradients are whole numbers below 2^24, with exact sums in any order, as are bf16's factors of 1
 * / 8. */
static void tokens_of_many_rows(void **state)
{
    (void)state;
    enum { VOCAB = 5, BATCH = 5, T = 1300, ROWS = BATCH * T };
    static const int widths[] = {8, 12, 136, 1032};
    struct device dev;
    int32_t *token = malloc(ROWS * sizeof *token);
    assert_non_null(token);
    for (int r = 0; r < ROWS; r++) /* token 4 once, 3 never, 2 in the last group alone */
        token[r] = r == 700 ? 4 : r > ROWS - 20 ? 2 : r % 3 == 0;
    assert_ok(device_open(&dev, far_device(), &memory, 1));
    for (int i = 0; i < 8; i++) {
        const int width = widths[i / 2];
        const enum dtype type = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        const size_t count = (size_t)ROWS * (size_t)width;
        struct buffer ids, dy, table;
        float *x = malloc(count * sizeof *x), *sum = calloc((size_t)VOCAB * (size_t)width, 4);
        assert_true(x && sum);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < width; c++) {
                const size_t at = (size_t)r * (size_t)width + (size_t)c;
                x[at] = (float)((r * 7 + c) % 16 - 8) / 8;
                sum[token[r] * width + c] += x[at];
            }
        assert_ok(buffer_init(&ids, &dev, DTYPE_I32, ROWS, MEMORY_SCRATCH));
        assert_ok(buffer_init(&dy, &dev, type, count, MEMORY_ACTIVATIONS));
        assert_ok(
            buffer_init(&table, &dev, DTYPE_F32, (size_t)VOCAB * (size_t)width, MEMORY_GRADIENTS));
        dev.ops->write(&dev, ids.view, token, ROWS);
        if (type == DTYPE_BF16)
            for (size_t k = 0; k < count; k++)
                ((uint16_t *)x)[k] = bf16_round(x[k]);
        dev.ops->write(&dev, dy.view, x, count);
        dev.ops->embedding_backward(&dev, BATCH, T, width, table.view, view_none, ids.view,
                                    dy.view);
        float *is = host_buffer(&dev, &table);
        assert_ok(device_check(&dev));
        assert_memory_equal(is, sum, (size_t)VOCAB * (size_t)width * sizeof *is);
        free(is);
        free(sum);
        free(x);
        buffer_free(&ids);
        buffer_free(&dy);
        buffer_free(&table);
    }
    device_close(&dev);
    free(token);
    assert_int_equal(memory.total, 0);
}

/* Long reads and writes are split; a write has copied the host's data when it returns. */
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

/* A context computes, another context continues after its mark, with more marks than are kept. */
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

/* A size larger than any device's memory is refused, with the use of memory in the message. */
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
        assert_ok(device_check(&dev)); /* no other failure is recorded */
        buffer_free(&x);
    }
    device_close(&dev);
    assert_int_equal(memory.total, 0);
}

int main(int argc, char **argv)
{
    struct device dev;
    if (argc > 1 && strncmp(argv[1], "--largest=", 10) == 0) {
        only.largest = strtoull(argv[1] + 10, NULL, 10);
        argv++;
        argc--;
    }
    only.op = argv + 1;
    only.n = argc - 1;
    if (device_open(&dev, far_device(), &memory, 1) != SOTTO_OK) {
        printf("%s\n", sotto_error());
        return strcmp(far_device(), "cuda") == 0 ? 77 : 1;
    }
    device_close(&dev);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_reference),
        cmocka_unit_test(twice_the_same_bits),
        cmocka_unit_test(tokens_of_many_rows),
        cmocka_unit_test(data_pass_whole),
        cmocka_unit_test(contexts_follow),
        cmocka_unit_test(no_memory_is_said),
        cmocka_unit_test(losses_at_once),
        cmocka_unit_test(fresh_losses),
        cmocka_unit_test(gelu_with_bias),
        cmocka_unit_test(sums_before_it_is_written),
        cmocka_unit_test(slices_have_the_same_bits),
    };
    const struct CMUnitTest some[] = {cmocka_unit_test(agrees_with_reference)};
    return only.n ? cmocka_run_group_tests(some, NULL, NULL)
                  : cmocka_run_group_tests(tests, NULL, NULL);
}
